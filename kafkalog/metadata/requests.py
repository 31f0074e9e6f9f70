"""Requests to the metadata: create, delete and enlarge topics, change settings.

A broker translates clients' requests into these (translation.py); a program that owns the
directory makes them itself.  kafkalog.controller and configs.py say what each means.
"""

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "Assignment",
    "Elections",
    "FeatureChange",
    "FeatureChanges",
    "MoreOfTopic",
    "MorePartitions",
    "Move",
    "NewSetting",
    "NewTopic",
    "NewTopics",
    "QuotaChange",
    "QuotaChanges",
    "QuotaEntity",
    "QuotaFilter",
    "QuotasAsked",
    "ResourceAsked",
    "ResourceChange",
    "Result",
    "SettingChange",
    "SettingChanges",
    "SettingsAsked",
    "TopicMoves",
    "TopicNamed",
]


Result = dict[str, Any]
"""The entry for one item of a request in its response."""


class NewSetting(NamedTuple):
    """A setting of a topic to create."""

    name: str
    value: str | None


class Assignment(NamedTuple):
    """The manually assigned brokers of a partition to create."""

    partition: int
    brokers: Sequence[int]


class NewTopic(NamedTuple):
    """A topic to create."""

    name: str
    num_partitions: int = -1
    """-1: the broker's default."""
    replication_factor: int = -1
    configs: Sequence[NewSetting] = ()
    assignments: Sequence[Assignment] = ()


class NewTopics(NamedTuple):
    """Topics to create; `validate_only`: only check whether it is possible."""

    topics: Sequence[NewTopic]
    validate_only: bool = False


class TopicNamed(NamedTuple):
    """A topic by its name or its id."""

    name: str | None = None
    topic_id: uuid.UUID = ZERO_UUID


class MoreOfTopic(NamedTuple):
    """A topic to enlarge to `partition_count` partitions."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each added partition; None: not assigned manually."""


class MorePartitions(NamedTuple):
    """Topics to enlarge."""

    topics: Sequence[MoreOfTopic]
    validate_only: bool = False


class SettingChange(NamedTuple):
    """A change to a setting: set (0), remove (1), or for a list add (2) or remove
    words (3).
    """

    name: str
    value: str | None
    operation: int = 0


class ResourceChange(NamedTuple):
    """Changes to the settings of a topic, a broker, a group ... (`kind`: Kafka's number)."""

    kind: int
    name: str
    changes: Sequence[SettingChange]


class SettingChanges(NamedTuple):
    """Settings to change."""

    resources: Sequence[ResourceChange]
    validate_only: bool = False


class FeatureChange(NamedTuple):
    """A feature and its new level; 0: off."""

    name: str
    level: int
    kind: int
    """1: an upgrade, 2: a safe downgrade, 3: any downgrade."""


class FeatureChanges(NamedTuple):
    """Features to change, all or none."""

    changes: Sequence[FeatureChange]
    validate_only: bool = False


class ResourceAsked(NamedTuple):
    """A resource and the settings to describe; none: all."""

    kind: int
    name: str
    keys: Sequence[str] | None = None


class SettingsAsked(NamedTuple):
    """The requested settings, and how much of each to return."""

    resources: Sequence[ResourceAsked]
    synonyms: bool = False
    documentation: bool = False


class Move(NamedTuple):
    """A partition and its new replicas; None: cancel an earlier move."""

    partition: int
    replicas: Sequence[int] | None


Elections = Sequence[tuple[str, Sequence[int]]] | None
"""Partitions that are to elect a leader, by topic; None: all."""


class TopicMoves(NamedTuple):
    """The moves of a topic's partitions."""

    topic: str
    moves: Sequence[Move]


QuotaEntity = tuple[tuple[str, str | None], ...]
"""The client that a quota is for: pairs of a type and a name (None: the default), sorted."""


class QuotaChange(NamedTuple):
    """The changed quotas of an entity."""

    entity: QuotaEntity
    values: Sequence[tuple[str, float | None]]
    """The new value of each quota; None: it is removed."""


class QuotaChanges(NamedTuple):
    """AlterClientQuotas."""

    changes: Sequence[QuotaChange]
    validate_only: bool


class QuotaFilter(NamedTuple):
    """Which entities of a type DescribeClientQuotas shows."""

    type: str
    match: int
    """0: the one with that name, 1: the default, 2: all."""
    name: str | None


class QuotasAsked(NamedTuple):
    """DescribeClientQuotas."""

    filters: Sequence[QuotaFilter]
    strict: bool
    """Only entities that have no other types than the filters."""
