"""Inputs of `kafkalog ingest` and `produce`: files, plain, gzip or zstd, as lines and records."""

import functools
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone, tzinfo
from typing import Any, NamedTuple

from kafkalog.cli.common import CommandError, UsageError, json_line, parse_time, time_ms

__all__ = [
    "Bad",
    "Block",
    "Clock",
    "Input",
    "Row",
    "Shape",
    "block_of",
    "checked_row",
    "field_bytes",
    "format_by_name",
    "json_object",
    "read_lines",
    "timestamp_parser",
]

CHUNK_BYTES = 1 << 20
LINE_BYTES_MAX = 64 << 20
TIME_MAX_MS = (1 << 63) - 1
YEAR_DIRECTIVES = re.compile(r"%[YyGcxDs]")
PACKED = (".gz", ".zst")
FORMATS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}

Clock = Callable[[str], int]
"""Parses a timestamp into milliseconds since 1970.  Raises: ValueError."""


class Block(NamedTuple):
    """Records that were read together; `keys` and `times` are None if no record has one."""

    values: Any
    """A list of bytes, or an Arrow array of them."""
    keys: list[bytes | None] | None
    times: list[int | None] | None
    blank: int = 0
    """Empty lines, which are no records."""


class Shape(NamedTuple):
    """How to make records of an input."""

    format: str
    """auto, text, json or csv."""
    key: str | None
    """A field of JSON or CSV."""
    timestamp: str | None
    value: str | None
    key_regex: re.Pattern[bytes] | None
    """For text: the first group, or the whole match."""
    timestamp_regex: re.Pattern[bytes] | None
    clock: Clock
    without_timestamp: str
    """error, previous or now: a text line in which the regex finds no time."""
    limit_bytes: int = LINE_BYTES_MAX
    """For a key and its value together: what surely fits into a batch."""
    key_separator: bytes | None = None
    """For text: the text before it is the key, the text after it the value."""
    plain_ms: bool = False
    """A large whole number is a time in milliseconds, without calling `clock`."""


Row = tuple[bytes, bytes | None, int | None]
"""Value, key, milliseconds since 1970 or None for now."""

Bad = Callable[[int, str], None]
"""Called with the line and the reason; raises when there were too many."""


class Input:
    """One file, or `-` for the standard input, and how far it has been read."""

    def __init__(self, path: str) -> None:
        """Open the file.  Raises: OSError."""
        self.path = path
        self.name = "stdin" if path == "-" else path
        self.live = path == "-"
        """True if neither the amount nor the pace of the input is known."""
        self._open()

    def _open(self) -> None:
        if self.live and sys.stdin is None:
            raise UsageError("-: the standard input is closed")
        self.raw: Any = sys.stdin.buffer if self.live else open(self.path, "rb")  # noqa: SIM115
        ending = os.path.splitext(self.name)[1]
        if ending == ".gz":
            import gzip

            self.stream: Any = gzip.GzipFile(fileobj=self.raw)
        elif ending == ".zst":
            import zstandard

            reader = zstandard.ZstdDecompressor().stream_reader(self.raw, read_across_frames=True)
            self.stream = io.BufferedReader(reader, CHUNK_BYTES)
        else:
            self.stream = self.raw

    def format(self, wanted: str) -> str:
        """The format, by name if `wanted` is auto; standard input by its first byte."""
        if wanted != "auto":
            return wanted
        if self.live and isinstance(self.stream, io.BufferedReader):
            return "json" if self.stream.peek(1)[:1] == b"{" else "text"
        return format_by_name(self.name)

    def position(self) -> int:
        """Bytes read so far of the file as stored; 0 for a pipe."""
        try:
            return int(self.raw.tell())
        except OSError:
            return 0

    def bytes(self) -> int:
        """Size of the file as stored; 0 for standard input."""
        return 0 if self.live else os.fstat(self.raw.fileno()).st_size

    def rewind(self) -> None:
        """Rewind; not for standard input.  Raises: OSError."""
        self.close()
        self._open()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if not self.live:
            self.stream.close()
            self.raw.close()


def format_by_name(path: str) -> str:
    """text, json or csv, by the name's ending before .gz or .zst."""
    stem, ending = os.path.splitext(path)
    if ending not in PACKED:
        stem = path
    return FORMATS.get(os.path.splitext(stem)[1].lower(), "text")


