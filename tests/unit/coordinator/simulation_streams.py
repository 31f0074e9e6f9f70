"""Streams groups: a coordinator, members of several processes that heartbeat, and topics that are
created for them, in a world with faults, see simulated_world.py.

What must hold whatever happens:

X1  a task is active at one member of the group at a time, and a process has it once
X2  an epoch that a member was told never falls while it stays a member
X4  every request is answered at most once (Reply checks that)
X5  once faults end the group settles in bounded time: each task is active once, and has as many
    copies as there are to be, or as there are processes
X6  with nothing in flight, a restart would not change what the coordinator knows
X7  a group without members can be deleted, and leaves nothing
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
from kafkalog.coordinator.streams_groups.member import Role
from kafkalog.coordinator.streams_groups.outside import CreateTopics
from kafkalog.simulate.world import Violated
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import simulation
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.simulated_world import World
from tests.unit.coordinator.simulation import APPEND_ERRORS, PATIENCE, Faults
from tests.unit.coordinator.streams_group_calls import COUNTING

GROUP = "s"
SESSION_MS, HEARTBEAT_MS, RETRY_MS, REBALANCE_MS = 12_000, 1_000, 100, 20_000
FAULTY_MS, SETTLE_MS = 100_000, 150_000
TASKS = 3
"""Partitions of the topic that is read: as many tasks of each subtopology."""
SETTINGS = config(
    group_streams_session_timeout_ms=SESSION_MS,
    group_streams_heartbeat_interval_ms=HEARTBEAT_MS,
    group_streams_assignment_interval_ms=500,
    group_streams_initial_rebalance_delay_ms=2_000,
    offsets_commit_timeout_ms=5_000,
)
LOST = {
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
}  # fmt: skip
"""After these a member gives everything up, and joins again."""
ROLES = {Role.ACTIVE: "active_tasks", Role.STANDBY: "standby_tasks", Role.WARMUP: "warmup_tasks"}
Has = set[tuple[Role, str, int]]


class StreamsWorld(World[GroupCoordinatorState]):
    """A world with topics, which outlive every crash."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, PATIENCE, APPEND_ERRORS)
        self.counts = {"t": TASKS}
        self.ids: dict[str, UUID] = {"t": UUID(int=1)}
        self.own: dict[str, dict[str, Any]] = {GROUP: {}}
        self.workers: list[Worker] = []
        self.told = 0
        """Tasks that were given to members."""
        self.loses_unfinished = False
        self.restart()

    def new_core(self) -> GroupCoordinatorState:
        known = Known(lambda n: self.counts.get(n, 0), lambda n: self.ids[n], self.name_of)
        seen = Topics(self.topic, self.name_of, lambda: 1, lambda: 1)
        return GroupCoordinatorState(
            SETTINGS, lambda: "unused", known, seen, lambda group: self.own.get(group, {})
        )

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

    def effect(self, effect: CreateTopics) -> None:
        core = self.core
        if self.rng.random() < self.faults.append_slow:
            return  # the controller got it never, and the answer is lost with a crash
        refuses = self.rng.random() < self.faults.append_fails

        def done() -> None:
            failed = dict.fromkeys(effect.topics, "no") if refuses else {}
            for name, one in effect.topics.items():
                if name not in failed and name not in self.counts:
                    self.ids[name] = UUID(int=len(self.ids) + 1)
                    self.counts[name] = one.partitions
            self.step(lambda step: self.core.topics_changed(set(effect.topics), step))
            if core is self.core:
                self.step(lambda step: effect.done(failed, step))

        self.later(self.rng.randint(0, 300), done)

    @property
    def group(self) -> Group | None:
        return self.core.shards[0].groups.get(GROUP)

    @property
    def standbys(self) -> int:
        """Copies of the state of each task that there are to be."""
        return int(self.own[GROUP].get("streams.num.standby.replicas", 0))

    # ---- what must hold --------------------------------------------------------------------

    def take(self, taker: Worker, has: Has) -> None:
        """A member learns its tasks (X1)."""
        self.told += len(has)
        group = self.group
        members = {} if group is None or group.streams is None else group.streams.members
        if taker.member_id not in members:
            return
        for other in self.workers:
            if other is taker or not other.alive or other.member_id not in members:
                continue
            for role, subtopology, number in has:
                same = other.process == taker.process
                theirs = {one for one, *task in other.owned if task == [subtopology, number]}
                if (role is Role.ACTIVE and Role.ACTIVE in theirs) or (same and theirs):
                    raise Violated(
                        f"X1: {taker.name} got {role.name} {subtopology}_{number}, which "
                        f"{other.name} has"
                    )

    def check_journal(self) -> None:
        """The journal has what the coordinator knows, unless something is in flight (X6)."""
        group = self.group
        if group is None or group.streams is None or group.writing or group.streams.unsure:
            return
        other = GroupCoordinatorState(SETTINGS, str)
        shard = other.new_shard(0, 0)
        other.load(shard, self.journal.read(0), self.wall_ms)
        loaded = picture(shard.groups.get(GROUP))
        if loaded != picture(group):
            raise Violated(f"X6: {picture(group)} is written as {loaded}")


def picture(group: Group | None) -> Any:
    """The coordinator's state of the group."""
    if group is None or group.streams is None:
        return None
    one = group.streams
    return (
        one.epoch, one.metadata_hash, one.assignment_epoch, one.validated_epoch, one.configs,
        one.topology, sorted(one.members.items()), sorted(one.target.items()),
        sorted(one.static.items()), sorted(one.holders.items()), sorted(group.foreign.items()),
    )  # fmt: skip


