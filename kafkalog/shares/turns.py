"""The share partitions of which a member reads for one request, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.errors import Closed, KafkalogError, OffsetOutOfRange
from kafkalog.log.log import handle_of
from kafkalog.shares import reading
from kafkalog.shares.partition import Refused
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.shares.entries import Entry
    from kafkalog.shares.partition import Limits, SharePartition
    from kafkalog.shares.requests import Acks, Ask, Find, Led
    from kafkalog.shares.sessions import Where
    from kafkalog.shares.waiting import Fetching

__all__ = ["READ_BYTES_MAX", "Turn", "full", "has_more", "looked_up", "read_in_turn", "refusals"]

READ_BYTES_MAX = 8 << 20
"""Read for one request: members ask for some hundred records, and each answer is in memory."""


class Turn(NamedTuple):
    """A share partition of which a member reads now."""

    entry: Entry
    led: Led
    offset: int
    until: int
    """The end of what the member can acquire at once."""
    bound: int
    """Where its readable records end."""

    @classmethod
    def begin(
        cls, fetch: Fetching, entry: Entry, led: Led, share: SharePartition, bound: int,
        limits: Limits,
    ) -> Turn | None:  # fmt: skip
        """Begin to read a share partition; None: there is nothing to read now."""
        if not share.can_acquire(limits):
            return None
        fetch.acquires = True
        offset = share.next_fetch_offset()
        if offset >= bound:
            return None
        entry.reading = True
        return cls(entry, led, offset, share.end_of_free(offset, fetch.ask.want.records), bound)


def read_in_turn(
    turns: Sequence[Turn], found: list[reading.Read | Refused], ask: Ask, committed: bool
) -> None:
    """Append what is read of each partition to `found`, up to the one that uses up the limits of
    `ask`: one request never has more than READ_BYTES_MAX bytes and a batch in memory.
    """
    left, records = min(ask.max_bytes, READ_BYTES_MAX), ask.want.records
    wanted = ask.min_bytes
    for at, turn in enumerate(turns):
        if left <= 0 or records <= 0:
            return
        expected = turn.entry.read_bytes
        limits = reading.Limits(left // (len(turns) - at), wanted, turn.until, expected)
        one = _read(turn, limits, committed)
        found.append(one)
        if isinstance(one, reading.Read) and one.batches:
            turn.entry.read_bytes = len(one.data)
            left -= len(one.data)
            wanted -= len(one.data)
            records -= one.batches[-1].last + 1 - turn.offset


def has_more(turn: Turn, one: reading.Read | Refused) -> bool:
    """True if the partition has readable records behind those that were read."""
    if isinstance(one, Refused):
        return False
    return not one.batches or one.batches[-1].last + 1 < turn.bound


def looked_up(find: Find, where: Where) -> tuple[Led, Any] | Refused:
    """The partition and the state of its log, or why it cannot be read."""
    try:
        led = find(where)
        return led, None if led.log is None else handle_of(led.log).state()
    except Refused as refused:
        return refused
    except KafkalogError as problem:
        return _failed(problem)


def full(bytes_max: int) -> Refused:
    """There is no memory for another share partition."""
    why = f"memory of share groups: found more than {bytes_max} bytes, wanted at most so many"
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, why)


def refusals(
    acks: Acks, mistakes: Mapping[Where, Refused], find: Find
) -> dict[Where, Refused]:  # fmt: skip
    """The partitions whose acknowledgements are refused: also those that this broker does not lead,
    or the caller may not read."""
    found = dict(mistakes)
    for where in acks:
        try:
            if not found or where not in found:
                find(where)
        except Refused as refused:
            found[where] = refused
    return found


def _read(turn: Turn, limits: reading.Limits, committed: bool) -> reading.Read | Refused:
    assert turn.led.log is not None
    try:
        return reading.read(turn.led.log, turn.offset, limits, committed)
    except OffsetOutOfRange:  # the log begins later now, or was cut: it is looked at again
        return reading.NOTHING
    except KafkalogError as problem:
        return _failed(problem)


def _failed(problem: KafkalogError) -> Refused:
    if isinstance(problem, Closed):  # the partition has left this broker since it was found
        return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(problem))
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem))
