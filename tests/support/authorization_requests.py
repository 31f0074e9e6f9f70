"""Principals, their ACLs, and requests that show what each of them may do.

The requests change nothing, or what `authorization` puts back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.wire import apis
from tests.support import batches

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = 2, 3, 4, 5, 6, 7
ALL_OPERATIONS = 2
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(3, 12)
IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS = 12, 13, 14
OPERATIONS = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (
        CREATE,
        ALTER,
        DESCRIBE,
        ACTION,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        IDEMPOTENT_WRITE,
    ),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE),
    TOKEN: (DESCRIBE,),
    USER: (CREATE_TOKENS, DESCRIBE_TOKENS),
}
_KINDS = {
    TOPIC: "Topic",
    GROUP: "Group",
    CLUSTER: "Cluster",
    TRANSACTIONAL_ID: "Id",
    TOKEN: "Token",
    USER: "User",
}
_OPERATIONS = {
    2: "All",
    READ: "Read",
    WRITE: "Write",
    CREATE: "Create",
    DELETE: "Delete",
    ALTER: "Alter",
    DESCRIBE: "Describe",
    ACTION: "Action",
    DESCRIBE_CONFIGS: "DescribeConfigs",
    ALTER_CONFIGS: "AlterConfigs",
    IDEMPOTENT_WRITE: "IdempotentWrite",
    CREATE_TOKENS: "CreateTokens",
    DESCRIBE_TOKENS: "DescribeTokens",
}

EXACT, PREFIX = ("exact", "exact.none"), "pre."
"""The names of literal ACLs, and the name of prefixed ones."""
TOPICS = ("exact", "pre.a", "other")
"""Topics with one partition; groups and transactional ids have the same names."""
NONE = ("exact.none", "pre.none", "none")
"""Missing ones."""
DELETED = ("pre.deleted", "deleted")
"""Topics that are created again after a request has deleted them."""
USED = ("pre.used", "used")
"""Topics that requests create by using them; they are deleted again."""
UNKNOWN_ID = UUID(int=77)
OPEN = "pre.open"
"""A transactional id with an open transaction."""


class Acl(NamedTuple):
    kind: int
    name: str
    pattern: int
    operation: int
    permission: int


def _acls(kind: int, operation: int, permission: int) -> list[Acl]:
    if kind == CLUSTER:
        return [Acl(kind, "kafka-cluster", LITERAL, operation, permission)]
    if kind == TOKEN:  # their ids are random
        return [Acl(kind, "*", LITERAL, operation, permission)]
    begin = "User:" if kind == USER else ""
    literal = [Acl(kind, begin + name, LITERAL, operation, permission) for name in EXACT]
    return [*literal, Acl(kind, begin + PREFIX, PREFIXED, operation, permission)]


_USUAL, _OF_TOKENS = (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID), (TOKEN, USER)
_EVERYTHING = [
    Acl(kind, "kafka-cluster" if kind == CLUSTER else "*", LITERAL, ALL_OPERATIONS, ALLOW)
    for kind in _USUAL
]


def _rest(kind: int) -> list[Acl]:
    """Everything; without the cluster, whose operations stand for those on topics, if the kind is
    another one; with tokens or their owners, if it is one of those, which stand for each other."""
    more = [Acl(kind, "*", LITERAL, ALL_OPERATIONS, ALLOW)] if kind in _OF_TOKENS else []
    return [one for one in _EVERYTHING if kind == CLUSTER or one.kind != CLUSTER] + more


def _principals() -> dict[str, list[Acl]]:
    found: dict[str, list[Acl]] = {"nothing": [], "everything": _EVERYTHING}
    for kind in (*_USUAL, *_OF_TOKENS):
        for operation in (ALL_OPERATIONS, *OPERATIONS[kind]):
            name = _KINDS[kind] + _OPERATIONS[operation]
            found[f"allow{name}"] = _acls(kind, operation, ALLOW)
            found[f"deny{name}"] = [*_rest(kind), *_acls(kind, operation, DENY)]
    return found


PRINCIPALS: Mapping[str, list[Acl]] = _principals()
"""Each with one operation only, or with everything but one operation."""


# ---- requests ------------------------------------------------------------------------------

REQUESTS: dict[str, Request] = {}
"""By name."""
Ids = Mapping[str, UUID]
Body = Callable[[Ids], dict[str, Any]]


class Request(NamedTuple):
    """A request, the same for every principal."""

    api: Any
    version: int
    body: Body
    only_denials: bool = False
    """Other outcomes differ between brokers, for reasons that have nothing to do with ACLs."""


def _by_name(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, **fields} for name in (*TOPICS, *NONE)]


def _by_topic(**fields: Any) -> list[dict[str, Any]]:
    return [{"topic": name, **fields} for name in (*TOPICS, *NONE)]


def _by_id(ids: Ids, **fields: Any) -> list[dict[str, Any]]:
    return [{"topic_id": id_, **fields} for id_ in (*map(ids.__getitem__, TOPICS), UNKNOWN_ID)]


def _batch(transactional: bool = False) -> bytes:
    row = batches.Row(b"v", b"k")
    if transactional:
        return batches.batch(
            [row], transactional=True, producer_id=4711, producer_epoch=0, base_sequence=0
        )
    return batches.batch([row])


def _produced(**more: Any) -> dict[str, Any]:
    return {"acks": 1, "timeout_ms": 10_000, **more}


def _fetched(**more: Any) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        **more,
    }


_FETCH = {"partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
COMMIT = {"partitions": [{"partition_index": 0, "committed_offset": 1}]}
_SIMPLE = {"generation_id_or_member_epoch": -1, "member_id": ""}
"""A commit by no member."""
_INTERNAL = {"partitions": 0, "replication_factor": 1, "topic_configs": []}
_TOPOLOGY = {"epoch": 0, "subtopologies": [{
    "subtopology_id": "0", "source_topics": ["exact"], "source_topic_regex": [],
    "state_changelog_topics": [{"name": "pre.a", **_INTERNAL}],
    "repartition_sink_topics": ["exact"], "repartition_source_topics": [],
    "copartition_groups": [],
}]}  # fmt: skip
"""A topology of two topics; only a member that joins may bring one."""
_GROUPS = (*TOPICS, "exact.none", "pre.none", "none")
_IDS = (*TOPICS, "pre.none", "none")


_SETTINGS = {
    2: ("retention.ms", "1000"),
    4: ("log.retention.ms", "1000000"),
    16: ("interval.ms", "1000"),
    32: ("consumer.session.timeout.ms", "45000"),
}
"""A setting of each kind of resource: topics, brokers, client metrics, groups."""


def _resources(
    others: bool, setting: str | None = None, configuration_keys: Any = None, **change: Any
) -> list[dict[str, Any]]:
    """Topics and the broker, or other resources that have settings; each changes its `setting`."""
    named = [(16, "c"), *((32, name) for name in TOPICS), (4, "")]
    if not others:
        named = [*((2, name) for name in (*TOPICS, *NONE)), (4, "1")]
    found: list[dict[str, Any]] = []
    for kind, name in named:
        found.append({"resource_type": kind, "resource_name": name})
        if setting is not None:
            key, value = _SETTINGS[kind]
            found[-1][setting] = [{"name": key, "value": value, **change}]
        else:
            found[-1]["configuration_keys"] = configuration_keys
    return found


def add(
    name: str, api: Any, version: int, body: Body | None = None, *, only_denials: bool = False,
    **fields: Any,
) -> None:  # fmt: skip
    """Add a request to `REQUESTS`."""
    REQUESTS[name] = Request(api, version, body or (lambda _ids: fields), only_denials)


def _data() -> None:
    one = {"partition_data": [{"index": 0, "records": _batch()}]}
    add("Produce", apis.PRODUCE, 12, **_produced(topic_data=_by_name(**one)))
    add("Produce by id", apis.PRODUCE, 13, lambda ids: _produced(topic_data=_by_id(ids, **one)))
    in_transaction = {"partition_data": [{"index": 0, "records": _batch(transactional=True)}]}
    for name in TOPICS:
        add(f"Produce in transaction {name}", apis.PRODUCE, 11, only_denials=True,
            **_produced(transactional_id=name, acks=-1,
            topic_data=_by_name(**in_transaction)))  # fmt: skip
    add("Fetch", apis.FETCH, 12, **_fetched(topics=_by_topic(**_FETCH)))
    add("Fetch by id", apis.FETCH, 17, lambda ids: _fetched(topics=_by_id(ids, **_FETCH)))
    add("Fetch of a follower", apis.FETCH, 12, **_fetched(topics=_by_topic(**_FETCH)) |
        {"replica_id": 9}, only_denials=True)  # fmt: skip
    offsets = {"partitions": [{"partition_index": 0, "timestamp": -1}]}
    add("ListOffsets", apis.LIST_OFFSETS, 7, replica_id=-1, topics=_by_name(**offsets))


def _metadata() -> None:
    add("Metadata of all", apis.METADATA, 12, topics=None)
    add("Metadata of all v0", apis.METADATA, 0, topics=[])
    add("Metadata of none", apis.METADATA, 10, topics=[],
        include_cluster_authorized_operations=True)  # fmt: skip
    add("Metadata", apis.METADATA, 12, topics=_by_name(), allow_auto_topic_creation=False)
    add("Metadata v1", apis.METADATA, 4, topics=_by_name(), allow_auto_topic_creation=False)
    add("Metadata with operations", apis.METADATA, 10, topics=_by_name(),
        allow_auto_topic_creation=False, include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True)  # fmt: skip
    add("Metadata by id", apis.METADATA, 12, lambda ids: {"topics": _by_id(ids,
        name=None), "include_topic_authorized_operations": True})  # fmt: skip
    add("Metadata that creates", apis.METADATA, 12, only_denials=True, topics=[{"name":
        name} for name in (*TOPICS, *USED)], allow_auto_topic_creation=True)  # fmt: skip
    add("DescribeTopicPartitions of all", apis.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[],
        response_partition_limit=2000)  # fmt: skip
    add("DescribeTopicPartitions", apis.DESCRIBE_TOPIC_PARTITIONS, 0,
        topics=_by_name(), response_partition_limit=2000)  # fmt: skip
    add("DescribeTopicPartitions by pages", apis.DESCRIBE_TOPIC_PARTITIONS, 0,
        topics=[], response_partition_limit=1)  # fmt: skip


def _offsets() -> None:
    for name in _GROUPS:
        add(f"OffsetFetch {name}", apis.OFFSET_FETCH, 7, group_id=name,
            topics=_by_name(partition_indexes=[0]))  # fmt: skip
        add(f"OffsetFetch of all {name}", apis.OFFSET_FETCH, 7, group_id=name, topics=None)
    add("OffsetCommit by id", apis.OFFSET_COMMIT, 10, lambda ids: {"group_id": "exact",
        **_SIMPLE, "topics": _by_id(ids, **COMMIT)})  # fmt: skip
    add("OffsetFetch of groups", apis.OFFSET_FETCH, 9, groups=[{"group_id": name,
        "topics": _by_name(partition_indexes=[0]), "member_epoch": -1} for name in
        _GROUPS])  # fmt: skip
    add("OffsetFetch of all of groups", apis.OFFSET_FETCH, 9, groups=[{"group_id":
        name, "topics": None, "member_epoch": -1} for name in _GROUPS])  # fmt: skip
    add("OffsetFetch by id", apis.OFFSET_FETCH, 10, lambda ids: {"groups":
        [{"group_id": name, "topics": _by_id(ids, partition_indexes=[0]),
        "member_epoch": -1} for name in TOPICS]})  # fmt: skip
    add("OffsetFetch of all by id", apis.OFFSET_FETCH, 10, groups=[{"group_id": name,
        "topics": None, "member_epoch": -1} for name in TOPICS])  # fmt: skip


def _shared(**fields: Any) -> list[dict[str, Any]]:
    return [{"topic_name": one["name"], **fields} for one in _by_name()]


def _groups() -> None:
    for kind in (0, 1):
        add(f"FindCoordinator {kind}", apis.FIND_COORDINATOR, 4, key_type=kind,
            coordinator_keys=list(_GROUPS))  # fmt: skip
        for name in TOPICS:
            add(f"FindCoordinator {kind} {name}", apis.FIND_COORDINATOR, 3,
                key_type=kind, key=name)  # fmt: skip
    for name in TOPICS:
        add(f"OffsetCommit {name}", apis.OFFSET_COMMIT, 9, group_id=name,
            topics=_by_name(**COMMIT), **_SIMPLE)  # fmt: skip
        add(f"JoinGroup {name}", apis.JOIN_GROUP, 9, group_id=name,
            session_timeout_ms=1, rebalance_timeout_ms=1, member_id="",
            protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}])  # fmt: skip
        add(f"SyncGroup {name}", apis.SYNC_GROUP, 5, group_id=name, generation_id=1,
            member_id="m", protocol_type="consumer", protocol_name="range")  # fmt: skip
        add(f"Heartbeat {name}", apis.HEARTBEAT, 4, group_id=name, generation_id=1, member_id="m")
        add(f"LeaveGroup {name}", apis.LEAVE_GROUP, 5, group_id=name, members=[{"member_id": "m"}])
        add(f"ConsumerGroupHeartbeat {name}", apis.CONSUMER_GROUP_HEARTBEAT, 1, group_id=name,
            member_id="m", member_epoch=5, subscribed_topic_names=["exact", "pre.a"])  # fmt: skip
        for api in (apis.SHARE_FETCH, apis.SHARE_ACKNOWLEDGE):  # no session: only the group counts
            add(f"{api.name} {name}", api, 1, group_id=name, member_id="m",
                share_session_epoch=5, topics=[])  # fmt: skip
        add(f"ShareGroupHeartbeat {name}", apis.SHARE_GROUP_HEARTBEAT, 1, group_id=name,
            member_id="m", member_epoch=5, subscribed_topic_names=["exact", "pre.a"])  # fmt: skip
        add(f"StreamsGroupHeartbeat {name}", apis.STREAMS_GROUP_HEARTBEAT, 1, group_id=name,
            member_id="m", member_epoch=5, topology=_TOPOLOGY)  # fmt: skip
        add(f"AlterShareGroupOffsets {name}", apis.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=name,
            topics=_shared(partitions=[{"partition_index": 0, "start_offset": 0}]))  # fmt: skip
        add(f"DeleteShareGroupOffsets {name}", apis.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=name,
            topics=_shared())  # fmt: skip
        add(f"OffsetDelete {name}", apis.OFFSET_DELETE, 0, group_id=name,
            topics=_by_name(partitions=[{"partition_index": 7}]))  # fmt: skip
    add("DescribeGroups", apis.DESCRIBE_GROUPS, 6, groups=list(_GROUPS),
        include_authorized_operations=True)  # fmt: skip
    add("DescribeGroups v4", apis.DESCRIBE_GROUPS, 4, groups=list(_GROUPS))
    add("ConsumerGroupDescribe", apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=list(_GROUPS),
        include_authorized_operations=True)  # fmt: skip
    add("ShareGroupDescribe", apis.SHARE_GROUP_DESCRIBE, 1, group_ids=list(_GROUPS),
        include_authorized_operations=True)  # fmt: skip
    add("StreamsGroupDescribe", apis.STREAMS_GROUP_DESCRIBE, 1, group_ids=list(_GROUPS),
        include_authorized_operations=True)  # fmt: skip
    add("DescribeShareGroupOffsets", apis.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[
        {"group_id": name, "topics": _shared(partitions=[0])} for name in _GROUPS])  # fmt: skip
    add("DescribeShareGroupOffsets of all", apis.DESCRIBE_SHARE_GROUP_OFFSETS, 1,
        groups=[{"group_id": name, "topics": None} for name in _GROUPS])  # fmt: skip
    add("ListGroups", apis.LIST_GROUPS, 5)
    add("DeleteGroups", apis.DELETE_GROUPS, 2, groups_names=list(NONE))


def _topics() -> None:
    add("CreateTopics", apis.CREATE_TOPICS, 7, timeout_ms=10000, validate_only=True,
        topics=_by_name(num_partitions=1, replication_factor=1))  # fmt: skip
    add("DeleteTopics", apis.DELETE_TOPICS, 5, topic_names=list(NONE), timeout_ms=10000)
    add("DeleteTopics by id", apis.DELETE_TOPICS, 6, lambda ids: {"timeout_ms": 10000,
        "topics": [*({"name": None, "topic_id": ids[name]} for name in DELETED),
        {"name": "none"}, {"name": None, "topic_id": UNKNOWN_ID}]})  # fmt: skip
    add("CreatePartitions", apis.CREATE_PARTITIONS, 3, timeout_ms=10000,
        validate_only=True, topics=_by_name(count=5, assignments=None))  # fmt: skip
    add("DeleteRecords", apis.DELETE_RECORDS, 2, timeout_ms=10000,
        topics=_by_name(partitions=[{"partition_index": 0, "offset": 0}]))  # fmt: skip
    add("OffsetForLeaderEpoch", apis.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1,
        topics=_by_topic(partitions=[{"partition": 0, "current_leader_epoch": -1,
        "leader_epoch": 0}]))  # fmt: skip
    add("DescribeProducers", apis.DESCRIBE_PRODUCERS, 0, topics=_by_name(partition_indexes=[0]))


def _transactions() -> None:
    add("InitProducerId", apis.INIT_PRODUCER_ID, 4, transactional_id=None,
        transaction_timeout_ms=0)  # fmt: skip
    claim = {"producer_id": 4711, "producer_epoch": 0}
    for name in TOPICS:
        claimed = {"transactional_id": name, **claim}
        add(f"InitProducerId {name}", apis.INIT_PRODUCER_ID, 4, transactional_id=name,
            transaction_timeout_ms=1000)  # fmt: skip
        add(f"AddPartitionsToTxn {name}", apis.ADD_PARTITIONS_TO_TXN, 3,
            v3_and_below_transactional_id=name, v3_and_below_producer_id=4711,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=_by_name(partitions=[0]))  # fmt: skip
        add(f"AddPartitionsToTxn of one {name}", apis.ADD_PARTITIONS_TO_TXN, 3,
            v3_and_below_transactional_id=name, v3_and_below_producer_id=4711,
            v3_and_below_producer_epoch=0, v3_and_below_topics=[{"name": "exact",
            "partitions": [0]}])  # fmt: skip
        for group in ("exact", "other"):
            add(f"AddOffsetsToTxn {name} {group}", apis.ADD_OFFSETS_TO_TXN, 3,
                group_id=group, **claimed)  # fmt: skip
            add(f"TxnOffsetCommit {name} {group}", apis.TXN_OFFSET_COMMIT, 3,
                group_id=group, topics=_by_name(**COMMIT), **_SIMPLE, **claimed)  # fmt: skip
        add(f"EndTxn {name}", apis.END_TXN, 3, committed=True, **claimed)
    add("TxnOffsetCommit by id", apis.TXN_OFFSET_COMMIT, 6, lambda ids: {
        "transactional_id": "exact", "group_id": "exact", **_SIMPLE, **claim,
        "topics": _by_id(ids, **COMMIT)})  # fmt: skip
    add("AddPartitionsToTxn of brokers", apis.ADD_PARTITIONS_TO_TXN, 5,
        transactions=[{"transactional_id": name, **claim, "verify_only": True,
        "topics": _by_name(partitions=[0])} for name in TOPICS], only_denials=True)  # fmt: skip
    add("WriteTxnMarkers", apis.WRITE_TXN_MARKERS, 1, markers=[{**claim,
        "transaction_result": True, "coordinator_epoch": 0, "topics": [{"name": name,
        "partition_indexes": [99]} for name in TOPICS]}])  # fmt: skip
    add("DescribeTransactions", apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[*_IDS, OPEN])
    add("ListTransactions", apis.LIST_TRANSACTIONS, 1, state_filters=[],
        producer_id_filters=[], duration_filter=-1)  # fmt: skip


def _share_states() -> None:
    """Requests among brokers; what they find depends on the coordinator's topic."""
    row = {"partition": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": 0,
           "delivery_complete_count": 0, "state_batches": []}  # fmt: skip
    for api, version, fields in (
        (apis.INITIALIZE_SHARE_GROUP_STATE, 0, ("partition", "state_epoch", "start_offset")),
        (apis.READ_SHARE_GROUP_STATE, 0, ("partition", "leader_epoch")),
        (apis.WRITE_SHARE_GROUP_STATE, 1, tuple(row)),
        (apis.DELETE_SHARE_GROUP_STATE, 0, ("partition",)),
        (apis.READ_SHARE_GROUP_STATE_SUMMARY, 1, ("partition", "leader_epoch")),
    ):
        asked = {name: row[name] for name in fields}
        add(api.name, api, version, group_id="exact", only_denials=True,
            topics=[{"topic_id": UNKNOWN_ID, "partitions": [asked]}])  # fmt: skip
    add("FindCoordinator of a share partition", apis.FIND_COORDINATOR, 6, key_type=2,
        coordinator_keys=["no key"])  # fmt: skip


