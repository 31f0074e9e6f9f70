"""Which requests a share consumer sends to each node, and what the answers mean.

It only decides: no clock, no socket, no thread.  Each event comes with its time; ShareLink carries
out the decisions.

A node has one share session of this member, and one request in flight.  An acknowledgement belongs
to the session that acquired its record.  One whose answer is lost has failed: nobody knows whether
it was carried out, and the record may come again.

Source: KIP-932, and the behaviour of Apache Kafka 4.4's share consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.link.failures import about, failure, outcome, passing
from kafkalog.client.shares.holding import RENEW, Acks, Holding, Place, Source
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Acquired", "Request", "ShareState"]

NEW_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = 2**31 - 1
MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
"""Metadata says where the partition is now, or that it is gone."""
SESSION_LOST = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
"""The next request begins another session."""


class Session(NamedTuple):
    """A node's knowledge of this member."""

    source: Source
    epoch: int
    """That of the next request."""
    places: frozenset[Place]


class Request(NamedTuple):
    """A ShareFetch, or (`fetches` False) a ShareAcknowledge."""

    fetches: bool
    source: Source
    epoch: int
    added: list[Place]
    forgotten: list[Place]
    acks: Acks
    after: frozenset[Place]
    """The partitions of the session once it is answered."""

    @property
    def renews(self) -> bool:
        """True if it renews locks: then the node returns no records."""
        return any(RENEW in some.values() for some in self.acks.values())


class Acquired(NamedTuple):
    """Records of a partition, to be decoded."""

    place: Place
    source: Source
    ranges: Any
    data: Any


