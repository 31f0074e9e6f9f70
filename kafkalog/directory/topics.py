"""Where a data directory's topics and their settings come from."""

import uuid
from collections.abc import Callable, Mapping
from typing import Protocol

from kafkalog.config.topic import TopicConfig

__all__ = ["METADATA_BYTES_MAX", "METADATA_CONFIG", "TopicConfigs", "TopicSource"]

TopicConfigs = Mapping[str, object] | Callable[[str], Mapping[str, object] | None] | None
"""Settings of all topics, or a function from a topic's name to its settings."""


METADATA_BYTES_MAX = 16 << 20
"""max.message.bytes of the metadata log."""
METADATA_CONFIG = TopicConfig({"max.message.bytes": METADATA_BYTES_MAX})
"""Settings of the metadata log, whatever the topics' are: they never truncate it."""


class TopicSource(Protocol):
    """The authority on a directory's topics: its metadata."""

    def config(self, topic: str) -> Mapping[str, object] | None:
        """The topic settings that override the broker's."""

    def topic_id(self, topic: str, partition: int) -> uuid.UUID | None:
        """The topic's id if it has that partition; None if it does not."""
