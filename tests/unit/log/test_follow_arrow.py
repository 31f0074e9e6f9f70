"""`Log.follow_arrow`: appended records as batches of columns."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors


def values(batches: Any) -> list[bytes]:
    return [value for batch in batches for value in batch.numpy("value")]


def test_present_and_later_records(tmp_path: Path) -> None:
    """Records of another thread arrive; closing the log ends it, as for `follow`."""
    with kafkalog.Log(tmp_path / "log") as log:
        log.append_many([b"a", b"b"])
        batches = log.follow_arrow(1, columns=["value"])
        assert values([next(batches)]) == [b"b"]
        late = threading.Thread(target=log.append, args=(b"c",))
        late.start()
        assert values([next(batches)]) == [b"c"]
        late.join()
        log.close()
        with pytest.raises(errors.Closed):
            next(batches)


def test_from_the_end_on(tmp_path: Path) -> None:
    with kafkalog.Log(tmp_path / "log") as log:
        log.append(b"before")
        batches = log.follow_arrow(columns=["value"], timeout_ms=0)
        log.append(b"after")
        assert values(batches) == [b"after"]


def test_it_ends_when_nothing_comes(tmp_path: Path) -> None:
    with kafkalog.Log(tmp_path / "log") as log:
        assert list(log.follow_arrow(timeout_ms=0)) == []
        log.append(b"a")
        assert values(log.follow_arrow(0, timeout_ms=1)) == [b"a"]


def test_markers_are_passed_over(tmp_path: Path) -> None:
    """An aborted transaction gives no records, and does not block."""
    with kafkalog.Store(tmp_path / "store") as store:
        with kafkalog.Producer(store, transactional_id="one") as producer:
            producer.begin_transaction()
            producer.send("t", b"gone").result()
            producer.abort_transaction()
            with producer.transaction():
                producer.send("t", b"kept")
        # The commit's marker may be written after the answer.
        batches = store["t"][0].follow_arrow(0, isolation="read_committed")
        assert values([next(batches)]) == [b"kept"]


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"start": "x"}, "start: found"),
        ({"start": -1}, "start: found -1"),
        ({"timeout_ms": -1}, "timeout_ms: found -1"),
        ({"timeout_ms": 1.5}, "timeout_ms: found"),
        ({"columns": ["valeu"]}, "did you mean 'value'"),
        ({"isolation": "none"}, "isolation"),
        ({"stop": 5}, "stop: `follow` has no end"),
    ],
)
def test_mistakes_are_reported_at_once(tmp_path: Path, named: dict[str, Any], said: str) -> None:
    with kafkalog.Log(tmp_path / "log") as log, pytest.raises(errors.ArgumentError, match=said):
        log.follow_arrow(**named)


def test_a_task_follows(tmp_path: Path) -> None:
    """It gets existing and new records; the event loop keeps running, and can cancel it."""

    async def follow(log: kafkalog.Log) -> list[bytes]:
        seen: list[bytes] = []
        async with contextlib.aclosing(log.follow_arrow(0, columns=["value"])) as batches:
            async for batch in batches:
                seen += list(batch.numpy("value"))
                if len(seen) == 3:
                    return seen
        return []

    async def run(log: kafkalog.Log) -> None:
        task = asyncio.create_task(follow(log))
        await asyncio.sleep(0)
        log.append(b"c")
        assert await task == [b"a", b"b", b"c"]
        waiting = asyncio.ensure_future(anext(log.follow_arrow()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        rest = log.follow_arrow(3, columns=["value"], timeout_ms=1)
        assert [batch async for batch in rest] == []

    with kafkalog.Log(tmp_path / "log") as log:
        log.append_many([b"a", b"b"])
        asyncio.run(run(log))
