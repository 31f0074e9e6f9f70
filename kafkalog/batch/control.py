"""Control records: transaction markers, and what KRaft writes between its records."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from kafkalog._native import lib
from kafkalog.arguments import INT16_MAX, INT32_MAX, whole_number
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.encode import rows_batch

__all__ = ["Marker", "control_key", "control_kind", "marker_batch", "read_marker"]

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_CONTROL: int = lib.KL_ATTR_TRANSACTIONAL | lib.KL_ATTR_CONTROL


class Marker(NamedTuple):
    """The record of a control batch."""

    offset: int
    timestamp_ms: int
    kind: int
    """0 abort, 1 commit; others are KRaft's own."""
    coordinator_epoch: int
    """-1 if it is not a transaction marker."""


def control_key(kind: int) -> bytes:
    """The key of a control record: version 0 and its kind.  Raises: ArgumentError."""
    return _KEY.pack(0, whole_number("kind", kind, 0, INT16_MAX))


def control_kind(key: bytes | None) -> int | None:
    """The kind that the key of a control record gives; None if it gives none."""
    return int(_KEY.unpack_from(key)[1]) if key is not None and len(key) >= _KEY.size else None


def read_marker(batch: Any, whole: bytes) -> Marker | None:
    """The control record of a whole batch; None for one that was emptied.

    Raises: CorruptMessage, InvalidRecord.
    """
    for record in decoded_records(batch, body_of(batch, whole)):
        kind = control_kind(record.key)
        if kind is None:
            return None
        epoch = -1
        ends = kind in (lib.KL_CONTROL_ABORT, lib.KL_CONTROL_COMMIT)
        if ends and record.value is not None and len(record.value) >= 6:
            (epoch,) = struct.unpack_from(">i", record.value, 2)
        return Marker(record.offset, record.timestamp_ms, kind, epoch)
    return None


def marker_batch(
    producer_id: int, epoch: int, commit: bool, coordinator_epoch: int, now_ms: int
) -> bytes:
    """The batch that ends a transaction.  Raises: ArgumentError."""
    number = whole_number("coordinator_epoch", coordinator_epoch, -INT32_MAX - 1, INT32_MAX)
    kind = lib.KL_CONTROL_COMMIT if commit else lib.KL_CONTROL_ABORT
    row = control_key(kind), _VALUE.pack(0, number)
    return rows_batch([row], now_ms, producer_id, epoch, _CONTROL)