def _settings() -> None:
    keys = [name for name, _ in _SETTINGS.values()]
    for others in (False, True):  # brokers differ in the settings of groups and metrics
        what = "others' settings" if others else "settings"
        add(f"DescribeConfigs of {what}", apis.DESCRIBE_CONFIGS, 4, only_denials=others,
            resources=_resources(others, configuration_keys=keys))  # fmt: skip
        add(f"AlterConfigs of {what}", apis.ALTER_CONFIGS, 2, only_denials=others,
            resources=_resources(others, "configs"), validate_only=True)  # fmt: skip
        add(f"IncrementalAlterConfigs of {what}", apis.INCREMENTAL_ALTER_CONFIGS, 1,
            only_denials=others, validate_only=True,
            resources=_resources(others, "configs", config_operation=0))  # fmt: skip
    add("ListConfigResources", apis.LIST_CONFIG_RESOURCES, 1, resource_types=[2, 4])
    add("ListConfigResources v0", apis.LIST_CONFIG_RESOURCES, 0)


def _cluster() -> None:
    add("AlterReplicaLogDirs", apis.ALTER_REPLICA_LOG_DIRS, 2, dirs=[{"path":
        "/nowhere", "topics": _by_name(partitions=[0])}])  # fmt: skip
    add("DescribeLogDirs", apis.DESCRIBE_LOG_DIRS, 4, topics=None)
    add("DescribeLogDirs v2", apis.DESCRIBE_LOG_DIRS, 2, topics=_by_topic(partitions=[0]))
    add("ElectLeaders", apis.ELECT_LEADERS, 2, election_type=0, timeout_ms=10000,
        topic_partitions=_by_topic(partitions=[0]))  # fmt: skip
    add("AlterPartitionReassignments", apis.ALTER_PARTITION_REASSIGNMENTS, 0,
        timeout_ms=10000, topics=_by_name(partitions=[{"partition_index": 0,
        "replicas": None}]))  # fmt: skip
    add("ListPartitionReassignments", apis.LIST_PARTITION_REASSIGNMENTS, 0,
        timeout_ms=10000, topics=_by_name(partition_indexes=[0]))  # fmt: skip
    add("UpdateFeatures", apis.UPDATE_FEATURES, 1, timeout_ms=10000,
        validate_only=True, feature_updates=[{"feature": "none", "max_version_level":
        1, "upgrade_type": 1}])  # fmt: skip
    add("DescribeCluster", apis.DESCRIBE_CLUSTER, 1,
        include_cluster_authorized_operations=True, endpoint_type=1)  # fmt: skip
    add("DescribeQuorum", apis.DESCRIBE_QUORUM, 1, topics=[{"topic_name":
        "__cluster_metadata", "partitions": [{"partition_index": 0}]}])  # fmt: skip
    add("UnregisterBroker", apis.UNREGISTER_BROKER, 0, broker_id=77)
    add("UnregisterController", apis.UNREGISTER_CONTROLLER, 0, controller_id=77,
        only_denials=True)  # fmt: skip
    add("ApiVersions", apis.API_VERSIONS, 3, client_software_name="x", client_software_version="1")


