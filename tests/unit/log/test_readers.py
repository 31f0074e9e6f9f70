"""Readers in other processes while a log is appended to, rolled, truncated and deleted."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import kafkalog
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.damage.crash.ledger import key_of, value_of
from tests.support import batches, cases
from tests.support.batches import Row
from tests.support.effort import patience_s, rounds
from tests.support.waiting import LIMIT_S
from tests.unit.log.reader import PER_OFFSET
from tests.unit.log.test_held_disk import held
from tests.unit.log.test_old_looks import waits_for_a_lock

CHANGES = 400
CONFIG = {"segment.bytes": 20_000, "index.interval.bytes": 500, "file.delete.delay.ms": 0}


def append(log, count, generation, codec=None):
    """Append records whose numbers contain their offsets and whose timestamps are their offsets."""
    offsets = range(log.end_offset, log.end_offset + count)
    numbers = [offset * PER_OFFSET + generation % PER_OFFSET for offset in offsets]
    log.append_many(
        [value_of(n) for n in numbers],
        keys=[key_of(n) for n in numbers],
        timestamps_ms=list(offsets),
        compression=codec,
        batch_bytes=3000,
    )


def change(log, rng, generation):
    chance = rng.random()
    if chance < 0.7:
        append(log, rng.randint(1, 60), generation, rng.choice((None, "lz4", "zstd")))
    elif chance < 0.8:
        log.roll()
    elif chance < 0.88:
        log.truncate(max(log.start_offset, log.end_offset - rng.randint(1, 100)))
    elif chance < 0.9:
        truncate_fully(handle_of(log), log.end_offset)
    elif chance < 0.97:
        log.delete_before(max(log.start_offset, log.end_offset - rng.randint(100, 600)))
    else:
        log.flush()


@pytest.mark.slow
@pytest.mark.explore
@pytest.mark.timeout(patience_s(300))
def test_readers_get_a_right_answer_or_a_clear_error(rng, tmp_path):
    """Never wrong bytes, never a crash: each reader runs to the end and has read a lot."""
    path = tmp_path / "log-0"
    with kafkalog.Log(path, config=CONFIG) as log:
        append(log, 100, 0)
        command = [sys.executable, "-m", "tests.unit.log.reader", str(path)]
        readers = [
            subprocess.Popen(
                [*command, str(rng.getrandbits(32))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cases.ROOT, text=True,
            )
            for _ in range(2)
        ]  # fmt: skip
        for generation in rounds(CHANGES):
            if any(reader.poll() for reader in readers):
                break
            change(log, rng, generation + 1)
        counts = []
        for reader in readers:
            said, _ = reader.communicate(timeout=LIMIT_S)
            assert reader.returncode == 0, f"a reader ended with {reader.returncode}"
            counts.append(json.loads(said))
    print(f"{generation} changes; readers: {counts}")


def test_a_follower_in_another_process_sees_each_record_once(tmp_path):
    """follow() across rolls: every record, in order, without reopening anything."""
    path = tmp_path / "log-0"
    program = (
        "import sys, kafkalog\n"
        "with kafkalog.Log(sys.argv[1], mode='r') as log:\n"
        "    for record in log.follow(0):\n"
        "        print(record.offset, record.value.decode(), flush=True)\n"
        "        if record.value == b'last':\n"
        "            break\n"
    )
    with kafkalog.Log(path, config=CONFIG) as log:
        log.append(b"first")
        with subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            stdout=subprocess.PIPE, cwd=cases.ROOT, text=True,
        ) as follower:  # fmt: skip
            assert follower.stdout is not None
            assert follower.stdout.readline() == "0 first\n"
            for i in range(1, 500):
                log.append(b"x" * 100)
                if i % 100 == 0:
                    log.roll()
            log.append(b"last")
            seen = [line.split() for line in follower.stdout]
    assert [int(offset) for offset, _ in seen] == list(range(1, 501))
    assert seen[-1][1] == "last"


HELD = """
import sys, threading, kafkalog
from kafkalog._native import lib

def look():
    try:
        seen.append(next(iter(log.read(190))).value[:3].decode())
    except BaseException as failure:
        seen.append(repr(failure))

seen = []
with kafkalog.Log(sys.argv[1], mode="r") as log:
    lib.kl_io_hold(b"pread", 1)
    thread = threading.Thread(target=look)
    thread.start()
    while not lib.kl_io_waiting(b"pread"):
        thread.join(0.001)
    print("held", flush=True)
    sys.stdin.readline()
    lib.kl_io_hold(b"pread", 0)
    thread.join()