class ShareState:
    """The sessions of one member.  One thread."""

    def __init__(self, holding: Holding, limited: bool, pauses_s: tuple[float, float]) -> None:
        """`limited`: records are acquired from one node at a time, so that there are never more
        than max.poll.records.  `pauses_s`: the shortest and longest backoff of a node."""
        self.holding = holding
        self.wanted: dict[int, set[Place]] = {}
        """By leader."""
        self.sessions: dict[int, Session] = {}
        self.pending: dict[int, Request] = {}
        self.stale = False
        """True if metadata must be fetched again."""
        self.moves: list[tuple[Place, int, int, Any]] = []
        """Leaders that answers have named: (partition, node, epoch, answer)."""
        self.problem: errors.KafkalogError | None = None
        """To be raised by the next poll."""
        self._limited = limited
        self._pauses_s = pauses_s
        self._rests: dict[int, tuple[float, float]] = {}
        """By node: until when it backs off, and the length of that backoff."""
        self._serial = 0
        self._last = -1

    # ---- requests ----------------------------------------------------------------------

    def want(self, leaders: Mapping[Place, int]) -> None:
        """Acquire records of these, each at its leader."""
        self.wanted = {}
        for place, node in leaders.items():
            self.wanted.setdefault(node, set()).add(place)

    def plan(self, fetches: bool, now_s: float) -> list[Request]:
        """The requests to send now: with acknowledgements, and for records if `fetches`."""
        self.holding.fail_others(one.source for one in self.sessions.values())
        found = []
        one_fetches = any(one.fetches for one in self.pending.values())
        for node in self._in_turn():
            if node in self.pending or self._rests.get(node, (0.0, 0.0))[0] > now_s:
                continue
            request = self._request(node, fetches and not (self._limited and one_fetches))
            if request is not None:
                found.append(request)
                if request.fetches:
                    one_fetches, self._last = True, node
        return found

    def _in_turn(self) -> list[int]:
        """The nodes, those after the last one that was asked for records first."""
        nodes = sorted({*self.sessions, *self.wanted})
        return [one for one in nodes if one > self._last] + [
            one for one in nodes if one <= self._last
        ]

    def _request(self, node: int, fetches: bool) -> Request | None:
        session = self.sessions.get(node)
        places = frozenset(self.wanted.get(node, ()))
        if session is None:
            if not fetches or not places:
                return None
            self._serial += 1
            return Request(
                True, Source(node, self._serial), NEW_EPOCH, sorted(places), [], {}, places
            )
        acks = self.holding.due.get(session.source, {})
        renews = any(RENEW in some.values() for some in acks.values())
        # In a ShareFetch, an acknowledgement would add its partition to the session.
        if acks and (not fetches or renews or not acks.keys() <= places):
            return Request(False, session.source, session.epoch, [], [], acks, session.places)
        if not fetches or not places:
            return None
        return Request(
            True, session.source, session.epoch, sorted(places - session.places),
            sorted(session.places - places), acks, places,
        )  # fmt: skip

    def closing(self, node: int) -> Request:
        """The last request to a node: it releases what was not acknowledged."""
        session = self.sessions[node]
        acks = self.holding.due.get(session.source, {})
        return Request(False, session.source, FINAL_EPOCH, [], [], acks, frozenset())

    def sent(self, request: Request) -> None:
        """It is in flight; its acknowledgements are not due any more."""
        self.pending[request.source.node] = request
        self.holding.due.pop(request.source, None)

    def next_s(self, now_s: float) -> float | None:
        """When a node's backoff ends; None: there is none."""
        return min((at for at, _ in self._rests.values() if at > now_s), default=None)

    # ---- answers -----------------------------------------------------------------------

    def answered(self, node: int, answer: Any, now_s: float) -> list[Acquired]:
        """The acquired records of an answer."""
        request = self.pending.pop(node)
        if answer.error_code:
            api = apis.SHARE_FETCH if request.fetches else apis.SHARE_ACKNOWLEDGE
            found = failure(answer.error_code, f"node {node}", answer.error_message, api)
            self._refused(node, request, found, now_s)
            return []
        if request.epoch == FINAL_EPOCH:
            self.sessions.pop(node, None)
        else:
            epoch = 1 if request.epoch == EPOCH_MAX else request.epoch + 1
            self.sessions[node] = Session(request.source, epoch, request.after)
        acquired, failing = self._rows(request, answer)
        if failing and not acquired:
            self._rest(node, now_s)
        else:
            self._rests.pop(node, None)
        return acquired

    def _rows(self, request: Request, answer: Any) -> tuple[list[Acquired], bool]:
        """The acquired records, and whether a partition could not be read."""
        places = {(one.topic_id, one.number): one for one in (*request.after, *request.acks)}
        left, found, failing = dict(request.acks), [], False
        for topic in answer.responses:
            for row in topic.partitions:
                place = places.get((topic.topic_id, row.partition_index))
                if place is None:
                    continue
                code = row.acknowledge_error_code if request.fetches else row.error_code
                if place in left:
                    text = row.acknowledge_error_message if request.fetches else row.error_message
                    problem = outcome(code, f"{place.topic}-{place.number}", text)
                    self.holding.ended(place, left.pop(place), problem)
                failing |= self._look(place, row, answer, request.fetches)
                if request.fetches and not row.error_code and row.acquired_records:
                    data = row.records or b""
                    found.append(Acquired(place, request.source, row.acquired_records, data))
        for place, acks in left.items():
            what = f"{place.topic}-{place.number}"
            self.holding.ended(
                place, acks, failure(ErrorCode.INVALID_RECORD_STATE, what, "it is not answered for")
            )
        return found, failing

    def _look(self, place: Place, row: Any, answer: Any, fetches: bool) -> bool:
        """A partition's error: has it moved, or must the program know?  False: it has none."""
        code = row.error_code
        if code in MOVED:
            self.stale = True
            self.moves.append((place, row.current_leader.leader_id,
                               row.current_leader.leader_epoch, answer))  # fmt: skip
        elif code and fetches:
            what = f"{place.topic}-{place.number}"
            problem = failure(code, what, row.error_message, apis.SHARE_FETCH)
            self._raise(about(place.tp, problem))
        return bool(code)

    # ---- failures ----------------------------------------------------------------------

    def failed(self, node: int, problem: errors.KafkalogError, now_s: float) -> None:
        """The connection to a node has failed, or could not be opened: its session ends."""
        self.stale = True
        request = self.pending.pop(node, None)
        self._end(node, request, problem)
        self._rest(node, now_s)
        self._raise(problem)

    def give_up(self, problem: errors.KafkalogError) -> None:
        """Acknowledgements that are due or in flight are not waited for any longer: they fail."""
        for node, request in self.pending.items():
            for place, acks in request.acks.items():
                self.holding.ended(place, acks, problem)
            self.pending[node] = request._replace(acks={})
        due, self.holding.due = self.holding.due, {}
        for some in due.values():
            for place, acks in some.items():
                self.holding.ended(place, acks, problem)

    def _refused(
        self, node: int, request: Request, problem: errors.KafkalogError, now_s: float
    ) -> None:
        if problem.code in SESSION_LOST:
            self._end(node, request, problem)
            if request.epoch == NEW_EPOCH:
                self._rest(node, now_s)
            return
        session = self.sessions.get(node)
        if session is not None:  # the node has counted the request
            epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
            self.sessions[node] = session._replace(epoch=epoch)
        for place, acks in request.acks.items():
            self.holding.ended(place, acks, problem)
        self._rest(node, now_s)
        self.stale = True
        self._raise(problem)

    def _raise(self, problem: errors.KafkalogError) -> None:
        """Raise a permanent failure from the next poll; it is tried again, too."""
        if not passing(problem) and problem.code not in (*MOVED, ErrorCode.UNKNOWN_SERVER_ERROR):
            self.problem = self.problem or problem

    def _end(
        self, node: int, request: Request | None, problem: errors.KafkalogError
    ) -> None:  # fmt: skip
        if request is not None:
            for place, acks in request.acks.items():
                self.holding.ended(place, acks, problem)
        session = self.sessions.pop(node, None)
        if session is not None:
            self.holding.lost(session.source, str(problem))

    def _rest(self, node: int, now_s: float) -> None:
        low_s, high_s = self._pauses_s
        pause_s = min(max(low_s, self._rests.get(node, (0.0, 0.0))[1] * 2), high_s)
        self._rests[node] = now_s + pause_s, pause_s

    def acknowledging(self) -> bool:
        """True if acknowledgements are due or in flight."""
        return bool(self.holding.due) or any(one.acks for one in self.pending.values())


