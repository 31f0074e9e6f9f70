"""`kafkalog verify`: Kafka's files have no findings, and all damage is named with its place."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.inspect.verify.files import verify
from kafkalog.kraft.batches import (
    KRAFT_VERSION,
    LEADER_CHANGE,
    VOTERS,
    control_batch,
    kraft_version_value,
    leader_change_value,
)
from kafkalog.log.log import Log
from kafkalog.report import KINDS, Report
from tests.support.kafka_data import data_directories, old_formats, unclean_directories
from tests.support.trees import copy_tree, fingerprint
from tests.unit.cli.conftest import Command

UNCLEAN = {case for case, _ in unclean_directories()}
OLD = {p.case for p in old_formats()}
CLEAN = [(c, d) for c, d in data_directories() if c not in UNCLEAN | OLD]


def damage(report: Report) -> set[str]:
    """The kinds of damage in a report."""
    return {f.what for f in report.findings if f.severity == "damage"}


@pytest.fixture
def segments(kafka_cases: Path, tmp_path: Path) -> Path:
    """A copy of one partition with ten segments, idempotent batches and whole indexes."""
    return copy_tree(kafka_cases / "segments/log/seg4096-0", tmp_path / "seg4096-0")


@pytest.fixture
def transactions(kafka_cases: Path, tmp_path: Path) -> Path:
    """A copy of one partition with aborted and open transactions."""
    return copy_tree(kafka_cases / "transactions/log/tx-a-0", tmp_path / "tx-a-0")


def change(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes in place; a negative position counts from the end."""
    whole = bytearray(path.read_bytes())
    position += len(whole) if position < 0 else 0
    whole[position : position + len(data)] = data
    path.write_bytes(bytes(whole))


@pytest.mark.parametrize(("case", "directory"), CLEAN, ids=[f"{c}-{d.name}" for c, d in CLEAN])
def test_kafkas_files_are_clean(case: str, directory: Path) -> None:
    """No damage and no warning in any case, records included; not a byte changes."""
    before = fingerprint(directory)
    report = verify(directory, deep=True)
    assert [f for f in report.findings if f.severity != "note"] == []
    assert report.clean
    assert report.counters["records_walked"] >= report.counters["records"] > 0
    assert fingerprint(directory) == before


def test_old_formats_are_unchecked_not_damaged(kafka_cases: Path) -> None:
    """Unreadable batches are reported as neither clean nor damaged."""
    report = verify(kafka_cases / "oldformats" / "log")
    assert not report.clean
    assert {f.severity for f in report.findings} <= {"unchecked", "note", "warning"}


def test_a_killed_brokers_files_are_clean(kafka_cases: Path) -> None:
    """Preallocated zeros are reported as notes, not as damage."""
    report = verify(kafka_cases / "unclean" / "killed" / "log", deep=True)
    assert report.clean
    assert {"tail-zeros", "index-zeros"} <= {f.what for f in report.findings}


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [
        ("cut37", {"tail-bytes"}),
        ("flip", {"batch-checksum", "tail-bytes"}),
        ("garbage", {"tail-bytes"}),
        ("zero4096", {"tail-bytes", "checkpoint-range"}),
        ("flip-earlier", {"batch-checksum"}),
        ("flip-first", {"batch-checksum"}),
        ("noindex", {"aborts-missing"}),
    ],
)
def test_exactly_the_damage_is_found_in_every_partition(
    kafka_cases: Path, folder: str, wanted: set[str]
) -> None:
    """Variants of the killed broker's files: only the change that was made is found."""
    directory = kafka_cases / "unclean" / folder / "log"
    report = verify(directory)
    assert damage(report) <= wanted
    if folder != "noindex":
        told = {Path(f.file).parent.name for f in report.findings if f.severity == "damage"}
        partitions = {p.name for p in directory.iterdir() if p.is_dir()}
        # A segment of only zeros looks as if it was preallocated and never written.
        assert len(partitions - told) <= (1 if folder == "zero4096" else 0)
    else:
        assert {f.what for f in report.findings if f.severity == "warning"} == {"index-missing"}
        assert damage(report) == wanted  # only u-txn had a list of aborted transactions