print(seen[0])
"""


def test_a_log_rewritten_during_a_lookup(tmp_path, native_test):
    """Its headers have moved: this is not damage, and the reader looks again."""
    path = tmp_path / "log-0"
    config = {"index.interval.bytes": 1 << 20}  # walking headers finds the place
    with kafkalog.Log(path, config=config) as log:
        for _ in range(200):
            log.append(b"old" + bytes(20))
        with subprocess.Popen(
            [sys.executable, "-c", HELD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=cases.ROOT, text=True, env={**os.environ, "KAFKALOG_NATIVE": "test"},
        ) as reader:  # fmt: skip
            assert reader.stdin is not None and reader.stdout is not None
            assert reader.stdout.readline() == "held\n"
            log.truncate(0)
            for _ in range(200):
                log.append(b"new" + bytes(80))
            said, _ = reader.communicate("go on\n", timeout=LIMIT_S)
        assert said == "new\n"


def test_a_view_of_a_segment_outlives_its_deletion(tmp_path):
    """A borrowed index of a sealed segment does not change after the segment is gone."""
    with kafkalog.Log(tmp_path / "log-0", config=CONFIG) as log:
        append(log, 400, 0)
        index = log.segments[0].offset_index
        before = index.tolist()
        assert before
        log.delete_before(log.end_offset)
        truncate_fully(handle_of(log), 5000)
        assert index.tolist() == before


def test_a_truncation_under_a_committed_read_shows_nothing_aborted(tmp_path):
    """The records that replace truncated ones are aborted: an error, or none of them is shown."""

    def transaction(log, producer, count, commit):
        for i in range(count):
            row = batches.Row(b"%s %d" % (b"ok" if commit else b"no", i) * 10_000)
            log.append_batches(
                batches.batch(
                    [row], producer_id=producer, producer_epoch=0, base_sequence=i,
                    transactional=True,
                )
            )  # fmt: skip
        log.append_marker(producer, 0, commit)

    with kafkalog.Log(tmp_path / "log-0") as log:
        transaction(log, 1, 300, commit=True)
        for reader in (log, kafkalog.Log(tmp_path / "log-0", mode="r")):
            log.truncate(0)
            transaction(log, 1, 300, commit=True)
            reading = reader.read(isolation="read_committed")
            seen = [next(reading)]
            log.truncate(20)
            log.append_marker(1, 0, True)
            transaction(log, 2, 300, commit=False)
            with contextlib.suppress(kafkalog.errors.StaleLog, kafkalog.OffsetOutOfRange):
                seen.extend(reading)
            assert {record.value[:2] for record in seen} == {b"ok"}


def test_lost_aborts_and_a_lost_index_of_one_segment(tmp_path, native_test, wait_until):
    """Two threads in turn rebuild both and record them in the side-car."""
    folder, now_ms = tmp_path / "t-0", time.time_ns() // 1_000_000
    with kafkalog.Log(folder, config=CONFIG) as log:
        rows = [Row(b"v" * 300, timestamp_ms=now_ms)]
        for i in range(20):
            log.append_batches(
                batches.batch(rows, producer_id=1, producer_epoch=0, base_sequence=i,
                              transactional=True)
            )  # fmt: skip
        log.append_marker(1, 0, False)
        log.roll()
        log.append(b"next")
        wanted = log.aborted(0, log.end_offset)
    (folder / f"{0:020}.txnindex").unlink()
    thread = []

    def ask():
        thread.append(threading.get_native_id())
        return log.aborted(0, log.end_offset)

    with kafkalog.Log(folder, config=CONFIG) as log, ThreadPoolExecutor(1) as pool:
        log.append(b"first")
        log.flush()
        (folder / f"{0:020}.index").unlink()
        hooks = native_test[1]
        with held(hooks, b"renameat", lambda: list(log.read(3, 4)), wait_until):
            asked = pool.submit(ask)
            wait_until(
                lambda: asked.done() or (thread and waits_for_a_lock(thread[0])),
                "the question ends or waits",
            )
        assert asked.result() == wanted == log.aborted(0, log.end_offset)
        assert [a.producer_id for a in wanted] == [1]
    with kafkalog.Log(folder, config=CONFIG) as log:
        assert log.verify(deep=True).clean


@pytest.mark.slow
def test_threads_share_a_log(tmp_path, rng):
    """8 threads append to and read one handle, then it is closed: each ends with Closed."""
    log = kafkalog.Log(tmp_path / "log-0", config=CONFIG)
    failures, taken = [], []
    started = threading.Barrier(9)

    def work(name):
        started.wait()
        mine = []
        try:
            for i in range(100_000):
                mine.append((log.append(b"%d %d" % (name, i)), b"%d %d" % (name, i)))
                if i % 10 == 0:
                    offset, value = mine[i // 2]
                    assert next(log.read(offset)).value == value
                    assert log.end_offset > offset
                if i % 50 == 0:
                    log.flush()
        except kafkalog.Closed:
            taken.append(mine)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    deadline = time.monotonic() + 60
    while log.end_offset < 4000 and time.monotonic() < deadline and not failures:
        log.roll()
    log.close()
    for thread in threads:
        thread.join(LIMIT_S)
    assert failures == []
    assert len(taken) == 8
    appended = sorted(pair for mine in taken for pair in mine)
    with kafkalog.Log(tmp_path / "log-0") as again:
        assert [(r.offset, r.value) for r in again.read()] == appended
        assert again.verify().clean
