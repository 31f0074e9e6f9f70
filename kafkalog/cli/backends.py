"""Data directories and clusters behind one interface for the commands."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkalog.cli.common import (
    CODECS,
    UsageError,
    no_topic,
    open_log,
    plural,
    show_bytes,
    show_time,
)
from kafkalog.cli.remote import known_partitions, open_admin, open_cluster
from kafkalog.types import Record, TopicPartition

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.client.link.metadata import PartitionInfo
    from kafkalog.log.log import Log

__all__ = [
    "At",
    "Backend",
    "ClusterBackend",
    "DirectoryBackend",
    "Offsets",
    "Reader",
    "open_backend",
]

Offsets = dict[TopicPartition, int]
Row = dict[str, Any]


class At(NamedTuple):
    """The result of a lookup by time."""

    offset: int
    """-1: there is none."""
    timestamp_ms: int
    """The record's timestamp; -1 if none was asked for."""


NOTHING = At(-1, -1)
IDLE_S = 0.05
SAMPLE = 16  # batches read at the start of each segment to find their codec


class Reader(Protocol):
    """Reads partitions from the offsets in `positions`, which advance and may be added to."""

    positions: Offsets

    def poll(self, wait_ms: int | None) -> list[list[Record]]:
        """The next records, in blocks of one partition; nothing after at most `wait_ms`."""

    def close(self) -> None:
        """Release its resources."""


