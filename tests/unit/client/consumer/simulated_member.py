"""A member of a simulated group: its process, its requests to the coordinator, its commits."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata
from kafkalog.client.consumer import member as members
from kafkalog.client.consumer.commits import Committing, Offsets
from kafkalog.client.consumer.member import ASSIGNING, JOINING, OUT, SYNCING
from kafkalog.client.consumer.session import Beat, Goodbye
from kafkalog.client.link.failures import failure, passing
from kafkalog.coordinator.step import Producer
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.client.consumer.simulated_group import GROUP, SESSION_MS

__all__ = ["AwayError", "Habits", "Life", "SimulatedMember", "Wait"]

REBALANCE_MS = 30_000
GRACE_MS = 5_000
HEARTBEAT_MS = 3_000
RETRY_MS = 50
API_MS = 25_000
REQUEST_MS = 12_000


class AwayError(Exception):
    """A failure of the user's database."""


class Habits(NamedTuple):
    """How a program uses its consumer."""

    commits: str
    """auto, background, sync, transaction."""
    work_ms: int
    """Between two polls, at most."""
    interval_ms: int
    """Between automatic commits."""
    instance_id: str | None


Wait = tuple[int, Callable[[], bool]]
"""When a thread wakes up, unless this condition wakes it earlier."""
Life = Generator[Wait, None, Any]


class SimulatedMember:
    """The HeartbeatThread and Committer threads of a consumer, and its requests."""

    def __init__(self, world: Any, name: str, habits: Habits) -> None:
        self.world = world
        self.name = name
        self.habits = habits
        self.alive = False
        self.life = 0
        self.paused_until_ms = 0
        """Until then the process does not run."""

    # ---- a process ---------------------------------------------------------------------------

    def die(self) -> None:
        """Without leaving the group."""
        self.life += 1
        self.alive = False
        self.world.note(f"{self.name} dies")

    @property
    def now_s(self) -> float:
        return self.world.now_ms / 1000

    def later(self, ms: int, event: Callable[[], None]) -> None:
        """Schedule an event for this process: it happens once the process runs, unless it died."""
        self.world.later(ms, event, self)

    def ask(
        self, api: Api, version: int, fields: dict[str, Any], then: Callable[[Any], None],
        timeout_ms: int, **more: Any,
    ) -> None:  # fmt: skip
        life = self.life

        def mine(answer: Any) -> None:
            if life == self.life:
                self.later(0, lambda: then(answer))

        self.world.ask(api, version, fields, mine, timeout_ms, **more)

    # ---- the owner's thread --------------------------------------------------------------------

    def _wake(self) -> None:
        """Let the owner's thread continue if its condition holds or its time has passed."""
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

    def _join(self, owned: list[TopicPartition], until_ms: int) -> Life:
        """As Membership.step."""
        member, world = self.member, self.world
        while True:
            member.lost_membership(self.now_s)
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
        """Do one step; None: it is not finished."""
        member = self.member
        if member.state == OUT:
            self._post(apis.JOIN_GROUP, 9, member.join(self.core.subscription.topics, owned))
            member.join_sent(reads_on=bool(owned))
            self._do()
        if member.state != ASSIGNING:
            self.session.polled_s = float("inf")
            yield until_ms, lambda: bool(self.answer)
            self.session.polled_s = self.now_s
            if not self.answer:
                return False
        if member.lost_membership(self.now_s):
            self._do()
            return None
        if member.state in (JOINING, SYNCING):
            answer = self._received(self.answer.pop())
            if member.state == JOINING:
                member.joined(answer)
            else:
                member.synced(answer, self.sent_s)
                self.world.note(f"{self.name} owns {member.assignment} in {member.metadata}")
            self._do()
        if member.state == ASSIGNING:
            topics = member.topics_to_assign()
            counts = None if topics is None else self.world.counts(topics)
            self._post(apis.SYNC_GROUP, 5, member.sync(counts))
            member.sync_sent()
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
        """Raises: no answer came in time; another node answered."""
        if answer is None:
            raise errors.Timeout("no answer")
        if isinstance(answer, ErrorCode):
            raise failure(answer, f"group {GROUP!r}")
        return answer

    # ---- the heartbeat thread ----------------------------------------------------------------

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
            yield from self._drive(self.core.revoke_all(), self.world.now_ms + API_MS)
        except (AwayError, errors.KafkalogError) as problem:
            self.world.note(f"{self.name}: {problem}")
        self.core.replace([])
        self.core.left()
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
        """As OffsetCommits.commit_later.  Raises: as ConsumerState.committer."""
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
        """As put_offsets: retried until its timeout."""

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
        """Commit what was read in a transaction, as the member that the consumer reports.  What was
        read in an earlier generation is left to the present owners of its partitions."""
        world, read, self.read = self.world, self.read, {}
        member = self.core.identity()
        if not read or member.generation > self.read_in or not world.chance(0.7):
            if member.generation <= self.read_in:
                self.read = read  # the batch continues
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

        def allowed() -> ErrorCode:
            return ErrorCode.NONE if open_ else ErrorCode.INVALID_TXN_STATE

        self.ask(apis.TXN_OFFSET_COMMIT, 3, fields, then, REQUEST_MS, allowed=allowed)
        ended: list[bool] = []

        def expire() -> None:  # nobody ended it: its process has died
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
        if not commit:  # it reads the uncommitted records again
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
