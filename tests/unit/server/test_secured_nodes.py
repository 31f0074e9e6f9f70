"""A cluster whose nodes reach each other by TLS, a login, or both."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.client.link.connection import Connection
from kafkalog.config.authorizer import ACL_AUTHORIZER
from kafkalog.server.broker import node_of
from kafkalog.server.replica_manager import ReplicaManager
from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import open_session
from tests.support.secured import ALICE
from tests.support.secured_nodes import LISTENER, LOGIN, NODES, SECRET, SecuredNodes
from tests.support.waiting import wait_for

LOGGER = "kafkalog.replication.inter_broker"


@pytest.fixture
def zookeeper() -> Iterator[str]:
    with StandIn() as inside:
        yield inside.hosts


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", "PLAIN"), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "PLAIN"),
     pytest.param("SASL_SSL", "OAUTHBEARER", marks=pytest.mark.long)],
)  # fmt: skip
def test_three_nodes_share_a_partition(
    tmp_path: Path, zookeeper: str, protocol: str, mechanism: str
) -> None:
    """It is copied, its leader is killed, another one leads, and the killed one catches up."""
    with SecuredNodes(tmp_path, zookeeper, protocol, mechanism) as nodes:
        nodes.begin(*NODES)
        nodes.all_known()
        with open_session(zookeeper, lambda _: None) as session:
            for number, one in nodes.nodes.items():
                found = session.read(tree.broker_path(number))
                assert found is not None
                (at,) = tree.read_broker(number, found.data).endpoints
                assert (at.listener, at.protocol) == (LISTENER, protocol)
                assert f"{at.host}:{at.port}" == one.bootstrap_servers
        nodes.create("t")
        nodes.produce("t", b"1", b"2")
        gone = nodes.leader("t")
        nodes.kill(gone)
        wait_for(lambda: nodes.leader("t") in nodes.nodes, "another leads")
        nodes.produce("t", b"3")
        nodes.begin(gone)
        nodes.in_sync("t", *NODES)
        assert nodes.values("t") == [b"1", b"2", b"3"]


@pytest.mark.long
def test_a_partition_is_reassigned(tmp_path: Path, zookeeper: str) -> None:
    """With its leader, while records are written; under an authorizer, and back."""
    with SecuredNodes(tmp_path, zookeeper, "SASL_SSL") as nodes:
        settings = {"authorizer.class.name": ACL_AUTHORIZER,
                    "super.users": f"User:{LOGIN};User:{ALICE}"}  # fmt: skip
        nodes.begin(*NODES, settings={**settings, "default.replication.factor": 2})
        nodes.all_known()
        with kafkalog.Admin(nodes.servers, config=nodes.client) as admin:
            admin.create_topics([("t", -1, -1, {}, [[1, 2]])]).check()
            nodes.in_sync("t", 1, 2)
            for number, replicas in enumerate(((2, 3), (3, 1), (1, 2))):
                nodes.produce("t", b"%d" % (2 * number))
                admin.alter_partition_reassignments({("t", 0): list(replicas)}).check()
                nodes.produce("t", b"%d" % (2 * number + 1))
                nodes.in_sync("t", *replicas)
                wait_for(lambda: not admin.list_partition_reassignments(), "it is over")
                wait_for(lambda r=replicas: nodes.leader("t") in r, "one of them leads")
        wanted = [b"%d" % number for number in range(6)]
        wait_for(lambda: nodes.values("t") == wanted, "all are there")


def test_transactions_and_groups(tmp_path: Path, zookeeper: str) -> None:
    """Coordinators and leaders on different nodes speak with each other."""
    with SecuredNodes(tmp_path, zookeeper, "SASL_SSL") as nodes:
        nodes.begin(*NODES)
        nodes.all_known()
        nodes.create("t", 3)
        for number in range(3):
            name = f"writer-{number}"
            with kafkalog.Producer(
                nodes.servers, transactional_id=name, config=nodes.client
            ) as producer:
                with producer.transaction():
                    for partition in range(3):
                        producer.send("t", b"kept", partition=partition)
                producer.begin_transaction()
                producer.send("t", b"dropped", partition=number)
                producer.flush()
                producer.abort_transaction()
        for number in range(3):
            wait_for(
                lambda n=number: nodes.values("t", n) == [b"kept"] * 3, "the markers are there"
            )
        with kafkalog.Consumer(
            nodes.servers, group="g", auto_offset_reset="earliest",
            isolation="read_committed", config=nodes.client,
        ) as consumer:  # fmt: skip
            consumer.subscribe(["t"])
            found: list[object] = []

            def all_read() -> bool:
                found.extend(consumer.poll(100))
                return len(found) >= 9

            wait_for(all_read, "all are read")
            consumer.commit()
            assert len(found) == 9


@pytest.mark.long
def test_logins_between_nodes_are_renewed(tmp_path: Path, zookeeper: str) -> None:
    """On the same connection (KIP-368), while records are copied over it."""
    with SecuredNodes(tmp_path, zookeeper, "SASL_PLAINTEXT") as nodes:
        nodes.begin(*NODES, settings={"connections.max.reauth.ms": 2000})
        nodes.all_known()
        nodes.create("t")
        follower = min({*NODES} - {nodes.leader("t")})
        replicas = node_of(nodes.nodes[follower]).partitions
        assert isinstance(replicas, ReplicaManager)
        begun: dict[Connection, float] = {}

        def renewed() -> bool:
            for one in replicas._fetchers._by_leader.values():
                if (found := one._connection) is not None and not found.closed:
                    begun.setdefault(found, found._renew_s)
            return any(one._renew_s > first and not one.closed for one, first in begun.items())

        wait_for(renewed, "a login is renewed")
        nodes.produce("t", b"1")


def test_a_wrong_password_is_logged_once_and_the_node_recovers(
    tmp_path: Path, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    with SecuredNodes(tmp_path, zookeeper, "SASL_SSL") as nodes:
        nodes.begin(1, 2)
        nodes.all_known()
        nodes.begin(3, password="wrong" + SECRET)
        with kafkalog.Admin(nodes.servers, config=nodes.client) as admin:
            admin.create_topics([("t", -1, -1, {}, [[1, 2, 3]])]).check()
        nodes.in_sync("t", 1, 2)
        nodes.produce("t", b"1")
        said = [one.getMessage() for one in caplog.records
                if one.name == LOGGER and one.levelno == logging.ERROR]  # fmt: skip
        assert said and len(said) == len({*said}) <= 2  # about nodes 1 and 2
        for one in said:
            assert re.search(r"listener INSIDE: .*127\.0\.0\.1:\d+: PLAIN: .*password", one)
        assert SECRET not in caplog.text
        nodes.end(3)
        nodes.begin(3)
        nodes.in_sync("t", *NODES)


@pytest.mark.long
def test_a_wrong_certificate_is_logged_and_a_right_one_is_taken_without_a_restart(
    tmp_path: Path, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No node follows one whose certificate is for another host; new keys are for new connections
    in both directions."""
    caplog.set_level(logging.INFO)
    with SecuredNodes(tmp_path, zookeeper, "SSL") as nodes:
        nodes.begin(1, 2)
        nodes.all_known()
        nodes.present(3, nodes.papers.elsewhere)
        nodes.begin(3)
        wait_for(lambda: "certificate is not accepted" in caplog.text, "it is refused")
        nodes.present(3, nodes.papers.server)
        nodes.all_known()
        nodes.create("t")
        nodes.produce("t", b"1")
        assert "they accept each other again" in caplog.text


@pytest.mark.long
def test_certificates_of_a_running_cluster_are_renewed(
    tmp_path: Path, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By another authority, which all trust first; no node stops."""
    caplog.set_level(logging.INFO)
    with SecuredNodes(tmp_path, zookeeper, "SSL") as nodes:
        nodes.begin(*NODES)
        nodes.all_known()
        nodes.create("t")
        others = tmp_path / "others"
        others.mkdir()
        new = type(nodes)(others, zookeeper, "SSL").papers
        both = nodes.papers.authority.read_bytes() + new.authority.read_bytes()
        fresh = tmp_path / "both.pem"
        fresh.write_bytes(both)
        fresh.replace(nodes.papers.authority)
        listening = f"listener {LISTENER}: new connections use the changed keys"
        wait_for(lambda: caplog.text.count(listening) >= 3, "all trust both")
        for number in NODES:
            nodes.present(number, new.server)
        wait_for(lambda: caplog.text.count(listening) >= 6, "all have new keys")
        nodes.kill(1)
        nodes.begin(1)
        nodes.in_sync("t", *NODES)
        nodes.produce("t", b"1")
