"""Consumers of a group: what decides in them, in a world in which things go wrong.

Each one's core, member, session and commits are the real ones, and so is the coordinator; threads,
network, topics and time are modelled (simulated_group.py).

What must hold whatever happens:

C1  no two members own a partition in the same generation, nor hand out what another owns in theirs
C2  a commit of another generation than the group's does not go through, also in a transaction
C3  a committed offset goes back only by a member that owns the partition in the present generation,
    or that committed last and whose partition is nobody else's yet
C4  no record is skipped: what is committed was handed out, and who takes over goes on there
C5  a member that is out hands out nothing once its session is over by its own clock
C6  once faults end the group settles in bounded time: all partitions are owned, read and committed
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata
from kafkalog.client.consumer import core as cores
from kafkalog.client.consumer import member as members
from kafkalog.client.consumer.assignors import find_assignors
from kafkalog.client.consumer.commits import Commits, Committing, Offsets
from kafkalog.client.consumer.core import Core, Effect, Process
from kafkalog.client.consumer.member import JOINING, OUT, SHARING, SYNCING, Member, MemberOptions
from kafkalog.client.consumer.session import Beat, Goodbye, Session, Tempo
from kafkalog.client.consumer.subscription import Subscription
from kafkalog.client.link.failures import failure, passing
from kafkalog.coordinator.groups.group import State
from kafkalog.coordinator.step import Producer
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.support.virtual import Violated, telling
from tests.unit.client.consumer.simulated_group import GROUP, SESSION_MS, GroupWorld
from tests.unit.coordinator.simulated_world import Faults

__all__ = ["Consumer", "Simulated", "simulate"]

REBALANCE_MS, GRACE_MS, HEARTBEAT_MS = 30_000, 5_000, 3_000
RETRY_MS, RETRY_MAX_MS = 50, 500
API_MS, REQUEST_MS = 25_000, 12_000
METADATA_MS = 60_000
FAULTY_MS = 90_000
SETTLE_MS = 4 * REBALANCE_MS
STRAY_MS = 40_000
"""In so long what was lost or slow is over."""
PROMPT_MS = 30_000
TOPICS = {"a", "b", "late"}
TAKEN_MAX = 20
"""Records that a poll hands out."""


class AwayError(Exception):
    """What the user's database says."""


class Habits(NamedTuple):
    """How a program uses its consumer."""

    commits: str
    """auto, background, sync, transaction."""
    work_ms: int
    """Between two polls, at most."""
    interval_ms: int
    """Of automatic commits."""
    instance_id: str | None


class Trouble:
    """How often what goes wrong with members and topics; all 0: nothing does."""

    slow_listener = raises = slow_work = stalls = dies = leaves = 0.0
    moves = silent = jumps = grows = deletes = 0.0


Wait = tuple[int, Callable[[], bool]]
"""Until when a thread sleeps, unless it is woken by this."""
Life = Generator[Wait, None, Any]


