"""Groups: a coordinator and its consumers in a world with faults, see simulated_world.py.

What must hold whatever happens:

S1  no two members own a partition in the same generation, by their SyncGroup answers
S2  a member's assignment is one that the leader of its generation made
S3  a commit that was acknowledged, or a later one, is there, also after restarts
S4  every request is answered at most once (Reply checks that)
S5  once faults end the group settles in bounded time: Stable, all partitions owned
S6  with nothing in flight, a restart would not change what the coordinator knows
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
from tests.support.simulated import drawn, simulation
from tests.unit.coordinator import simulated_world
from tests.unit.coordinator.group_calls import config, subscription
from tests.unit.coordinator.simulated_world import Patience, World

GROUP = "g"
TOPIC = "t"
PARTITIONS = 6
SESSION_MS = 10_000
REBALANCE_MS = 30_000
HEARTBEAT_MS = 3_000
PATIENCE = Patience(request_ms=40_000, slow_ms=20_000, append_ms=8_000)
SETTLE_MS = 4 * REBALANCE_MS
FAULTY_MS = 150_000
RETRY_MS = 100
SETTINGS = config(group_initial_rebalance_delay_ms=1_000, offsets_commit_timeout_ms=5_000)
APPEND_ERRORS = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.REQUEST_TIMED_OUT,
]
REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}


@dataclass
class Faults(simulated_world.Faults):
    """Faults of a group."""

    lost: float = drawn(0, 0.01, 0.1)
    slow: float = drawn(0, 0.02, 0.1)
    append_fails: float = drawn(0, 0.02, 0.2)
    append_fails_written: float = drawn(0, 0.5)
    append_slow: float = drawn(0, 0.05)
    crash: float = drawn(0, 0.001, 0.02)
    dies: float = drawn(0, 0.01, 0.05)
    busy: float = drawn(0, 0.1)


class GroupWorld(World[GroupCoordinatorState]):
    """A world that records members' assignments and acknowledged commits."""

    def __init__(
        self, seed: int, core: Callable[..., GroupCoordinatorState] = GroupCoordinatorState
    ) -> None:
        super().__init__(seed, PATIENCE, APPEND_ERRORS)
        self.make_core = core
        self.told: dict[int, dict[str, frozenset[int]]] = {}
        self.made: dict[int, list[dict[str, bytes]]] = {}
        self.arrived: dict[int, int] = {}
        """Offsets in requests to commit, and the order in which they arrived."""
        self.acknowledged: dict[int, int] = {}
        """By partition: the latest acknowledged commit, by its order of arrival."""
        self.loses_unfinished = False
        """A crash loses unfinished appends to the journal; otherwise it loses none."""
        self.offset = 0
        self.restart()

    def new_core(self) -> GroupCoordinatorState:
        rng = self.rng
        return self.make_core(SETTINGS, lambda: f"{rng.getrandbits(32):08x}")

    def keeps_unfinished(self) -> bool:
        return not self.loses_unfinished

    def arrives(self, api: Api, fields: dict[str, Any]) -> None:
        if api is apis.OFFSET_COMMIT:
            for part in fields["topics"][0]["partitions"]:
                self.arrived.setdefault(part["committed_offset"], len(self.arrived))

    def crashed(self) -> None:
        self.check_commits()

    # ---- what must hold --------------------------------------------------------------------

    def check_told(self, consumer: Consumer, assignment: bytes) -> None:
        """Check a member's partitions of a generation (S1, S2)."""
        generation, member_id = consumer.generation, consumer.member_id
        made = self.made.get(generation, [])
        if consumer.instance is None:
            known = any(one.get(member_id, b"") == assignment for one in made)
        else:  # it may have been made for its previous id
            known = not assignment or any(assignment in one.values() for one in made)
        if not known:
            raise Violated(f"S2: generation {generation}: nobody assigned {assignment!r}")
        owners = self.told.setdefault(generation, {})
        mine, who = frozenset(assignment), consumer.instance or member_id
        for other, theirs in owners.items():
            if other != who and mine & theirs:
                both = sorted(mine & theirs)
                raise Violated(f"S1: generation {generation}: {both} are {other}'s and {who}'s")
        owners[who] = owners.get(who, frozenset()) | mine

    def check_commits(self) -> None:
        """Every acknowledged commit is there (S3)."""
        group = self.core.shards[0].groups.get(GROUP)
        for partition, arrival in self.acknowledged.items():
            found = None if group is None else group.offset(TOPIC, partition)
            if found is None or self.arrived[found.offset] < arrival:
                raise Violated(f"S3: partition {partition}: {found} is older than acknowledged")

    def check_journal(self) -> None:
        """The journal has what the coordinator knows, unless something is in flight (S6)."""
        group = self.core.shards[0].groups.get(GROUP)
        if group is None or group.writing or group.commits or group.state is not State.STABLE:
            return
        other = GroupCoordinatorState(SETTINGS, str)
        shard = other.new_shard(0, 0)
        other.load(shard, self.journal.read(0), self.wall_ms)
        loaded = self.picture(shard.groups.get(GROUP))
        if loaded != self.picture(group):
            raise Violated(f"S6: {self.picture(group)} is written as {loaded}")

    @staticmethod
    def picture(group: Group | None) -> Any:
        """The coordinator's state of the group."""
        if group is None:
            return None
        members = sorted(
            (m.member_id, m.instance_id or "", m.session_timeout_ms, m.assignment,
             m.metadata(group.protocol or ""))
            for m in group.members.values()
        )  # fmt: skip
        offsets = {(t, p): o.offset for t, ps in group.offsets.items() for p, o in ps.items()}
        return group.state, group.generation, group.leader, members, offsets


