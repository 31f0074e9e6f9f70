"""The leader's side of its ISR: proposals, their answers, and what is shown in the meantime."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.controller import brokers
from kafkalog.controller.isr import Wanted
from kafkalog.replication.followers import CaughtUp, Follower, FollowerState
from kafkalog.replication.isr import (
    Isr,
    Proposal,
    answered,
    expand,
    followers,
    released,
    shrink,
    told,
)
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR
from kafkalog.wire.tables.internal import ALTER_PARTITION
from tests.support import simulated
from tests.support.effort import SEED, rounds
from tests.support.simulated import simulation
from tests.unit.controller.building import Cluster, Shown

EPOCHS = {1: 101, 2: 102, 3: 103}
LED = Isr(1, 5, 7, (1, 2, 3), (1, 2))
KEY = ("t", 0)


def state(node: int, behind_ms: int) -> FollowerState:
    return FollowerState(Follower(node, node in LED.in_sync, True), 0, 0, behind_ms)


def row(code: int = 0, **more: Any) -> Any:
    """A partition of an AlterPartition response, decoded from the wire format."""
    found = {"error_code": code, "leader_epoch": 5, "partition_epoch": 8, "isr": [1], **more}
    body = {"topics": [{"partitions": [found]}]}
    data = ALTER_PARTITION.encode_response(3, body)
    return ALTER_PARTITION.decode_response(3, data).topics[0].partitions[0]


def test_followers_for_the_data_plane() -> None:
    asked = LED._replace(proposal=Proposal((1, 2, 3), (101, 102, 103)))
    assert followers(LED, EPOCHS) == [Follower(2, True, True, 102), Follower(3, False, False, 103)]
    assert followers(asked, {2: 102}) == [Follower(2, True, True, 102), Follower(3, False, True)]
    alone = LED._replace(proposal=Proposal((1,), (101,)))
    assert followers(alone, EPOCHS)[0] == Follower(2, True, True, 102), "until it is known"


@pytest.mark.parametrize(
    ("behind_ms", "late"), [(0, False), (1000, False), (1001, True), (-1, True)]
)
def test_late_followers_leave_the_isr(behind_ms: int, late: bool) -> None:
    found = shrink(LED, [state(2, behind_ms), state(3, -1)], 1000, EPOCHS)
    assert found.proposal == (Proposal((1,), (101,)) if late else None)
    assert shrink(found, [state(2, -1)], 1000, EPOCHS) == found or not late, "one at a time"


@pytest.mark.parametrize(
    ("caught_up", "wanted"),
    [
        (CaughtUp(0, 3, 103, 5), Proposal((1, 2, 3), (101, 102, 103), held=True)),
        (CaughtUp(0, 3, -1, 5), Proposal((1, 2, 3), (101, 102, 103), held=True)),
        (CaughtUp(0, 3, 99, 5), None),  # of an earlier registration
        (CaughtUp(0, 3, 103, 4), None),  # in an earlier leader epoch
        (CaughtUp(0, 2, 102, 5), None),  # it is already in sync
        (CaughtUp(0, 4, 104, 5), None),  # it is not a replica
    ],
)
def test_caught_up_followers_join_the_isr(caught_up: CaughtUp, wanted: Proposal | None) -> None:
    assert expand(LED, caught_up, EPOCHS).proposal == wanted


def test_broker_epochs_come_from_the_follower() -> None:
    found = expand(LED, CaughtUp(0, 3, 103, 5), {1: 101, 2: -1, 3: -1})
    assert found.proposal == Proposal((1, 2, 3), (101, -1, 103), held=True)


def test_unregistered_followers_do_not_join() -> None:
    assert expand(LED, CaughtUp(0, 3, 103, 5), {1: 101, 2: 102}) == LED


JOINS = LED._replace(proposal=Proposal((1, 2, 3), (101, 102, 103), held=True))


@pytest.mark.parametrize(("log_end", "due"), [(-1, False), (39, False), (40, True), (41, True)])
def test_a_joining_follower_has_all_committed_records(log_end: int, due: bool) -> None:
    """40 was shown after it fetched from 39, before the leader waited for it."""
    assert JOINS.maximal == {1, 2, 3} and not JOINS.due
    states = [state(2, 0), state(3, 0)._replace(log_end=log_end)]
    assert released(JOINS, states, 40).due is due
    assert released(ASKED, states, 40) == ASKED and released(LED, states, 40) == LED


def test_a_lagging_joining_follower_is_not_waited_for() -> None:
    assert shrink(JOINS, [state(2, 0), state(3, 1000)], 1000, EPOCHS) == JOINS
    assert shrink(JOINS, [state(2, 0), state(3, 1001)], 1000, EPOCHS) == LED
    sent = released(JOINS, [state(3, 0)._replace(log_end=40)], 40)
    assert shrink(sent, [state(2, 0), state(3, 1001)], 1000, EPOCHS) == sent


ASKED = LED._replace(proposal=Proposal((1,), (101,)))


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (row(), LED._replace(in_sync=(1,), partition_epoch=8)),
        (row(ErrorCode.INELIGIBLE_REPLICA), LED),
        (row(ErrorCode.OPERATION_NOT_ATTEMPTED), LED),
        (row(ErrorCode.NOT_CONTROLLER), ASKED),
        (row(ErrorCode.UNKNOWN_SERVER_ERROR), ASKED),
    ],
)
def test_an_answer(answer: Any, wanted: Isr) -> None:
    assert answered(ASKED, ASKED, answer) == wanted


@pytest.mark.parametrize(
    "answer",
    [
        row(ErrorCode.INVALID_UPDATE_VERSION),
        row(ErrorCode.FENCED_LEADER_EPOCH),
        row(ErrorCode.UNKNOWN_TOPIC_ID),
        row(leader_epoch=6),
        row(partition_epoch=6),
    ],
)
def test_a_stale_proposal_waits_for_newer_metadata(answer: Any) -> None:
    """The proposed ISR still counts, and no request is sent."""
    found = answered(ASKED, ASKED, answer)
    assert (found.maximal, found.in_sync, found.due) == ({1, 2}, (1, 2), False)
    assert told(found, LED) is None
    assert told(found, LED._replace(partition_epoch=8)) == LED._replace(partition_epoch=8)


def test_a_late_answer_says_nothing() -> None:
    now = LED._replace(leader_epoch=6, partition_epoch=9)
    assert answered(now, ASKED, row()) == now
    assert answered(LED, ASKED, row()) == LED


# ---- against the controller ----------------------------------------------------------------------


class World(simulated.World):
    """Leader 1, which never dies, its controller, followers that come and go, lost messages."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.cluster = Cluster()
        self.cluster.led(KEY, (1, 2, 3), Shown(1, 5, (1, 2), 7))
        self.living = {1: 101, 2: 102, 3: 103}
        self.births = 200
        self.known = dict(self.living)
        self.isr = LED
        self.asked: list[Isr] = []
        self.answers: list[tuple[Isr, Any]] = []
        self.orders: list[tuple[Isr, dict[int, int]]] = []
        """Orders of the controller that the leader has not received yet, in order."""
        self.joined: dict[int, int] = {}
        """By follower: its registration's epoch when the leader found it caught up."""

    def others_live(self) -> None:
        """Let a follower die, or return."""
        node = self.rng.choice((2, 3))
        if node in self.living:
            del self.living[node]
        else:
            self.births += 1
            self.living[node] = self.births
        now = self.cluster.brokers(*self.living, **{f"b{n}": e for n, e in self.living.items()})
        decision = brokers.brokers_changed(self.cluster.context, self.cluster.batch, now)
        self.cluster.decide(decision)
        self.order()

    def order(self) -> None:
        one = self.cluster.context.partitions[KEY]
        now = Isr(one.leader, one.leader_epoch, one.partition_epoch, one.replicas, one.isr)
        self.orders.append((now, dict(self.living)))

    def hear(self) -> None:
        if self.orders:
            now, self.known = self.orders.pop(0)
            self.isr = told(self.isr, now) or self.isr

    def lag(self) -> None:
        late = [state(self.rng.choice((2, 3)), -1)]
        self.isr = shrink(self.isr, late, 1000, self.known)

    def catch_up(self) -> None:
        node = self.rng.choice((2, 3))
        life = self.living.get(node, 0) if self.rng.random() < 0.8 else 0
        found = expand(self.isr, CaughtUp(0, node, life, self.isr.leader_epoch), self.known)
        if found != self.isr:
            self.isr, self.joined[node] = found, life

    def release(self) -> None:
        ends = [state(one, 0)._replace(log_end=self.rng.choice((39, 40))) for one in (2, 3)]
        self.isr = released(self.isr, ends, 40)

    def ask(self) -> None:
        if self.isr.due:
            self.asked.append(self.isr)

    def decide(self) -> None:
        if not self.asked:
            return
        asked = self.asked.pop(self.rng.randrange(len(self.asked)))
        if self.rng.random() < 0.2:
            self.asked.append(asked)  # the request arrives twice
        assert asked.proposal is not None
        pairs = tuple(zip(asked.proposal.isr, asked.proposal.epochs, strict=True))
        wanted = Wanted(1, asked.leader_epoch, pairs, False, asked.partition_epoch)
        before = self.cluster.shown(KEY).isr
        ((code, shown),) = self.cluster.alter(1, (KEY, wanted))
        if any(send.api is LEADER_AND_ISR for send in self.cluster.sent):
            self.order()
        for node in {*self.cluster.shown(KEY).isr} - {*before}:
            assert self.joined[node] == self.living[node], "it had all, in this registration"
        if self.rng.random() < 0.1:
            self.answers.append((asked, row(ErrorCode.UNKNOWN_SERVER_ERROR)))
        elif self.rng.random() < 0.7:
            answer = row(
                code, leader_epoch=shown.leader_epoch, isr=list(shown.isr),
                partition_epoch=shown.partition_epoch,
            )  # fmt: skip
            self.answers.append((asked, answer))

    def answer(self) -> None:
        if self.answers:
            asked, answer = self.answers.pop(self.rng.randrange(len(self.answers)))
            self.isr = answered(self.isr, asked, answer)

    def check(self) -> None:
        """Check that every possible leader has all records that are shown."""
        now = self.cluster.shown(KEY)
        assert {*now.isr} <= self.isr.maximal, (now, self.isr)

    def end(self) -> None:
        """Lose no more messages; leader and controller must agree."""
        for _ in range(20):
            for step in (self.release, self.hear, self.ask, self.decide, self.answer):
                step()
                self.check()
        self.asked.clear()
        while self.orders or self.answers:
            self.hear()
            self.answer()
        now = self.cluster.shown(KEY)
        if self.isr.proposal is None:
            assert (now.isr, now.partition_epoch) == (self.isr.in_sync, self.isr.partition_epoch)


def play(world: World) -> None:
    steps = world.lag, world.catch_up, world.release, world.ask, world.decide, world.answer
    for _ in range(60):
        step = world.others_live if world.chance(0.1) else world.rng.choice((*steps, world.hear))
        world.note(step.__name__)
        step()
        world.check()
    world.note("no more messages are lost")
    world.end()


@pytest.mark.explore
def test_histories() -> None:
    """Whatever is lost, late or duplicated: the ISR in the tree is within the maximal ISR."""
    simulate = simulation(World, play)
    settled = [simulate(f"{SEED}-{number}").isr.proposal is None for number in rounds(300)]
    assert sum(settled) > len(settled) / 2
