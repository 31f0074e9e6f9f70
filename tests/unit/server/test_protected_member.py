"""A node of a cluster on ZooKeeper is asked to change what protects it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.cluster.node.member import Member
from kafkalog.config.authorizer import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from kafkalog.errors import InvalidSetting
from kafkalog.security.acls import Acl, Pattern, Permission
from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import ANONYMOUS
from kafkalog.server.broker import Broker, node_of
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import acls
from kafkalog.zookeeper.acls import Resource
from kafkalog.zookeeper.altering import entity_operations
from kafkalog.zookeeper.reading import CLIENTS
from kafkalog.zookeeper.session import Create, Set, open_session
from tests.kafka.cluster import deeds
from tests.support import sasl
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.test_acls import creation, wanted
from tests.unit.zookeeper.test_protecting import PLAIN
from tests.unit.zookeeper.test_tree import ZNODES

ROOTS = ("/config/changes", *CLIENTS, "/kafka-acl", "/kafka-acl-changes", "/kafka-acl-extended",
         "/kafka-acl-extended-changes")  # fmt: skip


def settings(hosts: str, **more: object) -> dict[str, object]:
    return {
        "node.id": 1, "zookeeper.connect": hosts, "controlled.shutdown.enable": False,
        "authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS", **more,
    }  # fmt: skip


@pytest.fixture
def inside() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


def test_the_same_requests_make_the_same_znodes_as_kafkas(inside: StandIn, tmp_path: Path) -> None:
    """Byte for byte, with their notifications: as recorded from Kafka 3.9.2."""
    with (
        Broker(tmp_path / "1", config=settings(inside.hosts)) as broker,
        Raw(broker.bootstrap_servers) as raw,
        open_session(inside.hosts, lambda _: None) as session,
    ):
        wait_for(lambda: node_of(broker).metadata.controller == 1, "it is the controller")
        deeds.settings(raw)
        found = {path: znode.data for path, znode in session.tree(*ROOTS).items() if znode.data}
    assert found == {
        path: znode.data for path, znode in ZNODES.items()
        if znode.data and any(path.startswith(f"{root}/") for root in ROOTS)
    }  # fmt: skip


def test_unreadable_protection_is_named_to_the_client(inside: StandIn, tmp_path: Path) -> None:
    resource = Resource.of(PLAIN)
    with (
        Broker(tmp_path / "1", config=settings(inside.hosts)) as broker,
        Raw(broker.bootstrap_servers) as raw,
        open_session(inside.hosts, lambda _: None) as session,
    ):
        session.ensure([*acls.folders_of(resource), "/config/users/alice"])
        assert session.commit([
            Create(acls.path_of(resource), b"{"), Set("/config/users/alice", b"s3cret"),
        ]).done  # fmt: skip
        row = creation(resource_name="plain", operation=4)
        (result,) = raw.call(apis.CREATE_ACLS, creations=[row]).results
        assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "/kafka-acl/Topic/plain" in result.error_message
        new = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt",
               "salted_password": bytes(32)}  # fmt: skip
        (result,) = raw.call(
            apis.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[new]
        ).results
        assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "/config/users/alice" in result.error_message
        assert "s3cret" not in result.error_message
        (result,) = raw.call(apis.CREATE_ACLS, creations=[{**row, "resource_name": "a/b"}]).results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "ZooKeeper cannot store" in result.error_message


def test_a_change_without_zookeeper_is_a_retriable_error(inside: StandIn, tmp_path: Path) -> None:
    with (
        Broker(tmp_path / "1", config=settings(inside.hosts)) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        inside.lose("/kafka-acl/Topic/t", done=False)
        (result,) = raw.call(apis.CREATE_ACLS, creations=[creation()]).results
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        (result,) = raw.call(apis.CREATE_ACLS, creations=[creation()]).results
        assert result.error_code == 0
        assert len(raw.call(apis.DESCRIBE_ACLS, **wanted()).resources) == 1


def test_the_controller_counts_changes_of_topics(inside: StandIn, tmp_path: Path) -> None:
    """Against the quota of the client, whom another node sends to the controller, as Kafka's do."""
    rate = {"key": "controller_mutation_rate", "value": 0.5, "remove": False}
    entity = [{"entity_type": "client-id", "entity_name": "raw"}]
    topic = {"num_partitions": 10, "replication_factor": 1}
    with (
        Broker(tmp_path / "1", config=settings(inside.hosts)) as one,
        Broker(tmp_path / "2", config=settings(inside.hosts, **{"node.id": 2})) as two,
        Raw(one.bootstrap_servers) as raw, Raw(two.bootstrap_servers) as elsewhere,
    ):  # fmt: skip
        wait_for(lambda: node_of(two).metadata.controller == 1, "the controller is known")
        entries = [{"entity": entity, "ops": [rate]}]
        assert not elsewhere.call(apis.ALTER_CLIENT_QUOTAS, entries=entries).entries[0].error_code
        for broker in (one, two):
            wait_for(lambda b=broker: node_of(b).image.quotas, "the quota is known")

        def created(raw: Raw, *names: str) -> tuple[list[int], int]:
            rows = [{"name": name, **topic} for name in names]
            answer = raw.call(apis.CREATE_TOPICS, topics=rows, timeout_ms=9_000)
            return [row.error_code for row in answer.topics], answer.throttle_time_ms

        assert created(elsewhere, "a") == ([ErrorCode.NOT_CONTROLLER], 0)
        codes, wait_ms = created(raw, "a", "b")
        assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED] and wait_ms > 0
        wait_for(lambda: "a" in node_of(two).image.topics, "the first is there")
        assert "b" not in node_of(two).image.topics


