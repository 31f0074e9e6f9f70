"""Work that is done once in one of Spark's Python workers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark_kafkalog import worker
from pyspark_kafkalog.source import KafkalogSource

from tests.spark.conftest import write_topic
from tests.spark.reading import reader_of
from tests.spark.writing import ddl, values

writes_streams = pytest.mark.skipif(
    not hasattr(datasource, "DataSourceStreamArrowWriter"),
    reason="writing streams needs PySpark 4.1",
)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Make all objects subject to collections: the tests' own process excludes them."""
    gc.unfreeze()
    worker._settled = 0
    yield
    worker._settled = 0
    gc.freeze()


@pytest.fixture
def inside() -> Iterator[None]:
    """A process in which Spark runs tasks."""
    TaskContext._getOrCreate()._localProperties = {}
    yield
    TaskContext._taskContext = None


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which Spark's driver plans and commits."""
    spec = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)


def assert_little_is_left() -> None:
    """Few objects are left for the collection that Spark's worker makes after a task."""
    assert len(gc.get_objects()) < gc.get_freeze_count() / 10


def test_garbage_collection_skips_imports_after_a_read(inside: None, tmp_path: Path) -> None:
    write_topic(tmp_path, "a", 1, 10)
    reader = reader_of(tmp_path, subscribe="a")
    (task,) = reader.partitions()
    for _ in range(2):
        assert sum(batch.num_rows for batch in reader.read(task)) == 10
        assert_little_is_left()


def test_garbage_collection_skips_imports_after_a_write(micro: Any) -> None:
    micro(0, values("a"))
    assert_little_is_left()


def test_garbage_collection_skips_imports_after_a_plan(planner: None, tmp_path: Path) -> None:
    write_topic(tmp_path, "a", 1, 10)
    reader_of(tmp_path, subscribe="a").partitions()
    assert_little_is_left()


@pytest.mark.parametrize("plans", ["writer", pytest.param("streamWriter", marks=writes_streams)])
def test_after_a_writers_plan_too(planner: None, tmp_path: Path, plans: str) -> None:
    source = KafkalogSource({"path": str(tmp_path), "topic": "t"})
    getattr(source, plans)(ddl("value binary"), False)
    assert_little_is_left()


def test_garbage_collection_skips_imports_of_a_commit(
    planner: None, micro: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first plan has settled the process, and the delivery imports more."""
    writer, messages = micro(0, values("a"))
    monkeypatch.setitem(sys.modules, "imported_by_a_delivery", ModuleType("imported"))
    kept = [[] for _ in range(gc.get_freeze_count() // 2)]
    writer.commit(messages, 0)
    assert_little_is_left()
    del kept


def test_a_process_that_is_no_worker_stays_as_it_is(tmp_path: Path) -> None:
    write_topic(tmp_path, "a", 1, 10)
    reader: Any = reader_of(tmp_path, subscribe="a")
    assert len(list(reader.read(reader.partitions()[0]))) == 1
    assert gc.get_freeze_count() == 0
