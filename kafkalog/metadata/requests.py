"""What is asked of the metadata: topics to make, to delete, to enlarge, settings to change.

A broker translates clients' requests into these (server/translation.py); a program that owns the
directory makes them itself.  plan.py and configs.py say what each means.
"""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "Assignment",
    "FeatureChange",
    "FeatureChanges",
    "MoreOfTopic",
    "MorePartitions",
    "Move",
    "NewSetting",
    "NewTopic",
    "NewTopics",
    "ResourceAsked",
    "ResourceChange",
    "SettingChange",
    "SettingChanges",
    "SettingsAsked",
    "TopicMoves",
    "TopicNamed",
]


class NewSetting(NamedTuple):
    """A setting of a topic that is to be made."""

    name: str
    value: str | None


class Assignment(NamedTuple):
    """The brokers of a partition that is to be made, as somebody chose them."""

    partition: int
    brokers: Sequence[int]


class NewTopic(NamedTuple):
    """A topic that is to be made."""

    name: str
    num_partitions: int = -1
    """-1: as the broker's settings say."""
    replication_factor: int = -1
    configs: Sequence[NewSetting] = ()
    assignments: Sequence[Assignment] = ()


class NewTopics(NamedTuple):
    """Topics that are to be made; `validate_only`: only check whether they could be."""

    topics: Sequence[NewTopic]
    validate_only: bool = False


class TopicNamed(NamedTuple):
    """A topic by its name or its id."""

    name: str | None = None
    topic_id: uuid.UUID = ZERO_UUID


class MoreOfTopic(NamedTuple):
    """A topic that is to have `partition_count` partitions."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each partition that comes; None: nobody chose them."""


class MorePartitions(NamedTuple):
    """Topics that are to have more partitions."""

    topics: Sequence[MoreOfTopic]
    validate_only: bool = False


class SettingChange(NamedTuple):
    """A setting that is to be set (0), taken away (1), or as a list get words (2) or lose them
    (3).
    """

    name: str
    value: str | None
    operation: int = 0


class ResourceChange(NamedTuple):
    """What is to be changed of a topic, a broker, a group ... (`kind`: Kafka's number)."""

    kind: int
    name: str
    changes: Sequence[SettingChange]


class SettingChanges(NamedTuple):
    """Settings that are to be changed."""

    resources: Sequence[ResourceChange]
    validate_only: bool = False


class FeatureChange(NamedTuple):
    """A feature that is to have another level; 0: off."""

    name: str
    level: int
    kind: int
    """1: an upgrade, 2: a safe downgrade, 3: any downgrade."""


class FeatureChanges(NamedTuple):
    """Features that are to have other levels, all or none."""

    changes: Sequence[FeatureChange]
    validate_only: bool = False


class ResourceAsked(NamedTuple):
    """Whose settings are asked for, and which; none: all."""

    kind: int
    name: str
    keys: Sequence[str] | None = None


class SettingsAsked(NamedTuple):
    """The requested settings, and how much of each to return."""

    resources: Sequence[ResourceAsked]
    synonyms: bool = False
    documentation: bool = False


class Move(NamedTuple):
    """A partition whose replicas are to be elsewhere; None: an earlier move is to be given up."""

    partition: int
    replicas: Sequence[int] | None


class TopicMoves(NamedTuple):
    """The moves of a topic's partitions."""

    topic: str
    moves: Sequence[Move]
