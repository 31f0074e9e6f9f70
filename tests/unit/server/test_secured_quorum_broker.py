"""A broker of a KRaft cluster whose listeners, and whose scripted controller's, are protected."""

from __future__ import annotations

import base64
import contextlib
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.config.authorizer import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from kafkalog.config.declare import Password
from kafkalog.metadata.changes import acl_fields, token_fields
from kafkalog.security.acls import Acl, Pattern, Permission
from kafkalog.security.permissions import Kind, Operation
from kafkalog.security.principal import Principal
from kafkalog.security.scram import Mechanism, credential_of
from kafkalog.security.tokens import Token, hmac_of
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import sasl
from tests.support.certificates import Certificates
from tests.support.controllers import Controller
from tests.support.raw import Raw
from tests.support.secured import PLAIN, SCRAM, jaas
from tests.support.waiting import wait_for

NODE, LOGIN, SECRET = 2, "node", "what; nodes=say"
ORDERS = UUID(int=100)
KEY = "k3y"


@pytest.fixture
def papers(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def controller(papers: Certificates) -> Iterator[Controller]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    papers.server.configure_cert(context)
    with Controller(tls=context, login=f"{LOGIN}:{SECRET}") as running:
        yield running


def settings(controller: Controller, papers: Certificates, **more: object) -> dict[str, object]:
    """SASL_SSL at the controller, SASL_PLAINTEXT with SCRAM and PLAIN for clients."""
    protocols = "CONTROLLER:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
    return {
        **sasl.settings("PLAIN", "SCRAM-SHA-256"), **controller.settings, "node.id": NODE,
        "listener.security.protocol.map": protocols, **papers.settings(),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": jaas(
            PLAIN, username=LOGIN, password=SECRET
        ),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas(
            PLAIN, username=LOGIN, password=SECRET,
            **{f"user_{name}": password for name, password in sasl.USERS.items()},
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"User:{LOGIN}",
        "delegation.token.secret.key": KEY,
        **{name.replace("_", "."): value for name, value in more.items()},
    }  # fmt: skip


@contextlib.contextmanager
def as_user(broker: Broker, user: str) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers) as raw:
        assert not sasl.authenticate(raw, user).error_code
        yield raw


def allow(controller: Controller, user: str, operation: Operation, topic: str) -> None:
    acl = Acl(Kind.TOPIC, topic, Pattern.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)
    controller.write(("AccessControlEntryRecord", acl_fields(UUID(int=len(topic)), acl)))