class Backend(Protocol):
    """The interface of a directory and a cluster."""

    name: str
    heads: tuple[str, ...]
    """The names of the columns that `cells` returns."""
    texts: frozenset[int]
    """Which of them are text."""

    def refresh(self) -> None:
        """Reload the list of partitions."""

    def topics(self, internal: bool) -> list[str]:
        """The names, sorted; `internal`: including internal topics."""

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic.  Raises: UsageError, UnknownTopicOrPartition."""

    def firsts(self, some: list[TopicPartition]) -> Offsets:
        """The log start offsets."""

    def ends(self, some: list[TopicPartition], committed: bool) -> Offsets:
        """The current end offsets; `committed`: for read_committed."""

    def at(self, some: list[TopicPartition], time_ms: int) -> Offsets:
        """The first offset at or after a time, for partitions that have one."""
        found = self.listed(some, max(time_ms, 0), False)
        return {tp: at.offset for tp, at in found.items() if at.offset >= 0}

    def listed(
        self, some: list[TopicPartition], when: int | str, committed: bool
    ) -> dict[TopicPartition, At]:
        """The offset at a time; `when`: ms, or as Admin.list_offsets names it."""

    def reader(self, positions: Offsets, committed: bool) -> Reader:
        """A reader from these offsets on."""

    def describe(self, topic: str) -> list[Row]:
        """Its partitions as rows for JSON."""

    def cells(self, row: Row) -> list[str]:
        """A row as the table shows it."""

    def footer(self, rows: list[Row]) -> str:
        """The last line of the table."""


@contextlib.contextmanager
def open_backend(options: argparse.Namespace) -> Iterator[Backend]:
    """The backend named by --dir or --bootstrap-server.  Raises: UsageError, OSError."""
    if options.dir is not None:
        directory = DirectoryBackend(options.dir)
        try:
            yield directory
        finally:
            directory.close()
        return
    with open_admin(options) as admin, open_cluster(options) as cluster:
        yield ClusterBackend(admin, cluster)


# ---- a directory ---------------------------------------------------------------------------


class DirectoryBackend(Backend):
    """A data directory; its logs are opened for reading, and nothing is written."""

    heads: tuple[str, ...] = (
        "topic", "part", "start", "end", "size", "segments", "first-time", "largest-time", "codecs",
    )  # fmt: skip
    texts = frozenset({0, 6, 7, 8})

    def __init__(self, path: str) -> None:
        """List the directory.  Raises: OSError, KafkalogError."""
        self.name = path
        self._logs: dict[TopicPartition, Log] = {}
        self._folders: Mapping[TopicPartition, str] = {}
        self.refresh()

    def refresh(self) -> None:
        """Reload the list of partitions."""
        from kafkalog.disk.layout import list_directory

        self._folders = list_directory(self.name).partitions

    def close(self) -> None:
        """Close the logs."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def topics(self, internal: bool) -> list[str]:
        """See Backend."""
        from kafkalog.metadata.image import INTERNAL_TOPICS

        names = sorted({tp.topic for tp in self._folders})
        return [n for n in names if internal or n not in (*INTERNAL_TOPICS, "__cluster_metadata")]

    def partitions(self, topic: str) -> list[TopicPartition]:
        """See Backend."""
        found = sorted(tp for tp in self._folders if tp.topic == topic)
        if not found:
            raise no_topic(f"{self.name}: ", topic, self.topics(True))
        return found

    def log(self, tp: TopicPartition) -> Log | None:
        """The partition's log; None as long as nothing was written to it."""
        if tp not in self._logs:
            log = open_log(tp, os.path.join(self.name, self._folders[tp]))
            if log is None:
                return None
            self._logs[tp] = log
        return self._logs[tp]

    def firsts(self, some: list[TopicPartition]) -> Offsets:
        """See Backend."""
        return {tp: log.start_offset if (log := self.log(tp)) else 0 for tp in some}

    def ends(self, some: list[TopicPartition], committed: bool) -> Offsets:
        """See Backend."""
        return {tp: _end(self.log(tp), committed) for tp in some}

    def listed(
        self, some: list[TopicPartition], when: int | str, committed: bool
    ) -> dict[TopicPartition, At]:
        """See Backend."""
        return {tp: _at(self.log(tp), when, committed) for tp in some}

    def reader(self, positions: Offsets, committed: bool) -> Reader:
        """See Backend."""
        return _LogReader(self, positions, committed)

    def describe(self, topic: str) -> list[Row]:
        """See Backend."""
        return [describe(self.log(tp), tp) for tp in self.partitions(topic)]

    def draw(self, topic: str, target: str) -> None:
        """Draw its segments."""
        from kafkalog.inspect import picture

        logs = filter(None, map(self.log, self.partitions(topic)))
        text = picture.draw(topic, [picture.describe(log) for log in logs])
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)

    def cells(self, row: Row) -> list[str]:
        """See Backend."""
        return [
            row["topic"],
            str(row["partition"]),
            str(row["start_offset"]),
            str(row["end_offset"]),
            show_bytes(row["bytes"]),
            str(row["segments"]),
            show_time(row["first_timestamp"]),
            show_time(row["largest_timestamp"]),
            ",".join(row["codecs"]) or "-",
        ]

    def footer(self, rows: list[Row]) -> str:
        """See Backend."""
        offsets = sum(row["end_offset"] - row["start_offset"] for row in rows)
        return (
            f"{plural(len({row['topic'] for row in rows}), 'topic')}, "
            f"{plural(len(rows), 'partition')}, {offsets:,} offsets, "
            f"{show_bytes(sum(row['bytes'] for row in rows))}"
        )


def _end(log: Log | None, committed: bool) -> int:
    if log is None:
        return 0
    log.refresh()
    return log.last_stable_offset if committed else log.high_watermark


def _at(log: Log | None, when: int | str, committed: bool) -> At:
    """As a broker answers ListOffsets."""
    end = _end(log, committed)
    if when == "latest":
        return At(end, -1)
    if when in ("earliest", "earliest_local"):
        return At(log.start_offset if log else 0, -1)
    if log is None or when == "latest_tiered":
        return NOTHING
    found = log.find_time(when) if isinstance(when, int) else log.find_largest_time()
    return At(found.offset, found.timestamp_ms) if found and found.offset < end else NOTHING


