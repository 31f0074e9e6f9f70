"""Share groups: a coordinator, members that heartbeat, and a share coordinator, in a world with
faults, see simulated_world.py.

What must hold whatever happens:

W1  a member is given only partitions whose state the share coordinator keeps
W2  an epoch that a member was told never falls while it stays a member
W4  every request is answered at most once (Reply checks that)
W5  once faults end the group settles in bounded time: every partition is read, by no more members
    than it takes
W6  with nothing in flight, a restart would not change what the coordinator knows
W7  a group without members can be deleted, and the share coordinator keeps nothing for it
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafkalog.coordinator.consumer_groups.topics import Topic, Topics, topic_hash
from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.groups.group import Group
from kafkalog.coordinator.groups.offsets import Known
from kafkalog.coordinator.share_groups.outside import ShareEffect
from kafkalog.simulate.world import Violated
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import simulation
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.share_group_calls import KeptStates
from tests.unit.coordinator.simulated_world import World
from tests.unit.coordinator.simulation import APPEND_ERRORS, PATIENCE, Faults

GROUP = "s"
SESSION_MS, HEARTBEAT_MS, RETRY_MS = 12_000, 1_000, 100
FAULTY_MS, SETTLE_MS = 100_000, 120_000
SETTINGS = config(
    group_share_session_timeout_ms=SESSION_MS,
    group_share_heartbeat_interval_ms=HEARTBEAT_MS,
    group_share_assignment_interval_ms=500,
    group_share_initialize_retry_interval_ms=8_000,
    offsets_commit_timeout_ms=5_000,
)
LOST = {
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND,
}  # fmt: skip
"""After these a member gives everything up, and joins again."""
Partition = tuple[UUID, int]


class ShareWorld(World[GroupCoordinatorState]):
    """A world with a share coordinator that keeps its states through every crash."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, PATIENCE, APPEND_ERRORS)
        self.counts = {"t": 3, "u": 2}
        self.ids = {"t": UUID(int=1), "u": UUID(int=2)}
        self.kept = KeptStates()
        self.told = 0
        """Partitions that were given to members."""
        self.loses_unfinished = False
        self.restart()

    def new_core(self) -> GroupCoordinatorState:
        known = Known(lambda n: self.counts.get(n, 0), lambda n: self.ids[n], self.name_of)
        seen = Topics(self.topic, self.name_of, lambda: 1, lambda: 1)
        return GroupCoordinatorState(SETTINGS, lambda: "unused", known, seen)

    def topic(self, name: str) -> Topic | None:
        """A topic as groups see it."""
        if name not in self.counts:
            return None
        count, topic_id = self.counts[name], self.ids[name]
        return Topic(topic_id, count, topic_hash(name, topic_id, [[]] * count))

    def name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, one in self.ids.items() if one == topic_id), None)

    def keeps_unfinished(self) -> bool:
        return not self.loses_unfinished

    def effect(self, effect: ShareEffect) -> None:
        core = self.core
        if self.rng.random() < self.faults.append_slow:
            return  # the share coordinator got it never, and the answer is lost with a crash
        refuses = self.rng.random() < self.faults.append_fails

        def done() -> None:
            self.kept.error = ErrorCode.COORDINATOR_NOT_AVAILABLE if refuses else ErrorCode.NONE
            event = self.kept.carry_out(effect, self.name_of)
            if core is self.core:
                self.later(self.rng.randint(0, 300), lambda: self.heard(core, event))

        self.later(self.rng.randint(0, 300), done)

    def heard(self, core: GroupCoordinatorState, event: Any) -> None:
        """The share coordinator's results arrive, unless the coordinator died."""
        if core is self.core:
            self.step(event)

    def grow(self) -> None:
        """A topic gets one more partition."""
        name = self.rng.choice(sorted(self.counts))
        if self.counts[name] < 6:
            self.counts[name] += 1
            self.step(lambda step: self.core.topics_changed({name}, step))

    @property
    def group(self) -> Group | None:
        return self.core.shards[0].groups.get(GROUP)

    # ---- what must hold --------------------------------------------------------------------

    def take(self, parts: set[Partition], name: str) -> None:
        """A member learns its partitions (W1)."""
        self.told += len(parts)
        for topic, number in parts:
            if (GROUP, topic, number) not in self.kept.states:
                raise Violated(f"W1: {name} got {topic}-{number}, whose state is not kept")

    def check_journal(self) -> None:
        """The journal has what the coordinator knows, unless something is in flight (W6)."""
        group = self.group
        if group is None or group.share is None or group.writing or group.share.unsure:
            return
        other = GroupCoordinatorState(SETTINGS, str)
        shard = other.new_shard(0, 0)
        other.load(shard, self.journal.read(0), self.wall_ms)
        loaded = picture(shard.groups.get(GROUP))
        if loaded != picture(group):
            raise Violated(f"W6: {picture(group)} is written as {loaded}")


def picture(group: Group | None) -> Any:
    """The coordinator's state of the group."""
    if group is None or group.share is None:
        return None
    one = group.share
    return (
        one.epoch, one.metadata_hash, one.assignment_epoch, sorted(one.members.items()),
        sorted(one.target.items()), one.states and one.states[:3], sorted(group.foreign.items()),
    )  # fmt: skip


