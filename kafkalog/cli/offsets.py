"""`kafkalog offsets`: where partitions begin and end, or what lies at a time."""

import argparse
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError, json_line, parse_time, table
from kafkalog.cli.remote import add_bootstrap, open_cluster, partitions_of, spread

if TYPE_CHECKING:
    from kafkalog.client.cluster import Cluster
    from kafkalog.types import TopicPartition

EXAMPLES = """\
example:
  kafkalog offsets --topic access --bootstrap-server localhost:9092
  kafkalog offsets --topic access:0,2-5 --time 2026-07-04T12:00 --bootstrap-server localhost:9092
"""

SPECIAL = {
    "earliest": -2, "-2": -2,
    "latest": -1, "-1": -1,
    "max-timestamp": -3, "-3": -3,
}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "words", nargs="*", metavar="TOPIC", help="topic, topic:2 or topic:0,2-5 (default: all)"
    )
    add_bootstrap(parser)
    parser.add_argument(
        "--topic",
        "--topic-partitions",
        action="append",
        default=[],
        metavar="TOPIC",
        help="the same as a word; several with commas",
    )
    parser.add_argument(
        "--partitions",
        metavar="P,...",
        help="only these, of the topics without a list of their own",
    )
    parser.add_argument(
        "--time",
        metavar="TIME",
        help="print topic:partition:offset, as Kafka does: the first offset at or after ISO 8601 "
        "(UTC) or ms, or earliest (-2), latest (-1), max-timestamp (-3); an empty offset: none",
    )
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: the end is the last stable offset",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per partition")


def run(options: argparse.Namespace) -> int:
    """Print a line per partition."""
    time_ms = _time(options.time)
    with open_cluster(options) as cluster:
        partitions = _partitions(cluster, options)
        if time_ms is None:
            _ends(cluster, partitions, options)
        else:
            _at(cluster, partitions, time_ms, options)
    return 0


def _time(text: str | None) -> int | None:
    if text is None or text in SPECIAL:
        return None if text is None else SPECIAL[text]
    try:
        return max(parse_time(text), 0)
    except ValueError:
        raise UsageError(
            f"--time: found {text!r}, wanted ISO 8601, a number of ms, or {', '.join(SPECIAL)}"
        ) from None


def _partitions(cluster: "Cluster", options: argparse.Namespace) -> "list[TopicPartition]":
    from kafkalog.client.topics import list_topics

    texts = spread([*options.words, *options.topic]) or list_topics(cluster)
    if options.partitions is not None:
        texts = [t if ":" in t else f"{t}:{options.partitions}" for t in texts]
    return [tp for text in texts for tp in partitions_of(cluster, text)]


def _ends(
    cluster: "Cluster", partitions: "list[TopicPartition]", options: argparse.Namespace
) -> None:
    from kafkalog.client.offsets import EARLIEST, LATEST, list_offsets

    committed = options.isolation == "read_committed"
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST), committed)
    rows = [(tp, starts[tp].offset, ends[tp].offset) for tp in partitions]
    if options.json:
        for tp, start, end in rows:
            place = {"topic": tp.topic, "partition": tp.partition}
            print(json_line({**place, "earliest": start, "latest": end}))
        return
    if not rows:
        print("no topic")
        return
    cells = [
        [tp.topic, str(tp.partition), str(start), str(end), str(end - start)]
        for tp, start, end in rows
    ]
    heads = ["topic", "part", "earliest", "latest", "between"]
    print(table(heads, cells, left=frozenset({0})))


def _at(
    cluster: "Cluster",
    partitions: "list[TopicPartition]",
    time_ms: int,
    options: argparse.Namespace,
) -> None:
    from kafkalog.client.offsets import list_offsets

    committed = options.isolation == "read_committed"
    found = list_offsets(cluster, dict.fromkeys(partitions, time_ms), committed)
    for tp, at in found.items():
        if options.json:
            row = {"topic": tp.topic, "partition": tp.partition, "offset": at.offset}
            print(json_line({**row, "timestamp": at.timestamp_ms}))
        else:
            offset = str(at.offset) if at.offset >= 0 else ""
            print(f"{tp.topic}:{tp.partition}:{offset}")
