"""A power cut at every step of a topic's deletion: the topic is there with its record, or gone with
its folder, and what was answered stays so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Broker
from tests.damage.enumerate.disk import Disk
from tests.damage.enumerate.starts import Cuts, Promise, first_record, recorded
from tests.damage.enumerate.trace import Step, renumbered
from tests.support.effort import examples

DRAWN = 60


def live(mark: Callable[..., None], path: Path) -> Broker:
    broker = first_record(mark, path)
    mark("goes")
    broker.store.delete_topic("t")
    mark("gone")
    return broker


class Deletion(Cuts):
    """From the request on."""

    def moments(self) -> Iterator[tuple[Step, Promise, Disk, bool]]:
        for moment in super().moments():
            if moment[1].goes:
                yield moment

    def _kept(self, broker: Broker, promise: Promise) -> str | None:
        topics = tuple(broker.store.topics)
        if topics and promise.gone:
            return f"the topics {topics} are back"
        if topics and [r.value for r in broker.store["t"][0].read()] != [b"value"]:
            return "the topic is there, and has lost its record"
        left = [path.name for path in self._path.glob("t-0*")]
        if not topics and "t-0" in left:
            return f"it has left {left}"
        return None if not broker._node.metadata.problems else "its folders are not the metadata's"


@pytest.fixture(scope="module")
def trace(native_test: Any, memory: Path) -> tuple[list[Step], Path]:
    root = memory / "deleted-topic"
    return recorded(root, live), root


@pytest.mark.explore
@pytest.mark.timeout(300)
def test_every_power_cut_of_a_deletion_leaves_the_topic_or_nothing_of_it(
    trace: tuple[list[Step], Path], memory: Path, rng: random.Random
) -> None:
    steps, root = trace
    cuts = Deletion(memory / "cut-of-a-deletion", root, steps, {})
    cuts.check(rng, examples(DRAWN))
    print(f"{len(steps)} steps, {cuts.states} different states")
    assert cuts.states > 3


def test_a_sync_that_is_left_out_is_found(
    trace: tuple[list[Step], Path], memory: Path, rng: random.Random
) -> None:
    """Cut in a deletion: the topic comes back, or its files are gone before it is."""
    steps, root = trace
    asked = next(step.number for step in steps if step.mark == ("goes",))
    left = [step for step in steps if step.number < asked or not step.syncs]
    assert len(left) < len(steps)
    cuts = Deletion(memory / "without-a-sync", root, renumbered(left), {})
    with pytest.raises(AssertionError, match=r"are back|has lost its record"):
        cuts.check(rng, 0)
