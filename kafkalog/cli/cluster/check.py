"""`kafkalog cluster check`: compares all replicas, record by record, each read from its own
node."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.cli.cluster.looking import Look, chosen, look, sizes
from kafkalog.cli.common import json_line, plural, preview, table, warn
from kafkalog.cli.progress import Progress
from kafkalog.client.calls.configs import ConfigResource, describe_configs
from kafkalog.client.calls.copies import Batch, CopyReader
from kafkalog.errors import KafkalogError
from kafkalog.log.fetched import Decoder

if TYPE_CHECKING:
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.types import Record, TopicPartition

__all__ = ["run"]

POLICY = "cleanup.policy"
TOLD_MAX = 10
"""Differences printed per partition; the rest is counted."""
PATIENCE_S = 3.0
"""Retry interval while a replica does not know of the last records yet."""
PAUSE_S = 0.05
BODY = 61
"""The size of a batch's header, before its records."""


class Checked(NamedTuple):
    """The result for a partition."""

    start: int
    end: int
    """The range of offsets that all replicas have."""
    records: int
    """How many records were compared."""
    nodes: list[int]
    skipped: dict[int, str]
    """Replicas that could not be read, and why."""
    behind: dict[int, int]
    """Replicas that are behind, and how many offsets they lack."""
    differences: list[dict[str, Any]]
    """The first differences."""
    different: int
    """How many differences there are."""
    compacted: int
    """Records that only some replicas have compacted away so far: not a difference."""


def run(cluster: Cluster, options: argparse.Namespace, words: list[str]) -> int:
    """Compare, and report partitions whose replicas differ; returns 1 if any do, or one could not
    be read."""
    found = look(cluster)
    some = chosen(found, words)
    compact = _compacted(cluster, some)
    held = sizes(cluster, found)
    whole = sum(of.get(tp, 0) for of in held.values() for tp in some)
    progress = Progress(whole)
    rows = []
    for tp in some:
        one = _Comparison(cluster, found, tp, tp.topic in compact, progress).run()
        rows.append((tp, one))
        if options.json:
            progress.clear()
            print(json_line(_json(tp, one)), flush=True)
    progress.clear()
    if not options.json:
        _show(rows)
    return 1 if any(one.different or one.skipped for _, one in rows) else 0


def _compacted(cluster: Cluster, some: list[TopicPartition]) -> set[str]:
    """Topics with compaction: their replicas compact at different times."""
    topics = [ConfigResource("topic", name) for name in sorted({tp.topic for tp in some})]
    told = describe_configs(cluster, topics, [POLICY]).done
    values = {one.name: row[POLICY].value for one, row in told.items() if POLICY in row}
    return {name for name, value in values.items() if "compact" in (value or "")}


# ---- one partition -------------------------------------------------------------------------


class _Comparison:
    """The replicas of one partition, read in step; one answer of each is held at a time."""

    def __init__(
        self, cluster: Cluster, found: Look, tp: TopicPartition, compacted: bool,
        progress: Progress,
    ) -> None:  # fmt: skip
        self.compacted = compacted
        self.progress = progress
        self.skipped: dict[int, str] = {}
        self.readers: dict[int, CopyReader] = {}
        self.records = self.missing = self.different = 0
        self.differences: list[dict[str, Any]] = []
        for node in found.partitions[tp].replicas:
            if node not in found.nodes:
                self.skipped[node] = "the node is away"
                continue
            try:
                self.readers[node] = CopyReader(cluster, tp, node)
            except KafkalogError as problem:
                self.skipped[node] = str(problem)

    def run(self) -> Checked:
        start = max((one.start for one in self.readers.values()), default=0)
        behind = self._wait()
        end = min((one.end for one in self.readers.values()), default=0)
        if len(self.readers) > 1 and start < end:
            try:
                self._compare([_Copy(one, start, end) for one in self.readers.values()])
            except _Unreadable as problem:
                self.skipped[problem.node] = str(problem)
        return Checked(
            start, max(start, end), self.records, list(self.readers), self.skipped,
            behind, self.differences, self.different, self.missing,
        )  # fmt: skip

    def _wait(self) -> dict[int, int]:
        """Wait briefly until all know the same high watermark, which followers learn with their
        next fetch; one that stays behind is reported."""
        ends = {node: one.end for node, one in self.readers.items()}
        target, until_s = max(ends.values(), default=0), time.monotonic() + PATIENCE_S
        while min(ends.values(), default=target) < target and time.monotonic() < until_s:
            time.sleep(PAUSE_S)
            for node in [node for node, end in ends.items() if end < target]:
                try:
                    ends[node] = self.readers[node].look()
                except KafkalogError as problem:
                    self.skipped[node] = str(problem)
                    del ends[node], self.readers[node]
        return {node: target - end for node, end in ends.items() if end < target}

    def _compare(self, copies: list[_Copy]) -> None:
        """Compare whole batches while they are equal byte for byte, otherwise their records."""
        while True:
            first = copies[0].head
            if first is not None and all(c.head and c.head.data == first.data and not c.opened
                                         for c in copies):  # fmt: skip
                self.records += first.record_count
                for copy in copies:
                    copy.advance()
            elif not self._next_record(copies):
                return
            self.progress.update(self.records, sum(copy.read_bytes for copy in copies))

    def _next_record(self, copies: list[_Copy]) -> bool:
        """Compare the next offset that some replica has; False if none has more."""
        heads = {copy.node: copy.item() for copy in copies}
        at = min((item.offset for item in heads.values() if item is not None), default=None)
        if at is None:
            return False
        there = {n: item for n, item in heads.items() if item is not None and item.offset == at}
        for copy in copies:
            if copy.node in there:
                copy.opened.popleft()
        self.records += 1
        if len(there) < len(copies) and self.compacted:
            self.missing += 1
        if len({item.content for item in there.values()}) > 1 or (
            len(there) < len(copies) and not self.compacted
        ):
            self.different += 1
            if len(self.differences) < TOLD_MAX:
                told = {str(n): there[n].told if n in there else None for n in heads}
                self.differences.append({"offset": at, "nodes": told})
        return True


