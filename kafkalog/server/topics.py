"""Topics that are created automatically: at a first use, and Kafka's internal ones."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.client.link.failures import failure
from kafkalog.metadata.requests import NewSetting, NewTopic, NewTopics
from kafkalog.server.controller_calls import codes
from kafkalog.server.journal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkalog.server.node import Node
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.coordinator.thread import Coordinator
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.types import TopicPartition

__all__ = ["create_missing", "follow_coordinators", "internal_topic"]

_logger = logging.getLogger(__name__)
_REPLICAS = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
}


def create_missing(node: Node, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create the missing topics among `names`; returns the errors of those that failed."""
    missing = [name for name in dict.fromkeys(names) if name not in node.image.topics]
    early = dict.fromkeys(
        (name for name in missing if _too_early(node, name)), ErrorCode.INVALID_REPLICATION_FACTOR
    )
    missing = [name for name in missing if name not in early]
    if not missing:
        return early
    wanted = NewTopics([_topic(node, name) for name in missing])
    if node.errands is not None:
        failed = node.errands.create_topics(wanted)
    else:
        failed = codes(node.metadata.create_topics(wanted))
    fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)  # another request was faster
    return early | {name: code for name, code in failed.items() if code not in fine}


def _too_early(node: Node, name: str) -> bool:
    """True if a coordinator's topic must wait until more nodes of the cluster are up (KIP-115)."""
    setting = _REPLICAS.get(name)
    if setting is None or node.errands is None:
        return False
    alive, wanted = len(node.image.brokers), int(node.config[setting])
    early = alive < wanted
    if node.errands.is_early(name, early):
        _logger.error(
            "node %d: %s is not created yet: found %d nodes alive, wanted %d, its %s; its clients "
            "get COORDINATOR_NOT_AVAILABLE until then", node.node_id, name, alive, wanted, setting,
        )  # fmt: skip
    return early


def _create_waiting(node: Node, change: "Change") -> None:
    """Create what had to wait, once enough nodes are up: clients find it when they ask again."""
    if node.errands is None or change.old.brokers == change.new.brokers:
        return
    ready = [name for name in node.errands.early if not _too_early(node, name)]
    missing = [_topic(node, name) for name in ready if name not in node.image.topics]
    if missing:
        node.errands.create_later(NewTopics(missing))


def _topic(node: Node, name: str) -> NewTopic:
    config = node.config
    if name == OFFSETS_TOPIC:
        count, wanted = config.offsets_topic_num_partitions, _offsets_config(node)
    elif name == TRANSACTIONS_TOPIC:
        count, wanted = config.transaction_state_log_num_partitions, _transactions_config(node)
    else:
        return NewTopic(name)
    settings = [NewSetting(key, value) for key, value in wanted.items()]
    # A single node keeps one replica of everything, whatever Kafka's defaults say.
    copies = config[_REPLICAS[name]] if node.clustered else 1
    return NewTopic(name, count, copies, settings)


def _offsets_config(node: Node) -> Mapping[str, str]:
    """Kafka's own settings of `__consumer_offsets`."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(node.config.offsets_topic_segment_bytes),
    }


def _transactions_config(node: Node) -> Mapping[str, str]:
    """Kafka's own settings of `__transaction_state`."""
    least = node.config.transaction_state_log_min_isr if node.clustered else 1
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(least),
        "segment.bytes": str(node.config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


def internal_topic(node: Node, name: str) -> None:
    """Make sure that a coordinator's topic exists; its files are created by the first records.

    Raises: COORDINATOR_NOT_AVAILABLE if it cannot be created, with Kafka's reason.
    """
    failed = create_missing(node, [name])
    for missing, code in failed.items():
        raise failure(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{missing} cannot be created", code.name
        )


def follow_coordinators(node: Node) -> None:
    """Tell the coordinators which partitions they own, now and whenever the metadata changes, and
    when these can be read."""

    def deleted(names: Collection[str]) -> None:
        node.coordinator.post(partial(node.coordinator.core.drop_topics, frozenset(names)))

    def leads(partition: "TopicPartition", epoch: int) -> None:
        if partition.topic == OFFSETS_TOPIC:
            node.coordinator.leads(partition.partition, epoch)
        elif partition.topic == TRANSACTIONS_TOPIC:
            node.transactions.leads(partition.partition, epoch)

    node.partitions.on_lead = leads
    node.metadata.listen(partial(_create_waiting, node))
    _follow(node, OFFSETS_TOPIC, node.coordinator, deleted)
    _follow(node, TRANSACTIONS_TOPIC, node.transactions, lambda _names: None)


def _follow(
    node: Node, name: str, coordinator: "Coordinator[Any]",
    deleted: Callable[[Collection[str]], None],
) -> None:  # fmt: skip
    def led(image: "MetadataImage") -> dict[int, int]:
        """The partitions led here, and their epochs."""
        topic = image.topics.get(name)
        parts = {} if topic is None else topic.partitions
        return {n: one.leader_epoch for n, one in parts.items() if one.leader == image.node_id}

    def load(image: "MetadataImage", new: Mapping[int, int]) -> None:
        coordinator.load(new, len(image.topics[name].partitions))

    def changed(change: "Change") -> None:
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
