"""`kafkalog cluster check`: compares all replicas, record by record, each read from its own
node."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.cli.cluster.comparing import TOLD_MAX, Comparing, Copy, Unreadable
from kafkalog.cli.cluster.looking import Look, chosen, look, sizes
from kafkalog.cli.common import json_line, plural, table, warn
from kafkalog.cli.progress import Progress
from kafkalog.client.calls.configs import ConfigResource, describe_configs
from kafkalog.client.calls.copies import CopyReader
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.types import TopicPartition

__all__ = ["run"]

POLICY = "cleanup.policy"
PATIENCE_S = 3.0
"""Retry interval while a replica does not know of the last records yet."""
PAUSE_S = 0.05


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
    unchecked: int
    """Some of these for which it was not checked that a later record supersedes them."""
    earlier: dict[int, int]
    """Replicas that begin before the range, and how many offsets were not compared."""


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
    results = describe_configs(cluster, topics, [POLICY]).done
    values = {one.name: row[POLICY].value for one, row in results.items() if POLICY in row}
    return {name for name, value in values.items() if "compact" in (value or "")}


# ---- one partition -------------------------------------------------------------------------


class _Comparison:
    """The replicas of one partition, read in step; one answer of each is held at a time."""

    def __init__(
        self, cluster: Cluster, found: Look, tp: TopicPartition, compacted: bool,
        progress: Progress,
    ) -> None:  # fmt: skip
        self.tp = tp
        self.progress = progress
        self.skipped: dict[int, str] = {}
        self.readers: dict[int, CopyReader] = {}
        self.found = Comparing(compacted)
        for node in found.partitions[tp].replicas:
            if node not in found.nodes:
                self.skipped[node] = "the node is away"
                continue
            try:
                self.readers[node] = CopyReader(cluster, tp, node)
            except KafkalogError as problem:
                self.skipped[node] = str(problem)

    def run(self) -> Checked:
        starts = {node: one.start for node, one in self.readers.items()}
        start = max(starts.values(), default=0)
        behind = self._wait()
        end = min((one.end for one in self.readers.values()), default=0)
        found = self.found
        if len(self.readers) > 1 and start < end:
            try:
                found.compare(
                    [Copy(node, self.tp, one.batches(start, end), start, end)
                     for node, one in self.readers.items()],
                    self.progress.update,
                )  # fmt: skip
                self._look_further(end)
                found.finish()
            except Unreadable as problem:
                self.skipped[problem.node] = str(problem)
        return Checked(
            start, max(start, end), found.records, list(self.readers), self.skipped,
            behind, found.differences, found.different, found.missing, found.unchecked,
            {node: start - at for node, at in starts.items() if at < start},
        )  # fmt: skip

    def _look_further(self, end: int) -> None:
        """A replica may have compacted away records that were superseded behind the end."""
        for node, reader in self.readers.items():
            if not self.found.pending:
                return
            try:
                self.found.explain_all(self.tp, reader.batches(end, reader.look()))
            except KafkalogError as problem:
                raise Unreadable(node, problem) from None

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
        "unchecked": one.unchecked,
        "earlier": {str(node): count for node, count in one.earlier.items()},
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
    for tp, one in rows:
        if one.unchecked:
            warn(
                f"{tp.topic}-{tp.partition}: too many records are compacted away on some replicas "
                f"only; of {one.unchecked:,} it was not checked whether later ones supersede them"
            )
    started = sum(bool(one.earlier) for _, one in rows)
    if started:
        warn(f"{plural(started, 'partition')} compared only from the last replica's start on: the "
             "others have earlier records")  # fmt: skip
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
    return "   ".join(f"{node}: {_short(record)}" for node, record in nodes.items())


def _short(record: dict[str, Any] | None) -> str:
    if record is None:
        return "nothing"
    return f"{record['key']} {record['value']} at {record['timestamp']}"
