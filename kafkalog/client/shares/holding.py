"""The records that a share consumer has acquired, and what it says about each.

It only decides: no clock, no socket, no thread.  A record is buffered until a poll returns it, then
it is out until it is acknowledged, and its acknowledgement is due until it is sent.

Source: KIP-932, KIP-1222 (renewals), and the behaviour of Apache Kafka 4.4's share consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.client.link.failures import failure
from kafkalog.types import Record, SharedRecord, TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["ACCEPT", "TYPES", "Acks", "Holding", "Outcome", "Place", "Source"]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
TYPES = {"accept": ACCEPT, "release": RELEASE, "reject": REJECT, "renew": RENEW}
"""The words of `acknowledge`, and their numbers in requests."""


class Place(NamedTuple):
    """A partition of one topic id; a topic that is made again has another."""

    topic_id: UUID
    topic: str
    number: int

    @property
    def tp(self) -> TopicPartition:
        """By name."""
        return TopicPartition(self.topic, self.number)


class Source(NamedTuple):
    """The share session that acquired records: their locks belong to it."""

    node: int
    serial: int


class Outcome(NamedTuple):
    """The end of a partition's acknowledgements."""

    place: Place
    offsets: list[int]
    """In order."""
    problem: errors.KafkalogError | None


class _Held:
    """One record."""

    __slots__ = ("again", "hidden", "lost", "place", "record", "renewed", "said", "source")

    def __init__(self, record: SharedRecord, place: Place, source: Source) -> None:
        self.record, self.place, self.source = record, place, source
        self.said: int | None = None
        self.renewed = False
        """True: its lock was renewed since it was last returned; the next poll returns it again."""
        self.again = False
        """True: its lock was renewed at least once."""
        self.hidden = self.lost = False
        """It may not have reached the program; its session has ended while it was hidden."""

    @property
    def unsaid(self) -> bool:
        """True if the program has it, and has said nothing about it."""
        return self.said is None and not self.renewed and not self.hidden


Acks = dict[Place, dict[int, int]]
"""The acknowledgement of each offset."""
_Key = tuple[str, int, int]