@dataclass
class Worker:
    """A member that heartbeats as clients do, and may die at any time."""

    world: StreamsWorld
    name: str
    process: str
    instance: str | None
    alive: bool = False
    life: int = 0
    paused_until_ms: int = 0
    member_id: str = ""
    epoch: int = 0
    owned: Has = field(default_factory=set)
    tell_all: bool = True
    """Its next heartbeat repeats its tasks."""

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

    def leave(self, epoch: int = -1) -> None:
        """Leave; with -2, to come back."""
        fields = self._fields(epoch)
        self.die()
        self.world.send(apis.STREAMS_GROUP_HEARTBEAT, 1, fields, lambda _answer: None, self.name)

    def _fields(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": GROUP, "member_id": self.member_id, "member_epoch": epoch,
            "instance_id": self.instance,
        }  # fmt: skip

    def _beat(self) -> None:
        life, epoch = self.life, self.epoch
        fields = self._fields(epoch)
        if not epoch:
            fields |= {"topology": COUNTING, "rebalance_timeout_ms": REBALANCE_MS,
                       "process_id": self.process}  # fmt: skip
        if self.tell_all or self.world.rng.random() < 0.3:
            for role, name in ROLES.items():
                parts: dict[str, list[int]] = {}
                for one, subtopology, number in sorted(self.owned):
                    if one is role:
                        parts.setdefault(subtopology, []).append(number)
                fields[name] = [
                    {"subtopology_id": subtopology, "partitions": numbers}
                    for subtopology, numbers in parts.items()
                ]

        def heard(answer: Any) -> None:
            if life == self.life and self.alive:
                self._heard(epoch, answer)

        self.world.send(apis.STREAMS_GROUP_HEARTBEAT, 1, fields, heard, self.name)

    def _heard(self, epoch: int, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        wait_ms = HEARTBEAT_MS
        if error is ErrorCode.NONE:
            if epoch and answer.member_epoch < self.epoch:
                raise Violated(f"X2: {self.name}: {self.epoch} and then {answer.member_epoch}")
            self.epoch, self.tell_all = answer.member_epoch, False
            if answer.active_tasks is not None:
                self.owned = {
                    (role, one.subtopology_id, number)
                    for role, name in ROLES.items() for one in getattr(answer, name)
                    for number in one.partitions
                }  # fmt: skip
                self.tell_all = True
                self.world.take(self, self.owned)
        elif error in LOST:
            self.forget()
            wait_ms = RETRY_MS
        else:
            self.tell_all = True  # an answer may be lost
        self.world.later(wait_ms, self._beat, self)


def unsettled(world: StreamsWorld) -> str:
    """The group's state, unless the live members have all tasks as they are to have them."""
    alive = [one for one in world.workers if one.alive]
    group = world.group
    if group is None or group.streams is None:
        return "no group"
    found = Counter(task for one in alive for task in one.owned)
    copies = min(world.standbys, len({one.process for one in alive}) - 1)
    wanted: Counter[Any] = Counter()
    for number in range(TASKS):
        wanted.update({(Role.ACTIVE, "0", number): 1, (Role.ACTIVE, "1", number): 1})
        wanted[Role.STANDBY, "1", number] = copies
    same = set(group.streams.members) == {one.member_id for one in alive}
    return "" if same and +found == +wanted else f"{found}: {picture(group)}"


def play(world: StreamsWorld) -> None:
    """One run: faults for a while, then none, until the group must settle; then its end."""
    rng = world.rng
    world.faults = Faults.draw(rng)
    world.loses_unfinished = rng.random() < 0.5
    world.workers = [
        Worker(world, f"w{number}", f"p{number // rng.randint(1, 2)}",
               f"i{number}" if rng.random() < 0.3 else None)
        for number in range(rng.randint(1, 6))
    ]  # fmt: skip
    for worker in world.workers:
        world.later(rng.randint(0, 5_000), worker.start)

    def second() -> None:
        for worker in world.workers:
            if worker.alive and rng.random() < world.faults.dies:
                back = -2 if worker.instance is not None and rng.random() < 0.5 else -1
                worker.die() if rng.random() < 0.5 else worker.leave(back)
            elif not worker.alive and worker.life and rng.random() < 0.1:
                worker.start()
        if rng.random() < 0.02:
            world.own[GROUP]["streams.num.standby.replicas"] = rng.randint(0, 2)
        if not world.faults.append_fails and rng.random() < 0.2:
            world.check_journal()
        if world.now_ms < FAULTY_MS:
            world.later(1_000, second)

    second()
    world.run(FAULTY_MS)
    world.faults = Faults()
    world.run(world.now_ms + PATIENCE.request_ms + PATIENCE.slow_ms)
    for worker in world.workers:
        if not worker.alive:
            worker.start()
    world.settle("X5", SETTLE_MS, lambda: unsettled(world))
    world.run(world.now_ms + 2 * SESSION_MS)
    if found := unsettled(world):
        raise Violated(f"X5: did not stay settled: {found}")
    world.check_journal()
    _end(world)


def _end(world: StreamsWorld) -> None:
    """All leave, and the group is deleted (X7)."""
    for worker in world.workers:
        worker.leave()
    world.run(world.now_ms + 5_000)
    codes: list[int] = []

    def deleted(answer: Any) -> None:
        codes.extend(one.error_code for one in answer.results)

    world.send(apis.DELETE_GROUPS, 2, {"groups_names": [GROUP]}, deleted, "admin")
    world.run(world.now_ms + 5_000)
    if codes != [0] or world.group is not None:
        raise Violated(f"X7: {codes}, {picture(world.group)}")


simulate = simulation(StreamsWorld, play)
