"""Where the demo's records are: one data directory in Kafka's layout, two topics in it."""

from __future__ import annotations

from pathlib import Path

from kafkalog import Log
from kafkalog.directory.manager import Manager

TOPIC = "flights"
LIVE = "flights-live"
PARTITIONS = 4

# The records are of 2013: with Kafka's default retention of seven days they would be deleted at
# once, and with its segment.ms each week would be a segment of its own.  The segments are small,
# so that there is something to see.
TOPIC_CONFIG = {"retention.ms": -1, "segment.ms": 366 * 86_400_000, "segment.bytes": 512 << 10}


def open_directory(directory: Path) -> Manager:
    """The data directory, created if it is missing; one process at a time writes to it."""
    return Manager(directory, topic_config=TOPIC_CONFIG)


def logs_of(manager: Manager, topic: str) -> list[Log]:
    """All partitions of a topic, in order; the topic is created if it is missing."""
    if topic not in manager.topics():
        manager.create_topic(topic, PARTITIONS)
    return [manager.get(topic, partition) for partition in range(PARTITIONS)]