def test_a_flipped_bit_has_its_place_and_the_rest_is_still_read(segments: Path) -> None:
    """One batch is damaged: file, position and length are reported, and all others are read."""
    before = verify(segments)
    log = sorted(segments.glob("*.log"))[3]
    size = log.stat().st_size
    change(log, size // 2, bytes([log.read_bytes()[size // 2] ^ 4]))
    report = verify(segments)
    [finding] = [f for f in report.findings if f.severity == "damage"]
    assert finding.what == "batch-checksum"
    assert Path(finding.file) == log
    assert finding.position <= size // 2 < finding.position + finding.length
    assert report.counters["batches"] == before.counters["batches"] - 1


def test_bytes_that_are_no_batch_are_searched_through(segments: Path) -> None:
    """A wrong length field: the next good batch is found by searching."""
    log = sorted(segments.glob("*.log"))[0]
    before = verify(log)
    change(log, 8, struct.pack(">i", 0x7FFFFFF0))
    report = verify(log)
    [finding] = [f for f in report.findings if f.severity == "damage"]
    assert finding.what == "batch-bytes"
    assert finding.position == 0
    assert report.counters["batches"] == before.counters["batches"] - 1


def test_a_segment_in_the_wrong_place_is_found(segments: Path) -> None:
    """A valid segment of other offsets, under this segment's name."""
    logs = sorted(segments.glob("*.log"))
    logs[2].write_bytes(logs[5].read_bytes())
    assert "batch-range" in damage(verify(segments))


def test_batches_in_the_wrong_order_are_found(segments: Path) -> None:
    """Two good batches are swapped: every checksum is right, but the offsets decrease."""
    log = sorted(segments.glob("*.log"))[1]
    data = log.read_bytes()
    first = 12 + struct.unpack_from(">i", data, 8)[0]
    second = first + 12 + struct.unpack_from(">i", data, first + 8)[0]
    log.write_bytes(data[first:second] + data[:first] + data[second:])
    found = damage(verify(segments))
    assert "batch-order" in found
    assert "batch-checksum" not in found
    log.write_bytes(data[first:] + data[:first])
    assert "batch-order" in damage(verify(segments))


Damage = Callable[[Path], Any]


def swap_entries(path: Path, size: int) -> None:
    """Swap the first two entries of an index."""
    data = path.read_bytes()
    path.write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])


def test_index_damage_is_found(segments: Path) -> None:
    """Each kind of damage to an offset or time index, one at a time."""
    indexes = [p for p in sorted(segments.glob("*.index")) if p.stat().st_size >= 24]
    times = [p for p in sorted(segments.glob("*.timeindex")) if p.stat().st_size >= 36]
    index, time_index = indexes[0], times[0]
    kinds: list[tuple[Path, Damage, str]] = [
        (index, lambda p: change(p, 4, struct.pack(">i", 17)), "index-entry"),
        (index, lambda p: change(p, 3, bytes([p.read_bytes()[3] + 1])), "index-entry"),
        (index, lambda p: swap_entries(p, 8), "index-order"),
        (index, lambda p: p.write_bytes(p.read_bytes()[:-3]), "index-size"),
        (time_index, lambda p: swap_entries(p, 12), "index-order"),
        (time_index, lambda p: p.write_bytes(p.read_bytes()[:-12]), "time-short"),
        (time_index, lambda p: change(p, 0, struct.pack(">q", 5)), "time-promise"),
        (time_index, lambda p: change(p, -4, struct.pack(">i", 1 << 30)), "time-entry"),
    ]
    assert verify(segments).clean
    for path, spoil, what in kinds:
        saved = path.read_bytes()
        spoil(path)
        found = verify(segments)
        assert damage(found) == {what}, (path, what, found.findings)
        assert damage(verify(path)) == {what}
        path.write_bytes(saved)
    assert verify(segments).clean


def test_state_damage_is_found(transactions: Path) -> None:
    """Aborted transactions, snapshots and leader epochs that do not agree with the batches."""
    aborts = sorted(transactions.glob("*.txnindex"))[0]
    snapshot = sorted(transactions.glob("*.snapshot"))[-2]
    epochs = transactions / "leader-epoch-checkpoint"
    kinds: list[tuple[Path, Damage, str]] = [
        (aborts, lambda p: p.write_bytes(p.read_bytes()[:-34]), "aborts-missing"),
        (aborts, lambda p: p.unlink(), "aborts-missing"),
        (aborts, lambda p: p.write_bytes(p.read_bytes()[:-1]), "aborts-bytes"),
        (aborts, lambda p: change(p, 0, b"\x00\x01"), "aborts-bytes"),
        (aborts, lambda p: change(p, 17, bytes([p.read_bytes()[17] ^ 1])), "aborts-entry"),
        (snapshot, lambda p: change(p, 20, bytes([p.read_bytes()[20] ^ 1])), "snapshot-bytes"),
        (snapshot, lambda p: p.write_bytes(b""), "snapshot-bytes"),
        (snapshot, lambda p: p.write_bytes(emptied_snapshot()), "snapshot-entry"),
        (epochs, lambda p: p.write_bytes(b""), "epochs-bytes"),
        (epochs, lambda p: p.write_text("0\n2\n0 0\n"), "epochs-bytes"),
        (epochs, lambda p: p.write_text("0\n2\n0 0\n0 50\n"), "epochs-order"),
        (epochs, lambda p: p.write_text("0\n2\n0 0\n7 50\n"), "epochs-batch"),
        (transactions / "partition.metadata", lambda p: p.write_bytes(b"x"), "metadata-bytes"),
    ]
    assert verify(transactions).clean
    for path, spoil, what in kinds:
        saved = path.read_bytes()
        spoil(path)
        found = verify(transactions)
        assert what in damage(found), (path, what, found.findings)
        path.write_bytes(saved)
    assert verify(transactions).clean


