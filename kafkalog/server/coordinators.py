"""The coordinators of groups and of transactions, over the partitions of this broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kafkalog.coordinator.consumer_groups.patterns import Lookup
from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.groups.offsets import Known
from kafkalog.coordinator.thread import Coordinator
from kafkalog.coordinator.transactions.core import TransactionCoordinatorState
from kafkalog.coordinator.transactions.shard import Marker, Outside
from kafkalog.server.group_topics import GroupTopics
from kafkalog.server.journal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Journal, offsets_partition

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.config.server import ServerConfig
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.metadata.source import Metadata
    from kafkalog.server.appends import Appends
    from kafkalog.server.node import Node
    from kafkalog.server.partitions import Partitions
    from kafkalog.server.transactions.markers import Markers
    from kafkalog.server.transactions.producer_ids import ProducerIds
    from kafkalog.types import TopicPartition

__all__ = ["follow_coordinators", "group_coordinator", "transaction_coordinator"]

TRANSACTION_VERSION = "transaction.version"
"""The feature of KIP-890."""


def group_coordinator(
    config: ServerConfig, metadata: Metadata, partitions: Partitions, appends: Appends,
    clock: Clock, submit: Callable[[Callable[[], None]], None],
) -> Coordinator[GroupCoordinatorState]:  # fmt: skip
    """The coordinator of groups, not started; ended by `close`.  `submit`: runs what would delay it
    in another thread."""
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

    def carry_out(lookup: Lookup, _few: bool) -> None:
        submit(partial(topics.look_up, found, lookup))

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


def follow_coordinators(node: Node) -> None:
    """Tell the coordinators which partitions they own, now and whenever the metadata changes, and
    when these can be read."""

    def deleted(names: Collection[str]) -> None:
        node.coordinator.post(partial(node.coordinator.core.drop_topics, frozenset(names)))

    def leads(partition: TopicPartition, epoch: int) -> None:
        if partition.topic == OFFSETS_TOPIC:
            node.coordinator.leads(partition.partition, epoch)
        elif partition.topic == TRANSACTIONS_TOPIC:
            node.transactions.leads(partition.partition, epoch)

    node.partitions.on_election = leads
    _follow(node, OFFSETS_TOPIC, node.coordinator, deleted)
    _follow(node, TRANSACTIONS_TOPIC, node.transactions, lambda _names: None)


def _follow(
    node: Node, name: str, coordinator: Coordinator[Any],
    deleted: Callable[[Collection[str]], None],
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
            deleted(gone)

    node.metadata.listen(changed)
    if name in node.image.topics:
        load(node.image, led(node.image))
