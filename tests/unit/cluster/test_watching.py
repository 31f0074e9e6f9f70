"""Following a session with ZooKeeper, over a stand-in for it: nothing ends that."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from kafkalog import errors
from kafkalog.cluster.node.session_watch import SessionWatch
from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper import entities
from kafkalog.zookeeper.session import Create, Delete, Life, Seen, open_session
from tests.support.waiting import wait_for

PROBLEMS = [errors.BadZnode("as said"), errors.ZooKeeperAway("as said"), RuntimeError("as said")]


class Told:
    """Receives events and reports; each report fails as often as `failing` says."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        self.events: queue.SimpleQueue[Life | Seen | None] = queue.SimpleQueue()
        self.changed: list[Sequence[entities.Entity]] = []
        self.begun = self.missed = 0
        self.failing = {"changed": 0, "begun": 0}

    def on_changed(self, changed: Sequence[entities.Entity]) -> None:
        self._fail("changed")
        self.changed.append(changed)

    def on_begun(self) -> None:
        self._fail("begun")
        self.begun += 1

    def on_missed(self) -> None:
        self.missed += 1

    def _fail(self, what: str) -> None:
        if self.failing[what]:
            self.failing[what] -= 1
            raise self.problem


@contextmanager
def watching(told: Told) -> Iterator[StandIn]:
    with StandIn() as inside:
        session = open_session(inside.hosts, told.events.put)
        session.ensure([entities.CHANGES])
        made = SessionWatch(
            session, told.events, told.on_changed, told.on_begun, missed=told.on_missed
        )
        made.start()
        try:
            yield inside
        finally:
            made.stop()
            session.close()


def change(inside: StandIn, name: str) -> None:
    """Notify of a change to a topic's settings."""
    said = entities.write_change(("topics", name))
    with open_session(inside.hosts, lambda _: None) as session:
        assert session.commit([Create(entities.CHANGE, said, sequence=True)]).done


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: type(one).__name__)
def test_a_change_that_cannot_be_taken_holds_up_no_new_session(problem: Exception) -> None:
    told = Told(problem)
    with watching(told) as inside:
        told.failing["changed"] = 1_000_000
        change(inside, "t")
        wait_for(lambda: told.failing["changed"] < 1_000_000, "it failed")
        told.events.put(Life.EXPIRED)
        told.events.put(Life.CONNECTED)
        wait_for(lambda: told.begun, "the new session is reported")
        told.failing["changed"] = 0
        wait_for(lambda: told.changed, "it is reported again, though nothing else happens")
    assert (told.begun, told.changed) == (1, [[("topics", "t")]])


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda one: type(one).__name__)
def test_a_new_session_is_told_until_it_is_taken(problem: Exception) -> None:
    """Then later changes are reported."""
    told = Told(problem)
    with watching(told) as inside:
        told.failing["begun"] = 2
        told.events.put(Life.EXPIRED)
        told.events.put(Life.CONNECTED)
        change(inside, "t")
        wait_for(lambda: told.changed, "it is reported")
    assert (told.begun, told.failing["begun"], told.changed) == (1, 0, [[("topics", "t")]])


def test_an_entity_that_fails_holds_up_no_others() -> None:
    told = Told(RuntimeError("as said"))
    taken: list[entities.Entity] = []

    def changed(some: Sequence[entities.Entity]) -> None:
        if ("topics", "bad") in some:
            raise told.problem
        taken.extend(some)

    told.on_changed = changed  # type: ignore[method-assign]
    with watching(told) as inside:
        for name in ("bad", "t", "bad", "u"):
            change(inside, name)
        wait_for(lambda: {("topics", "t"), ("topics", "u")} <= {*taken}, "the others")


def test_a_gap_is_reported_and_other_children_are_ignored() -> None:
    told = Told(RuntimeError("as said"))
    with watching(told) as inside, open_session(inside.hosts, lambda _: None) as session:
        change(inside, "t")
        wait_for(lambda: told.changed, "reported")
        said = entities.write_change(("topics", "u"))
        assert session.commit([
            Create(entities.CHANGE, said, sequence=True), Delete(f"{entities.CHANGE}{1:010d}"),
            Create(entities.CHANGE, said, sequence=True),
        ]).done  # fmt: skip
        wait_for(lambda: told.missed, "a gap")
        change(inside, "v")
        wait_for(lambda: len(told.changed) == 2, "it goes on")
    assert (told.missed, told.changed[1:]) == (1, [[("topics", "v")]])
