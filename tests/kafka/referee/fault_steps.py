"""Errors that a Kafka can be made to return, and that a test's broker returns on command: for each
request the same fields."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import Struct
from tests.support import batches
from tests.support.raw import Raw

TOLD = ("error_message", "throttle_time_ms", "message")
"""Fields in which each side uses its own words, or has its own reasons."""


class Fault(NamedTuple):
    """A request that Kafka answers with this error."""

    api: Api
    version: int
    error: ErrorCode
    body: dict[str, Any]


def _member(api: Api, version: int, **more: Any) -> Fault:
    body = {"group_id": "g", "member_id": "nobody", **more}
    return Fault(api, version, ErrorCode.UNKNOWN_MEMBER_ID, body)


def _producer(api: Api, version: int, names: str, **more: Any) -> Fault:
    """With an unknown transactional id."""
    asked = {"transactional_id": "nobody's", "producer_id": 4_000, "producer_epoch": 0}
    body = {f"{names}{name}": value for name, value in (asked | more).items()}
    return Fault(api, version, ErrorCode.INVALID_PRODUCER_ID_MAPPING, body)


_MISSING, _BATCH = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, batches.batch([batches.Row(b"v", b"k", 0)])
_PART = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}

FAULTS: dict[str, Fault] = {
    "produce": Fault(apis.PRODUCE, 9, _MISSING, {
        "acks": -1, "timeout_ms": 1000, "topic_data": [
            {"name": "none-such", "partition_data": [{"index": 0, "records": _BATCH}]},
        ],
    }),
    "produce, old": Fault(apis.PRODUCE, 3, _MISSING, {
        "acks": 1, "timeout_ms": 1000, "topic_data": [
            {"name": "none-such", "partition_data": [{"index": 4, "records": _BATCH}]},
        ],
    }),
    "fetch": Fault(apis.FETCH, 11, ErrorCode.OFFSET_OUT_OF_RANGE, {
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000, "topics": [
            {"topic": "t", "partitions": [
                {"partition": 0, "fetch_offset": 1_000_000, "partition_max_bytes": 1000},
            ]},
        ],
    }),
    "list offsets": Fault(apis.LIST_OFFSETS, 7, _MISSING, {
        "replica_id": -1, "topics": [
            {"name": "none-such", "partitions": [{"partition_index": 0, "timestamp": -1}]},
        ],
    }),
    "ends of epochs": Fault(apis.OFFSET_FOR_LEADER_EPOCH, 4, _MISSING, {
        "replica_id": -1, "topics": [
            {"topic": "none-such", "partitions": [
                {"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1},
            ]},
        ],
    }),
    "join": _member(apis.JOIN_GROUP, 5, session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
                    protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}]),
    "sync": _member(apis.SYNC_GROUP, 3, generation_id=1, assignments=[]),
    "heartbeat": _member(apis.HEARTBEAT, 3, generation_id=1),
    "leave": _member(apis.LEAVE_GROUP, 2),
    "commit": Fault(apis.OFFSET_COMMIT, 7, ErrorCode.ILLEGAL_GENERATION, {
        "group_id": "g", "member_id": "nobody", "generation_id_or_member_epoch": 3,
        "topics": [{"name": "t", "partitions": [_PART]}],
    }),
    "settings": Fault(apis.DESCRIBE_CONFIGS, 4, _MISSING, {
        "resources": [
            {"resource_type": 2, "resource_name": "none-such", "configuration_keys": None},
        ],
    }),
    "change settings": Fault(apis.INCREMENTAL_ALTER_CONFIGS, 1, _MISSING, {
        "resources": [{"resource_type": 2, "resource_name": "none-such", "configs": []}],
    }),
    "delete a group": Fault(apis.DELETE_GROUPS, 2, ErrorCode.GROUP_ID_NOT_FOUND, {
        "groups_names": ["none-such"],
    }),
    "init": Fault(apis.INIT_PRODUCER_ID, 4, ErrorCode.INVALID_TRANSACTION_TIMEOUT, {
        "transactional_id": "x", "transaction_timeout_ms": 2_000_000_000, "producer_id": -1,
        "producer_epoch": -1,
    }),
    "add partitions": _producer(apis.ADD_PARTITIONS_TO_TXN, 3, "v3_and_below_", topics=[
        {"name": "t", "partitions": [0]},
    ]),
    "add offsets": _producer(apis.ADD_OFFSETS_TO_TXN, 3, "", group_id="g"),
    "end": _producer(apis.END_TXN, 4, "", committed=True),
    "describe a transaction": Fault(
        apis.DESCRIBE_TRANSACTIONS, 0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        {"transactional_ids": ["none-such"]},
    ),
    "describe producers": Fault(apis.DESCRIBE_PRODUCERS, 0, _MISSING, {
        "topics": [{"name": "none-such", "partition_indexes": [0, 3]}],
    }),
    "create a topic": Fault(apis.CREATE_TOPICS, 5, ErrorCode.TOPIC_ALREADY_EXISTS, {
        "topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}],
        "timeout_ms": 10_000,
    }),
    "delete a topic": Fault(apis.DELETE_TOPICS, 5, _MISSING, {
        "topic_names": ["none-such"], "timeout_ms": 10_000,
    }),
    "more partitions": Fault(apis.CREATE_PARTITIONS, 3, _MISSING, {
        "topics": [{"name": "none-such", "count": 4, "assignments": None}], "timeout_ms": 10_000,
    }),
    "delete records": Fault(apis.DELETE_RECORDS, 2, _MISSING, {
        "topics": [{"name": "none-such", "partitions": [{"partition_index": 0, "offset": 0}]}],
        "timeout_ms": 10_000,
    }),
}  # fmt: skip


def answer(address: str, fault: Fault) -> Any:
    """The fields of the answer, without error messages."""
    with Raw(address) as raw:
        return _plain(raw.call(fault.api, fault.version, **fault.body))


def codes(found: Any) -> set[int]:
    """The errors in an answer."""
    if isinstance(found, list):
        return set().union(*map(codes, found))
    if not isinstance(found, dict):
        return set()
    own = {found[name] for name in ("error_code", "partition_error_code") if name in found}
    return own.union(*map(codes, found.values())) - {0}


def _plain(found: Any) -> Any:
    if isinstance(found, Struct):
        return {name: _plain(value) for name, value in found if name not in TOLD}
    if isinstance(found, list):
        return [_plain(one) for one in found]
    return found