@dataclass
class Consumer:
    """A member that acts as clients do: joins, syncs, heartbeats, commits; may die at any time."""

    world: GroupWorld
    name: str
    instance: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    owned: tuple[int, ...] = ()
    alive: bool = True
    life: int = 0
    """Answers to an earlier process, or to an earlier attempt to join, are ignored."""
    paused_until_ms: int = 0
    stable: bool = False
    busy: bool = False
    """Keeps its heartbeats up, but delays its rejoin as long as it may."""
    topics: list[str] = field(default_factory=lambda: [TOPIC])

    def start(self) -> None:
        if self.life == 0:  # otherwise it has died, and may have restarted
            self._join()

    def die(self) -> None:
        """Die without leaving the group."""
        self.alive = False
        self.life += 1
        self.world.note(f"{self.name} dies")

    def revive(self) -> None:
        """Start a new process, which knows only its instance id."""
        self.alive, self.member_id, self.generation, self.owned = True, "", -1, ()
        self.stable = False
        self.life += 1
        self.world.note(f"{self.name} starts")
        self._join()

    def leave(self) -> None:
        members = [{"member_id": self.member_id, "group_instance_id": self.instance}]
        fields = {"group_id": GROUP, "members": members}
        self.die()
        self.world.send(apis.LEAVE_GROUP, 5, fields, lambda _answer: None, self.name)

    def _send(
        self, api: Api, version: int, fields: dict[str, Any], then: Callable[[Any], None]
    ) -> None:
        life = self.life
        identity: dict[str, Any] = {"group_id": GROUP, "member_id": self.member_id}
        if self.instance is not None:
            identity["group_instance_id"] = self.instance

        def mine(answer: Any) -> None:
            if life == self.life:
                then(answer)

        self.world.send(api, version, {**identity, **fields}, mine, self.name)

    def _again(self, what: Callable[[], None], ms: int = RETRY_MS) -> None:
        self.world.later(ms, what, self)

    # ---- joining ---------------------------------------------------------------------------

    def _rejoin(self, error: ErrorCode | None = None) -> None:
        self.life += 1  # answers in flight no longer matter
        self.owned, self.stable = (), False
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.world.note(f"{self.name} is fenced")
            self.alive = False
            return
        self._again(self._join)

    def _join(self) -> None:
        fields = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription(*self.topics)}],
        }
        self._send(apis.JOIN_GROUP, self.version, fields, self._joined)

    def _joined(self, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif error is not ErrorCode.NONE:
            self._rejoin(error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.world.note(f"{self.name} joined {self.generation} as {self.member_id}")
            self._sync(answer)

    def _sync(self, joined: Any) -> None:
        given: dict[str, bytes] = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            ids = [member.member_id for member in joined.members]
            given = {m: bytes(range(i, PARTITIONS, len(ids))) for i, m in enumerate(ids)}
            self.world.made.setdefault(self.generation, []).append(given)
        fields = {
            "generation_id": self.generation,
            "protocol_type": "consumer",
            "protocol_name": joined.protocol_name,
            "assignments": [{"member_id": m, "assignment": a} for m, a in given.items()],
        }
        self._send(apis.SYNC_GROUP, 5, fields, self._synced)

    def _synced(self, answer: Any) -> None:
        error = None if answer is None else ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            self._rejoin(error)
            return
        self.world.check_told(self, answer.assignment)
        self.owned, self.stable = tuple(answer.assignment), True
        self.world.note(f"{self.name} owns {self.owned} of {self.generation}")
        self._beat()
        self._commit()

    # ---- living ----------------------------------------------------------------------------

    def _beat(self) -> None:
        world = self.world

        def heard(answer: Any) -> None:
            error = None if answer is None else ErrorCode(answer.error_code)
            called = error is ErrorCode.REBALANCE_IN_PROGRESS
            # A static member that neither joins nor falls silent blocks its group, with Kafka, too:
            # it joins once faults end.  A dynamic one is removed when the rebalance times out.
            stays = self.busy and (self.instance is None or world.faults.busy > 0)
            self.busy = called and (stays or world.rng.random() < world.faults.busy)
            if (error in REJOIN and not self.busy) or error is ErrorCode.FENCED_INSTANCE_ID:
                self._rejoin(error)
            else:
                self._again(self._beat, HEARTBEAT_MS)

        self._send(apis.HEARTBEAT, 4, {"generation_id": self.generation}, heard)

    def _commit(self) -> None:
        world = self.world
        world.offset += 1
        offset = world.offset
        parts = [
            {"partition_index": p, "committed_offset": offset, "committed_metadata": self.name}
            for p in self.owned
        ]
        owned = self.owned

        def committed(answer: Any) -> None:
            if answer is not None:
                (topic,) = answer.topics
                for result in topic.partitions:
                    if result.error_code == 0:
                        before = world.acknowledged.get(result.partition_index, -1)
                        newest = max(before, world.arrived[offset])
                        world.acknowledged[result.partition_index] = newest
                assert [r.partition_index for r in topic.partitions] == list(owned)
                if ErrorCode(topic.partitions[0].error_code) in REJOIN:
                    self._rejoin(ErrorCode(topic.partitions[0].error_code))
                    return
            self._again(self._commit, world.rng.randint(500, 4_000))

        if parts:
            fields = {
                "generation_id_or_member_epoch": self.generation,
                "topics": [{"name": TOPIC, "partitions": parts}],
            }
            self._send(apis.OFFSET_COMMIT, 8, fields, committed)


def unsettled(world: GroupWorld, consumers: list[Consumer]) -> str:
    """The group's state, unless the live members share all partitions in one generation."""
    alive = [consumer for consumer in consumers if consumer.alive]
    group = world.core.shards[0].groups.get(GROUP)
    if group is not None and alive and group.state is State.STABLE:
        owned = sorted(p for consumer in alive for p in consumer.owned)
        same = all(c.stable and c.generation == group.generation for c in alive)
        if same and len(group.members) == len(alive) and owned == list(range(PARTITIONS)):
            return ""
    return f"{world.picture(group)}"


def play(world: GroupWorld) -> None:
    """One run: faults for a while, then none, until the group must settle."""
    rng = world.rng
    world.faults = Faults.draw(rng)
    world.loses_unfinished = rng.random() < 0.5
    consumers = [
        Consumer(world, f"c{i}", rng.choice([None, f"host-{i}"]), rng.choice([3, 5, 8, 9]))
        for i in range(rng.randint(1, 5))
    ]
    for consumer in consumers:
        if consumer.version < 5:
            consumer.instance = None
        world.later(rng.randint(0, 5_000), consumer.start)

    def second() -> None:
        for consumer in consumers:
            if rng.random() < world.faults.dies:
                (consumer.leave if rng.random() < 0.3 else consumer.die)()
            elif not consumer.alive and rng.random() < 0.1:
                consumer.revive()
        world.check_commits()
        if (
            not world.faults.append_fails and rng.random() < 0.1
        ):  # a failed append may or may not be written
            world.check_journal()
        if world.now_ms < FAULTY_MS:
            world.later(1_000, second)

    second()
    world.run(FAULTY_MS)
    world.faults = Faults()
    for number, consumer in enumerate(consumers):
        if not consumer.alive and (number == 0 or rng.random() < 0.5):
            consumer.revive()
    world.run(
        world.now_ms + PATIENCE.request_ms + PATIENCE.slow_ms
    )  # lost and slow messages are over
    if not any(consumer.alive for consumer in consumers):
        consumers[0].revive()  # a slow request of its earlier process fenced it
    _must_settle(world, consumers)
    alive = [consumer for consumer in consumers if consumer.alive]
    if len(alive) > 1:
        rng.choice(alive).die()
        _must_settle(world, consumers)
    world.check_commits()
    world.check_journal()


def _must_settle(world: GroupWorld, consumers: list[Consumer]) -> None:
    world.settle("S5", SETTLE_MS, lambda: unsettled(world, consumers))
    world.run(world.now_ms + 2 * SESSION_MS)
    if found := unsettled(world, consumers):
        raise Violated(f"S5: did not stay settled: {found}")


simulate = simulation(GroupWorld, play)
