"""`kafkalog consume`: the records of a topic to the standard output.

From a data directory here; from a broker in remote_consume.
"""

import argparse
import contextlib
import heapq
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kafkalog.cli.common import (
    UsageError,
    count_argument,
    find_partitions,
    json_bytes,
    json_line,
    open_log,
    parse_time,
    show_time,
)
from kafkalog.cli.remote import CONSUMER_PROPERTIES, add_place, apply_properties, refuse

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.types import Record

    Format = Callable[[Record], bytes]

EXAMPLES = """\
example:
  kafkalog consume --dir data --topic access --from-time 2026-07-04 --max-messages 10
  kafkalog consume --dir data --topic access --offset latest --follow --format '%p %o %T %k %v'
  kafkalog consume --topic access --group billing --follow --bootstrap-server localhost:9092
"""

LINES = 1000
FOLLOW_WAIT_S = 0.05


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_place(parser, "a data directory")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="the topic's name; of a broker also several",
    )
    parser.add_argument("--partition", type=int, metavar="P", help="only this one (default: all)")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--offset",
        default="earliest",
        metavar="N|earliest|latest",
        help="where to begin (default: earliest); -N: N offsets before the end",
    )
    start.add_argument(
        "--from-time", metavar="TIME", help="begin at this time: ISO 8601 (UTC), or a number of ms"
    )
    start.add_argument(
        "--from-beginning",
        action="store_const",
        dest="offset",
        const="earliest",
        help="the same as --offset earliest",
    )
    parser.add_argument("--max-messages", type=count_argument, metavar="N", help="then stop")
    _format_arguments(parser)
    parser.add_argument(
        "--isolation",
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: without open and aborted transactions",
    )
    parser.add_argument(
        "--order",
        choices=("partition", "time"),
        default="partition",
        help="of several partitions: one after another, or merged by time",
    )
    parser.add_argument("--follow", action="store_true", help="wait for more; Ctrl-C ends it")
    _broker_arguments(parser.add_argument_group("with --bootstrap-server"))


def _format_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        default="value",
        metavar="value|json|PATTERN",
        help="a line per record: the value's bytes, a JSON object, or a pattern of %%t topic, "
        "%%p partition, %%o offset, %%k key, %%v value, %%T time in ms, %%D time as a date, "
        "%%K and %%V sizes (-1: null), %%h headers, %%e leader epoch, %%%% and \\n, \\t",
    )
    parser.add_argument(
        "--property",
        "--formatter-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a line as Kafka's console consumer prints it: print.key=true, print.offset=true, "
        "print.partition, print.timestamp, print.headers, print.value, key.separator=TEXT",
    )


def _broker_arguments(group: Any) -> None:
    group.add_argument("--include", metavar="REGEX", help="all topics whose whole name it matches")
    group.add_argument(
        "--group",
        metavar="NAME",
        help="share the partitions with the other members of this group, begin where it left off, "
        "and commit what was printed",
    )
    group.add_argument(
        "--instance-id",
        metavar="NAME",
        help="a static member: its partitions wait for it while it is away",
    )
    group.add_argument(
        "--reset",
        choices=("earliest", "latest", "error"),
        default="earliest",
        help="--group: where to begin without a committed offset (default: earliest)",
    )
    group.add_argument(
        "--consumer-property",
        "--command-property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"the same by Kafka's names: {', '.join(CONSUMER_PROPERTIES)}",
    )
    group.add_argument(
        "--timeout-ms",
        type=count_argument,
        metavar="MS",
        help="wait for more, and end when nothing came for so long",
    )


