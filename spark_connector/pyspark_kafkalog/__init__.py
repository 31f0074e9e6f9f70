"""Kafka-format logs as a Spark data source: `spark.read.format("kafkalog")`.

PySpark finds the source by this package's name; `register(spark)` is for sessions where that
listing fails, for instance because another `pyspark_*` package on the path cannot be imported.

The import is light and never fails, since one failing package hides every source that PySpark
would find: without a PySpark that has Python data sources there is just no `DefaultSource`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    from .source import KafkalogSource as DefaultSource
except ImportError as error:
    _why_not = str(error)
    __all__ = ["register"]
else:
    _why_not = ""
    __all__ = ["DefaultSource", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("kafkalog")` known to this session.

    Raises: ImportError when this PySpark has no Python data sources (they came with 4.0).
    """
    if _why_not:
        raise ImportError(f"kafkalog needs PySpark 4.0 or later: {_why_not}")
    spark.dataSource.register(DefaultSource)
