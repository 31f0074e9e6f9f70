"""Real power cuts on real file systems: nothing that was flushed is lost.

A writer in another process reports through a pipe.  At a random moment its file system is shut
down, it is killed, and the file system is mounted again.
"""

import random
import re
import threading

import pytest

import kafkalog
from tests.damage.powercut.disks import LOG_KEPT, LOG_LOST, MKFS, Disk, why_not
from tests.damage.powercut.ledger import DurableLedger
from tests.support.effort import patience_s, rounds

CUTS = 10  # of each, at least
FRESH_AFTER = 20  # cuts of one log before a new one starts
DISK_IS_GONE = ("StorageOffline", "IoFailed", "Input/output error")


@pytest.fixture(params=MKFS)
def disk(request, tmp_path, wait_until):
    """A mounted file system for one test."""
    reason = why_not(request.param)
    if reason:
        pytest.skip(f"{request.param}: {reason}")
    made = Disk(request.param, tmp_path, wait_until)
    try:
        made.mount()
    except RuntimeError as refusal:
        pytest.skip(f"{request.param}: {refusal}")
    yield made
    made.unmount()


def account(worker, ledger, after=lambda: None):
    """Pass every report to the ledger, each followed by `after()`; returns the worker's failure,
    if it failed."""
    reports = worker.reports()
    while True:
        try:
            words = next(reports)
        except StopIteration:
            return None
        except AssertionError as failure:
            return str(failure)
        ledger.note(words)
        after()


def cut(disk, flag, ledger):
    """Cut the power; later returns do not count."""
    ledger.cut.set()
    disk.cut(flag)


def look(zygote, disk, path, ledger):
    """Mount after a cut, and compare the log there with the ledger."""
    disk.unmount()
    disk.mount()
    failure = account(zygote.start("look", path=path, number=ledger.next_number), ledger)
    assert failure is None, failure


@pytest.mark.slow
@pytest.mark.explore
@pytest.mark.timeout(patience_s(300))
def test_a_power_cut_loses_nothing_that_was_flushed(zygote, disk, rng):
    """Cuts at random moments, with and without the file system's own log."""
    promises = changes = late_lost = 0
    ledger, path = DurableLedger(), ""
    number = 0
    planned = rounds(CUTS)
    # On a busy machine a few cuts may all come before the first flush.
    while next(planned, None) is not None or (promises == 0 and number < 20 * CUTS):
        if number % FRESH_AFTER == 0:
            late_lost += ledger.late_lost
            ledger, path = DurableLedger(), str(disk.root / f"log-{number // FRESH_AFTER}")
        worker = zygote.start(
            "torture", path=path, seed=rng.getrandbits(32), number=ledger.next_number
        )
        flag = rng.choice((LOG_KEPT, LOG_LOST))
        cutter = threading.Timer(rng.expovariate(1 / 0.06), cut, (disk, flag, ledger))
        cutter.start()
        before = ledger.changes, ledger.promises
        failure = account(worker, ledger)
        cutter.join()
        worker.kill()
        ledger.cut.clear()
        assert failure is None or any(word in failure for word in DISK_IS_GONE), failure
        changes += ledger.changes - before[0]
        promises += ledger.promises - before[1]
        try:
            look(zygote, disk, path, ledger)
        except AssertionError as broken:
            raise AssertionError(f"cut {number}, flag {flag}: {broken}") from broken
        number += 1
    late_lost += ledger.late_lost
    print(
        f"{number} cuts, {changes} changes, {promises} flushes, none lost; {late_lost} behind a cut"
    )
    assert promises > 0


def test_an_open_log_outlives_its_disk(zygote, disk):
    """No signal ends the process: each call is refused, and the log is offline."""
    worker = zygote.start("outlive", path=str(disk.root / "log-0"))
    words = []
    for report in worker.reports():
        words.append(report)
        if len(words) == 3:
            disk.cut(LOG_LOST)
    assert words[-1] == ["done"]
    assert [w[0] for w in words[:3]] == ["flushed"] * 3
    refused = [w for w in words if w[0] == "refused"]
    assert ["refused", "StorageOffline"] in refused
    disk.unmount()
    disk.mount()
    with kafkalog.Log(disk.root / "log-0") as log:
        assert log.end_offset >= 3 and log.verify().clean


def lied(zygote, disk, path):
    """The ledger's complaint about records that were acknowledged and never synced, after a cut."""
    ledger, cuts = DurableLedger(), []

    def after():
        if ledger.promises == 20 and not cuts:
            cuts.append(disk.cut(LOG_LOST))

    worker = zygote.start("lie", path=path)
    failure = account(worker, ledger, after)
    assert failure is not None and any(word in failure for word in DISK_IS_GONE)
    assert ledger.flushed >= 20
    try:
        look(zygote, disk, path, ledger)
    except AssertionError as found:
        return str(found)
    return None


def test_a_writer_that_does_not_flush_is_found(zygote, disk):
    """The harness itself: it sees the loss of records acknowledged but never synced, unless the
    kernel happened to write them back just then."""
    found = None
    for number in range(5):
        found = found or lied(zygote, disk, str(disk.root / f"log-{number}"))
    assert found is not None and re.search(r"found 0\.\.\d+ of 0\.\.\d+", found), found


def test_the_ledger_takes_a_beginning_and_nothing_else():
    rng = random.Random(1)
    for end in rng.sample(range(6), 6):
        ledger = DurableLedger()
        for words in (["append", 0, 3], ["returned", 0, 2], ["flush"], ["returned"],
                      ["append", 3, 2], ["returned", 3, 4]):  # fmt: skip
            ledger.note(words)
        found = [[i, i] for i in range(end)]
        if end < 3:
            with pytest.raises(AssertionError):
                ledger.check(0, end, found)
        else:
            ledger.check(0, min(end, 5), found[:5])
            assert ledger.end == min(end, 5)


@pytest.mark.parametrize("start", [2, 3, 4])
@pytest.mark.parametrize("end", [6, 9])
def test_the_ledger_takes_a_start_that_an_interrupted_truncation_lowered(start, end):
    """Into the batch that holds it, and only to that batch's base: its deleted records are there
    again, and an unflushed end may be lost."""
    ledger = DurableLedger()
    for words in (["append", 0, 3], ["returned", 0, 2], ["append", 3, 3], ["returned", 3, 5],
                  ["delete", 4], ["returned"], ["flush"], ["returned"],
                  ["append", 6, 3], ["returned", 6, 8], ["truncate", 4, 3]):  # fmt: skip
        ledger.note(words)
    found = [[i, i] for i in range(start, end)]
    if start < 3:
        with pytest.raises(AssertionError):
            ledger.check(start, end, found)
    else:
        ledger.check(start, end, found)
        assert (ledger.start, ledger.end) == (start, end)
