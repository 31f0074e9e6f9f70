"""Images and requests for tests of what is pure."""

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.changes import Entry, Replay
from kafkalog.metadata.image import MetadataImage, empty_image
from kafkalog.metadata.kraft.records import decode, encode
from kafkalog.metadata.plan import Site
from kafkalog.wire.api import Api

DIRECTORY = uuid.UUID(int=77777)


def applied(image: MetadataImage, records: Iterable[tuple[str, Any]]) -> MetadataImage:
    """The image after records that went through their bytes."""
    replay = Replay(image)
    count = 0
    for name, fields in records:
        entry = decode(encode(name, fields, image))
        assert isinstance(entry, Entry)
        replay.feed(entry)
        count += 1
    return replay.settle(image.offset + count, 1, 1)


def request(api: Api, version: int | None = None, /, **fields: Any) -> Any:
    """A request as a broker decodes it."""
    version = api.max_version if version is None else version
    return api.decode_request(version, api.encode_request(version, fields))


@pytest.fixture
def empty() -> MetadataImage:
    first = [("FeatureLevelRecord", {"name": "metadata.version", "feature_level": 27})]
    return applied(empty_image("cluster", 1), first)


@pytest.fixture
def site() -> Site:
    return Site(DIRECTORY, BrokerConfig())


@pytest.fixture
def with_topics(empty: MetadataImage) -> Callable[..., MetadataImage]:
    """`with_topics(orders=3)`: an image with topics of so many partitions."""

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
