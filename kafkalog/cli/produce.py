"""`kafkalog produce`: sends lines, JSON records or whole files to a topic of a broker."""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.cli.blocks import read_blocks
from kafkalog.cli.common import (
    CODECS,
    CommandError,
    UsageError,
    json_line,
    plural,
    repeated,
    show_bytes,
    warn,
)
from kafkalog.cli.inputs import Input, Shape, field_bytes, json_object, read_lines
from kafkalog.cli.progress import Progress
from kafkalog.cli.record_options import (
    add_errors,
    add_fields,
    add_times,
    check_files,
    left_out,
    shape_of,
)
from kafkalog.cli.remote import (
    PRODUCER_PROPERTIES,
    add_bootstrap,
    add_sending,
    apply_properties,
    open_producer,
)

if TYPE_CHECKING:
    from kafkalog.client.buffer.delivery import Delivery
    from kafkalog.client.producer.producer import Producer

EXAMPLES = """\
example:
  kafkalog produce access.log.gz --topic access --bootstrap-server localhost:9092 --acks all
  kafkalog produce orders.txt --topic orders --key-separator : \\
      --bootstrap-server localhost:9092
  kafkalog produce copy.jsonl --format records --topic orders --bootstrap-server localhost:9092
"""

ACKS = ("0", "1", "all", "-1")
WHOLE_BYTES_MAX = 1 << 30

Bad = Callable[[int, str], None]


class Outgoing(NamedTuple):
    """A record to send."""

    value: bytes | None
    key: bytes | None
    timestamp_ms: int | None
    """None: now."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "file",
        nargs="*",
        help="text, JSON lines or CSV, also .gz and .zst; - or no file is standard input",
    )
    add_bootstrap(parser)
    parser.add_argument("--topic", required=True, help="the topic's name")
    parser.add_argument(
        "--format",
        choices=("auto", "text", "json", "csv", "records", "whole"),
        default="auto",
        help="one record per line, object or row (auto decides by the file's name); records: "
        "JSON as `kafkalog consume --format json` prints it; whole: each file is one "
        "record, with its name as the key",
    )
    parser.add_argument("--partition", type=int, metavar="P", help="the partition of all records")
    parser.add_argument(
        "--acks",
        "--request-required-acks",
        choices=ACKS,
        default="all",
        help="which replicas must have a record: none, the leader, or all in sync (default)",
    )
    parser.add_argument(
        "--compression", "--compression-codec", nargs="?", const="gzip", choices=CODECS,
        default="none", help="the codec of the batches",
    )  # fmt: skip
    repeated(
        parser, "--header", metavar="NAME=VALUE", help="a header of every record; may be repeated"
    )
    add_errors(parser)
    _sending_arguments(parser)
    add_fields(parser)
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        help="text: the text before it is the key; \\t is a tab",
    )
    repeated(
        parser,
        "--property",
        "--reader-property",
        metavar="NAME=VALUE",
        help="as Kafka's console producer: parse.key=true, key.separator=TEXT",
    )
    add_times(parser)
    parser.add_argument("--json", action="store_true", help="the summary as one JSON object")


def _sending_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partitioner",
        choices=("murmur2", "crc32", "random"),
        default="murmur2",
        help="which partition a key goes to: as in Java (default), as in librdkafka, or any",
    )
    add_sending(parser)
    repeated(
        parser,
        "--producer-property",
        "--command-property",
        metavar="NAME=VALUE",
        help=f"these options by Kafka's names: {', '.join(PRODUCER_PROPERTIES)}",
    )
    parser.add_argument(
        "--sync",
        action="store_true",
        help="wait for each record's acknowledgement before sending the next",
    )


def run(options: argparse.Namespace) -> int:
    """Send everything; what was acknowledged before a failure stays."""
    apply_properties(options, "--producer-property", options.producer_property, PRODUCER_PROPERTIES)
    shape = _shape(options)
    headers = _headers(options.header)
    files = options.file or ["-"]
    check_files(files, shape, options.format)
    run = _Run(options, files)
    try:
        run.all(shape, headers)
    finally:
        run.progress.clear()
    run.summary()
    return 0


def _shape(options: argparse.Namespace) -> Shape:
    """The options, Kafka's properties among them, as a Shape.  Raises: UsageError."""
    properties: dict[str, str] = {}
    for pair in options.property:
        name, equals, value = pair.partition("=")
        if not equals or name not in ("parse.key", "key.separator"):
            raise UsageError(
                f"--property: found {pair!r}, wanted parse.key=true or key.separator=TEXT"
            )
        properties[name] = value
    separator = options.key_separator
    if properties.get("parse.key", "false") == "true":
        separator = separator or properties.get("key.separator", "\t")
    if separator is not None and options.key_regex is not None:
        raise UsageError("--key-separator and --key-regex: give one of them")
    shape = shape_of(argparse.Namespace(**{**vars(options), "format": _line_format(options)}))
    if not separator:
        return shape
    return shape._replace(key_separator=separator.replace("\\t", "\t").encode())