# ---- lines ---------------------------------------------------------------------------------


def read_lines(source: Input) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first line, lines without their ends), in blocks.  Raises: CommandError."""
    number, rest = 1, b""
    # A typing user, or a slow pipe, must not wait for a whole megabyte.
    live = source.live and source.stream is sys.stdin.buffer
    read = source.stream.read1 if live else source.stream.read
    waiting: list[bytes] = []
    while chunk := read(CHUNK_BYTES):
        chunk = rest + chunk
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            raise CommandError(f"{source.name}:{number + len(lines)}: a line above 64 MiB")
        if b"\r\n" in chunk:
            lines = [line.removesuffix(b"\r") for line in lines]
        if waiting:
            yield number, waiting
            number += len(waiting)
        waiting = lines
        if live and waiting:
            yield number, waiting
            number, waiting = number + len(waiting), []
    # A last line without a line end belongs to the block before it.
    if rest:
        waiting.append(rest.removesuffix(b"\r"))
    if waiting:
        yield number, waiting


def json_object(line: bytes) -> dict[str, Any]:
    """The JSON object on a line.  Raises: ValueError."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as problem:
        raise ValueError(f"no JSON: {problem.msg} at character {problem.pos + 1}") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"found JSON {type(found).__name__}, wanted an object")
    return found


def field_bytes(value: Any) -> bytes | None:
    """A field of such an object as a key or a value: text unchanged, anything else as JSON."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json_line(value)).encode()


def checked_row(value: bytes, key: bytes | None, time_ms: int | None, shape: Shape) -> Row:
    """A record, if a batch can hold it.  Raises: ValueError."""
    size = len(value) + len(key or b"")
    if size > shape.limit_bytes:
        raise ValueError(f"{size} bytes are more than a batch may have (max.message.bytes)")
    return value, key, time_ms


def block_of(rows: list[Row], blank: int = 0) -> Block:
    """Rows as columns."""
    return Block(
        [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], blank
    )


# ---- time ----------------------------------------------------------------------------------


def timestamp_parser(format: str | None, zone: tzinfo, year: int | None) -> Clock:
    """How to parse a timestamp: `format` is strptime's, ms, s, or None (ISO or a number).

    A format without a year gets `year`, or the current one.
    """
    if format is None:
        parse: Clock = functools.partial(_parse_any, zone=zone)
    elif format in ("ms", "s"):
        parse = functools.partial(_parse_number, factor=1 if format == "ms" else 1000)
    elif YEAR_DIRECTIVES.search(format):
        parse = functools.partial(_parse_format, format=format, zone=zone, prefix="")
    else:
        # The year is parsed with the rest: 29 February exists in leap years only.
        prefix = f"{year or datetime.now(timezone.utc).year} "
        parse = functools.partial(_parse_format, format=f"%Y {format}", zone=zone, prefix=prefix)
    # Many lines carry the same second; strptime takes longer than all else together.
    return functools.lru_cache(maxsize=4096)(functools.partial(_not_negative, parse=parse))


def _not_negative(text: str, parse: Clock) -> int:
    timestamp_ms = parse(text)
    if timestamp_ms < 0:
        raise ValueError(f"time {text!r} is before 1970")
    if timestamp_ms > TIME_MAX_MS:
        raise ValueError(f"time {text!r} does not fit into 64 bits")
    return timestamp_ms


def _parse_any(text: str, zone: tzinfo) -> int:
    try:
        return parse_time(text, zone)
    except (ValueError, OverflowError):
        raise ValueError(f"time {text!r}: wanted ISO 8601 or a number of ms or s") from None


def _parse_number(text: str, factor: int) -> int:
    try:
        return int(float(text) * factor) if "." in text else int(text) * factor
    except ValueError:
        raise ValueError(f"time {text!r}: wanted a number") from None


def _parse_format(text: str, format: str, zone: tzinfo, prefix: str) -> int:
    try:
        moment = datetime.strptime(prefix + text, format)
    except ValueError:
        wanted = format.removeprefix("%Y ") if prefix else format
        raise ValueError(f"time {text!r} does not have the format {wanted!r}") from None
    return time_ms(moment if moment.tzinfo else moment.replace(tzinfo=zone))