@dataclass
class Worker:
    """A member that heartbeats as clients do, and may die at any time."""

    world: ShareWorld
    name: str
    topics: list[str]
    alive: bool = False
    life: int = 0
    paused_until_ms: int = 0
    member_id: str = ""
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set)
    tell_all: bool = True
    """Its next heartbeat repeats its subscription."""

    def start(self) -> None:
        """Start a new process."""
        self.life += 1
        self.alive, self.member_id = True, f"{self.name}-{self.life}"
        self.forget()
        self._beat()

    def forget(self) -> None:
        """Give everything up, to join again."""
        self.owned, self.epoch, self.tell_all = set(), 0, True

    def die(self) -> None:
        """Die without a word."""
        self.alive = False
        self.life += 1

    def leave(self) -> None:
        """Leave."""
        fields = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": -1}
        self.die()
        self.world.send(apis.SHARE_GROUP_HEARTBEAT, 1, fields, lambda _answer: None, self.name)

    def _beat(self) -> None:
        life, epoch = self.life, self.epoch
        fields: dict[str, Any] = {
            "group_id": GROUP, "member_id": self.member_id, "member_epoch": epoch,
        }  # fmt: skip
        if self.tell_all or self.world.rng.random() < 0.1:
            fields["subscribed_topic_names"] = self.topics

        def heard(answer: Any) -> None:
            if life == self.life and self.alive:
                self._heard(epoch, answer)

        self.world.send(apis.SHARE_GROUP_HEARTBEAT, 1, fields, heard, self.name)

    def _heard(self, epoch: int, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        wait_ms = HEARTBEAT_MS
        if error is ErrorCode.NONE:
            if epoch and answer.member_epoch < self.epoch:
                raise Violated(f"W2: {self.name}: {self.epoch} and then {answer.member_epoch}")
            self.epoch, self.tell_all = answer.member_epoch, False
            if answer.assignment is not None:
                self.owned = {(one.topic_id, number) for one in answer.assignment.topic_partitions
                              for number in one.partitions}  # fmt: skip
                self.world.take(self.owned, self.name)
        elif error in LOST:
            self.forget()
            wait_ms = RETRY_MS
        else:
            self.tell_all = True  # an answer may be lost
        self.world.later(wait_ms, self._beat, self)


def unsettled(world: ShareWorld, workers: list[Worker]) -> str:
    """The group's state, unless the live members read every partition, equally often."""
    alive = [one for one in workers if one.alive]
    group = world.group
    if group is None or group.share is None:
        return "no group"
    readers = Counter(part for one in alive for part in one.owned)
    same = set(group.share.members) == {one.member_id for one in alive}
    for name, count in world.counts.items():
        takers = sum(name in one.topics for one in alive)
        some = [readers[world.ids[name], number] for number in range(count)]
        if takers and not (min(some) >= 1 and max(some) <= -(-takers // count)):
            return f"{name}: {some} of {takers}: {picture(group)}"
    return "" if same else f"{picture(group)}"


def play(world: ShareWorld) -> None:
    """One run: faults for a while, then none, until the group must settle; then its end."""
    rng = world.rng
    world.faults = Faults.draw(rng)
    world.loses_unfinished = rng.random() < 0.5
    workers = [
        Worker(world, f"w{number}", rng.choice([["t"], ["t"], ["u"], ["t", "u"]]))
        for number in range(rng.randint(1, 6))
    ]
    for worker in workers:
        world.later(rng.randint(0, 5_000), worker.start)

    def second() -> None:
        for worker in workers:
            if worker.alive and rng.random() < world.faults.dies:
                (worker.leave if rng.random() < 0.5 else worker.die)()
            elif not worker.alive and worker.life and rng.random() < 0.1:
                worker.start()
        if rng.random() < 0.02:
            world.grow()
        if not world.faults.append_fails and rng.random() < 0.2:
            world.check_journal()
        if world.now_ms < FAULTY_MS:
            world.later(1_000, second)

    second()
    world.run(FAULTY_MS)
    world.faults = Faults()
    world.run(world.now_ms + PATIENCE.request_ms + PATIENCE.slow_ms)
    for worker in workers:
        if not worker.alive:
            worker.start()
    world.settle("W5", SETTLE_MS, lambda: unsettled(world, workers))
    world.run(world.now_ms + 2 * SESSION_MS)
    if found := unsettled(world, workers):
        raise Violated(f"W5: did not stay settled: {found}")
    world.check_journal()
    _end(world, workers)


def _end(world: ShareWorld, workers: list[Worker]) -> None:
    """All leave, and the group is deleted (W7)."""
    for worker in workers:
        worker.leave()
    world.run(world.now_ms + 5_000)
    codes: list[int] = []

    def deleted(answer: Any) -> None:
        codes.extend(one.error_code for one in answer.results)

    world.send(apis.DELETE_GROUPS, 2, {"groups_names": [GROUP]}, deleted, "admin")
    world.run(world.now_ms + 5_000)
    if codes != [0] or world.kept.states or world.group is not None:
        raise Violated(f"W7: {codes}, {world.kept.states}, {picture(world.group)}")


simulate = simulation(ShareWorld, play)
