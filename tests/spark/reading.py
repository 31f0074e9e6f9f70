"""A batch reader as Spark uses one, without a JVM."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from pyspark.cloudpickle import cloudpickle
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.columns import NAMES, schema_of

Read = tuple[list[Any], list[tuple[str, int, int]]]


def sparks_arrow_schema(schema: Any) -> Any:
    """The schema in which Spark wants batches; PySpark 4.0 knows no other time zone."""
    named = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **({"timezone": "UTC"} if named else {}))


def reader_of(path: Path, columns: tuple[str, ...] = NAMES, **options: str) -> Any:
    """A reader of a path; `__` in an option's name stands for a dot."""
    return reader({"path": str(path), **options}, columns)


def reader(options: dict[str, str], columns: tuple[str, ...] = NAMES) -> Any:
    """A reader; Spark passes option names in lower case."""
    given = {name.replace("__", ".").lower(): text for name, text in options.items()}
    return DefaultSource(given).reader(schema_of(columns))


def run(reader: Any, columns: tuple[str, ...] = NAMES) -> Read:
    """Plan and read: the tasks, and the rows as (topic, partition, offset)."""
    tasks, batches = batches_of(reader, columns)
    rows: list[tuple[str, int, int]] = []
    names = ("topic", "partition", "offset")
    if {*names} <= {*columns}:
        for batch in batches:
            rows += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    return tasks, rows


def batches_of(reader: Any, columns: tuple[str, ...] = NAMES) -> tuple[list[Any], list[Any]]:
    """Plan and read as Spark does, reader and partitions pickled: the tasks, the batches."""
    schema = sparks_arrow_schema(schema_of(columns))
    tasks = [cloudpickle.loads(cloudpickle.dumps(task)) for task in reader.partitions()]
    batches = []
    for task in tasks:
        for batch in cloudpickle.loads(cloudpickle.dumps(reader)).read(task):
            assert batch.schema.equals(schema)
            batches.append(batch)
    return tasks, batches
