"""Consumers of a group: their decisions, in a world in which things go wrong.

Each one's core, member, session and commits are the real ones, and so is the coordinator; threads,
network, topics and time are modelled (simulated_group.py).

What must hold whatever happens:

C1  no two members own a partition in the same generation, nor hand out what another owns in theirs
C2  a commit of another generation than the group's is refused, also in a transaction
C3  a committed offset goes back only by a member that owns the partition in the present generation,
    or that committed last while nobody else owns the partition yet
C4  no record is skipped: committed records were handed out, and the next owner continues there
C5  a removed member hands out nothing once its session has expired by its own clock
C6  once faults end, the group settles in bounded time: all partitions are owned, read and committed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset
from kafkalog.client.consumer import core as cores
from kafkalog.client.consumer import member as members
from kafkalog.client.consumer.assignors import find_assignors
from kafkalog.client.consumer.commits import Commits
from kafkalog.client.consumer.core import ConsumerState, Effect, Process
from kafkalog.client.consumer.member import Member, MemberOptions
from kafkalog.client.consumer.session import Session, Tempo
from kafkalog.client.consumer.subscription import Subscription
from kafkalog.coordinator.groups.group import State
from kafkalog.simulate.world import Violated
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.simulated import drawn, simulation
from tests.unit.client.consumer.simulated_group import GROUP, SESSION_MS, GroupWorld
from tests.unit.client.consumer.simulated_member import (
    API_MS,
    HEARTBEAT_MS,
    REBALANCE_MS,
    REQUEST_MS,
    RETRY_MS,
    AwayError,
    Habits,
    Life,
    SimulatedMember,
    Wait,
)
from tests.unit.coordinator import simulated_world

__all__ = ["Consumer", "Simulated", "simulate"]

RETRY_MAX_MS = 500
METADATA_MS = 60_000
FAULTY_MS = 90_000
SETTLE_MS = 4 * REBALANCE_MS
STRAY_MS = 40_000
"""After this time nothing lost or slow is left."""
PROMPT_MS = 30_000
TOPICS = {"a", "b", "late"}
TAKEN_MAX = 20
"""The most records that a poll hands out."""


class Consumer(SimulatedMember):
    """A program with a consumer: the owner's thread, on top of its heartbeats and the Committer."""

    def start(self) -> None:
        """Start a new process."""
        world, habits = self.world, self.habits
        self.life += 1
        self.alive = True
        world.note(f"{self.name} starts")
        tempo = Tempo(HEARTBEAT_MS, SESSION_MS, REBALANCE_MS)
        self.session = Session(tempo, RETRY_MAX_MS / 1000, self.now_s)
        options = MemberOptions(
            find_assignors(world.assignors), SESSION_MS, REBALANCE_MS, habits.instance_id
        )
        pauses_s = RETRY_MS / 1000, RETRY_MAX_MS / 1000
        self.member = Member(GROUP, options, self.session, pauses_s)
        auto = habits.commits == "auto"
        self.core = ConsumerState(self.member, auto, habits.interval_ms / 1000, METADATA_MS / 1000)
        self.core.subscribe(Subscription(TOPICS))
        self.commits = Commits()
        self.positions: dict[TopicPartition, int] = {}
        self.found: dict[TopicPartition, CommittedOffset] | None = None
        """The answer to OffsetFetch."""
        self.asking: object | None = None
        self.rest_until_ms = 0
        self.answer: list[Any] = []
        self.ticket: object | None = None
        self.sent_s = 0.0
        self.beating = self.committing = False
        self.wakes_ms = -1
        self.owner: Life = self._program()
        self.waits: Wait = (world.now_ms, lambda: True)
        self.timed: Wait | None = None
        """The wait whose wake-up is already scheduled."""
        self.read: dict[TopicPartition, int] = {}
        """Read in the open transaction; `read_in` is its generation."""
        self.read_in = -1
        self.ended: list[BaseException | None] = []
        self._wake()

    def _program(self) -> Life:
        """Poll, work, commit, forever."""
        world = self.world
        while True:
            try:
                yield from self._poll(world.now_ms + world.rng.choice([0, 100, 1_000]))
            except AwayError:
                world.note(f"{self.name}: poll raises")
            except errors.KafkalogError as problem:
                world.note(f"{self.name}: {problem}")
                if problem.code == ErrorCode.FENCED_INSTANCE_ID:
                    self.session.rest()
                    return
            if world.chance(world.faults.leaves):
                yield from self._close()
                return
            slow = world.chance(world.faults.slow_work)
            work_ms = REBALANCE_MS + 15_000 if slow else self.habits.work_ms
            yield world.now_ms + world.rng.randint(1, work_ms), lambda: False
            try:
                yield from self._commit_as_usual()
            except errors.KafkalogError as problem:
                world.note(f"{self.name}: commit: {problem}")

    def _poll(self, until_ms: int) -> Life:
        """As Consumer.poll."""
        core = self.core
        while True:
            self.session.polled_s = self.now_s
            yield from self._tell_commits()
            yield from self._drive(core.stay(), until_ms)
            self._mind_missing()
            self._find_positions()
            if core.commit_due(self.now_s):
                self._commit_by_itself()
            if not core.holds(self.now_s):
                continue
            if not core.revoking and self._take():
                return
            if self.world.now_ms >= until_ms:
                return
            yield min(until_ms, self.world.now_ms + 250), lambda: False

    def _take(self) -> bool:
        """Hand out records."""
        world, taken = self.world, False
        gone = [tp for tp in self.core.assigned if not world.has(tp)]
        self.core.missing.miss_partitions(gone, self.now_s, shared=True)
        for tp in sorted(self.core.assigned):
            first = self.positions.get(tp)
            if first is None or tp in gone:
                continue
            end = min(world.ends.get(tp, 0), first + TAKEN_MAX)
            if end > first:
                member = self.member.latest
                who = member.instance_id or member.member_id
                world.judge.handed_out(
                    self.member.metadata.member_id, who, member.generation, tp, first, end
                )
                self.positions[tp] = end
                if self.habits.commits == "transaction":
                    self._note_read(tp, end, member.generation)
                taken = True
        return taken

    def _note_read(self, tp: TopicPartition, end: int, generation: int) -> None:
        """Note it for the transaction; reads of another generation belong to the new owners."""
        if generation != self.read_in:
            self.read.clear()
        self.read[tp], self.read_in = end, generation

    def _mind_missing(self) -> None:
        """As ConsumerCoordinator."""
        missing = self.core.missing
        if missing.due_topics(self.now_s):
            missing.found(self.world.has, self.now_s, shared=True)

    def _find_positions(self) -> None:
        """Begin at the group's committed offsets, or at the beginning."""
        if self.found is not None:
            for tp in self.core.assigned:
                if tp not in self.positions:
                    at = self.found.get(tp)
                    self.positions[tp] = 0 if at is None else at.offset
                    self.core.assigned[tp] = None if at is None else at.offset
            self.found = None
        wanted = [tp for tp in self.core.assigned if tp not in self.positions]
        new = [tp for tp in wanted if self.world.has(tp)]
        self.core.missing.miss_partitions(set(wanted) - set(new), self.now_s, shared=True)
        if new and self.asking is None:
            self._fetch_offsets(new)

    def _fetch_offsets(self, new: list[TopicPartition]) -> None:
        ticket = self.asking = object()
        topics: dict[str, list[int]] = {}
        for tp in new:
            topics.setdefault(tp.topic, []).append(tp.partition)
        asked = [{"name": name, "partition_indexes": some} for name, some in topics.items()]
        fields = {"groups": [{"group_id": GROUP, "topics": asked}], "require_stable": True}

        def then(answer: Any) -> None:
            if self.asking is not ticket:
                return  # for an earlier assignment
            self.asking = None
            if answer is None or isinstance(answer, ErrorCode) or answer.groups[0].error_code:
                return
            rows = [(t.name, p) for t in answer.groups[0].topics for p in t.partitions]
            if any(p.error_code for _, p in rows):
                return
            self.found = {
                TopicPartition(name, p.partition_index): CommittedOffset(p.committed_offset)
                for name, p in rows
                if p.committed_offset >= 0
            }
            self._nudge()

        self.ask(apis.OFFSET_FETCH, 9, fields, then, REQUEST_MS)

    # ---- what the core wants done -----------------------------------------------------------

    def _drive(self, process: Process[None], until_ms: int) -> Life:
        answer: Any = None
        while True:
            self.core.now_s = self.now_s
            try:
                effect = process.send(answer)
            except StopIteration:
                return
            finally:
                self._do()
            answer = yield from self._done(effect, until_ms)

    def _done(self, effect: Effect, until_ms: int) -> Life:
        world = self.world
        match effect:
            case cores.Commit(wait):
                try:
                    self._commit_by_itself()
                except errors.KafkalogError as problem:
                    return problem
                if wait:
                    yield world.now_ms + API_MS, lambda: self.commits.quiet
            case cores.Drain():
                return (yield from self._drained(until_ms))
            case cores.ReportCommits():
                yield from self._tell_commits()
            case cores.CallListener(what, partitions):
                return (yield from self._listener(what, partitions))
            case cores.Replace(partitions):
                for tp in self.core.replace(partitions):
                    self.positions.pop(tp, None)
                self.found = self.asking = None
            case cores.Join(owned):
                return (yield from self._join(owned, world.now_ms if owned else until_ms))
            case cores.Look():
                self._look()
                return False
            case cores.Absent(topics):
                self.core.missing.miss_topics(topics, self.now_s)
            case cores.Say(text):
                world.note(f"{self.name}: {text}")
        return None

    def _drained(self, until_ms: int) -> Life:
        """Wait for background commits while the session lasts."""
        self.session.polled_s = float("inf")
        while not self.commits.quiet:
            end_ms = min(until_ms, int(min(self.session.end_s, 1e9) * 1000))
            if self.world.now_ms >= end_ms:
                break
            yield min(end_ms, self.world.now_ms + 1_000), lambda: self.commits.quiet
        self.session.polled_s = self.now_s
        return self.commits.quiet

    def _listener(self, what: str, partitions: list[TopicPartition]) -> Life:
        world, faults = self.world, self.world.faults
        world.note(f"{self.name}: {what} {[f'{tp.topic}-{tp.partition}' for tp in partitions]}")
        if world.chance(faults.slow_listener):
            yield world.now_ms + world.rng.randint(1, 2 * SESSION_MS), lambda: False
        if what == "revoked" and self.habits.commits in ("background", "sync"):
            try:
                self._commit(self._reached(), asked=True)
            except errors.KafkalogError:
                world.note(f"{self.name}: too late to commit")
            if self.habits.commits == "sync":
                yield world.now_ms + API_MS, lambda: self.commits.quiet
        if world.chance(faults.raises):
            return AwayError(what)
        return None

    def _look(self) -> None:
        """As ConsumerCoordinator: look at the metadata when it is due."""
        core, member = self.core, self.member
        if not core.missing.due(self.now_s):
            return
        core.missing.begin_lookup(self.now_s)
        absent = set[str]()
        if member.state == members.IN and member.counts is not None:
            counts = self.world.counts(member.topics)
            core.saw(counts)
            absent = member.topics - counts.keys()
        core.missing.miss_topics(absent, self.now_s)

    # ---- joining ---------------------------------------------------------------------------

    def _do(self) -> None:
        """Carry out what the member wants."""
        effects, self.member.effects = self.member.effects, []
        for one in effects:
            match one:
                case members.BeatAs(member, heard_s):
                    self.session.begin(member, self.now_s, heard_s)
                case members.Asks(reads_on):
                    self.session.joins(reads_on)
                case members.Rest():
                    self.session.rest()
                case members.Unwanted() | members.Doubt():
                    self.ticket = None
                    self.answer = []
                case members.DoubtTopics():
                    pass
        if effects:
            self._keep()


