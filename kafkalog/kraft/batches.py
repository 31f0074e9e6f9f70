"""Encodes and decodes batches of metadata records and KRaft's control records.

A data record has no key and a framed value; a control record's key names its kind.
Source: KIP-595, KIP-631; docs/format.md, "Metadata".
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.batch.columns import Columns
from kafkalog.batch.control import control_key, control_kind
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.encode import HEADER_BYTES, placed
from kafkalog.batch.walk import whole_batches
from kafkalog.errors import CorruptLog, CorruptMessage

__all__ = [
    "BATCH_BYTES",
    "KRAFT_VERSION",
    "LEADER_CHANGE",
    "SNAPSHOT_FOOTER",
    "SNAPSHOT_HEADER",
    "VOTERS",
    "Raw",
    "control_batch",
    "data_batches",
    "kraft_version_of",
    "kraft_version_value",
    "leader_change_value",
    "raw_records",
    "records_in",
    "snapshot_footer_value",
    "snapshot_header_value",
]

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, VOTERS = 2, 3, 4, 5, 6
BATCH_BYTES = 1 << 20
RECORD_BYTES_MAX = 8 << 20
"""Kafka's largest metadata batch; ours end at BATCH_BYTES unless one record is longer."""


class Raw(NamedTuple):
    """A record as it is stored in a batch."""

    offset: int
    epoch: int
    timestamp_ms: int
    control: int | None
    """The kind of a control record; None: data."""
    value: bytes


# ---- in -------------------------------------------------------------------------------------


def raw_records(batch: Any, whole: bytes | memoryview) -> Iterator[Raw]:
    """The records of one checked batch (a kl_batch and its bytes).

    Raises: CorruptLog, CorruptMessage.
    """
    is_control = bool(batch.attributes & lib.KL_ATTR_CONTROL)
    for record in decoded_records(batch, body_of(batch, whole, RECORD_BYTES_MAX * 8)):
        control = None
        if is_control and (control := control_kind(record.key)) is None:
            raise CorruptLog(f"offset {record.offset}: found a control record without a kind")
        epoch = int(batch.leader_epoch)
        yield Raw(record.offset, epoch, record.timestamp_ms, control, record.value or b"")


def records_in(data: bytes) -> Iterator[Raw]:
    """The records of consecutive batches; each batch is checked first.

    Raises: CorruptMessage, CorruptLog.
    """
    done = 0
    for batch, whole in whole_batches(data):
        yield from raw_records(batch, whole)
        done += len(whole)
    if done < len(data):
        raise CorruptMessage(f"position {done}: found {len(data) - done} bytes, wanted a batch")


# ---- out ------------------------------------------------------------------------------------


def _sealed(columns: Columns, room: int, attributes: int, offset: int, epoch: int) -> bytes:
    """The next batch of `columns`, with its offset in the log."""
    body = bytearray(room)
    encoded = columns.encode(body, room)
    end = HEADER_BYTES + encoded.records_bytes
    stamp = ffi.new(
        "kl_stamp *",
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "attributes": attributes},
    )
    check(lib.kl_batch_seal(ffi.from_buffer("uint8_t[]", body), end, encoded, stamp))
    return placed(bytes(memoryview(body)[:end]), offset, epoch)


def data_batches(
    values: Sequence[bytes],
    offset: int,
    epoch: int,
    timestamp_ms: int,
    batch_bytes: int = BATCH_BYTES,
) -> list[bytes]:
    """Framed records as batches from `offset` on, each of about `batch_bytes` at most."""
    columns = Columns(list(values), default_timestamp_ms=timestamp_ms)
    # A record adds at most five bytes for each of its five lengths and deltas.
    longest = max(map(len, values), default=0) + 64 + HEADER_BYTES
    total = sum(map(len, values)) + 64 * len(values) + HEADER_BYTES
    room = max(min(batch_bytes, total), longest)
    out: list[bytes] = []
    while columns.row < columns.count:
        out.append(_sealed(columns, room, 0, offset + columns.row, epoch))
    return out


def control_batch(
    records: Sequence[tuple[int, bytes]], offset: int, epoch: int, timestamp_ms: int
) -> bytes:
    """One control batch of (kind, value) records."""
    columns = Columns(
        [value for _, value in records],
        [control_key(kind) for kind, _ in records],
        default_timestamp_ms=timestamp_ms,
    )
    room = sum(len(value) + 80 for _, value in records) + HEADER_BYTES
    return _sealed(columns, room, int(lib.KL_ATTR_CONTROL), offset, epoch)


def leader_change_value(node_id: int) -> bytes:
    """LeaderChangeMessage of a quorum of one, in version 0: Kafka 4.4 reads no other."""
    voters = b"\x02" + struct.pack(">i", node_id) + b"\0"  # a compact array of one
    return struct.pack(">hi", 0, node_id) + voters + voters + b"\0"


def snapshot_header_value(last_timestamp_ms: int) -> bytes:
    """SnapshotHeaderRecord."""
    return struct.pack(">hqx", 0, last_timestamp_ms)


def snapshot_footer_value() -> bytes:
    """SnapshotFooterRecord."""
    return struct.pack(">hx", 0)


def kraft_version_value(version: int) -> bytes:
    """KRaftVersionRecord."""
    return struct.pack(">hhx", 0, version)


def kraft_version_of(value: bytes) -> int:
    """The version in a KRaftVersionRecord.

    Raises: CorruptLog.
    """
    if len(value) < 4:
        raise CorruptLog(f"KRaftVersionRecord: found {len(value)} bytes, wanted at least 4")
    return int(struct.unpack_from(">h", value, 2)[0])
