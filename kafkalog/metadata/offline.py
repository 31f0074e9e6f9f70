"""Topics of a directory that no broker serves at the moment."""

from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import ArgumentError, InvalidTopic, KafkalogError, TopicExists
from kafkalog.metadata.kraft.kraftlog import MetadataLog
from kafkalog.types import TopicPartition
from kafkalog.wire import apis

__all__ = ["create_topic"]

_ERRORS: dict[int, type[KafkalogError]] = {17: InvalidTopic, 36: TopicExists}


def create_topic(manager: Manager, topic: str, partitions: int = 1) -> None:
    """Make a topic: in the metadata where the directory has any, else its folders alone.

    Raises: InvalidTopic, TopicExists, ArgumentError, IoFailed.
    """
    if not manager.has(TopicPartition(METADATA_TOPIC, 0)):
        manager.create_topic(topic, partitions)
        return
    with MetadataLog.open(manager) as metadata:
        body = {
            "topics": [{"name": topic, "num_partitions": partitions, "replication_factor": 1}],
            "timeout_ms": 0,
            "validate_only": False,
        }
        api = apis.CREATE_TOPICS
        version = api.max_version
        asked = api.decode_request(version, api.encode_request(version, body))
        (result,) = metadata.create_topics(asked)
    if result["error_code"]:
        kind = _ERRORS.get(result["error_code"], ArgumentError)
        raise kind(f"{manager.path}: {result['error_message']}")