def _line_format(options: argparse.Namespace) -> str:
    return "auto" if options.format in ("records", "whole") else str(options.format)


def _headers(pairs: list[str]) -> tuple[tuple[str, bytes | None], ...]:
    found = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--header: found {pair!r}, wanted name=value")
        found.append((name, value.encode()))
    return tuple(found)


# ---- what is sent --------------------------------------------------------------------------


def outgoing(
    source: Input, form: str, shape: Shape, bad: Bad, blank: Callable[[int], None]
) -> Iterator[list[Outgoing]]:
    """The records of an input, block by block; `blank` is called with empty lines.

    Raises: CommandError.
    """
    if form == "whole":
        data = source.stream.read(WHOLE_BYTES_MAX + 1)
        if len(data) > WHOLE_BYTES_MAX:
            raise CommandError(f"{source.name}: above 1 GiB, which no record can be")
        yield [Outgoing(data, os.fsencode(source.name), None)]
    elif form == "records":
        yield from _records(source, bad, blank)
    else:
        for block in read_blocks(source, shape, bad):
            blank(block.blank)
            values = block.values if isinstance(block.values, list) else block.values.to_pylist()
            nothing: list[None] = [None] * len(values)
            rows = zip(values, block.keys or nothing, block.times or nothing, strict=True)
            yield [Outgoing(*row) for row in rows]


def _records(source: Input, bad: Bad, blank: Callable[[int], None]) -> Iterator[list[Outgoing]]:
    for number, lines in read_lines(source):
        rows: list[Outgoing] = []
        for i, line in enumerate(lines):
            if not line.strip():
                blank(1)
                continue
            try:
                rows.append(record_of(line))
            except ValueError as problem:
                yield rows
                rows = []
                bad(number + i, str(problem))
        yield rows


def record_of(line: bytes) -> Outgoing:
    """A record as `kafkalog consume --format json` prints it.  Raises: ValueError."""
    found = json_object(line)
    if not found.keys() & {"value", "value_base64"}:
        raise ValueError("no field 'value', wanted a record as `consume --format json` prints it")
    headers = found.get("headers") or []
    if not isinstance(headers, list) or not all(isinstance(h, dict) for h in headers):
        raise ValueError("field 'headers': wanted a list of objects with name and value")
    time_ms = found.get("timestamp")
    if time_ms is not None and (isinstance(time_ms, bool) or not isinstance(time_ms, int)):
        raise ValueError(f"field 'timestamp' is {time_ms!r}, wanted whole milliseconds")
    return Outgoing(
        _bytes_of(found, "value"),
        _bytes_of(found, "key"),
        None if time_ms is None or time_ms < 0 else time_ms,
        tuple((str(h.get("name", "")), _bytes_of(h, "value")) for h in headers),
    )


def _bytes_of(found: dict[str, Any], name: str) -> bytes | None:
    encoded = found.get(f"{name}_base64")
    if encoded is not None:
        import base64

        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, TypeError):
            raise ValueError(f"field '{name}_base64' is no base64") from None
    return field_bytes(found.get(name))


