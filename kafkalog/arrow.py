"""Topics as pyarrow datasets: duckdb, for example, reads only what its query needs."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.errors import ArgumentError, MissingPackage
from kafkalog.frames import Where, check_where, scan_of
from kafkalog.log.scan.arrow import schema_metadata
from kafkalog.log.scan.scan import column_bits
from kafkalog.log.scan.topic import TopicScan
from kafkalog.pushdown import TURNED, Narrow

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

__all__ = ["dataset"]

CONSTANT_ROWS = 1 << 19
"""Rows of a batch whose rows are all the same: 2 MiB."""
_COMPARISONS = {
    "equal": "Eq",
    "greater": "Gt",
    "greater_equal": "GtEq",
    "less": "Lt",
    "less_equal": "LtEq",
}


def dataset(
    where: Where,
    topic: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> pyarrow.dataset.Dataset:
    """A topic as a `pyarrow.dataset.Dataset`, read again by each use.

    Only the columns that a use wants are decoded.  Filters that compare offset, timestamp,
    partition or key with a constant narrow the read: what they exclude is not read, or not
    decoded.  All filters are applied to each batch as it comes.  `partition` is the first
    column: duckdb reads it to count rows, and it needs only the headers of batches.
    `where`: a Store, a Log, or the path of a directory, which may be written to at the same time.
    `columns` and `options`: as `Store.scan`.

    Raises: ArgumentError, MissingPackage; when it is read: UnknownTopicOrPartition, NotFound,
    and what a scan raises, as pyarrow reports it.
    """
    try:
        import pyarrow
    except ImportError as problem:
        raise MissingPackage("pyarrow: not installed; pip install pyarrow") from problem
    check_where(where)
    names, _ = column_bits(columns)
    schema = pyarrow.schema(TopicScan([], columns=names))
    if "partition" in names:
        names = ("partition", *(name for name in names if name != "partition"))
        schema = pyarrow.schema([schema.field(name) for name in names])
    made: pyarrow.dataset.Dataset = _class()(schema.empty_table(), schema)
    made._source = _Source(where, topic, options)
    return made


class _Source(NamedTuple):
    """The source of a dataset: see `dataset`."""

    where: Where
    topic: str | None
    options: dict[str, Any]

    def batches(self, schema: Any, found: Narrow | None) -> Iterator[pyarrow.RecordBatch]:
        """The rows, with the columns of `schema`; `found`: of a filter that the caller applies."""
        import pyarrow

        given = self.options if found is None else found.scan_options(self.options)
        with scan_of(self.where, self.topic, columns=schema.names, **given) as rows:
            if schema.names == ["partition"] and found is None:
                yield from _partition_column(rows, schema)
                return
            for batch in rows:
                yield pyarrow.record_batch(batch).select(schema.names)

    def row_count(self) -> int:
        """The number of rows."""
        with scan_of(self.where, self.topic, columns=["partition"], **self.options) as rows:
            return rows.count()


def _partition_column(rows: TopicScan, schema: Any) -> Iterator[pyarrow.RecordBatch]:
    """The partition of each row, in batches of at most CONSTANT_ROWS, by counting."""
    import pyarrow

    for partition, count in rows.counts():
        number = pyarrow.scalar(partition, schema.field(0).type)
        numbers = pyarrow.repeat(number, min(count, CONSTANT_ROWS))
        batch = pyarrow.record_batch([numbers], schema=schema)
        for first in range(0, count, CONSTANT_ROWS):
            yield batch.slice(0, count - first)


class _Scanner:
    """One read of a dataset: what duckdb and pyarrow's Dataset use of a pyarrow Scanner.

    It is not pyarrow's own: that reads ahead in its own threads, which may still run our Python
    when the interpreter ends.
    """

    def __init__(self, source: _Source, schema: Any, columns: Any, filter: Any) -> None:
        import pyarrow

        if not (columns is None or isinstance(columns, (list, tuple))):
            raise ArgumentError(f"columns: found {columns!r}, wanted a list of names")
        names: list[str] = schema.names
        self._columns = names if columns is None else list(columns)
        self._source, self._filter, self._found = source, filter, None
        used = {*self._columns}
        if filter is not None:
            self._found, wanted = _narrowed(filter)
            used.update(names if wanted is None else wanted)
        if strange := used.difference(names):
            raise ArgumentError(f"columns: found {strange}, wanted some of {', '.join(names)}")
        # If no column is wanted, the cheapest one gives the number of rows.
        read = [name for name in names if name in used] or names[:1]
        self._schema = pyarrow.schema([schema.field(name) for name in read])
        self.projected_schema = pyarrow.schema([schema.field(name) for name in self._columns])

    def to_batches(self) -> Generator[pyarrow.RecordBatch, None, None]:
        import pyarrow

        for batch in self._source.batches(self._schema, self._found):
            if self._filter is None:
                yield batch.select(self._columns)
                continue
            table = pyarrow.Table.from_batches([batch]).filter(self._filter)
            yield from table.select(self._columns).to_batches()

    def to_reader(self) -> pyarrow.RecordBatchReader:
        import pyarrow

        batches = self.to_batches()
        return pyarrow.RecordBatchReader.from_batches(self.projected_schema, batches)

    def to_table(self) -> pyarrow.Table:
        import pyarrow

        return pyarrow.Table.from_batches(list(self.to_batches()), self.projected_schema)

    def head(self, num_rows: int) -> pyarrow.Table:
        import pyarrow

        some, left = [], num_rows
        with closing(self.to_batches()) as batches:
            while left > 0 and (batch := next(batches, None)) is not None:
                some.append(batch.slice(0, left))
                left -= some[-1].num_rows
        return pyarrow.Table.from_batches(some, self.projected_schema)

    def take(self, indices: Any) -> pyarrow.Table:
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        if self._filter is None:
            return self._source.row_count()
        return sum(batch.num_rows for batch in self.to_batches())


class _Reads:
    """The methods that our dataset overrides; the rest is pyarrow's, and builds on this."""

    schema: Any
    _source: _Source

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> _Scanner:
        """A scanner, which reads the topic once per call; sizes and threads are the scan's."""
        return _Scanner(self._source, self.schema, columns, filter)

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise ArgumentError(
            "a topic's dataset has no fragments, and cannot be filtered, joined or sorted; its "
            "to_table(), scanner() and to_batches() take a filter, and their results do the rest"
        )

    # pyarrow's own would use the dataset underneath, which is empty.
    filter = get_fragments = join = join_asof = replace_schema = sort_by = __reduce__ = _refused


