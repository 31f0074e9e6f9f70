"""Consumer groups: a coordinator and members that heartbeat in a world with faults, see
simulated_world.py.

What must hold whatever happens:

H1  no two members own a partition at the same time, by their answers, until one is fenced
H2  an epoch that a member was told never falls while it stays a member
H3  a commit that was acknowledged, or a later one, is there, also after restarts
H4  every request is answered at most once (Reply checks that)
H5  once faults end the group settles in bounded time: Stable, all partitions owned
H6  with nothing in flight, a restart would not change what the coordinator knows
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafkalog.coordinator.consumer_groups.patterns import Lookup, look_up
from kafkalog.coordinator.consumer_groups.topics import Topic, Topics, topic_hash
from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.groups.group import Group
from kafkalog.coordinator.groups.offsets import Known
from kafkalog.simulate.world import Violated
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import simulation
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.simulated_world import World
from tests.unit.coordinator.simulation import APPEND_ERRORS, PATIENCE, Faults

GROUP = "g"
TOPICS = {"t": (UUID(int=1), 5), "u": (UUID(int=2), 2)}
SESSION_MS, HEARTBEAT_MS, REBALANCE_MS = 12_000, 1_000, 20_000
FAULTY_MS, SETTLE_MS, RETRY_MS = 120_000, 120_000, 100
PACED = {
    "group_consumer_session_timeout_ms": SESSION_MS,
    "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
    "offsets_commit_timeout_ms": 5_000,
}
EACH_SETTINGS = config(**PACED, group_consumer_assignment_interval_ms=500), config(**PACED)
"""With an interval, and without one: such small groups are assigned at once."""
LOST = {
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND,
}  # fmt: skip
"""After these a member gives everything up, and joins again."""
Partition = tuple[UUID, int]


def _topic(name: str) -> Topic | None:
    if name not in TOPICS:
        return None
    topic_id, count = TOPICS[name]
    return Topic(topic_id, count, topic_hash(name, topic_id, [[]] * count))


def _name_of(topic_id: UUID) -> str | None:
    return next((name for name, (one, _) in TOPICS.items() if one == topic_id), None)


KNOWN = Known(
    lambda name: TOPICS[name][1] if name in TOPICS else 0,
    lambda name: TOPICS[name][0] if name in TOPICS else UUID(int=0),
    _name_of,
)
SEEN = Topics(_topic, _name_of, lambda: 1, lambda: 1)


class ConsumerWorld(World[GroupCoordinatorState]):
    """A world that records who owns which partition."""

    def __init__(
        self, seed: int, core: Callable[..., GroupCoordinatorState] = GroupCoordinatorState
    ) -> None:
        super().__init__(seed, PATIENCE, APPEND_ERRORS)
        self.make_core = core
        self.settings = self.settings_of(seed)
        self.owners: dict[Partition, Consumer] = {}
        self.told = 0
        """Partitions that were given to members."""
        self.arrived: dict[int, int] = {}
        self.acknowledged: dict[Partition, int] = {}
        self.loses_unfinished = False
        self.offset = 0
        self.restart()

    def settings_of(self, seed: int) -> Any:
        return EACH_SETTINGS[seed % len(EACH_SETTINGS)]

    def new_core(self) -> GroupCoordinatorState:
        rng = self.rng
        return self.make_core(self.settings, lambda: f"{rng.getrandbits(32):08x}", KNOWN, SEEN)

    def keeps_unfinished(self) -> bool:
        return not self.loses_unfinished

    def arrives(self, api: Api, fields: dict[str, Any]) -> None:
        if api is apis.OFFSET_COMMIT:
            part = fields["topics"][0]["partitions"][0]
            self.arrived.setdefault(part["committed_offset"], len(self.arrived))

    def effect(self, effect: Lookup) -> None:
        core = self.core

        def done() -> None:
            if core is self.core:
                found = look_up(effect, TOPICS, 1)
                self.step(lambda step: core.looked_up(effect, found, step))

        self.later(self.rng.randint(0, 500), done)

    def crashed(self) -> None:
        self.check_commits()

    @property
    def group(self) -> Group | None:
        return self.core.shards[0].groups.get(GROUP)

    # ---- what must hold --------------------------------------------------------------------

    def take(self, consumer: Consumer, now: set[Partition]) -> None:
        """A member learns its partitions (H1).  One that was fenced since may believe
        that it has more: it cannot commit, and learns it with its next heartbeat."""
        for part in now - consumer.owned if self.is_member(consumer) else ():
            self.told += 1
            other = self.owners.get(part)
            if other is not None and other is not consumer and self.is_member(other):
                raise Violated(f"H1: {part} is {other.name}'s and {consumer.name}'s")
            self.owners[part] = consumer
        self.give(consumer, consumer.owned - now)
        consumer.owned = now

    def give(self, consumer: Consumer, parts: set[Partition]) -> None:
        """A member no longer has these."""
        for part in parts:
            if self.owners.get(part) is consumer:
                del self.owners[part]

    def is_member(self, consumer: Consumer) -> bool:
        """True if the coordinator counts it, in the life that it has."""
        group = self.group
        if group is None or group.consumer is None or not consumer.alive:
            return False
        member = group.consumer.members.get(consumer.member_id)
        return member is not None and member.epoch >= consumer.epoch > 0

    def check_commits(self) -> None:
        """Every acknowledged commit is there (H3)."""
        group = self.group
        for (topic, number), arrival in self.acknowledged.items():
            found = None if group is None else group.offset(_name_of(topic) or "", number)
            if found is None or self.arrived[found.offset] < arrival:
                raise Violated(f"H3: partition {number}: {found} is older than acknowledged")

    def check_journal(self) -> None:
        """The journal has what the coordinator knows, unless something is in flight (H6)."""
        group = self.group
        if group is None or group.consumer is None or group.writing or group.commits:
            return
        if group.consumer.unsure:
            return
        other = GroupCoordinatorState(self.settings, str)
        shard = other.new_shard(0, 0)
        other.load(shard, self.journal.read(0), self.wall_ms)
        loaded = picture(shard.groups.get(GROUP))
        if loaded != picture(group):
            raise Violated(f"H6: {picture(group)} is written as {loaded}")


def picture(group: Group | None) -> Any:
    """The coordinator's state of the group."""
    if group is None or group.consumer is None:
        return None
    one = group.consumer
    offsets = {(t, p): o.offset for t, ps in group.offsets.items() for p, o in ps.items()}
    return (
        one.epoch, one.metadata_hash, one.assignment_epoch, sorted(one.members.items()),
        sorted(one.target.items()), sorted(one.regexes.items()), one.owners, one.static, offsets,
        sorted(group.foreign.items()),
    )  # fmt: skip


