"""Groups with members of both protocols: a coordinator, members that heartbeat and classic ones in
a world with faults, see simulated_world.py.  A process that comes back may speak the other one.

H1 to H6 of simulation_consumers.py must hold whatever happens, and

H7  once faults end, a group is classic if and only if all its members are, as the policy allows
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.simulate.world import Violated
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.support.simulated import simulation
from tests.unit.coordinator import simulation_consumers as modern
from tests.unit.coordinator.group_calls import config, subscription
from tests.unit.coordinator.simulation import PATIENCE, Faults, GroupWorld
from tests.unit.coordinator.simulation_consumers import GROUP, TOPICS, Consumer, ConsumerWorld

POLICIES = ["bidirectional", "bidirectional", "upgrade"]
SESSION_MS, REBALANCE_MS, HEARTBEAT_MS = 10_000, 20_000, 2_000
FAULTY_MS, SETTLE_MS, RETRY_MS = 120_000, 150_000, 100
LOST = {
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID,
}  # fmt: skip


class MixedWorld(ConsumerWorld):
    """A world that also knows classic members."""

    def __init__(
        self, seed: int, core: Callable[..., GroupCoordinatorState] = GroupCoordinatorState
    ) -> None:
        self.policy = POLICIES[int(seed) % len(POLICIES)]
        self.upgrades = self.downgrades = 0
        self.was_classic: bool | None = None
        super().__init__(seed, core)

    def settings_of(self, seed: int) -> Any:
        return config(
            group_consumer_session_timeout_ms=modern.SESSION_MS,
            group_consumer_heartbeat_interval_ms=modern.HEARTBEAT_MS,
            group_consumer_assignment_interval_ms=500,
            group_initial_rebalance_delay_ms=500,
            offsets_commit_timeout_ms=5_000,
            group_consumer_migration_policy=self.policy,
        )

    def step(self, event: Callable[[Any], None]) -> None:
        """As World.step; counts how often the group changes its protocol."""
        super().step(event)
        shard = self.core.shards.get(0)
        group = None if shard is None else shard.groups.get(GROUP)
        if group is None or group.is_empty or group.writing:
            return
        if self.was_classic is not None and self.was_classic != group.is_classic:
            self.downgrades += group.is_classic
            self.upgrades += not group.is_classic
        self.was_classic = group.is_classic

    def is_member(self, consumer: Any) -> bool:
        group = self.group
        if group is None or not consumer.alive:
            return False
        if not isinstance(consumer, Classic):
            return not group.is_classic and super().is_member(consumer)
        if group.is_classic:
            known, epoch = consumer.member_id in group.members, group.generation
        else:
            members = {} if group.consumer is None else group.consumer.members
            found = members.get(consumer.member_id)
            known, epoch = found is not None, -1 if found is None else found.epoch
        # A static member may stay without joining: it cannot commit by its earlier generation.
        return known and (
            epoch == consumer.epoch or (epoch > consumer.epoch and not consumer.instance)
        )

    def check_journal(self) -> None:
        group = self.group
        if group is None or group.writing or group.commits:
            return
        if (group.consumer is not None and group.consumer.unsure) or (
            group.is_classic and group.state is not State.STABLE
        ):
            return
        other = GroupCoordinatorState(self.settings, str)
        shard = other.new_shard(0, 0)
        other.load(shard, self.journal.read(0), self.wall_ms)
        loaded = picture(shard.groups.get(GROUP))
        if loaded != picture(group):
            raise Violated(f"H6: {picture(group)} is written as {loaded}")


def picture(group: Group | None) -> Any:
    """The coordinator's state of the group, without offsets: a commit that failed may be in the
    journal, and nobody commits for the partition again."""
    if group is not None and group.is_classic:
        *found, _ = GroupWorld.picture(group)
    elif group is not None and group.foreign:
        *found, _, keys = modern.picture(group)
        found.append(keys)
    else:
        return None
    return found


@dataclass
class Classic:
    """A classic member: it gives everything up when it joins, and assigns if it leads."""

    world: MixedWorld
    name: str
    instance: str | None
    topics: list[str]
    alive: bool = False
    life: int = 0
    """Answers to an earlier attempt to join are ignored."""
    paused_until_ms: int = 0
    member_id: str = ""
    epoch: int = -1
    owned: set[modern.Partition] = field(default_factory=set)
    regex: str | None = None
    slow: bool = False

    def start(self) -> None:
        self.alive = True
        self.world.note(f"{self.name} starts, classic")
        self._join()

    def die(self) -> None:
        """Die without a word."""
        self.alive = False
        self.world.give(self, self.owned)  # type: ignore[arg-type]
        self.owned = set()
        self.life += 1

    def leave(self) -> None:
        """Leave; a static member says nothing, as it will be back."""
        members = [{"member_id": self.member_id, "group_instance_id": None}]
        self.die()
        if self.instance is None and self.member_id:
            fields = {"group_id": GROUP, "members": members}
            self.world.send(apis.LEAVE_GROUP, 5, fields, lambda _answer: None, self.name)

    def _send(
        self, api: Api, version: int, fields: dict[str, Any], then: Callable[[Any], None]
    ) -> None:
        life = self.life
        identity: dict[str, Any] = {"group_id": GROUP, "member_id": self.member_id}
        if self.instance is not None:
            identity["group_instance_id"] = self.instance

        def mine(answer: Any) -> None:
            if life == self.life and self.alive:
                then(answer)

        self.world.send(api, version, {**identity, **fields}, mine, self.name)

    def _rejoin(self, error: ErrorCode | None = None) -> None:
        self.life += 1
        self.world.give(self, self.owned)  # type: ignore[arg-type]
        self.owned = set()
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.die()
            return
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.world.later(RETRY_MS, self._join, self)

    def _join(self) -> None:
        fields = {
            "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(*self.topics)}],
        }  # fmt: skip
        self._send(apis.JOIN_GROUP, 9, fields, self._joined)

    def _joined(self, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif error is not ErrorCode.NONE:
            self._rejoin(error)
        else:
            self.member_id, self.epoch = answer.member_id, answer.generation_id
            self._sync(answer)

    def _sync(self, joined: Any) -> None:
        leads = joined.leader == self.member_id and not joined.skip_assignment
        given = shares(joined.members) if leads else {}
        fields = {
            "generation_id": self.epoch, "protocol_type": "consumer",
            "protocol_name": joined.protocol_name,
            "assignments": [{"member_id": m, "assignment": a} for m, a in given.items()],
        }  # fmt: skip
        self._send(apis.SYNC_GROUP, 5, fields, self._synced)

    def _synced(self, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            self._rejoin(error)
            return
        now: set[modern.Partition] = set()
        if answer.assignment:
            told = CONSUMER_PROTOCOL.decode_assignment(answer.assignment)[1].assigned_partitions
            now = {(TOPICS[one.topic][0], number) for one in told for number in one.partitions}
        self.world.take(self, now)  # type: ignore[arg-type]
        self.world.note(f"{self.name} owns {len(now)} of {self.epoch}")
        self._beat()
        self._commit()

    def _beat(self) -> None:
        def heard(answer: Any) -> None:
            error = None if answer is None else ErrorCode(answer.error_code)
            if error in LOST or error is ErrorCode.FENCED_INSTANCE_ID:
                self._rejoin(error)
            else:
                self.world.later(HEARTBEAT_MS, self._beat_of(self.life), self)

        self._send(apis.HEARTBEAT, 4, {"generation_id": self.epoch}, heard)

    def _beat_of(self, life: int) -> Callable[[], None]:
        return lambda: self._beat() if life == self.life else None

    def _commit(self) -> None:
        world, life = self.world, self.life
        world.offset += 1
        offset = world.offset
        if self.owned:
            topic, number = world.rng.choice(sorted(self.owned))
            part = {"partition_index": number, "committed_offset": offset,
                    "committed_metadata": ""}  # fmt: skip

            def committed(answer: Any) -> None:
                error = None
                if answer is not None:
                    error = ErrorCode(answer.topics[0].partitions[0].error_code)
                if error is ErrorCode.NONE:
                    before = world.acknowledged.get((topic, number), -1)
                    world.acknowledged[topic, number] = max(before, world.arrived[offset])
                elif error in LOST - {ErrorCode.REBALANCE_IN_PROGRESS}:
                    self._rejoin(error)

            fields = {
                "generation_id_or_member_epoch": self.epoch,
                "topics": [{"name": modern._name_of(topic), "partitions": [part]}],
            }  # fmt: skip
            self._send(apis.OFFSET_COMMIT, 8, fields, committed)

        def again() -> None:
            if life == self.life and self.alive:
                self._commit()

        world.later(world.rng.randint(500, 3_000), again, self)


def shares(members: list[Any]) -> dict[str, bytes]:
    """The assignment that a leader makes."""
    said = {
        one.member_id: CONSUMER_PROTOCOL.decode_subscription(one.metadata)[1].topics
        for one in members
    }
    found: dict[str, list[dict[str, Any]]] = {member_id: [] for member_id in said}
    for topic, (_, count) in TOPICS.items():
        takers = [member_id for member_id, topics in said.items() if topic in topics]
        for index, member_id in enumerate(takers):
            numbers = list(range(index, count, len(takers)))
            found[member_id].append({"topic": topic, "partitions": numbers})
    return {
        member_id: CONSUMER_PROTOCOL.encode_assignment(0, {"assigned_partitions": parts})
        for member_id, parts in found.items()
    }


class Process:
    """A place for one member after the other, of either protocol."""

    def __init__(self, world: MixedWorld, number: int) -> None:
        rng = world.rng
        self.world = world
        self.name = f"c{number}"
        self.instance = rng.choice([None, None, f"host-{number}"])
        self.topics = rng.choice([["t"], ["t"], ["t", "u"]])
        self.regex = rng.choice([None, None, ".*"])
        self.newer = rng.random()
        """The probability that its next member heartbeats."""
        self.lives = 0
        self.member: Any = None

    @property
    def alive(self) -> bool:
        return self.member is not None and bool(self.member.alive)

    def start(self, newer: bool | None = None) -> None:
        """Start the next member."""
        rng = self.world.rng
        self.lives += 1
        name = f"{self.name}.{self.lives}"
        newer = rng.random() < self.newer if newer is None else newer
        if newer:
            self.member = Consumer(self.world, name, self.instance, self.regex, self.topics)
            self.member.slow = rng.random() < 0.3
        else:
            self.member = Classic(self.world, name, self.instance, self.topics)
        self.member.start()

    def stop(self) -> None:
        """End the member, in good order or not."""
        (self.member.leave if self.world.rng.random() < 0.5 else self.member.die)()


def unsettled(world: MixedWorld, processes: list[Process]) -> str:
    """The group's state, unless the live members share all partitions."""
    alive = [one.member for one in processes if one.alive]
    group = world.group
    if group is None or (group.consumer is None and not group.is_classic):
        return "no group with members"
    classic = all(isinstance(one, Classic) for one in alive)
    wrong = (
        not group.is_classic and world.policy == "bidirectional" if classic else group.is_classic
    )
    if wrong:
        return f"H7: classic members only: {classic}; a classic group: {group.is_classic}"
    wanted = {
        (topic_id, number)
        for name, (topic_id, count) in TOPICS.items()
        if any(name in one.topics or one.regex for one in alive)
        for number in range(count)
    }
    owned = [part for one in alive for part in one.owned]
    part: Any = group if group.is_classic else group.consumer
    state = part.state
    same = set(part.members) == {one.member_id for one in alive} and state.value == "Stable"
    settled = same and len(owned) == len(set(owned)) and set(owned) == wanted
    mine = {one.name: (one.member_id, len(one.owned)) for one in alive}
    return "" if settled else f"{state} {mine} {picture(group)}"


