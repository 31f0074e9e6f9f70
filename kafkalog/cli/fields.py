"""JSON lines and CSV rows as records: fields by name, numbers as they were written.

The fast readers (msgspec for JSON, pyarrow for CSV, if installed) read regular input in blocks;
what they refuse is read row by row, so that each error has its line.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any

from kafkalog.cli.arrowcsv import MS_MIN, NUMBER, check_heads, csv_columns
from kafkalog.cli.common import CommandError
from kafkalog.cli.inputs import (
    LINE_BYTES_MAX,
    Bad,
    Block,
    Input,
    Row,
    Shape,
    block_of,
    checked_row,
    field_bytes,
    json_object,
    read_lines,
)

__all__ = ["csv_blocks", "json_blocks"]

ROWS = 1000  # of CSV in a block
MS_MAX = 1 << 63
is_number = re.compile(NUMBER).fullmatch


def _field(value: Any, name: str) -> Any:
    """A field by its name, or by a dotted path of names.  Raises: ValueError."""
    if name in value:
        return value[name]
    found: Any = value
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            raise ValueError(f"no field {name!r}")
        found = found[part]
    return found


def _time(name: str, found: Any, shape: Shape) -> int:
    """A field's time.  Raises: ValueError."""
    if isinstance(found, bool) or not isinstance(found, (str, int, float)):
        raise ValueError(f"field {name!r} is {found!r}, wanted a time")
    return shape.clock(str(found))


# ---- JSON ----------------------------------------------------------------------------------


def json_blocks(source: Input, shape: Shape, bad: Bad) -> Iterator[Block]:
    """One record per line with an object; the value is the line as it was."""
    fast = _json_decoder(shape)
    for number, lines in read_lines(source):
        block = fast(lines)
        if block is not None:
            yield block
            continue
        rows: list[Row] = []
        blank = 0
        for i, line in enumerate(lines):
            if not line.strip():
                blank += 1
                continue
            try:
                rows.append(_json_row(line, shape))
            except ValueError as problem:
                yield block_of(rows)
                rows = []
                bad(number + i, str(problem))
        yield block_of(rows, blank)


def _json_row(line: bytes, shape: Shape) -> Row:
    value = json_object(line)
    body = line if shape.value is None else field_bytes(_field(value, shape.value)) or b""
    key = None if shape.key is None else field_bytes(_field(value, shape.key))
    stamp = None
    if shape.timestamp is not None:
        stamp = _time(shape.timestamp, _field(value, shape.timestamp), shape)
    return checked_row(body, key, stamp, shape)


def _json_decoder(shape: Shape) -> Callable[[list[bytes]], Block | None]:
    """A block of lines by msgspec; None if it is not installed, or a line is irregular.

    It gives json the same meaning as the json module; only requested fields become
    objects.  A name with a dot may be a path, which msgspec does not support.
    """
    wanted = [n for n in (shape.key, shape.timestamp, shape.value) if n is not None]
    names = list(dict.fromkeys(wanted))
    try:
        import msgspec
    except ImportError:
        return lambda lines: None
    if any("." in name for name in names):
        return lambda lines: None
    places = {name: f"f{i}" for i, name in enumerate(names)}
    fields = [(place, object, msgspec.UNSET) for place in places.values()]
    rename = {place: name for name, place in places.items()}
    decode = msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=rename, gc=False)).decode

    def column(rows: Sequence[Any], name: str) -> list[Any]:
        cells = list(map(attrgetter(places[name]), rows))
        if msgspec.UNSET in cells:
            raise ValueError(f"no field {name!r}")
        return cells

    def block(lines: list[bytes]) -> Block | None:
        taken = lines if b"" not in lines else [line for line in lines if line]
        try:
            str(b"\n".join(taken), "utf-8")  # also what is in skipped fields
            rows = list(map(decode, taken))
            keys = None
            times: list[int | None] | None = None
            values = taken
            if shape.value is not None:
                values = [field_bytes(cell) or b"" for cell in column(rows, shape.value)]
            if shape.key is not None:
                keys = _cells_as_bytes(column(rows, shape.key))
            if shape.timestamp is not None:
                times = _times(shape.timestamp, column(rows, shape.timestamp), shape)
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return None
        if not _fit(values, keys, shape):
            return None
        return Block(values, keys, times, len(lines) - len(taken))

    return block


