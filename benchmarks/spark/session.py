"""Spark sessions as users have them, with Spark's own Kafka source and kafkalog's."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import apache

__all__ = ["CEILING", "KAFKA_SOURCE", "OURS", "PARQUET", "kafka_source", "spark_session"]

OURS, CEILING = "kafkalog", "prebuilt batches"
KAFKA_SOURCE = f"Spark's Kafka source, Kafka {apache.VERSION}"
PARQUET = "parquet"
ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).with_name("pom.xml")


def kafka_source() -> Path | None:
    """The folder with the jars of Spark's Kafka source; None if they cannot be downloaded here."""
    try:
        return apache.fetched(POM, "spark-kafka-4.2.0", "kafka-clients-3.9.2.jar")
    except apache.Unavailable:
        return None


@contextmanager
def spark_session(slots: int, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session of `slots` tasks at a time; the Java process stays for the next session."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17, and there is no java here")
    from pyspark.sql import SparkSession

    from benchmarks.spark.prebuilt import PrebuiltSource

    paths = [str(ROOT), str(ROOT / "spark_connector"), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = (
            SparkSession.builder.master(f"local[{slots}]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
            .config("spark.sql.shuffle.partitions", str(slots))
            .config("spark.python.unix.domain.socket.enabled", "true")
        )
        if jars := kafka_source():
            builder = builder.config("spark.driver.extraClassPath", f"{jars}/*")
        for name, value in (settings or {}).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("FATAL")
        session.dataSource.register(PrebuiltSource)
        try:
            yield session
        finally:
            session.stop()
