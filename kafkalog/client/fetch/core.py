"""Decides which node each partition is fetched from, at which offset, and what an answer means.

It only decides: no clock, no socket, no wait.  Each event comes with its time.  Fetcher carries out
the decisions; a simulation does the same (tests/unit/client/fetch/simulation.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.batch.walk import end_of
from kafkalog.client.fetch import sessions
from kafkalog.client.fetch.epochs import Epochs, FetchPosition, Leader, leader_of
from kafkalog.client.fetch.fetched import Ends, Fetched, FetchOptions
from kafkalog.client.link.chunks import names_max
from kafkalog.client.link.failures import (
    about,
    check_code,
    failure,
    failure_class,
    few,
    passing,
)
from kafkalog.client.link.handling import Troubles
from kafkalog.client.link.metadata import NO_NODE, Known, known_in, places_of
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["NO_ID", "FetchState", "Lost", "PendingFetch", "Plan", "Tempo"]

NO_ID = UUID(int=0)
NEARER_IDLE_S = 30.0
"""A preferred replica without records for this long may have left the ISR: its leader is asked."""
Partitions = Iterable[TopicPartition]


class Tempo(NamedTuple):
    """How long an answer may take, and how long a partition backs off after a failure."""

    request_ms: int
    pause_ms: int
    pause_max_ms: int


class PendingFetch(NamedTuple):
    """A request in flight."""

    offsets: dict[TopicPartition, int]
    """Partitions whose answer still counts, and the requested offsets."""
    request: sessions.Ask | dict[TopicPartition, Leader]
    """The content of a Fetch; or the leaders that positions are checked with."""
    due_s: float
    """When its answer must have begun to arrive."""
    nearer: frozenset[TopicPartition] = frozenset()
    """Partitions that a follower was asked for instead of the leader."""


class Plan(NamedTuple):
    """The requests to send now."""

    nodes: dict[int, list[TopicPartition]]
    """By node: partitions to fetch, those that have waited longest first."""
    unknown: list[TopicPartition]
    """Partitions that metadata does not have."""


class Lost(NamedTuple):
    """A position that is not valid any more."""

    at: int
    why: str
    number: int
    """Unique for each loss."""


class Nearer(NamedTuple):
    """A preferred read replica (KIP-392), by its leader's last word."""

    node: int
    until_s: float
    """Then the leader is asked again."""
    idle_s: float
    """The same, unless it has records before that."""
    version: int
    """Version of the metadata at that time: only a later one counts against it."""
    leader: Leader | None


class _Rest(NamedTuple):
    """The backoff of a partition."""

    until_s: float
    pause_ms: int
    """The next backoff is longer."""


