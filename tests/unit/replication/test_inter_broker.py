"""The login and the keys of a node's connections to others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.link.transport import Address, Options, parse_servers
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.config.sasl import LOGS_IN
from kafkalog.config.server import ServerConfig
from kafkalog.replication.inter_broker import (
    NodeSecurity,
    connect,
    node_securities,
    own_principals,
)
from kafkalog.wire import apis
from tests.support.bearer import Issuer
from tests.support.sasl import settings as sasl_settings
from tests.support.secured import PLAIN, SCRAM, jaas, papers
from tests.support.waiting import wait_for

OWN = "listener.name.in."


def config(protocol: str, control: str = "", **more: Any) -> ServerConfig:
    listeners, protocols = "IN://h:1", f"IN:{protocol}"
    found: dict[str, object] = {"inter.broker.listener.name": "IN"}
    if control:
        listeners, protocols = f"{listeners},CTL://h:2", f"{protocols},CTL:{control}"
        found["control.plane.listener.name"] = "CTL"
    found |= {name.replace("__", "-").replace("_", "."): value for name, value in more.items()}
    return ServerConfig.of(
        {"listeners": listeners, "listener.security.protocol.map": protocols, **found}
    )


def sasl(mechanism: str = "PLAIN", **more: Any) -> dict[str, object]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "sasl_enabled_mechanisms": mechanism, "sasl_mechanism_inter_broker_protocol": mechanism,
        f"listener_name_in_{mechanism.lower().replace('-', '__')}_sasl_jaas_config":
            jaas(module, username="node", password="S3CRET", user_node="S3CRET"), **more,
    }  # fmt: skip


def bearer(url: str = "file:///token", **more: Any) -> dict[str, object]:
    return {
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_mechanism_inter_broker_protocol": "OAUTHBEARER",
        "listener_name_in_oauthbearer_sasl_login_callback_handler_class": LOGS_IN,
        "sasl_oauthbearer_token_endpoint_url": url, **more,
    }  # fmt: skip


def test_plain_text_needs_none() -> None:
    assert not node_securities(config("PLAINTEXT"))
    assert not node_securities(ServerConfig())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_node_logs_in_by_the_settings_of_its_listener(mechanism: str) -> None:
    (found,) = node_securities(config("SASL_PLAINTEXT", **sasl(mechanism))).values()
    assert (found.listener, found.protocol, found.mechanism) == ("IN", "SASL_PLAINTEXT", mechanism)
    assert found.number == 2 and "S3CRET" not in repr(found)


def test_each_listener_has_its_own() -> None:
    found = node_securities(config("SASL_SSL", "SSL", **sasl()))
    assert {name: one.protocol for name, one in found.items()} == {"IN": "SASL_SSL", "CTL": "SSL"}
    assert found["CTL"].mechanism == ""
    assert [*node_securities(config("PLAINTEXT", "SSL"))] == ["CTL"]


def test_a_node_logs_in_by_its_token(tmp_path: Path) -> None:
    """Its principal is the token's, so it is not known before."""
    issuer = Issuer(tmp_path)
    listening = {
        "listeners": "IN://127.0.0.1:0", "listener.security.protocol.map": "IN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "IN", "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:node",
        **issuer.node("IN", "node"),
    }  # fmt: skip
    own = ServerConfig.of(listening)
    assert not own_principals(own)
    how = Options(security=node_securities(own)["IN"])
    with kafkalog.Broker(tmp_path / "data", config=listening) as broker:
        (address,) = parse_servers(broker.bootstrap_servers)
        made = connect(address, how)
        assert made.call(apis.ALTER_PARTITION_REASSIGNMENTS, {"topics": []}).error_code == 0
        made.close()
        for one in issuer.keys.parent.glob("*.token"):
            assert one.read_text() not in repr(how.security)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "sasl.mechanism.inter.broker.protocol: found GSSAPI, wanted one of PLAIN"),
        ({"sasl_mechanism_inter_broker_protocol": "OAUTHBEARER"}, "wanted one of sasl.enabled"),
        (bearer(listener_name_in_oauthbearer_sasl_login_callback_handler_class=""),
         r"listener\.name\.in\.oauthbearer\.sasl\.login\.callback\.handler\.class: found none"),
        (bearer(sasl_oauthbearer_token_endpoint_url=""), "sasl.oauthbearer.token.endpoint.url: "),
        (bearer(listener_name_in_oauthbearer_sasl_jaas_config=jaas(SCRAM)), "wanted .*OAuthBearer"),
        (sasl(sasl_enabled_mechanisms="SCRAM-SHA-256"), "wanted one of sasl.enabled.mechanisms"),
        (sasl(listener_name_in_plain_sasl_jaas_config=""), "sasl.jaas.config: found none"),
        (sasl(listener_name_in_plain_sasl_jaas_config=jaas(PLAIN, user_node="S3CRET")),
         "found no username, wanted one"),
        (sasl(listener_name_in_plain_sasl_jaas_config=jaas(SCRAM, username="n", password="S3CRET")),
         "found .*ScramLoginModule, wanted"),
    ],
)  # fmt: skip
def test_refused_logins(given: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidSetting, match=said) as found:
        node_securities(config("SASL_SSL", **given))
    assert str(found.value).startswith("listener IN, by which nodes reach each other: ")
    assert "S3CRET" not in str(found.value)


