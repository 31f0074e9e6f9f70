"""A disk that is really full: small separate file systems, and a limit on file sizes.

An append on a full disk is refused with NoSpace, nothing acknowledged is lost, the log stays
readable, and it goes on when there is space again.  A full disk never shows first at a flush:
appended records already have their blocks.
"""

import contextlib
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog
from kafkalog.directory.jobs.retention import retain
from kafkalog.directory.manager import Manager
from tests.support import batches, trees
from tests.support.smalldisks import Ballast, free_bytes, mounted

CONFIG = {"segment.bytes": 256 << 10, "index.interval.bytes": 4096, "file.delete.delay.ms": 0}
VALUES = [bytes([65 + i]) * (700 + 37 * i) for i in range(26)]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def value_of(number: int) -> bytes:
    return b"%d:%s" % (number, VALUES[number % len(VALUES)])


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request, tmp_path):
    """A file system of 8 MiB (ext4: 16, of which its journal takes some)."""
    with mounted(request.param, tmp_path, 8 if request.param == "tmpfs" else 16) as path:
        yield path


def missing(log: kafkalog.Log, acknowledged: list[int]) -> list[int]:
    """The acknowledged records that the log lacks, or has changed."""
    held = {record.offset: record.value for record in log.read()}
    return [n for n in acknowledged if held.get(n) != value_of(n)]


def append(log: kafkalog.Log, acknowledged: list[int], count: int = 1) -> None:
    for _ in range(count):
        number = log.end_offset
        assert log.append(value_of(number), timestamp_ms=1000 + number) == number
        acknowledged.append(number)


def append_until_full(log: kafkalog.Log, acknowledged: list[int]) -> None:
    with pytest.raises(kafkalog.NoSpace, match=r"append|space"):
        append(log, acknowledged, 100_000)


def goes_on(log: kafkalog.Log, acknowledged: list[int], count: int = 50) -> None:
    """With space again: appends and a flush work, and all is there, now and after reopening."""
    append(log, acknowledged, count)
    log.flush()
    assert log.flushed_offset == log.end_offset
    assert missing(log, acknowledged) == []
    assert log.verify().clean


def reopened(path: Path, acknowledged: list[int]) -> None:
    with kafkalog.Log(path, config=CONFIG) as log:
        assert missing(log, acknowledged) == []
        assert log.verify().clean
        append(log, acknowledged)


def test_append_is_refused_and_passes_when_space_returns(disk):
    acknowledged: list[int] = []
    ballast = Ballast(disk)
    with kafkalog.Log(disk / "log-0", config=CONFIG) as log:
        append(log, acknowledged, 10)
        for _ in range(3):
            ballast.fill()
            append_until_full(log, acknowledged)
            end = log.end_offset
            for _ in range(3):  # repeatedly, and nothing is left behind
                with pytest.raises(kafkalog.NoSpace):
                    log.append_many([bytes(200_000)])
            assert log.end_offset == end
            assert missing(log, acknowledged) == []
            log.flush()
            assert log.flushed_offset == end
            ballast.drop()
            goes_on(log, acknowledged, 200)
    reopened(disk / "log-0", acknowledged)


def test_a_flush_is_never_the_first_to_see_it(disk):
    """Appended records have their blocks: another file that takes the rest changes nothing."""
    acknowledged: list[int] = []
    ballast = Ballast(disk)
    with kafkalog.Log(disk / "log-0", config=CONFIG) as log:
        for _ in range(12):
            append(log, acknowledged, 60)
            ballast.fill()
            log.flush()
            assert log.flushed_offset == log.end_offset
            ballast.drop()
    reopened(disk / "log-0", acknowledged)


def roll(log):
    log.roll()


def truncate(log):
    log.truncate(log.end_offset - 5)


