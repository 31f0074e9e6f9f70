"""Control records: the ends of transactions, and what KRaft writes between its records."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from kafkalog._native import lib
from kafkalog.batch.decode import body_of, decoded_records

__all__ = ["Marker", "control_key", "control_kind", "read_marker"]

_KEY = struct.Struct(">hh")


class Marker(NamedTuple):
    """The record of a control batch."""

    offset: int
    timestamp_ms: int
    kind: int
    """0 abort, 1 commit; others are KRaft's own."""
    coordinator_epoch: int
    """-1 when it is no transaction marker."""


def control_key(kind: int) -> bytes:
    """The key of a control record: version 0 and its kind."""
    return _KEY.pack(0, kind)


def control_kind(key: bytes | None) -> int | None:
    """What the key of a control record says; None when it is none."""
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