class _LogReader:
    """Reads a directory's partitions from their positions on; also those that get records later."""

    def __init__(self, backend: DirectoryBackend, positions: Offsets, committed: bool) -> None:
        self.backend = backend
        self.positions = dict(positions)
        self.committed = committed
        self.passes: dict[TopicPartition, Any] = {}

    def poll(self, wait_ms: int | None) -> list[list[Record]]:
        found = [block for tp in list(self.positions) for block in self._next(tp)]
        if not found:
            self._wait(IDLE_S if wait_ms is None else min(IDLE_S, wait_ms / 1000))
        return found

    def _next(self, tp: TopicPartition) -> list[list[Record]]:
        if tp not in self.passes:
            log = self.backend.log(tp)
            if self.positions[tp] == _end(log, self.committed):
                return []
            if log is None:
                raise UsageError(f"--offset: nothing was ever written to {tp.topic}-{tp.partition}")
            isolation = "read_committed" if self.committed else "read_uncommitted"
            scan = log.scan(self.positions[tp], isolation=isolation)
            self.passes[tp] = (scan, scan.record_blocks())
        scan, blocks = self.passes[tp]
        for records, after in blocks:
            self.positions[tp] = after
            return [list(records)]
        del self.passes[tp]
        # Markers and gaps hold no records.
        self.positions[tp] = max(self.positions[tp], scan.end_offset)
        return []

    def _wait(self, seconds: float) -> None:
        if not self.passes and len(self.positions) == 1:
            tp, offset = next(iter(self.positions.items()))
            log = self.backend.log(tp)
            if log is not None:
                log.wait(offset, int(1000 * seconds))
                return
        if not self.passes:
            time.sleep(seconds)

    def close(self) -> None:
        self.passes.clear()


def describe(log: Log | None, tp: TopicPartition) -> Row:
    """The numbers of one partition; None if nothing was ever written to it."""
    row: Row = {
        "topic": tp.topic,
        "partition": tp.partition,
        "start_offset": 0,
        "end_offset": 0,
        "last_stable_offset": 0,
        "bytes": 0,
        "segments": 0,
        "first_timestamp": -1,
        "largest_timestamp": -1,
        "codecs": [],
    }
    if log is None:
        return row
    segments = log.segments
    firsts = [s.first_timestamp_ms for s in segments if s.first_timestamp_ms >= 0]
    lasts = [s.largest_timestamp_ms for s in segments if s.largest_timestamp_ms >= 0]
    return {
        **row,
        "start_offset": log.start_offset,
        "end_offset": log.end_offset,
        "last_stable_offset": log.last_stable_offset,
        "bytes": log.size_bytes,
        "segments": len(segments),
        "first_timestamp": firsts[0] if firsts else -1,
        "largest_timestamp": max(lasts, default=-1),
        "codecs": _codecs(log),
    }


def _codecs(log: Log) -> list[str]:
    """The codecs of the first batches of each segment; finding all means to read everything."""
    from kafkalog.batch.walk import BatchWalk
    from kafkalog.disk.layout import segment_name
    from kafkalog.errors import KafkalogError

    seen: set[int] = set()
    for segment in log.segments:
        path = os.path.join(log.path, segment_name(segment.base_offset))
        # Retention may have removed the file since; reporting damage is verify's task.
        with contextlib.suppress(KafkalogError):
            for room, count in BatchWalk(path, room=SAMPLE).blocks(check_crc=False):
                seen.update(room[i].attributes & 7 for i in range(count))
                break
    return [CODECS[codec] for codec in sorted(seen) if codec < len(CODECS)]


# ---- a cluster -----------------------------------------------------------------------------