@dataclass
class Consumer:
    """A member that heartbeats as clients do, and may die at any time."""

    world: ConsumerWorld
    name: str
    instance: str | None
    regex: str | None
    topics: list[str]
    alive: bool = False
    life: int = 0
    paused_until_ms: int = 0
    member_id: str = ""
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set)
    slow: bool = False
    """It takes its time before it gives partitions up."""
    tell_all: bool = True
    """Its next heartbeat repeats everything."""
    said: Any = None
    """The partitions that its last heartbeat named, if that was answered without new ones."""

    def start(self) -> None:
        """Start a new process."""
        self.life += 1
        self.alive, self.member_id = True, f"{self.name}-{self.life}"
        self.forget()
        self.world.note(f"{self.name} starts as {self.member_id}")
        self._beat()
        self._commit(self.life)

    def forget(self) -> None:
        """Give everything up, to join again."""
        self.world.give(self, self.owned)
        self.owned, self.epoch, self.tell_all, self.said = set(), 0, True, None

    def die(self) -> None:
        """Die without a word."""
        self.alive = False
        self.world.give(self, self.owned)
        self.life += 1

    def leave(self) -> None:
        """Leave; a static member will be back."""
        fields = {
            "group_id": GROUP, "member_id": self.member_id, "instance_id": self.instance,
            "member_epoch": -1 if self.instance is None else -2,
        }  # fmt: skip
        self.die()
        self.world.send(apis.CONSUMER_GROUP_HEARTBEAT, 1, fields, lambda _answer: None, self.name)

    def _beat(self) -> None:
        life, epoch = self.life, self.epoch
        fields: dict[str, Any] = {
            "group_id": GROUP, "member_id": self.member_id, "member_epoch": epoch,
            "instance_id": self.instance,
        }  # fmt: skip
        parts: dict[UUID, list[int]] = {}
        for topic, number in sorted(self.owned):
            parts.setdefault(topic, []).append(number)
        owned = [{"topic_id": topic, "partitions": numbers} for topic, numbers in parts.items()]
        unasked = self.world.now_ms < FAULTY_MS and self.world.rng.random() < 0.2
        if self.tell_all or unasked:
            fields |= {
                "rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": self.topics,
                "subscribed_topic_regex": self.regex,
            }  # fmt: skip
        if self.tell_all or self.said != owned:
            fields["topic_partitions"] = owned

        def heard(answer: Any) -> None:
            if life == self.life and self.alive:
                self.said = owned
                self._heard(epoch, answer)

        self.world.send(apis.CONSUMER_GROUP_HEARTBEAT, 1, fields, heard, self.name)

    def _heard(self, epoch: int, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        wait_ms = HEARTBEAT_MS
        if error is ErrorCode.NONE:
            if epoch and answer.member_epoch < self.epoch:
                raise Violated(f"H2: {self.name}: {self.epoch} and then {answer.member_epoch}")
            self.epoch, self.tell_all = answer.member_epoch, False
            if answer.assignment is not None:
                self.said = None
                now = {(one.topic_id, number) for one in answer.assignment.topic_partitions
                       for number in one.partitions}  # fmt: skip
                kept = self.owned if self.slow and self.world.rng.random() < 0.5 else set()
                self.world.take(self, now | (kept & self.owned))
                wait_ms = RETRY_MS
        elif error in LOST:
            self.forget()
            wait_ms = RETRY_MS
        elif error in (ErrorCode.FENCED_INSTANCE_ID,):
            self.die()
            return
        else:
            self.tell_all, self.said = True, None  # an answer may be lost
        self.world.later(wait_ms, self._beat, self)

    def _commit(self, life: int) -> None:
        world = self.world
        if life != self.life or not self.alive:
            return
        world.offset += 1
        offset = world.offset
        if self.owned and self.epoch > 0:
            topic, number = world.rng.choice(sorted(self.owned))
            part = {"partition_index": number, "committed_offset": offset,
                    "committed_metadata": ""}  # fmt: skip

            def committed(answer: Any) -> None:
                if answer is not None and not answer.topics[0].partitions[0].error_code:
                    before = world.acknowledged.get((topic, number), -1)
                    world.acknowledged[topic, number] = max(before, world.arrived[offset])

            fields = {
                "group_id": GROUP, "member_id": self.member_id,
                "generation_id_or_member_epoch": self.epoch,
                "topics": [{"topic_id": topic, "partitions": [part]}],
            }  # fmt: skip
            world.send(apis.OFFSET_COMMIT, 10, fields, committed, self.name)
        world.later(world.rng.randint(500, 3_000), lambda: self._commit(life), self)


def unsettled(world: ConsumerWorld, consumers: list[Consumer]) -> str:
    """The group's state, unless the live members share all partitions."""
    alive = [one for one in consumers if one.alive]
    group = world.group
    if group is None or group.consumer is None:
        return "no group"
    wanted = {
        (topic_id, number)
        for name, (topic_id, count) in TOPICS.items()
        if any(name in one.topics or one.regex for one in alive)
        for number in range(count)
    }
    owned = [part for one in alive for part in one.owned]
    members = {one.member_id for one in alive}
    same = set(group.consumer.members) == members and group.consumer.state.value == "Stable"
    settled = same and len(owned) == len(set(owned)) and set(owned) == wanted
    return "" if settled else f"{picture(group)}"


def play(world: ConsumerWorld) -> None:
    """One run: faults for a while, then none, until the group must settle."""
    rng = world.rng
    world.faults = Faults.draw(rng)
    world.loses_unfinished = rng.random() < 0.5
    consumers = [
        Consumer(world, f"c{number}", rng.choice([None, None, f"host-{number}"]),
                 rng.choice([None, None, ".*"]), rng.choice([["t"], ["t"], ["t", "u"]]))
        for number in range(rng.randint(1, 5))
    ]  # fmt: skip
    for consumer in consumers:
        consumer.slow = rng.random() < 0.3
        world.later(rng.randint(0, 5_000), consumer.start)

    def second() -> None:
        for consumer in consumers:
            if consumer.alive and rng.random() < world.faults.dies:
                (consumer.leave if rng.random() < 0.5 else consumer.die)()
            elif not consumer.alive and consumer.life and rng.random() < 0.1:
                consumer.start()
        world.check_commits()
        if not world.faults.append_fails and rng.random() < 0.2:
            world.check_journal()
        if world.now_ms < FAULTY_MS:
            world.later(1_000, second)

    second()
    world.run(FAULTY_MS)
    world.faults = Faults()
    world.run(world.now_ms + PATIENCE.request_ms + PATIENCE.slow_ms)
    for consumer in consumers:
        consumer.slow = False
        if not consumer.alive:
            consumer.start()
    world.settle("H5", SETTLE_MS, lambda: unsettled(world, consumers))
    world.run(world.now_ms + 2 * SESSION_MS)
    if found := unsettled(world, consumers):
        raise Violated(f"H5: did not stay settled: {found}")
    world.check_commits()
    world.check_journal()


simulate = simulation(ConsumerWorld, play)
