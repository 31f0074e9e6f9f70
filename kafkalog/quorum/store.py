"""The metadata log as the store of a controller: its records become those of KRaft.

A step's records are appended together, all or none, and are in the image once they are committed.
Only the active controller appends, so nothing is refused because it has changed since: an append
that fails means that another controller is active, or may be.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kafkalog.controller.active import Answer, Steps, Work
from kafkalog.controller.context import Context, leadership
from kafkalog.controller.leader_election import elect_first
from kafkalog.controller.records import (
    DONE,
    LastProducerId,
    Outcome,
    PartitionChange,
    PartitionsCreation,
    PartitionState,
    PartitionStates,
    ProducerIds,
    Record,
    Settings,
    SettingsChange,
    TopicCreation,
    TopicDeletion,
    TopicPartition,
    TopicRemoval,
)
from kafkalog.controller.requests import RequestBatch, Send
from kafkalog.errors import ArgumentError
from kafkalog.metadata.changes import partition_fields
from kafkalog.metadata.image import ELIGIBLE_REPLICAS, NO_LEADER, TOPIC, MetadataImage, Partition
from kafkalog.quorum.registrations import fence_expired, heartbeat, register, unregister
from kafkalog.quorum.sessions import Committed, Sessions
from kafkalog.quorum.writing import Append, MetadataRecord, MetadataRecords, live_brokers
from kafkalog.wire.tables.cluster import UNREGISTER_BROKER
from kafkalog.wire.tables.later.quorum import BROKER_HEARTBEAT, BROKER_REGISTRATION

__all__ = ["QuorumStore", "SessionsDue", "Snapshot"]

T = TypeVar("T")
UNASSIGNED = uuid.UUID(int=0)
"""The directory of a replica whose broker has several, and has not chosen yet (KIP-858)."""


class SessionsDue(NamedTuple):
    """A session may have ended: sent at Sessions.next_ms, or later."""


Performing = Generator[Append, Any, T]
Step = Callable[..., Steps[dict[str, Any]]]


class Snapshot:
    """The content of the metadata log when a controller becomes active."""

    written_by: Mapping[TopicPartition, int] = {}
    written_at: Mapping[TopicPartition, int] = {}
    """Empty: a broker that restarts is fenced, and leaves the ISRs, before it is live again."""
    unread: frozenset[TopicPartition] = frozenset()
    deleted: frozenset[str] = frozenset()
    problems: Sequence[Exception] = ()

    def __init__(self, image: MetadataImage) -> None:
        self.whole = image
        """All metadata."""
        self.image = image._replace(brokers=live_brokers(image))
        """All metadata, with the live brokers alone."""


class _Untold(RequestBatch):
    """No requests: brokers follow the metadata log."""

    asks_to_drop = False

    def leader_and_isr(self, *_: object, **__: object) -> None:
        """Nothing."""

    def stop_replica(self, *_: object, **__: object) -> None:
        """Nothing."""

    def update_metadata(self, *_: object, **__: object) -> None:
        """Nothing."""

    def update_metadata_first(self, *_: object, **__: object) -> None:
        """Nothing."""

    def sends(self) -> list[Send]:
        """None."""
        return []


class QuorumStore(Committed):
    """The records of one active controller."""

    zookeeper = False

    def __init__(self, snapshot: Snapshot, sessions: Sessions) -> None:
        """Raises: ArgumentError: the cluster keeps eligible leader replicas (KIP-966)."""
        if snapshot.whole.features.get(ELIGIBLE_REPLICAS):
            raise ArgumentError(
                f"{ELIGIBLE_REPLICAS}: found {snapshot.whole.features[ELIGIBLE_REPLICAS]}, wanted "
                "0: this controller does not keep them"
            )
        super().__init__(snapshot.whole, sessions)

    # ---- the interface of a store ----------------------------------------------------------------

    def requests(self, context: Context, listener: str) -> RequestBatch:
        """A batch that stays empty."""
        return _Untold(context, listener)

    def problem(self, context: Context, record: Record) -> str | None:
        """None: a batch of records has room for every topic that may be created."""
        return None

    def first_works(self) -> Sequence[Work]:
        """None: the log says everything."""
        return ()

    def works(self, event: object) -> Iterable[Work]:
        """The reaction to SessionsDue."""
        assert isinstance(event, SessionsDue)
        return [Work("ends of sessions", partial(fence_expired, self), fence_expired)]

    @property
    def answers(self) -> Mapping[int, Answer]:
        """The answers to requests of brokers that only such a controller gets."""
        return {key: self._answer(step) for key, step in STEPS.items()}

    def _answer(self, step: Step) -> Answer:
        return lambda active, request, _: step(self, active, request)

    def perform(self, context: Context, wanted: object) -> Performing[Any]:
        """Carry out what a step yielded: records, metadata records, or a query."""
        if isinstance(wanted, PartitionStates):
            return {key: self._state(context, key) for key in wanted.keys}
        if isinstance(wanted, Settings):
            return [dict(self.image.config(*one)) for one in wanted.resources]
        if isinstance(wanted, LastProducerId):
            return self.image.next_producer_id - 1
        if isinstance(wanted, MetadataRecords):
            return (yield from self._append(wanted.records))
        assert isinstance(wanted, Sequence)
        return (yield from self._write(context, wanted))

    def _append(self, records: Sequence[MetadataRecord]) -> Performing[None]:
        if records:
            (self.image,) = yield Append(0, records)

    # ---- queries ---------------------------------------------------------------------------------

    def _state(self, context: Context, key: TopicPartition) -> PartitionState | None:
        one = self.image.partition(*key)
        if one is None:
            return None
        return PartitionState(leadership(one), one.partition_epoch, context.claim.epoch)

    # ---- records ---------------------------------------------------------------------------------

    def _write(self, context: Context, records: Sequence[Record]) -> Performing[list[Outcome]]:
        made = [each for one in records for each in self._records(context, one)]
        yield from self._append(made)
        return [self._outcome(one) for one in records]

    def _outcome(self, record: Record) -> Outcome:
        if isinstance(record, TopicDeletion):
            return Outcome(True, removed=True)
        if isinstance(record, PartitionChange):
            keys = list(record.after)
        elif isinstance(record, TopicCreation):
            keys = [(record.name, number) for number in record.replicas]
        elif isinstance(record, PartitionsCreation):
            keys = [(record.topic, number) for number in record.replicas]
        else:
            return DONE
        found = {key: self.image.partition(*key) for key in keys}
        return Outcome(True, after={key: one for key, one in found.items() if one is not None})

    def _records(self, context: Context, record: Record) -> Iterator[MetadataRecord]:
        if isinstance(record, PartitionChange):
            topic_id = self.image.topics[record.topic].id
            for key, after in record.after.items():
                before = self.image.partition(*key)
                assert before is not None
                fields = self._difference(before, after)
                if fields:
                    ids = {"topic_id": topic_id, "partition_id": key[1]}
                    yield "PartitionChangeRecord", {**UNCHANGED, **fields, **ids}
        elif isinstance(record, TopicCreation):
            yield "TopicRecord", {"name": record.name, "topic_id": record.topic_id}
            yield from _config_records(TOPIC, record.name, record.settings)
            yield from self._new_partitions(context, record.topic_id, record.replicas)
        elif isinstance(record, PartitionsCreation):
            topic_id = self.image.topics[record.topic].id
            yield from self._new_partitions(context, topic_id, record.replicas)
        elif isinstance(record, TopicDeletion | TopicRemoval):
            if (topic := self.image.topics.get(record.topic)) is not None:
                yield "RemoveTopicRecord", {"topic_id": topic.id}
        elif isinstance(record, SettingsChange):
            yield from _config_records(record.kind, record.name, record.changes)
        elif isinstance(record, ProducerIds):
            epoch = context.brokers[record.broker].epoch
            yield "ProducerIdsRecord", {"broker_id": record.broker, "broker_epoch": epoch,
                                        "next_producer_id": record.last + 1}  # fmt: skip

    def _new_partitions(
        self, context: Context, topic_id: uuid.UUID, replicas: Mapping[int, tuple[int, ...]]
    ) -> Iterator[MetadataRecord]:
        """Partitions are created with their leaders; without one if all replicas are shutting
        down: the first that comes back leads."""
        for number, keepers in replicas.items():
            electable = [one for one in keepers if one in context.brokers
                         and one not in context.shutting_down]  # fmt: skip
            first = elect_first(keepers, electable)
            leader, isr = (NO_LEADER, keepers) if first is None else (first.leader, first.isr)
            directories = tuple(self._directory(one) for one in keepers)
            one = Partition(number, keepers, isr, leader, 0, 0, directories)
            yield "PartitionRecord", partition_fields(one, topic_id)

    def _directory(self, broker: int) -> uuid.UUID:
        """Where a broker puts a new replica: known beforehand only if it has one directory."""
        registered = self.image.brokers.get(broker)
        usable = () if registered is None else [
            one for one in registered.directories if one not in registered.cordoned
        ]  # fmt: skip
        return usable[0] if len(usable) == 1 else UNASSIGNED

    def _difference(self, before: Partition, after: Partition) -> dict[str, Any]:
        """The fields of a PartitionChangeRecord that makes one the other; empty: they are equal."""
        found: dict[str, Any] = {}
        for name in ("isr", "replicas", "adding_replicas", "removing_replicas"):
            if getattr(before, name) != getattr(after, name):
                found[name] = list(getattr(after, name))
        if "replicas" in found and before.directories:
            placed = dict(zip(before.replicas, before.directories, strict=True))
            found["directories"] = [
                placed.get(one) or self._directory(one) for one in after.replicas
            ]
        if before.leader_epoch != after.leader_epoch:
            assert after.leader_epoch == before.leader_epoch + 1
            found["leader"] = after.leader
        if before.leader_recovery_state != after.leader_recovery_state:
            found["leader_recovery_state"] = after.leader_recovery_state
        return found


STEPS: Mapping[int, Step] = {
    BROKER_REGISTRATION.key: register,
    BROKER_HEARTBEAT.key: heartbeat,
    UNREGISTER_BROKER.key: unregister,
}
UNCHANGED: Mapping[str, Any] = {"leader": -2, "leader_recovery_state": -1}
"""The fields of a PartitionChangeRecord that change nothing."""


def _config_records(
    kind: int, name: str, settings: Mapping[str, str | None]
) -> Iterator[MetadataRecord]:
    for key, value in settings.items():
        yield "ConfigRecord", {"resource_type": kind, "resource_name": name, "name": key,
                               "value": value}  # fmt: skip