# ---- a run -----------------------------------------------------------------------------------


@dataclass
class Faults(simulated_world.Faults):
    """Faults of consumers, their coordinator and their topics."""

    delay_ms: int = drawn(2, 20, 200, calm=5)
    lost: float = drawn(0, 0.01, 0.1)
    twice: float = drawn(0, 0.05)
    slow: float = drawn(0, 0.02, 0.1)
    append_fails: float = drawn(0, 0, 0.05)
    append_fails_written: float = drawn(0.5, calm=0)
    append_slow: float = drawn(0, 0.05)
    crash: float = drawn(0, 0, 0.001)
    slow_listener: float = drawn(0, 0.05, 0.2)
    raises: float = drawn(0, 0.1)
    slow_work: float = drawn(0, 0, 0.01)
    stalls: float = drawn(0, 0, 0.02)
    member_dies: float = drawn(0, 0.01, 0.03)
    leaves: float = drawn(0, 0, 0.002)
    moves: float = drawn(0, 0.01)
    silent: float = drawn(0, 0, 0.02)
    jumps: float = drawn(0, 0, 0.005)
    grows: float = drawn(0, 0.01)
    deletes: float = drawn(0, 0, 0.01)


class Simulated(GroupWorld):
    """The world, and what happens to its members and topics."""

    def __init__(self, seed: int) -> None:
        self.transactions = 0
        super().__init__(seed)
        rng = self.rng
        self.assignors = rng.choice(["range", "sticky", "roundrobin"] + 3 * ["cooperative-sticky"])
        commits = rng.choice(["auto", "auto", "background", "sync", "transaction", "mixed"])
        self.consumers = [
            Consumer(self, f"c{number}", self._habits(commits, number))
            for number in range(rng.randint(2, 4))
        ]

    def _habits(self, commits: str, number: int) -> Habits:
        rng = self.rng
        if commits == "mixed":
            commits = rng.choice(["auto", "background", "sync", "transaction"])
        instance = f"host-{number}" if rng.random() < 0.25 else None
        work_ms, interval_ms = rng.choice([10, 200, 2_000]), rng.choice([200, 1_000, 5_000])
        return Habits(commits, work_ms, interval_ms, instance)

    @property
    def living(self) -> list[Consumer]:
        return [one for one in self.consumers if one.alive]