@pytest.mark.parametrize(
    ("listener", "supers", "missing"),
    [("PLAINTEXT", "User:admin", "User:ANONYMOUS"), ("PLAINTEXT", "User:ANONYMOUS", None),
     ("SASL_PLAINTEXT", "User:ANONYMOUS;User:bob", "User:alice"),
     ("SASL_PLAINTEXT", "User:bob; User:alice", None)],
)  # fmt: skip
def test_a_node_that_is_no_super_user_says_so(
    inside: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, listener: str, supers: str,
    missing: str | None,
) -> None:  # fmt: skip
    """Its password does not appear."""
    login = f'{sasl.PLAIN_MODULE} required username="alice" password="S3CRET" user_alice="S3CRET";'
    by_sasl = {
        **sasl.settings(), "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
    }  # fmt: skip
    config = settings(inside.hosts, **{
        **(by_sasl if listener.startswith("SASL") else {}), "super.users": supers,
        "listeners": f"{listener}://127.0.0.1:0", "inter.broker.listener.name": listener,
    })  # fmt: skip
    with Broker(tmp_path / "1", config=config):
        said = [one.getMessage() for one in caplog.records if "super.users" in one.getMessage()]
    assert len(said) == (missing is not None)
    assert all(one.startswith(f"super.users: wanted {missing} in it") for one in said)
    assert "S3CRET" not in caplog.text


def test_stored_settings_that_would_protect_are_refused(inside: StandIn, tmp_path: Path) -> None:
    """Before anything is written."""
    with open_session(inside.hosts, lambda _: None) as session:
        session.ensure(["/config/brokers", "/config/changes"])
        entity = "brokers", "1"
        stored = {"listener.name.plaintext.principal.builder.class": "example.Builder"}
        assert session.commit(entity_operations(entity, None, stored)).done
        with pytest.raises(InvalidSetting, match=r"broker 1: .*principal\.builder\.class") as found:
            Broker(tmp_path / "1", config=settings(inside.hosts))
        assert "example.Builder" not in str(found.value)
        assert session.children("/brokers/ids") in (None, [])
    assert not (tmp_path / "1").exists()