def _times(name: str, cells: list[Any], shape: Shape) -> list[int | None]:
    """Milliseconds; in one step if all are plain numbers of them.  Raises: ValueError."""
    if shape.plain_ms:
        whole = set(map(type, cells)) == {int}
        if whole and min(cells) >= MS_MIN and max(cells) < MS_MAX:
            return cells
    return [
        cell if type(cell) is int and shape.plain_ms and MS_MIN <= cell < MS_MAX
        else _time(name, cell, shape) for cell in cells
    ]  # fmt: skip


def _cells_as_bytes(cells: list[Any]) -> list[bytes | None]:
    try:
        return list(map(str.encode, cells))
    except TypeError:
        return list(map(field_bytes, cells))


def _fit(values: list[bytes], keys: list[bytes | None] | None, shape: Shape) -> bool:
    longest = max(map(len, values), default=0)
    if keys is not None:
        longest += max(map(len, filter(None, keys)), default=0)
    return longest <= shape.limit_bytes


# ---- CSV -----------------------------------------------------------------------------------


def csv_blocks(source: Input, shape: Shape, bad: Bad) -> Iterator[Block]:
    """One record per row, after a row of names: a JSON object of its cells, or one of them."""
    done = 0
    if not source.live:
        whole = [False]
        for block in csv_columns(source, shape, whole):
            done += len(block.values)
            yield block
        if whole[0]:
            return
    yield from _rows(source, shape, bad, done)


def _rows(source: Input, shape: Shape, bad: Bad, skip: int) -> Iterator[Block]:
    """Row by row, after the first `skip` rows, which are known to be good."""
    # A row that is too long for a record is a bad row with a line number, not a fatal error; the
    # module's own limit, 128 KiB, applies to all its users in a process.
    if csv.field_size_limit() < LINE_BYTES_MAX:
        csv.field_size_limit(LINE_BYTES_MAX)
    text = io.TextIOWrapper(source.stream, "utf-8-sig", errors="strict", newline="")
    reader = csv.reader(text)
    rows: list[Row] = []
    blank = 0
    try:
        encode = row_encoder(source.name, next(reader, []), shape)
        for cells in reader:
            if skip and cells:
                skip -= 1
                continue
            try:
                if cells:
                    rows.append(encode(cells))
                else:
                    blank += 1
            except ValueError as problem:
                yield block_of(rows)
                rows = []
                bad(reader.line_num, str(problem))
            if len(rows) == ROWS:
                yield block_of(rows, blank)
                rows, blank = [], 0
        yield block_of(rows, blank)
    except (csv.Error, UnicodeDecodeError) as problem:
        yield block_of(rows, blank)
        raise CommandError(f"{source.name}:{reader.line_num + 1}: {problem}") from None
    finally:
        text.detach()


def row_encoder(name: str, heads: list[str], shape: Shape) -> Callable[[list[str]], Row]:
    """A function from a row's cells to its record, which raises ValueError."""
    check_heads(name, heads, shape)
    at = {head: i for i, head in enumerate(heads)}
    names = [f"{encode_basestring(head)}:" for head in heads]

    def encode(cells: list[str]) -> Row:
        if len(cells) != len(heads):
            raise ValueError(f"found {len(cells)} cells, wanted {len(heads)}")
        if shape.value is not None:
            body = cells[at[shape.value]]
        else:
            body = f"{{{','.join(n + json_cell(c) for n, c in zip(names, cells, strict=True))}}}"
        key = None if shape.key is None else cells[at[shape.key]].encode()
        stamp = None if shape.timestamp is None else shape.clock(cells[at[shape.timestamp]])
        return checked_row(body.encode(), key, stamp, shape)

    return encode


def json_cell(cell: str) -> str:
    """A cell as JSON: a number as it was written, anything else a string."""
    return cell if is_number(cell) else encode_basestring(cell)
