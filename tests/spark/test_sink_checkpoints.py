"""A checkpoint that was copied, moved, restored or started again: which rows the sink writes.

Two queries with copies of one checkpoint have the same id, and number their batches alike.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog.sink.rows import SinkError

from tests.spark.test_sink_memory import QUERY, written
from tests.spark.writing import values

Deliver = Callable[..., None]


@pytest.fixture
def deliver(micro: Any, tmp_path: Path) -> Deliver:
    """`deliver(checkpoint, number, rows...)`: a micro-batch of a query with this checkpoint."""

    def run(
        checkpoint: str, number: int, *rows: str, query: str = QUERY, below: str = "", **given: str
    ) -> None:  # fmt: skip
        place = {"checkpointLocation": str(tmp_path / checkpoint)} if checkpoint else {}
        if below:
            given["below"] = str(tmp_path / below)
        writer, messages = micro(number, values(*rows), query=query, **place, **given)
        try:
            writer.commit(messages, number)
        except SinkError:
            writer.abort(messages, number)
            raise

    return run


@pytest.mark.parametrize("copys_rows", [["b"], ["b", "c"]], ids=["as-many", "more"])
def test_two_queries_with_copies_of_a_checkpoint(
    deliver: Deliver, tmp_path: Path, copys_rows: list[str]
) -> None:
    """The second query to use a number fails, with any number of rows: no row of the other query is
    written twice, and none is silently left out."""
    deliver("one", 0, "a")
    deliver("one", 1, "b")
    for _ in range(2):
        with pytest.raises(SinkError, match=rf"query {QUERY}, batch 1: .*up to 1.*/one; .*/copy"):
            deliver("copy", 1, *copys_rows)
    deliver("one", 2, "c")
    assert written(tmp_path / "data") == {"t": ["a", "b", "c"]}
    assert not (tmp_path / "data.staging").exists()


def test_the_copy_that_is_ahead_goes_on(
    deliver: Deliver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Which of the two is the copy cannot be known; the change is worth a warning."""
    deliver("one", 0, "a")
    assert not caplog.records
    deliver("copy", 1, "b")
    assert "/one" in caplog.messages[0] and "/copy" in caplog.messages[0]
    with pytest.raises(SinkError, match="batch 1: "):
        deliver("one", 1, "b")
    deliver("copy", 2, "c")
    assert len(caplog.messages) == 1
    assert written(tmp_path / "data") == {"t": ["a", "b", "c"]}


def test_a_copy_with_a_sink_id_of_its_own_writes_again(deliver: Deliver, tmp_path: Path) -> None:
    for number, row in enumerate("ab"):
        deliver("one", number, row)
    deliver("copy", 1, "b", sinkId="copy")
    deliver("copy", 2, "c", sinkId="copy")
    deliver("one", 2, "c")
    assert written(tmp_path / "data") == {"t": ["a", "b", "b", "c", "c"]}


def test_a_moved_checkpoint_goes_on_by_the_querys_id(
    deliver: Deliver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the error says: its last batch comes again, and is dropped with a warning."""
    deliver("one", 0, "a")
    with pytest.raises(SinkError, match=f"'sinkId'.*{QUERY}"):
        deliver("moved", 0, "a")
    assert not caplog.records
    deliver("moved", 0, "a", sinkId=QUERY)
    assert "/moved" in caplog.text
    deliver("moved", 1, "b", sinkId=QUERY)
    assert written(tmp_path / "data") == {"t": ["a", "b"]}


@pytest.mark.parametrize("checkpoint", ["one", ""], ids=["known", "of-the-session"])
def test_a_checkpoint_restored_from_a_backup(
    deliver: Deliver, tmp_path: Path, checkpoint: str
) -> None:
    """Its batches may end elsewhere than the stored ones of the same numbers."""
    for number, row in enumerate("abc"):
        deliver(checkpoint, number, row)
    with pytest.raises(SinkError, match=r"batch 1: .*up to 2"):
        deliver(checkpoint, 1, "b", "c", "d")
    assert written(tmp_path / "data") == {"t": ["a", "b", "c"]}


@pytest.mark.parametrize("name", ["", "etl"], ids=["drawn", "named"])
def test_a_checkpoint_of_the_session(deliver: Deliver, tmp_path: Path, name: str) -> None:
    """Below spark.sql.streaming.checkpointLocation, under the query's name or one that Spark draws.
    A copy of it is detected, and passing the same folder as an option changes nothing."""
    named = {"queryName": name} if name else {}
    own = tmp_path / "all" / (name or "drawn")
    for place, query in ((tmp_path / "all" / "other", "other"), (own, QUERY)):
        place.mkdir(parents=True)
        (place / "metadata").write_text(f'{{"id":"{query}"}}')
    (tmp_path / "all" / "none").mkdir()
    deliver("", 0, "a", below="all", **named)
    deliver("", 0, "a", below="all", **named)
    deliver(f"all/{own.name}", 0, "a")
    with pytest.raises(SinkError, match=rf"/{own.name}; this one is .*/copy, a copy"):
        deliver("copy", 0, "a")
    deliver("", 1, "b", below="all", **named)
    assert written(tmp_path / "data") == {"t": ["a", "b"]}


def test_a_checkpoint_is_the_same_however_it_is_written(
    deliver: Deliver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last batch comes again after a crash."""
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    monkeypatch.chdir(tmp_path)
    deliver("one", 0, "a")
    for text in ("one/", "link", f"file://{tmp_path}/one", "./one"):
        deliver("", 0, "a", checkpointLocation=text)
    assert written(tmp_path / "data") == {"t": ["a"]}


def test_a_new_checkpoint_for_an_old_sink(
    deliver: Deliver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new query, which reads and writes everything again, unless a sinkId says it is the same:
    then its numbers up to the old one's last are dropped, with a warning for each."""
    for given in ({}, {"sinkId": "s"}):
        for number, row in enumerate("ab"):
            deliver("old", number, row, query="old", **given)
    assert not caplog.records
    for number, row in enumerate("abc"):
        deliver("new", number, row, query="new")
    assert not caplog.records
    for number, row in enumerate("abc"):
        deliver("new", number, row, query="new", sinkId="s")
    assert [one for one in caplog.messages if "of another query, old" in one] == caplog.messages[:2]
    assert len(caplog.messages) == 2
    assert written(tmp_path / "data") == {"t": [*"abab", *"abc", "c"]}
