"""Kafka-format logs as a Spark data source: `spark.read.format("kafkalog")`.

PySpark finds the source by this package's name; `register(spark)` is for sessions where that
listing fails, for instance because another `pyspark_*` package on the path cannot be imported.

The import is light and never fails, since one failing package hides every source that PySpark
would find: without a PySpark that has Python data sources there is just no `DefaultSource`.
"""

from __future__ import annotations

import os
import shutil
import sys
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

    Raises: ImportError when this PySpark has no Python data sources (they came with 4.0), or
    when Spark's own Python has no kafkalog.
    """
    if _why_not:
        raise ImportError(f"kafkalog needs PySpark 4.0 or later: {_why_not}")
    try:
        spark.dataSource.register(DefaultSource)
    except Exception as problem:
        if worker := _other_python():
            raise ImportError(
                f"Spark runs {worker}, which has no kafkalog; this is {sys.executable}. Set "
                f"PYSPARK_PYTHON={sys.executable} before the session begins"
            ) from problem
        raise


def _other_python() -> str | None:
    """The Python that Spark's workers are, where it is of another environment than this one."""
    name = os.environ.get("PYSPARK_PYTHON") or "python3"
    worker = shutil.which(name) or name
    same = os.path.dirname(os.path.abspath(worker)) == os.path.dirname(sys.executable)
    return None if same else worker
