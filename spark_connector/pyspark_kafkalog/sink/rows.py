"""A query's rows as columns of records, by the topic and partition that they go to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import BadOption
from .options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

TARGETS_MAX = 10_000
"""Most topics and partitions that one task may write to."""

PARTITIONS = 1 << 32
"""More than a topic can have."""


class SinkError(RuntimeError):
    """Rows could not be written."""


class Target(NamedTuple):
    """Where records go; partition None: the partitioner decides."""

    topic: str
    partition: int | None


class Rows(NamedTuple):
    """Columns of one length, as `Log.append_many` takes them."""

    values: Any
    keys: Any = None
    timestamps_ms: Any = None
    headers: Any = None


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Check that a query's columns are those of a record; others are left out.

    Raises: BadOption, in the words of Spark's Kafka sink.
    """
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise BadOption(
            f"Required attribute 'value' not found: found {', '.join(fields) or 'no column'}"
        )
    if options.topic is None and "topic" not in fields:
        raise BadOption(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic."
        )
    for name, wanted in _types().items():
        found = fields.get(name)
        if found is None or (name == "headers" and not options.include_headers):
            continue
        if found.simpleString() not in {kind.simpleString() for kind in wanted}:
            raise BadOption(
                f"{name} attribute unsupported type {found.simpleString()}. {name} must be a(n) "
                f"{' or '.join(kind.simpleString() for kind in wanted)}"
            )


def _types() -> dict[str, tuple[DataType, ...]]:
    from pyspark.sql import types as t

    from ..columns import spark_types

    text = (t.StringType(), t.BinaryType())
    return {
        "value": text,
        "key": text,
        "topic": (t.StringType(),),
        "partition": (t.IntegerType(),),
        "timestamp": (t.TimestampType(),),
        "headers": (spark_types()["headers"],),
    }


def by_target(batch: Any, options: WriteOptions, now_ms: int) -> Iterator[tuple[Target, Rows]]:
    """The rows of a `pyarrow.RecordBatch`, in their order for each target.

    `now_ms`: the timestamp of rows without one.

    Raises: SinkError for a row without a topic, or with an impossible partition.
    """
    import numpy as np
    import pyarrow as pa

    topics = [options.topic] if options.topic is not None else _topics(batch)
    numbers = batch.column("partition") if "partition" in batch.schema.names else None
    if numbers is not None and numbers.null_count == len(numbers):
        numbers = None
    if len(topics) == 1 and numbers is None:
        yield Target(topics[0], None), _rows(batch, options, now_ms)
        return
    # Sorted by target, then by the original order: a target's rows are consecutive and in order.
    of = _places(batch, topics, numbers)
    order = np.argsort(of, kind="stable")
    together = batch.take(pa.array(order))
    begins = np.flatnonzero(np.diff(of[order], prepend=-1)).tolist()
    for first, end in zip(begins, [*begins[1:], len(order)], strict=True):
        topic, number = divmod(int(of[order[first]]), PARTITIONS)
        rows = _rows(together.slice(first, end - first), options, now_ms)
        yield Target(topics[topic], number - 1 if number else None), rows


def _places(batch: Any, topics: list[str], numbers: Any) -> Any:
    """A number for each row: topic * PARTITIONS + partition + 1, or + 0 for no partition."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    of = np.zeros(len(batch), "i8")
    if len(topics) > 1:
        of += (
            pc.index_in(batch.column("topic"), pa.array(topics)).to_numpy().astype("i8")
            * PARTITIONS
        )
    if numbers is not None:
        least = pc.min(numbers).as_py()
        if least is not None and least < 0:
            raise SinkError(f"partition: found {least}, wanted a number from 0 on, or null")
        of += numbers.cast(pa.int64()).fill_null(-1).to_numpy() + 1
    return of


def _topics(batch: Any) -> list[str]:
    column = batch.column("topic")
    if column.null_count:
        raise SinkError(
            "KAFKA_NULL_TOPIC_IN_DATA: a row has no topic. Use the topic option, or fill the column"
        )
    found: list[str] = column.unique().to_pylist()
    return found


def _rows(batch: Any, options: WriteOptions, now_ms: int) -> Rows:
    names = batch.schema.names
    times = batch.column("timestamp") if "timestamp" in names else None
    headers = None
    if options.include_headers and "headers" in names:
        column = batch.column("headers")
        if column.null_count < len(column):
            headers = column
    return Rows(
        _bytes(batch.column("value")),
        _bytes(batch.column("key")) if "key" in names else None,
        _milliseconds(times, len(batch), now_ms),
        headers,
    )


def _bytes(column: Any) -> Any:
    import pyarrow as pa

    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _milliseconds(column: Any, count: int, now_ms: int) -> Any:
    import numpy as np
    import pyarrow as pa

    if column is None:
        return np.full(count, now_ms, "i8")
    given = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    if given.null_count:
        given = given.fill_null(now_ms * 1000)
    return given.to_numpy(zero_copy_only=False) // 1000
