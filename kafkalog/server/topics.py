"""Topics that are created automatically: at a first use, and Kafka's internal ones."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafkalog.client.link.failures import failure
from kafkalog.metadata.requests import NewSetting, NewTopic, NewTopics
from kafkalog.server.journal import (
    OFFSETS_TOPIC,
    REPLICATION_SETTINGS,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from kafkalog.server.node import Node
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    pass

__all__ = ["create_missing", "dead_letter_topic", "internal_topic"]


def create_missing(node: Node, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create the missing topics among `names`; returns the errors of those that failed."""
    missing = [name for name in dict.fromkeys(names) if name not in node.image.topics]
    if not missing:
        return {}
    found = node.controller_apis.create_topics(NewTopics([_topic(node, name) for name in missing]))
    fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)  # another request was faster
    return {name: code for name, code in found.items() if code not in fine}


def dead_letter_topic(node: Node, name: str) -> ErrorCode:
    """Create a topic for share groups' dead letters.  Its records have the times at which they are
    written, whatever the default of topics is."""
    wanted = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
    settings = [NewSetting(key, value) for key, value in wanted.items()]
    return node.controller_apis.create_topics(NewTopics([NewTopic(name, configs=settings)]))[name]


def _topic(node: Node, name: str) -> NewTopic:
    config = node.config
    if name == OFFSETS_TOPIC:
        count, wanted = config.offsets_topic_num_partitions, _offsets_config(node)
    elif name == TRANSACTIONS_TOPIC:
        count, wanted = config.transaction_state_log_num_partitions, _transactions_config(node)
    elif name == SHARE_STATE_TOPIC:
        count, wanted = config.share_coordinator_state_topic_num_partitions, _states_config(node)
    else:
        return NewTopic(name)
    settings = [NewSetting(key, value) for key, value in wanted.items()]
    # A single node keeps one replica of everything, whatever Kafka's defaults say.
    copies = config[REPLICATION_SETTINGS[name]] if node.clustered else 1
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


def _states_config(node: Node) -> Mapping[str, str]:
    """Kafka's own settings of `__share_group_state`: its coordinator deletes what it replaced."""
    least = node.config.share_coordinator_state_topic_min_isr if node.clustered else 1
    return {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": str(least),
        "retention.ms": "-1",
        "segment.bytes": str(node.config.share_coordinator_state_topic_segment_bytes),
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
