"""The records of `__share_group_state`: kafkalog.wire.records, docs/format.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkalog.coordinator.share_state.persister import StateBatch
from kafkalog.coordinator.share_state.state import (
    Change,
    SharePartition,
    ShareState,
    Snapshot,
    Update,
)
from kafkalog.coordinator.step import JournalRecord
from kafkalog.wire.records import SHARE_STATE

__all__ = ["change_of", "key_of", "record_of"]

SNAPSHOT, UPDATE = "ShareSnapshot", "ShareUpdate"


def record_of(where: SharePartition, change: Change) -> JournalRecord:
    """A change in its written form."""
    kind = UPDATE if isinstance(change, Update) else SNAPSHOT
    key = SHARE_STATE.encode_key(kind, where._asdict())
    if change is None:
        return key, None
    if isinstance(change, Update):
        fields = change._asdict()
    else:
        fields = change.state._asdict()
        fields["create_timestamp"] = fields.pop("created_ms")
        fields["write_timestamp"] = fields.pop("written_ms")
    fields["state_batches"] = [one._asdict() for one in fields["state_batches"]]
    return key, SHARE_STATE.encode_value(kind, 0, fields)


def key_of(key: bytes) -> tuple[SharePartition, str] | None:
    """The share partition and the kind of a record; None if the kind is unknown.

    Raises: InvalidRequest.
    """
    kind, _, fields = SHARE_STATE.decode_key(key)
    if kind not in (SNAPSHOT, UPDATE):
        return None
    return SharePartition(fields.group_id, fields.topic_id, fields.partition), kind


def change_of(kind: str, value: bytes | None) -> Change:
    """A change from its record.

    Raises: InvalidRequest, UnsupportedVersion.
    """
    if value is None:
        return None
    _, one = SHARE_STATE.decode_value(kind, value)
    batches = tuple(_batches(one.state_batches))
    if kind == UPDATE:
        return Update(
            one.snapshot_epoch, one.leader_epoch, one.start_offset, one.delivery_complete_count,
            batches,
        )  # fmt: skip
    return Snapshot(
        ShareState(
            one.snapshot_epoch, one.state_epoch, one.leader_epoch, one.start_offset,
            one.delivery_complete_count, batches, one.create_timestamp, one.write_timestamp,
        )
    )  # fmt: skip


def _batches(rows: Iterable[Any]) -> Iterable[StateBatch]:
    for one in rows:
        if one.first_offset <= one.last_offset:  # Kafka's coordinator takes others, too
            yield StateBatch(
                one.first_offset, one.last_offset, one.delivery_state, one.delivery_count
            )
