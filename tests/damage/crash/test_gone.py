"""A missing `.log` whose records were on disk: opening the log reports it, and nothing is written
until `kafkalog repair` allows it.

People mistake `*.log` for logging output: they ignore it, clean it up, leave it out of a copy.
"""

import contextlib
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

import kafkalog
from kafkalog.cli import main
from kafkalog.directory.manager import Manager
from kafkalog.errors import CorruptLog
from kafkalog.inspect.verify.files import verify
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from kafkalog.types import TopicPartition
from tests.support import batches, trees

pytestmark = pytest.mark.slow

FIRST = f"{0:020}.log"
COUNT = 10
SMALL = {"segment.bytes": 300, "index.interval.bytes": 100, "file.delete.delay.ms": 0}


def cut_in_half(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: list(batches.headers(data))[COUNT // 2].pos])


LOSSES: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "emptied": lambda file: file.write_bytes(b"") and None,
    "cut": cut_in_half,
}


def append(log: kafkalog.Log, count: int = COUNT) -> None:
    for number in range(log.end_offset, log.end_offset + count):
        log.append(b"%d" % number, timestamp_ms=1000 + number)


def values(log: kafkalog.Log) -> list[bytes | None]:
    return [record.value for record in log.read()]


def command(*words: str) -> tuple[int, str]:
    """The status and output of a command, run in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = main([*words])
    return status, out.getvalue()


@pytest.fixture(params=["alone", "directory"])
def made(request: pytest.FixtureRequest, memory_path: Path) -> Path:
    """The folder of a closed log with ten batches in one segment: a lone log, or one in a
    directory."""
    if request.param == "alone":
        path = memory_path / "log-0"
        with kafkalog.Log(path) as log:
            append(log)
        return path
    with Manager(memory_path / "data") as manager:
        manager.create_topic("log", 2)
        append(manager.get("log", 0))
        append(manager.get("log", 1))
    return memory_path / "data" / "log-0"


def root_of(folder: Path) -> Path:
    """The folder of its checkpoints."""
    return folder.parent if folder.parent.name == "data" else folder


@pytest.mark.parametrize("mode", ["r", "w"])
@pytest.mark.parametrize("marker", ["clean", "crashed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_refused_and_named(made: Path, loss: str, marker: str, mode: str) -> None:
    """The error names the log, the end that was found, the wanted one, and the remedy."""
    if marker == "crashed":
        (root_of(made) / ".kafka_cleanshutdown").unlink()
    LOSSES[loss](made / FIRST)
    before = trees.fingerprint(root_of(made), "*[!x]")
    for _ in range(2):  # the first refusal keeps the evidence for the second
        with pytest.raises(CorruptLog) as caught:
            kafkalog.Log(made, mode=mode)
        end = COUNT // 2 if loss == "cut" else 0
        for part in (str(made), f"offset {end},", f"wanted {COUNT}", "kafkalog repair"):
            assert part in str(caught.value)
    kept = [name for name in before if name.endswith((".log", "checkpoint", ".snapshot"))]
    left = trees.fingerprint(root_of(made))
    assert {name: left[name] for name in kept} == {name: before[name] for name in kept}


@pytest.mark.parametrize("loss", LOSSES)
def test_verify_calls_it_damage(made: Path, loss: str) -> None:
    """For the directory, for the folder alone, and by the command."""
    LOSSES[loss](made / FIRST)
    for path in (root_of(made), made):
        [found] = [f for f in verify(path).findings if f.what == "log-short"]
        assert (found.severity, found.file, found.offset) == ("damage", str(made), COUNT)
        status, said = command("verify", str(path))
        assert status == 1 and "log-short" in said


@pytest.mark.parametrize("marker", ["clean", "crashed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_repair_lets_it_go_on(made: Path, loss: str, marker: str) -> None:
    """The remaining records are there, and no offset is assigned twice."""
    if marker == "crashed":
        (root_of(made) / ".kafka_cleanshutdown").unlink()
    LOSSES[loss](made / FIRST)
    plan = command("repair", str(root_of(made)))[1]
    assert f"continues at offset {COUNT}" in plan
    status, said = command("repair", str(root_of(made)), "--execute")
    assert status == 0, said
    left = COUNT // 2 if loss == "cut" else 0
    assert verify(root_of(made)).clean, verify(root_of(made)).findings
    for _ in range(2):
        with kafkalog.Log(made) as log:
            assert values(log)[:left] == [b"%d" % number for number in range(left)]
            assert log.append(b"next", timestamp_ms=2000) >= COUNT
            assert log.recovery.truncated_bytes == 0
    with kafkalog.Log(made, mode="r") as log:
        assert [r.offset for r in log.read()] == [*range(left), COUNT, COUNT + 1]
        assert log.end_offset == COUNT + 2
        assert log.verify(deep=True).clean


def test_other_partitions_go_on(memory_path: Path) -> None:
    with Manager(memory_path / "data") as manager:
        manager.create_topic("log", 2)
        append(manager.get("log", 0))
        append(manager.get("log", 1))
    (memory_path / "data" / "log-0" / FIRST).unlink()
    for _ in range(2):
        with Manager(memory_path / "data") as manager:
            with pytest.raises(CorruptLog, match=r"log-0 ends at offset 0, wanted 10"):
                manager.get("log", 0)
            append(manager.get("log", 1))
    assert not (memory_path / "data" / "log-0" / FIRST).exists()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_reader_does_not_report_an_empty_log(memory_path: Path, loss: str) -> None:
    """A partition without a `.log` can be one to which nothing was ever written."""
    path = memory_path / "data"
    with kafkalog.Store(path) as store:
        store.create_topic("log")
        store.create_topic("never")
        append(store["log"][0])
    LOSSES[loss](path / "log-0" / FIRST)
    status, said = command("consume", "--dir", str(path), "--topic", "log")
    assert status == 1 and "wanted 10" in said
    with pytest.raises(CorruptLog, match="wanted 10"):
        kafkalog.polars.scan(path, "log").collect()
    assert command("consume", "--dir", str(path), "--topic", "never") == (0, "")
    assert kafkalog.polars.scan(path, "never").collect().height == 0
    with kafkalog.Store(path) as store:
        with pytest.raises(CorruptLog, match="wanted 10"):
            store["log"][0]
        assert store["never"][0].end_offset == 0


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "directory"])
def test_of_several_segments(memory_path: Path, which: str, alone: bool) -> None:
    """The remaining indexes still reveal a missing segment that is not the last one."""
    path = memory_path / "data" / "log-0"
    if not alone:
        with Manager(memory_path / "data") as manager:
            manager.create_topic("log")
    with kafkalog.Log(path, config=SMALL) as log:
        append(log, 30)
        bases = [s.base_offset for s in log.segments]
    assert len(bases) > 3
    index = {"first": 0, "middle": 2, "last": -1}[which]
    gone = path / f"{bases[index]:020}.log"
    gone.unlink()
    for mode in ("r", "w", "r"):
        with pytest.raises(CorruptLog, match=r"repair"):
            kafkalog.Log(path, mode=mode, config=SMALL)
    root = path if alone else path.parent
    assert not verify(root).clean and not verify(path).clean
    assert command("repair", str(root), "--execute")[0] == 0
    ends = [*bases[1:], 30]
    lost = range(bases[index], ends[index])
    with kafkalog.Log(path, config=SMALL) as log:
        assert [r.offset for r in log.read()] == [n for n in range(30) if n not in lost]
        assert log.append(b"next", timestamp_ms=2000) == 30


@pytest.mark.parametrize("mode", ["r", "w"])
@pytest.mark.parametrize("loss", ["emptied", "cut"])
def test_of_a_small_sealed_segment(memory_path: Path, loss: str, mode: str) -> None:
    """It has no entry in its offset index: the time index shows that it was longer."""
    path = memory_path / "log-0"
    with kafkalog.Log(path) as log:
        for _ in range(3):
            append(log)
            log.roll()
    LOSSES[loss](path / f"{COUNT:020}.log")
    assert not verify(path).clean
    with kafkalog.Log(path, mode=mode) as log:
        with pytest.raises(kafkalog.errors.CorruptMessage, match="another size"):
            list(log.read())
        assert len(list(log.read(0, COUNT))) == COUNT


def test_a_standalone_log_remembers_its_flushed_offset(memory_path: Path) -> None:
    """After a crash only its flushed-offset shows the loss; repair lowers it."""
    path = memory_path / "log-0"
    with kafkalog.Log(path, config=SMALL) as log:
        append(log, 30)
        log.flush()
        killed = trees.copy_tree(path, memory_path / "killed-0")
        noted = int.from_bytes((killed / "flushed-offset").read_bytes()[4:12], "big")
    for file in killed.glob("*.log"):
        file.unlink()
    with pytest.raises(CorruptLog, match=f"wanted {noted}:"):
        kafkalog.Log(killed, config=SMALL)
    assert not verify(killed).clean
    assert command("repair", str(killed), "--execute")[0] == 0
    with kafkalog.Log(killed, config=SMALL) as log:
        assert log.append(b"next", timestamp_ms=2000) == noted


def test_without_a_recovery_point_the_high_watermark_tells(memory_path: Path) -> None:
    """After a clean close: records that were not on disk were never visible."""
    with Manager(memory_path / "data") as manager:
        manager.create_topic("log")
        append(manager.get("log", 0))
    (memory_path / "data" / "recovery-point-offset-checkpoint").unlink()
    (memory_path / "data" / "log-0" / FIRST).unlink()
    with Manager(memory_path / "data") as manager, pytest.raises(CorruptLog, match="wanted 10"):
        manager.get("log", 0)
    assert not verify(memory_path / "data").clean


def test_of_a_node_of_a_cluster(memory_path: Path) -> None:
    """Repair lets a replica end where it does: its leader has the missing records."""
    with Manager(memory_path / "data") as manager:
        manager.create_topic("log")
        append(manager.get("log", 0))
    meta = memory_path / "data" / "meta.properties"
    meta.write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    cut_in_half(memory_path / "data" / "log-0" / FIRST)
    with Manager(memory_path / "data") as manager, pytest.raises(CorruptLog, match="wanted 10"):
        manager.get("log", 0)
    assert {f.what for f in verify(memory_path / "data").findings} >= {"checkpoint-range"}
    assert command("repair", str(memory_path / "data"), "--execute")[0] == 0
    assert verify(memory_path / "data").clean
    with Manager(memory_path / "data") as manager:
        assert manager.get("log", 0).end_offset == COUNT // 2


# ---- after the recovery point ------------------------------------------------------------------


def spoil_the_end(file: Path) -> None:
    """Write wrong bytes into the last two batches."""
    data = bytearray(file.read_bytes())
    for header in list(batches.headers(bytes(data)))[-2:]:
        data[header.pos + 40] ^= 0xFF
    file.write_bytes(data)


def cut_the_end(file: Path) -> None:
    """Cut the file at a batch boundary."""
    data = file.read_bytes()
    file.write_bytes(data[: list(batches.headers(data))[-2].pos])


ENDS: dict[str, Callable[[Path], None]] = {
    "spoiled": spoil_the_end,
    "cut": cut_the_end,
    "emptied": LOSSES["emptied"],
    "removed": LOSSES["removed"],
}


def kill_after_a_roll(path: Path, point: str, follows: int) -> tuple[Path, int]:
    """A log of several segments, `follows` batches in the last one, whose recovery point is the
    last offset of the segment before the last two; returns that segment's `.log` and its end.

    `point`: the file that holds the recovery point.
    """
    root = path.parent if point == "directory" else path
    if point == "directory":
        with Manager(root) as manager:
            manager.create_topic("log")
    with kafkalog.Log(path, config=SMALL) as log:
        append(log, 32)
        log.roll()
        append(log, follows)
        bases = [s.base_offset for s in log.segments]
    (root / ".kafka_cleanshutdown").unlink()
    index = len(bases) - (2 if follows == 0 else 3)
    end = bases[index + 1]
    assert end - bases[index] > 2
    told = 0 if point == "note" else end - 1
    (root / "recovery-point-offset-checkpoint").write_text(f"0\n1\nlog 0 {told}\n")
    (root / "flushed-offset").unlink(missing_ok=True)
    if point == "note":
        body = b"KLF1" + (end - 1).to_bytes(8, "big")
        (root / "flushed-offset").write_bytes(body + crc32c(body).to_bytes(4, "big"))
    return path / f"{bases[index]:020}.log", end


@pytest.mark.parametrize("point", ["checkpoint", "note", "directory"])
@pytest.mark.parametrize("follows", [0, 2], ids=["rolled", "grown"])
@pytest.mark.parametrize("loss", ENDS)
def test_repair_keeps_records_after_a_lost_end(
    memory_path: Path, loss: str, follows: int, point: str
) -> None:
    """The recovery point is in the lost part: once repair says so, recovery begins after it."""
    path = memory_path / "data" / "log-0"
    file, end = kill_after_a_roll(path, point, follows)
    root = path.parent if point == "directory" else path
    base, first = int(file.stem), len(list(batches.headers(file.read_bytes())))
    ENDS[loss](file)
    left = first - 2 if loss in ("spoiled", "cut") else 0
    for mode in ("r", "w"):
        with pytest.raises(CorruptLog, match="repair") as caught:
            kafkalog.Log(path, mode=mode, config=SMALL)
        assert ("is damaged at" in str(caught.value)) == (loss == "spoiled")
    assert "point-gap" in {f.what for f in verify(root).findings if f.severity == "damage"}
    assert f"begins after them, at offset {end}" in command("repair", str(root))[1]
    status, said = command("repair", str(root), "--execute")
    assert status == 0, said
    assert verify(root).clean and verify(path).clean
    wanted = [n for n in range(32 + follows) if not base + left <= n < end]
    for mode in ("r", "w"):
        with kafkalog.Log(path, mode=mode, config=SMALL) as log:
            assert [r.offset for r in log.read()] == wanted
            assert log.recovery.truncated_bytes == 0
    with kafkalog.Log(path, config=SMALL) as log:
        assert log.append(b"next", timestamp_ms=2000) == 32 + follows
        assert [r.offset for r in log.read()] == [*wanted, 32 + follows]
        assert log.verify(deep=True).clean


@pytest.mark.parametrize("marker", ["clean", "crashed"])
@pytest.mark.parametrize("loss", ["removed", "cut"])
def test_checkpoints_name_the_topic_and_not_the_folder(
    memory_path: Path, loss: str, marker: str
) -> None:
    """Its checkpoints name the topic, and no other one."""
    path = memory_path / "mylog"
    with kafkalog.Log(path, topic="orders", config=SMALL) as log:
        append(log, 30)
        base = log.segments[-1].base_offset
    if marker == "crashed":
        (path / ".kafka_cleanshutdown").unlink()
    last = path / f"{base:020}.log"
    last.unlink() if loss == "removed" else cut_the_end(last)
    with pytest.raises(CorruptLog, match="wanted 30"):
        kafkalog.Log(path, topic="orders", config=SMALL)
    [found] = [f for f in verify(path).findings if f.what == "log-short"]
    assert found.offset == 30
    assert command("repair", str(path), "--execute")[0] == 0
    assert verify(path).clean
    with kafkalog.Log(path, topic="orders", config=SMALL) as log:
        assert log.append(b"next", timestamp_ms=2000) == 30


@pytest.mark.parametrize("marker", ["clean", "crashed"])
def test_of_a_folder_that_was_renamed(memory_path: Path, marker: str) -> None:
    """Its checkpoints are inside, and still cover it."""
    with kafkalog.Log(memory_path / "log-0") as log:
        append(log)
    path = (memory_path / "log-0").rename(memory_path / "other-3")
    if marker == "crashed":
        (path / ".kafka_cleanshutdown").unlink()
    cut_in_half(path / FIRST)
    for mode in ("r", "w"):
        with pytest.raises(CorruptLog, match="wanted 10"):
            kafkalog.Log(path, mode=mode)
    assert command("repair", str(path), "--execute")[0] == 0
    with kafkalog.Log(path) as log:
        assert log.append(b"next", timestamp_ms=2000) == COUNT
    assert verify(path).clean
    point = (path / "recovery-point-offset-checkpoint").read_text()
    assert point == f"0\n1\nother 3 {COUNT + 1}\n"


def test_a_checkpoint_of_another_name_is_lowered(memory_path: Path) -> None:
    path = memory_path / "mylog"
    with kafkalog.Log(path, topic="orders") as log:
        append(log)
    cleaner = path / "cleaner-offset-checkpoint"
    cleaner.write_text("0\n1\norders 0 90\n")
    [found] = [f for f in verify(path).findings if f.what == "checkpoint-range"]
    assert found.found == "orders 0 90"
    assert command("repair", str(path), "--execute")[0] == 0
    assert cleaner.read_text() == f"0\n1\norders 0 {COUNT}\n"


# ---- no loss -----------------------------------------------------------------------------------


def expect_nothing_lost(path: Path, start: int, end: int) -> None:
    for mode in ("r", "w", "r"):
        with kafkalog.Log(path, mode=mode, config=SMALL) as log:
            assert (log.start_offset, log.end_offset) == (start, end)
    assert verify(path).clean


def test_a_log_that_was_never_written(memory_path: Path) -> None:
    with kafkalog.Log(memory_path / "log-0"):
        pass
    (memory_path / "log-0" / FIRST).unlink()
    with kafkalog.Log(memory_path / "log-0") as log:
        assert log.end_offset == 0


def test_an_end_that_a_compaction_took(memory_path: Path) -> None:
    """The segment has gaps inside, too: recovery sees that nothing was lost."""
    path = memory_path / "log-0"
    file, end = kill_after_a_roll(path, "checkpoint", 2)
    data = file.read_bytes()
    first, _, third, last = batches.headers(data)
    file.write_bytes(data[: first.batch_bytes] + data[third.pos : last.pos])
    for suffix in (".chk", ".index", ".timeindex"):  # of the segment before the compaction
        file.with_suffix(suffix).unlink()
    assert verify(path).clean
    with kafkalog.Log(path, config=SMALL) as log:
        assert [r.offset for r in log.read()] == [
            n for n in range(34) if n not in (end - 3, end - 1)
        ]


@pytest.mark.parametrize("crashed", [False, True])
def test_a_log_without_remaining_records(memory_path: Path, crashed: bool) -> None:
    path = memory_path / "log-0"
    with kafkalog.Log(path, config=SMALL) as log:
        append(log, 30)
        log.delete_before(30)
        copy = trees.copy_tree(path, memory_path / "copy-0") if crashed else path
    expect_nothing_lost(copy, 30, 30)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("offset", [0, 5, 17, 30])
def test_a_log_that_was_cut(memory_path: Path, offset: int, crashed: bool) -> None:
    path = memory_path / "log-0"
    with kafkalog.Log(path, config=SMALL) as log:
        append(log, 30)
        log.flush()
        log.truncate(offset)
        copy = trees.copy_tree(path, memory_path / "copy-0") if crashed else path
    expect_nothing_lost(copy, 0, offset)


@pytest.mark.parametrize("offset", [0, 12, 100])
def test_a_crash_in_a_new_beginning(memory_path: Path, offset: int) -> None:
    """The start is recorded before the segments are removed, so the rest of them proves no loss."""
    path = memory_path / "log-0"
    with kafkalog.Log(path, config=SMALL) as log:
        append(log, 30)
        log.flush()
        state, tp = log._handle.owner.state, log._handle.tp
        with state.truncating(tp, 0, offset):
            copy = trees.copy_tree(path, memory_path / "copy-0")
    (copy / "flushed-offset").unlink(missing_ok=True)  # removed before any change on the disk
    first, *others = sorted(copy.glob("*.log"))
    left = len(list(batches.headers(first.read_bytes())))
    for file in others:
        file.rename(f"{file}.deleted")
    with kafkalog.Log(copy, config=SMALL) as log:
        assert log.append(b"next", timestamp_ms=2000) == max(offset, left)


def test_a_crash_before_the_first_checkpoint(memory_path: Path) -> None:
    """In a directory of Kafka's: the partition is in no checkpoint yet."""
    with Manager(memory_path / "data") as manager:
        manager.create_topic("log")
        append(manager.get("log", 0))
    for name in ("recovery-point", "replication"):
        (memory_path / "data" / f"{name}-offset-checkpoint").write_bytes(b"0\n0\n")
    (memory_path / "data" / ".kafka_cleanshutdown").unlink()
    cut_in_half(memory_path / "data" / "log-0" / FIRST)
    with Manager(memory_path / "data") as manager:
        assert manager.get("log", 0).end_offset == COUNT // 2


def test_a_topic_that_was_deleted_and_made_again(memory_path: Path) -> None:
    with Manager(memory_path / "data") as manager:
        for count in (COUNT, 3, 0):
            manager.create_topic("log")
            append(manager.get("log", 0), count)
            killed = trees.copy_tree(memory_path / "data", memory_path / f"killed{count}")
            manager.delete_partition("log", 0)
            with Manager(killed) as other:
                assert other.get("log", 0).end_offset == count


def test_a_folder_that_went_and_came_back(memory_path: Path) -> None:
    """Into another directory, where it was truncated, and back: the old checkpoint is void."""
    roots = [memory_path / "one" / "data", memory_path / "two" / "data"]
    for root in roots:
        Manager(root).close()
    with Manager(roots[0]) as manager:
        manager.create_topic("log")
        append(manager.get("log", 0))
    (roots[0] / "log-0").rename(roots[1] / "log-0")
    with Manager(roots[1]) as manager:
        assert manager.get("log", 0).end_offset == COUNT
        manager.get("log", 0).truncate(4)
    Manager(roots[0]).close()
    (roots[1] / "log-0").rename(roots[0] / "log-0")
    with Manager(roots[0]) as manager:
        assert manager.get("log", 0).end_offset == 4


def test_a_reader_that_looked_before_a_truncation(memory_path: Path) -> None:
    """Its copy of the checkpoints is old: it reads them again before it reports that records are
    missing."""
    with Manager(memory_path / "data") as manager:
        manager.create_topic("log")
        append(manager.get("log", 0))
        manager.get("log", 0).flush()
        manager.upkeep.checkpoints.recovery_points()
        reader = Manager(memory_path / "data", mode="r")
        manager.get("log", 0).truncate(4)
    with reader:
        assert reader.get("log", 0).end_offset == 4


def test_a_wrong_point_of_a_lone_log_that_is_whole(memory_path: Path) -> None:
    """Its marker names the last segment and its size, which proves more."""
    path = memory_path / "log-0"
    with kafkalog.Log(path) as log:
        append(log)
    point = path / "recovery-point-offset-checkpoint"
    point.write_bytes(point.read_bytes().replace(b"log 0 10", b"log 0 90"))
    with kafkalog.Log(path) as log:
        assert values(log) == [b"%d" % number for number in range(COUNT)]


def test_a_crash_in_a_truncation_to_a_gap(memory_path: Path) -> None:
    """A compaction leaves such a gap: the log ends below the offset of the truncation."""
    source = memory_path / "source-0"
    with kafkalog.Log(source) as log:
        append(log)
        below = log.read_batches(0, 1 << 20)
        truncate_fully(handle_of(log), 50)
        append(log)
        above = log.read_batches(50, 1 << 20)
    with kafkalog.Log(memory_path / "log-0") as log:
        for some in (below, above):
            log.append_as_follower(some)
    with kafkalog.Log(memory_path / "log-0") as log:
        copies: list[Path] = []
        state = log._handle.owner.state
        lower = state.lower

        def killed(tp: TopicPartition, offset: int, new_start: int | None = None) -> None:
            copy = memory_path / f"{len(copies)}" / "log-0"
            copies.append(trees.copy_tree(memory_path / "log-0", copy))
            lower(tp, offset, new_start)

        state.lower = killed  # type: ignore[method-assign]
        log.truncate(50)
        assert log.end_offset == COUNT
    assert len(copies) == 2
    for copy, end in zip(copies, (50 + COUNT, COUNT), strict=True):
        with kafkalog.Log(copy) as log:
            assert log.end_offset == end


def test_a_lone_log_in_the_place_of_another(memory_path: Path) -> None:
    """It had another name: the directory's checkpoints are those of the log before it."""
    root = memory_path / "one" / "data"
    with Manager(root) as manager:
        manager.create_topic("log")
        append(manager.get("log", 0), 3 * COUNT)
    shutil.rmtree(root / "log-0")
    with kafkalog.Log(memory_path / "other-0") as log:
        append(log)
    (memory_path / "other-0").rename(root / "log-0")
    with Manager(root) as manager:
        assert manager.get("log", 0).end_offset == COUNT
