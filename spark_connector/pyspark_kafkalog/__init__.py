"""Kafka-format logs as a Spark data source: `spark.read.format("kafkalog")`.

PySpark finds the source by this package's name; `register(spark)` is for sessions where that
listing fails, for instance because another `pyspark_*` package on the path cannot be imported.

The import is light and never fails, since one failing package hides every source that PySpark
would find: without a PySpark that has Python data sources there is just no `DefaultSource`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from .lag import Lag, lag

try:
    from .source import KafkalogSource as DefaultSource
except ImportError as error:
    _why_not = str(error)
    __all__ = ["Lag", "lag", "register"]
else:
    _why_not = ""
    __all__ = ["DefaultSource", "Lag", "lag", "register"]

IMPORT_S = 60
"""How long importing the two packages may take."""


def register(spark: SparkSession) -> None:
    """Make `format("kafkalog")` known to this session, and to the calling thread.

    Spark looks for a Python source in the thread's active session, and a thread that Python created
    has none: there a write fails with DATA_SOURCE_NOT_FOUND, whatever was registered.

    Raises: ImportError if this PySpark has no Python data sources (they came with 4.0), or if the
    Python of Spark's workers has no kafkalog.
    """
    if _why_not:
        raise ImportError(f"kafkalog needs PySpark 4.0 or later: {_why_not}")
    worker = _other_python()
    if worker and not _knows_us(worker):
        raise ImportError(
            f"Spark runs {worker}, which has no kafkalog; this is {sys.executable}. Set "
            f"PYSPARK_PYTHON={sys.executable} before the session begins"
        )
    spark.dataSource.register(DefaultSource)
    spark.createDataFrame([], "unused int")  # makes the session the thread's active one


def _knows_us(worker: str) -> bool:
    """True if a Python can import the modules that its part of the work needs.

    Otherwise Spark finds out only when it makes a plan, and reports a traceback of that Python.
    """
    words = [worker, "-c", "import kafkalog, pyspark_kafkalog"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=IMPORT_S)
    except subprocess.TimeoutExpired:
        return True  # a machine that slow has its reasons; Spark will say more
    except OSError:
        return False
    return done.returncode == 0


def _other_python() -> str | None:
    """The Python of Spark's workers, if it belongs to another environment than this one."""
    name = os.environ.get("PYSPARK_PYTHON") or "python3"
    worker = shutil.which(name) or name
    same = os.path.dirname(os.path.abspath(worker)) == os.path.dirname(sys.executable)
    return None if same else worker
