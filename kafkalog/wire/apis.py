"""Every API of Kafka: `apis.METADATA.decode_request(version, body)`.

The table itself is in wire/tables, one constant per API under Kafka's name in capitals.
"""

from __future__ import annotations

from kafkalog.wire.api import Api
from kafkalog.wire.tables.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from kafkalog.wire.tables.cluster import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    UNREGISTER_BROKER,
    UNREGISTER_CONTROLLER,
    UPDATE_FEATURES,
)
from kafkalog.wire.tables.consumer_groups import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
)
from kafkalog.wire.tables.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from kafkalog.wire.tables.internal import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
)
from kafkalog.wire.tables.later.quorum import (
    ADD_RAFT_VOTER,
    ASSIGN_REPLICAS_TO_DIRS,
    BEGIN_QUORUM_EPOCH,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    CONTROLLER_REGISTRATION,
    END_QUORUM_EPOCH,
    ENVELOPE,
    FETCH_SNAPSHOT,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
    VOTE,
)
from kafkalog.wire.tables.later.streams import STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
from kafkalog.wire.tables.partitions import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from kafkalog.wire.tables.quotas import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from kafkalog.wire.tables.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafkalog.wire.tables.share_fetch import SHARE_ACKNOWLEDGE, SHARE_FETCH
from kafkalog.wire.tables.share_groups import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
)
from kafkalog.wire.tables.share_state import (
    DELETE_SHARE_GROUP_STATE,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    WRITE_SHARE_GROUP_STATE,
)
from kafkalog.wire.tables.streams_groups import STREAMS_GROUP_DESCRIBE, STREAMS_GROUP_HEARTBEAT
from kafkalog.wire.tables.telemetry import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from kafkalog.wire.tables.tokens import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from kafkalog.wire.tables.topics import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from kafkalog.wire.tables.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from kafkalog.wire.tables.users import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "ADD_RAFT_VOTER",
    "ALLOCATE_PRODUCER_IDS",
    "ALTER_CLIENT_QUOTAS",
    "ALTER_CONFIGS",
    "ALTER_PARTITION",
    "ALTER_PARTITION_REASSIGNMENTS",
    "ALTER_REPLICA_LOG_DIRS",
    "ALTER_SHARE_GROUP_OFFSETS",
    "ALTER_USER_SCRAM_CREDENTIALS",
    "API_VERSIONS",
    "ASSIGN_REPLICAS_TO_DIRS",
    "BEGIN_QUORUM_EPOCH",
    "BROKER_HEARTBEAT",
    "BROKER_REGISTRATION",
    "BY_KEY",
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
    "CONTROLLER_REGISTRATION",
    "CREATE_ACLS",
    "CREATE_DELEGATION_TOKEN",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_ACLS",
    "DELETE_GROUPS",
    "DELETE_RECORDS",
    "DELETE_SHARE_GROUP_OFFSETS",
    "DELETE_SHARE_GROUP_STATE",
    "DELETE_TOPICS",
    "DESCRIBE_ACLS",
    "DESCRIBE_CLIENT_QUOTAS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_DELEGATION_TOKEN",
    "DESCRIBE_GROUPS",
    "DESCRIBE_LOG_DIRS",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_QUORUM",
    "DESCRIBE_SHARE_GROUP_OFFSETS",
    "DESCRIBE_TOPIC_PARTITIONS",
    "DESCRIBE_TRANSACTIONS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "ELECT_LEADERS",
    "END_QUORUM_EPOCH",
    "END_TXN",
    "ENVELOPE",
    "EXPIRE_DELEGATION_TOKEN",
    "FETCH",
    "FETCH_SNAPSHOT",
    "FIND_COORDINATOR",
    "GET_TELEMETRY_SUBSCRIPTIONS",
    "HEARTBEAT",
    "INCREMENTAL_ALTER_CONFIGS",
    "INITIALIZE_SHARE_GROUP_STATE",
    "INIT_PRODUCER_ID",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_CONFIG_RESOURCES",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "LIST_PARTITION_REASSIGNMENTS",
    "LIST_TRANSACTIONS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
    "PUSH_TELEMETRY",
    "READ_SHARE_GROUP_STATE",
    "READ_SHARE_GROUP_STATE_SUMMARY",
    "REMOVE_RAFT_VOTER",
    "RENEW_DELEGATION_TOKEN",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SERVED",
    "SHARE_ACKNOWLEDGE",
    "SHARE_FETCH",
    "SHARE_GROUP_DESCRIBE",
    "SHARE_GROUP_HEARTBEAT",
    "STREAMS_GROUP_DESCRIBE",
    "STREAMS_GROUP_HEARTBEAT",
    "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE",
    "SYNC_GROUP",
    "TXN_OFFSET_COMMIT",
    "UNREGISTER_BROKER",
    "UNREGISTER_CONTROLLER",
    "UPDATE_FEATURES",
    "UPDATE_RAFT_VOTER",
    "VOTE",
    "WRITE_SHARE_GROUP_STATE",
    "WRITE_TXN_MARKERS",
    "Api",
]

_ALL = sorted(
    (thing for thing in list(globals().values()) if isinstance(thing, Api)), key=lambda api: api.key
)

BY_KEY: dict[int, Api] = {api.key: api for api in _ALL}
"""Every API by its key, in the order of the keys."""

SERVED: dict[int, range] = {api.key: api.served for api in _ALL if api.served is not None}
"""Key and versions that our broker announces in ApiVersions.

Produce 0 to 2 are announced and refused, since older librdkafka believes that a broker without
them cannot compress (KAFKA-18659); they cannot be coded.
"""
