"""Topic settings that Apache Kafka 3.9 does not know, in znodes of their own.

Kafka refuses every change of a topic's settings while /config/topics/T has a name that it does not
know.  So these settings are in /kafkalog/topics/T, where Kafka does not look.  Both znodes are
written together, and Kafka's notification announces both.  A znode names its topic's id: one that
was left behind, as when Kafka's controller deletes the topic, says nothing about the next topic of
that name.

Pure, as `entities`.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kafkalog.config.served import INTERNAL_SEGMENT_BYTES
from kafkalog.disk.layout import uuid_text
from kafkalog.zookeeper import entities
from kafkalog.zookeeper.documents import Document, document
from kafkalog.zookeeper.tree import OWN_TOPICS

__all__ = ["is_own", "merged", "path_of", "paths_of", "read", "split", "write"]

_PREFIX = "kafkalog."
_LATER = frozenset({
    "errors.deadletterqueue.group.enable", INTERNAL_SEGMENT_BYTES,
    "max.decompressed.message.bytes", "remote.copy.lag.bytes", "remote.copy.lag.ms",
})  # fmt: skip
"""Settings that Kafka got after 3.9, the last version that ran on ZooKeeper."""

Settings = Mapping[str, str]


def is_own(name: str) -> bool:
    """True if Kafka 3.9 does not know this setting of a topic."""
    return name.startswith(_PREFIX) or name in _LATER


def path_of(topic: str) -> str:
    """The path of a topic's settings that Kafka does not know."""
    return f"{OWN_TOPICS}/{topic}"


def paths_of(topic: str) -> tuple[str, str]:
    """The paths of both parts of a topic's settings, in the order of `merged`."""
    return entities.config_path(("topics", topic)), path_of(topic)


def split(settings: Settings) -> tuple[dict[str, str], dict[str, str]]:
    """A topic's settings that Kafka knows, and the others."""
    theirs = {name: value for name, value in settings.items() if not is_own(name)}
    return theirs, {name: value for name, value in settings.items() if is_own(name)}


def merged(
    topic: str, topic_id: UUID | None, config: bytes | None, own: bytes | None
) -> dict[str, str]:
    """All settings of a topic, from the data of both znodes; None: there is no such znode.

    `topic_id`: None: it is not known, and only Kafka's znode counts.  That one may have settings of
    both kinds, from versions that wrote all of them there.

    Raises: BadZnode.
    """
    return {**entities.read_config(("topics", topic), config), **read(topic, topic_id, own)}


def read(topic: str, topic_id: UUID | None, data: bytes | None) -> Settings:
    """/kafkalog/topics/T, version 1, as in `merged`."""
    if data is None or topic_id is None:
        return {}
    found = Document.parse(path_of(topic), data, range(1, 2))
    return found.settings("config") if found.text("topic_id") == uuid_text(topic_id) else {}


def write(topic_id: UUID, settings: Settings) -> bytes:
    """/kafkalog/topics/T, version 1."""
    fields = {"version": 1, "topic_id": uuid_text(topic_id), "config": dict(settings)}
    return document(fields)
