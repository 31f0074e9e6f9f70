"""Attempts of a task that Spark does not count: those of executors it gave up, and speculative ones
that finished second.  They may go on writing after the batch was delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog.sink.rows import SinkError

from tests.spark.test_sink_memory import written
from tests.spark.writing import again, values

ROWS = 3


def rows(*before: Callable[[], None]) -> Iterator[Any]:
    """A task's rows; each function of `before` is called before one of the first rows."""
    for number, row in enumerate(values(*map(str, range(ROWS)))):
        if number < len(before):
            before[number]()
        yield row


def nothing() -> None:
    """Do nothing before this row."""


@pytest.mark.parametrize("delivered_before", range(ROWS))
def test_an_attempt_that_goes_on_after_the_delivery(
    micro: Any, tmp_path: Path, delivered_before: int
) -> None:
    """It fails, its staged rows are removed, and its rows are not written."""
    writer, messages = micro(0, list(rows()))
    deliver = [nothing] * delivered_before + [lambda: again(writer).commit(messages, 0)]
    with pytest.raises(SinkError, match="staging below"):
        writer.write(rows(*deliver))
    assert not (tmp_path / "data.staging").exists()
    assert written(tmp_path / "data") == {"t": ["0", "1", "2"]}


def test_two_attempts_at_a_time(micro: Any, tmp_path: Path) -> None:
    """Each stages separately; the one that Spark names is written, and both leave nothing."""
    writer, _ = micro(0)
    found: list[Any] = []
    writer.write(rows(nothing, lambda: found.append(again(writer).write(rows()))))
    again(writer).commit(found, 0)
    assert not (tmp_path / "data.staging").exists()
    assert written(tmp_path / "data") == {"t": ["0", "1", "2"]}


def test_an_attempt_that_was_killed_leaves_nothing(micro: Any, tmp_path: Path) -> None:
    """Its folder is removed with the batch: after SIGKILL it cannot clean up itself."""
    writer, messages = micro(0, values("a"))
    left = Path(messages[0].folder).with_name("of-a-dead-executor")
    left.mkdir()
    (left / f"{0:020}.log").write_bytes(b"half a batch")
    again(writer).commit(messages, 0)
    assert not (tmp_path / "data.staging").exists()
