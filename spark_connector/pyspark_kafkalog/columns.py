"""The columns of Spark's Kafka source: names, Spark types, Arrow types, pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import BadOption
from .options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

NAMES = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""In the order of Spark's Kafka source.  All nullable, as there."""

_MAY_BE_NULL = frozenset(("key", "value", "headers"))


def default_columns(options: ReadOptions) -> tuple[str, ...]:
    """The columns of a read without a user's schema; headers only on request."""
    if options.columns is not None:
        return options.columns
    return NAMES if options.include_headers else NAMES[:-1]


def spark_types() -> dict[str, DataType]:
    """Name to Spark type."""
    from pyspark.sql import types as t

    header = t.StructType(
        [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]
    )
    return {
        "key": t.BinaryType(),
        "value": t.BinaryType(),
        "topic": t.StringType(),
        "partition": t.IntegerType(),
        "offset": t.LongType(),
        "timestamp": t.TimestampType(),
        "timestampType": t.IntegerType(),
        "headers": t.ArrayType(header),
    }


def arrow_types() -> dict[str, Any]:
    """Name to `pyarrow.DataType`: the only types that Spark accepts for these Spark types."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }


def schema_of(names: tuple[str, ...]) -> StructType:
    """The Spark schema of these columns."""
    from pyspark.sql.types import StructField, StructType

    types = spark_types()
    return StructType([StructField(name, types[name]) for name in names])


def chosen_columns(schema: StructType) -> tuple[str, ...]:
    """Our names for the columns of a schema, which must be a subset of ours with our types.

    Names are compared as Spark's SQL does, without case; order and spelling stay the schema's.

    Raises: BadOption, naming the column, what was found and what was wanted.
    """
    types = spark_types()
    by_lower_case = {name.lower(): name for name in NAMES}
    chosen: list[str] = []
    for field in schema.fields:
        name = by_lower_case.get(field.name.lower())
        if name is None:
            raise BadOption(
                f"schema: found the column {field.name!r}, wanted some of {', '.join(NAMES)}"
            )
        if field.dataType != types[name]:
            raise BadOption(
                f"schema: column {field.name!r}: found {field.dataType.simpleString()}, wanted "
                f"{types[name].simpleString()}; convert it after the load, for instance with cast"
            )
        if not field.nullable and name in _MAY_BE_NULL:
            raise BadOption(f"schema: column {field.name!r}: found NOT NULL, but it may be null")
        if name in chosen:
            raise BadOption(f"schema: found the column {field.name!r} twice")
        chosen.append(name)
    if not chosen:
        raise BadOption(f"schema: found no column, wanted some of {', '.join(NAMES)}")
    return tuple(chosen)


def check_columns(options: ReadOptions, schema: StructType) -> None:
    """A reader's schema, against the option `columns`.  Raises: BadOption."""
    chosen = chosen_columns(schema)
    if options.columns is not None and set(options.columns) != set(chosen):
        raise BadOption(
            f"option 'columns' says {', '.join(options.columns)}, but the schema says "
            f"{', '.join(chosen)}: give one of them"
        )


def arrow_schema(schema: StructType) -> Any:
    """The `pyarrow.Schema` that Spark wants for a checked schema.

    Spark compares names, order, types and nullability exactly.
    """
    import pyarrow as pa

    types = arrow_types()
    return pa.schema(
        [
            pa.field(field.name, types[name], nullable=field.nullable)
            for field, name in zip(schema.fields, chosen_columns(schema), strict=True)
        ]
    )