def test_a_mask_in_zookeeper_allows_nothing(inside: StandIn, tmp_path: Path) -> None:
    """It is shown, and kept if the resource gets another ACL."""
    masked = Acl(Kind.TOPIC, "t", Pattern.LITERAL, "User:ANONYMOUS", "127.0.0.0/8", Operation.READ,
                 Permission.ALLOW)  # fmt: skip
    config = settings(inside.hosts, **{"super.users": "User:admin"})
    ask = ANONYMOUS, "127.0.0.1", Operation.READ, Kind.TOPIC, "t"
    resource = Resource.of(masked)
    with open_session(inside.hosts, lambda _: None) as session:
        session.ensure(acls.folders_of(resource))
        assert session.commit(acls.operations(resource, None, {masked: True})).done
        with Broker(tmp_path / "1", config=config) as broker:
            node = node_of(broker)
            authorizer = node.admission._authorizer
            assert authorizer is not None
            assert not authorizer.allows(*ask)
            plain = masked._replace(host="127.0.0.1")
            wanted = acls.operations(resource, session.read(acls.path_of(resource)), {plain: True})
            assert session.commit(wanted).done
            wait_for(lambda: authorizer.allows(*ask), "the second one allows")
            assert set(node.image.acls.values()) == {masked, plain}


def test_acls_that_come_to_a_node_without_an_authorizer_are_warned_of(
    inside: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(inside.hosts, **{"authorizer.class.name": "", "super.users": ""})
    with (
        caplog.at_level(logging.WARNING),
        Broker(tmp_path / "1", config=config) as broker,
        Raw(broker.bootstrap_servers) as raw,
        open_session(inside.hosts, lambda _: None) as session,
    ):
        disabled = ErrorCode.SECURITY_DISABLED
        assert raw.call(apis.DESCRIBE_ACLS, **wanted()).error_code == disabled
        resource = Resource.of(PLAIN)
        session.ensure(acls.folders_of(resource))
        assert session.commit(acls.operations(resource, None, {PLAIN: True})).done
        wait_for(lambda: "EVERY CLIENT MAY DO EVERYTHING" in caplog.text, "it is said")


@pytest.mark.parametrize(
    ("clustered", "name"), [(True, STANDARD_AUTHORIZER), (False, ACL_AUTHORIZER)]
)
def test_each_kind_of_cluster_has_its_authorizer(
    tmp_path: Path, clustered: bool, name: str
) -> None:
    config = {"authorizer.class.name": name}
    if clustered:
        config["zookeeper.connect"] = "127.0.0.1:1"
    with pytest.raises(InvalidSetting, match=r"authorizer\.class\.name"):
        Broker(tmp_path / "data", config=config)
    assert not (tmp_path / "data").exists()


def test_an_id_that_only_the_controller_knows_yet_is_not_deleted(
    inside: StandIn, tmp_path: Path
) -> None:
    """The node would forward the request with its own rights."""
    config = settings(inside.hosts, **{
        **sasl.settings(), "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    })  # fmt: skip
    with (
        Broker(tmp_path / "1", config=config) as broker,
        Raw(f"127.0.0.1:{node_of(broker).advertised[0].port}") as admin,
        Raw(f"127.0.0.1:{node_of(broker).advertised[1].port}") as alice,
        open_session(inside.hosts, lambda _: None) as session,
    ):
        member = node_of(broker).metadata
        assert isinstance(member, Member)
        wait_for(lambda: member.controller == 1, "it is the controller")
        topic_id = admin.create("t").topic_id
        wait_for(lambda: topic_id in member.image.names, "the node knows the topic")
        assert sasl.authenticate(alice).error_code == 0
        member._use(topics={}, names={})  # as before the controller has said it
        wanted = [{"name": None, "topic_id": topic_id}]
        (row,) = alice.call(apis.DELETE_TOPICS, topics=wanted, timeout_ms=30_000).responses
        assert (row.error_code, row.error_message, row.topic_id, row.name) == (
            ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.", topic_id, None,
        )  # fmt: skip
        assert session.children("/admin/delete_topics") == []
        assert session.children("/brokers/topics") == ["t"]
