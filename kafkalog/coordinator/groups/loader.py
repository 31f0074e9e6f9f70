"""Loads groups from a journal partition.

The last record of each key counts.  Offsets committed in transactions apply when their
marker follows, and stay pending if none does.  Source: Kafka's
CoordinatorLoaderImpl, GroupMetadataManager.replay.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog._native import lib
from kafkalog.coordinator.consumer_groups import records as consumer_records
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.groups import rebalance, records
from kafkalog.coordinator.groups.group import CommittedOffset, Group
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.journal import JournalBatch, StoredRecord
from kafkalog.coordinator.share_groups import records as share_records
from kafkalog.coordinator.share_groups.state import ShareGroup
from kafkalog.coordinator.step import Step
from kafkalog.coordinator.streams_groups import records as streams_records
from kafkalog.coordinator.streams_groups.state import StreamsGroup
from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited
from kafkalog.types import TopicPartition
from kafkalog.wire.records import OFFSETS
from kafkalog.wire.values import Struct

__all__ = ["load", "resume"]

LOG = limited(__name__)

Where = tuple[str, TopicPartition]
"""Group, and the partition whose offset was committed."""
_KINDS = (consumer_records.KINDS, share_records.KINDS, streams_records.KINDS)
"""The kinds of records that are read, by the type of group."""
Raw = tuple[int, bytes]
"""Position in the journal and undecoded value: most are replaced by a later one."""


def load(shard: GroupShard, batches: Iterable[JournalBatch], wall_ms: int) -> None:
    """Load an empty shard from its journal.  Touches no timer; see resume.

    A record that cannot be read is logged and skipped.
    """
    _Load(shard, wall_ms).run(batches)


def resume(shard: GroupShard, step: Step) -> None:
    """Start the sessions of the members at the journal's end."""
    for group in list(shard.groups.values()):
        for member in group.members.values():
            shard.keep_session(group, member, step.now_ms)
        unfinished = group.members and group.state_ms == records.REBALANCE_FOLLOWS
        if unfinished or len(group.members) > shard.config.group_max_size:
            rebalance.begin(shard, step, group)