def run(options: argparse.Namespace) -> int:
    """Print records until the end, the limit, or for ever."""
    apply_properties(options, "--consumer-property", options.consumer_property, CONSUMER_PROPERTIES)
    form = kafka_format(options.property) if options.property else format_of(options.format)
    if options.bootstrap_server is not None:
        from kafkalog.cli import remote_consume

        options.follow = options.follow or options.timeout_ms is not None
        return remote_consume.run(options, form)
    refuse(options, "needs --bootstrap-server", group=None, include=None, timeout_ms=None)
    if len(options.topic) != 1:
        raise UsageError("--topic: wanted one name")
    options.topic = options.topic[0]
    with contextlib.ExitStack() as stack:
        source = _Source(options, stack)
        records = source.present()
        if options.follow:
            records = itertools.chain(records, source.follow())
        _write(itertools.islice(records, options.max_messages), form, options.follow)
    return 0


class _Source:
    """The chosen partitions, and where reading stands in each."""

    def __init__(self, options: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.options = options
        self.stack = stack
        self.logs: list[Log] = []
        self.next: list[int] = []
        self.missing = find_partitions(options.dir, options.topic, options.partition)
        self.alone = len(self.missing) == 1
        self.open()
        for i, log in enumerate(self.logs):
            self.next[i] = _start(log, options, self.alone)

    def open(self) -> None:
        """Open the partitions that have got a segment by now, to be read from their start."""
        for tp, path in list(self.missing.items()):
            log = open_log(tp, path)
            if log is not None:
                self.stack.callback(log.close)
                self.logs.append(log)
                self.next.append(log.start_offset)
                del self.missing[tp]

    def _read(self, i: int) -> "Iterator[Record]":
        """What one log has from where reading stands; that moves along."""
        for record in self.logs[i].read(self.next[i], isolation=self.options.isolation):
            self.next[i] = record.offset + 1
            yield record

    def present(self) -> "Iterator[Record]":
        """What is there now, in the order that was asked for."""
        readers = [self._read(i) for i in range(len(self.logs))]
        if self.options.order == "time":
            return heapq.merge(*readers, key=lambda record: record.timestamp_ms)
        return itertools.chain.from_iterable(readers)

    def follow(self) -> "Iterator[Record]":
        """What comes, partition by partition, as it comes; for ever."""
        while True:
            if self.alone and self.logs:
                yield from self.logs[0].follow(self.next[0], self.options.isolation)
            idle = True
            self.open()
            for i, log in enumerate(self.logs):
                log.refresh()
                for record in self._read(i):
                    idle = False
                    yield record
            if idle:
                time.sleep(FOLLOW_WAIT_S)


def _start(log: "Log", options: argparse.Namespace, alone: bool) -> int:
    """The offset at which a log is begun.  Raises: UsageError."""
    if options.from_time is not None:
        try:
            found = log.offset_at(parse_time(options.from_time))
        except ValueError:
            raise UsageError(
                f"--from-time: found {options.from_time!r}, wanted ISO 8601 or a number of ms"
            ) from None
        return log.high_watermark if found is None else found
    if options.offset == "earliest":
        return log.start_offset
    if options.offset == "latest":
        return log.high_watermark
    if not re.fullmatch(r"-?\d+", options.offset):
        raise UsageError(f"--offset: found {options.offset!r}, wanted N, earliest or latest")
    offset = int(options.offset)
    if offset < 0:
        return max(log.high_watermark + offset, log.start_offset)
    if not alone:  # each partition has its own range
        return min(max(offset, log.start_offset), log.high_watermark)
    return offset


def _write(records: "Iterable[Record]", form: "Format", at_once: bool) -> None:
    out = sys.stdout.buffer
    if at_once:
        for record in records:
            out.write(form(record) + b"\n")
            out.flush()
        return
    lines: list[bytes] = []
    try:
        for record in records:
            lines.append(form(record))
            if len(lines) == LINES:
                out.write(b"\n".join(lines) + b"\n")
                lines.clear()
    finally:
        # Also when the next batch is damaged: what was read before it is shown.
        if lines:
            out.write(b"\n".join(lines) + b"\n")
        out.flush()


# ---- formats -------------------------------------------------------------------------------


def format_of(text: str) -> "Format":
    """What --format asks for.  Raises: UsageError for an unknown directive."""
    if text == "value":
        return lambda record: record.value or b""
    if text == "json":
        return _as_json
    return _pattern(text)


def _as_json(record: "Record") -> bytes:
    value = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [_header(name, data) for name, data in record.headers],
    }
    return json_line(value).encode()