class _Unreadable(Exception):
    """The rest of a replica cannot be read."""

    def __init__(self, node: int, why: KafkalogError) -> None:
        super().__init__(str(why))
        self.node = node


class _Item(NamedTuple):
    """A record, or a transaction's marker."""

    offset: int
    content: tuple[Any, ...]
    told: dict[str, Any]


class _Copy:
    """One replica as it is read.  All methods raise _Unreadable."""

    def __init__(self, reader: CopyReader, start: int, end: int) -> None:
        self.node = reader.node
        self.opened: deque[_Item] = deque()
        """The records of the batches opened so far."""
        self.read_bytes = 0
        self.head: Batch | None = None
        """The next batch; None if there is none."""
        self._tp = reader.tp
        self._start, self._end = start, end
        self._batches = reader.batches(start, end)
        self.advance()

    def advance(self) -> None:
        """Skip the batch."""
        try:
            self.head = next(self._batches, None)
        except KafkalogError as problem:
            raise _Unreadable(self.node, problem) from None
        self.read_bytes += len(self.head.data) if self.head else 0

    def item(self) -> _Item | None:
        """The next record; opens batches as needed."""
        while not self.opened and self.head is not None:
            batch = self.head
            try:
                self.opened.extend(self._items(batch))
            except KafkalogError as problem:
                raise _Unreadable(self.node, problem) from None
            self.advance()
        return self.opened[0] if self.opened else None

    def _items(self, batch: Batch) -> Iterator[_Item]:
        if batch.control:
            body = batch.data[BODY:]
            marker = {"timestamp": -1, "key": "a marker of", "value": f"transactions: {body.hex()}"}
            yield _Item(batch.base_offset, (body,), marker)
            return
        for rows in Decoder().records(*self._tp, batch.data, max(batch.base_offset, self._start)):
            for record in rows.records(0, len(rows)):
                if record.offset < self._end:
                    content = (
                        record.timestamp_ms, record.key, record.value, tuple(record.headers),
                    )  # fmt: skip
                    yield _Item(record.offset, content, _told(record))


def _told(record: Record) -> dict[str, Any]:
    return {
        "timestamp": record.timestamp_ms,
        "key": preview(record.key, 20),
        "value": preview(record.value, 40),
    }


# ---- the report ----------------------------------------------------------------------------


def _json(tp: TopicPartition, one: Checked) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "nodes": one.nodes,
        "start": one.start,
        "end": one.end,
        "records": one.records,
        "different": one.different,
        "differences": one.differences,
        "compacted": one.compacted,
        "behind": {str(node): count for node, count in one.behind.items()},
        "unread": {str(node): why for node, why in one.skipped.items()},
    }


def _show(rows: list[tuple[TopicPartition, Checked]]) -> None:
    wrong = [(tp, one) for tp, one in rows if one.different]
    if wrong:
        heads = ["topic", "part", "offset", "what each node has"]
        cells = [
            [tp.topic, str(tp.partition), str(row["offset"]), _side_by_side(row["nodes"])]
            for tp, one in wrong
            for row in one.differences
        ]
        print(table(heads, cells, left=frozenset({0, 3})))
        for tp, one in wrong:
            if one.different > len(one.differences):
                print(f"{tp.topic}-{tp.partition}: {one.different:,} differ in all")
    unread: dict[tuple[int, str], list[TopicPartition]] = {}
    for tp, one in rows:
        for node, why in one.skipped.items():
            unread.setdefault((node, why), []).append(tp)
    for (node, why), some in unread.items():
        which = ", ".join(f"{tp.topic}-{tp.partition}" for tp in some[:TOLD_MAX])
        more = ", ..." if len(some) > TOLD_MAX else ""
        warn(f"{plural(len(some), 'partition')} not compared on node {node}: {why} ({which}{more})")
    for tp, one in rows:
        for node, count in one.behind.items():
            warn(f"{tp.topic}-{tp.partition}: node {node} is {count:,} behind: not compared there")
    compared = [one for _, one in rows if len(one.nodes) > 1]
    records = sum(one.records for one in compared)
    waiting = sum(one.compacted for one in compared)
    print(
        f"{plural(len(compared), 'partition')} with {plural(records, 'record')} compared: "
        + (f"{plural(len(wrong), 'partition')} DIFFER" if wrong else "all copies are equal")
        + (f"; {plural(waiting, 'record')} not yet compacted away everywhere" if waiting else "")
    )
    alone = sum(len(one.nodes) == 1 and not one.skipped for _, one in rows)
    if alone:
        print(f"{plural(alone, 'partition')} with one replica only: nothing to compare")


def _side_by_side(nodes: dict[str, Any]) -> str:
    return "   ".join(f"{node}: {_short(told)}" for node, told in nodes.items())


def _short(told: dict[str, Any] | None) -> str:
    return "nothing" if told is None else f"{told['key']} {told['value']} at {told['timestamp']}"