def _security() -> None:
    add("DescribeAcls", apis.DESCRIBE_ACLS, 3, resource_type_filter=2,
        resource_name_filter="none", pattern_type_filter=3, principal_filter=None,
        host_filter=None, operation=1, permission_type=1)  # fmt: skip
    add("CreateAcls", apis.CREATE_ACLS, 3, creations=[{"resource_type": 2,
        "resource_name": "none", "resource_pattern_type": 3, "principal": "nobody",
        "host": "*", "operation": 3, "permission_type": 3}], only_denials=True)  # fmt: skip
    add("DeleteAcls", apis.DELETE_ACLS, 3, filters=[{"resource_type_filter": 2,
        "resource_name_filter": "none", "pattern_type_filter": 3, "principal_filter":
        None, "host_filter": None, "operation": 1, "permission_type": 1}])  # fmt: skip
    add("DescribeUserScramCredentials", apis.DESCRIBE_USER_SCRAM_CREDENTIALS, 0,
        users=[{"name": "nobody"}])  # fmt: skip
    add("AlterUserScramCredentials", apis.ALTER_USER_SCRAM_CREDENTIALS, 0,
        deletions=[{"name": "nobody", "mechanism": 1}], upsertions=[])  # fmt: skip
    add("DescribeClientQuotas", apis.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
    add("AlterClientQuotas", apis.ALTER_CLIENT_QUOTAS, 1, validate_only=True,
        entries=[{"entity": [{"entity_type": "user", "entity_name": "nobody"}], "ops":
        [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}])  # fmt: skip


def _tokens() -> None:
    """First what shows the tokens that are there: others make more, each for one owner."""
    user = {"principal_type": "User"}
    add("DescribeDelegationToken of all", apis.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
    add("DescribeDelegationToken", apis.DESCRIBE_DELEGATION_TOKEN, 3,
        owners=[{**user, "principal_name": name} for name in (*TOPICS, *NONE)])  # fmt: skip
    wrong = {"hmac": b"no such token"}
    add("RenewDelegationToken", apis.RENEW_DELEGATION_TOKEN, 2, renew_period_ms=1000, **wrong)
    add("ExpireDelegationToken", apis.EXPIRE_DELEGATION_TOKEN, 2, expiry_time_period_ms=-1, **wrong)
    made = {"renewers": [], "max_lifetime_ms": 1000}
    add("CreateDelegationToken", apis.CREATE_DELEGATION_TOKEN, 3, **made,
        owner_principal_type=None, owner_principal_name=None)  # fmt: skip
    for name in (*TOPICS, *NONE):
        add(f"CreateDelegationToken {name}", apis.CREATE_DELEGATION_TOKEN, 3, **made,
            owner_principal_type="User", owner_principal_name=name)  # fmt: skip


for _adding in (_data, _metadata, _offsets, _groups, _topics, _transactions, _share_states,
                _settings, _cluster, _security, _tokens):  # fmt: skip
    _adding()