@pytest.mark.parametrize("left", [b"", bytes(43)])
def test_a_new_topics_id_torn_by_a_power_cut_is_no_damage(transactions: Path, left: bytes) -> None:
    """The id is synced with the first records; opening the log writes it again."""
    (transactions / "partition.metadata").write_bytes(left)
    assert verify(transactions).clean


def test_an_empty_list_of_epochs_of_an_empty_log_is_no_damage(tmp_path: Path) -> None:
    """Apache Kafka creates the file with the log, and writes it with the first epoch: a follower of
    a partition that was never written keeps it empty."""
    folder = tmp_path / "t-0"
    with Log(folder):
        pass
    (folder / "leader-epoch-checkpoint").write_bytes(b"")
    assert verify(folder).clean


def emptied_snapshot() -> bytes:
    """A snapshot that is valid and lists no producer, although one has a transaction open."""
    from kafkalog._native import lib

    body = struct.pack(">i", 0)
    return struct.pack(">hI", 1, lib.kl_crc32c(body, len(body))) + body


def test_leftovers_are_told_and_are_no_damage(segments: Path) -> None:
    """Files of an unfinished deletion and swap."""
    (segments / "00000000000000000000.log.deleted").write_bytes(b"")
    (segments / "00000000000000000065.index.swap").write_bytes(b"")
    report = verify(segments)
    assert report.clean
    assert {f.what for f in report.findings} == {"leftover", "leftover-swap"}


def test_a_missing_segment_is_found(segments: Path) -> None:
    """By its indexes, or by the gap between its neighbours' offsets if those are missing too."""
    logs = sorted(segments.glob("*.log"))
    gone = logs[4]
    gone.unlink()
    report = verify(segments)
    assert damage(report) == {"segment-missing"}
    assert "segment-gap" in {f.what for f in report.findings}
    gone.with_suffix(".index").unlink()
    gone.with_suffix(".timeindex").unlink()
    [finding] = [f for f in verify(segments).findings if f.severity != "note"]
    assert (finding.what, finding.file) == ("segment-gap", str(logs[5]))
    # Leftovers of an interrupted deletion at the log's start are not damage.
    logs[0].unlink()
    assert "orphan" in {f.what for f in verify(segments).findings}


def test_a_partition_without_a_segment(tmp_path: Path) -> None:
    """A topic that was created and never written to is clean."""
    with Manager(tmp_path / "d") as manager:
        manager.create_topic("t", 3)
    report = verify(tmp_path / "d")
    assert report.clean
    assert [f.what for f in report.findings] == ["segment-none"] * 3


def test_verify_deep_finds_records_that_contradict_their_header(
    segments: Path, tmp_path: Path
) -> None:
    """The checksum is right, the records are not: only a deep check can find that."""
    from tests.support.batches import Row, batch

    folder = tmp_path / "made-0"
    folder.mkdir()
    good = batch([Row(b"a", None, 1000), Row(b"b", None, 1001)])
    wrong = bytearray(good)
    wrong[61] ^= 2  # the first record's length
    from kafkalog._native import lib

    body = bytes(wrong[21:])
    wrong[17:21] = struct.pack(">I", lib.kl_crc32c(body, len(body)))
    (folder / "00000000000000000000.log").write_bytes(bytes(wrong))
    assert damage(verify(folder)) == set()
    assert damage(verify(folder, deep=True)) == {"batch-records"}


def test_our_own_files_are_clean(tmp_path: Path) -> None:
    """While the log is open with rolls, and after it was closed."""
    with Log(tmp_path / "own-0", config={"segment.bytes": 20_000}) as log:
        for i in range(50):
            log.append_many([b"value %d" % j for j in range(i * 20)], timestamps_ms=None)
        during = log.verify()
        assert during.findings == [] or during.clean
    report = verify(tmp_path / "own-0", deep=True)
    assert report.clean
    assert report.counters["records"] == sum(i * 20 for i in range(50))


