"""Raft and the active controller, joined: when this node's controller becomes active, and the
outcomes of its appends.

Pure: `step` takes a state and an event, and returns the next state and the effects.  Events are
Raft's effects BecameLeader, LostLeadership and Appended; Applied, VersionChanged; and the effects
Append, ChangeKraftVersion and Resign.  Effects are events: Raft's Append, ChangeVersion and Resign,
and the controller's Elected, Deposed and StoreResult.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from kafkalog.controller import events as controller
from kafkalog.controller.active import NotActive
from kafkalog.controller.context import Claim
from kafkalog.errors import MessageTooLarge
from kafkalog.kraft.batches import RECORD_BYTES_MAX
from kafkalog.kraft.records import encode
from kafkalog.metadata.image import MetadataImage
from kafkalog.quorum.store import Snapshot
from kafkalog.quorum.writing import OWN_OFFSET, Append, ChangeKraftVersion, MetadataRecord
from kafkalog.raft import messages as raft

__all__ = ["Applied", "Joint", "VersionChanged", "step", "values_at"]

NOBODY = -1


class Applied(NamedTuple):
    """The committed records below an offset are in the image."""

    offset: int
    image: MetadataImage
    in_transaction: bool = False
    """A metadata transaction (KIP-868) has begun and not ended: the image is as before it."""


class VersionChanged(NamedTuple):
    """The answer to a ChangeVersion."""

    token: Any
    answer: raft.VoterResponse


class _Pending(NamedTuple):
    """An effect of the controller whose outcome is not known yet."""

    number: int
    last_offset: int | None = None
    """The offset of an append's last record, once it is in the log."""


class Joint(NamedTuple):
    """The state between two events."""

    node: int
    unclean: bool
    """As in Claim."""
    applied: Applied
    epoch: int = NOBODY
    """The epoch that this node leads."""
    begins: int = 0
    """The controller of that epoch has to know everything below this offset."""
    active: bool = False
    """The controller was elected."""
    pending: _Pending | None = None


Stepped: TypeAlias = "tuple[Joint, list[Any]]"


def step(now: Joint, event: object) -> Stepped:
    """The next state, and the effects in order."""
    if isinstance(event, Applied):
        return _advanced(now._replace(applied=event))
    if isinstance(event, raft.BecameLeader):
        led = now._replace(epoch=event.epoch, begins=event.offset, active=False, pending=None)
        return _advanced(led)
    if isinstance(event, raft.LostLeadership):
        return _lost(now) if event.epoch == now.epoch else (now, [])
    if isinstance(event, raft.Appended):
        return _appended(now, event)
    if isinstance(event, Append | ChangeKraftVersion):
        if not now.active:
            return now, [controller.StoreResult(event.number, [NotActive()])]
        if isinstance(event, Append):
            return _append(now, event.number, event.records)
        wanted = raft.ChangeVersion((now.epoch, event.number), event.level)
        return now._replace(pending=_Pending(event.number)), [wanted]
    if isinstance(event, VersionChanged):
        return _changed(now, event)
    assert isinstance(event, controller.Resign)
    resigns: list[Any] = [raft.Resign(now.epoch)] if now.epoch != NOBODY else []
    return now._replace(active=False, pending=None), resigns


def _lost(now: Joint) -> Stepped:
    """The outcome of an append in flight stays unknown: the next leader's log decides."""
    deposed: list[Any] = [controller.Deposed()] if now.active else []
    return now._replace(epoch=NOBODY, active=False, pending=None), deposed


def _append(now: Joint, number: int, records: Sequence[MetadataRecord]) -> Stepped:
    try:
        data = _encoded(records, now.applied.image)
    except Exception as problem:  # of these records alone
        return now, [controller.StoreResult(number, [problem])]
    wanted = raft.Append((now.epoch, number), len(data), data, now.epoch)
    return now._replace(pending=_Pending(number)), [wanted]


def _appended(now: Joint, event: raft.Appended) -> Stepped:
    pending = now.pending
    if pending is None or event.token != (now.epoch, pending.number):
        return now, []
    if event.last_offset is None:  # LostLeadership is on its way
        failed = controller.StoreResult(pending.number, [NotActive()])
        return now._replace(pending=None), [failed]
    return _advanced(now._replace(pending=pending._replace(last_offset=event.last_offset)))


def _changed(now: Joint, event: VersionChanged) -> Stepped:
    pending = now.pending
    if pending is None or event.token != (now.epoch, pending.number):
        return now, []
    code, why = event.answer.error_code, event.answer.error_message
    done = controller.StoreResult(pending.number, [(int(code), why)])
    return now._replace(pending=None), [done]


def _advanced(now: Joint) -> Stepped:
    """Finish what waited for records that are applied now."""
    pending, applied = now.pending, now.applied
    effects: list[Any] = []
    if pending is not None:
        if pending.last_offset is None or pending.last_offset >= applied.offset:
            return now, effects
        now = now._replace(pending=None)
        effects.append(controller.StoreResult(pending.number, [applied.image]))
    if now.epoch == NOBODY or now.active or applied.offset < now.begins:
        return now, effects
    claim = Claim(now.node, now.epoch, now.epoch, now.unclean)
    loaded = Snapshot(applied.image, applied.in_transaction)
    return now._replace(active=True), [*effects, controller.Elected(claim, loaded)]


# ---- records as bytes --------------------------------------------------------------------------

Value: TypeAlias = "bytes | Callable[[int], bytes]"
"""A framed record; a function of its offset if it has that in it."""


def _encoded(records: Sequence[MetadataRecord], image: MetadataImage) -> tuple[Value, ...]:
    found = tuple(_value(name, fields, image) for name, fields in records)
    size = sum(len(one if isinstance(one, bytes) else one(0)) for one in found)
    if size > RECORD_BYTES_MAX:
        raise MessageTooLarge(f"metadata records: found {size} bytes in one change, wanted at most "
                              f"{RECORD_BYTES_MAX}")  # fmt: skip
    return found


def _value(name: str, fields: Any, image: MetadataImage) -> Value:
    own = [key for key, value in fields.items() if value is OWN_OFFSET]
    if not own:
        return encode(name, fields, image)
    return lambda offset: encode(name, {**fields, **dict.fromkeys(own, offset)}, image)


def values_at(data: Sequence[Value], offset: int) -> list[bytes]:
    """The records of an Append as framed bytes, the first of them at `offset`."""
    return [one if isinstance(one, bytes) else one(at) for at, one in enumerate(data, offset)]