def truncate_far(log):
    """Into a sealed segment, whose kept part is copied."""
    log.truncate((log.start_offset + log.end_offset) // 2)


def delete_before(log):
    log.delete_before(log.end_offset - 40)


def retention(log):
    log.apply_retention(now_ms=1 << 50)


def abort_first(log):
    log.append_marker(7, 0, commit=False)


def commit(log):
    log.append_marker(8, 0, commit=True)


def new_leader(log):
    log.append_as_follower(
        batches.batch([batches.Row(b"x")], base_offset=log.end_offset, leader_epoch=9)
    )


def many(log):
    log.append_many([bytes(1000)] * 1000, timestamps_ms=[1 << 40] * 1000)


CHANGES = [
    roll,
    truncate,
    truncate_far,
    delete_before,
    retention,
    abort_first,
    commit,
    new_leader,
    many,
]


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_on_a_full_disk(disk, change):
    """It is done, or refused with NoSpace; then the log goes on when there is space."""
    acknowledged: list[int] = []
    ballast = Ballast(disk)
    config = {**CONFIG, "retention.ms": 1000} if change is retention else CONFIG
    with kafkalog.Log(disk / "log-0", config=config) as log:
        append(log, acknowledged, 400)
        for producer in (7, 8):
            rows = [batches.Row(b"in a transaction", timestamp_ms=5)]
            log.append_batches(
                batches.batch(
                    rows, producer_id=producer, producer_epoch=0, base_sequence=0,
                    transactional=True,
                )
            )  # fmt: skip
        if change in (delete_before, retention):
            log.append_marker(7, 0, commit=True)
            log.append_marker(8, 0, commit=True)
        before = log.end_offset
        ballast.fill()
        with contextlib.suppress(kafkalog.NoSpace):
            append(log, acknowledged, 100_000)
        with contextlib.suppress(kafkalog.NoSpace):
            change(log)
        acknowledged = [n for n in acknowledged if log.start_offset <= n < log.end_offset]
        if change in (abort_first, commit, new_leader, many, roll):
            assert log.end_offset >= before
        assert missing(log, acknowledged) == []
        ballast.drop()
        change(log)
        acknowledged = [n for n in acknowledged if log.start_offset <= n < log.end_offset]
        goes_on(log, acknowledged)
        acknowledged = [n for n in acknowledged if n >= log.start_offset]
    reopened(disk / "log-0", acknowledged)


def test_an_abort_is_seen_whatever_the_disk_held(disk):
    """A marker whose index entry had no space was refused, not half done."""
    ballast = Ballast(disk)
    row = batches.Row(b"aborted", timestamp_ms=5)
    data = batches.batch(
        [row], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    with kafkalog.Log(disk / "log-0", config=CONFIG) as log:
        log.append_batches(data)
        log.append(b"plain", timestamp_ms=6)
        ballast.fill()
        with contextlib.suppress(kafkalog.NoSpace):
            abort_first(log)
        ballast.drop()
        if log.last_stable_offset == 0:
            abort_first(log)
        assert [r.value for r in log.read(isolation="read_committed")] == [b"plain"]
    with kafkalog.Log(disk / "log-0", config=CONFIG) as log:
        assert [r.value for r in log.read(isolation="read_committed")] == [b"plain"]


def test_a_close_on_a_full_disk_loses_nothing(disk):
    acknowledged: list[int] = []
    ballast = Ballast(disk)
    log = kafkalog.Log(disk / "log-0", config=CONFIG)
    append(log, acknowledged, 100)
    ballast.fill()
    with contextlib.suppress(kafkalog.NoSpace):
        append(log, acknowledged, 100_000)
    with contextlib.suppress(kafkalog.NoSpace):
        log.close()
    log.close()
    with kafkalog.Log(disk / "log-0", mode="r") as reader:  # reading needs no space
        assert missing(reader, acknowledged) == []
    ballast.drop()
    reopened(disk / "log-0", acknowledged)


def test_no_inodes_left(tmp_path):
    """A roll, which needs a new file, is refused; the active segment stays readable."""
    acknowledged: list[int] = []
    with mounted("tmpfs", tmp_path, 8) as disk:
        subprocess.run(["mount", "-o", "remount,nr_inodes=14", str(disk)], check=True)
        with kafkalog.Log(disk / "log-0", config={**CONFIG, "segment.bytes": 20_000}) as log:
            append_until_full(log, acknowledged)
            assert missing(log, acknowledged) == []
            log.flush()
            subprocess.run(["mount", "-o", "remount,nr_inodes=1000", str(disk)], check=True)
            goes_on(log, acknowledged)
        reopened(disk / "log-0", acknowledged)


LIMITED = """
import resource, sys
import kafkalog
log = kafkalog.Log(sys.argv[1], config={"segment.bytes": 1 << 20})
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
count = 0
try:
    while True:
        log.append(b"%d:" % count + bytes(500), timestamp_ms=1)
        count += 1
except kafkalog.KafkalogError as error:
    refused = type(error).__name__
assert log.end_offset == count and sum(1 for _ in log.read()) == count
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert log.append(b"more", timestamp_ms=1) == count
log.flush()
log.close()
print(refused, count + 1)
"""


def test_a_limit_on_file_sizes_is_an_error_not_a_signal(tmp_path):
    """EFBIG, although the default action of its signal would end the process."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "log-0")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    refused, count = done.stdout.split()
    assert refused in ("IoFailed", "NoSpace")
    with kafkalog.Log(tmp_path / "log-0") as log:
        assert log.end_offset == int(count) > 100
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000


def test_the_check_sees_a_lost_record(tmp_path):
    """The canary: the check reports a log without the last record, or with other bytes in it."""
    acknowledged: list[int] = []
    with kafkalog.Log(tmp_path / "log-0", config=CONFIG) as log:
        append(log, acknowledged, 20)
        log.truncate(19)
        assert missing(log, acknowledged) == [19]
        log.append(b"other bytes", timestamp_ms=1)
        assert missing(log, acknowledged) == [19]


FULL = {**CONFIG, "retention.ms": 1000, "file.delete.delay.ms": 60_000}


def filled(disk: Path, path: Path, config: dict[str, object] = FULL) -> kafkalog.Log:
    """A log on a disk without a free byte, its active segment full of records."""
    log = kafkalog.Log(path, config=config)
    append(log, [], 400)
    Ballast(disk).fill()
    with contextlib.suppress(kafkalog.NoSpace):
        append(log, [], 100_000)
    Ballast(disk).fill()
    return log


def test_deletion_frees_a_full_disk(disk):
    """With 0 bytes free: space of deleted records is freed at once, whatever the delay is."""
    log = filled(disk, disk / "log-0")
    end, before = log.end_offset, free_bytes(disk)
    expiry = log.apply_retention(now_ms=1 << 50)
    assert expiry is not None and expiry.before_offset == end
    assert free_bytes(disk) > before + 200_000
    assert log.start_offset == log.end_offset == end
    assert log.append(b"goes on") == end
    log.close()
    with kafkalog.Log(disk / "log-0", config=FULL) as log:
        assert (log.start_offset, log.end_offset) == (end, end + 1)
        assert log.verify().clean


def test_a_full_disk_can_be_closed_opened_and_freed(disk, caplog):
    """The close works and reports what it could not write; a writer opens, and deletes."""
    log = filled(disk, disk / "log-0")
    held = [record.offset for record in log.read()]
    log.close()
    assert free_bytes(disk) < 8192
    with kafkalog.Log(disk / "log-0", config=FULL) as log:
        assert [record.offset for record in log.read()] == held
        log.delete_before(log.end_offset)
        assert free_bytes(disk) > 200_000
        assert log.append(b"goes on") == held[-1] + 1
    with kafkalog.Log(disk / "log-0", config=FULL) as log:
        assert [record.value for record in log.read()] == [b"goes on"]
        assert log.verify().clean


def test_a_killed_writer_on_a_full_disk(disk):
    """It was never closed: the recovery needs no space for its indexes."""
    log = filled(disk, disk / "log-0")
    held = [record.offset for record in log.read()]
    log._handle.abandon()
    for index in (disk / "log-0").glob("*.index"):
        index.unlink()
    Ballast(disk).fill()
    with kafkalog.Log(disk / "log-0", config=FULL) as log:
        assert [record.offset for record in log.read()] == held
        log.apply_retention(now_ms=1 << 50)
        assert log.append(b"goes on") == held[-1] + 1
    reopened_log = kafkalog.Log(disk / "log-0", config=FULL)
    with reopened_log as log:
        assert [record.value for record in log.read()] == [b"goes on"]


@pytest.mark.parametrize("last", [True, False], ids=["last", "middle"])
def test_a_torn_tail_on_a_full_disk(disk, last, caplog):
    """A writer opens, reads and deletes; the tail is cut when there is space for its copy."""
    log = filled(disk, disk / "log-0")
    path = disk / "log-0"
    held = [record.offset for record in log.read()]
    log._handle.abandon()
    trees.nothing_was_flushed(path)
    segments = sorted(path.glob("*.log"))
    torn = segments[-1] if last else segments[-2]
    data = bytearray(torn.read_bytes())
    headers = list(batches.headers(bytes(data)))
    half = headers[len(headers) // 2]
    data[half.pos + 30] ^= 1
    with torn.open("r+b") as file:  # in place: it needs no block
        file.write(data)
    tail = bytes(data[half.pos :])
    held = [offset for offset in held if offset < half.base_offset]
    Ballast(disk).fill()
    with kafkalog.Log(path, config=FULL) as log:
        assert "no room" in caplog.text and str(half.pos) in caplog.text
        assert (log.recovery.kept == "") == last and log.recovery.truncated_bytes >= len(tail)
        assert [record.offset for record in log.read()] == held
        for change in (lambda: log.append(bytes(100)), log.roll, lambda: log.truncate(held[-2])):
            with pytest.raises(kafkalog.NoSpace, match="tail"):
                change()
        assert torn.read_bytes()[half.pos :][: len(tail)] == tail, "something of it was cut"
        log.flush()
        if last:
            log.delete_before(log.segments[-1].base_offset)
            assert free_bytes(disk) > 100_000
        else:  # it is now the last one
            Ballast(disk).drop()
        held = [record.offset for record in log.read()]
        assert log.append(b"goes on") == held[-1] + 1
        assert (path / f"{torn.name}.damaged").read_bytes().rstrip(b"\0") == tail.rstrip(b"\0")
    with kafkalog.Log(path, config=FULL) as log:
        assert [record.offset for record in log.read()] == [*held, held[-1] + 1]
        assert log.verify().clean


def test_a_close_with_a_torn_tail_on_a_full_disk_cuts_nothing(disk):
    """It warns, and the next open recovers again."""
    path = disk / "log-0"
    filled(disk, path)._handle.abandon()
    (path / "flushed-offset").unlink(missing_ok=True)
    [*_, torn] = sorted(path.glob("*.log"))
    data = bytearray(torn.read_bytes())
    half = list(batches.headers(bytes(data)))[1]
    data[half.pos + 30] ^= 1
    with torn.open("r+b") as file:
        file.write(data)
    Ballast(disk).fill()
    for _ in range(2):
        with kafkalog.Log(path, config=FULL) as log:
            assert log.end_offset == half.base_offset
        assert torn.read_bytes() == bytes(data)
    Ballast(disk).drop()
    with kafkalog.Log(path, config=FULL) as log:
        assert log.recovery.kept == f"{torn.name}.damaged"
        assert log.append(b"goes on") == half.base_offset


def test_retention_of_a_full_data_directory(disk):
    """A directory's job frees the disk, and the directory closes and opens."""
    manager = Manager(disk / "data", {"log.retention.check.interval.ms": 1 << 40}, FULL)
    manager.create_topic("events", 2)
    logs = [manager.get("events", partition) for partition in (0, 1)]
    for log in logs:
        append(log, [], 300)
    Ballast(disk).fill()
    for log in logs:
        with contextlib.suppress(kafkalog.NoSpace):
            append(log, [], 100_000)
    Ballast(disk).fill()
    ends = [log.end_offset for log in logs]
    manager.close()
    assert free_bytes(disk) < 16384
    with Manager(disk / "data", {"log.retention.check.interval.ms": 1 << 40}, FULL) as manager:
        retain(manager)
        assert free_bytes(disk) > 300_000
        for partition in (0, 1):
            log = manager.get("events", partition)
            assert log.append(b"goes on") == ends[partition] == log.start_offset


def test_the_example_of_the_document(disk, monkeypatch):
    """docs/embedding.md, "Full disks", on a disk that is full."""
    document = Path(__file__).parents[3] / "docs" / "embedding.md"
    [code] = re.findall(r"```python\n([^`]*NoSpace[^`]*)```", document.read_text())
    path = disk / "notes-0"
    with kafkalog.Log(path, config={"file.delete.delay.ms": 0}) as log:
        for value in (b"one", b"two", bytes(200_000)):
            log.append(value)
    code = code.replace("    try:\n", "    fill()\n    try:\n")
    code = code.replace("kafkalog.NoSpace:\n", "kafkalog.NoSpace:\n        refused.append(1)\n")
    refused: list[int] = []
    monkeypatch.chdir(disk)
    exec(code, {"kafkalog": kafkalog, "fill": Ballast(disk).fill, "refused": refused})
    assert refused == [1], "the disk was not full"