class ClusterBackend(Backend):
    """The topics of a cluster, ours or Apache Kafka's."""

    heads: tuple[str, ...] = (
        "topic", "part", "leader", "replicas", "isr", "start", "end", "records",
    )  # fmt: skip
    texts = frozenset({0})

    def __init__(self, admin: Admin, cluster: Cluster) -> None:
        """A cluster that connects on first use; `cluster`: for its readers."""
        self.name = "the cluster"
        self.admin = admin
        self.cluster = cluster

    def refresh(self) -> None:
        """Reload the partitions of known topics."""
        self.cluster.refresh(list(self.cluster.topics))

    def topics(self, internal: bool) -> list[str]:
        """See Backend."""
        return self.admin.list_topics(internal)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """See Backend."""
        return known_partitions(self.admin, topic)

    def firsts(self, some: list[TopicPartition]) -> Offsets:
        """See Backend."""
        return {tp: at.offset for tp, at in self.listed(some, "earliest", False).items()}

    def ends(self, some: list[TopicPartition], committed: bool) -> Offsets:
        """See Backend."""
        return {tp: at.offset for tp, at in self.listed(some, "latest", committed).items()}

    def listed(
        self, some: list[TopicPartition], when: int | str, committed: bool
    ) -> dict[TopicPartition, At]:
        """See Backend."""
        isolation = "read_committed" if committed else "read_uncommitted"
        found = self.admin.list_offsets(dict.fromkeys(some, when), isolation=isolation)
        return {tp: At(at.offset, at.timestamp_ms) for tp, at in found.check().items()}

    def reader(self, positions: Offsets, committed: bool) -> Reader:
        """See Backend."""
        return _FetchReader(self.cluster, positions, committed)

    def describe(self, topic: str) -> list[Row]:
        """See Backend."""
        info = self.admin.describe_topics([topic])[topic]
        settings = self.admin.describe_configs([("topic", topic)])["topic", topic]
        changed = {c.name: c.value for c in settings.values() if c.source == "topic"}
        led = [
            TopicPartition(topic, p.partition) for p in info.partitions.values() if p.leader >= 0
        ]
        starts, ends = self.firsts(led), self.ends(led, False)
        return [
            {
                **_partition_row(topic, str(info.topic_id), p),
                "start_offset": starts.get(TopicPartition(topic, p.partition), -1),
                "end_offset": ends.get(TopicPartition(topic, p.partition), -1),
                "config": changed,
            }
            for p in info.partitions.values()
        ]

    def cells(self, row: Row) -> list[str]:
        """See Backend."""
        known = row["start_offset"] >= 0
        return [
            row["topic"],
            str(row["partition"]),
            str(row["leader"]) if row["leader"] >= 0 else "none",
            ",".join(map(str, row["replicas"])),
            ",".join(map(str, row["isr"])) or "none",
            str(row["start_offset"]) if known else "-",
            str(row["end_offset"]) if known else "-",
            str(row["end_offset"] - row["start_offset"]) if known else "-",
        ]

    def footer(self, rows: list[Row]) -> str:
        """See Backend."""
        settings = {row["topic"]: row["config"] for row in rows if row["config"]}
        lines = [
            f"{name}: " + ", ".join(f"{k}={v}" for k, v in config.items())
            for name, config in settings.items()
        ]
        nodes = self.admin.describe_cluster().nodes
        lines.append(
            f"{plural(len({row['topic'] for row in rows}), 'topic')}, "
            f"{plural(len(rows), 'partition')} on {plural(len(nodes), 'node')}"
        )
        return "\n".join(lines)


def _partition_row(topic: str, topic_id: str, p: PartitionInfo) -> Row:
    return {
        "topic": topic,
        "partition": p.partition,
        "topic_id": topic_id,
        "leader": p.leader,
        "leader_epoch": p.leader_epoch,
        "replicas": list(p.replicas),
        "isr": list(p.isr),
    }


class _FetchReader:
    """Partitions of a cluster."""

    def __init__(self, cluster: Cluster, positions: Offsets, committed: bool) -> None:
        from kafkalog.client.fetch.fetched import FetchOptions
        from kafkalog.client.fetch.fetcher import Fetcher

        self.fetcher = Fetcher(cluster, positions, FetchOptions(committed=committed))
        self.positions = self.fetcher.positions

    def poll(self, wait_ms: int | None) -> list[list[Record]]:
        return [block.records() for block in self.fetcher.poll(wait_ms)]

    def close(self) -> None:
        self.fetcher.close()
