"""Every API of Kafka: `apis.METADATA.decode_request(version, body)`.

The table itself is in wire/tables, one constant per API under Kafka's name in capitals.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkalog.errors import ArgumentError, InvalidRequest
from kafkalog.wire.api import Api
from kafkalog.wire.runtime import Malformed, skip_tags, uvarint
from kafkalog.wire.tables.cluster import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    GET_TELEMETRY_SUBSCRIPTIONS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    PUSH_TELEMETRY,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
)
from kafkalog.wire.tables.groups import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
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
    ADD_RAFT_VOTER,
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    ASSIGN_REPLICAS_TO_DIRS,
    BEGIN_QUORUM_EPOCH,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    CONTROLLER_REGISTRATION,
    DELETE_SHARE_GROUP_STATE,
    END_QUORUM_EPOCH,
    ENVELOPE,
    FETCH_SNAPSHOT,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
    VOTE,
    WRITE_SHARE_GROUP_STATE,
)
from kafkalog.wire.tables.partitions import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from kafkalog.wire.tables.security import (
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_ACLS,
    CREATE_DELEGATION_TOKEN,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from kafkalog.wire.tables.share import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    STREAMS_GROUP_DESCRIBE,
    STREAMS_GROUP_HEARTBEAT,
)
from kafkalog.wire.tables.topics import (
    ALTER_CLIENT_QUOTAS,
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLIENT_QUOTAS,
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
    "SYNC_GROUP",
    "TXN_OFFSET_COMMIT",
    "UNREGISTER_BROKER",
    "UPDATE_FEATURES",
    "UPDATE_RAFT_VOTER",
    "VOTE",
    "WRITE_SHARE_GROUP_STATE",
    "WRITE_TXN_MARKERS",
    "Api",
    "RequestHeader",
    "decode_request_header",
    "decode_response_header",
    "encode_request_header",
    "encode_response_header",
]

_ALL = sorted(
    (thing for thing in list(globals().values()) if isinstance(thing, Api)), key=lambda api: api.key
)

BY_KEY: dict[int, Api] = {api.key: api for api in _ALL}
"""Every API by its key, in the order of the keys."""

SERVED: dict[int, range] = {api.key: api.served for api in _ALL if api.served is not None}
"""Key and versions of what our broker announces in ApiVersions.

Produce 0 to 2 are announced and refused, since older librdkafka takes a broker without them for
one that cannot compress (KAFKA-18659); they cannot be coded.
"""

_HEADER = struct.Struct(">hhih")


class RequestHeader(NamedTuple):
    """What a request begins with."""

    key: int
    """Of an API that is in BY_KEY."""
    version: int
    """As asked for: nobody has checked yet that it is known."""
    correlation_id: int
    client_id: str | None
    pos: int
    """Where the body begins."""


def decode_request_header(frame: bytes) -> RequestHeader:
    """The header at the begin of a frame, behind its size.

    Raises: InvalidRequest when it is cut off, or of an API that does not exist.
    """
    if len(frame) < _HEADER.size:
        raise InvalidRequest(f"request header: found {len(frame)} bytes, wanted {_HEADER.size}")
    key, version, correlation_id, length = _HEADER.unpack_from(frame)
    api = BY_KEY.get(key)
    if api is None:
        raise InvalidRequest(f"request header: api_key: found {key}, wanted one of Kafka's")
    where = f"{api.name} request v{version}: header"
    pos = _HEADER.size
    client_id = None
    if length >= 0:
        if length > len(frame) - pos:
            raise InvalidRequest(
                f"{where}: client_id: found length {length}, "
                f"wanted at most the {len(frame) - pos} bytes that are left"
            )
        raw = bytes(frame[pos : pos + length])
        pos += length
        try:
            client_id = raw.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(
                f"{where}: client_id: found bytes {raw[:20]!r}, wanted UTF-8"
            ) from None
    if api.request_header_version(version) == 2:
        pos = _skip_tags(frame, pos, where)
    return RequestHeader(key, version, correlation_id, client_id, pos)


def encode_request_header(
    api: Api, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The header of a request, to stand behind the frame's size and before the body."""
    raw = None if client_id is None else client_id.encode()
    try:
        fixed = _HEADER.pack(api.key, version, correlation_id, -1 if raw is None else len(raw))
    except struct.error as error:
        raise ArgumentError(f"{api.name} request v{version}: header: {error}") from None
    tags = b"\0" if api.request_header_version(version) == 2 else b""
    return fixed + (raw or b"") + tags


def decode_response_header(api: Api, version: int, frame: bytes) -> tuple[int, int]:
    """The correlation id of a response, and where its body begins.

    Raises: InvalidRequest.
    """
    where = f"{api.name} response v{version}: header"
    if len(frame) < 4:
        raise InvalidRequest(f"{where}: correlation_id: found {len(frame)} bytes, wanted 4")
    pos = 4
    if api.response_header_version(version):
        pos = _skip_tags(frame, pos, where)
    return int.from_bytes(frame[:4], "big", signed=True), pos


def encode_response_header(api: Api, version: int, correlation_id: int) -> bytes:
    """The header of a response, to stand behind the frame's size and before the body."""
    tags = b"\0" if api.response_header_version(version) else b""
    return correlation_id.to_bytes(4, "big", signed=True) + tags


def _skip_tags(frame: bytes, pos: int, where: str) -> int:
    """The position behind a header's tagged fields, of which Kafka knows none."""
    try:
        count, pos = uvarint(frame, pos)
        return skip_tags(frame, pos, len(frame), count)
    except IndexError:
        found, wanted = "no bytes", "tagged fields"
    except Malformed as error:
        found, wanted = error.found, error.wanted
    raise InvalidRequest(f"{where}: tagged fields: found {found}, wanted {wanted}")
