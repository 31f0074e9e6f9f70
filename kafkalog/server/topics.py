"""Topics that are made without being asked for: by a first use, and Kafka's own."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafkalog.errors import TopicExists
from kafkalog.server.journal import OFFSETS_TOPIC
from kafkalog.server.node import Node
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.image import MetadataImage

__all__ = ["create_missing", "follow_groups", "offsets_topic"]

DEFAULT = -1
"""Partitions and replicas: as the broker's settings say."""


def create_missing(node: Node, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Make the topics among `names` that are not there yet; why those that could not be made."""
    missing = [name for name in dict.fromkeys(names) if name not in node.image.topics]
    if not missing:
        return {}
    results = node.metadata.create_topics(_request(_topic(node, name) for name in missing))
    failed = {result["name"]: ErrorCode(result["error_code"]) for result in results}
    fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)  # another request was faster
    return {name: code for name, code in failed.items() if code not in fine}


def _topic(node: Node, name: str) -> Any:
    count = DEFAULT
    configs: Mapping[str, str] = {}
    if name == OFFSETS_TOPIC:
        count, configs = node.config.offsets_topic_num_partitions, _offsets_config(node)
    entries = [SimpleNamespace(name=key, value=value) for key, value in configs.items()]
    return SimpleNamespace(
        name=name, num_partitions=count, replication_factor=DEFAULT, assignments=[], configs=entries
    )


def _request(topics: Iterable[Any]) -> Any:
    """As a decoded CreateTopics request."""
    return SimpleNamespace(topics=list(topics), timeout_ms=0, validate_only=False)


def _offsets_config(node: Node) -> Mapping[str, str]:
    """Kafka's own settings of `__consumer_offsets`."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(node.config.offsets_topic_segment_bytes),
    }


def offsets_topic(node: Node) -> None:
    """See to it that `__consumer_offsets` is there; its files come with the first commits.

    Raises: TopicExists when it cannot be made, with Kafka's reason.
    """
    failed = create_missing(node, [OFFSETS_TOPIC])
    for name, code in failed.items():
        raise TopicExists(f"{name} cannot be made: {code.name}")


def follow_groups(node: Node) -> None:
    """Tell the coordinator which groups are its, now and whenever the metadata change."""
    coordinator = node.coordinator

    def load(image: "MetadataImage") -> None:
        topic = image.topics[OFFSETS_TOPIC]
        coordinator.load(sorted(topic.partitions), len(topic.partitions))

    def changed(old: "MetadataImage", new: "MetadataImage") -> None:
        if old.topics is new.topics:
            return
        gone = [name for name, topic in old.topics.items()
                if new.topics.get(name) is not topic and topic.id not in new.names]  # fmt: skip
        if OFFSETS_TOPIC in gone:
            for partition in old.topics[OFFSETS_TOPIC].partitions:
                coordinator.resign(partition)
        if OFFSETS_TOPIC in new.topics and (OFFSETS_TOPIC in gone or
                                            OFFSETS_TOPIC not in old.topics):  # fmt: skip
            load(new)
        if gone:
            coordinator.topics_deleted(gone)

    node.metadata.listen(changed)
    if OFFSETS_TOPIC in node.image.topics:
        load(node.image)
