"""Topics that are made without being asked for: by a first use, and Kafka's own."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.errors import TopicExists
from kafkalog.metadata.asked import NewSetting, NewTopic, NewTopics
from kafkalog.metadata.image import topic_changes
from kafkalog.server.journal import OFFSETS_TOPIC
from kafkalog.server.node import Node
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.image import MetadataImage

__all__ = ["create_missing", "follow_groups", "offsets_topic"]


def create_missing(node: Node, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Make the topics among `names` that are not there yet; why those that could not be made."""
    missing = [name for name in dict.fromkeys(names) if name not in node.image.topics]
    if not missing:
        return {}
    results = node.metadata.create_topics(NewTopics([_topic(node, name) for name in missing]))
    failed = {result["name"]: ErrorCode(result["error_code"]) for result in results}
    fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)  # another request was faster
    return {name: code for name, code in failed.items() if code not in fine}


def _topic(node: Node, name: str) -> NewTopic:
    if name != OFFSETS_TOPIC:
        return NewTopic(name)
    settings = [NewSetting(key, value) for key, value in _offsets_config(node).items()]
    return NewTopic(name, node.config.offsets_topic_num_partitions, configs=settings)


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
        gone = [topic.name for topic in topic_changes(old, new).gone]
        if OFFSETS_TOPIC in gone:
            for partition in old.topics[OFFSETS_TOPIC].partitions:
                coordinator.resign(partition)
        if OFFSETS_TOPIC in new.topics and (OFFSETS_TOPIC in gone or
                                            OFFSETS_TOPIC not in old.topics):  # fmt: skip
            load(new)
        if gone:
            coordinator.post(partial(coordinator.core.drop_topics, frozenset(gone)))

    node.metadata.listen(changed)
    if OFFSETS_TOPIC in node.image.topics:
        load(node.image)