@pytest.mark.parametrize(("topic", "clean"), [("__cluster_metadata", True), ("orders", False)])
def test_control_records_of_a_quorum_share_a_batch(tmp_path: Path, topic: str, clean: bool) -> None:
    """The first leader of voters that can change writes three; a transaction has one marker."""
    records = [
        (LEADER_CHANGE, leader_change_value(1)), (KRAFT_VERSION, kraft_version_value(1)),
        (VOTERS, b"\0\0\1\0"),
    ]  # fmt: skip
    folder = tmp_path / f"{topic}-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(control_batch(records, 0, 1, 1_000))
    assert damage(verify(folder)) == (set() if clean else {"batch-header"})


def test_exit_status_and_json(kafkalog: Command, segments: Path) -> None:
    """0 clean, 1 damage, 2 nothing to check; the JSON has every finding."""
    assert kafkalog("verify", segments).status == 0
    ran = kafkalog("verify", segments, "--json")
    assert ran.rows()[0]["clean"] is True
    change(sorted(segments.glob("*.log"))[0], -1, b"\xaa\xaa")
    ran = kafkalog("verify", segments)
    assert ran.status == 1
    assert "NOT CLEAN" in ran.out
    [report] = kafkalog("verify", segments, "--json").rows()
    assert report["findings"][0]["what"] in KINDS
    ran = kafkalog("verify", segments / "nothing")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("kafkalog: ")
    empty = segments.parent / "empty"
    empty.mkdir()
    assert kafkalog("verify", empty).status == 2


def test_verify_during_writes_finds_nothing(tmp_path: Path) -> None:
    """Batches are appended, segments roll and are deleted, and indexes grow during the check."""
    path, done = tmp_path / "own-0", threading.Event()
    with Log(path, config={"segment.bytes": 200_000, "retention.bytes": 2_000_000}) as log:

        def write() -> None:
            while not done.is_set():
                log.append_many([b"y" * 50_000], timestamps_ms=[1])
                log.append(b"z")
                log.apply_retention()

        log.append(b"first")
        writer = threading.Thread(target=write)
        writer.start()
        try:
            batches = 0
            while batches < 200:
                report = verify(path)
                assert damage(report) == set(), report.findings
                batches += report.counters["batches"]
        finally:
            done.set()
            writer.join()


def test_a_snapshot_that_is_being_written_or_deleted_is_no_damage(tmp_path: Path) -> None:
    """A roll writes one, and retention deletes one after the names were listed."""
    path = tmp_path / "own-0"
    with Log(path) as log:
        log.append_many([b"x"] * 100)
        (path / "00000000000000000100.snapshot").touch()
        (path / "00000000000000000050.snapshot").symlink_to("gone")
        assert damage(verify(path)) == set()
    (path / "00000000000000000100.snapshot").write_bytes(b"")
    assert damage(verify(path)) == {"snapshot-bytes"}


def test_a_tail_that_stays_half_written_is_damage(tmp_path: Path) -> None:
    """Even where a writer holds the lock; the complete log is clean."""
    with Log(tmp_path / "own-0") as log:
        log.append_many([b"x" * 100] * 100)
        path = tmp_path / "own-0" / "00000000000000000000.log"
        whole = path.read_bytes()
        path.write_bytes(whole + whole[: len(whole) // 2])
        assert damage(verify(tmp_path / "own-0")) == {"tail-bytes"}
        path.write_bytes(whole)
        assert verify(tmp_path / "own-0").clean


@pytest.mark.parametrize("cut", [False, True], ids=["grown", "cut and grown"])
def test_indexes_that_a_living_writer_has_in_memory_are_not_missing(
    tmp_path: Path, cut: bool
) -> None:
    """Nor after a truncation; after a kill they are missing, and the next open rebuilds them."""
    folder = tmp_path / "a-0"
    with Log(folder, config={"segment.bytes": 2000, "index.interval.bytes": 100}) as log:
        for number in range(40):
            log.append(b"x" * 100, timestamp_ms=1000 + number)
        if cut:
            log.truncate(log.end_offset - 1)
            log.roll()
            log.append(b"x" * 100)
        last = log.segments[-1].base_offset
        assert not (folder / f"{last:020d}.timeindex").exists()
        assert verify(folder).findings == []
        killed = copy_tree(folder, tmp_path / "killed" / "a-0")
    assert {f.what for f in verify(killed).findings} == {"index-missing"}
    Log(killed).close()
    assert verify(killed).findings == []
