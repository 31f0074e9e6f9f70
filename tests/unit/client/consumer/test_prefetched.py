"""Prefetched records of an asyncio consumer, simulated: whatever happens in between, a
record is handed out once, in order, and only while no other member has its partition.

The model below has positions, a membership that it can lose, and records without end.  In its
calls the event loop has turns, as it has while the consumer's thread works.

P1  per partition the records that are handed out follow one another, from where the last seek or
    assignment began
P2  none is handed out after the membership was lost, until a poll has reported that
P3  no commit is beyond what was handed out, and the last one is exactly there
P4  the position that a caller sees is behind the last record that was handed out
P5  a failure of a poll is raised once, to the next caller, unless a seek came first
P6  after the end nothing is handed out
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.consumer.prefetched import Prefetched
from kafkalog.types import Record, TopicPartition
from tests.support import simulated
from tests.support.simulated import simulation

TPS = [TopicPartition("t", number) for number in range(3)]
STEPS = 120
SEEDS = 150


class Batch:
    """Columns of one partition."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def numpy(self, name: str) -> list[Any]:
        return [getattr(one, name) for one in self.records]


class Failure(Exception):
    """A poll's failure; `partition`: as kafkalog's errors name one."""

    def __init__(self, number: int, partition: TopicPartition | None) -> None:
        super().__init__(number)
        self.number = number
        self.partition = partition


class Model(simulated.World):
    """A consumer, its thread, and the loop that takes from it."""

    def __init__(self, seed: int, kind: type[Prefetched]) -> None:
        super().__init__(seed)
        self.ahead = kind(self)
        self.ahead.sure_s = 0.0
        self.positions = dict.fromkeys(TPS, 0)
        self.paused: set[TopicPartition] = set()
        self.committed = dict.fromkeys(TPS, 0)
        self.next = dict.fromkeys(TPS, 0)
        """The offset that is handed out next."""
        self.holds = True
        self.over = False
        self.failures = 0
        self.untold: int | None = None

    # ---- the consumer --------------------------------------------------------------------

    def _holds(self) -> bool:
        return self.holds

    def _go_back(self, firsts: Mapping[TopicPartition, int]) -> None:
        self.loop_turn()
        for tp, offset in firsts.items():
            if tp in self.positions:
                self.positions[tp] = offset
        self.loop_turn()

    def _committable(self) -> dict[TopicPartition, CommittedOffset]:
        found = {tp: CommittedOffset(at) for tp, at in self.positions.items()}
        self.loop_turn()
        return found

    def _committed_at(self, tp: TopicPartition, offset: int) -> CommittedOffset:
        return CommittedOffset(offset)

    def poll(self, columns: bool) -> list[Any]:
        self.loop_turn()
        if not self.holds:  # lost: it joins again, and begins at what the group has committed
            some = self.rng.sample(TPS, self.rng.randint(1, 3))
            self.positions = {tp: self.committed[tp] for tp in some}
            self.next = dict(self.positions)
            self.paused.clear()
            self.holds = True
            return []
        if self.rng.random() < 0.1:
            partition = self.rng.choice([None, *self.positions]) if self.positions else None
            self.failures += 1
            self.untold = self.failures
            raise Failure(self.failures, partition)
        found: list[Any] = []
        for tp in self.positions:
            count = 0 if tp in self.paused else self.rng.randint(0, 3)
            first = self.positions[tp]
            rows = [record(tp, first + number) for number in range(count)]
            self.positions[tp] += count
            found += [Batch(rows)] if columns and rows else rows
        return found

    # ---- the thread ----------------------------------------------------------------------

    def read(self) -> None:
        columns = self.rng.random() < 0.3
        self.ahead.read(columns, lambda: self.poll(columns))

    def seek(self) -> None:
        def call() -> None:
            self.loop_turn()
            if self.positions:
                tp = self.rng.choice(list(self.positions))
                self.positions[tp] = self.next[tp] = self.rng.randint(0, 50)

        self.change(call)

    def pause(self) -> None:
        def call() -> None:
            self.loop_turn()
            self.paused ^= {self.rng.choice(TPS)}

        self.change(call)

    def assign(self) -> None:
        def call() -> None:
            self.loop_turn()
            some = self.rng.sample(TPS, self.rng.randint(0, 3))
            self.positions = {tp: self.positions.get(tp, self.committed[tp]) for tp in some}
            self.next = dict(self.positions)

        self.change(call)

    def change(self, call: Callable[[], None]) -> None:
        failure, untold = self.ahead._failure, self.untold
        if failure is not None and getattr(failure, "partition", None) and untold is not None:
            self.untold = None
        self.ahead.change(call)

    def commit(self) -> None:
        if not self.holds:
            return  # refused
        found = self.ahead.committable()
        if self.holds:
            for tp, at in found.items():
                assert at.offset <= self.next[tp], "P3"
                self.committed[tp] = at.offset

    def position(self) -> None:
        for tp in self.positions:
            first = self.ahead.first(tp)
            assert (self.positions[tp] if first is None else first) == self.next[tp], "P4"

    def end(self) -> None:
        def call() -> None:
            self.over = True
            self.loop_turn()
            for tp, at in self._committable().items():
                assert at.offset == self.next[tp], "P3"

        self.untold = None
        self.ahead.change(call, over=True)

    # ---- the loop ------------------------------------------------------------------------

    def loop_turn(self) -> None:
        while self.rng.random() < 0.4:
            if self.rng.random() < 0.1:
                self.holds = False
            else:
                self.take()

    def take(self) -> None:
        columns = self.rng.random() < 0.3
        most = None if columns or self.rng.random() < 0.2 else self.rng.randint(1, 4)
        try:
            if most == 1:
                one = self.ahead.next()
                found = [] if one is None else [one]
            else:
                found = self.ahead.take(columns, most)
        except Failure as problem:
            assert problem.number == self.untold, "P5"
            self.untold = None
            return
        assert not (found and not self.holds), "P2"
        assert not (found and self.over), "P6"
        for one in found:
            for row in one.records if isinstance(one, Batch) else [one]:
                tp = TopicPartition(row.topic, row.partition)
                assert row.offset == self.next[tp], "P1"
                self.next[tp] += 1

    def play(self) -> None:
        steps = [self.read] * 6 + [self.commit, self.position, self.seek, self.pause, self.assign]
        for _ in range(STEPS):
            step = self.rng.choice(steps)
            self.note(step.__name__)
            step()
            self.loop_turn()
        self.end()
        self.loop_turn()


