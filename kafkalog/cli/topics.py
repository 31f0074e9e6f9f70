"""`kafkalog topics`: what a data directory or a cluster holds, and changes to topics."""

import argparse
import contextlib
import os
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import (
    CODECS,
    UsageError,
    count_argument,
    find_partitions,
    json_line,
    open_log,
    show_bytes,
    show_time,
    table,
)
from kafkalog.cli.remote import action_of, add_actions, add_place, names_of

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.types import TopicPartition

EXAMPLES = """\
example:
  kafkalog topics --dir data
  kafkalog topics --dir data --topic access --draw access.svg
  kafkalog topics create orders --partitions 3 --bootstrap-server localhost:9092
  kafkalog topics --describe --topic orders --bootstrap-server localhost:9092
"""

ACTIONS = {
    "list": "names only",
    "describe": "every partition (what is done when no action is given)",
    "create": "make topics",
    "alter": "more partitions, or other settings",
    "delete": "remove topics and their records",
}
SAMPLE = 16  # batches at the head of each segment that are looked at for their codec


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_place(parser, "a data directory: list and describe; nothing is written")
    parser.add_argument("--topic", metavar="NAME", help="only this topic, or several with commas")
    parser.add_argument("--json", action="store_true", help="one JSON object per partition")
    parser.add_argument(
        "--draw",
        metavar="FILE.svg",
        help="--dir: draw a topic's segments over offsets and time; needs --topic where there "
        "are more",
    )
    add_actions(parser, ACTIONS, "TOPIC")
    _change_arguments(parser.add_argument_group("create, alter, delete"))
    group = parser.add_argument_group("describe, list")
    group.add_argument(
        "--exclude-internal", action="store_true", help="without the topics of Kafka's own"
    )
    group.add_argument(
        "--under-replicated-partitions",
        action="store_true",
        help="only partitions of which a replica is not in sync",
    )
    group.add_argument(
        "--unavailable-partitions", action="store_true", help="only partitions without a leader"
    )


def _change_arguments(group: Any) -> None:
    group.add_argument(
        "--partitions",
        type=count_argument,
        metavar="N",
        help="how many (create: default of the broker; alter: more than now)",
    )
    group.add_argument(
        "--replication-factor",
        type=count_argument,
        metavar="N",
        help="copies of each partition (default of the broker)",
    )
    group.add_argument(
        "--replica-assignment",
        metavar="NODE:NODE,...",
        help="the nodes of each partition, the first one leads",
    )
    group.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a topic setting (docs/settings.md), such as retention.ms=86400000",
    )
    group.add_argument(
        "--if-not-exists", action="store_true", help="create: a topic that is there is no failure"
    )
    group.add_argument(
        "--if-exists", action="store_true", help="alter, delete: a missing topic is no failure"
    )


def run(options: argparse.Namespace) -> int:
    """Do what the action says, in a directory or a cluster."""
    action, words = action_of(options, ACTIONS, default="describe")
    if options.bootstrap_server is not None:
        from kafkalog.cli import remote_topics

        return remote_topics.run(options, action, words)
    names = names_of(words, options.topic)
    if len(names) > 1:
        raise UsageError("--dir: give one topic, or none for all")
    if action not in ("list", "describe"):
        raise UsageError(
            f"{action}: needs --bootstrap-server; a topic of a directory is made by "
            "`kafkalog ingest` or `kafkalog serve`"
        )
    options.topic = names[0] if names else None
    return _directory(options, action)


def _directory(options: argparse.Namespace, action: str) -> int:
    """List the partitions, or the names of the topics."""
    from kafkalog.disk.layout import list_directory

    if options.topic is None:
        names = {
            tp: os.path.join(options.dir, name)
            for tp, name in list_directory(options.dir).partitions.items()
        }
    else:
        names = find_partitions(options.dir, options.topic)
    if action == "list":
        for topic in sorted({tp.topic for tp in names}):
            print(json_line({"topic": topic}) if options.json else topic)
        return 0
    if options.draw and len({tp.topic for tp in names}) != 1:
        raise UsageError(f"--draw: {options.dir} has several topics or none: give --topic")
    rows, drawn = [], []
    with contextlib.ExitStack() as stack:
        for tp, path in names.items():
            log = open_log(tp, path)
            rows.append(describe(log, tp))
            if log is None:
                continue
            if options.draw:
                stack.callback(log.close)
                drawn.append(log)
            else:
                log.close()
        if options.draw:
            _draw(next(iter(names)).topic, drawn, options.draw)
    if options.json:
        for row in rows:
            print(json_line(row))
    else:
        _print(rows, options.dir)
    return 0


def describe(log: "Log | None", tp: "TopicPartition") -> dict[str, Any]:
    """The numbers of one partition; None: nothing was ever written to it."""
    row: dict[str, Any] = {
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


def _codecs(log: "Log") -> list[str]:
    """The codecs seen in the first batches of each segment; all would mean to read all."""
    from kafkalog.batch.walk import BatchWalk
    from kafkalog.errors import KafkalogError
    from kafkalog.inspect.rawfiles import segment_name

    seen: set[int] = set()
    for segment in log.segments:
        path = os.path.join(log.path, segment_name(segment.base_offset, ".log"))
        # Retention may have removed the file since; damage is verify's to tell.
        with contextlib.suppress(KafkalogError):
            for room, count in BatchWalk(path, room=SAMPLE).blocks(check_crc=False):
                seen.update(room[i].attributes & 7 for i in range(count))
                break
    return [CODECS[codec] for codec in sorted(seen) if codec < len(CODECS)]


def _draw(topic: str, logs: "list[Log]", target: str) -> None:
    from kafkalog.inspect import picture

    text = picture.draw(topic, [picture.describe(log) for log in logs])
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)


def _print(rows: list[dict[str, Any]], directory: str) -> None:
    if not rows:
        print(f"{directory}: no topic")
        return
    heads = ["topic", "part", "start", "end", "size", "segments"]
    heads += ["first-time", "largest-time", "codecs"]
    cells = [
        [
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
        for row in rows
    ]
    print(table(heads, cells, left=frozenset({0, 6, 7, 8})))
    topics = {row["topic"] for row in rows}
    size = sum(row["bytes"] for row in rows)
    offsets = sum(row["end_offset"] - row["start_offset"] for row in rows)
    print(
        f"{len(topics)} topic{'s' if len(topics) > 1 else ''}, {len(rows)} "
        f"partition{'s' if len(rows) > 1 else ''}, {offsets:,} offsets, {show_bytes(size)}"
    )
