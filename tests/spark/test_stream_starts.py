"""Where a new stream begins: words that stand for all partitions of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from tests.spark.engine import Checkpoint, Query
from tests.spark.test_stream_reader import append, values


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kafkalog.Store]:
    with kafkalog.Store(tmp_path / "data") as made:
        made.create_topic("t")
        yield made


@pytest.mark.parametrize(
    ("word", "wanted"),
    [('{"t": "earliest"}', ["old", "new"]), ('{"t": "latest"}', ["new"]),
     ('{"t": "latest", "u": {"0": -2}}', ["new", "other"])],
)  # fmt: skip
def test_a_word_stands_for_all_partitions_of_a_topic(
    store: kafkalog.Store, word: str, wanted: list[str]
) -> None:
    """Latest is pinned as without a topic's name: a driver may die before batch 0."""
    append(store, "t", 0, "old")
    store.create_topic("u")
    append(store, "u", 0, "other")
    checkpoint = Checkpoint()
    topics = "t,u" if "u" in word else "t"
    query = Query(store.path, checkpoint, subscribe=topics, startingOffsets=word)
    assert query.reader.initialOffset() == query.reader.initialOffset()
    if "latest" in word:
        query.trigger()
        assert values(checkpoint.rows) == []
    append(store, "t", 0, "new")
    query.drain()
    assert sorted(values(checkpoint.rows)) == sorted(wanted)
