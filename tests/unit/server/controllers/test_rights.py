"""The rights of callers at a controller's listener, by the ACLs in its metadata."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog.server.controller import Controller
from kafkalog.wire import apis, headers
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.other_records import PRINCIPAL
from tests.support.controller_nodes import controller, formatted
from tests.support.raw import Raw
from tests.support.waiting import wait_for

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CREATE, ALLOW, CLUSTER, LITERAL = 5, 3, 4, 3


def started(path: Any, supers: str) -> Controller:
    settings = {**controller(), "authorizer.class.name": AUTHORIZER, "super.users": supers}
    return Controller(str(formatted(path)), settings)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raw]:
    """Its callers, who are anonymous, have no rights."""
    made = started(tmp_path_factory.mktemp("closed") / "1", "User:admin")
    with made, Raw(made.bootstrap_controllers) as raw:
        wait_for(lambda: made.server.replica.is_active, "it is active")
        yield raw


@pytest.fixture
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raw]:
    """Its callers, such as brokers, may do everything."""
    made = started(tmp_path_factory.mktemp("trusting") / "1", "User:ANONYMOUS")
    with made, Raw(made.bootstrap_controllers) as raw:
        wait_for(lambda: made.server.replica.is_active, "it is active")
        yield raw


def new_topic(name: str) -> dict[str, Any]:
    entry = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": []}
    return {"topics": [entry], "timeout_ms": 10_000, "validate_only": False}


def created_by(raw: Raw, user: str, name: str) -> int:
    """The error of a topic's creation that a broker forwards for a user."""
    who = {"type": "User", "name": user, "token_authenticated": False}
    data = headers.encode_request_header(apis.CREATE_TOPICS, 7, 1, "client")
    data += apis.CREATE_TOPICS.encode_request(7, new_topic(name))
    found = raw.call(
        apis.ENVELOPE, 0, request_data=data, client_host_address=b"\x0a\0\0\1",
        request_principal=struct.pack(">h", 0) + PRINCIPAL.encode(0, who),
    )  # fmt: skip
    assert found.error_code == 0
    response = bytes(found.response_data)
    _, pos = headers.decode_response_header(apis.CREATE_TOPICS, 7, response)
    return int(apis.CREATE_TOPICS.decode_response(7, response, pos).topics[0].error_code)


def test_nothing_between_nodes_is_for_everyone(closed: Raw) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert closed.call(apis.ENVELOPE, 0, client_host_address=b"").error_code == denied
    for api in (apis.BROKER_REGISTRATION, apis.BROKER_HEARTBEAT, apis.ALLOCATE_PRODUCER_IDS,
                apis.CONTROLLER_REGISTRATION, apis.ASSIGN_REPLICAS_TO_DIRS, apis.VOTE,
                apis.BEGIN_QUORUM_EPOCH, apis.END_QUORUM_EPOCH, apis.FETCH, apis.FETCH_SNAPSHOT,
                apis.ALTER_PARTITION, apis.UPDATE_RAFT_VOTER, apis.ADD_RAFT_VOTER,
                apis.REMOVE_RAFT_VOTER, apis.UNREGISTER_BROKER, apis.DESCRIBE_QUORUM):  # fmt: skip
        assert closed.call(api).error_code == denied, api
    (row,) = closed.call(apis.CREATE_TOPICS, 7, **new_topic("t")).topics
    assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_client_in_an_envelope_needs_the_rights(trusting: Raw) -> None:
    """Those of the broker that forwards the request do not count."""
    assert created_by(trusting, "alice", "one") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    acl = {
        "resource_type": CLUSTER, "resource_name": "kafka-cluster",
        "resource_pattern_type": LITERAL, "principal": "User:alice", "host": "10.0.0.1",
        "operation": CREATE, "permission_type": ALLOW,
    }  # fmt: skip
    (row,) = trusting.call(apis.CREATE_ACLS, 3, creations=[acl]).results
    assert row.error_code == 0
    refused = ErrorCode.INVALID_REPLICATION_FACTOR  # there is no broker
    wait_for(lambda: created_by(trusting, "alice", "one") == refused, "the ACL is obeyed")
    assert created_by(trusting, "bob", "one") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
