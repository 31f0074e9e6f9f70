"""`kafkalog consume --bootstrap-server`: the records of a broker's topics, alone or in a group."""

import argparse
import heapq
import itertools
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, parse_time
from kafkalog.cli.remote import names_of, open_cluster, refuse

if TYPE_CHECKING:
    from kafkalog.client.cluster import Cluster
    from kafkalog.client.consumer import GroupConsumer
    from kafkalog.client.fetcher import FetchOptions
    from kafkalog.types import Record, TopicPartition

    Format = Callable[[Record], bytes]
    Offsets = dict[TopicPartition, int]

__all__ = ["run"]

LOOK_S = 30.0
"""How often a follower looks for new partitions."""


def run(options: argparse.Namespace, form: "Format") -> int:
    """Print records until the end, the limit, the silence, or for ever."""
    topics = names_of([], *options.topic)
    with open_cluster(options) as cluster:
        if options.include is not None:
            topics += _included(cluster, options.include)
        if not topics:
            raise UsageError("which topic? give --topic NAME or --include REGEX")
        output = _Output(form, options.max_messages)
        if options.group is not None:
            refuse(options, "a group decides that", partition=None, order="partition")
            left_off = "a group begins where it left off; see --reset"
            refuse(options, left_off, from_time=None, offset="earliest")
            _in_group(cluster, options, topics, output)
        else:
            refuse(options, "is for --group", instance_id=None)
            _alone(cluster, options, topics, output)
    return 0


def _included(cluster: "Cluster", pattern: str) -> list[str]:
    from kafkalog.client.topics import list_topics

    try:
        return [name for name in list_topics(cluster) if re.fullmatch(pattern, name)]
    except re.error as problem:
        raise UsageError(f"--include: {problem}") from None


class _Output:
    """Lines on the standard output, and whether there are enough."""

    def __init__(self, form: "Format", limit: int | None) -> None:
        self.form = form
        self.left = sys.maxsize if limit is None else limit

    def write(self, records: "Iterable[Record]") -> "Record | None":
        """Print records as far as the limit allows; the last one that was printed."""
        last = None
        lines = []
        for last in itertools.islice(records, self.left):
            lines.append(self.form(last))
        if lines:
            self.left -= len(lines)
            sys.stdout.buffer.write(b"\n".join(lines) + b"\n")
            sys.stdout.buffer.flush()
        return last

    def enough(self) -> bool:
        """Whether the limit is reached."""
        return self.left == 0


def _fetch_options(options: argparse.Namespace) -> "FetchOptions":
    from kafkalog.client.fetcher import FetchOptions

    return FetchOptions(committed=options.isolation == "read_committed")


# ---- alone -------------------------------------------------------------------------------


def _alone(
    cluster: "Cluster", options: argparse.Namespace, topics: list[str], output: _Output
) -> None:
    chosen = _chosen(cluster, topics, options.partition)
    starts, ends = _starts_and_ends(cluster, chosen, options)
    present = _present(cluster, options, starts, ends)
    silence_s = None if options.timeout_ms is None else options.timeout_ms / 1000
    for block in present:
        output.write(block)
        if output.enough():
            return
    if options.follow:
        positions = {tp: max(starts[tp], ends[tp]) for tp in chosen}
        _follow(cluster, options, positions, output, silence_s)


def _chosen(cluster: "Cluster", topics: list[str], partition: int | None) -> "list[TopicPartition]":
    from kafkalog.client.offsets import all_partitions

    found = []
    for topic in topics:
        some = all_partitions(cluster, topic)
        if partition is not None:
            some = [tp for tp in some if tp.partition == partition]
            if not some:
                raise UsageError(f"topic {topic!r} has no partition {partition}")
        found += some
    return found


def _starts_and_ends(
    cluster: "Cluster", chosen: "list[TopicPartition]", options: argparse.Namespace
) -> "tuple[Offsets, Offsets]":
    """Where each partition is begun, and where it ends now."""
    from kafkalog.client.offsets import EARLIEST, LATEST, list_offsets

    committed = options.isolation == "read_committed"
    found = list_offsets(cluster, dict.fromkeys(chosen, LATEST), committed)
    ends = {tp: found[tp].offset for tp in chosen}
    if options.from_time is not None:
        try:
            time_ms = parse_time(options.from_time)
        except ValueError:
            raise UsageError(
                f"--from-time: found {options.from_time!r}, wanted ISO 8601 or a number of ms"
            ) from None
        at = list_offsets(cluster, dict.fromkeys(chosen, max(time_ms, 0)))
        return {tp: at[tp].offset if at[tp].offset >= 0 else ends[tp] for tp in chosen}, ends
    if options.offset == "latest":
        return dict(ends), ends
    found = list_offsets(cluster, dict.fromkeys(chosen, EARLIEST))
    firsts = {tp: found[tp].offset for tp in chosen}
    if options.offset == "earliest":
        return firsts, ends
    if not re.fullmatch(r"-?\d+", options.offset):
        raise UsageError(f"--offset: found {options.offset!r}, wanted N, earliest or latest")
    offset = int(options.offset)
    if offset < 0:
        return {tp: max(ends[tp] + offset, firsts[tp]) for tp in chosen}, ends
    if len(chosen) == 1:  # out of its range is a mistake; each of several has its own range
        return {chosen[0]: offset}, {chosen[0]: max(offset + 1, ends[chosen[0]])}
    return {tp: min(max(offset, firsts[tp]), ends[tp]) for tp in chosen}, ends


