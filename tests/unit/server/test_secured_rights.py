"""Requests between the nodes of a protected cluster: only its nodes may send them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.calls.acls import AclBinding
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Options, parse_servers
from kafkalog.client.login.security import security_of
from kafkalog.config.client import ClientConfig
from kafkalog.server.broker import node_of
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import (
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION
from tests.support.secured import ALICE, PLAIN, jaas
from tests.support.secured_nodes import LOGIN, SECRET, SecuredNodes
from tests.support.waiting import wait_for

NODES = (1, 2)
SETTINGS: dict[str, object] = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{LOGIN}", "default.replication.factor": len(NODES),
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
}  # fmt: skip
CONTROLLERS: dict[str, Any] = {
    "controller_id": 1, "controller_epoch": 1_000_000, "broker_epoch": -1, "topic_states": [],
}  # fmt: skip
BETWEEN_NODES = [
    (LEADER_AND_ISR, {**CONTROLLERS, "type": 0, "live_leaders": []}),
    (STOP_REPLICA, CONTROLLERS),
    (UPDATE_METADATA, {**CONTROLLERS, "live_brokers": []}),
    (CONTROLLED_SHUTDOWN, {"broker_id": 1, "broker_epoch": -1}),
    (ALTER_PARTITION, {"broker_id": 1, "broker_epoch": -1, "topics": []}),
    (ALLOCATE_PRODUCER_IDS, {"broker_id": 1, "broker_epoch": -1}),
    (apis.ADD_PARTITIONS_TO_TXN, {"transactions": []}),
]  # fmt: skip


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNodes]:
    home = tmp_path_factory.mktemp("rights")
    with StandIn() as inside, SecuredNodes(home, inside.hosts, "SASL_PLAINTEXT") as made:
        made.begin(*NODES, settings=SETTINGS)
        made.all_known()
        yield made


def admin_config() -> dict[str, str]:
    """As a node, which is a super user."""
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(PLAIN, username=LOGIN, password=SECRET),
    }  # fmt: skip


@pytest.fixture(scope="module")
def alice(nodes: SecuredNodes) -> Iterator[dict[int, Connection]]:
    """Her connection to each node."""
    security = security_of(ClientConfig(nodes.client))
    with contextlib.ExitStack() as made:
        found = {}
        for number, one in nodes.nodes.items():
            (address,) = parse_servers(one.bootstrap_servers)
            connection = Connection(address, Options(client_id=ALICE, security=security))
            found[number] = made.enter_context(contextlib.closing(connection))
        yield found


@pytest.mark.parametrize(("api", "body"), BETWEEN_NODES, ids=[one.name for one, _ in BETWEEN_NODES])
def test_a_client_cannot_pose_as_a_node(
    nodes: SecuredNodes, alice: dict[int, Connection], api: Any, body: Any
) -> None:
    """On every node; what it claims changes nothing."""
    before = [node_of(one).image for one in nodes.nodes.values()]
    for one in alice.values():
        one.send(api, body, api.max_version)
        assert one.receive().error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [node_of(one).image.epoch for one in nodes.nodes.values()] == [
        one.epoch for one in before
    ]


def test_a_client_cannot_fetch_as_a_follower(
    nodes: SecuredNodes, alice: dict[int, Connection]
) -> None:
    """Its offsets would count as copied; and it would read what is not committed."""
    with kafkalog.Admin(nodes.servers, config=admin_config()) as admin:
        admin.create_topic("t", 1)
    nodes.in_sync("t", *NODES)
    topic = node_of(nodes.nodes[1]).image.topics["t"]
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0,
                 "partition_max_bytes": 1000}  # fmt: skip
    body = {
        "replica_id": 1, "replica_state": {"replica_id": 1, "replica_epoch": -1}, "max_wait_ms": 0,
        "min_bytes": 0, "topics": [{"topic_id": topic.id, "topic": "t", "partitions": [partition]}],
    }  # fmt: skip
    leader = alice[nodes.leader("t")]
    for version in (12, 15):
        leader.send(apis.FETCH, body, version)
        answer = leader.receive()
        codes = {answer.error_code} | {
            row.error_code for one in answer.responses for row in one.partitions
        }
        assert codes - {0} <= {
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        }  # fmt: skip
        assert codes - {0}


def test_a_forwarded_request_has_the_rights_of_its_client(
    nodes: SecuredNodes, alice: dict[int, Connection]
) -> None:
    """The node that got it checks it; the controller trusts the node."""

    def creates(number: int) -> int:
        row = {"name": f"f{number}", "num_partitions": 1, "replication_factor": 2,
               "assignments": [], "configs": []}  # fmt: skip
        body = {"topics": [row], "timeout_ms": 9_000}
        (found,) = alice[number].call(apis.CREATE_TOPICS, body).topics
        return int(found.error_code)

    for number in NODES:
        assert creates(number) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with kafkalog.Admin(nodes.servers, config=admin_config()) as admin:
        right = AclBinding("topic", "f", f"User:{ALICE}", "create", pattern="prefixed")
        admin.create_acls([right]).check()
    for number in NODES:
        wait_for(lambda n=number: creates(n) != ErrorCode.TOPIC_AUTHORIZATION_FAILED, "it knows")
        assert creates(number) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_node_without_the_right_is_refused(nodes: SecuredNodes) -> None:
    with (
        pytest.raises(errors.AuthorizationFailed),
        kafkalog.Admin(nodes.servers, config=nodes.client) as admin,
    ):
        admin.create_topic("other", 1)
