"""`kafkalog dump --json` reports what Kafka's DumpLogSegments reported on the same files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import cases
from tests.support.kafka_data import data_directories
from tests.support.trees import fingerprint
from tests.unit.cli.conftest import Command

DUMPS = [
    (dump, dump.parent.parent)
    for dump in sorted(cases.folder().glob("*/expected/dump*.txt"))
    if "oldformats" not in dump.parts
]
FILE = re.compile(r"^Dumping (?:\./)?(\S+)$")


def said_by_kafka(dump: Path) -> dict[str, list[str]]:
    """File name in the case -> the lines about it; for a repeated file, only the last ones."""
    files: dict[str, list[str]] = {}
    into: list[str] = []
    for line in dump.read_text().splitlines():
        match = FILE.match(line)
        if match:
            into = files.setdefault(match[1], [])
            into.clear()
        elif re.match(r"^(baseOffset|\| offset|offset|timestamp|version|producerId):? ?", line):
            into.append(line)
    return files


def as_kafka(row: dict[str, Any]) -> str | None:
    """A row of our output, formatted as DumpLogSegments does."""
    kind = row["kind"]
    if kind == "batch":
        horizon = row["delete_horizon"]
        return (
            f"baseOffset: {row['base_offset']} lastOffset: {row['last_offset']} "
            f"count: {row['count']} baseSequence: {row['base_sequence']} "
            f"lastSequence: {row['last_sequence']} producerId: {row['producer_id']} "
            f"producerEpoch: {row['producer_epoch']} "
            f"partitionLeaderEpoch: {row['leader_epoch']} "
            f"isTransactional: {str(row['transactional']).lower()} "
            f"isControl: {str(row['control']).lower()} deleteHorizonMs: "
            f"{'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
            f"position: {row['position']} {row['timestamp_type']}: {row['timestamp']} "
            f"size: {row['bytes']} magic: {row['magic']} compresscodec: {row['codec']} "
            f"crc: {row['crc']} isvalid: {str(row['valid']).lower()}"
        )
    if kind == "record":
        names = ",".join(name for name, _ in row["headers"])
        marker = (
            f" endTxnMarker: {row['marker']} coordinatorEpoch: {row['coordinator_epoch']}"
            if row.get("marker") in ("ABORT", "COMMIT")
            else ""
        )
        return (
            f"| offset: {row['offset']} {row['timestamp']} keySize: {row['key_bytes']} "
            f"valueSize: {row['value_bytes']} sequence: {row['sequence']} "
            f"headerKeys: [{names}]{marker}"
        )
    if kind == "index":
        return f"offset: {row['offset']} position: {row['position']}"
    if kind == "timeindex":
        return f"timestamp: {row['timestamp']} offset: {row['offset']}"
    if kind == "aborted":
        return (
            f"version: 0 producerId: {row['producer_id']} firstOffset: {row['first_offset']} "
            f"lastOffset: {row['last_offset']} lastStableOffset: {row['last_stable_offset']}"
        )
    if kind == "producer":
        return producer_as_kafka(row)
    return None


def producer_as_kafka(row: dict[str, Any]) -> str:
    """A producer of a snapshot; if it only wrote markers, it has no fields of a batch."""
    start = row["txn_start_offset"]
    text = (
        f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']} "
        f"coordinatorEpoch: {row['coordinator_epoch']} currentTxnFirstOffset: "
        f"{'OptionalLong.empty' if start < 0 else f'OptionalLong[{start}]'} "
        f"lastTimestamp: {row['timestamp_ms']}"
    )
    if row["last_sequence"] < 0:
        return text
    first = (row["last_sequence"] - row["offset_delta"]) & 0x7FFFFFFF
    return text + (
        f" firstSequence: {first} lastSequence: {row['last_sequence']} "
        f"lastOffset: {row['last_offset']} offsetDelta: {row['offset_delta']} "
        f"timestamp: {row['timestamp_ms']}"
    )


def comparable(line: str) -> str:
    """A line without decoded keys, the name of a record's timestamp type, and the blank that
    Kafka before 4.4 wrote after a producer without batches."""
    line = re.sub(r"(headerKeys: \[[^\]]*\](?: endTxnMarker: \w+ coordinatorEpoch: \d+)?).*", r"\1",
                  line)  # fmt: skip
    return re.sub(r"^(\| offset: \d+) \w+: ", r"\1 ", line).rstrip()


@pytest.mark.parametrize(("dump", "case"), DUMPS, ids=[f"{c.name}-{d.stem}" for d, c in DUMPS])
def test_dump_equals_kafkas(kafkalog: Command, dump: Path, case: Path) -> None:
    """Every batch, record, index entry, aborted transaction and producer of every file."""
    compared = 0
    for name, lines in said_by_kafka(dump).items():
        path = case / name if (case / name).exists() else case / "log" / name
        if not path.exists():
            continue
        ran = kafkalog("dump", path, "--json", "--records")
        assert ran.status == 0, (name, ran.err)
        ours = [text for row in ran.rows() if (text := as_kafka(row)) is not None]
        kafka = [comparable(line) for line in lines]
        assert ours == kafka, name
        compared += len(kafka)
    assert compared > 5


def test_dump_of_a_directory_changes_nothing(kafkalog: Command, kafka_cases: Path) -> None:
    """Every data directory of the cases is dumped read-only, to its end or to an error."""
    for case, directory in data_directories():
        before = fingerprint(directory)
        ran = kafkalog("dump", directory)
        assert ran.status in (0, 1), (case, ran.err)
        assert ("STOPPED" in ran.out) == (ran.status == 1), case
        assert fingerprint(directory) == before, case


def test_dump_of_a_damaged_file_says_where_and_goes_on(
    kafkalog: Command, kafka_cases: Path
) -> None:
    """A flipped bit in the first batch: its position, the reason, and the next good batch."""
    folder = kafka_cases / "unclean" / "flip-first" / "log" / "u-java-0"
    ran = kafkalog("dump", folder / "00000000000000000000.log", "--json")
    rows = ran.rows()
    assert ran.status == 1
    assert rows[1]["kind"] == "stop"
    assert rows[1]["position"] == 0
    assert "crc" in rows[1]["why"]
    assert rows[2]["kind"] == "resume"
    assert [row["kind"] for row in rows[3:]] == ["batch"] * len(rows[3:])
    assert rows[3]["position"] == rows[2]["position"]


def test_dump_names_an_old_format(kafkalog: Command, kafka_cases: Path) -> None:
    """Formats 0 and 1 are not supported, and dump reports that."""
    folder = kafka_cases / "oldformats" / "log" / "v1-none-java-0"
    if not folder.is_dir():
        pytest.skip("this data set has no such partition")
    ran = kafkalog("dump", folder)
    assert ran.status == 1
    assert "magic 1" in ran.out


def test_dump_tells_a_preallocated_tail(kafkalog: Command, kafka_cases: Path) -> None:
    """Zeros after the last batch are not damage."""
    folder = kafka_cases / "unclean" / "killed" / "log" / "u-prealloc-0"
    ran = kafkalog("dump", folder)
    assert ran.status == 0
    assert "zero bytes to the end" in ran.out


def test_dump_from_an_offset(kafkalog: Command, kafka_cases: Path) -> None:
    """One batch, the one that holds the offset, with its records."""
    folder = kafka_cases / "segments" / "log"
    log = next(iter(sorted(folder.glob("*-0/*.log"))))
    whole = [r for r in kafkalog("dump", log, "--json").rows() if r["kind"] == "batch"]
    wanted = whole[2]
    ran = kafkalog(
        "dump", log, "--json", "--records", "--max-batches", 1,
        "--from-offset", wanted["last_offset"],
    )  # fmt: skip
    assert ran.rows()[1] == wanted
    assert [r["offset"] for r in ran.rows()[2:]] == list(
        range(wanted["base_offset"], wanted["last_offset"] + 1)
    )


def test_dump_refuses_foreign_files(kafkalog: Command, tmp_path: Path) -> None:
    """Another kind of file, an empty folder, a missing path: one line, status 2."""
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path / "notes.txt", tmp_path, tmp_path / "none.log"):
        ran = kafkalog("dump", path)
        assert ran.status == 2, path
        assert ran.err.startswith("kafkalog: ")
        assert ran.err.count("\n") == 1
