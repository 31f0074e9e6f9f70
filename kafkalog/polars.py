"""Topics as polars lazy frames: a query reads only what it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kafkalog.errors import MissingPackage
from kafkalog.frames import Where, check_where, scan_of
from kafkalog.log.scan.scan import column_bits
from kafkalog.log.scan.topic import TopicScan
from kafkalog.pushdown import narrow, predicate_tree

if TYPE_CHECKING:
    import polars

__all__ = ["scan"]

CONSTANT_ROWS = 1 << 19
"""Rows of a frame whose rows are all the same (2 MiB): each frame costs polars 50 µs."""


def scan(
    where: Where,
    topic: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> polars.LazyFrame:
    """A topic as a `polars.LazyFrame`, read again by each `collect`.

    Only the columns that the query wants are decoded, and `head` ends the read.  Filters that
    compare offset, timestamp, partition or key with a constant narrow the read: what they
    exclude is not read, or not decoded.  All filters are applied to each batch as it comes.
    `where`: a Store, a Log, or the path of a directory, which may be written to at the same time.
    `columns` and `options`: as `Store.scan`.

    Raises: ArgumentError, MissingPackage; collecting: UnknownTopicOrPartition, NotFound, and
    what a scan raises, as polars reports it.
    """
    try:
        import polars
        from polars.io.plugins import register_io_source
    except ImportError as problem:
        raise MissingPackage("polars: not installed; pip install polars") from problem
    check_where(where)
    names, _ = column_bits(columns)
    schema = _schema(names)

    def source(
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        wanted = names if with_columns is None else with_columns
        given = {"batch_rows": batch_size, **options} if batch_size else options
        # A query that counts rows may want no column: the cheapest one gives the number.
        if predicate is not None and n_rows is None:  # n_rows counts before any filter
            given = narrow(predicate_tree(predicate)).scan_options(given)
        with scan_of(where, topic, columns=wanted or ["offset"], **given) as rows:
            if wanted == ["partition"] and predicate is None and n_rows is None:
                yield from _partition_column(rows, schema)
                return
            left = n_rows
            for batch in rows.view_batches() if left != 0 else ():
                frame = polars.DataFrame(batch)
                if left is not None:  # of the rows read, before any filter
                    frame = frame.head(left)
                    left -= len(frame)
                if predicate is not None:
                    frame = frame.filter(predicate)
                yield frame.select(wanted)
                if left == 0:
                    return

    return register_io_source(source, schema=schema)


@lru_cache(maxsize=64)
def _schema(names: tuple[str, ...]) -> polars.Schema:
    import polars

    return polars.DataFrame(TopicScan([], columns=names)).schema


def _partition_column(rows: TopicScan, schema: Any) -> Iterator[polars.DataFrame]:
    """The partition of each row, in frames of at most CONSTANT_ROWS, by counting.

    polars asks for it to count rows: it is the narrowest column.
    """
    import polars

    most = CONSTANT_ROWS
    for partition, count in rows.counts():
        numbers = polars.repeat(partition, min(count, most), dtype=schema["partition"], eager=True)
        frame = numbers.alias("partition").to_frame()
        for first in range(0, count, most):
            yield frame.head(count - first)
