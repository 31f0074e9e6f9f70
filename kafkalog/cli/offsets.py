"""`kafkalog offsets`: shows where partitions begin and end, or the offset at a time."""

import argparse

from kafkalog.cli.backends import Backend, open_backend
from kafkalog.cli.common import UsageError, json_line, parse_moment, repeated
from kafkalog.cli.remote import add_backend, picked, spread
from kafkalog.cli.rows import show_rows
from kafkalog.types import TopicPartition

EXAMPLES = """\
example:
  kafkalog offsets --dir data
  kafkalog offsets --topic access --bootstrap-server localhost:9092
  kafkalog offsets --topic access:0,2-5 --time 2026-07-04T12:00 --bootstrap-server localhost:9092
"""

SPECIAL = {
    "earliest": "earliest", "-2": "earliest",
    "latest": "latest", "-1": "latest",
    "max-timestamp": "max_timestamp", "-3": "max_timestamp",
    "earliest-local": "earliest_local", "-4": "earliest_local",
    "latest-tiered": "latest_tiered", "-5": "latest_tiered",
}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "words", nargs="*", metavar="TOPIC", help="topic, topic:2 or topic:0,2-5 (default: all)"
    )
    add_backend(parser, "a data directory")
    repeated(
        parser,
        "--topic",
        "--topic-partitions",
        metavar="TOPIC",
        help="the same as the positional name; several with commas",
    )
    parser.add_argument(
        "--partitions",
        metavar="P,...",
        help="only these partitions, for topics without their own list",
    )
    parser.add_argument(
        "--time",
        metavar="TIME",
        help="print topic:partition:offset, as Kafka does: the first offset at or after ISO "
        "8601 (UTC) or ms, or latest (-1), earliest (-2), max-timestamp (-3), "
        "earliest-local (-4), latest-tiered (-5); an empty offset means none",
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
    when = _time(options.time)
    with open_backend(options) as backend:
        partitions = _partitions(backend, options)
        if when is None:
            _ends(backend, partitions, options)
        else:
            _at(backend, partitions, when, options)
    return 0


def _time(text: str | None) -> int | str | None:
    if text is None or text in SPECIAL:
        return None if text is None else SPECIAL[text]
    try:
        return parse_moment(text)
    except ValueError:
        raise UsageError(
            f"--time: found {text!r}, wanted ISO 8601, a number of ms, or {', '.join(SPECIAL)}"
        ) from None


def _partitions(backend: Backend, options: argparse.Namespace) -> list[TopicPartition]:
    texts = spread([*options.words, *options.topic]) or backend.topics(internal=False)
    if options.partitions is not None:
        texts = [t if ":" in t else f"{t}:{options.partitions}" for t in texts]
    return [tp for text in texts for tp in picked(backend.partitions, text)]


def _committed(options: argparse.Namespace) -> bool:
    return bool(options.isolation == "read_committed")


def _ends(backend: Backend, partitions: list[TopicPartition], options: argparse.Namespace) -> None:
    starts, ends = backend.firsts(partitions), backend.ends(partitions, _committed(options))
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "earliest": starts[tp],
            "latest": ends[tp],
            "between": ends[tp] - starts[tp],
        }
        for tp in partitions
    ]
    fields = ["topic", "partition", "earliest", "latest", "between"]
    show_rows(rows, fields, as_json=options.json, none="no topic")


def _at(
    backend: Backend, partitions: list[TopicPartition], when: int | str, options: argparse.Namespace
) -> None:
    for tp, at in backend.listed(partitions, when, _committed(options)).items():
        if options.json:
            row = {"topic": tp.topic, "partition": tp.partition, "offset": at.offset}
            print(json_line({**row, "timestamp": at.timestamp_ms}))
        else:
            offset = str(at.offset) if at.offset >= 0 else ""
            print(f"{tp.topic}:{tp.partition}:{offset}")
