"""The data directories that Apache Kafka wrote, and its answers about them.

Everything is found by listing folders, so another set of the same kind (other seeds, other names)
works unchanged; see cases.py.
"""

import base64
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import cases

INTERNAL_FOLDERS = {"__cluster_metadata-0"}  # Kafka keeps it outside the ordinary logs


class Partition(NamedTuple):
    """One partition's folder in one data directory of one case."""

    case: str  # "codecs", "unclean/flip"
    directory: Path  # the data directory
    folder: str  # "orders-0"

    @property
    def path(self) -> Path:
        return self.directory / self.folder

    @property
    def topic(self) -> str:
        return self.folder.rpartition("-")[0]

    @property
    def number(self) -> int:
        return int(self.folder.rpartition("-")[2])

    @property
    def expected(self) -> Path:
        return self.directory.parent / "expected"

    @property
    def name(self) -> str:
        return f"{self.case}:{self.directory.name}/{self.folder}"


class Expected(NamedTuple):
    """A record as Kafka's Java consumer read it."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


def data_directories() -> Iterator[tuple[str, Path]]:
    """Every (case, data directory) that has one of Kafka's checkpoint files."""
    root = cases.folder()
    for marker in sorted(root.rglob("recovery-point-offset-checkpoint")):
        directory = marker.parent
        yield str(directory.parent.relative_to(root)), directory


@lru_cache(maxsize=1)
def partitions() -> tuple[Partition, ...]:
    """Every partition that an ordinary start of Kafka would load."""
    found = []
    for case, directory in data_directories():
        for entry in sorted(directory.iterdir()):
            _, dash, number = entry.name.rpartition("-")
            if dash and number.isdigit() and entry.name not in INTERNAL_FOLDERS:
                found.append(Partition(case, directory, entry.name))
    return tuple(found)


@lru_cache(maxsize=256)
def magics(partition: Partition) -> frozenset[int]:
    """The message formats in a partition's .log files (ignoring zeros of a preallocated tail)."""
    seen = set()
    for path in sorted(partition.path.glob("*.log")):
        data, pos = path.read_bytes(), 0
        while len(data) - pos >= 17:
            size = int.from_bytes(data[pos + 8 : pos + 12], "big", signed=True)
            if size <= 0:
                break
            seen.add(data[pos + 16])
            pos += 12 + size
    return frozenset(seen)


def readable() -> list[Partition]:
    """The clean partitions of message format 2."""
    return [p for p in partitions() if not is_unclean(p) and not magics(p) & {0, 1}]


def old_formats() -> list[Partition]:
    return [p for p in partitions() if not is_unclean(p) and magics(p) & {0, 1}]


def is_unclean(partition: Partition) -> bool:
    return (partition.expected / "recovered.json").exists()


def unclean_directories() -> list[tuple[str, Path]]:
    return [
        (case, directory)
        for case, directory in data_directories()
        if (directory.parent / "expected" / "recovered.json").exists()
    ]


def ids(found: list[Partition]) -> list[str]:
    return [p.name for p in found]


@lru_cache(maxsize=512)
def rows(path: Path) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """A .jsonl file by (topic, partition); {} if the case has no such file."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    if path.exists():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                found.setdefault((row["topic"], row["partition"]), []).append(row)
    return found


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@lru_cache(maxsize=512)
def _records(path: Path, topic: str, number: int) -> tuple[Expected, ...]:
    return tuple(
        Expected(
            row["offset"],
            row["timestamp"],
            row["timestamp_type"],
            _bytes(row["key"]),
            _bytes(row["value"]),
            tuple((name, _bytes(value)) for name, value in row["headers"]),
            row["leader_epoch"],
        )
        for row in rows(path).get((topic, number), [])
    )


def expected_records(partition: Partition, committed: bool = False) -> tuple[Expected, ...]:
    """The records that Kafka's consumer read, to the high watermark or (`committed`) the last
    stable offset."""
    path = partition.expected / "records.jsonl"
    committed_path = partition.expected / "records.committed.jsonl"
    if committed and committed_path.exists():
        path = committed_path
    return _records(path, partition.topic, partition.number)


def has_expected_records(partition: Partition) -> bool:
    key = (partition.topic, partition.number)
    expected = partition.expected
    return key in rows(expected / "records.jsonl") or key in rows(expected / "ends.jsonl")


def expected_rows(partition: Partition, name: str) -> list[dict[str, Any]]:
    """The rows of expected/`name` about this partition."""
    return rows(partition.expected / name).get((partition.topic, partition.number), [])


def checkpoint(directory: Path, name: str) -> dict[str, int]:
    """A checkpoint file of a data directory: folder name to offset; {} when missing."""
    path = directory / name
    if not path.exists():
        return {}
    entries = (line.rsplit(" ", 2) for line in path.read_text().splitlines()[2:])
    return {f"{topic}-{number}": int(offset) for topic, number, offset in entries}