class FetchState:
    """The partitions of one fetcher.  One thread at a time."""

    def __init__(
        self, known: Known, positions: Mapping[TopicPartition, int],
        options: FetchOptions, tempo: Tempo,
    ) -> None:  # fmt: skip
        """`positions`: the next offset of each partition."""
        self.known = known
        self.options = options
        self.positions = dict(positions)
        """The offset of each partition's next fetch; a different offset put here is a seek."""
        self.epochs = Epochs()
        self.stops: dict[TopicPartition, int] = {}
        """Where each ends, for partitions that are not read without end."""
        self.ends: dict[TopicPartition, Ends] = {}
        """From the latest answers."""
        self.missing: set[TopicPartition] = set()
        """Set aside because the cluster does not have them now; they are not in `positions` until
        the next seek."""
        self.lost: dict[TopicPartition, Lost] = {}
        """They wait until their leader has said where they continue."""
        self.pending: dict[int, PendingFetch] = {}
        """By node: the request in flight."""
        self.sessions: dict[int, sessions.Session] = {}
        """By node: the session there."""
        self.nearer: dict[TopicPartition, Nearer] = {}
        """The follower that is asked instead of the leader."""
        self.paused: dict[int, float] = {}
        """Nodes that throttle, and until when."""
        self.found: list[Fetched] = []
        self.warnings: list[str] = []
        """For the log: positions that were moved."""
        self.delays: list[str] = []
        """For the log: what cannot be read now, and why."""
        self.problem: errors.KafkalogError | None = None
        """To be raised once what was found before it is taken."""
        self._tempo = tempo
        self._resting: dict[TopicPartition, _Rest] = {}
        """Partitions in backoff after a failure; the others are fetched."""
        self._troubles = Troubles[TopicPartition]()
        self._trouble: errors.KafkalogError | None = None
        """The first transient failure since `take_trouble`."""
        self._lost_count = 0

    # ---- positions ---------------------------------------------------------------------

    def seek(self, tp: TopicPartition, at: FetchPosition) -> None:
        """Continue at another offset."""
        self._withdraw(tp)
        self._begin(tp, at)

    def go_on(self, tp: TopicPartition, offset: int) -> None:
        """Fetch again from an offset that was read; its known epochs stay valid."""
        self._withdraw(tp)
        self.epochs.look_again()
        self.positions[tp] = offset

    def pause(self, tp: TopicPartition) -> None:
        """Stop fetching it until `seek` or `go_on`."""
        self._withdraw(tp)
        self.positions.pop(tp, None)
        self.missing.discard(tp)

    def forget(self, tp: TopicPartition) -> None:
        """Stop reading it."""
        self.pause(tp)
        self.ends.pop(tp, None)
        self.epochs.forget(tp)
        self._troubles.ended(tp)

    def _withdraw(self, tp: TopicPartition) -> None:
        """Drop what was requested and found, and what has failed."""
        self._resting.pop(tp, None)
        for pending in self.pending.values():
            pending.offsets.pop(tp, None)
        self.lost.pop(tp, None)
        if self.problem is not None and self.problem.partition == tp:
            self.problem = None
        if self.found:
            self.found = [one for one in self.found if one.tp != tp]

    def _begin(self, tp: TopicPartition, at: FetchPosition) -> None:
        self.epochs.start(tp, at)
        self.positions[tp] = at.offset

    def take(self) -> list[Fetched]:
        """The fetched answers, each once."""
        found, self.found = self.found, []
        return found

    # ---- requests ------------------------------------------------------------------------

    def plan(self, now_s: float) -> Plan:
        """Partitions by the node to ask, except those in backoff.  Raises: as `failed`."""
        plan = Plan({}, [])
        resting, stops, nearer, lost = self._resting, self.stops, self.nearer, self.lost
        for tp, at in self.positions.items():
            if resting and tp in resting and resting[tp].until_s > now_s:
                continue
            if stops and tp in stops and at >= stops[tp]:
                continue
            if lost and tp in lost and lost[tp].at == at:
                continue
            if nearer and tp in nearer and self._still_near(tp, nearer[tp], now_s):
                plan.nodes.setdefault(nearer[tp].node, []).append(tp)
            else:
                nearer.pop(tp, None)
                self._plan_leader(tp, plan, now_s)
        return plan

    def _still_near(self, tp: TopicPartition, near: Nearer, now_s: float) -> bool:
        """True if the follower may be asked; not if another leader, or an ISR without it, is known:
        it may never catch up."""
        known = self.known
        if min(near.until_s, near.idle_s) <= now_s or near.node not in known.nodes:
            return False
        info = known.topics.get(tp.topic)
        row = None if info is None else info.partitions.get(tp.partition)
        if row is None or known.version == near.version:
            return True
        return near.leader == leader_of(known, tp) and near.node in row.isr

    def _plan_leader(self, tp: TopicPartition, plan: Plan, now_s: float) -> None:
        info = self.known.topics.get(tp.topic)
        row = None if info is None else info.partitions.get(tp.partition)
        if row is None:
            plan.unknown.append(tp)
        elif row.leader == NO_NODE:
            problem = failure_class(ErrorCode.LEADER_NOT_AVAILABLE)
            self.failed(problem(f"{tp.topic}-{tp.partition} has no leader now"), [tp], now_s)
        else:
            plan.nodes.setdefault(row.leader, []).append(tp)

    def free(self, node: int, now_s: float) -> bool:
        """True if a request may be sent to it."""
        return node not in self.pending and self.paused.get(node, 0.0) <= now_s

    def set_aside(self, unknown: Partitions) -> None:
        """Metadata was fetched again: partitions that it still does not have are missing."""
        for tp in unknown:
            if not known_in(self.known.topics, tp):
                del self.positions[tp]
                self.missing.add(tp)

    def ask(self, node: int, some: Partitions, checks: bool, now_s: float) -> PendingFetch | None:
        """The request for a node without one in flight; None: there is nothing to ask now.

        `checks`: whether the node can check positions.  Raises: as `failed`.
        """
        self.epochs.look(self.known, self.positions)
        if self.epochs.unsure:
            leaders = self._doubted(node, some, now_s)
            if leaders and checks:
                return PendingFetch({tp: self.positions[tp] for tp in leaders}, leaders, 0.0)
            self.epochs.good(leaders)
            some = [tp for tp in some if tp not in self.epochs.unsure]
            if not some:
                return None
        offsets = {tp: self.positions[tp] for tp in islice(some, names_max())}
        if len(offsets) == names_max():  # the next request begins with the others
            for tp in offsets:
                self.positions[tp] = self.positions.pop(tp)
        known = self.known.topics
        if any(tp.topic not in known for tp in offsets):
            return None  # just forgotten: the next plan has it as unknown
        ids = {name: known[name].topic_id for name in {tp.topic for tp in offsets}}
        current = self.epochs.current
        places = {tp: FetchPosition(at, current(tp)) for tp, at in offsets.items()}
        session = self.sessions.get(node, sessions.NONE)
        request = sessions.ask(session, places, ids, NO_ID not in ids.values())
        if not self.options.sessions:
            request = request._replace(epoch=sessions.FINAL_EPOCH)
        return PendingFetch(offsets, request, 0.0, frozenset(offsets.keys() & self.nearer.keys()))

    def _doubted(
        self, node: int, partitions: Partitions, now_s: float
    ) -> dict[TopicPartition, Leader]:
        """Partitions to check with this node before they are fetched."""
        leaders, stale = self.epochs.doubts(self.known, node, partitions, self.positions)
        if stale:
            why = "metadata is older than the records that were read"
            self.failed(failure(ErrorCode.UNKNOWN_LEADER_EPOCH, why), stale, now_s)
        for tp in self.epochs.unsure:
            self.nearer.pop(tp, None)
        return leaders

    def sent(self, node: int, pending: PendingFetch, now_s: float) -> None:
        """A request from `ask` is in flight."""
        fetch = isinstance(pending.request, sessions.Ask)
        patience_ms = self.patience_ms if fetch else self._tempo.request_ms
        self.pending[node] = pending._replace(due_s=now_s + patience_ms / 1000)

    @property
    def patience_ms(self) -> int:
        """How long the answer to a Fetch may take."""
        return self.options.max_wait_ms + self._tempo.request_ms

    def overdue(self, now_s: float) -> list[int]:
        """Nodes whose answer is overdue."""
        return [node for node, one in self.pending.items() if one.due_s <= now_s]

    def next_s(self, now_s: float) -> float | None:
        """When a request can be sent or is overdue; None: only an answer changes anything."""
        found = [max(one.due_s, now_s) for one in self.pending.values()]
        found += [one.until_s for one in self._resting.values() if one.until_s > now_s]
        found += [until_s for until_s in self.paused.values() if until_s > now_s]
        return min(found, default=None)

    # ---- failures ----------------------------------------------------------------------

    def failed(self, problem: errors.KafkalogError, partitions: Partitions, now_s: float) -> None:
        """Retry these later, at their leaders then.  Raises: a permanent failure, after which
        they are retried later, too."""
        partitions = list(partitions)
        for tp in partitions:
            self._rest(tp, now_s)
            self.nearer.pop(tp, None)
            self.known.forget(tp.topic)
        if not passing(problem):
            raise problem
        self._trouble = self._trouble or problem
        if new := [tp for tp in partitions if self._troubles.failed(tp, problem, now_s)]:
            names = few([f"{tp.topic}-{tp.partition}" for tp in new])
            self.delays.append(f"{names}: not read now, trying again: {problem}")

    def _rest(self, tp: TopicPartition, now_s: float) -> None:
        before_ms = self._resting[tp].pause_ms if tp in self._resting else 0
        pause_ms = max(self._tempo.pause_ms, before_ms * 2)
        pause_ms = min(pause_ms, self._tempo.pause_max_ms)
        self._resting[tp] = _Rest(now_s + pause_ms / 1000, pause_ms)

    def _rest_if_again(self, tp: TopicPartition, now_s: float) -> None:
        """Ask another node at once, but in a row of such answers after longer and longer pauses."""
        if tp in self._resting:
            self._rest(tp, now_s)
        else:
            self._resting[tp] = _Rest(now_s, 0)

    def refuse(self, tp: TopicPartition, problem: errors.KafkalogError, now_s: float) -> None:
        """Raise a partition's failure from the next `poll`, and retry it later; the others are
        read."""
        self._rest(tp, now_s)
        self.nearer.pop(tp, None)
        if problem.partition is None:
            about(tp, problem)
        self.problem = self.problem or problem

    def node_failed(
        self, node: int, problem: errors.KafkalogError, partitions: Partitions, now_s: float
    ) -> None:
        """A node's request for these partitions has failed, with its connection.  Raises: a
        permanent failure."""
        self.pending.pop(node, None)
        self._lose(node)
        self.failed(problem, partitions, now_s)

    def take_trouble(self) -> errors.KafkalogError | None:
        """The first transient failure since the last call."""
        problem, self._trouble = self._trouble, None
        return problem

    def gone(self, node: int) -> None:
        """A node without a request in flight is not in the cluster any more."""
        self.sessions.pop(node, None)
        self.paused.pop(node, None)

    def hang_up(self) -> None:
        """All connections are closed; nodes may still remember their sessions."""
        for node in list(self.sessions):
            self._lose(node)
        self.pending.clear()
        self.nearer.clear()
        self._resting.clear()

    def _lose(self, node: int, code: int = 0) -> None:
        """Make the next request to the node a full one."""
        self.sessions[node] = sessions.lost(self.sessions.get(node, sessions.NONE), code)

    # ---- answers -----------------------------------------------------------------------

    def answered(self, node: int, answer: Any, now_s: float) -> None:
        """A node answered the request in flight.

        A partition's permanent failure becomes `problem`.  Raises: as `failed`.
        """
        pending = self.pending.pop(node)
        if answer.throttle_time_ms > 0:
            pause_ms = min(answer.throttle_time_ms, self._tempo.request_ms)
            self.paused[node] = now_s + pause_ms / 1000
        if isinstance(pending.request, dict):
            self._checked(answer, pending.request, pending.offsets, now_s)
            return
        request = pending.request
        code = getattr(answer, "error_code", 0)
        if code in sessions.LOST and request.epoch > 0:
            self._lose(node, code)
            return
        check_code(code, f"fetch from node {node}", api=apis.FETCH)
        if self.options.sessions:
            count = sum(len(topic.partitions) for topic in answer.responses)
            session_id = getattr(answer, "session_id", 0)
            self.sessions[node] = sessions.answered(request, session_id, count)
        self._take_rows(answer, request, pending, now_s)

    def _take_rows(
        self, answer: Any, request: sessions.Ask, pending: PendingFetch, now_s: float
    ) -> None:
        failed: dict[TopicPartition, int] = {}
        places = places_of(answer)
        for topic in answer.responses:
            name = topic.topic or self.known.topic_name(topic.topic_id) or ""
            info = self.known.topics.get(name)
            if info is not None and info.topic_id != request.after.ids.get(name):
                continue  # recreated in the meantime
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                if tp not in request.after.offsets:
                    continue
                try:
                    code = self._look(tp, row, pending, now_s)
                except errors.KafkalogError as problem:
                    self.refuse(tp, problem, now_s)
                    continue
                if not code:
                    continue
                named = getattr(row, "current_leader", None)
                if named is None or not self.known.learn_leader(
                    tp, named.leader_id, named.leader_epoch, places.get(named.leader_id)
                ):
                    failed[tp] = code
                else:
                    self._rest_if_again(tp, now_s)
        for tp, code in failed.items():
            what = f"fetch of {tp.topic}-{tp.partition}"
            self.failed(failure(code, what, api=apis.FETCH), [tp], now_s)

    def _look(self, tp: TopicPartition, row: Any, pending: PendingFetch, now_s: float) -> int:
        """Take an answer's data for a partition; returns its transient failure, else 0.

        Raises: its permanent failure.
        """
        start = pending.offsets.get(tp)
        if not row.error_code and tp in self.positions:
            # Sent only when they change, so they count even if the position has moved.
            self.ends[tp] = Ends(row.high_watermark, row.last_stable_offset, row.log_start_offset)
        if start is None or self.positions.get(tp) != start:
            return 0  # moved by a seek, or revoked
        if row.error_code and tp in pending.nearer:
            self.nearer.pop(tp, None)  # a follower's own error: ask the leader
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # it may lag behind the leader,
                self._rest_if_again(tp, now_s)  # which may name it again and again
                return 0
        elif getattr(row, "preferred_read_replica", -1) >= 0:
            until_s = now_s + self.options.nearer_s
            self.nearer[tp] = Nearer(
                row.preferred_read_replica, until_s, now_s + NEARER_IDLE_S, self.known.version,
                leader_of(self.known, tp),
            )  # fmt: skip
            return 0
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._lose_position(tp, f"offset {self.positions[tp]} is out of range")
            return 0
        if row.error_code:
            what, at = f"fetch of {tp.topic}-{tp.partition}", f"at offset {start}"
            problem = failure(row.error_code, what, at, apis.FETCH)
            if not passing(problem):
                raise problem
            return int(row.error_code)
        self._resting.pop(tp, None)
        self._troubles.ended(tp)
        if row.records:
            self.found.append(self._take(tp, row, start))
            if tp in self.nearer:
                self.nearer[tp] = self.nearer[tp]._replace(idle_s=now_s + NEARER_IDLE_S)
        return 0

    def _take(self, tp: TopicPartition, row: Any, start: int) -> Fetched:
        data = row.records
        aborted = tuple((a.producer_id, a.first_offset) for a in row.aborted_transactions or ())
        try:
            end = end_of(data)
        except errors.KafkalogError as problem:
            text = f"{tp.topic}-{tp.partition} at {start}: {problem}"
            refused = type(problem)(text)
            refused.retriable = False  # by `poll`; the partition is read again
            raise refused from None
        if end is None:
            text = f"{tp.topic}-{tp.partition} at offset {start}: {len(data)} bytes hold no whole"
            raise errors.BadAnswer(f"{text} batch")
        # A partition that got records goes last: an answer may be full before it reaches all.
        del self.positions[tp]
        self.positions[tp] = max(end[0], start)
        self.epochs.read(tp, data, end[1])
        return Fetched(
            tp,
            data,
            start,
            self.positions[tp],
            row.high_watermark,
            row.last_stable_offset,
            row.log_start_offset,
            aborted,
            self.options.committed,
        )

    # ---- validation of positions, and resets ---------------------------------------------

    def _checked(
        self, answer: Any, leaders: dict[TopicPartition, Leader],
        offsets: dict[TopicPartition, int], now_s: float,
    ) -> None:  # fmt: skip
        """A leader's answer about positions."""
        for topic in answer.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition)
                if tp not in offsets or self.positions.get(tp) != offsets[tp]:
                    continue  # moved by a seek, or revoked
                if leader_of(self.known, tp) not in (None, leaders[tp]):
                    continue  # the leader or topic has changed
                try:
                    self._check(tp, row, leaders[tp], now_s)
                except errors.KafkalogError as problem:
                    self.refuse(tp, problem, now_s)

    def _check(self, tp: TopicPartition, row: Any, leader: Leader, now_s: float) -> None:
        """Raises: LogTruncation, without a reset; a permanent failure."""
        if row.error_code:
            what, api = f"leader epochs of {tp.topic}-{tp.partition}", apis.OFFSET_FOR_LEADER_EPOCH
            problem = failure(row.error_code, what, api=api)
            if not passing(problem):
                raise problem
            self.failed(problem, [tp], now_s)
        elif (to := self.epochs.divergence(tp, self.positions[tp], row)) is None:
            self.epochs.good({tp: leader})
        else:
            self._cut(tp, to)

    def _cut(self, tp: TopicPartition, to: FetchPosition) -> None:
        """The log was truncated below the position.  Raises: LogTruncation, without a reset."""
        at, known = self.positions[tp], to.offset >= 0
        epoch = self.epochs.before(tp, at)
        where = f"it diverges at offset {to.offset} from the records read before" if known else (
            "where it diverges from the records read before is not known"
        )  # fmt: skip
        why = f"the log was truncated below offset {at} of leader epoch {epoch}: {where}"
        if self.options.out_of_range == "error":
            problem = errors.LogTruncation(f"{tp.topic}-{tp.partition}: {why}")
            problem.offset = to.offset
            raise problem
        if known:
            self._move(tp, why, to, "where it diverges")
        else:
            self._lose_position(tp, why)

    def _lose_position(self, tp: TopicPartition, why: str) -> None:
        self._lost_count += 1
        self.lost[tp] = Lost(self.positions[tp], why, self._lost_count)

    def resets(self) -> dict[int, dict[TopicPartition, Lost]]:
        """Lost positions, by the leader that decides where they continue."""
        found: dict[int, dict[TopicPartition, Lost]] = {}
        for tp, lost in list(self.lost.items()):
            if self.positions.get(tp) != lost.at:  # moved by a seek, or revoked
                del self.lost[tp]
                continue
            info = self.known.topics.get(tp.topic)
            row = None if info is None else info.partitions.get(tp.partition)
            found.setdefault(NO_NODE if row is None else row.leader, {})[tp] = lost
        return found

    def reset(self, tp: TopicPartition, lost: Lost, to: FetchPosition) -> None:
        """The leader has said where a lost partition continues."""
        if self.lost.get(tp) == lost and self.positions.get(tp) == lost.at:
            del self.lost[tp]
            how = f"by auto.offset.reset {self.options.out_of_range}"
            self._move(tp, lost.why, to, how)

    def reset_failed(
        self, some: Mapping[TopicPartition, Lost], problem: errors.KafkalogError, now_s: float
    ) -> None:
        """Retry these later; a permanent failure becomes `problem`."""
        still = [tp for tp, lost in some.items() if self.lost.get(tp) == lost]
        for tp in still:
            del self.lost[tp]
        if passing(problem):
            self.failed(problem, still, now_s)
            return
        for tp in still:
            self.refuse(tp, problem, now_s)

    def _move(self, tp: TopicPartition, why: str, to: FetchPosition, how: str) -> None:
        """Continue at another offset."""
        self._begin(tp, to)
        self.warnings.append(f"{tp.topic}-{tp.partition}: {why}: continuing at {to.offset}, {how}")
        # After the answers found before: the reader's position moves once those were read.
        nothing = Fetched(tp, b"", to.offset, to.offset, -1, -1, -1, (), self.options.committed)
        self.found.append(nothing)