def batches(acks: Mapping[int, int]) -> list[dict[str, Any]]:
    """The acknowledgements of a partition, as ranges of a request."""
    found: list[dict[str, Any]] = []
    for offset in sorted(acks):
        last = found[-1] if found else None
        if last is not None and last["last_offset"] == offset - 1:
            last["last_offset"] = offset
            last["acknowledge_types"].append(acks[offset])
        else:
            found.append({"first_offset": offset, "last_offset": offset,
                          "acknowledge_types": [acks[offset]]})  # fmt: skip
    for one in found:
        types = one["acknowledge_types"]
        if len(set(types)) == 1:
            one["acknowledge_types"] = types[:1]
    return found


def topics_of(places: Iterable[Place], acks: Acks) -> list[dict[str, Any]]:
    """The topics of a request."""
    rows: dict[Any, list[dict[str, Any]]] = {}
    for place in sorted({*places, *acks}):
        rows.setdefault(place.topic_id, []).append({
            "partition_index": place.number,
            "acknowledgement_batches": batches(acks.get(place, {})),
        })  # fmt: skip
    return [{"topic_id": topic, "partitions": some} for topic, some in rows.items()]


def forgotten_of(places: Iterable[Place]) -> list[dict[str, Any]]:
    """The partitions that a ShareFetch drops from its session."""
    rows: dict[Any, list[int]] = {}
    for place in places:
        rows.setdefault(place.topic_id, []).append(place.number)
    return [{"topic_id": topic, "partitions": some} for topic, some in rows.items()]
