"""The requests of members to a partition's leader, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.shares.acquiring import Want
from kafkalog.shares.partition import Acknowledgement, AckType, Acquired, Limits, Refused
from kafkalog.shares.sessions import Key, Where
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = [
    "Acked",
    "Acks",
    "Answer",
    "Ask",
    "Find",
    "Found",
    "GroupShare",
    "Led",
    "check_acks",
]


class GroupShare(NamedTuple):
    """The settings of a group that concern its records."""

    limits: Limits = Limits()
    committed: bool = False
    """True: no records of aborted or open transactions."""
    reset: str = "latest"
    """Where a group begins in a partition: share.auto.offset.reset."""


class Led(NamedTuple):
    """A partition that this broker leads."""

    topic: str
    leader_epoch: int
    log: Log | None
    """None: nothing was ever written."""


Find = Callable[[Where], Led]
"""The partition, if this broker leads it and the caller may read it.  Raises: Refused."""
Acks = Mapping[Where, Sequence[Acknowledgement]]
Acked = Mapping[Where, Refused | None]
"""The outcome of acknowledgements by partition; None: they are final."""


class Ask(NamedTuple):
    """A ShareFetch."""

    key: Key
    epoch: int
    wanted: Sequence[Where]
    forgotten: Sequence[Where]
    acks: Acks | None
    """None: it has none."""
    mistakes: Mapping[Where, Refused]
    """The partitions whose acknowledgements are refused."""
    want: Want
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    renews: bool
    """True: it only acknowledges, and may renew locks."""
    connection: int


class Found(NamedTuple):
    """The outcome for a partition."""

    refused: Refused | None
    records: bytes = b""
    """Whole batches with the acquired records."""
    acquired: Sequence[Acquired] = ()


class Answer(NamedTuple):
    """The outcome of a request."""

    refused: Refused | None
    """The whole request is refused; None: it is not."""
    acked: Acked
    found: Mapping[Where, Found]
    """By partition, those that the member is to see."""
    lock_ms: int
    """How long members hold records."""


def check_acks(said: Sequence[Acknowledgement], version: int, renews: bool) -> None:
    """Check the acknowledgements of a partition.  Raises: Refused.

    `renews`: the request may renew locks.
    """
    last, most = -1, AckType.REJECT if version < 2 else AckType.RENEW
    for one in said:
        offsets = f"offsets {one.first} to {one.last}"
        size, types = one.last - one.first + 1, one.types
        if size < 1 or one.first < last:
            why = f"{offsets}: wanted them in order, after offset {last}"
        elif len(types) not in (1, size):
            why = f"{offsets}: found {len(types)} acknowledge types, wanted 1 or {size}"
        elif min(types) < AckType.GAP or max(types) > most:
            why = f"{offsets}: found acknowledge types {sorted({*types})}, wanted 0 to {most}"
        elif AckType.RENEW in types and not renews:
            why = f"{offsets}: found renewals in a request that is not said to have some"
        else:
            last = one.last
            continue
        raise Refused(ErrorCode.INVALID_REQUEST, why)
