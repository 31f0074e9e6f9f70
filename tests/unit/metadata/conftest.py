"""Images and requests for tests of pure functions."""

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.kraft.plan import Site
from kafkalog.kraft.records import decode, encode
from kafkalog.metadata import translation
from kafkalog.metadata.changes import Entry, Replay
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.wire import apis
from kafkalog.wire.api import Api

DIRECTORY = uuid.UUID(int=77777)
ASKED: dict[int, Callable[[Any], Any]] = {
    apis.CREATE_TOPICS.key: translation.new_topics,
    apis.DELETE_TOPICS.key: translation.deleted_topics,
    apis.CREATE_PARTITIONS.key: translation.more_partitions,
    apis.ALTER_CONFIGS.key: translation.all_settings,
    apis.INCREMENTAL_ALTER_CONFIGS.key: translation.some_settings,
    apis.DESCRIBE_CONFIGS.key: translation.settings,
    apis.ELECT_LEADERS.key: translation.elections,
    apis.ALTER_PARTITION_REASSIGNMENTS.key: translation.moves,
}


def applied(image: MetadataImage, records: Iterable[tuple[str, Any]]) -> MetadataImage:
    """The image after these records, which are encoded and decoded first."""
    replay = Replay(image)
    count = 0
    for name, fields in records:
        entry = decode(encode(name, fields, image))
        assert isinstance(entry, Entry)
        replay.feed(entry)
        count += 1
    return replay.settle(image.offset + count, 1, 1)


def request(api: Api, version: int | None = None, /, **fields: Any) -> Any:
    """The request as a broker decodes and translates it."""
    version = api.max_version if version is None else version
    return ASKED[api.key](api.decode_request(version, api.encode_request(version, fields)))


@pytest.fixture
def empty() -> MetadataImage:
    first = [("FeatureLevelRecord", {"name": "metadata.version", "feature_level": 27})]
    return applied(empty_image("cluster", 1), first)


@pytest.fixture
def site() -> Site:
    return Site(DIRECTORY, BrokerConfig())


@pytest.fixture
def with_topics(empty: MetadataImage) -> Callable[..., MetadataImage]:
    """`with_topics(orders=3)`: an image of topics with these partition counts."""

    def make(**topics: int) -> MetadataImage:
        image = empty
        for name, count in topics.items():
            topic_id = uuid.uuid5(uuid.NAMESPACE_OID, name)
            records: list[tuple[str, Any]] = [("TopicRecord", {"name": name, "topic_id": topic_id})]
            for number in range(count):
                fields = {"partition_id": number, "topic_id": topic_id, "replicas": [1],
                          "isr": [1], "leader": 1, "leader_epoch": 0, "partition_epoch": 0,
                          "directories": [DIRECTORY]}  # fmt: skip
                records.append(("PartitionRecord", fields))
            image = applied(image, records)
        return image

    return make
