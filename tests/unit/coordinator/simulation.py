"""A coordinator, its consumers and everything that may go wrong between them, in virtual time.

The coordinator is the real one (its core, which the thread only feeds); network, journal and
consumers are simulated, and chance comes from one seed.  What must hold whatever happens:

S1  no two members own a partition in the same generation, as they were told by SyncGroup
S2  an assignment that a member was told is one that the leader of that generation made
S3  a commit that was acknowledged, or a later one, is there, also after restarts
S4  every request is answered at most once (the desk's Reply holds that)
S5  once faults end the group settles in bounded time: Stable, all partitions owned
S6  what the coordinator knows is what it would know after a restart, when nothing is under way
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from kafkalog.coordinator.core import Append
from kafkalog.coordinator.groups.core import GroupCore
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.step import Request, Step
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.desk import HOST, WALL_MS, MemoryJournal, Reply, config, subscription

GROUP = "g"
TOPIC = "t"
PARTITIONS = 6
SESSION_MS = 10_000
REBALANCE_MS = 30_000
HEARTBEAT_MS = 3_000
REQUEST_MS = 40_000
SLOW_MS = 20_000
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


class Violated(AssertionError):
    """An invariant does not hold."""


@dataclass
class Faults:
    """How often what goes wrong; all 0: nothing does."""

    delay_ms: int = 5
    lost: float = 0.0
    """Requests, and answers, that never arrive."""
    slow: float = 0.0
    """Those that take up to SLOW_MS."""
    append_fails: float = 0.0
    append_fails_written: float = 0.0
    """Reported as failed, and yet in the journal."""
    append_slow: float = 0.0
    crash: float = 0.0
    """After each event."""
    dies: float = 0.0
    """A consumer, in each second."""
    busy: float = 0.0
    """A consumer that is told to join again."""


class World:
    """Virtual time, the coordinator, its journal, the network."""

    def __init__(self, seed: int, core: Callable[..., GroupCore] = GroupCore) -> None:
        self.rng = random.Random(seed)
        self.faults = Faults()
        self.now_ms = 0
        self.order = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.journal = MemoryJournal()
        self.make_core = core
        self.epoch = 0
        self.last_ready_ms: dict[int, int] = {}
        self.told: dict[int, dict[str, frozenset[int]]] = {}
        self.made: dict[int, list[dict[str, bytes]]] = {}
        self.arrived: dict[int, int] = {}
        """Offsets that were to be committed, and which of these came first."""
        self.acknowledged: dict[int, int] = {}
        """By partition: the last one that was acknowledged, in the order of arrival."""
        self.loses_unfinished = False
        """A crash loses what the journal had not finished yet; else it is all there."""
        self.offset = 0
        self.trace: list[str] = []
        self.restart()

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms:>8} {text}")

    def later(self, ms: int, event: Callable[[], None]) -> None:
        self.order += 1
        heappush(self.queue, (self.now_ms + ms, self.order, event))

    def run(self, until_ms: int, done: Callable[[], bool] = lambda: False) -> None:
        """Let things happen until a time, or until `done`."""
        while not done():
            timer_ms = self.core.timers.next_ms()
            event_ms = self.queue[0][0] if self.queue else until_ms + 1
            next_ms = event_ms if timer_ms is None else min(event_ms, max(timer_ms, self.now_ms))
            if next_ms > until_ms:
                self.now_ms = until_ms
                return
            self.now_ms = next_ms
            if event_ms == next_ms:
                heappop(self.queue)[2]()
            else:
                self.step(lambda _step: None)
            if self.rng.random() < self.faults.crash:
                self.restart()
                self.check_commits()

    # ---- the coordinator -------------------------------------------------------------------

    def restart(self) -> None:
        """The coordinator dies, and another one reads the journal."""
        self.epoch += 1
        self.note(f"coordinator {self.epoch} starts")
        rng = self.rng
        self.core = self.make_core(SETTINGS, lambda: f"{rng.getrandbits(32):08x}")
        self.core.begin_load(0, 1)
        shard = self.core.new_shard(0)
        self.core.load(shard, self.journal.read(0), self.wall_ms)
        self.step(lambda step: self.core.end_load(shard, step))

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def step(self, event: Callable[[Step], None]) -> None:
        step = Step(self.now_ms, self.wall_ms)
        event(step)
        self.core.tick(step)
        while step.writes:
            for append in self.core.appends(step):
                self._append(append)
        for answer, body in step.answers:
            answer(body)

    def _append(self, append: Append) -> None:
        """The journal: in order, but slow or failing at times."""
        rng, faults, epoch = self.rng, self.faults, self.epoch
        error = ErrorCode.NONE
        written = True
        if rng.random() < faults.append_fails:
            error = rng.choice(APPEND_ERRORS)
            written = rng.random() < faults.append_fails_written
        delay_ms = rng.randint(0, 8_000) if rng.random() < faults.append_slow else rng.randint(0, 3)
        ready_ms = max(self.now_ms + delay_ms, self.last_ready_ms.get(epoch, 0))
        self.last_ready_ms[epoch] = ready_ms
        early = written and not self.loses_unfinished
        if early:
            self.journal.put_of(append.partition, append.records, append.producer)

        def outcome() -> None:
            if epoch == self.epoch:
                if written and not early:
                    self.journal.put_of(append.partition, append.records, append.producer)
                self.step(lambda step: self.core.settled(append.number, error, step))

        self.later(ready_ms - self.now_ms, outcome)

    # ---- the network -----------------------------------------------------------------------

    def send(
        self, api: Api, version: int, fields: dict[str, Any], client: str,
        then: Callable[[Any], None],
    ) -> None:  # fmt: skip
        """Send a request; `then` gets its answer, or None after a while without one."""
        state = {"over": False}

        def arrive(body: Any) -> None:
            if not state["over"]:
                state["over"] = True
                then(body)

        def request() -> None:
            epoch = self.epoch
            reply = Reply(api, version)

            def answered(body: dict[str, Any]) -> None:
                reply(body)  # S4
                if epoch == self.epoch and not self._lost():
                    self.later(self._travel(), lambda: arrive(reply.body))

            if api is apis.OFFSET_COMMIT:
                for part in fields["topics"][0]["partitions"]:
                    self.arrived.setdefault(part["committed_offset"], len(self.arrived))
            decoded = api.decode_request(version, api.encode_request(version, fields))
            asked = Request(decoded, version, client, HOST, answered)
            self.step(lambda step: self.core.request(api, asked, step))

        if not self._lost():
            self.later(self._travel(), request)
        self.later(REQUEST_MS, lambda: arrive(None))

    def _lost(self) -> bool:
        return self.rng.random() < self.faults.lost

    def _travel(self) -> int:
        if self.rng.random() < self.faults.slow:
            return self.rng.randint(0, SLOW_MS)
        return self.rng.randint(0, self.faults.delay_ms)

    # ---- what must hold --------------------------------------------------------------------

    def check_told(self, consumer: Consumer, assignment: bytes) -> None:
        """A member was told its partitions of a generation (S1, S2)."""
        generation, member_id = consumer.generation, consumer.member_id
        made = self.made.get(generation, [])
        if consumer.instance is None:
            known = any(one.get(member_id, b"") == assignment for one in made)
        else:  # it may have been made for the id that it had before
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
        """What was acknowledged is there (S3)."""
        group = self.core.shards[0].groups.get(GROUP)
        for partition, arrival in self.acknowledged.items():
            found = None if group is None else group.offset(TOPIC, partition)
            if found is None or self.arrived[found.offset] < arrival:
                raise Violated(f"S3: partition {partition}: {found} is older than acknowledged")

    def check_journal(self) -> None:
        """The journal says what the coordinator knows, unless something is under way (S6)."""
        group = self.core.shards[0].groups.get(GROUP)
        if group is None or group.writing or group.commits or group.state is not State.STABLE:
            return
        other = GroupCore(SETTINGS, str)
        shard = other.new_shard(0)
        other.load(shard, self.journal.read(0), self.wall_ms)
        loaded = self.picture(shard.groups.get(GROUP))
        if loaded != self.picture(group):
            raise Violated(f"S6: {self.picture(group)} is written as {loaded}")

    @staticmethod
    def picture(group: Group | None) -> Any:
        """What the coordinator knows of the group."""
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
    """A member as clients are: joins, syncs, heartbeats, commits; may die at any time."""

    world: World
    name: str
    instance: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    owned: tuple[int, ...] = ()
    alive: bool = True
    life: int = 0
    """Answers of an earlier life, or of an earlier attempt to join, are not heard."""
    stable: bool = False
    busy: bool = False
    """Goes on with its heartbeats but does not join again while it may."""
    topics: list[str] = field(default_factory=lambda: [TOPIC])

    def start(self) -> None:
        if self.life == 0:  # else it died before, and may have started since
            self._join()

    def die(self) -> None:
        """Without a word."""
        self.alive = False
        self.life += 1
        self.world.note(f"{self.name} dies")

    def revive(self) -> None:
        """A new process: it knows nothing but its instance id."""
        self.alive, self.member_id, self.generation, self.owned = True, "", -1, ()
        self.stable = False
        self.life += 1
        self.world.note(f"{self.name} starts")
        self._join()

    def leave(self) -> None:
        members = [{"member_id": self.member_id, "group_instance_id": self.instance}]
        fields = {"group_id": GROUP, "members": members}
        self.die()
        self.world.send(apis.LEAVE_GROUP, 5, fields, self.name, lambda _answer: None)

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

        self.world.send(api, version, {**identity, **fields}, self.name, mine)

    def _again(self, what: Callable[[], None], ms: int = RETRY_MS) -> None:
        life = self.life
        self.world.later(ms, lambda: what() if life == self.life else None)

    # ---- joining ---------------------------------------------------------------------------

    def _rejoin(self, error: ErrorCode | None = None) -> None:
        self.life += 1  # what is under way no longer matters
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
            self.busy = called and (self.busy or world.rng.random() < world.faults.busy)
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


def settled(world: World, consumers: list[Consumer]) -> bool:
    """Whether all that live share all partitions of one generation."""
    alive = [consumer for consumer in consumers if consumer.alive]
    group = world.core.shards[0].groups.get(GROUP)
    if group is None or not alive or group.state is not State.STABLE:
        return False
    owned = sorted(p for consumer in alive for p in consumer.owned)
    same = all(c.stable and c.generation == group.generation for c in alive)
    return same and len(group.members) == len(alive) and owned == list(range(PARTITIONS))


def state(world: World) -> Any:
    return world.picture(world.core.shards[0].groups.get(GROUP))


def simulate(seed: int, core: Callable[..., GroupCore] = GroupCore) -> World:
    """One run: faults for a while, then peace, in which the group must settle.

    Raises: Violated, with the trace of what happened as its note.
    """
    world = World(seed, core)
    try:
        _simulate(world)
    except AssertionError as error:
        told = "\n".join(world.trace[-60:])
        raise Violated(f"seed {seed}: {error}\n{told}") from error
    return world


def _simulate(world: World) -> None:
    rng = world.rng
    world.faults = Faults(
        delay_ms=rng.choice([1, 20, 200]),
        lost=rng.choice([0, 0.01, 0.1]),
        slow=rng.choice([0, 0.02, 0.1]),
        append_fails=rng.choice([0, 0.02, 0.2]),
        append_fails_written=rng.choice([0, 0.5]),
        append_slow=rng.choice([0, 0.05]),
        crash=rng.choice([0, 0.001, 0.02]),
        dies=rng.choice([0, 0.01, 0.05]),
        busy=rng.choice([0, 0.1]),
    )
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
        ):  # a failure may or may not have been written
            world.check_journal()
        if world.now_ms < FAULTY_MS:
            world.later(1_000, second)

    second()
    world.run(FAULTY_MS)
    world.faults = Faults()
    for number, consumer in enumerate(consumers):
        if not consumer.alive and (number == 0 or rng.random() < 0.5):
            consumer.revive()
    world.run(world.now_ms + REQUEST_MS + SLOW_MS)  # what was lost or slow is over
    _must_settle(world, consumers)
    alive = [consumer for consumer in consumers if consumer.alive]
    if len(alive) > 1:
        rng.choice(alive).die()
        _must_settle(world, consumers)
    world.check_commits()
    world.check_journal()


def _must_settle(world: World, consumers: list[Consumer]) -> None:
    world.run(world.now_ms + SETTLE_MS, lambda: settled(world, consumers))
    if not settled(world, consumers):
        raise Violated(f"S5: not settled in {SETTLE_MS} ms: {state(world)}")
    world.run(world.now_ms + 2 * SESSION_MS)
    if not settled(world, consumers):
        raise Violated(f"S5: did not stay settled: {state(world)}")
