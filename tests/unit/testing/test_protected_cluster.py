"""Three nodes with an authorizer: ACLs, credentials and quotas that one of them is asked to change
are obeyed by all.

All clients are anonymous here, and so are the nodes to each other: the tree gives them what nodes
need before the first one starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.config.authorizer import ACL_AUTHORIZER
from kafkalog.security.acls import Acl, Pattern, Permission
from kafkalog.security.permissions import CLUSTER_NAME, Kind, Operation
from kafkalog.server.broker import node_of
from kafkalog.testing.cluster import NODES, TestCluster
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import acls
from kafkalog.zookeeper.session import Create, open_session
from tests.support import batches
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.test_acls import creation, wanted
from tests.unit.server.test_quotas import alter, described

pytestmark = pytest.mark.kafkalog(zookeeper=True)

ME = "User:ANONYMOUS"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ADMINISTRATION = (
    Operation.CLUSTER_ACTION, Operation.ALTER, Operation.DESCRIBE, Operation.CREATE,
    Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)  # fmt: skip


def permit(hosts: str, *operations: Operation) -> None:
    """Give everybody these permissions on the cluster."""
    some = [Acl(Kind.CLUSTER, CLUSTER_NAME, Pattern.LITERAL, ME, "*", one, Permission.ALLOW)
            for one in operations]  # fmt: skip
    resource = acls.Resource.of(some[0])
    with open_session(hosts, lambda _: None) as session:
        session.ensure(acls.folders_of(resource))
        assert session.commit([Create(acls.path_of(resource), acls.write_acls(some))]).done


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    config = {"authorizer.class.name": ACL_AUTHORIZER}
    with StandIn() as inside:
        permit(inside.hosts, *ADMINISTRATION)
        with TestCluster(tmp_path, inside.hosts, config=config) as made:
            yield made


def raw(cluster: TestCluster, node: int) -> Raw:
    return Raw(cluster.nodes[node].bootstrap_servers, "c")


def produced(cluster: TestCluster, partition: int) -> int:
    """The error of a Produce to the leader of a partition of topic t."""
    with raw(cluster, cluster.leader("t", partition)) as leader:
        return int(leader.produce("t", b"v", partition=partition).error_code)


def everywhere(cluster: TestCluster, wanted: int) -> None:
    """Wait until the leader of each partition, each on another node, answers this."""
    cluster.wait_until(lambda: all(produced(cluster, n) == wanted for n in range(NODES)), "obeyed")


def test_acls_that_one_node_is_given_are_obeyed_by_all(cluster: TestCluster) -> None:
    """In effect there with the answer, on the others soon; and after a node's restart."""
    cluster.create_topic("t", partitions=NODES)
    assert {cluster.leader("t", n) for n in range(NODES)} == {1, 2, 3}
    everywhere(cluster, DENIED)
    write = creation(operation=Operation.WRITE)
    for node in cluster.nodes:
        with raw(cluster, node) as asked:
            assert asked.call(apis.CREATE_ACLS, creations=[write]).results[0].error_code == 0
            own = next(n for n in range(NODES) if cluster.leader("t", n) == node)
            assert produced(cluster, own) == 0
            everywhere(cluster, 0)
            filters = [wanted(operation=Operation.WRITE)]
            (gone,) = asked.call(apis.DELETE_ACLS, filters=filters).filter_results
            assert len(gone.matching_acls) == 1
            assert produced(cluster, own) == DENIED
            everywhere(cluster, DENIED)
    cluster.stop(1)
    with raw(cluster, 2) as asked:
        prefix = creation(operation=Operation.WRITE, resource_name="",
                          resource_pattern_type=Pattern.PREFIXED)  # fmt: skip
        refused = asked.call(apis.CREATE_ACLS, creations=[prefix]).results[0]
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        asked.call(apis.CREATE_ACLS, creations=[{**write, "principal": "User:*"}])
    cluster.start(1)
    cluster.wait_until(lambda: cluster.in_sync("t") == [1, 2, 3], "it is back")
    everywhere(cluster, 0)
    shown = []
    for node in cluster.nodes:
        with raw(cluster, node) as asked:
            shown.append(asked.call(apis.DESCRIBE_ACLS, **wanted()).resources)
    assert shown[0] == shown[1] == shown[2]
    assert [one.resource_name for one in shown[0]] == ["t", CLUSTER_NAME]


