"""CSV by columns: pyarrow parses, and its kernels join the cells into JSON objects.

It reads the same records as csv.reader if each row has a cell for each name and all text is
UTF-8.  Otherwise the other reader takes over, from the first record that was not yet
returned.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any

from kafkalog.cli.common import SECONDS_LIMIT, CommandError
from kafkalog.cli.inputs import Block, Input, Shape

__all__ = ["MS_MIN", "NUMBER", "check_heads", "csv_columns"]

BLOCK_BYTES = 4 << 20
SMALL_BYTES = 1 << 20
"""Below this size, importing pyarrow takes longer than reading the rows."""
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
"""A number in JSON: 007, +5, .5 and 1,000 are text."""
MS_MIN = SECONDS_LIMIT
"""From this value on, a plain number is a time in ms, as in common.parse_time."""
SPECIAL = '["\\\\\\x00-\\x1f]'
"""Characters that must be escaped in a JSON string."""
SPECIAL_BYTES = bytes(range(0x20)) + b'"\\'


def csv_columns(source: Input, shape: Shape, whole: list[bool]) -> Iterator[Block]:
    """The rows in blocks, as long as they are regular; `whole[0]` is set if that is all of them.

    Otherwise the input is rewound to its start.  Raises: CommandError.
    """
    if source.bytes() < SMALL_BYTES:
        return
    try:
        import pyarrow as pa
        import pyarrow.csv as arrow_csv
    except ImportError:
        return
    try:
        heads = _heads(source)
    except (UnicodeDecodeError, csv.Error):
        source.rewind()
        return  # the other reader reports the error
    check_heads(source.name, heads, shape)
    source.rewind()
    if len(heads) < 2:
        return  # there, an empty row and an empty cell look the same
    try:
        reader = arrow_csv.open_csv(
            pa.PythonFile(_WholeLineEnds(source.stream), mode="r"),
            arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
            arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(heads, pa.string()), strings_can_be_null=False
            ),
        )
        for batch in reader:
            block = _block(batch, shape)
            if block is None:
                break
            yield block
        else:
            whole[0] = True
    except pa.ArrowInvalid:
        pass
    if not whole[0]:
        source.rewind()


class _WholeLineEnds:
    """A stream in which no read ends between CR and LF.

    pyarrow takes an LF at the beginning of a block for the rest of a line end, even inside a
    quoted cell, and drops it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._held = b""
        self.closed = False

    def read(self, size: int) -> bytes:
        data: bytes = self._held + self._stream.read(size - len(self._held))
        self._held = b"\r" if len(data) > 1 and data.endswith(b"\r") else b""
        return data.removesuffix(self._held)

    def close(self) -> None:
        self.closed = True


def _heads(source: Input) -> list[str]:
    """The names in the first row.  Raises: UnicodeDecodeError, csv.Error."""
    text = io.TextIOWrapper(source.stream, "utf-8-sig", errors="strict", newline="")
    try:
        return next(csv.reader(text), [])
    finally:
        text.detach()


def check_heads(name: str, heads: Sequence[str], shape: Shape) -> None:
    """Check that the names are distinct and the requested ones exist.

    Raises: CommandError.
    """
    for wanted in (shape.key, shape.timestamp, shape.value):
        if wanted is not None and wanted not in heads:
            raise CommandError(f"{name}:1: no column {wanted!r} among {list(heads)}")
    twice = [head for head in heads if heads.count(head) > 1]
    if twice:
        raise CommandError(f"{name}:1: two columns are named {twice[0]!r}")


def _block(batch: Any, shape: Shape) -> Block | None:
    """None if a record needs a closer look."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = dict(zip(batch.schema.names, batch.columns, strict=True))
    empty = pc.equal(batch.columns[0], "")
    if pc.any(empty).as_py():
        for column in batch.columns[1:]:
            empty = pc.and_(empty, pc.equal(column, ""))
        if pc.any(empty).as_py():
            return None  # perhaps an empty line, which is no record
    try:
        times = None if shape.timestamp is None else _times(cells[shape.timestamp], shape)
    except ValueError:
        return None
    values = _objects(cells) if shape.value is None else cells[shape.value]
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    keys = None
    if shape.key is not None:
        longest += pc.max(pc.binary_length(cells[shape.key])).as_py() or 0
        keys = cells[shape.key].cast(pa.binary()).to_pylist()
    if longest > shape.limit_bytes:
        return None
    return Block(values.cast(pa.binary()), keys, times)


def _objects(cells: dict[str, Any]) -> Any:
    """Rows as JSON objects: each joins the cells and the text between them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pieces: list[Any] = []
    between = "{"
    for name, column in cells.items():
        between += f"{encode_basestring(name)}:"
        numbers = pc.and_(pc.greater_equal(column, "-"), pc.less(column, ":"))  # by its first byte
        if pc.any(numbers).as_py():
            numbers = pc.match_substring_regex(column, f"^(?:{NUMBER})$")
        if pc.all(numbers).as_py():
            pieces += [between, column]
            between = ","
            continue
        if _has_special(column):
            texts = [encode_basestring(cell)[1:-1] for cell in column.to_pylist()]
            column = pa.array(texts, pa.string())
        if pc.any(numbers).as_py():
            quoted = pc.binary_join_element_wise('"', column, '"', "")
            pieces += [between, pc.if_else(numbers, column, quoted)]
            between = ","
        else:
            pieces += [f'{between}"', column]
            between = '",'
    return pc.binary_join_element_wise(*pieces, between.removesuffix(",") + "}", "")


def _has_special(column: Any) -> bool:
    """True if a text has a character that a JSON string must escape."""
    import pyarrow.compute as pc

    if column.offset:
        return bool(pc.any(pc.match_substring_regex(column, SPECIAL)).as_py())
    # All texts are contiguous: one scan of their bytes is ten times as fast as one of each.
    count = pc.sum(pc.binary_length(column)).as_py() or 0
    data = bytes(memoryview(column.buffers()[2] or b"")[:count])
    return len(data.translate(None, SPECIAL_BYTES)) < count


def _times(column: Any, shape: Shape) -> Any:
    """Milliseconds; in one step if all are plain numbers of them.  Raises: ValueError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if shape.plain_ms and pc.all(pc.match_substring_regex(column, "^[0-9]{12,18}$")).as_py():
        numbers = column.cast(pa.int64())
        if (pc.min(numbers).as_py() or MS_MIN) >= MS_MIN:
            return numbers.to_pylist()
    return list(map(shape.clock, column.to_pylist()))