def _tick(world: Simulated) -> None:
    """Records arrive, and things go wrong."""
    rng, faults = world.rng, world.faults
    for tp in world.partitions:
        if rng.random() < 0.5:
            world.ends[tp] = world.ends.get(tp, 0) + rng.choice([1, 3, 15])
    for one in world.consumers:
        if one.alive and world.chance(faults.member_dies):
            one.die()
        elif not one.alive and rng.random() < 0.1:
            one.start()
        elif one.alive and world.chance(faults.stalls):
            one.paused_until_ms = world.now_ms + rng.randint(1_000, 2 * SESSION_MS)
            world.note(f"{one.name} gets no time")
    if world.chance(faults.moves):
        world.away_until_ms = world.now_ms + rng.randint(100, SESSION_MS)
        world.restart()
    if world.chance(faults.silent):
        world.silent_until_ms = world.now_ms + rng.randint(1_000, 2 * SESSION_MS)
        world.note("the coordinator pauses")
    if world.chance(faults.jumps):
        world.now_ms += rng.randint(1_000, 2 * SESSION_MS)
        world.note("the clock jumped")
    if world.chance(faults.grows):
        name = rng.choice(list(world.topics))
        world.topics[name] += 1
        world.note(f"{name} has {world.topics[name]} partitions")
    if world.chance(faults.deletes) and "b" in world.topics:
        del world.topics["b"]
        world.note("b is deleted")
    if world.now_ms < FAULTY_MS:
        world.later(rng.randint(100, 1_000), lambda: _tick(world))