def test_a_missing_key_is_named() -> None:
    given = {"ssl_truststore_location": "/none.pem", "ssl_truststore_type": "PEM"}
    with pytest.raises(errors.InvalidSetting, match=r"ssl\.truststore\.location: /none\.pem"):
        node_securities(config("SSL", **given))


def options(password: str) -> Options:
    """As a node whose login has this password."""
    given = sasl(listener_name_in_plain_sasl_jaas_config=jaas(
        PLAIN, username="alice", password=password))  # fmt: skip
    return Options(security=node_securities(config("SASL_PLAINTEXT", **given))["IN"])


def test_a_refused_login_rests_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other node is not asked again until the rest is over."""
    with kafkalog.Broker(tmp_path / "data", config=sasl_settings()) as broker:
        (address,) = parse_servers(broker.bootstrap_servers)
        how = options("wrong")
        assert isinstance(how.security, NodeSecurity)
        for _ in range(50):
            with pytest.raises(errors.SaslAuthenticationFailed, match="Invalid username"):
                connect(address, how)
        assert how.security.rests.left_s(address)
        by_node = [one for one in caplog.records if "do not accept each other" in one.message]
        by_broker = [one for one in caplog.records if one.name == "kafkalog.server.authentication"]
        assert len(by_node) == len(by_broker) == 1
        assert "wrong" not in by_node[0].message
        right = connect(address, options("alice-S3CRET"))
        assert right.call(apis.METADATA, {"topics": []}).brokers
        right.close()


def test_changed_keys_are_used_and_wrong_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The authority that a node trusts is replaced."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    mine, theirs = papers(first), papers(second)
    trusted = tmp_path / "trusted.pem"

    def trust(data: bytes) -> None:
        fresh = tmp_path / "fresh"
        fresh.write_bytes(data)
        os.replace(fresh, trusted)

    trust(theirs.authority.read_bytes())
    made = config("SSL", ssl_truststore_type="PEM", ssl_truststore_location=str(trusted))
    how = Options(security=node_securities(made)["IN"])
    listening = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM",
                 "ssl.keystore.location": str(mine.server)}  # fmt: skip
    with kafkalog.Broker(tmp_path / "data", config=listening) as broker:
        (address,) = parse_servers(broker.bootstrap_servers)
        with pytest.raises(errors.SslAuthenticationFailed, match="certificate is not accepted"):
            connect(address, how)
        trust(mine.authority.read_bytes())

        def reached() -> bool:
            try:
                connect(address, how).close()
            except errors.SslAuthenticationFailed:  # it rests
                return False
            return True

        wait_for(reached, "the new authority is trusted")
        trust(b"nonsense")
        assert reached()
        assert "connections to other nodes keep the old keys" in caplog.text


def test_a_node_that_is_not_there_is_no_refusal() -> None:
    how = options("any")
    with pytest.raises(errors.PeerGone):
        connect(Address("127.0.0.1", 1), how)
    assert isinstance(how.security, NodeSecurity) and how.security.rests.problem(
        Address("127.0.0.1", 1)) is None  # fmt: skip
