"""A write without a JVM: objects that travel to the executors and back, and rows to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import types
from pyspark_kafkalog.columns import spark_types

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES = {
    "binary": types.BinaryType(), "string": types.StringType(), "int": types.IntegerType(),
    "bigint": types.LongType(), "double": types.DoubleType(), "timestamp": types.TimestampType(),
    "headers": spark_types()["headers"],
}  # fmt: skip
SCHEMAS = {
    "value": "value binary",
    "plain": "key binary, value binary",
    "text": "key string, value string",
    "all": "key binary, value binary, topic string, partition int, timestamp timestamp, "
    "headers headers, more double",
}


def ddl(text: str) -> types.StructType:
    """A schema; Spark's own parser of such texts needs a JVM."""
    fields = [one.split() for one in text.split(", ")]
    return types.StructType([types.StructField(name, TYPES[kind]) for name, kind in fields])


def again(thing: Any) -> Any:
    """The object as another process receives it."""
    return cloudpickle.loads(cloudpickle.dumps(thing))


def batch(schema: str = "value", **columns: Any) -> pa.RecordBatch:
    types = {
        "key": pa.string() if schema == "text" else pa.binary(),
        "value": pa.string() if schema == "text" else pa.binary(),
        "topic": pa.string(), "partition": pa.int32(), "headers": pa.list_(HEADER),
        "timestamp": pa.timestamp("us", tz="America/New_York"), "more": pa.float64(),
    }  # fmt: skip
    names = list(columns)
    return pa.record_batch([pa.array(columns[n], types[n]) for n in names], names)


def values(*some: str) -> list[pa.RecordBatch]:
    return [batch(value=[one.encode()]) for one in some]


Job = Callable[..., None]
