"""Batches of partitions from their leaders: Fetch, one request a node, read ahead by one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.batch.walk import end_of
from kafkalog.client.fetch import sessions
from kafkalog.client.fetch.epochs import USABLE_VERSION, Epochs, Leader, Place
from kafkalog.client.fetch.fetched import Ends, Fetched, FetchOptions
from kafkalog.client.fetch.reset import LostPlaces
from kafkalog.client.link.chunks import names_max
from kafkalog.client.link.cluster import Backoff, Cluster
from kafkalog.client.link.connecting import Opening
from kafkalog.client.link.connection import Connection, answering
from kafkalog.client.link.failures import check_code, failure, is_retriable, passing
from kafkalog.client.link.known import known_in, places_of
from kafkalog.client.link.patience import NotYet
from kafkalog.client.metrics import Tally
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Fetcher"]

_logger = logging.getLogger(__name__)
NAMES_VERSION_MAX = 12
"""From version 13 on topics are told by their ids."""
VERSION_MAX = 16
NO_ID = UUID(int=0)
GRACE_MS = 5_000
"""What an answer may take beyond the time that the broker was told to wait."""


Wait = Callable[[Iterable[Connection], float], list[Connection]]
"""(connections, seconds) -> those that have an answer by then."""


class _Asked(NamedTuple):
    """A request on its way."""

    offsets: dict[TopicPartition, int]
    said: sessions.Ask | dict[TopicPartition, Leader]
    """Of a Fetch; or who was asked whether the positions are good."""
    due_s: float
    """When its answer has to begin."""


class _Rest(NamedTuple):
    """Until when a partition is not asked for."""

    until_s: float
    pause_ms: int
    """The next pause is longer."""


class Fetcher:
    """Positions of partitions, and what comes from there on.  One thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        options: FetchOptions = FetchOptions(),  # noqa: B008
        wait: Wait = answering,
        ring: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is sent yet.  `positions`: the next offset of each partition.

        `ring` ends a wait of `wait`: with it connections are made in threads of their own, and
        no poll waits for one.
        """
        self.cluster = cluster
        self.options = options
        self.positions = dict(positions)
        """Where the next fetch of each partition begins; change it to seek."""
        self.epochs = Epochs()
        self.stops: dict[TopicPartition, int] = {}
        """Where it ends, for partitions that are not read for ever."""
        self.ends: dict[TopicPartition, Ends] = {}
        """As the last answers told."""
        self.missing: set[TopicPartition] = set()
        """Set aside, as the cluster does not have them now; they have no place in `positions` until
        they are sought."""
        self._connections: dict[int, Connection] = {}
        self._ring = ring
        self._opening: dict[int, Opening] = {}
        self._asked: dict[int, _Asked] = {}
        """By node: the request that is on its way."""
        self._sessions: dict[int, sessions.Session] = {}
        """By node: what it remembers."""
        self._resting: dict[TopicPartition, _Rest] = {}
        """Partitions whose node failed: others are fetched until they may be retried."""
        self._lost = LostPlaces(cluster, options)
        self._paused: dict[int, float] = {}
        """Nodes that want to be left alone, and until when."""
        self._trouble: errors.KafkalogError | None = None
        """What failed so and was not told."""
        self._nearer: dict[TopicPartition, tuple[int, float]] = {}
        """The replica that is asked in the leader's place, and until when."""
        self._backoff: Backoff | None = None
        self.fetch_bytes, self.fetch_ms = Tally(), Tally()
        """Of each answer: its batches, and how long it took."""
        self._wait = wait
        self._found: list[Fetched] = []
        self._problem: errors.KafkalogError | None = None

    def close(self) -> None:
        """Close the connections; the cluster's own stay."""
        for node, session in self._sessions.items():
            connection = self._connections.get(node)
            said = sessions.closing(session)
            if said is not None and connection is not None and not connection.closed:
                with suppress(errors.KafkalogError):  # else the node forgets it in a while
                    connection.post(apis.FETCH, *self._request(connection, said, session))
        self._sessions.clear()
        self._hang_up()

    def _hang_up(self) -> None:
        """Nothing is on its way to anybody any more; nodes may remember what they were told."""
        for node in list(self._sessions):
            self._sessions[node] = sessions.lost(self._sessions[node])
        for connection in self._connections.values():
            connection.close()
        for opening in self._opening.values():
            opening.give_up()
        self._connections.clear()
        self._opening.clear()
        self._asked.clear()
        self._nearer.clear()
        self._resting.clear()

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Go on from an offset; `epoch`: the leader epoch of the record before it, where it is
        known, by which it is noticed that the log was cut."""
        self.epochs.start(tp, Place(offset, epoch))
        self.positions[tp] = offset

    def go_on(self, tp: TopicPartition, offset: int) -> None:
        """Fetch again from an offset that was read; what is known of its epochs holds."""
        self.epochs.look_again()
        self.positions[tp] = offset

    def poll(self, timeout_ms: int | None = None) -> list[Fetched]:
        """What has come; empty when nothing did in `timeout_ms` (None: the broker's wait).

        The next requests are on their way when it returns.  With a `ring` it takes no longer,
        whatever brokers do, and what passes is tried again for as long as it takes.

        Raises: OffsetOutOfRange (LogTruncation is one), UnknownTopicOrPartition, CorruptMessage;
        what lasts.
        """
        wait_ms = self.options.max_wait_ms + 100 if timeout_ms is None else timeout_ms
        if self._ring is None:
            return self._poll(wait_ms)
        with self.cluster.within(wait_ms):
            return self._poll(wait_ms)

    def _poll(self, wait_ms: float) -> list[Fetched]:
        try:
            if self._problem is None:
                self._find_lost()
                self._send()
                for node in self._ready(wait_ms / 1000):
                    self._alone(node, partial(self._receive, node))
                self._find_lost()
                if self._found:
                    self._backoff = None
                self._send()
        except errors.KafkalogError as problem:
            self._problem = problem
        if self._found:  # what came before a failure comes before it
            found, self._found = self._found, []
            return found
        failed, self._problem = self._problem, None
        if failed is not None:
            if not passing(failed):
                raise failed
            self._again(failed)
        return []

    def _again(self, problem: errors.KafkalogError) -> None:
        """Pause before the next try; who leads what is asked for again."""
        if self._ring is not None:  # what failed rests, each for itself
            self.cluster.forget()
            return
        if self._backoff is None:
            self._backoff = self.cluster.backoff()
        if self._backoff.over():
            raise problem
        self._hang_up()
        self.cluster.forget()
        self._backoff.wait()

    # ---- requests ----------------------------------------------------------------------

    def _send(self) -> None:
        """A request to every node that has none.

        Raises: what lasts; what passes, when nothing is on its way to anybody.
        """
        nodes = self.cluster.nodes.keys()
        every = nodes and self._asked.keys() >= nodes
        for node, partitions in ({} if every else self._by_node()).items():
            if node not in self._asked and self._paused.get(node, 0.0) <= time.monotonic():
                self._alone(node, partial(self._ask, node, partitions), partitions)
        problem, self._trouble = self._trouble, None
        if problem is not None and not self._asked:
            raise problem

    def _alone(
        self, node: int, call: Callable[[], None], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Do something with one node: what fails there for a time holds up no other."""
        asked = self._asked.get(node)
        try:
            call()
        except NotYet:
            return
        except errors.WakeUp:
            raise
        except errors.KafkalogError as problem:
            self._asked.pop(node, None)
            self._lose(node)
            if connection := self._connections.pop(node, None):
                connection.close()
            self._rest(problem, asked.offsets if asked else partitions)

    def _rest(self, problem: errors.KafkalogError, partitions: Iterable[TopicPartition]) -> None:
        """Ask for these later, of whoever leads them then.  Raises: what lasts."""
        if not passing(problem):
            raise problem
        options, now_s = self.cluster.options, time.monotonic()
        self._trouble = self._trouble or problem
        for tp in partitions:
            before_ms = self._resting[tp].pause_ms if tp in self._resting else 0
            pause_ms = max(options.retry_backoff_ms, before_ms * 2)
            pause_ms = min(pause_ms, options.retry_backoff_max_ms)
            self._resting[tp] = _Rest(now_s + pause_ms / 1000, pause_ms)
            self._nearer.pop(tp, None)
            self.cluster.forget(tp.topic)

    def _by_node(self) -> dict[int, list[TopicPartition]]:
        """Partitions by the node that is asked for them, but those that rest."""
        found: dict[int, list[TopicPartition]] = {}
        now_s = time.monotonic()
        resting, stops, nearer, lost = self._resting, self.stops, self._nearer, self._lost
        aside, topics, unknown = self.options.set_aside, self.cluster.topics, list[TopicPartition]()
        for tp, at in self.positions.items():
            if resting and tp in resting and resting[tp].until_s > now_s:
                continue
            if stops and tp in stops and at >= stops[tp]:
                continue
            if lost and lost.waits(tp, at):
                continue
            node, until_s = nearer.get(tp, (0, 0.0)) if nearer else (0, 0.0)
            if until_s <= now_s or node not in self.cluster.nodes:
                nearer.pop(tp, None)
                if aside and not known_in(topics, tp):
                    unknown.append(tp)
                else:
                    self._add(tp, found)
                continue
            found.setdefault(node, []).append(tp)
        for tp in self._known(unknown) if unknown else ():
            self._add(tp, found)
        return found

    def _add(self, tp: TopicPartition, to: dict[int, list[TopicPartition]]) -> None:
        """A partition to those of its leader; it rests if it has none."""
        try:
            to.setdefault(self.cluster.leader(tp), []).append(tp)
        except errors.KafkalogError as problem:
            self._rest(problem, [tp])

    def _known(self, unknown: list[TopicPartition]) -> list[TopicPartition]:
        """Ask for these once more: those that are there; the others are set aside."""
        try:
            with self.cluster.patience.errand_of("known", 0):
                self.cluster.refresh_once(sorted({tp.topic for tp in unknown}))
        except NotYet:
            return []
        except errors.KafkalogError as problem:
            self._rest(problem, unknown)
            return []
        topics = self.cluster.topics
        for tp in unknown:
            if not known_in(topics, tp):
                del self.positions[tp]
                self.missing.add(tp)
        return [tp for tp in unknown if tp not in self.missing]

    def _ask(self, node: int, partitions: Iterable[TopicPartition]) -> None:
        connection = self._connections.get(node)
        if connection is None or not connection.usable():
            connection = self._connected(node)
            if connection is None:
                return
            self._connections[node] = connection
        self.epochs.look(self.cluster, self.positions)
        if self.epochs.unsure:
            partitions = self._fetchable(node, connection, partitions)
            if not partitions:
                return
        offsets = {tp: self.positions[tp] for tp in islice(partitions, names_max())}
        if len(offsets) == names_max():  # there may be more: they have their turn next
            for tp in offsets:
                self.positions[tp] = self.positions.pop(tp)
        known = self.cluster.topics
        if self._ring is not None and any(tp.topic not in known for tp in offsets):
            return  # forgotten a moment ago: `_known` asks for it, and no poll waits for that
        ids = {
            name: (known.get(name) or self.cluster.topic(name)).topic_id
            for name in {tp.topic for tp in offsets}
        }
        session = self._sessions.get(node, sessions.NONE)
        current = self.epochs.current
        places = {tp: Place(at, current(tp)) for tp, at in offsets.items()}
        said = sessions.ask(session, places, ids, NO_ID not in ids.values())
        if not self.options.sessions:
            said = said._replace(epoch=sessions.FINAL_EPOCH)
        if self._ring is None:
            connection.send(apis.FETCH, *self._request(connection, said, said.after))
        else:
            connection.post(apis.FETCH, *self._request(connection, said, said.after))
        self._asked[node] = _Asked(offsets, said, time.monotonic() + self._patience_ms / 1000)

    def _fetchable(
        self, node: int, connection: Connection, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        """Those that may be fetched; none once the node is asked whether positions are good."""
        leaders, stale = self.epochs.doubts(self.cluster, node, partitions, self.positions)
        if stale:
            told = "metadata is older than what was read"
            self._rest(failure(ErrorCode.UNKNOWN_LEADER_EPOCH, told), stale)
        for tp in self.epochs.unsure:
            self._nearer.pop(tp, None)
        api = apis.OFFSET_FOR_LEADER_EPOCH
        if leaders and connection.knows(api) and connection.version_of(api) >= USABLE_VERSION:
            question = self.epochs.question(self.positions, leaders)
            if self._ring is None:
                connection.send(api, question)
            else:
                connection.post(api, question, connection.version_of(api))
            due_s = time.monotonic() + self.cluster.options.request_timeout_ms / 1000
            self._asked[node] = _Asked({tp: self.positions[tp] for tp in leaders}, leaders, due_s)
            return []
        self.epochs.good(leaders)
        return [tp for tp in partitions if tp not in self.epochs.unsure]

    def _connected(self, node: int) -> Connection | None:
        """A connection to a node; None while it is being made.  Raises: why it cannot be."""
        if self._ring is None:
            return self.cluster.another(node)
        openings, opening = self.cluster.openings, self._opening.get(node)
        if opening is None:
            with self.cluster.patience.errand_of("place", 0):
                place = self.cluster.place(node)
            opening = self._opening[node] = openings.begin(place, self._ring)
        if not opening.done:
            return None
        del self._opening[node]
        return openings.take(opening)

    def _request(
        self, connection: Connection, said: sessions.Ask, session: sessions.Session
    ) -> tuple[dict[str, Any], int]:
        """(body, version) of what is said."""
        version = connection.version_of(
            apis.FETCH, at_most=VERSION_MAX if session.by_id else NAMES_VERSION_MAX
        )
        body = {
            "max_wait_ms": self.options.max_wait_ms,
            "min_bytes": self.options.min_bytes,
            "max_bytes": self.options.max_bytes,
            "isolation_level": int(self.options.committed),
            "rack_id": self.options.rack,
            **sessions.fields(said, session.ids, self.options.partition_bytes),
        }
        return body, version

    def _lose(self, node: int, code: int = 0) -> None:
        """The node is told everything again."""
        self._sessions[node] = sessions.lost(self._sessions.get(node, sessions.NONE), code)

    def _ready(self, wait_s: float) -> list[int]:
        """The nodes whose answer has begun to come, or is overdue."""
        waiting = {self._connections[node]: node for node in self._asked}
        now_s = time.monotonic()
        due_s = [max(one.due_s - now_s, 0.0) for one in self._asked.values()]
        rests_s = [one.until_s - now_s for one in self._resting.values() if one.until_s > now_s]
        pauses_s = [until_s - now_s for until_s in self._paused.values() if until_s > now_s]
        wait_s = min([wait_s, *due_s, *rests_s, *pauses_s])
        there = [one for one in self._wait(waiting, wait_s) if one in waiting]
        found = [waiting[one] for one in there if not one.unsent or self._pumped(one, waiting[one])]
        now_s = time.monotonic()
        late = [n for n, one in self._asked.items() if one.due_s <= now_s and n not in found]
        return found + late

    def _pumped(self, connection: Connection, node: int) -> bool:
        """Send more of a request; whether there is something to receive."""
        self._alone(node, connection.pump)
        return not connection.closed and bool(answering([connection], 0))

    # ---- answers -----------------------------------------------------------------------

    def _receive(self, node: int) -> None:
        offsets, said, due_s = self._asked[node]
        if due_s <= time.monotonic() and not answering([self._connections[node]], 0):
            raise errors.Timeout(f"node {node}: no answer in time")
        answer = self._connections[node].receive(self.options.max_wait_ms + GRACE_MS)
        del self._asked[node]
        if answer.throttle_time_ms > 0:
            self._paused[node] = time.monotonic() + answer.throttle_time_ms / 1000
        if isinstance(said, dict):
            self._checked(answer, said, offsets)
            return
        code = getattr(answer, "error_code", 0)
        if code in sessions.LOST and said.epoch > 0:
            self._lose(node, code)
            return
        check_code(code, f"fetch from node {node}")
        if self.options.sessions:
            count = sum(len(topic.partitions) for topic in answer.responses)
            session_id = getattr(answer, "session_id", 0)
            self._sessions[node] = sessions.answered(said, session_id, count)
        self._count(answer, due_s)
        failed: dict[TopicPartition, int] = {}
        places = places_of(answer)
        for topic in answer.responses:
            name = topic.topic or self.cluster.topic_name(topic.topic_id) or ""
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                if tp not in offsets or not (code := self._look(tp, row, offsets[tp])):
                    continue
                told = getattr(row, "current_leader", None)
                if told is None or not self.cluster.learn_leader(
                    tp, told.leader_id, told.leader_epoch, places.get(told.leader_id)
                ):
                    failed[tp] = code  # else it is asked for there, at once
        for tp, code in failed.items():
            self._rest(failure(code, f"fetch of {tp.topic}-{tp.partition}"), [tp])

    def _count(self, answer: Any, due_s: float) -> None:
        rows = (row for topic in answer.responses for row in topic.partitions)
        self.fetch_bytes.add(sum(len(row.records or b"") for row in rows))
        self.fetch_ms.add(self._patience_ms + (time.monotonic() - due_s) * 1000)

    @property
    def _patience_ms(self) -> int:
        """How long an answer may take."""
        return self.options.max_wait_ms + self.cluster.options.request_timeout_ms

    def _look(self, tp: TopicPartition, row: Any, start: int) -> int:
        """Take what an answer holds of a partition; a failure of it that passes, else 0."""
        if not row.error_code and tp in self.positions:
            # Sent only when they change, so they count even if the position has moved since.
            self.ends[tp] = Ends(row.high_watermark, row.last_stable_offset, row.log_start_offset)
        if self.positions.get(tp) != start:
            return 0  # sought elsewhere, or given away, since
        if row.error_code and tp in self._nearer:
            self._nearer.pop(tp)  # what it says of itself; the leader knows better
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return 0  # it may be behind
        elif getattr(row, "preferred_read_replica", -1) >= 0:
            until_s = time.monotonic() + self.options.nearer_s
            self._nearer[tp] = row.preferred_read_replica, until_s
            return 0
        if row.error_code:
            return self._failed(tp, row.error_code)
        self._resting.pop(tp, None)
        if row.records:
            self._found.append(self._take(tp, row, start))
        return 0

    def _take(self, tp: TopicPartition, row: Any, start: int) -> Fetched:
        data = row.records
        aborted = tuple((a.producer_id, a.first_offset) for a in row.aborted_transactions or ())
        try:
            end = end_of(data)
        except errors.KafkalogError as problem:
            raise type(problem)(f"{tp.topic}-{tp.partition} at {start}: {problem}") from None
        if end is None:
            raise errors.BadAnswer(
                f"{tp.topic}-{tp.partition} at offset {start}: {len(data)} bytes hold no whole "
                "batch"
            )
        # A partition that had its turn goes last: an answer may be full before it reaches all.
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

    def _failed(self, tp: TopicPartition, code: int) -> int:
        """A partition's failure: raised when it lasts, mended or returned when it passes."""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            at = self.positions[tp]
            self._lost.add(tp, at, f"offset {at} is out of range")
            return 0
        if not is_retriable(code):
            check_code(code, f"fetch of {tp.topic}-{tp.partition}")
        # A topic that is gone is told by the next look at the metadata.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in (3, 100) else code

    def _find_lost(self) -> None:
        """Go on where that is known now.  Raises: OffsetOutOfRange, without a reset; what lasts."""
        for tp, why, to in self._lost.found(self.positions, self._rest) if self._lost else ():
            self._move(tp, why, to, f"by auto.offset.reset {self.options.out_of_range}")

    def _move(self, tp: TopicPartition, why: str, to: Place, how: str) -> None:
        """Go on elsewhere."""
        self.seek(tp, *to)
        _logger.warning("%s-%d: %s: it goes on at %d, %s", *tp, why, to.offset, how)
        # Behind what came before: who reads is there, too, once that was read.
        nothing = Fetched(tp, b"", to.offset, to.offset, -1, -1, -1, (), self.options.committed)
        self._found.append(nothing)

    # ---- whether positions are good ------------------------------------------------------

    def _checked(
        self, answer: Any, leaders: dict[TopicPartition, Leader], offsets: Mapping[Any, int]
    ) -> None:
        """What a leader says of positions.  Raises: LogTruncation, once all others are known."""
        problem: errors.KafkalogError | None = None
        for topic in answer.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition)
                if tp not in leaders or self.positions.get(tp) != offsets[tp]:
                    continue  # sought elsewhere, or given away, since
                try:
                    if code := row.error_code and self._failed(tp, row.error_code):
                        self._rest(
                            failure(code, f"leader epochs of {tp.topic}-{tp.partition}"), [tp]
                        )
                    elif (to := self.epochs.parted(offsets[tp], row)) is None:
                        self.epochs.good({tp: leaders[tp]})
                    else:
                        self._cut(tp, to)
                except errors.KafkalogError as found:
                    problem = problem or found
        if problem is not None:
            raise problem

    def _cut(self, tp: TopicPartition, to: Place) -> None:
        """The log has parted from what was read.  Raises: LogTruncation, without a reset."""
        at, known = self.positions[tp], to.offset >= 0
        epoch = self.epochs.before(tp, at)
        where = f"it has parted from what was read at offset {to.offset}" if known else (
            "where it has parted from what was read is not known"
        )  # fmt: skip
        why = f"the log was cut below offset {at} of leader epoch {epoch}: {where}"
        if self.options.out_of_range == "error":
            problem = errors.LogTruncation(f"{tp.topic}-{tp.partition}: {why}")
            problem.offset = to.offset
            raise problem
        if known:
            self._move(tp, why, to, "from there")
        else:
            self._lost.add(tp, at, why)