class Holding:
    """The records of one consumer.  One thread."""

    def __init__(self) -> None:
        self.due: dict[Source, Acks] = {}
        """Acknowledgements to be sent."""
        self.outcomes: list[Outcome] = []
        """Acknowledgements that have ended, in order."""
        self.failed = 0
        """Records whose acknowledgement has failed."""
        self._buffer: deque[_Held] = deque()
        self._out: dict[_Key, _Held] = {}
        self._renewing: dict[_Key, _Held] = {}

    # ---- records -----------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if `take` has something."""
        return bool(self._buffer) or any(one.renewed for one in self._out.values())

    @property
    def full(self) -> bool:
        """True if no more are to be acquired: some are ready, or will be once they are renewed."""
        return self.ready or bool(self._renewing)

    def add(
        self, place: Place, source: Source, acquired: Iterable[Any], records: Iterable[Record],
        damaged: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        """Records were acquired.  Damaged ones are rejected; any other offset without a record is a
        gap.

        `acquired`: ranges of a ShareFetch's answer; `records`: those in them, and maybe others;
        `damaged`: ranges of offsets, both ends included.
        """
        found = {record.offset: record for record in records}
        new: dict[int, _Held] = {}
        for part in acquired:
            for offset in range(part.first_offset, part.last_offset + 1):
                record = found.get(offset)
                if record is not None:
                    shared = SharedRecord(*record, part.delivery_count)
                    new[offset] = _Held(shared, place, source)
                elif any(first <= offset <= last for first, last in damaged):
                    self._say(source, place, offset, REJECT)
                else:
                    self._say(source, place, offset, GAP)
        if self._buffer:  # a leader that has come back gives them again
            self._buffer = deque(
                one for one in self._buffer if one.place != place or one.record.offset not in new
            )
        self._buffer += new.values()

    def take(self, count: int) -> list[SharedRecord]:
        """Up to `count` records for the program: those that were renewed come first."""
        found = [one for one in self._out.values() if one.renewed][:count]
        while self._buffer and len(found) < count:
            found.append(self._buffer.popleft())
        for one in found:
            one.renewed = False
            self._out[_key(one.record)] = one
        return [one.record for one in found]

    def hide(self, records: Iterable[SharedRecord]) -> None:
        """Records of the last `take` may not reach the program: until `show` or `put_back` they are
        neither accepted nor missed."""
        for record in records:
            self._out[_key(record)].hidden = True

    def show(self, records: Iterable[SharedRecord]) -> None:
        """Hidden records have reached the program."""
        for held in self._hidden(records):
            held.hidden = False

    def put_back(self, records: Iterable[SharedRecord]) -> None:
        """Hidden records have reached nobody: `take` returns them first, unless their session has
        ended."""
        for held in reversed(self._hidden(records)):
            held.hidden = False
            if held.again:
                held.renewed = True
                continue
            del self._out[_key(held.record)]
            if not held.lost:
                self._buffer.appendleft(held)

    def _hidden(self, records: Iterable[SharedRecord]) -> list[_Held]:
        """Those that the consumer still holds: the same offset may have been acquired again."""
        pairs = [(self._out.get(_key(one)), one) for one in records]
        return [held for held, one in pairs if held is not None and held.record is one]

    # ---- what the program says ---------------------------------------------------------

    def acknowledge(self, record: SharedRecord, kind: int) -> None:
        """Raises: ArgumentError for a record that is not out."""
        held = self._out.get(_key(record))
        if held is None:
            raise errors.ArgumentError(
                f"record: found {record.topic}-{record.partition}, offset {record.offset}, wanted "
                "one that poll has returned and that was not acknowledged before the last poll or "
                "commit"
            )
        held.said = kind

    def accept_rest(self) -> None:
        """Accept everything that is out."""
        for held in self._out.values():
            if held.unsaid:
                held.said = ACCEPT

    def unsaid(self) -> list[SharedRecord]:
        """The records that are out, and were neither acknowledged nor renewed."""
        return [one.record for one in self._out.values() if one.unsaid]

    def conclude(self) -> None:
        """Make due all that was said: it cannot be changed any more."""
        for key, held in [pair for pair in self._out.items() if pair[1].said is not None]:
            del self._out[key]
            assert held.said is not None
            if held.said == RENEW:
                self._renewing[key] = held
            self._say(held.source, held.place, held.record.offset, held.said)
            held.said = None

    def _say(self, source: Source, place: Place, offset: int, kind: int) -> None:
        self.due.setdefault(source, {}).setdefault(place, {})[offset] = kind

    # ---- how it ended ------------------------------------------------------------------

    def ended(
        self, place: Place, acks: dict[int, int], problem: errors.KafkalogError | None
    ) -> None:
        """A partition's acknowledgements were carried out, or have failed."""
        for offset in [one for one, kind in acks.items() if kind == RENEW]:
            held = self._renewing.pop((*place.tp, offset), None)
            if held is not None and problem is None:
                held.renewed = held.again = True
                self._out[_key(held.record)] = held
        self.failed += len(acks) if problem is not None else 0
        if offsets := sorted(offset for offset, kind in acks.items() if kind != GAP):
            self.outcomes.append(Outcome(place, offsets, problem))

    def lost(self, source: Source, why: str) -> None:
        """A session has ended: its records that no poll has returned come again, to any member.
        What is due, and is said later, fails."""
        if any(one.source == source for one in self._buffer):
            self._buffer = deque(one for one in self._buffer if one.source != source)
        for one in self._out.values():
            one.lost |= one.hidden and one.source == source
        for place, acks in self.due.pop(source, {}).items():
            self.ended(place, acks, _gone(place, why))

    def fail_others(self, current: Iterable[Source]) -> None:
        """Fail what is due in sessions that have ended."""
        for source in self.due.keys() - set(current):
            self.lost(source, f"the share session with node {source.node} has ended")

    def take_outcomes(self) -> list[Outcome]:
        """Those since the last call."""
        found, self.outcomes = self.outcomes, []
        return found


def _key(record: SharedRecord) -> _Key:
    return record.topic, record.partition, record.offset


def _gone(place: Place, why: str) -> errors.KafkalogError:
    return failure(ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"{place.topic}-{place.number}", why)