class Consumer:
    """A program with a consumer: the owner's thread, the Keeper's and the Committer's."""

    def __init__(self, world: Simulated, name: str, habits: Habits) -> None:
        self.world = world
        self.name = name
        self.habits = habits
        self.alive = False
        self.life = 0
        self.stalled_ms = 0
        """Until when the process gets no time."""

    # ---- a process ---------------------------------------------------------------------------

    def start(self) -> None:
        """A new process."""
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
        self.core = Core(self.member, auto, habits.interval_ms / 1000, METADATA_MS / 1000)
        self.core.subscribe(Subscription(TOPICS))
        self.commits = Commits()
        self.positions: dict[TopicPartition, int] = {}
        self.found: dict[TopicPartition, CommittedOffset] | None = None
        """What OffsetFetch said."""
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
        """Of what it waits for, what wakes it in the end."""
        self.read: dict[TopicPartition, int] = {}
        """In the transaction that is open, and in which generation."""
        self.read_in = -1
        self.ended: list[BaseException | None] = []
        self._wake()

    def die(self) -> None:
        """Without a word."""
        self.life += 1
        self.alive = False
        self.world.note(f"{self.name} dies")

    @property
    def now_s(self) -> float:
        return self.world.now_ms / 1000

    def later(self, ms: int, event: Callable[[], None]) -> None:
        """An event of this process, if it still is there, once it gets time."""
        life = self.life

        def happen() -> None:
            if life != self.life:
                return
            left_ms = self.stalled_ms - self.world.now_ms
            if left_ms > 0:
                self.world.later(left_ms, happen)
            else:
                event()

        self.world.later(ms, happen)

    def ask(
        self, api: Api, version: int, fields: dict[str, Any], then: Callable[[Any], None],
        timeout_ms: int, **holds: Any,
    ) -> None:  # fmt: skip
        life = self.life

        def mine(answer: Any) -> None:
            if life == self.life:
                self.later(0, lambda: then(answer))

        self.world.ask(api, version, fields, mine, timeout_ms, **holds)

    # ---- the owner's thread --------------------------------------------------------------------

    def _wake(self) -> None:
        """Let the owner's thread go on, if what it waits for is there, or its time is over."""
        while self.alive:
            until_ms, ready = self.waits
            if self.world.now_ms < until_ms and not ready():
                break
            try:
                self.waits = next(self.owner)
            except StopIteration:
                self.die()
                return
        if self.alive and self.waits is not self.timed:
            self.timed = self.waits
            self.later(self.waits[0] - self.world.now_ms, self._wake)

    def _nudge(self) -> None:
        self.later(0, self._wake)

    def _program(self) -> Life:
        """Poll, work, commit, for ever."""
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
            if world.chance(world.trouble.leaves):
                yield from self._close()
                return
            slow = world.chance(world.trouble.slow_work)
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
            if not core.parting and self._take():
                return
            if self.world.now_ms >= until_ms:
                return
            yield min(until_ms, self.world.now_ms + 250), lambda: False

    def _take(self) -> bool:
        """Hand out records."""
        world, taken = self.world, False
        gone = [tp for tp in self.core.assigned if not world.has(tp)]
        self.core.lookout.miss(gone, self.now_s, shared=True)
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
                    self.read[tp] = end
                    self.read_in = member.generation
                taken = True
        return taken

    def _mind_missing(self) -> None:
        """As Sharing."""
        lookout = self.core.lookout
        if lookout.asks(self.now_s):
            lookout.asked(self.world.has, self.now_s, shared=True)

    def _find_positions(self) -> None:
        """Begin where the group has left off, or at the beginning."""
        if self.found is not None:
            for tp in self.core.assigned:
                if tp not in self.positions:
                    at = self.found.get(tp)
                    self.positions[tp] = 0 if at is None else at.offset
                    self.core.assigned[tp] = None if at is None else at.offset
            self.found = None
        wanted = [tp for tp in self.core.assigned if tp not in self.positions]
        new = [tp for tp in wanted if self.world.has(tp)]
        self.core.lookout.miss(set(wanted) - set(new), self.now_s, shared=True)
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
                return  # of an assignment before
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
            case cores.TellCommits():
                yield from self._tell_commits()
            case cores.Tell(what, partitions):
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
                self.core.lookout.lack(topics, self.now_s)
            case cores.Say(text):
                world.note(f"{self.name}: {text}")
        return None

    def _drained(self, until_ms: int) -> Life:
        """Wait for the commits in the background, while the session lasts."""
        self.session.polled_s = float("inf")
        while not self.commits.quiet:
            end_ms = min(until_ms, int(min(self.session.end_s, 1e9) * 1000))
            if self.world.now_ms >= end_ms:
                break
            yield min(end_ms, self.world.now_ms + 1_000), lambda: self.commits.quiet
        self.session.polled_s = self.now_s
        return self.commits.quiet

    def _listener(self, what: str, partitions: list[TopicPartition]) -> Life:
        world, trouble = self.world, self.world.trouble
        world.note(f"{self.name}: {what} {[f'{tp.topic}-{tp.partition}' for tp in partitions]}")
        if world.chance(trouble.slow_listener):
            yield world.now_ms + world.rng.randint(1, 2 * SESSION_MS), lambda: False
        if what == "revoked" and self.habits.commits in ("background", "sync"):
            try:
                self._commit(self._reached(), asked=True)
            except errors.KafkalogError:
                world.note(f"{self.name}: too late to commit")
            if self.habits.commits == "sync":
                yield world.now_ms + API_MS, lambda: self.commits.quiet
        if world.chance(trouble.raises):
            return AwayError(what)
        return None

    def _look(self) -> None:
        """As Sharing: at the metadata, when it is time for that."""
        core, member = self.core, self.member
        if not core.lookout.due(self.now_s):
            return
        core.lookout.looks(self.now_s)
        absent = set[str]()
        if member.state == members.IN and member.counts is not None:
            counts = self.world.counts(member.topics)
            core.saw(counts)
            absent = member.topics - counts.keys()
        core.lookout.lack(absent, self.now_s)

    # ---- joining ---------------------------------------------------------------------------

    def _do(self) -> None:
        """What the member wants done."""
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

    def _join(self, owned: list[TopicPartition], until_ms: int) -> Life:
        """As Membership.step."""
        member, world = self.member, self.world
        while True:
            member.out_of_it(self.now_s)
            self._do()
            if owned and member.metadata.generation < 0:
                return False
            if self.rest_until_ms > world.now_ms:
                yield min(self.rest_until_ms, until_ms), lambda: False
                if world.now_ms < self.rest_until_ms:
                    return False
            try:
                stepped = yield from self._stepped(owned, until_ms)
            except errors.KafkalogError as problem:
                try:
                    pause_s = member.failed(problem, reached=True)
                finally:
                    self._do()
                self.rest_until_ms = world.now_ms + int(pause_s * 1000)
            else:
                if stepped is not None:
                    return stepped

    def _stepped(self, owned: list[TopicPartition], until_ms: int) -> Life:
        """Whether it is in; None: there is more to do."""
        member = self.member
        if member.state == OUT:
            self._post(apis.JOIN_GROUP, 9, member.join(self.core.subscription.topics, owned))
            member.asked(reads_on=bool(owned))
            self._do()
        if member.state != SHARING:
            self.session.polled_s = float("inf")
            yield until_ms, lambda: bool(self.answer)
            self.session.polled_s = self.now_s
            if not self.answer:
                return False
        if member.out_of_it(self.now_s):
            self._do()
            return None
        if member.state in (JOINING, SYNCING):
            answer = self._received(self.answer.pop())
            if member.state == JOINING:
                member.joined(answer)
            else:
                member.synced(answer, self.sent_s)
                self.world.note(f"{self.name} owns {member.share} in {member.metadata}")
            self._do()
        if member.state == SHARING:
            topics = member.to_share()
            counts = None if topics is None else self.world.counts(topics)
            self._post(apis.SYNC_GROUP, 5, member.sync(counts))
            member.shared()
        return True if member.state == members.IN else None

    def _post(self, api: Api, version: int, fields: dict[str, Any]) -> None:
        ticket = self.ticket = object()
        self.answer, self.sent_s = [], self.now_s

        def then(answer: Any) -> None:
            if self.ticket is ticket:
                self.answer = [answer]
                self._wake()

        self.ask(api, version, fields, then, REBALANCE_MS + GRACE_MS)

    @staticmethod
    def _received(answer: Any) -> Any:
        """Raises: nobody answered in time; another node did."""
        if answer is None:
            raise errors.Timeout("no answer")
        if isinstance(answer, ErrorCode):
            raise failure(answer, f"group {GROUP!r}")
        return answer

    # ---- the Keeper's thread -----------------------------------------------------------------

    def _keep(self) -> None:
        if self.beating or not self.alive:
            return
        match self.session.due(self.now_s):
            case Beat() as beat:
                self._beat(beat)
            case Goodbye(member, says):
                self.world.note(f"{self.name}: nobody polls")
                if says:
                    self._leave(member)
                self._nudge()
            case float() as at_s:
                at_ms = max(int(at_s * 1000) + 1, self.world.now_ms + 1)
                at_ms = min(at_ms, self.world.now_ms + HEARTBEAT_MS)
                if self.wakes_ms <= self.world.now_ms or at_ms < self.wakes_ms:
                    self.wakes_ms = at_ms
                    self.later(at_ms - self.world.now_ms, self._keep)

    def _beat(self, beat: Beat) -> None:
        self.beating, sent_s, member = True, self.now_s, beat.member
        fields = {
            "group_id": GROUP,
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
        }

        def then(answer: Any) -> None:
            self.beating, problem = False, self._problem(answer)
            if self.session.beaten(beat, sent_s, problem, self.now_s).news:
                self._nudge()
            self._keep()

        self.ask(apis.HEARTBEAT, 4, fields, then, SESSION_MS // 3)

    def _problem(self, answer: Any) -> errors.KafkalogError | None:
        try:
            code = self._received(answer).error_code
        except errors.KafkalogError as problem:
            return problem
        return failure(code, f"group {GROUP!r}") if code else None

    def _leave(self, member: GroupMetadata) -> None:
        fields = {"group_id": GROUP, "members": [{"member_id": member.member_id}]}
        self.ask(apis.LEAVE_GROUP, 5, fields, lambda _answer: None, REQUEST_MS)

    def _close(self) -> Life:
        """As Consumer.close."""
        self.world.note(f"{self.name} closes")
        try:
            yield from self._drive(self.core.part(), self.world.now_ms + API_MS)
        except (AwayError, errors.KafkalogError) as problem:
            self.world.note(f"{self.name}: {problem}")
        self.core.replace([])
        self.core.parted()
        if self.member.says_goodbye:
            self._leave(self.member.metadata)
        self.session.rest()

    # ---- commits -----------------------------------------------------------------------------

    def _reached(self) -> dict[TopicPartition, CommittedOffset]:
        return self.core.positions(self._at)

    def _at(self, tp: TopicPartition) -> CommittedOffset | None:
        at = self.positions.get(tp)
        return None if at is None else CommittedOffset(at)

    def _commit_by_itself(self) -> None:
        fresh = self.core.fresh(self._at, self.now_s)
        if not fresh:
            return
        try:
            self._commit(fresh, asked=False)
        except errors.KafkalogError as problem:
            if problem.code == ErrorCode.FENCED_INSTANCE_ID:
                raise
            self.world.note(f"{self.name}: {problem}")

    def _commit(self, offsets: Offsets, asked: bool) -> None:
        """As Sharing.commit_later.  Raises: as Core.committer."""
        callback = (lambda _offsets, problem: self.ended.append(problem)) if asked else None
        until_s = self.now_s + API_MS / 1000
        if offsets:
            self.commits.add(Committing(offsets, self.core.committer(), callback, until_s))
            self._commit_next()

    def _commit_as_usual(self) -> Life:
        how = self.habits.commits
        if how == "transaction":
            yield from self._commit_transaction()
        elif how in ("background", "sync") and self.world.chance(0.5):
            self._commit(self._reached(), asked=True)
            if how == "sync":
                yield self.world.now_ms + API_MS, lambda: self.commits.quiet
                yield from self._tell_commits()

    def _tell_commits(self) -> Life:
        while (done := self.commits.finished()) is not None:
            if done.problem is None:
                self.core.committed(done.offsets)
            else:
                self.world.note(f"{self.name}: commit: {done.problem}")
                self.member.mind_fencing(done.member, done.problem)
                self._do()
            if done.callback is not None:
                done.callback(done.offsets, done.problem)
        yield from ()

    def _commit_next(self) -> None:
        """The Committer's thread."""
        if self.committing or (given := self.commits.next()) is None:
            return
        self.committing = True
        self._put(given)

    def _put(self, given: Committing) -> None:
        """As put_offsets: tried again until its time is over."""

        def end(problem: errors.KafkalogError | None) -> None:
            self.commits.ended(given, problem)
            self.committing = False
            self._nudge()
            self._commit_next()

        def then(answer: Any) -> None:
            problem = None
            try:
                found = self._received(answer)
                codes = {row.error_code for t in found.topics for row in t.partitions} - {0}
                problem = failure(min(codes), "commit") if codes else None
            except errors.KafkalogError as why:
                problem = why
            if problem is not None and passing(problem):
                self.later(RETRY_MS, lambda: self._put(given))
            else:
                end(problem)

        try:
            left_ms = given.left_ms(self.now_s, API_MS)
        except errors.Timeout as problem:
            end(problem)
            return
        fields = _commit_fields(given.offsets, given.member)
        self.ask(apis.OFFSET_COMMIT, 9, fields, then, min(REQUEST_MS, left_ms))

    def _commit_transaction(self) -> Life:
        """Commit what was read in a transaction, as the member that the consumer says it is.  What
        was read in a generation before is left to who has its partitions now."""
        world, read, self.read = self.world, self.read, {}
        member = self.core.identity()
        if not read or member.generation > self.read_in or not world.chance(0.7):
            if member.generation <= self.read_in:
                self.read = read  # the batch goes on
            return
        world.transactions += 1
        number, open_, told = 1_000 + world.transactions, [True], list[bool]()
        fields = {
            **_commit_fields({tp: CommittedOffset(at) for tp, at in read.items()}, member),
            "transactional_id": self.name, "producer_id": number, "producer_epoch": 0,
        }  # fmt: skip
        who, generation = member.instance_id or member.member_id, member.generation

        def then(answer: Any) -> None:
            taken = answer is not None and not isinstance(answer, ErrorCode)
            taken = taken and not any(r.error_code for t in answer.topics for r in t.partitions)
            told.append(taken)
            self._nudge()

        self.ask(apis.TXN_OFFSET_COMMIT, 3, fields, then, REQUEST_MS, holds=lambda: bool(open_))
        ended: list[bool] = []

        def expire() -> None:  # nobody has ended it: its process has died
            if open_:
                open_.clear()
                world.end_transaction(Producer(number, 0, False), lambda: None)

        world.later(REQUEST_MS * 2, expire)
        yield world.now_ms + REQUEST_MS + 100, lambda: bool(told)
        if not open_:
            told[:] = [False]
        commit = bool(told and told[0])
        open_.clear()

        def settled() -> None:
            ended.append(True)
            if commit:
                world.judge.committed(read, who, generation)
            self._nudge()

        world.note(f"{self.name}: transaction {number} commits {commit}: {read}")
        world.end_transaction(Producer(number, 0, commit), settled)
        yield world.now_ms + API_MS, lambda: bool(ended)
        if not commit:  # it reads again what it has not committed
            self.positions.clear()
            self.found = self.asking = None


def _commit_fields(offsets: Offsets, member: GroupMetadata) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, one in offsets.items():
        row = {"partition_index": tp.partition, "committed_offset": one.offset}
        topics.setdefault(tp.topic, []).append({**row, "committed_metadata": ""})
    return {
        "group_id": GROUP,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
    }


# ---- a run -----------------------------------------------------------------------------------


class Simulated(GroupWorld):
    """The world, and how its members and topics fare."""

    def __init__(self, seed: int) -> None:
        self.transactions = 0
        super().__init__(seed)
        rng = self.rng
        self.trouble = Trouble()
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
        return Habits(commits, rng.choice([10, 200, 2_000]), rng.choice([200, 1_000, 5_000]),
                      instance)  # fmt: skip

    def chance(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    @property
    def living(self) -> list[Consumer]:
        return [one for one in self.consumers if one.alive]


def simulate(seed: int) -> Simulated:
    """One run: faults for a while, then none, when the group must settle.

    Raises: Violated, with the trace of what happened as its note.
    """
    world = Simulated(seed)
    with telling(world, seed):
        _simulate(world)
    return world


def _draw(world: Simulated) -> None:
    rng, trouble = world.rng, world.trouble
    world.faults = Faults(
        delay_ms=rng.choice([2, 20, 200]),
        lost=rng.choice([0, 0.01, 0.1]),
        twice=rng.choice([0, 0.05]),
        slow=rng.choice([0, 0.02, 0.1]),
        append_fails=rng.choice([0, 0, 0.05]),
        append_fails_written=0.5,
        append_slow=rng.choice([0, 0.05]),
        crash=rng.choice([0, 0, 0.001]),
    )
    trouble.slow_listener = rng.choice([0, 0.05, 0.2])
    trouble.raises = rng.choice([0, 0.1])
    trouble.slow_work = rng.choice([0, 0, 0.01])
    trouble.stalls = rng.choice([0, 0, 0.02])
    trouble.dies = rng.choice([0, 0.01, 0.03])
    trouble.leaves = rng.choice([0, 0, 0.002])
    trouble.moves = rng.choice([0, 0.01])
    trouble.silent = rng.choice([0, 0, 0.02])
    trouble.jumps = rng.choice([0, 0, 0.005])
    trouble.grows = rng.choice([0, 0.01])
    trouble.deletes = rng.choice([0, 0, 0.01])


def _tick(world: Simulated) -> None:
    """Records come, and things go wrong."""
    rng, trouble = world.rng, world.trouble
    for tp in world.partitions:
        if rng.random() < 0.5:
            world.ends[tp] = world.ends.get(tp, 0) + rng.choice([1, 3, 15])
    for one in world.consumers:
        if one.alive and world.chance(trouble.dies):
            one.die()
        elif not one.alive and rng.random() < 0.1:
            one.start()
        elif one.alive and world.chance(trouble.stalls):
            one.stalled_ms = world.now_ms + rng.randint(1_000, 2 * SESSION_MS)
            world.note(f"{one.name} gets no time")
    if world.chance(trouble.moves):
        world.away_until_ms = world.now_ms + rng.randint(100, SESSION_MS)
        world.restart()
    if world.chance(trouble.silent):
        world.silent_until_ms = world.now_ms + rng.randint(1_000, 2 * SESSION_MS)
        world.note("the coordinator stands still")
    if world.chance(trouble.jumps):
        world.now_ms += rng.randint(1_000, 2 * SESSION_MS)
        world.note("the clock jumped")
    if world.chance(trouble.grows):
        name = rng.choice(list(world.topics))
        world.topics[name] += 1
        world.note(f"{name} has {world.topics[name]} partitions")
    if world.chance(trouble.deletes) and "b" in world.topics:
        del world.topics["b"]
        world.note("b is deleted")
    if world.now_ms < FAULTY_MS:
        world.later(rng.randint(100, 1_000), lambda: _tick(world))


def _simulate(world: Simulated) -> None:
    _draw(world)
    rng = world.rng
    for one in world.consumers:
        world.later(rng.randint(0, 5_000), one.start)
    if rng.random() < 0.5:
        world.later(rng.randint(0, FAULTY_MS), lambda: world.topics.update(late=2))
    world.later(0, lambda: _tick(world))
    world.run(FAULTY_MS)
    world.note("no more faults")
    raises, world.trouble = world.trouble.raises, Trouble()
    world.faults = Faults()
    for number, one in enumerate(world.consumers):
        if not one.alive and (number == 0 or rng.random() < 0.5):
            one.start()
    world.run(world.now_ms + STRAY_MS)
    if not world.living:
        world.consumers[0].start()
    # A static leader that returns does not know of what has grown since: as Kafka's (KIP-814).
    world.topics["a"] += 1
    _must_settle(world)
    # A listener may raise at any time.
    world.trouble.raises = 0.5 if raises else 0.0
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
    world.run(world.now_ms + SETTLE_MS, lambda: not _unsettled(world))
    if why := _unsettled(world):
        raise Violated(f"C6: not settled in {SETTLE_MS} ms: {why}")
    world.run(world.now_ms + 2 * SESSION_MS)
    if why := _unsettled(world):
        raise Violated(f"C6: it did not stay settled: {why}")


def _must_read_on(world: Simulated) -> None:
    """A topic that is gone stops no other one, however long it is until the leader looks."""
    leaders = [one for one in world.living if one.member.counts is not None]
    looks_s = max((one.core.lookout.next_look_s for one in leaders), default=0.0)
    world.run(max(world.now_ms, int(looks_s * 1000) + 500))
    del world.topics["b"]
    world.note("b is deleted")
    for tp in world.partitions:
        world.ends[tp] += 1
    world.run(world.now_ms + PROMPT_MS, lambda: not _unread(world))
    if why := _unread(world):
        raise Violated(f"C6: {PROMPT_MS} ms after another topic was deleted: {why}")
    world.run(world.now_ms + METADATA_MS)
    _must_settle(world)


def _unsettled(world: Simulated) -> str:
    """Why the group is not settled; empty: all that live share all partitions of one generation,
    and have read and committed everything."""
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