def _present(
    cluster: "Cluster", options: argparse.Namespace, starts: "Offsets", ends: "Offsets"
) -> "Iterator[Iterable[Record]]":
    """What is there now, block by block, in the order that was asked for."""
    if options.order == "time" and len(starts) > 1:
        readers = [
            itertools.chain.from_iterable(_partition(cluster, options, tp, starts[tp], ends[tp]))
            for tp in starts
        ]
        merged = heapq.merge(*readers, key=lambda record: record.timestamp_ms)
        while block := list(itertools.islice(merged, 1000)):
            yield block
        return
    for tp in starts:
        yield from _partition(cluster, options, tp, starts[tp], ends[tp])


def _partition(
    cluster: "Cluster", options: argparse.Namespace, tp: "TopicPartition", start: int, end: int
) -> "Iterator[list[Record]]":
    from kafkalog.client.fetcher import Fetcher

    fetcher = Fetcher(cluster, {tp: start}, _fetch_options(options))
    try:
        while fetcher.positions[tp] < end:
            for block in fetcher.poll():
                rows = block.records()
                yield rows if block.next_offset <= end else [r for r in rows if r.offset < end]
    finally:
        fetcher.close()


def _follow(
    cluster: "Cluster",
    options: argparse.Namespace,
    positions: "Offsets",
    output: _Output,
    silence_s: float | None,
) -> None:
    """What comes, as it comes, also in partitions that are added."""
    from kafkalog.client.fetcher import Fetcher

    fetcher = Fetcher(cluster, positions, _fetch_options(options))
    topics = sorted({tp.topic for tp in positions})
    heard_s = looked_s = time.monotonic()
    try:
        while True:
            now_s = time.monotonic()
            if silence_s is not None and now_s - heard_s > silence_s:
                return
            if options.partition is None and now_s - looked_s > LOOK_S:
                looked_s = now_s
                cluster.refresh(topics)
                for tp in _chosen(cluster, topics, None):
                    fetcher.positions.setdefault(tp, 0)
            for block in fetcher.poll(_wait_ms(options.timeout_ms)):
                heard_s = time.monotonic()
                output.write(block.records())
                if output.enough():
                    return
    finally:
        fetcher.close()


def _wait_ms(timeout_ms: int | None) -> int | None:
    return None if timeout_ms is None else min(timeout_ms, 500)


# ---- in a group --------------------------------------------------------------------------


class _Whole:
    """Ctrl-C waits for the end of the block, so that what was shown is committed, too.

    A second one does not: the output may be a pipe that nobody reads.
    """

    def __enter__(self) -> None:
        self._noted = False
        self._before = signal.getsignal(signal.SIGINT)
        # Not where somebody has set another answer to it, or has it ignored.
        self._ours = self._before is signal.default_int_handler and (
            threading.current_thread() is threading.main_thread()
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        if self._noted:
            raise KeyboardInterrupt
        self._noted = True

    def __exit__(self, kind: object, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, self._before)
        if self._noted and kind is None:
            raise KeyboardInterrupt


def _in_group(
    cluster: "Cluster", options: argparse.Namespace, topics: list[str], output: _Output
) -> None:
    from kafkalog.client.consumer import GroupConsumer, GroupOptions

    for topic in topics:
        cluster.topic(topic)  # one that does not exist is told at once
    how = GroupOptions(instance_id=options.instance_id, reset=options.reset)
    consumer = GroupConsumer(cluster, options.group, topics, how, _fetch_options(options))
    try:
        _read_group(consumer, options, output)
    finally:
        # Also after Ctrl-C: what was printed is committed, and the others need not wait.
        consumer.close()


def _read_group(consumer: "GroupConsumer", options: argparse.Namespace, output: _Output) -> None:
    ends: Offsets = {}
    heard_s = time.monotonic()
    while True:
        for block in consumer.poll(_wait_ms(options.timeout_ms)):
            heard_s = time.monotonic()
            rows = block.records()
            with _Whole():
                last = output.write(rows)
                if not rows or last is rows[-1]:
                    consumer.done(block.tp, block.next_offset)
                elif last is not None:
                    consumer.done(block.tp, last.offset + 1)
            if output.enough():
                return
        if options.timeout_ms is not None:
            if time.monotonic() - heard_s > options.timeout_ms / 1000:
                return
        elif not options.follow and _at_end(consumer, options, ends):
            return


def _at_end(consumer: "GroupConsumer", options: argparse.Namespace, ends: "Offsets") -> bool:
    """Whether every partition that it has was read to the end that it had when it came."""
    from kafkalog.client.offsets import LATEST, list_offsets

    new = [tp for tp in consumer.assignment if tp not in ends]
    if new:
        committed = options.isolation == "read_committed"
        found = list_offsets(consumer.cluster, dict.fromkeys(new, LATEST), committed)
        ends.update({tp: at.offset for tp, at in found.items()})
    positions = consumer.fetcher.positions
    return all(positions.get(tp, 0) >= ends[tp] for tp in consumer.assignment)