def play(world: Simulated) -> None:
    """Run once: faults for a while, then none, after which the group must settle."""
    rng = world.rng
    world.faults = Faults.draw(rng)
    for one in world.consumers:
        world.later(rng.randint(0, 5_000), one.start)
    if rng.random() < 0.5:
        world.later(rng.randint(0, FAULTY_MS), lambda: world.topics.update(late=2))
    world.later(0, lambda: _tick(world))
    world.run(FAULTY_MS)
    world.note("no more faults")
    raises, world.faults = world.faults.raises, Faults()
    for number, one in enumerate(world.consumers):
        if not one.alive and (number == 0 or rng.random() < 0.5):
            one.start()
    world.run(world.now_ms + STRAY_MS)
    if not world.living:
        world.consumers[0].start()
    # A returning static leader does not know what has grown in the meantime, as in Kafka (KIP-814).
    world.topics["a"] += 1
    _must_settle(world)
    # A listener may raise at any time.
    world.faults.raises = 0.5 if raises else 0.0
    gone = [one for one in world.consumers if not one.alive]
    if gone:
        rng.choice(gone).start()
    elif rng.random() < 0.5:
        rng.choice(world.living).die()
    else:
        world.consumers.append(
            Consumer(world, "new", world.consumers[0].habits._replace(instance_id=None))
        )
        world.consumers[-1].start()
    _must_settle(world)
    if "b" in world.topics:
        _must_read_on(world)


