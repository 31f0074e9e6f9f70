"""Translates clients' requests for the metadata, which sees no decoded request."""

from collections.abc import Callable
from typing import Any

from kafkalog.metadata.requests import (
    Assignment,
    Elections,
    FeatureChange,
    FeatureChanges,
    MoreOfTopic,
    MorePartitions,
    Move,
    NewSetting,
    NewTopic,
    NewTopics,
    QuotaChange,
    QuotaChanges,
    QuotaFilter,
    QuotasAsked,
    ResourceAsked,
    ResourceChange,
    Result,
    SettingChange,
    SettingChanges,
    SettingsAsked,
    TopicMoves,
    TopicNamed,
)
from kafkalog.security.acls import Acl, AclFilter

__all__ = [
    "acl_filter",
    "acl_filters",
    "all_settings",
    "deleted_topics",
    "elections",
    "features",
    "features_answer",
    "more_partitions",
    "moves",
    "new_acls",
    "new_topics",
    "quota_changes",
    "quotas_asked",
    "settings",
    "some_settings",
]

ONE_RESULT_SINCE = 2
"""From this version of UpdateFeatures on, features have no separate results."""


def new_topics(body: Any) -> NewTopics:
    """The topics of CreateTopics."""
    topics = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [NewSetting(one.name, one.value) for one in topic.configs],
            [Assignment(one.partition_index, one.broker_ids) for one in topic.assignments],
        )
        for topic in body.topics
    ]
    return NewTopics(topics, body.validate_only)


def deleted_topics(body: Any) -> list[TopicNamed]:
    """The topics of DeleteTopics, whose newer versions also name them by id."""
    asked = [TopicNamed(topic.name, topic.topic_id) for topic in body.topics]
    return asked + [TopicNamed(name) for name in body.topic_names]


def more_partitions(body: Any) -> MorePartitions:
    """The topics of CreatePartitions."""

    def one(topic: Any) -> MoreOfTopic:
        chosen = topic.assignments
        brokers = None if chosen is None else [each.broker_ids for each in chosen]
        return MoreOfTopic(topic.name, topic.count, brokers)

    return MorePartitions([one(topic) for topic in body.topics], body.validate_only)


def _changes(body: Any, changes_of: Callable[[Any], SettingChange]) -> SettingChanges:
    resources = [
        ResourceChange(
            one.resource_type, one.resource_name, [changes_of(change) for change in one.configs]
        )
        for one in body.resources
    ]
    return SettingChanges(resources, body.validate_only)


def all_settings(body: Any) -> SettingChanges:
    """The changes of AlterConfigs."""
    return _changes(body, lambda one: SettingChange(one.name, one.value))


def some_settings(body: Any) -> SettingChanges:
    """The changes of IncrementalAlterConfigs."""
    return _changes(body, lambda one: SettingChange(one.name, one.value, one.config_operation))


def settings(body: Any) -> SettingsAsked:
    """The resources of DescribeConfigs."""
    asked = [
        ResourceAsked(one.resource_type, one.resource_name, one.configuration_keys)
        for one in body.resources
    ]
    return SettingsAsked(asked, body.include_synonyms, body.include_documentation)


def features(body: Any, version: int) -> FeatureChanges:
    """The changes of UpdateFeatures, whose first version had one kind of downgrade only."""

    def kind_of(one: Any) -> int:
        return int(one.upgrade_type) if version else 1 + bool(one.allow_downgrade)

    changes = [
        FeatureChange(one.feature, one.max_version_level, kind_of(one))
        for one in body.feature_updates
    ]
    return FeatureChanges(changes, bool(version) and body.validate_only)


def features_answer(result: Result, body: Any, version: int) -> Result:
    """The response of UpdateFeatures: one result for all; if one is refused, none changes."""
    if result["error_code"] or version >= ONE_RESULT_SINCE:
        return result
    fine = {"error_code": 0, "error_message": "NONE"}  # Kafka's word for it
    names = dict.fromkeys(one.feature for one in body.feature_updates)
    return {**result, "results": [{"feature": name, **fine} for name in names]}


def elections(body: Any) -> Elections:
    """The partitions of ElectLeaders: (topic, its partitions); None: all."""
    if body.topic_partitions is None:
        return None
    return [(one.topic, one.partitions) for one in body.topic_partitions]


def moves(body: Any) -> list[TopicMoves]:
    """The partitions of AlterPartitionReassignments."""
    return [
        TopicMoves(
            topic.name, [Move(one.partition_index, one.replicas) for one in topic.partitions]
        )
        for topic in body.topics
    ]


def quota_changes(body: Any) -> QuotaChanges:
    """The entities of AlterClientQuotas."""

    def one(entry: Any) -> QuotaChange:
        # Of a type that is named twice, the last name counts, as in Kafka.
        entity = {part.entity_type: part.entity_name for part in entry.entity}
        values = [(op.key, None if op.remove else op.value) for op in entry.ops]
        return QuotaChange(tuple(sorted(entity.items())), values)

    return QuotaChanges([one(entry) for entry in body.entries], body.validate_only)


def quotas_asked(body: Any) -> QuotasAsked:
    """The filters of DescribeClientQuotas."""
    filters = [QuotaFilter(one.entity_type, one.match_type, one.match) for one in body.components]
    return QuotasAsked(filters, body.strict)


def new_acls(body: Any) -> list[Acl]:
    """The ACLs of CreateAcls."""
    return [_new_acl(one) for one in body.creations]


def _new_acl(one: Any) -> Acl:
    return Acl(
        one.resource_type, one.resource_name, one.resource_pattern_type, one.principal, one.host,
        one.operation, one.permission_type,
    )  # fmt: skip


def acl_filters(body: Any) -> list[AclFilter]:
    """The filters of DeleteAcls."""
    return [acl_filter(one) for one in body.filters]


def acl_filter(one: Any) -> AclFilter:
    """The filter of DescribeAcls, or one of DeleteAcls."""
    return AclFilter(
        one.resource_type_filter, one.resource_name_filter, one.pattern_type_filter,
        one.principal_filter, one.host_filter, one.operation, one.permission_type,
    )  # fmt: skip
