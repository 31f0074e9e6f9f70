"""Prints records as lines on stdout: the formats of `kafkalog consume`."""

import itertools
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable
from typing import TextIO

from kafkalog.cli.common import UsageError, json_bytes, json_line, show_time
from kafkalog.cli.progress import Progress
from kafkalog.types import Record

__all__ = ["Format", "Output", "format_of", "kafka_format"]

Format = Callable[[Record], bytes]


class Output:
    """Lines on stdout, up to a limit."""

    def __init__(self, form: Format, limit: int | None) -> None:
        """`limit`: how many records; None: all."""
        self.form = form
        self.left = sys.maxsize if limit is None else limit
        self._progress = Progress(0)
        self._progress.enabled &= _is_file(sys.stdout)  # otherwise the lines show it
        self._records = self._bytes = 0

    def write(self, records: Iterable[Record]) -> Record | None:
        """Print records up to the limit; returns the last one that was printed."""
        last = None
        lines = []
        for last in itertools.islice(records, self.left):
            lines.append(self.form(last))
        if lines:
            self.left -= len(lines)
            data = b"\n".join(lines) + b"\n"
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            self._records, self._bytes = self._records + len(lines), self._bytes + len(data)
            self._progress.update(self._records, self._bytes)
        return last

    def close(self) -> None:
        """Clear the progress of a terminal."""
        self._progress.clear()

    def enough(self) -> bool:
        """True if the limit is reached."""
        return self.left == 0


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # it was replaced, or closed
        return False


# ---- formats -------------------------------------------------------------------------------


def format_of(text: str) -> Format:
    """The function for --format.  Raises: UsageError for an unknown directive."""
    if text == "value":
        return lambda record: record.value or b""
    if text == "json":
        return _as_json
    return _pattern(text)


def _as_json(record: Record) -> bytes:
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


def _headers_text(record: Record) -> bytes:
    pairs = (f"{name}=".encode() + (value or b"") for name, value in record.headers)
    return b",".join(pairs)


DIRECTIVES: dict[str, Format] = {
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


def _pattern(text: str) -> Format:
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


def kafka_format(pairs: list[str]) -> Format:
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


def _kafka_headers(record: Record) -> bytes:
    pairs = (f"{name}:".encode() + (b"null" if v is None else v) for name, v in record.headers)
    return b",".join(pairs) or b"NO_HEADERS"


TIMESTAMP_KINDS = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
KAFKA_PARTS: dict[str, Format] = {
    "timestamp": lambda r: f"{TIMESTAMP_KINDS[r.timestamp_type]}:{r.timestamp_ms}".encode(),
    "partition": lambda r: b"Partition:%d" % r.partition,
    "offset": lambda r: b"Offset:%d" % r.offset,
    "headers": _kafka_headers,
    "key": lambda r: b"null" if r.key is None else r.key,
    "value": lambda r: b"null" if r.value is None else r.value,
}
