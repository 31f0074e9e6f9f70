"""What `kafkalog ingest` reads: text, JSON lines and CSV, plain, gzip or zstd, as records."""

import csv
import functools
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone, tzinfo
from typing import Any, NamedTuple

from kafkalog.cli.common import CommandError, parse_time, time_ms

__all__ = [
    "Block",
    "Clock",
    "Input",
    "Shape",
    "read_blocks",
    "read_lines",
    "timestamp_parser",
]

CHUNK_BYTES = 1 << 20
LINE_BYTES_MAX = 64 << 20
TIME_MAX_MS = (1 << 63) - 1
ROWS = 1000  # of CSV in a block
YEAR_DIRECTIVES = re.compile(r"%[YyGcxDs]")
FORMATS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv"}

Clock = Callable[[str], int]
"""A timestamp's text to milliseconds since 1970.  Raises: ValueError."""


class Block(NamedTuple):
    """Records that were read together; `keys` and `times` are None when none has one."""

    values: list[bytes]
    keys: list[bytes | None] | None
    times: list[int | None] | None


class Shape(NamedTuple):
    """How to make records of an input."""

    format: str
    """auto, text, json or csv."""
    key: str | None
    """A field of JSON or CSV."""
    timestamp: str | None
    value: str | None
    key_regex: re.Pattern[bytes] | None
    """Of text: the first group, or the whole match."""
    timestamp_regex: re.Pattern[bytes] | None
    clock: Clock
    without_timestamp: str
    """error, previous or now: a text line in which the regex finds no time."""
    limit_bytes: int = LINE_BYTES_MAX
    """Of a key and its value together: what surely fits into a batch."""
    key_separator: bytes | None = None
    """Of text: what stands before it is the key, what stands behind it the value."""


Row = tuple[bytes, bytes | None, int | None]
"""Value, key, milliseconds since 1970 or None for now."""

Bad = Callable[[int, str], None]
"""Told of the line and the reason; it raises when it has heard enough."""


class Input:
    """One file, or `-` for the standard input, and how far it has been read."""

    def __init__(self, path: str) -> None:
        """Open the file.  Raises: OSError."""
        self.name = "stdin" if path == "-" else path
        self.raw: Any = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115
        self.stem, ending = os.path.splitext(self.name)
        if ending == ".gz":
            import gzip

            self.stream: Any = gzip.GzipFile(fileobj=self.raw)
        elif ending == ".zst":
            import zstandard

            reader = zstandard.ZstdDecompressor().stream_reader(self.raw, read_across_frames=True)
            self.stream = io.BufferedReader(reader, CHUNK_BYTES)
        else:
            self.stem, self.stream = self.name, self.raw

    def format(self, wanted: str) -> str:
        """The format, by name when `wanted` is auto; the standard input by its first byte."""
        if wanted != "auto":
            return wanted
        if self.raw is sys.stdin.buffer and isinstance(self.stream, io.BufferedReader):
            return "json" if self.stream.peek(1)[:1] == b"{" else "text"
        return FORMATS.get(os.path.splitext(self.stem)[1].lower(), "text")

    def position(self) -> int:
        """Bytes of the file, as it is stored, that have been read; 0 for a pipe."""
        try:
            return int(self.raw.tell())
        except OSError:
            return 0

    def close(self) -> None:
        """Close the file; the standard input stays open."""
        if self.raw is not sys.stdin.buffer:
            self.stream.close()
            self.raw.close()


def read_blocks(source: Input, shape: Shape, bad: Bad) -> Iterator[Block]:
    """The records of an input, by blocks of about a megabyte.

    `bad(line, why)` is told of each line that is no record, and raises when it has heard
    enough.  Raises: CommandError for a file that cannot be inflated or decoded.
    """
    kind = source.format(shape.format)
    try:
        if kind == "csv":
            yield from _csv_blocks(source, shape, bad)
        elif kind == "json":
            yield from _json_blocks(source, shape, bad)
        else:
            yield from _text_blocks(source, shape, bad)
    except (EOFError, OSError) as problem:
        raise CommandError(f"{source.name}: {problem}") from None
    except Exception as problem:
        # zlib.error and ZstdError share no base class with anything.
        if type(problem).__module__ in ("zlib", "zstd", "zstandard", "zstandard.backend_c"):
            raise CommandError(f"{source.name}: {problem}") from None
        raise


# ---- lines ---------------------------------------------------------------------------------


