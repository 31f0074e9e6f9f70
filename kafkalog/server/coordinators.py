"""The coordinators of groups, of transactions and of share partitions' states, over the partitions
of this broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kafkalog.coordinator.consumer_groups.patterns import Lookup
from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.groups.offsets import Known
from kafkalog.coordinator.share_groups.outside import ShareEffect
from kafkalog.coordinator.share_state.core import Prune, ShareStateCoordinator
from kafkalog.coordinator.streams_groups.outside import CreateTopics
from kafkalog.coordinator.thread import Coordinator, Event
from kafkalog.coordinator.transactions.core import TransactionCoordinatorState
from kafkalog.coordinator.transactions.shard import Marker, Outside
from kafkalog.logs.limit import limited
from kafkalog.server.group_topics import GroupTopics, create_internal
from kafkalog.server.journal import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    Journal,
    offsets_partition,
)

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalog.clock import Clock
    from kafkalog.config.server import ServerConfig
    from kafkalog.metadata.image import Change, MetadataImage, Topic
    from kafkalog.metadata.requests import NewTopics
    from kafkalog.metadata.source import Metadata
    from kafkalog.server.appends import Appends
    from kafkalog.server.node import Node
    from kafkalog.server.partitions import Partitions
    from kafkalog.server.transactions.markers import Markers
    from kafkalog.server.transactions.producer_ids import ProducerIds
    from kafkalog.types import TopicPartition
    from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "follow_coordinators",
    "group_coordinator",
    "share_coordinator",
    "transaction_coordinator",
]

_logger = limited(__name__)

TRANSACTION_VERSION = "transaction.version"
"""The feature of KIP-890."""


def group_coordinator(
    config: ServerConfig, metadata: Metadata, partitions: Partitions, appends: Appends,
    clock: Clock, submit: Callable[[Callable[[], None]], None],
    share: Callable[[ShareEffect, Callable[[Event], None]], None],
    create: Callable[[NewTopics], Mapping[str, ErrorCode]],
) -> Coordinator[GroupCoordinatorState]:  # fmt: skip
    """The coordinator of groups, not started; ended by `close`.  `submit`: runs what would delay it
    in another thread; `share` carries out the effects of share groups; `create` creates topics, and
    returns the outcomes."""
    topics = GroupTopics(metadata, config)
    core = GroupCoordinatorState(
        config,
        lambda: str(uuid4()),
        Known(
            partitions.count,
            partitions.id_of,
            partitions.name_of,
            lambda: partitions.config(OFFSETS_TOPIC).max_message_bytes,
        ),
        topics.seen,
        topics.own_settings,
    )

    def carry_out(effect: Lookup | ShareEffect | CreateTopics, _few: bool) -> None:
        if isinstance(effect, Lookup):
            submit(partial(topics.look_up, found, effect))
        elif isinstance(effect, CreateTopics):
            submit(partial(create_internal, create, effect, found.post))
        else:
            submit(partial(share, effect, found.post))

    journal = Journal(OFFSETS_TOPIC, partitions, appends)
    found = Coordinator(core, journal, clock, name="group", carry_out=carry_out)
    topics.follow(found)
    return found


def transaction_coordinator(
    config: ServerConfig, metadata: Metadata, partitions: Partitions, appends: Appends,
    producer_ids: ProducerIds, markers: Markers, clock: Clock,
) -> Coordinator[TransactionCoordinatorState]:  # fmt: skip
    """The coordinator of transactions, not started; ended by `close`."""

    def group_partition(group_id: str) -> TopicPartition | None:
        return offsets_partition(group_id, partitions.count(OFFSETS_TOPIC))

    def level() -> int:
        return metadata.image.features.get(TRANSACTION_VERSION, 0)

    def write(marker: Marker, few: bool) -> None:
        """Write a marker for the coordinator, one of `few`, and report the outcome to it."""
        report = partial(found.core.marked, marker)
        markers.write(
            marker.where, marker.producer, lambda error: found.post(partial(report, error)),
            at_once=few,
        )  # fmt: skip

    outside = Outside(producer_ids.next, partitions.count, group_partition, level)
    journal = Journal(TRANSACTIONS_TOPIC, partitions, appends)
    found: Coordinator[TransactionCoordinatorState] = Coordinator(
        TransactionCoordinatorState(config, outside),
        journal,
        clock,
        name="transaction",
        carry_out=write,
    )
    return found


def share_coordinator(
    config: ServerConfig, partitions: Partitions, appends: Appends, clock: Clock,
    submit: Callable[[Callable[[], None]], None],
) -> Coordinator[ShareStateCoordinator]:  # fmt: skip
    """The coordinator of share partitions' states, not started; ended by `close`.  `submit`: runs
    what would delay it in another thread."""

    def exists(topic_id: UUID, partition: int) -> bool:
        name = partitions.name_of(topic_id)
        return name is not None and partitions.has(name, partition)

    def prune(effect: Prune) -> None:
        """Delete records that later ones replace; all are committed."""
        try:
            log = partitions.existing_log(SHARE_STATE_TOPIC, effect.partition)
            if log is not None and effect.offset > log.start_offset:
                log.delete_before(effect.offset)
        except Exception as problem:
            _logger.info(
                "%s-%d: records below %d are not deleted: %s", SHARE_STATE_TOPIC, *effect, problem
            )
            found.post(partial(found.core.not_pruned, effect))

    journal = Journal(SHARE_STATE_TOPIC, partitions, appends)
    core = ShareStateCoordinator(config, exists)
    found: Coordinator[ShareStateCoordinator] = Coordinator(
        core, journal, clock, name="share",
        carry_out=lambda effect, _few: submit(partial(prune, effect)),
    )  # fmt: skip
    return found


def follow_coordinators(node: Node) -> None:
    """Tell the coordinators which partitions they own, now and whenever the metadata changes, and
    when these can be read."""

    def deleted(topics: Collection[Topic]) -> None:
        names = frozenset(one.name for one in topics)
        node.coordinator.post(partial(node.coordinator.core.drop_topics, names))

    def states_deleted(topics: Collection[Topic]) -> None:
        ids = frozenset(one.id for one in topics)
        node.share_states.post(partial(node.share_states.core.drop_topics, ids))

    def leads(partition: TopicPartition, epoch: int) -> None:
        if partition.topic == OFFSETS_TOPIC:
            node.coordinator.leads(partition.partition, epoch)
        elif partition.topic == TRANSACTIONS_TOPIC:
            node.transactions.leads(partition.partition, epoch)
        elif partition.topic == SHARE_STATE_TOPIC:
            node.share_states.leads(partition.partition, epoch)

    node.partitions.on_election = leads
    _follow(node, OFFSETS_TOPIC, node.coordinator, deleted)
    _follow(node, TRANSACTIONS_TOPIC, node.transactions, lambda _topics: None)
    _follow(node, SHARE_STATE_TOPIC, node.share_states, states_deleted)


def _follow(
    node: Node, name: str, coordinator: Coordinator[Any],
    deleted: Callable[[Collection[Topic]], None],
) -> None:  # fmt: skip
    def led(image: MetadataImage) -> dict[int, int]:
        """The partitions led here, and their epochs."""
        topic = image.topics.get(name)
        parts = {} if topic is None else topic.partitions
        return {n: one.leader_epoch for n, one in parts.items() if one.leader == image.node_id}

    def load(image: MetadataImage, new: Mapping[int, int]) -> None:
        coordinator.load(new, len(image.topics[name].partitions))

    def changed(change: Change) -> None:
        old, new = change.old, change.new
        gone = [topic.name for topic in change.gone]
        before, now = led(old), led(new)
        # Every election has its own epoch: between two consecutive ones nobody else led; with a
        # gap, another node may have, even if this node did not hear of it.
        kept = {n for n in before if n in now and now[n] - before[n] in (0, 1)}
        if name in gone:
            kept.clear()
        for partition in before.keys() - kept:
            coordinator.resign(partition)
        for partition in kept:
            if now[partition] != before[partition]:
                coordinator.lead_on(partition, now[partition])
        if new_here := {n: epoch for n, epoch in now.items() if n not in kept}:
            load(new, new_here)
        if gone:
            deleted(change.gone)

    node.metadata.listen(changed)
    if name in node.image.topics:
        load(node.image, led(node.image))