@lru_cache(maxsize=1)
def _class() -> Any:
    from pyarrow.dataset import InMemoryDataset

    return type("TopicDataset", (_Reads, InMemoryDataset), {"__module__": __name__})


# ---- filters -------------------------------------------------------------------------------


class _Call(NamedTuple):
    """A function in an expression, and its arguments."""

    name: str
    arguments: list[Any]


class _Field(NamedTuple):
    """A column in an expression."""

    name: str


def _narrowed(expression: Any) -> tuple[Narrow, set[str] | None]:
    """How far a filter narrows the read, and the columns that it uses; None: any.

    The filter is read from pyarrow's form for pickling, which may change: what is not understood
    narrows nothing.
    """
    found = Narrow()
    try:
        tree, columns = _tree(expression)
        for part in _joined(tree):
            _take(found, part)
    except Exception:
        return Narrow(), None
    return found, columns


def _tree(expression: Any) -> tuple[Any, set[str]]:
    import pyarrow

    with pyarrow.ipc.open_file(expression.__reduce__()[1][0]) as file:
        constants = file.get_batch(0)
    columns: set[str] = set()
    items = iter(schema_metadata(constants.schema.__arrow_c_schema__()))
    waiting: list[_Call] = [_Call("", [])]
    for kind, text in items:
        if kind == b"call":
            waiting.append(_Call(text.decode(), []))
        elif kind == b"end":
            call = waiting.pop()
            waiting[-1].arguments.append(call)
        elif kind == b"field_ref":
            columns.add(text.decode())
            waiting[-1].arguments.append(_Field(text.decode()))
        elif kind == b"literal":
            waiting[-1].arguments.append(constants.column(int(text))[0])
        elif kind != b"options":
            raise ValueError(f"an expression has {kind!r}")
    [whole] = waiting
    [tree] = whole.arguments
    return tree, columns


def _joined(tree: Any) -> Iterator[Any]:
    """The parts that must all be true."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, _Call) and part.name in ("and_kleene", "and"):
            waiting += part.arguments
        else:
            yield part


def _take(found: Narrow, part: Any) -> None:
    op = _COMPARISONS.get(part.name) if isinstance(part, _Call) else None
    if op is None:
        return
    match part.arguments:
        case [_Field(name), constant] if not isinstance(constant, (_Call, _Field)):
            found.take(name, op, _value(name, constant))
        case [constant, _Field(name)] if not isinstance(constant, (_Call, _Field)):
            found.take(name, TURNED[op], _value(name, constant))


def _value(name: str, constant: Any) -> bytes | int | None:
    """The constant that a column is compared with, as Narrow takes it; None: narrows nothing."""
    from pyarrow import types

    kind = constant.type
    if not constant.is_valid:
        return None
    if name == "timestamp":
        per = {"us": 1, "ms": 1_000}.get(kind.unit) if types.is_timestamp(kind) else None
        return None if per is None else int(constant.value) * per
    if name == "key":
        is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
        return bytes(constant.as_py()) if is_bytes else None
    return int(constant.as_py()) if types.is_integer(kind) else None