def play(world: MixedWorld) -> None:
    """One run: faults for a while, then none, until the group must settle."""
    rng = world.rng
    world.faults = Faults.draw(rng)
    world.loses_unfinished = rng.random() < 0.5
    processes = [Process(world, number) for number in range(rng.randint(1, 5))]
    for process in processes:
        world.later(rng.randint(0, 5_000), process.start)

    def second() -> None:
        for process in processes:
            if process.alive and rng.random() < max(world.faults.dies, 0.02):
                process.stop()
            elif not process.alive and process.lives and rng.random() < 0.1:
                process.start()
        world.check_commits()
        if not world.faults.append_fails and rng.random() < 0.2:
            world.check_journal()
        if world.now_ms < FAULTY_MS:
            world.later(1_000, second)

    second()
    world.run(FAULTY_MS)
    world.faults = Faults()
    world.run(world.now_ms + PATIENCE.request_ms + PATIENCE.slow_ms)
    kinds = rng.choice([None, True, False])
    for process in processes:
        if process.alive and isinstance(process.member, Consumer):
            process.member.slow = False
        if kinds is not None and process.alive:
            process.stop()
        if not process.alive:
            process.start(kinds)
            if isinstance(process.member, Consumer):
                process.member.slow = False
    world.settle("H5", SETTLE_MS, lambda: unsettled(world, processes))
    world.run(world.now_ms + 2 * modern.SESSION_MS)
    if found := unsettled(world, processes):
        raise Violated(f"H5: did not stay settled: {found}")
    world.check_commits()
    world.check_journal()


simulate = simulation(MixedWorld, play)
