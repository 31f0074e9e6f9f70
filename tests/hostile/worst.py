"""The worst requests that each API allows, made from its schema and a few fields of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.notation import Field
from kafkalog.wire.runtime import STRING_BYTES_MAX
from tests.unit.plane.peer import one

TOPIC, TOPIC_ID = "attacked", uuid.UUID(int=1)
"""An existing topic, and the id that stands for its own in `WORST`."""
TEXTS = 30
"""Items of a request whose strings are all as long as strings can be: a megabyte."""
TOPIC_NAMES = {"name", "topic", "topic_name", "resource_name"}
Path = tuple[str, ...]

# ListTransactions: each character walks through all copies of the set.
PATTERN = "([^" + "".join(chr(0x100 + i) for i in range(980)) + "]?){400}"
GROUP = {"group_id": "attacked", "member_id": "stranger"}
PRODUCER = {"transactional_id": "attacked", "producer_id": 1, "producer_epoch": 0}
TRANSACTIONAL = {**GROUP, **PRODUCER, "generation_id_or_member_epoch": -1}
TRY = {"validate_only": True, "timeout_ms": 1_000}
WAIT = {"timeout_ms": 100}
STATE = {"group_id": "attacked", "state_epoch": 0, "leader_epoch": 0, "start_offset": 0,
         "delivery_complete_count": 0}  # fmt: skip
ACL = {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3}

WORST: dict[Api, dict[str, Any]] = {
    apis.PRODUCE: {"acks": -1, "timeout_ms": 1_000, "transactional_id": None, "records": one()},
    apis.FETCH: {"replica_id": -1, "max_wait_ms": 100, "min_bytes": 1 << 30, "max_bytes": 1 << 30,
                 "session_epoch": 0, "partition_max_bytes": 1 << 30, "cluster_id": None},
    apis.LIST_OFFSETS: {"replica_id": -1, "timestamp": 1_700_000_000_000},
    apis.METADATA: {"allow_auto_topic_creation": False, "topic_id": uuid.UUID(int=0),
                    "include_topic_authorized_operations": True},
    apis.OFFSET_COMMIT: {"group_id": "attacked", "generation_id_or_member_epoch": -1},
    apis.OFFSET_FETCH: {"member_id": None, "member_epoch": -1, "require_stable": True},
    apis.FIND_COORDINATOR: {"key_type": 1},
    apis.JOIN_GROUP: {**GROUP, "member_id": "", "session_timeout_ms": 6_000,
                      "rebalance_timeout_ms": 6_000, "protocol_type": "consumer"},
    apis.HEARTBEAT: GROUP,
    apis.LEAVE_GROUP: GROUP,
    apis.SYNC_GROUP: {**GROUP, "protocol_type": "consumer", "protocol_name": "range"},
    apis.DESCRIBE_GROUPS: {"include_authorized_operations": True},
    apis.LIST_GROUPS: {},
    apis.CONSUMER_GROUP_HEARTBEAT: {
        **GROUP, "member_epoch": 0, "rebalance_timeout_ms": 6_000, "instance_id": None,
        "rack_id": None, "subscribed_topic_regex": PATTERN, "server_assignor": None,
        "topic_partitions": [],
    },
    apis.CONSUMER_GROUP_DESCRIBE: {"include_authorized_operations": True},
    apis.INITIALIZE_SHARE_GROUP_STATE: STATE,
    apis.READ_SHARE_GROUP_STATE: STATE,
    apis.WRITE_SHARE_GROUP_STATE: {**STATE, "first_offset": 0, "last_offset": 0,
                                   "delivery_state": 2, "delivery_count": 1},
    apis.DELETE_SHARE_GROUP_STATE: STATE,
    apis.READ_SHARE_GROUP_STATE_SUMMARY: STATE,
    apis.SHARE_FETCH: {
        **GROUP, "share_session_epoch": 0, "max_wait_ms": 100, "min_bytes": 1 << 30,
        "max_bytes": 1 << 30, "max_records": 1 << 30, "batch_size": 1, "share_acquire_mode": 0,
        "is_renew_ack": False, "acknowledgement_batches": [],
    },
    apis.SHARE_ACKNOWLEDGE: {**GROUP, "share_session_epoch": 1, "is_renew_ack": True},
    apis.SHARE_GROUP_HEARTBEAT: {**GROUP, "member_epoch": 0, "rack_id": None},
    apis.SHARE_GROUP_DESCRIBE: {"include_authorized_operations": True},
    apis.STREAMS_GROUP_HEARTBEAT: {
        **GROUP, "member_epoch": 0, "endpoint_information_epoch": -1, "rebalance_timeout_ms": 6_000,
        "shutdown_application": False, "source_topic_regex": [], "active_tasks": [],
        "standby_tasks": [], "warmup_tasks": [],
    },
    apis.STREAMS_GROUP_DESCRIBE: {"include_authorized_operations": True},
    apis.DESCRIBE_SHARE_GROUP_OFFSETS: {},
    apis.ALTER_SHARE_GROUP_OFFSETS: {"group_id": "attacked"},
    apis.DELETE_SHARE_GROUP_OFFSETS: {"group_id": "attacked"},
    apis.API_VERSIONS: {"cluster_id": None, "node_id": -1},
    apis.CREATE_TOPICS: {**TRY, "num_partitions": -1, "replication_factor": -1, "value": "1"},
    apis.DELETE_TOPICS: {**WAIT, "name": "missing", "topic_id": uuid.UUID(int=0)},
    apis.DELETE_RECORDS: WAIT,
    apis.INIT_PRODUCER_ID: {"transaction_timeout_ms": 60_000, "producer_id": -1,
                            "producer_epoch": -1},
    apis.ADD_PARTITIONS_TO_TXN: PRODUCER,
    apis.ADD_OFFSETS_TO_TXN: TRANSACTIONAL,
    apis.END_TXN: PRODUCER,
    apis.WRITE_TXN_MARKERS: {"transaction_result": True, "transaction_version": 0},
    apis.TXN_OFFSET_COMMIT: TRANSACTIONAL,
    apis.DESCRIBE_TRANSACTIONS: {},
    apis.LIST_TRANSACTIONS: {"transactional_id_pattern": PATTERN, "duration_filter": -1},
    apis.OFFSET_FOR_LEADER_EPOCH: {"replica_id": -1, "current_leader_epoch": -1},
    apis.DESCRIBE_CONFIGS: {"resource_type": 2, "include_synonyms": True,
                            "include_documentation": True, "configuration_keys": None},
    apis.ALTER_CONFIGS: {**TRY, "resource_type": 2, "value": "1"},
    apis.ALTER_REPLICA_LOG_DIRS: {},
    apis.DESCRIBE_LOG_DIRS: {},
    apis.CREATE_PARTITIONS: {**TRY, "count": 10_000, "assignments": None},
    apis.DELETE_GROUPS: {},
    apis.ELECT_LEADERS: WAIT,
    apis.INCREMENTAL_ALTER_CONFIGS: {**TRY, "resource_type": 2, "value": "1"},
    apis.ALTER_PARTITION_REASSIGNMENTS: WAIT,
    apis.LIST_PARTITION_REASSIGNMENTS: WAIT,
    apis.OFFSET_DELETE: {"group_id": "attacked"},
    apis.UPDATE_FEATURES: {**TRY, "max_version_level": 1, "upgrade_type": 1},
    apis.DESCRIBE_QUORUM: {},
    apis.DESCRIBE_CLUSTER: {"endpoint_type": 1},
    apis.DESCRIBE_PRODUCERS: {},
    apis.UNREGISTER_BROKER: {"broker_id": 77},
    apis.UNREGISTER_CONTROLLER: {"controller_id": 77},
    apis.LIST_CONFIG_RESOURCES: {},
    apis.GET_TELEMETRY_SUBSCRIPTIONS: {},
    apis.PUSH_TELEMETRY: {"terminating": True, "compression_type": 0},
    apis.SASL_HANDSHAKE: {},
    apis.SASL_AUTHENTICATE: {},
    apis.DESCRIBE_ACLS: {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1,
                         "permission_type": 1},
    apis.CREATE_ACLS: ACL,
    apis.DELETE_ACLS: {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3,
                       "permission_type": 3},
    apis.CREATE_DELEGATION_TOKEN: {"max_lifetime_ms": -1},
    apis.RENEW_DELEGATION_TOKEN: {},
    apis.EXPIRE_DELEGATION_TOKEN: {},
    apis.DESCRIBE_DELEGATION_TOKEN: {},
    apis.DESCRIBE_CLIENT_QUOTAS: {"match_type": 0, "strict": False},
    apis.ALTER_CLIENT_QUOTAS: {"entity_type": "client-id", "key": "producer_byte_rate",
                               "value": 1.0, "remove": False, "validate_only": True},
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS: {},
    apis.ALTER_USER_SCRAM_CREDENTIALS: {"mechanism": 1, "iterations": 4096, "salt": b"salt",
                                        "salted_password": bytes(32)},
    apis.DESCRIBE_TOPIC_PARTITIONS: {"response_partition_limit": 2_000, "cursor": None},
}  # fmt: skip
"""Fields, at any depth, that let a request reach the costly part of its handler."""


class Request(NamedTuple):
    """A request that is allowed, and large in one way."""

    way: str
    api: Api
    version: int
    body: bytes


class _Maker:
    """The fields of one request: `many` is the array that has `count` items, others have one."""

    def __init__(self, api: Api, version: int, topic_id: uuid.UUID) -> None:
        self._fixed, self._version = dict(WORST[api]), version
        self._topic_id = topic_id
        self.many: Path = ()
        self.count = 1
        self.same = False
        self.text: str | None = None

    def fields(self, fields: Iterable[Field], at: int = 0, path: Path = ()) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in fields:
            here = (*path, field.name)
            if self._version not in field.versions:
                continue
            wanted = here == self.many[: len(here)]
            if field.name in self._fixed and not (field.array and wanted):
                found[field.name] = self._fixed[field.name]
            elif field.array:
                count = self.count if here == self.many or self.text else 1
                found[field.name] = [
                    self._one(field, 0 if self.same else i, here) for i in range(count)
                ]
            elif field.tag is None or field.kind != "struct":
                found[field.name] = self._one(field, at, path)
        return found

    def _one(self, field: Field, at: int, path: Path) -> Any:
        if field.kind == "struct":
            return self.fields(field.fields, at, path)
        if field.kind == "str":
            if at == 0 and field.name in TOPIC_NAMES and self.text is None:
                return TOPIC
            text = f"{at:06d}"
            return text if self.text is None else text + self.text[len(text) :]
        if field.kind == "uuid":
            return self._topic_id if at == 0 else uuid.UUID(int=at)
        if field.kind in ("bytes", "records"):
            return b""
        return at if field.kind in ("i32", "i64", "u32") else 0


def _arrays(fields: Iterable[Field], version: int, path: Path = ()) -> Iterator[Path]:
    for field in fields:
        if version in field.versions and field.tag is None:
            here = (*path, field.name)
            if field.array:
                yield here
            yield from _arrays(field.fields, version, here)


def _texts(fields: Iterable[Field], version: int) -> bool:
    return any(
        version in field.versions and (field.kind == "str" or _texts(field.fields, version))
        for field in fields
    )


def worst(api: Api, version: int, count: int, topic_id: uuid.UUID) -> Iterator[Request]:
    """Each of its arrays with `count` items, different ones and the same; then every string as long
    as one can be.  `topic_id`: of TOPIC."""
    schema = api.request.fields
    make = _Maker(api, version, topic_id)

    def request(way: str) -> Request:
        return Request(way, api, version, api.encode_request(version, make.fields(schema)))

    for path in _arrays(schema, version):
        make.many, make.count = path, count
        for make.same in (False, True):
            yield request(f"{count} {'equal ' if make.same else ''}{'.'.join(path)}")
    make.same = False
    if _texts(schema, version):
        nested = max(map(len, _arrays(schema, version)), default=1)
        make.many, make.count = (), round(TEXTS ** (1 / nested))
        make.text = "x" * STRING_BYTES_MAX
        yield request("the longest strings")
    make.many, make.count, make.text = (), 1, None
    yield request("as usual")
