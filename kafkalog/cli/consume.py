"""`kafkalog consume`: prints records of a directory's or a cluster's topics as lines."""

import argparse
import contextlib
import heapq
import itertools
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from kafkalog.cli.backends import Backend, ClusterBackend, Offsets, open_backend
from kafkalog.cli.common import UsageError, count_argument, parse_moment, repeated
from kafkalog.cli.output import Output, format_of, kafka_format
from kafkalog.cli.remote import (
    CONSUMER_PROPERTIES,
    add_backend,
    apply_properties,
    names_of,
    refuse,
)
from kafkalog.types import Record, TopicPartition

EXAMPLES = """\
example:
  kafkalog consume --dir data --topic access --from-time 2026-07-04 --max-messages 10
  kafkalog consume --dir data --topic access --offset latest --follow --format '%p %o %T %k %v'
  kafkalog consume --topic access --group billing --follow --bootstrap-server localhost:9092
"""

LINES = 1000
LOOK_S = 30.0
"""How often --follow looks for new partitions."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_backend(parser, "a data directory")
    repeated(parser, "--topic", metavar="NAME", help="the topic's name; may be repeated")
    parser.add_argument(
        "--partition", type=int, metavar="P", help="only this partition (default: all)"
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--offset",
        default="earliest",
        metavar="N|earliest|latest",
        help="where to start (default: earliest); -N: N offsets before the end",
    )
    start.add_argument(
        "--from-time", metavar="TIME", help="start at this time: ISO 8601 (UTC), or a number of ms"
    )
    start.add_argument(
        "--from-beginning",
        action="store_const",
        dest="offset",
        const="earliest",
        help="the same as --offset earliest",
    )
    parser.add_argument(
        "--max-messages", type=count_argument, metavar="N", help="stop after N records"
    )
    _format_arguments(parser)
    parser.add_argument(
        "--isolation",
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: leave out open and aborted transactions",
    )
    parser.add_argument(
        "--order",
        choices=("partition", "time"),
        default="partition",
        help="several partitions: one after another, or merged by time",
    )
    parser.add_argument("--include", metavar="REGEX", help="all topics whose whole name matches")
    parser.add_argument(
        "--timeout-ms",
        type=count_argument,
        metavar="MS",
        help="wait for more, and exit when nothing has arrived for this long",
    )
    parser.add_argument("--follow", action="store_true", help="wait for more; Ctrl-C ends it")
    _broker_arguments(parser.add_argument_group("with --bootstrap-server"))


def _format_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        default="value",
        metavar="value|json|PATTERN",
        help="a line per record: the value's bytes, a JSON object, or a pattern with %%t "
        "topic, %%p partition, %%o offset, %%k key, %%v value, %%T time in ms, %%D time "
        "as a date, %%K and %%V sizes (-1: null), %%h headers, %%e leader epoch, %%%% and "
        "\\n, \\t",
    )
    repeated(
        parser,
        "--property",
        "--formatter-property",
        metavar="NAME=VALUE",
        help="a line as Kafka's console consumer prints it: print.key=true, print.offset=true, "
        "print.partition, print.timestamp, print.headers, print.value, key.separator=TEXT",
    )


def _broker_arguments(group: Any) -> None:
    group.add_argument(
        "--group",
        metavar="NAME",
        help="share the partitions with the other members of this group, continue from its "
        "committed offsets, and commit what was printed",
    )
    group.add_argument(
        "--instance-id",
        metavar="NAME",
        help="be a static member: its partitions are kept for it while it is away",
    )
    group.add_argument(
        "--reset",
        choices=("earliest", "latest", "error"),
        default="earliest",
        help="--group: where to start without a committed offset (default: earliest)",
    )
    repeated(
        group,
        "--consumer-property",
        "--command-property",
        metavar="NAME=VALUE",
        help=f"these options by Kafka's names: {', '.join(CONSUMER_PROPERTIES)}",
    )


def run(options: argparse.Namespace) -> int:
    """Print records until the end, the limit, the timeout, or forever."""
    apply_properties(options, "--consumer-property", options.consumer_property, CONSUMER_PROPERTIES)
    form = kafka_format(options.property) if options.property else format_of(options.format)
    options.follow = options.follow or options.timeout_ms is not None
    if options.dir is not None:
        refuse(options, "needs --bootstrap-server", group=None)
    output = Output(form, options.max_messages)
    with open_backend(options) as backend, contextlib.closing(output):
        topics = _topics(backend, options)
        if options.group is None:
            refuse(options, "is for --group", instance_id=None)
            _read(backend, options, topics, output)
        elif isinstance(backend, ClusterBackend):
            from kafkalog.cli.membership import read_in_group

            refuse(options, "a group decides that", partition=None, order="partition")
            left_off = "a group continues from its committed offsets; see --reset"
            refuse(options, left_off, from_time=None, offset="earliest")
            read_in_group(backend.cluster, options, topics, output)
    return 0


def _topics(backend: Backend, options: argparse.Namespace) -> list[str]:
    """The topics that --topic and --include name.  Raises: UsageError."""
    topics = names_of([], *options.topic)
    if options.include is not None:
        try:
            topics += [n for n in backend.topics(False) if re.fullmatch(options.include, n)]
        except re.error as problem:
            raise UsageError(f"--include: {problem}") from None
    if not topics:
        raise UsageError("which topic? give --topic NAME or --include REGEX")
    return topics


def _read(backend: Backend, options: argparse.Namespace, topics: list[str], output: Output) -> None:
    chosen = _chosen(backend, topics, options.partition)
    starts, ends = _starts_and_ends(backend, chosen, options)
    for block in _present(backend, options, starts, ends):
        output.write(block)
        if output.enough():
            return
    if options.follow:
        positions = {tp: max(starts[tp], ends[tp]) for tp in chosen}
        _follow(backend, options, positions, output)


def _chosen(backend: Backend, topics: list[str], partition: int | None) -> list[TopicPartition]:
    found = []
    for topic in topics:
        some = backend.partitions(topic)
        if partition is not None:
            some = [tp for tp in some if tp.partition == partition]
            if not some:
                raise UsageError(f"topic {topic!r} has no partition {partition}")
        found += some
    return found


def _starts_and_ends(
    backend: Backend, chosen: list[TopicPartition], options: argparse.Namespace
) -> tuple[Offsets, Offsets]:
    """Where each partition starts, and where it ends now.  Raises: UsageError."""
    ends = backend.ends(chosen, options.isolation == "read_committed")
    if options.from_time is not None:
        try:
            time_ms = parse_moment(options.from_time)
        except ValueError:
            raise UsageError(
                f"--from-time: found {options.from_time!r}, wanted ISO 8601 or a number of ms"
            ) from None
        return {**ends, **backend.at(chosen, time_ms)}, ends
    if options.offset == "latest":
        return dict(ends), ends
    firsts = backend.firsts(chosen)
    if options.offset == "earliest":
        return firsts, ends
    if not re.fullmatch(r"-?\d+", options.offset):
        raise UsageError(f"--offset: found {options.offset!r}, wanted N, earliest or latest")
    offset = int(options.offset)
    if offset < 0:
        return {tp: max(ends[tp] + offset, firsts[tp]) for tp in chosen}, ends
    if len(chosen) == 1:  # out of range is an error; several partitions have several ranges
        end = ends[chosen[0]]
        return {chosen[0]: offset}, {chosen[0]: end if offset == end else max(offset + 1, end)}
    return {tp: min(max(offset, firsts[tp]), ends[tp]) for tp in chosen}, ends


def _present(
    backend: Backend, options: argparse.Namespace, starts: Offsets, ends: Offsets
) -> Iterator[Iterable[Record]]:
    """The records that are there now, in blocks, in the requested order."""
    committed = options.isolation == "read_committed"
    readers = [_partition(backend, tp, starts[tp], ends[tp], committed) for tp in starts]
    if options.order == "time" and len(starts) > 1:
        flat = [itertools.chain.from_iterable(reader) for reader in readers]
        merged = heapq.merge(*flat, key=lambda record: record.timestamp_ms)
        while block := list(itertools.islice(merged, LINES)):
            yield block
        return
    for reader in readers:
        yield from reader


def _partition(
    backend: Backend, tp: TopicPartition, start: int, end: int, committed: bool
) -> Iterator[list[Record]]:
    reader = backend.reader({tp: start}, committed)
    try:
        while reader.positions[tp] < end:
            for rows in reader.poll(None):
                whole = not rows or rows[-1].offset < end
                yield rows if whole else [r for r in rows if r.offset < end]
    finally:
        reader.close()


def _follow(
    backend: Backend, options: argparse.Namespace, positions: Offsets, output: Output
) -> None:
    """New records as they arrive, also in partitions that are added."""
    reader = backend.reader(positions, options.isolation == "read_committed")
    topics = sorted({tp.topic for tp in positions})
    silence_s = None if options.timeout_ms is None else options.timeout_ms / 1000
    wait_ms = None if options.timeout_ms is None else min(options.timeout_ms, 500)
    heard_s = looked_s = time.monotonic()
    try:
        while True:
            now_s = time.monotonic()
            if silence_s is not None and now_s - heard_s > silence_s:
                return
            if options.partition is None and now_s - looked_s > LOOK_S:
                looked_s = now_s
                backend.refresh()
                for tp in _chosen(backend, topics, None):
                    reader.positions.setdefault(tp, 0)
            for rows in reader.poll(wait_ms):
                heard_s = time.monotonic()
                output.write(rows)
                if output.enough():
                    return
    finally:
        reader.close()