class _Load:
    """One pass through a partition."""

    def __init__(self, shard: GroupShard, wall_ms: int) -> None:
        self.shard = shard
        self.wall_ms = wall_ms
        self.groups: dict[str, bytes] = {}
        self.foreign: dict[str, dict[bytes, int]] = {}
        """Live records of newer group types, with their kinds, by group."""
        self.newer: dict[str, dict[bytes, tuple[Struct, int, bytes]]] = {}
        """Live records of groups whose members heartbeat: key, position and undecoded value, by
        group."""
        self.offsets: dict[Where, Raw] = {}
        self.pending: dict[int, dict[Where, Raw]] = {}  # by producer id
        self.strange: set[str] = set()

    def run(self, batches: Iterable[JournalBatch]) -> None:
        """Read everything, then build the groups."""
        for batch in batches:
            if batch.marker is not None:
                self._marker(batch.producer_id, batch.marker)
            for record in batch.records:
                self.shard.position = record.offset + 1
                try:
                    self._record(record, batch.producer_id if batch.transactional else None)
                except KafkalogError as error:
                    self._skip(record.offset, error)
        for group_id, value in self.groups.items():
            self._make_group(group_id, value)
        for group_id, kinds in self.foreign.items():
            if kinds:
                self._group(group_id).foreign = kinds
        for group_id, live in self.newer.items():
            if live:
                self._make_newer(group_id, live)
        for where, raw in self.offsets.items():
            if (offset := self._decoded(raw)) is not None:
                self._group(where[0]).put_offset(where[1], offset)
        for producer_id, found in self.pending.items():
            for where, raw in found.items():
                if (offset := self._decoded(raw)) is not None:
                    self.shard.put_pending(producer_id, self._group(where[0]), where[1], offset)

    def _record(self, record: StoredRecord, producer_id: int | None) -> None:
        if record.key is None:
            return
        name, kind, key = OFFSETS.decode_key(record.key)
        if kind in (0, 1):
            where = key.group, TopicPartition(key.topic, key.partition)
            # Neither Kafka nor we write tombstones in a transaction.
            if record.value is None:
                # Also from open transactions: a commit would bring back what was deleted.
                self.offsets.pop(where, None)
                for pending in self.pending.values():
                    pending.pop(where, None)
            elif producer_id is None:
                self.offsets[where] = record.offset, record.value
            else:
                self.pending.setdefault(producer_id, {})[where] = record.offset, record.value
        elif kind == 2:
            if record.value is None:
                self.groups.pop(key.group, None)
            else:
                self.groups[key.group] = record.value
        elif kind in records.FOREIGN_KINDS:
            if record.value is None:
                self.foreign.get(key.group_id, {}).pop(record.key, None)
                self.newer.get(key.group_id, {}).pop(record.key, None)
            else:
                self.foreign.setdefault(key.group_id, {})[record.key] = kind
                if any(kind in kinds for kinds in _KINDS):
                    live = self.newer.setdefault(key.group_id, {})
                    live[record.key] = key, record.offset, record.value
        elif name not in self.strange:
            self.strange.add(name)
            LOG.warning(
                "__consumer_offsets-%d: offset %d: records of kind %s are kept, but not read",
                self.shard.partition, record.offset, name,
            )  # fmt: skip

    def _marker(self, producer_id: int, kind: int) -> None:
        if kind not in (lib.KL_CONTROL_COMMIT, lib.KL_CONTROL_ABORT):
            return
        pending = self.pending.pop(producer_id, {})
        if kind == lib.KL_CONTROL_COMMIT:
            for where, raw in pending.items():
                # A commit outside the transaction that came later wins.
                if where not in self.offsets or self.offsets[where][0] < raw[0]:
                    self.offsets[where] = raw

    def _group(self, group_id: str) -> Group:
        group = self.shard.groups.get(group_id)
        if group is None:
            group = self.shard.new_group(group_id, self.wall_ms)
            group.recorded = True
        return group

    def _make_group(self, group_id: str, value: bytes) -> None:
        try:
            _, fields = OFFSETS.decode_value("GroupMetadata", value)
            records.loaded_group(self._group(group_id), fields)
        except KafkalogError as error:
            self._skip(-1, error)

    def _make_newer(self, group_id: str, found: dict[bytes, tuple[Struct, int, bytes]]) -> None:
        group = self._group(group_id)
        first = next(iter(group.foreign.values()))
        kinds = next(some for some in _KINDS if first in some)
        if kinds is share_records.KINDS:
            group.share = ShareGroup(group.weight)
        elif kinds is streams_records.KINDS:
            group.streams = StreamsGroup(group.weight)
        else:
            group.consumer = ConsumerGroup(group.weight)
        for raw_key, (key, offset, value) in found.items():
            kind = group.foreign[raw_key]
            if kind not in kinds:
                continue
            try:
                _, fields = OFFSETS.decode_value(kinds[kind], value)
                self._put(group, kind, key, fields)
            except KafkalogError as error:
                self._skip(offset, error)

    def _put(self, group: Group, kind: int, key: Struct, fields: Struct) -> None:
        if group.share is not None:
            share_records.put(group.share, kind, key, fields, self.wall_ms)
        elif group.streams is not None:
            streams_records.put(group.streams, kind, key, fields)
        elif group.consumer is not None:
            consumer_records.put(group.consumer, kind, key, fields)

    def _decoded(self, raw: Raw) -> CommittedOffset | None:
        try:
            # Keys of kind 0 have the same values as those of kind 1; older versions wrote them.
            _, fields = OFFSETS.decode_value("OffsetCommit", raw[1])
        except KafkalogError as error:
            self._skip(raw[0], error)
            return None
        return records.loaded_offset(fields, raw[0])

    def _skip(self, offset: int, error: KafkalogError) -> None:
        LOG.warning("__consumer_offsets-%d: offset %d: %s", self.shard.partition, offset, error)