def read_lines(source: Input) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first line, lines without their ends), by blocks.  Raises: CommandError."""
    number, rest = 1, b""
    # Who types, or pipes from a program that does, must not wait for a whole megabyte.
    live = source.stream is sys.stdin.buffer
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
    # A last line without an end belongs to the block before it, not to one of its own.
    if rest:
        waiting.append(rest.removesuffix(b"\r"))
    if waiting:
        yield number, waiting


def _text_blocks(source: Input, shape: Shape, bad: Bad) -> Iterator[Block]:
    regex = shape.key_regex
    previous: int | None = None
    for number, lines in read_lines(source):
        # A key is a part of its line: twice the longest line is more than any record.
        simple = shape.timestamp_regex is None and shape.key_separator is None
        if simple and 2 * max(map(len, lines)) <= shape.limit_bytes:
            values = [line for line in lines if line]
            keys = None if regex is None else [_key_in(value, regex) for value in values]
            yield Block(values, keys, None)
            continue
        rows: list[Row] = []
        for i, line in enumerate(lines):
            if not line:
                continue
            try:
                if shape.timestamp_regex is not None:
                    previous = _time_in(line, shape.timestamp_regex, shape, previous)
                key = None if regex is None else _key_in(line, regex)
                if shape.key_separator is not None:
                    key, line = _split(line, shape.key_separator)
                rows.append(_row(line, key, previous, shape))
            except ValueError as problem:
                yield _block(rows)
                rows = []
                bad(number + i, str(problem))
        yield _block(rows)


def _key_in(line: bytes, regex: re.Pattern[bytes]) -> bytes | None:
    match = regex.search(line)
    return match[1 if regex.groups else 0] if match else None


def _split(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(f"no {separator.decode('utf-8', 'backslashreplace')!r} behind a key")
    return key, value


def _time_in(
    line: bytes, regex: re.Pattern[bytes], shape: Shape, previous: int | None
) -> int | None:
    match = regex.search(line)
    if match is None:
        if shape.without_timestamp == "now":
            return None
        if shape.without_timestamp == "previous":
            return previous
        raise ValueError("--timestamp-regex finds nothing")
    return shape.clock(match[1 if regex.groups else 0].decode("utf-8", "replace"))


def _row(value: bytes, key: bytes | None, time_ms: int | None, shape: Shape) -> Row:
    """A record, when a batch can hold it.  Raises: ValueError."""
    size = len(value) + len(key or b"")
    if size > shape.limit_bytes:
        raise ValueError(f"{size} bytes are more than a batch may have (max.message.bytes)")
    return value, key, time_ms


def _block(rows: list[Row]) -> Block:
    return Block(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
    )


# ---- fields --------------------------------------------------------------------------------


def _json_blocks(source: Input, shape: Shape, bad: Bad) -> Iterator[Block]:
    for number, lines in read_lines(source):
        rows: list[Row] = []
        for i, line in enumerate(lines):
            if not line.strip():
                continue
            try:
                rows.append(_json_row(line, shape))
            except ValueError as problem:
                yield _block(rows)
                rows = []
                bad(number + i, str(problem))
        yield _block(rows)


def _json_row(line: bytes, shape: Shape) -> Row:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as problem:
        raise ValueError(f"no JSON: {problem.msg} at character {problem.pos + 1}") from None
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"found JSON {type(value).__name__}, wanted an object")
    body = line if shape.value is None else _as_bytes(_field(value, shape.value)) or b""
    return _row(body, _key_of(value, shape), _time_of(value, shape), shape)


def _csv_blocks(source: Input, shape: Shape, bad: Bad) -> Iterator[Block]:
    text = io.TextIOWrapper(source.stream, "utf-8-sig", errors="strict", newline="")
    reader = csv.reader(text)
    rows: list[Row] = []
    try:
        heads = next(reader, [])
        for wanted in (shape.key, shape.timestamp, shape.value):
            if wanted is not None and wanted not in heads:
                raise CommandError(f"{source.name}:1: no column {wanted!r} among {heads}")
        for cells in reader:
            try:
                if cells:
                    rows.append(_csv_row(heads, cells, shape))
            except ValueError as problem:
                yield _block(rows)
                rows = []
                bad(reader.line_num, str(problem))
            if len(rows) == ROWS:
                yield _block(rows)
                rows = []
        yield _block(rows)
    except (csv.Error, UnicodeDecodeError) as problem:
        raise CommandError(f"{source.name}:{reader.line_num + 1}: {problem}") from None
    finally:
        text.detach()


def _csv_row(heads: list[str], cells: list[str], shape: Shape) -> Row:
    if len(cells) != len(heads):
        raise ValueError(f"found {len(cells)} cells, wanted {len(heads)}")
    value = dict(zip(heads, cells, strict=True))
    if shape.value is None:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    else:
        body = value[shape.value].encode()
    return _row(body, _key_of(value, shape), _time_of(value, shape), shape)


def _field(value: dict[str, Any], name: str) -> Any:
    """A field by its name, or by a path of names with dots.  Raises: ValueError."""
    if name in value:
        return value[name]
    found: Any = value
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            raise ValueError(f"no field {name!r}")
        found = found[part]
    return found


def _as_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _key_of(value: dict[str, Any], shape: Shape) -> bytes | None:
    return None if shape.key is None else _as_bytes(_field(value, shape.key))


def _time_of(value: dict[str, Any], shape: Shape) -> int | None:
    if shape.timestamp is None:
        return None
    found = _field(value, shape.timestamp)
    if isinstance(found, bool) or not isinstance(found, (str, int, float)):
        raise ValueError(f"field {shape.timestamp!r} is {found!r}, wanted a time")
    return shape.clock(str(found))


# ---- time ----------------------------------------------------------------------------------


def timestamp_parser(format: str | None, zone: tzinfo, year: int | None) -> Clock:
    """How a timestamp's text is read: `format` is strptime's, ms, s, or None (ISO or a number).

    A format without a year takes `year`, or the present one.
    """
    if format is None:
        parse: Clock = functools.partial(_parse_any, zone=zone)
    elif format in ("ms", "s"):
        parse = functools.partial(_parse_number, factor=1 if format == "ms" else 1000)
    elif YEAR_DIRECTIVES.search(format):
        parse = functools.partial(_parse_format, format=format, zone=zone, prefix="")
    else:
        # The year is parsed with the rest: 29 February is a date in leap years only.
        prefix = f"{year or datetime.now(timezone.utc).year} "
        parse = functools.partial(_parse_format, format=f"%Y {format}", zone=zone, prefix=prefix)
    # Many lines carry the same second; strptime takes longer than all else together.
    return functools.lru_cache(maxsize=4096)(functools.partial(_not_negative, parse=parse))


def _not_negative(text: str, parse: Clock) -> int:
    timestamp_ms = parse(text)
    if timestamp_ms < 0:
        raise ValueError(f"time {text!r} lies before 1970")
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
        raise ValueError(f"time {text!r} is not of the format {wanted!r}") from None
    return time_ms(moment if moment.tzinfo else moment.replace(tzinfo=zone))
