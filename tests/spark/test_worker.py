"""What is done once in a Python worker of Spark."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark_kafkalog import worker

from tests.spark.conftest import write_topic
from tests.spark.reading import reader_of
from tests.spark.writing import values


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """All objects are subject to collections, which the tests' own process leaves out."""
    gc.unfreeze()
    worker.settle.cache_clear()
    yield
    worker.settle.cache_clear()
    gc.freeze()


@pytest.fixture
def inside() -> Iterator[None]:
    """A process that Spark runs tasks in."""
    TaskContext._getOrCreate()._localProperties = {}
    yield
    TaskContext._taskContext = None


def assert_little_is_left() -> None:
    """For the collection that Spark's worker makes after a task."""
    assert len(gc.get_objects()) < gc.get_freeze_count() / 10


def test_after_a_read_collections_leave_out_what_is_imported(inside: None, tmp_path: Path) -> None:
    write_topic(tmp_path, "a", 1, 10)
    reader = reader_of(tmp_path, subscribe="a")
    (task,) = reader.partitions()
    for _ in range(2):
        assert sum(batch.num_rows for batch in reader.read(task)) == 10
        assert_little_is_left()


def test_after_a_write_collections_leave_out_what_is_imported(micro: Any) -> None:
    micro(0, values("a"))
    assert_little_is_left()


def test_a_process_that_is_no_worker_stays_as_it_is(tmp_path: Path) -> None:
    write_topic(tmp_path, "a", 1, 10)
    reader: Any = reader_of(tmp_path, subscribe="a")
    assert len(list(reader.read(reader.partitions()[0]))) == 1
    assert gc.get_freeze_count() == 0
