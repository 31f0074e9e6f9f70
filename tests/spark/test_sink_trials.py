"""A table of trials: a driver dies in each step of a delivery, something happens to the topic, and
the batch runs again from its checkpoint.

Committed at the end: each row once, except those that the event itself removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog.sink import delivery

import kafkalog
from tests.spark.test_sink import STEPS, written
from tests.spark.writing import values

TASKS = 2


def nothing(data: Path) -> None:
    pass


def retention(data: Path) -> None:
    """Delete everything in the topic."""
    with kafkalog.Store(data) as store:
        for log in store["t"]:
            log.delete_before(log.last_stable_offset)


def deletion(data: Path) -> None:
    """Recreate the topic: the last batch comes again, into the new topic, because what the target
    remembers of the sink is deleted with the old one."""
    with kafkalog.Store(data) as store:
        store.delete_topic("t")
        store.create_topic("t")


def growth(data: Path) -> None:
    with kafkalog.Store(data) as store:
        store.admin.create_partitions({"t": 2})


EVENTS: list[Callable[[Path], None]] = [nothing, retention, deletion, growth]


# All of them take most of a minute: every run has one for each event.
SHORT = [("_target", nothing), ("_write", deletion), ("forget", retention), ("_write", growth)]
TRIALS = [
    pytest.param(
        step, event,
        id=f"{step}-{event.__name__}",
        marks=() if (step, event) in SHORT else pytest.mark.long,
    )
    for step in STEPS for event in EVENTS
]  # fmt: skip


def rows(number: int) -> list[list[Any]]:
    """Rows of a micro-batch: one from each task."""
    return [values(f"{number}-{task}") for task in range(TASKS)]


def die(writer: Any, messages: list[Any], number: int, step: str, after: bool) -> None:
    """In a separate process, a driver dies during a delivery."""
    child = os.fork()
    if not child:
        real = getattr(delivery, step)

        def dies(*args: Any) -> Any:
            if after:
                found = real(*args)
                if step == "_target":
                    found.__enter__()
            os._exit(9)

        setattr(delivery, step, dies)
        try:
            writer.commit(messages, number)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9


@pytest.mark.parametrize(("step", "event"), TRIALS)
def test_a_delivery_breaks_off_and_the_topic_changes(
    micro: Any, tmp_path: Path, step: str, event: Callable[[Path], None]
) -> None:
    """After `_write` and `forget` the batch is there, and not written again."""
    data = tmp_path / "data"
    with kafkalog.Store(data) as store:
        store.create_topic("t")
    for number in range(2):
        writer, messages = micro(number, *rows(number))
        if not number:
            writer.commit(messages, number)
    delivered = step in ("_write", "forget")
    die(writer, messages, 1, step, after=True)
    event(data)
    for number in (1, 2):
        micro(number, rows(number)[0])  # an attempt of a task that is not named
        writer, messages = micro(number, *rows(number))
        writer.commit(messages, number)
    first = {retention: 2 if delivered else 1, deletion: 1}.get(event, 0)
    wanted = [f"{number}-{task}" for number in range(first, 3) for task in range(TASKS)]
    assert sorted((value or b"").decode() for *_, value in written(data)["t"]) == wanted
    assert not (tmp_path / "data.staging").exists()
