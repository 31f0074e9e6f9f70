"""The ceiling of any Python source: one ready-made Arrow batch, yielded over and over.

The same columns, as many rows, in batches of the size that our source makes.  The additional
time of our source is what reading, checking and decoding the log costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

__all__ = ["PrebuiltSource"]


class PrebuiltSource(DataSource):
    """`rows` rows for each of `partitions` partitions, all of them the first batch of the topic.

    Options: path, subscribe (one topic), partitions, rows, columns.
    """

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> Any:
        from pyspark_kafkalog.columns import NAMES, schema_of

        wanted = self.options.get("columns", ",".join(NAMES[:-1]))
        return schema_of(tuple(wanted.split(",")))

    def reader(self, schema: Any) -> PrebuiltReader:
        return PrebuiltReader(dict(self.options), schema)

    def streamReader(self, schema: Any) -> PrebuiltStream:
        return PrebuiltStream(dict(self.options), schema)


class PrebuiltReader(DataSourceReader):
    def __init__(self, options: dict[str, str], schema: Any) -> None:
        self.options, self.schema = options, schema
        self.rows = int(options["rows"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(int(self.options["partitions"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition is None or partition.value is None:  # what Spark makes of no partitions
            return
        batch = first_batch(self.options, partition.value, self.schema)
        for at in range(0, self.rows, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, self.rows - at))


class PrebuiltStream(PrebuiltReader, DataSourceStreamReader):
    """Each batch of the stream is `rows` rows a partition; there is always another."""

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        return {"batch": (start or {"batch": 0})["batch"] + 1}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [InputPartition(number) for number in range(int(self.options["partitions"]))]

    def commit(self, end: Any) -> None:
        """Nothing is kept."""


def first_batch(options: dict[str, str], partition: int, schema: Any) -> Any:
    """The first batch of our source, as large as it makes them."""
    from pyspark_kafkalog import DefaultSource

    assign = f'{{"{options["subscribe"]}":[{partition}]}}'
    ours = DefaultSource({"path": options["path"], "assign": assign}).reader(schema)
    return next(iter(ours.read(ours.partitions()[0])))
