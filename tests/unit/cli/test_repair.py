"""`kafkalog repair`: it shows the plan before acting, cuts only damage, and keeps what it cuts."""

from __future__ import annotations

import pty
import sys
import uuid
from pathlib import Path

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.errors import CorruptLog, Locked
from kafkalog.inspect.repair import apply, plan
from kafkalog.inspect.verify.files import verify
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.log.log import Log
from kafkalog.report import Report
from tests.support import batches
from tests.support.kafka_data import expected_records, partitions, unclean_directories
from tests.support.trees import copy_tree, fingerprint
from tests.unit.cli.conftest import Command
from tests.unit.cli.test_verify import change, damage

VARIANTS = unclean_directories()


def records_of(path: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record that a reader gets, including aborted ones, without markers."""
    with Log(path, mode="r") as log:
        return [(r.offset, r.key, r.value) for r in log.read()]


@pytest.mark.parametrize(("case", "source"), VARIANTS, ids=[c for c, _ in VARIANTS])
def test_every_damaged_directory_is_mended(
    kafkalog: Command, case: str, source: Path, tmp_path: Path
) -> None:
    """Without --execute nothing is written; with it all is clean, and no good record is lost."""
    directory = copy_tree(source, tmp_path / "log")
    before = fingerprint(directory)
    good = verify(directory).counters
    shown = kafkalog("repair", directory)
    assert fingerprint(directory) == before
    assert shown.status == (0 if verify(directory).clean else 1)
    ran = kafkalog("repair", directory, "--execute")
    left = damage(verify(directory, deep=True))
    # A checkpoint past the end is not repair's job: the next open for writing corrects it.
    assert left <= {"checkpoint-range"}, ran.out
    assert ran.status == (1 if left else 0), ran.out
    after = verify(directory).counters
    assert (after["records"], after["batches"]) == (good["records"], good["batches"])
    again = kafkalog("repair", directory)
    assert not any(line.startswith(("cut", "rebuild", "set-aside"))
                   for line in again.out.splitlines())  # fmt: skip


def test_bytes_cut_out_are_kept_and_later_records_stay(kafka_cases: Path, tmp_path: Path) -> None:
    """Damage in the middle of a sealed segment: one batch is cut out, all others can be read."""
    [partition] = [p for p in partitions() if p.case == "segments" and p.folder == "seg4096-0"]
    folder = copy_tree(partition.path, tmp_path / "seg4096-0")
    log = sorted(folder.glob("*.log"))[3]
    original = log.read_bytes()
    middle = len(original) // 2
    change(log, middle, bytes([original[middle] ^ 4]))
    spoiled = log.read_bytes()
    [finding] = [f for f in verify(folder).findings if f.severity == "damage"]
    actions = plan(verify(folder))
    assert [a.kind for a in actions] == ["cut", "rebuild-indexes", "reseal"]
    apply(actions)
    start, end = finding.position, finding.position + finding.length
    assert log.read_bytes() == original[:start] + original[end:]
    assert log.with_name(log.name + ".damaged").read_bytes() == spoiled[start:end]
    assert verify(folder, deep=True).clean
    kept = records_of(folder)
    everything = [(r.offset, r.key, r.value) for r in expected_records(partition)]
    lost = [r for r in everything if r not in kept]
    assert [r for r in everything if r in kept] == kept
    assert lost and lost[0][0] == finding.offset
    assert [r[0] for r in lost] == list(range(lost[0][0], lost[-1][0] + 1))


def test_indexes_made_again_answer_as_kafkas(kafka_cases: Path, tmp_path: Path) -> None:
    """All indexes are deleted and rebuilt: their bytes are Kafka's."""
    source = kafka_cases / "segments" / "log" / "seg4096-1"
    folder = copy_tree(source, tmp_path / "seg4096-1")
    for path in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
        path.unlink()
    report = verify(folder)
    assert {f.what for f in report.findings} == {"index-missing"}
    apply(plan(report))
    assert verify(folder, deep=True).findings == []
    for path in sorted(source.glob("*.index")):
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    for path in sorted(source.glob("*.timeindex")):
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name


def test_aborted_transactions_and_epochs_are_made_again(kafka_cases: Path, tmp_path: Path) -> None:
    """They are byte for byte what Kafka had written."""
    source = kafka_cases / "transactions" / "log" / "tx-a-0"
    folder = copy_tree(source, tmp_path / "tx-a-0")
    lists = sorted(folder.glob("*.txnindex"))
    assert lists
    lists[0].unlink()
    change(lists[-1], -1, b"\xff")
    epochs = folder / "leader-epoch-checkpoint"
    epochs.write_bytes(b"")
    report = verify(folder)
    kinds = {a.kind for a in plan(report)}
    assert kinds == {"rebuild-aborts", "rebuild-epochs"}
    apply(plan(report))
    assert verify(folder).findings == []
    for path in [*source.glob("*.txnindex"), source / epochs.name]:
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_damaged_snapshot_is_set_aside(kafka_cases: Path, tmp_path: Path) -> None:
    """It is renamed, not removed, and a second one does not overwrite the first."""
    source = kafka_cases / "transactions" / "log" / "tx-a-0"
    folder = copy_tree(source, tmp_path / "tx-a-0")
    snapshot = sorted(folder.glob("*.snapshot"))[2]
    for count in (1, 2):
        snapshot.write_bytes(b"%d" % count)
        [action] = plan(verify(folder))
        assert action.kind == "set-aside"
        apply([action])
    assert snapshot.with_name(f"{snapshot.name}.damaged").read_bytes() == b"1"
    assert snapshot.with_name(f"{snapshot.name}.damaged.1").read_bytes() == b"2"
    assert verify(folder).clean


def test_a_clean_directory_needs_nothing(
    kafkalog: Command, kafka_cases: Path, tmp_path: Path
) -> None:
    """Status 0, and not a byte changes, even with --execute."""
    directory = copy_tree(kafka_cases / "segments" / "log", tmp_path / "log")
    before = fingerprint(directory)
    assert kafkalog("repair", directory).out == "nothing to do\n"
    assert kafkalog("repair", directory, "--execute").status == 0
    assert fingerprint(directory) == before


def test_old_formats_are_left_alone(kafkalog: Command, kafka_cases: Path, tmp_path: Path) -> None:
    """Batches in a format that cannot be read are never cut."""
    directory = copy_tree(kafka_cases / "oldformats" / "log", tmp_path / "log")
    before = fingerprint(directory, "*.log")
    ran = kafkalog("repair", directory, "--execute")
    assert ran.status == 1
    assert "leave: " in ran.out
    assert fingerprint(directory, "*.log") == before


def test_repair_refuses_a_log_that_is_open(tmp_path: Path) -> None:
    """A writer owns the directory: the refusal names its pid."""
    import os

    with Log(tmp_path / "own-0") as log:
        log.append(b"a")
        path = tmp_path / "own-0" / "00000000000000000000.log"
        report = Report()
        report.add("tail-bytes", path, "x", "y", position=10, length=5)
        with pytest.raises(Locked, match=str(os.getpid())):
            apply(plan(report))


def test_a_sealed_segment_without_a_good_batch(tmp_path: Path) -> None:
    """The first batch is truncated: its rest is cut, and the folder can be repaired again."""
    folder = tmp_path / "own-0"
    with Log(folder, config={"segment.bytes": 200}) as log:
        for _ in range(4):
            log.append(bytes(100))
    first = folder / "00000000000000000000.log"
    first.write_bytes(first.read_bytes()[:30])
    apply(plan(verify(folder)))
    assert first.stat().st_size == 0
    assert not [action for action in plan(verify(folder)) if action.kind != "leave"]
    assert [offset for offset, _, _ in records_of(folder)] == [1, 2, 3]


def test_a_plan_is_pure(tmp_path: Path) -> None:
    """It is made from the report alone: the files need not exist."""
    report = Report()
    log = tmp_path / "t-0" / "00000000000000000000.log"
    report.add("batch-checksum", log, "crc", "crc", position=100, offset=7, length=50)
    report.add("tail-bytes", log, "x", "y", position=900, offset=90, length=10)
    report.add("batch-order", log, "offsets 3 to 4", "above 5", position=300, length=40)
    report.add("index-entry", log.with_suffix(".index"), "x", "y")
    actions = plan(report)
    assert [a.kind for a in actions] == ["cut", "rebuild-indexes", "reseal", "leave"]
    assert actions[0].ranges == ((100, 150), (900, 910))
    assert "60 bytes in 2 places" in actions[0].why


def metadata_of(data: Path) -> Path:
    """The metadata log of a directory with two topics, closed."""
    with Manager(data) as manager, MetadataLog.open(manager) as metadata:
        for topic in ("events", "orders"):
            metadata.write([("TopicRecord", {"name": topic, "topic_id": uuid.uuid4()})])
    return next((data / "__cluster_metadata-0").glob("*.log"))


def test_records_of_the_metadata_that_go_are_named_and_asked_for(
    kafkalog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged batch of the metadata is cut only after a yes, and the topics in it are named."""
    file = metadata_of(tmp_path / "data")
    data = bytearray(file.read_bytes())
    at = data.index(b"events")
    for place in (at + 7, at + 8):  # after the name, and not just one header bit
        data[place] ^= 0x10
    file.write_bytes(data)
    shown = kafkalog("repair", tmp_path / "data")
    assert shown.status == 1
    assert "goes: offset" in shown.out and "TopicRecord name=events" in shown.out
    refused = kafkalog("repair", tmp_path / "data", "--execute")
    assert refused.status == 2 and "--yes" in refused.err
    monkeypatch.setattr(sys, "stdin", None)  # as with <&-
    refused = kafkalog("repair", tmp_path / "data", "--execute")
    assert refused.status == 2 and "--yes" in refused.err
    assert file.read_bytes() == data
    kafkalog("repair", tmp_path / "data", "--execute", "--yes")
    assert b"events" not in file.read_bytes()
    assert b"events" in file.with_name(file.name + ".damaged").read_bytes()
    assert b"orders" in file.read_bytes()


@pytest.mark.parametrize(
    ("typed", "done"),
    [(b"n\n", False), (b"\n", False), (b"\x04", False), (b"y", False), (b"yes\n", True)],
)
def test_a_question_goes_to_the_terminal_and_not_into_the_output(
    kafkalog: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: bytes, done: bool
) -> None:
    """The output stays JSON; Ctrl-D counts as no."""
    file = metadata_of(tmp_path / "data")
    data = bytearray(file.read_bytes())
    at = data.index(b"events")
    for place in (at + 7, at + 8):
        data[place] ^= 0x10
    file.write_bytes(data)
    ours, theirs = pty.openpty()
    with open(ours, "r+b", buffering=0) as keyboard, open(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        keyboard.write(typed if typed.endswith((b"\n", b"\x04")) else typed + b"\x04\x04")
        ran = kafkalog("repair", tmp_path / "data", "--execute", "--json")
    assert ran.status == (0 if done else 2), ran
    assert ran.rows()
    assert "Go on? [y/N]" in ran.err
    assert (file.read_bytes() == data) is not done


def test_a_wrong_header_bit_of_the_metadata_costs_nothing(
    kafkalog: Command, tmp_path: Path
) -> None:
    """No record is lost, so repair does not ask."""
    file = metadata_of(tmp_path / "data")
    data = file.read_bytes()
    start = data.index(b"events")
    header = max(h.pos for h in batches.headers(data) if h.pos < start)
    changed = bytearray(data)
    changed[header + 10] ^= 4
    file.write_bytes(changed)
    with (
        Manager(tmp_path / "data", mode="r") as manager,
        pytest.raises(CorruptLog, match="repair"),
    ):
        MetadataLog.open(manager)
    assert kafkalog("repair", tmp_path / "data", "--execute").status == 0
    assert file.read_bytes() == data