simulate = simulation(Model, Model.play)


def record(tp: TopicPartition, offset: int) -> Record:
    return Record(offset, 0, None, b"", [], tp.topic, tp.partition, 0, 0)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_simulation(first: int) -> None:
    for seed in range(first, first + 50):
        simulate(seed, Prefetched)


# ---- mistakes that it must find ------------------------------------------------------------


class InTwoSteps(Prefetched):
    """A record is handed out between the look at what comes first and the end of it."""

    def _return(self) -> None:
        firsts = self._firsts()
        self._below.loop_turn()  # type: ignore[attr-defined]
        self._records.clear()
        self._columns.clear()
        if firsts:
            self._below._go_back(firsts)


class Stale(Prefetched):
    """It does not ask whether the membership has ended."""

    def take(self, columns: bool, most: int | None = None) -> list[Any]:
        holds, self._below.holds = self._below.holds, True  # type: ignore[attr-defined]
        try:
            return super().take(columns, most)
        finally:
            self._below.holds = holds  # type: ignore[attr-defined]


class Drops(Prefetched):
    """Forgets the records read for another caller."""

    def _return(self) -> None:
        self._records.clear()
        self._columns.clear()


class Ahead(Prefetched):
    """It commits what was read."""

    def committable(self) -> dict[TopicPartition, CommittedOffset]:
        return self._below._committable()


class Mixes(Prefetched):
    """Records and columns come in the order in which they are asked for."""

    def read(self, columns: bool, poll: Callable[[], list[Any]]) -> None:
        try:
            came = poll()
        except Exception as problem:
            self._failure = problem
            return
        (self._columns if columns else self._records).extend(came)


class Repeats(Prefetched):
    """Everybody hears of a failure."""

    def take(self, columns: bool, most: int | None = None) -> list[Any]:
        problem = self._failure
        try:
            return super().take(columns, most)
        finally:
            self._failure = problem


class GoesOn(Prefetched):
    """It hands out during the last commit."""

    def change(self, call: Callable[[], None], over: bool = False) -> None:
        call()
        self._return()


@pytest.mark.parametrize("kind", [InTwoSteps, Stale, Drops, Ahead, Mixes, Repeats, GoesOn])
def test_mistakes_are_found(kind: type[Prefetched]) -> None:
    with pytest.raises(AssertionError, match=r"P[1-6]"):
        for seed in range(SEEDS):
            simulate(seed, kind)