def _header(name: str, value: bytes | None) -> dict[str, str | None]:
    return {"name": name, **json_bytes("value", value)}


def _headers_text(record: "Record") -> bytes:
    pairs = (f"{name}=".encode() + (value or b"") for name, value in record.headers)
    return b",".join(pairs)


DIRECTIVES: "dict[str, Format]" = {
    "t": lambda r: r.topic.encode(),
    "p": lambda r: b"%d" % r.partition,
    "o": lambda r: b"%d" % r.offset,
    "k": lambda r: r.key or b"",
    "v": lambda r: r.value or b"",
    "s": lambda r: r.value or b"",
    "T": lambda r: b"%d" % r.timestamp_ms,
    "D": lambda r: show_time(r.timestamp_ms).encode(),
    "K": lambda r: b"%d" % (-1 if r.key is None else len(r.key)),
    "V": lambda r: b"%d" % (-1 if r.value is None else len(r.value)),
    "S": lambda r: b"%d" % (-1 if r.value is None else len(r.value)),
    "h": _headers_text,
    "e": lambda r: b"%d" % r.leader_epoch,
    "%": lambda r: b"%",
}


def _pattern(text: str) -> "Format":
    parts: list[bytes | Format] = []
    for piece in re.findall(r"%.?|\\.|[^%\\]+|\\$", text, re.DOTALL):
        if piece[0] == "%":
            if piece[1:] not in DIRECTIVES:
                known = " ".join(f"%{name}" for name in DIRECTIVES)
                raise UsageError(f"--format: no {piece!r} in a pattern; there are {known}")
            parts.append(DIRECTIVES[piece[1:]])
        elif piece[0] == "\\":
            parts.append({"n": b"\n", "t": b"\t", "0": b"\0"}.get(piece[1:], piece[1:].encode()))
        else:
            parts.append(piece.encode())
    if text and not any(callable(part) for part in parts):
        raise UsageError(f"--format: found {json.dumps(text)}, wanted value, json or a pattern")
    return lambda record: b"".join(p if isinstance(p, bytes) else p(record) for p in parts)


def kafka_format(pairs: list[str]) -> "Format":
    """A line as Kafka's console consumer prints it with these properties.  Raises: UsageError."""
    known = {f"print.{name}": name == "value" for name in KAFKA_PARTS}
    separator = "\t"
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if name == "key.separator" and equals:
            separator = value.replace("\\t", "\t")
        elif name in known and value in ("true", "false"):
            known[name] = value == "true"
        else:
            raise UsageError(
                f"--property: found {pair!r}, wanted {', '.join(known)} with true or false, "
                "or key.separator=TEXT"
            )
    parts = [part for name, part in KAFKA_PARTS.items() if known[f"print.{name}"]]
    return lambda record: separator.encode().join(part(record) for part in parts)


def _kafka_headers(record: "Record") -> bytes:
    pairs = (f"{name}:".encode() + (b"null" if v is None else v) for name, v in record.headers)
    return b",".join(pairs) or b"NO_HEADERS"


TIMESTAMP_KINDS = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
KAFKA_PARTS: "dict[str, Format]" = {
    "timestamp": lambda r: f"{TIMESTAMP_KINDS[r.timestamp_type]}:{r.timestamp_ms}".encode(),
    "partition": lambda r: b"Partition:%d" % r.partition,
    "offset": lambda r: b"Offset:%d" % r.offset,
    "headers": _kafka_headers,
    "key": lambda r: b"null" if r.key is None else r.key,
    "value": lambda r: b"null" if r.value is None else r.value,
}
