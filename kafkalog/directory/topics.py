"""The source of a data directory's topics and their settings."""

import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

from kafkalog.config.topic import TopicConfig

__all__ = ["METADATA_CONFIG", "TopicConfigs", "TopicSource"]

TopicConfigs = Mapping[str, object] | Callable[[str], Mapping[str, object] | None] | None
"""Settings of all topics, or a function from a topic's name to its settings."""


METADATA_CONFIG = TopicConfig({"max.message.bytes": 16 << 20})
"""Of the metadata log, whatever the settings of topics are: it is never cut by them."""


class TopicSource(Protocol):
    """What knows the topics of a directory: its metadata."""

    def config(self, topic: str) -> Mapping[str, object] | None:
        """The settings of a topic that go over the broker's."""

    def topic_id(self, topic: str, partition: int) -> uuid.UUID | None:
        """The id of the topic when it has that partition; None: there is no such one."""
