"""Three nodes with one journal: the coordinator of a consumer group moves while its members work.

Every second time the old coordinator hears of it late: it still answers, and its writes fail.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.coordinator.partitions import partition_for
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.consumer_calls import MODERN, ConsumerDesk
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.virtual_core import PARTITIONS, MemoryJournal

GROUP, COUNT, BEAT_MS = "g", 12, 1_000
PARTITION = partition_for(GROUP, PARTITIONS)
ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
LOST = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
NOT_LED = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 50


class Nodes:
    """Three brokers; one of them leads the journal."""

    def __init__(self) -> None:
        journal = MemoryJournal()
        self.desks = [
            ConsumerDesk(config(**MODERN), journal, topics={"t": COUNT}) for _ in range(3)
        ]
        self.leader = 0
        self.moves = self.late_writes = 0
        for desk in self.desks[1:]:
            self._resign(desk)

    def _resign(self, desk: ConsumerDesk) -> None:
        desk.step(lambda step: desk.core.resign(PARTITION, step))

    def move(self, *, late: bool) -> None:
        """The next node leads the journal.  `late`: the old one does not know yet."""
        old = self.desks[self.leader]
        self.leader = (self.leader + 1) % len(self.desks)
        self.moves += 1
        for desk in self.desks:
            if desk is not old and PARTITION in desk.core.shards:
                self._resign(desk)
        if late:
            old.errors = list(NOT_LED)
        else:
            self._resign(old)
        self.desks[self.leader].errors = []
        self.desks[self.leader].load(PARTITION)

    def wait(self, ms: int) -> None:
        for desk in self.desks:
            failing = len(desk.errors)
            desk.wait(ms)
            self.late_writes += failing - len(desk.errors)


class Member:
    """A member that knows one node at a time."""

    def __init__(self, nodes: Nodes, name: str, node: int) -> None:
        self.nodes, self.name, self.node = nodes, name, node
        self.epoch = 0
        self.has: set[int] = set()
        self.fenced = 0

    def ask(self, epoch: int, **fields: Any) -> Any:
        """A heartbeat to the node that it knows, and then to the others."""
        for _ in range(2 * len(self.nodes.desks)):
            desk = self.nodes.desks[self.node]
            failing = len(desk.errors)
            owned = {"t": sorted(self.has)} if self.has else {}
            reply = desk.beat(self.name, epoch, owned, **fields)
            self.nodes.late_writes += failing - len(desk.errors)
            if reply.error not in ELSEWHERE:
                return reply
            self.node = (self.node + 1) % len(self.nodes.desks)
        raise AssertionError("no coordinator")

    def beat(self, others: list[Member]) -> None:
        """Do as the coordinator says; nobody else may have a partition that it gets."""
        joins = self.epoch == 0
        fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"]} if joins else {}
        reply = self.ask(self.epoch, **fields)
        if reply.error in LOST:
            self.epoch, self.has = 0, set()
            self.fenced += 1
            return
        assert reply.error is ErrorCode.NONE
        assert reply.member_epoch >= self.epoch, "an epoch never falls"
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            now = {n for one in reply.assignment.topic_partitions for n in one.partitions}
            for other in others:
                assert other is self or not (now - self.has) & other.has, other.name
            self.has = now

    def leave(self) -> None:
        assert self.ask(-1).error is ErrorCode.NONE
        self.epoch, self.has = 0, set()


def rounds(nodes: Nodes, members: list[Member], count: int, every: int = 0) -> None:
    """Rounds of heartbeats; `every` so many the coordinator moves."""
    for number in range(1, count + 1):
        for member in members:
            member.beat(members)
        if every and number % every == 0:
            nodes.move(late=nodes.moves % 2 == 0)
        nodes.wait(BEAT_MS)


def shares(members: list[Member]) -> list[int]:
    assert sorted(n for one in members for n in one.has) == list(range(COUNT))
    return sorted(len(one.has) for one in members)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_members_keep_to_their_partitions_while_the_coordinator_moves(every: int) -> None:
    nodes = Nodes()
    members = [Member(nodes, name, number % 3) for number, name in enumerate("abc")]
    rounds(nodes, members, 8, every)
    rounds(nodes, members, 4)
    assert shares(members) == [4, 4, 4]
    members.append(Member(nodes, "d", 1))
    rounds(nodes, members, 9, every)
    rounds(nodes, members, 4)
    assert shares(members) == [3, 3, 3, 3]
    members.pop(0).leave()
    rounds(nodes, members, 9, every)
    rounds(nodes, members, 4)
    assert shares(members) == [4, 4, 4]
    assert sum(one.fenced for one in members) == 0, "nobody lost anything to a move"
    assert nodes.late_writes > 0, "an old coordinator tried to write"
    assert nodes.moves > 8 / every


def test_a_move_alone_changes_no_epoch_and_no_partition() -> None:
    nodes = Nodes()
    members = [Member(nodes, name, 0) for name in "abc"]
    rounds(nodes, members, 5)
    before = [(one.epoch, one.has) for one in members]
    rounds(nodes, members, 12, every=1)
    assert [(one.epoch, one.has) for one in members] == before


def test_a_member_that_is_gone_during_a_move_is_missed_by_the_next_coordinator() -> None:
    """Its session begins again there, and ends there."""
    nodes = Nodes()
    members = [Member(nodes, name, 0) for name in "abc"]
    rounds(nodes, members, 5)
    gone = members.pop()
    nodes.move(late=False)
    session = MODERN["group_consumer_session_timeout_ms"] // BEAT_MS
    rounds(nodes, members, session - 1)
    assert sum(len(one.has) for one in members) == COUNT - len(gone.has)
    rounds(nodes, members, 5)
    assert shares(members) == [6, 6]