def _must_settle(world: Simulated) -> None:
    for tp in world.partitions:
        world.ends[tp] = world.ends.get(tp, 0) + 1
    world.settle("C6", SETTLE_MS, lambda: _unsettled(world))
    world.run(world.now_ms + 2 * SESSION_MS)
    if why := _unsettled(world):
        raise Violated(f"C6: it did not stay settled: {why}")


def _must_read_on(world: Simulated) -> None:
    """A deleted topic stops no other one, even long before the leader looks at the metadata."""
    leaders = [one for one in world.living if one.member.counts is not None]
    looks_s = max((one.core.missing.next_lookup_s for one in leaders), default=0.0)
    world.run(max(world.now_ms, int(looks_s * 1000) + 500))
    del world.topics["b"]
    world.note("b is deleted")
    for tp in world.partitions:
        world.ends[tp] += 1
    world.settle("C6: another topic was deleted", PROMPT_MS, lambda: _unread(world))
    world.run(world.now_ms + METADATA_MS)
    _must_settle(world)


def _unsettled(world: Simulated) -> str:
    """Why the group is not settled.  Empty: all living members share all partitions in one
    generation, and have read and committed everything."""
    group, living = world.group, world.living
    if group is None or group.state is not State.STABLE:
        return f"the group is {group and group.state}"
    if len(group.members) != len(living):
        return f"found {len(group.members)} members, wanted {len(living)}"
    for one in living:
        if one.member.state != members.IN or one.member.metadata.generation != group.generation:
            return f"{one.name} is {one.member.state} of {one.member.metadata}"
    owned = sorted(tp for one in living for tp in one.core.assigned if world.has(tp))
    if owned != sorted(world.partitions):
        return f"found {owned} owned, wanted {sorted(world.partitions)}"
    return _unread(world)


def _unread(world: Simulated) -> str:
    for tp in world.partitions:
        end, given = world.ends.get(tp, 0), world.judge.given.get(tp, 0)
        if given != end:
            return f"{tp}: {given} records of {end} were handed out"
    return ""


simulate = simulation(Simulated, play)