class _Run:
    """One run of the command: its progress, and its errors."""

    def __init__(self, options: argparse.Namespace, files: list[str]) -> None:
        self.options = options
        self.files = files
        self.records = 0
        self.bytes = 0
        self.partitions: set[int] = set()
        self.errors = 0
        self.blank = 0
        sizes = [0 if p == "-" else os.path.getsize(p) for p in files]
        self.progress = Progress(0 if "-" in files else sum(sizes))
        self.read_before = 0

    def all(self, shape: Shape, headers: tuple[tuple[str, bytes | None], ...]) -> None:
        """Read every input in turn; after an interrupt, acknowledged records stay."""
        options = self.options
        try:
            with open_producer(options, self._delivered, options.partitioner) as producer:
                # Also without records: a missing topic is reported immediately.
                producer.partitions(options.topic)
                self.progress.started = time.monotonic()
                for path in self.files:
                    if path == "-" and sys.stdin is not None and sys.stdin.isatty():
                        warn("one record per line; Ctrl-D ends")
                    self._one(path, shape, headers, producer)
        except KeyboardInterrupt:
            self.progress.clear()
            warn(f"interrupted; {plural(self.records, 'record')} acknowledged")
            raise

    def _one(
        self,
        path: str,
        shape: Shape,
        headers: tuple[tuple[str, bytes | None], ...],
        producer: "Producer",
    ) -> None:
        source = Input(path)
        options = self.options
        bad = functools.partial(self.bad, source.name, producer)
        try:
            for rows in outgoing(source, options.format, shape, bad, self.skip_blank):
                for row in rows:
                    future = producer.send(
                        options.topic,
                        row.value,
                        row.key,
                        partition=options.partition,
                        timestamp_ms=row.timestamp_ms,
                        headers=row.headers + headers,
                    )
                    if options.sync:
                        future.result()
                if path == "-":
                    producer.flush()  # a user of a pipe wants to see it now
                producer.check()
                self.progress.update(self.records, self.read_before + source.position())
            self.read_before += source.position()
        finally:
            source.close()

    def _delivered(self, done: "Delivery") -> None:
        self.records += done.count
        self.bytes += done.record_bytes
        self.partitions.add(done.tp.partition)

    def skip_blank(self, lines: int) -> None:
        """Count empty lines."""
        self.blank += lines

    def bad(self, name: str, producer: "Producer", line: int, why: str) -> None:
        """Count an invalid line; too many of them end the run."""
        self.errors += 1
        if self.errors > self.options.max_errors:
            producer.flush()
            allowed = f" ({self.errors} errors)" if self.options.max_errors else ""
            raise CommandError(
                f"{name}:{line}: {why}{allowed}; {plural(self.records, 'record')} before it sent"
            )
        self.progress.clear()
        warn(f"{name}:{line}: {why}; skipped")

    def summary(self) -> None:
        """Print the summary: on stderr if the input is typed or piped, else on stdout."""
        seconds = self.progress.seconds()
        parts = len(self.partitions)
        where = sys.stderr if "-" in self.files else sys.stdout
        if self.options.json:
            print(json_line({
                "topic": self.options.topic, "partitions": parts, "records": self.records,
                "bytes": self.bytes, "seconds": round(seconds, 3),
                "acknowledged": self.options.acks != "0", "skipped": self.errors,
                "blank": self.blank,
            }), file=where)  # fmt: skip
            return
        skipped = left_out(self.errors, self.blank)
        sure = "sent" if self.options.acks == "0" else "acknowledged"
        print(
            f"{plural(self.records, 'record')} ({show_bytes(self.bytes)}) {sure}, to "
            f"{self.options.topic} ({plural(parts, 'partition')}) in {seconds:.2f} s: "
            f"{self.records / seconds:,.0f} records/s, {show_bytes(self.bytes / seconds)}/s"
            f"{skipped}",
            file=where,
        )
