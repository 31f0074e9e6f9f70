"""Nodes that log in to each other by SCRAM, and clients with credentials that one of them was
given: all of it is in ZooKeeper, and so are the ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.config.authorizer import ACL_AUTHORIZER
from kafkalog.errors import KafkalogError, SaslAuthenticationFailed
from kafkalog.security.scram import Mechanism, credential_of
from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper import users
from kafkalog.zookeeper.altering import entity_operations
from kafkalog.zookeeper.session import open_session
from tests.support.secured import ALICE, PASSWORD, SCRAM, jaas
from tests.support.secured_nodes import LOGIN, NODES, SECRET, SecuredNodes
from tests.support.waiting import wait_for

AUTHORIZER = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": f"User:{LOGIN}"}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[SecuredNodes]:
    """Three; their own user is in ZooKeeper before the first one starts."""
    name = "SCRAM-SHA-256"
    with StandIn() as inside, open_session(inside.hosts, lambda _: None) as session:
        entity = users.entity_of_user(LOGIN)
        session.ensure(["/config/users", "/config/changes"])
        text = users.write_credential(credential_of(Mechanism.named(name), SECRET))
        assert session.commit(entity_operations(entity, None, {name: text})).done
        with SecuredNodes(tmp_path, inside.hosts, "SASL_PLAINTEXT", name) as made:
            made.begin(*NODES, settings=AUTHORIZER)
            made.all_known()
            yield made


def permitted(nodes: SecuredNodes, number: int) -> str | None:
    """The answer of a node to alice: None if it may describe topic t, else the error's name."""
    try:
        with kafkalog.Admin(nodes.nodes[number].bootstrap_servers, config=nodes.client) as alice:
            return None if "t" in alice.list_topics() else "nothing"
    except KafkalogError as problem:
        return type(problem).__name__


def test_credentials_and_acls_of_one_node_are_obeyed_by_all(nodes: SecuredNodes) -> None:
    as_node = {**nodes.client, "sasl.jaas.config": jaas(SCRAM, username=LOGIN, password=SECRET)}
    refused = SaslAuthenticationFailed.__name__
    assert [permitted(nodes, one) for one in NODES] == [refused] * 3

    def everywhere(wanted: str | None) -> None:
        wait_for(lambda: [permitted(nodes, one) for one in NODES] == [wanted] * 3, f"{wanted}",
                 pause_s=0.05)  # fmt: skip

    with kafkalog.Admin(nodes.servers, config=as_node) as admin:
        admin.create_topic("t", 1)
        new = kafkalog.UserScramCredentialUpsertion(ALICE, "SCRAM-SHA-256", PASSWORD)
        admin.alter_user_scram_credentials([new]).check()
        everywhere("nothing")
        for operation in ("describe", "write"):
            acl = kafkalog.AclBinding("topic", "t", f"User:{ALICE}", operation)
            admin.create_acls([acl]).check()
        everywhere(None)
        nodes.produce("t", b"by alice")
        assert nodes.values("t") == [b"by alice"]
        nodes.end(2)
        admin.alter_user_scram_credentials([(ALICE, "SCRAM-SHA-256")]).check()
        nodes.begin(2, settings=AUTHORIZER)
        everywhere(refused)