def test_nobody_without_permission_changes_protection(tmp_path: Path) -> None:
    """The node that is asked checks; it neither forwards nor writes."""
    config = {"authorizer.class.name": ACL_AUTHORIZER}
    with StandIn() as inside:
        permit(inside.hosts, Operation.CLUSTER_ACTION)
        with TestCluster(tmp_path, inside.hosts, config=config) as cluster:
            for node in cluster.nodes:
                with raw(cluster, node) as asked:
                    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                    found: Any = asked.call(apis.CREATE_ACLS, creations=[creation()])
                    assert found.results[0].error_code == refused
                    found = asked.call(apis.DELETE_ACLS, filters=[wanted()])
                    assert found.filter_results[0].error_code == refused
                    assert asked.call(apis.DESCRIBE_ACLS, **wanted()).error_code == refused
                    assert alter(asked, {"user": "u"}, producer_byte_rate=1.0).error_code == refused
                    found = asked.call(
                        apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[credential()]
                    )
                    assert found.results[0].error_code == refused
            for one in cluster.nodes.values():
                image = node_of(one.broker).image
                assert len(image.acls) == 1 and not image.scram and not image.quotas


def credential(user: str = "alice") -> dict[str, Any]:
    return {"name": user, "mechanism": 1, "iterations": 4096, "salt": b"salt",
            "salted_password": bytes(32)}  # fmt: skip


@pytest.mark.kafkalog(topics={"t": 3})
def test_quotas_that_one_node_is_given_slow_clients_down_on_all(
    kafkalog_cluster: TestCluster,
) -> None:
    cluster = kafkalog_cluster

    def waits(partition: int) -> bool:
        body = {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [
                {
                    "name": "t",
                    "partition_data": [
                        {"index": partition, "records": batches.batch([batches.Row(b"v", b"k", 0)])}
                    ],
                }
            ],
        }
        with raw(cluster, cluster.leader("t", partition)) as leader:
            return bool(leader.call(apis.PRODUCE, 9, **body).throttle_time_ms > 0)  # fmt: skip

    assert not any(waits(n) for n in range(NODES))
    with raw(cluster, 1) as asked:
        assert alter(asked, {"client-id": "c"}, producer_byte_rate=1.0).error_code == 0
        wait_for(lambda: all(waits(n) for n in range(NODES)), "all slow it down")
    with raw(cluster, 2) as asked:
        assert described(asked) == {(("client-id", "c"),): {"producer_byte_rate": 1.0}}
        assert alter(asked, {"client-id": "c"}, producer_byte_rate=None).error_code == 0
        wait_for(lambda: not any(waits(n) for n in range(NODES)), "none does")


@pytest.mark.kafkalog(topics={})
def test_credentials_that_one_node_is_given_are_known_to_all(
    kafkalog_cluster: TestCluster,
) -> None:
    """Described on every node, and the same keys."""
    cluster = kafkalog_cluster
    new = kafkalog.UserScramCredentialUpsertion("alice", "SCRAM-SHA-256", "s3cret", 8192)
    with kafkalog.Admin(cluster.nodes[3].bootstrap_servers) as admin:
        admin.alter_user_scram_credentials([new]).check()
        (info,) = admin.describe_user_scram_credentials(["alice"]).check()["alice"]
        assert info.iterations == 8192

    def known() -> list[Any]:
        return [node_of(one.broker).image.scram for one in cluster.nodes.values()]

    wait_for(lambda: known()[0] == known()[1] == known()[2] != {}, "all know it")
    with kafkalog.Admin(cluster.nodes[1].bootstrap_servers) as admin:
        admin.alter_user_scram_credentials([("alice", "SCRAM-SHA-256")]).check()
    wait_for(lambda: known() == [{}, {}, {}], "it is gone everywhere")


def test_the_commands_work_against_a_cluster(
    cluster: TestCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(node: int, *words: str) -> str:
        address = cluster.nodes[node].bootstrap_servers
        assert main([*words, "--bootstrap-server", address]) == 0
        return capsys.readouterr().out

    run(1, "acls", "add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t")
    cluster.wait_until(lambda: "User:alice" in run(2, "acls", "list"), "the ACL is listed")
    alice = ("--entity-type", "users", "--entity-name", "alice")
    run(2, "quotas", "alter", *alice, "--add", "producer_byte_rate=1000")
    cluster.wait_until(lambda: "1000" in run(3, "quotas"), "the quota is listed")