def test_it_logs_in_to_the_controllers_on_every_connection(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    with Broker(tmp_path / "d", config=settings(controller, papers)):
        assert controller.count(apis.BROKER_REGISTRATION)
        (listener,) = controller.sent(apis.BROKER_REGISTRATION)[0].listeners
        assert (listener.name, listener.security_protocol) == ("SASL_PLAINTEXT", 2)
    assert controller.logins == [True] * controller.connections


def test_a_refused_login_ends_the_start_and_is_logged_without_the_password(
    controller: Controller, papers: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = jaas(PLAIN, username=LOGIN, password="wr0ng")
    config = settings(controller, papers) | {
        "listener.name.controller.plain.sasl.jaas.config": wrong,
        "initial.broker.registration.timeout.ms": 200,
    }
    with pytest.raises(errors.Timeout, match=r"PLAIN: .*Authentication failed") as found:
        Broker(tmp_path / "d", config=config)
    assert controller.logins and not any(controller.logins)
    assert caplog.text.count("listener CONTROLLER: this node and another do not accept") == 1
    assert "wr0ng" not in caplog.text + str(found.value)


def test_an_untrusted_controller_gets_no_password(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    config = settings(controller, papers) | {
        "listener.name.controller.ssl.truststore.location": str(Certificates(other).trust),
        "initial.broker.registration.timeout.ms": 200,
    }
    with pytest.raises(errors.Timeout, match="certificate"):
        Broker(tmp_path / "d", config=config)
    assert controller.logins == []


def test_credentials_and_acls_come_from_the_metadata_log(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    """Also those that are written while it runs."""
    with Broker(tmp_path / "d", config=settings(controller, papers)) as broker:
        controller.topic("orders", ORDERS, NODE, leader=NODE)
        wait_for(lambda: "orders" in node_of(broker).image.topics, "the topic is known")
        with Raw(broker.bootstrap_servers) as raw:
            assert sasl.scram(raw, "carol", "pencil").error_code == (
                ErrorCode.SASL_AUTHENTICATION_FAILED
            )
        made = credential_of(Mechanism.SCRAM_SHA_256, "pencil")
        controller.write(("UserScramCredentialRecord", {
            "name": "carol", "mechanism": 1, **made._asdict()}))  # fmt: skip
        wait_for(lambda: node_of(broker).image.scram, "the credential is known")
        with Raw(broker.bootstrap_servers) as raw:
            assert sasl.scram(raw, "carol", "pencil").error_code == 0

            def code() -> int:
                return int(raw.produce("orders", b"1").error_code)

            assert code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            allow(controller, "carol", Operation.WRITE, "orders")
            wait_for(lambda: code() == 0, "the ACL is obeyed")


def test_the_controller_decides_about_forwarded_requests(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    """By the client's principal: its ACLs are newer than the broker's."""
    row = {"name": "orders", "topic_id": ORDERS, "error_code": 0, "error_message": None}
    controller.answers[apis.CREATE_TOPICS.key] = {"topics": [row]}
    controller.answers[apis.CREATE_ACLS.key] = {"results": [{"error_code": 0}]}
    with (
        Broker(tmp_path / "d", config=settings(controller, papers)) as broker,
        as_user(broker, "alice") as raw,
    ):
        assert raw.create("orders").error_code == 0
        creation = {"resource_type": 2, "resource_name": "x", "resource_pattern_type": 3,
                    "principal": "User:bob", "host": "*", "operation": 3,
                    "permission_type": 3}  # fmt: skip
        assert raw.call(apis.CREATE_ACLS, creations=[creation]).results[0].error_code == 0
        found = raw.call(apis.DESCRIBE_ACLS, resource_type_filter=1, pattern_type_filter=1,
                         operation=1, permission_type=1)  # fmt: skip
        assert found.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "this one answers itself"
    assert {one[:2] for one in controller.enveloped} == {
        ("CreateTopics", "User:alice"), ("CreateAcls", "User:alice"),
    }  # fmt: skip


def test_the_controllers_throttle_time_is_the_clients(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    """Together with a quota of the broker's own, and the connection is muted for it."""
    controller.answers[apis.CREATE_TOPICS.key] = {
        "topics": [{"name": "orders", "error_code": ErrorCode.THROTTLING_QUOTA_EXCEEDED}],
        "throttle_time_ms": 70,
    }
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    controller.write(("ClientQuotaRecord", {
        "entity": entity, "key": "request_percentage", "value": 0.0001}))  # fmt: skip
    with (
        Broker(tmp_path / "d", config=settings(controller, papers)) as broker,
        as_user(broker, "alice") as raw,
    ):
        body = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
        answer = raw.call(apis.CREATE_TOPICS, topics=[body], timeout_ms=1000)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert answer.throttle_time_ms >= 70


def test_clients_of_this_process_need_no_rights(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    """The controller knows them as the broker, whom it trusts."""
    row = {"name": "orders", "topic_id": ORDERS, "error_code": 0, "error_message": None}
    controller.on(apis.CREATE_TOPICS, {"topics": [row]})
    with (
        Broker(tmp_path / "d", config=settings(controller, papers)) as broker,
        kafkalog.Admin(broker.transport) as admin,
    ):
        admin.create_topics([("orders", 1, 1)]).check()
    assert controller.count(apis.CREATE_TOPICS) == 1 and controller.enveloped == []


# ---- delegation tokens -----------------------------------------------------------------------


def token_of(user: str, name: str = "t0") -> Token:
    owner, far_ms = Principal("User", user), 1 << 50
    return Token(name, owner, owner, (), 1, far_ms, far_ms)


def test_tokens_are_made_by_the_controller_and_obeyed_by_the_broker(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    """Owners log in with them, and see their own."""
    secret = hmac_of(Password(KEY), "t0")
    controller.answers[apis.CREATE_DELEGATION_TOKEN.key] = {
        "principal_type": "User", "principal_name": "alice", "token_id": "t0", "hmac": secret,
    }  # fmt: skip
    controller.answers[apis.RENEW_DELEGATION_TOKEN.key] = {"expiry_timestamp_ms": 7}
    controller.answers[apis.EXPIRE_DELEGATION_TOKEN.key] = {"expiry_timestamp_ms": 8}
    with Broker(tmp_path / "d", config=settings(controller, papers)) as broker:
        with as_user(broker, "alice") as raw:
            made = raw.call(apis.CREATE_DELEGATION_TOKEN, renewers=[], max_lifetime_ms=-1)
            assert (made.error_code, made.token_id, bytes(made.hmac)) == (0, "t0", secret)
            controller.write(("DelegationTokenRecord", token_fields(token_of("alice"))))
            controller.write(("DelegationTokenRecord", token_fields(token_of("bob", "t1"))))
            wait_for(lambda: len(node_of(broker).image.tokens) == 2, "the tokens are known")
            (mine,) = raw.call(apis.DESCRIBE_DELEGATION_TOKEN, owners=None).tokens
            assert (mine.token_id, bytes(mine.hmac)) == ("t0", secret)
            renewed = raw.call(apis.RENEW_DELEGATION_TOKEN, hmac=secret, renew_period_ms=-1)
            ended = raw.call(apis.EXPIRE_DELEGATION_TOKEN, hmac=secret, expiry_time_period_ms=1)
            assert (renewed.expiry_timestamp_ms, ended.expiry_timestamp_ms) == (7, 8)
        with Raw(broker.bootstrap_servers) as raw:
            password = base64.b64encode(secret).decode()
            assert not sasl.scram(raw, "t0", password, by_token=True).error_code
            refused = raw.call(apis.CREATE_DELEGATION_TOKEN, renewers=[], max_lifetime_ms=-1)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            controller.answers[apis.CREATE_TOPICS.key] = {"topics": []}
            raw.call(apis.CREATE_TOPICS, topics=[], timeout_ms=1)
    assert [one[:2] for one in controller.enveloped] == [
        ("CreateDelegationToken", "User:alice"), ("RenewDelegationToken", "User:alice"),
        ("ExpireDelegationToken", "User:alice"), ("CreateTopics", "User:alice"),
    ]  # fmt: skip


def test_a_token_for_another_user_needs_the_right(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    """The broker checks it, as Kafka's does, before it asks the controller."""
    with (
        Broker(tmp_path / "d", config=settings(controller, papers)) as broker,
        as_user(broker, "alice") as raw,
    ):
        refused = raw.call(
            apis.CREATE_DELEGATION_TOKEN, owner_principal_type="User", owner_principal_name="bob",
            renewers=[], max_lifetime_ms=-1,
        )  # fmt: skip
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert controller.enveloped == []


# ---- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("authorizer.class.name", ACL_AUTHORIZER, "authorizer.class.name"),
        ("sasl.mechanism.controller.protocol", "GSSAPI", "wanted one of PLAIN"),
        ("listener.security.protocol.map", "SASL_PLAINTEXT:SASL_PLAINTEXT", "CONTROLLER has"),
        ("listener.name.other.ssl.keystore.location", "/x", "OTHER is no listener"),
        ("listener.name.controller.plain.sasl.jaas.config", "", "found none"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(
    controller: Controller, papers: Certificates, tmp_path: Path, name: str, value: str, wanted: str
) -> None:
    with pytest.raises(errors.InvalidSetting, match=wanted):
        Broker(tmp_path / "d", config={**settings(controller, papers), name: value})
    assert not (tmp_path / "d").exists()
    assert controller.logins == []


def test_stored_settings_that_would_not_protect_are_refused(
    controller: Controller, papers: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At a start; while it runs, each is an error in the log."""
    caplog.set_level(logging.ERROR)
    record = {"resource_type": 4, "resource_name": str(NODE), "name": "super.users",
              "value": "User:eve"}  # fmt: skip
    with Broker(tmp_path / "d", config=settings(controller, papers)):
        controller.write(("ConfigRecord", record))
        wait_for(lambda: "broker 2: super.users: found a value" in caplog.text, "it is logged")
    with pytest.raises(errors.InvalidSetting, match=r"super\.users"):
        Broker(tmp_path / "d", config=settings(controller, papers))


def test_a_node_that_is_no_super_user_is_an_error_in_the_log(
    controller: Controller, papers: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path / "d", config=settings(controller, papers, super_users="User:x")):
        pass
    assert f"super.users: wanted User:{LOGIN} in it" in caplog.text


def test_scram_logs_in_to_controllers(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    """The settings are taken; a controller that does not offer it is named."""
    config = settings(controller, papers) | {
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": jaas(
            SCRAM, username=LOGIN, password=SECRET
        ),
        "initial.broker.registration.timeout.ms": 200,
    }
    controller.on(
        apis.SASL_HANDSHAKE,
        {"error_code": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanisms": ["PLAIN"]},
    )
    with pytest.raises(errors.Timeout, match="SCRAM-SHA-512: the broker offers PLAIN"):
        Broker(tmp_path / "d", config=config)


def test_levels_of_loggers_are_its_own_affair(
    controller: Controller, papers: Certificates, tmp_path: Path
) -> None:
    """The controller checks the other changes of settings; this one never reaches it."""
    name = "kafkalog.server.share_effects"
    change = {"name": name, "config_operation": 0, "value": "FATAL"}
    resource = {"resource_type": 8, "resource_name": str(NODE), "configs": [change]}
    config = settings(controller, papers, super_users=f"User:{LOGIN};User:bob")
    with Broker(tmp_path / "d", config=config) as broker:
        for user, code in (("alice", ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ("bob", 0)):
            with as_user(broker, user) as raw:
                answer = raw.call(
                    apis.INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False
                )
            assert [row.error_code for row in answer.responses] == [code]
        assert not controller.sent(apis.ENVELOPE)
    assert logging.getLogger(name).level == logging.CRITICAL
    logging.getLogger(name).setLevel(logging.NOTSET)
