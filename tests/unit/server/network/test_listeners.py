"""Listeners as written in server.properties."""

from __future__ import annotations

import socket

import pytest

from kafkalog.config.listeners import SecurityProtocol
from kafkalog.config.server import ServerConfig
from kafkalog.errors import InvalidSetting, UnknownSetting
from kafkalog.server.network.listeners import (
    Listener,
    bootstrap_servers,
    exposed,
    parse_listener,
    plan,
    planned,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Listener("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://localhost:0", Listener("PLAINTEXT", "localhost", 0)),
        ("INSIDE://:9093", Listener("INSIDE", "", 9093)),
        ("V6://[::1]:9094", Listener("V6", "::1", 9094)),
        ("ALL6://[::]:9095", Listener("ALL6", "::", 9095)),
        ("LOCAL://unix:/run/kafkalog.sock", Listener("LOCAL", "unix:/run/kafkalog.sock", 0)),
    ],
)
def test_every_form_of_a_listener_parses(text: str, wanted: Listener) -> None:
    assert parse_listener(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:9092", "PLAINTEXT://host", "PLAINTEXT://host:99999", "PLAINTEXT://::1:9092",
     "PLAINTEXT://host:port", "A B://host:1", "X://unix:", "://host:1"],
)  # fmt: skip
def test_invalid_listeners_are_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(InvalidSetting, match="wanted NAME://host:port"):
        parse_listener(text)


def config(listeners: str, **more: str) -> ServerConfig:
    settings: dict[str, object] = {name.replace("_", "."): text for name, text in more.items()}
    return ServerConfig({"listeners": listeners, **settings})


def test_two_listeners_need_two_names_and_two_ports() -> None:
    with pytest.raises(InvalidSetting, match="name PLAINTEXT occurs twice"):
        planned(config("PLAINTEXT://a:1,PLAINTEXT://b:2"))
    with pytest.raises(InvalidSetting, match="port 7 occurs twice"):
        planned(config("PLAINTEXT://a:7,X://b:7", listener_security_protocol_map="X:PLAINTEXT"))


def test_one_port_serves_both_families_and_port_0_any_number() -> None:
    protocols = "X:PLAINTEXT,Y:PLAINTEXT"
    both = config("X://127.0.0.1:7,Y://[::1]:7", listener_security_protocol_map=protocols)
    assert [one.port for one in planned(both)] == [7, 7]
    free = config("X://127.0.0.1:0,Y://127.0.0.1:0", listener_security_protocol_map=protocols)
    assert len(planned(free)) == 2


@pytest.mark.parametrize("setting", ["inter.broker.listener.name", "control.plane.listener.name"])
def test_named_listeners_must_exist(setting: str) -> None:
    given = config("PLAINTEXT://a:1", **{setting: "other"})
    with pytest.raises(InvalidSetting, match=f"{setting}: found OTHER, wanted one of PLAINTEXT"):
        planned(given)


def test_the_controllers_listener_is_not_the_brokers() -> None:
    """Without a setting for either, both are the first listener."""
    two, protocols = "A://a:1,B://b:2", "A:PLAINTEXT,B:PLAINTEXT"

    def names(**more: str) -> tuple[str, str]:
        given = config(two, listener_security_protocol_map=protocols, **more)
        assert len(planned(given)) == 2
        return given.inner_listener, given.control_listener

    assert names() == ("A", "A")
    assert names(control_plane_listener_name="b") == ("A", "B")
    between = {"inter_broker_listener_name": "B"}
    assert names(**between) == ("B", "B")
    assert names(control_plane_listener_name="A", **between) == ("B", "A")
    for more in ({}, between):
        wrong = {**more, "control_plane_listener_name": "B" if more else "a"}
        with pytest.raises(InvalidSetting, match="by which brokers reach each other"):
            names(**wrong)


@pytest.mark.parametrize("zookeeper", ["", "h:2181"])
@pytest.mark.parametrize("protocol", SecurityProtocol.__members__)
def test_a_listener_has_any_protocol(protocol: str, zookeeper: str) -> None:
    """A single node's, and one of a cluster's node."""
    mapped = config("OUT://h:1", listener_security_protocol_map=f"OUT:{protocol}",
                    zookeeper_connect=zookeeper)  # fmt: skip
    (one,) = planned(mapped)
    assert one.protocol.name == mapped.protocol_of("out") == protocol
    (one,) = planned(config(f"{protocol}://h:1", zookeeper_connect=zookeeper))
    assert one.protocol.name == protocol


def test_a_name_without_a_protocol_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"listener\.security\.protocol\.map"):
        planned(config("INSIDE://h:1"))


def test_clients_get_the_advertised_address_or_the_listeners() -> None:
    both = config(
        "PLAINTEXT://0.0.0.0:0,OUT://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
        advertised_listeners="OUT://broker.example:19092",
    )
    told = plan(both, {"PLAINTEXT": 4001, "OUT": 4002}, this_host="me")
    assert told == (("PLAINTEXT", "me", 4001), ("OUT", "broker.example", 19092))


def test_an_advertised_port_0_is_the_port_that_was_taken() -> None:
    one = config("PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://name:0")
    assert plan(one, {"PLAINTEXT": 4001})[0].port == 4001


def test_nobody_is_told_an_address_that_cannot_be_reached() -> None:
    with pytest.raises(InvalidSetting, match="that clients can reach"):
        planned(config("PLAINTEXT://h:1", advertised_listeners="PLAINTEXT://0.0.0.0:1"))
    with pytest.raises(InvalidSetting, match="OUT is no listener"):
        planned(config("PLAINTEXT://h:1", advertised_listeners="OUT://h:1"))


def test_bootstrap_servers_have_the_form_of_a_client() -> None:
    three = config(
        "PLAINTEXT://127.0.0.1:1,V6://[::1]:2,LOCAL://unix:/tmp/s",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,V6:PLAINTEXT,LOCAL:PLAINTEXT",
    )
    assert bootstrap_servers(plan(three, {})) == "127.0.0.1:1,[::1]:2"


def test_a_broker_of_unix_sockets_alone_names_them() -> None:
    one = config("LOCAL://unix:/tmp/s", listener_security_protocol_map="LOCAL:PLAINTEXT")
    assert bootstrap_servers(plan(one, {})) == "unix:/tmp/s"


def test_all_addresses_are_told_as_a_name_that_can_be_looked_up() -> None:
    (told,) = plan(config("PLAINTEXT://:7"), {})
    assert socket.getaddrinfo(told.host, told.port)


def test_every_listener_has_its_protocol() -> None:
    two = config("PLAINTEXT://h:1,OUT://h:2", listener_security_protocol_map="OUT:SASL_PLAINTEXT")
    plaintext, sasl = SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT
    assert [one.protocol for one in planned(two)] == [plaintext, sasl]
    (one,) = planned(config("SASL_PLAINTEXT://h:1"))
    assert one.protocol is sasl


def test_brokers_reach_each_other_by_the_listener_of_their_protocol() -> None:
    more = {"listener_security_protocol_map": "OUT:PLAINTEXT"}
    both = "OUT://h:1,PLAINTEXT://h:2"
    one = config(both, security_inter_broker_protocol="PLAINTEXT", **more)
    assert planned(one) and one.inner_listener == "PLAINTEXT"
    with pytest.raises(InvalidSetting, match="wanted the name of a listener, one of OUT"):
        planned(config("OUT://h:1", security_inter_broker_protocol="PLAINTEXT", **more))
    with pytest.raises(InvalidSetting, match=r"wanted none next to inter\.broker\.listener\.name"):
        planned(config(both, security_inter_broker_protocol="PLAINTEXT",
                       inter_broker_listener_name="OUT", **more))  # fmt: skip


def test_a_listeners_own_setting_overrides_all_listeners() -> None:
    given = ServerConfig({
        "listeners": "IN://h:1,OUT://h:2",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.out.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.out.connections.max.reauth.ms": "5",
        "listener.name.out.scram-sha-256.connections.max.reauth.ms": "7",
        "listener.name.out.plain.sasl.jaas.config": "x.Module required password=\"s3cret\";",
    })  # fmt: skip
    assert planned(given)
    out, plain = given.of_listener("OUT"), given.of_listener("OUT", "PLAIN")
    assert given.of_listener("IN").sasl_enabled_mechanisms == ("PLAIN",)
    assert out.sasl_enabled_mechanisms == plain.sasl_enabled_mechanisms == ("SCRAM-SHA-256",)
    scram = given.of_listener("OUT", "SCRAM-SHA-256")
    assert [one.connections_max_reauth_ms for one in (given, out, plain, scram)] == [0, 5, 5, 7]
    assert "s3cret" in plain.sasl_jaas_config.value and not out.sasl_jaas_config
    for one in (given, out, plain):
        assert "s3cret" not in repr(one) and "s3cret" not in str(dict(one))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("listener.name.in.num.io.threads", "num.io.threads is not a setting that a listener may"),
        ("listener.name.in.sasl.enabled.mechanism", "is not a setting that a listener may"),
        ("listener.name.out.sasl.enabled.mechanisms", "OUT is no listener; there are IN"),
        ("sasl.jaas.config", r"as listener\.name\.LISTENER\.MECHANISM\.sasl\.jaas\.config"),
        ("listener.name.in.sasl.jaas.config", "LISTENER.MECHANISM.sasl.jaas.config"),
    ],
)
def test_a_listeners_wrong_setting_is_refused_without_its_value(name: str, problem: str) -> None:
    with pytest.raises((InvalidSetting, UnknownSetting), match=problem) as found:
        planned(ServerConfig({
            "listeners": "IN://h:1", "listener.security.protocol.map": "IN:PLAINTEXT",
            name: "S3CRET",
        }))  # fmt: skip
    assert name in str(found.value)
    assert "S3CRET" not in str(found.value)


@pytest.mark.parametrize(
    ("listener", "open_to_others"),
    [
        ("PLAINTEXT://127.0.0.1:1", False), ("PLAINTEXT://127.9.9.9:1", False),
        ("PLAINTEXT://[::1]:1", False), ("PLAINTEXT://localhost:1", False),
        ("PLAINTEXT://unix:/tmp/s", False), ("SASL_PLAINTEXT://:1", False),
        ("PLAINTEXT://:1", True), ("PLAINTEXT://0.0.0.0:1", True), ("PLAINTEXT://[::]:1", True),
        ("PLAINTEXT://10.0.0.1:1", True), ("PLAINTEXT://broker.example:1", True),
    ],
)  # fmt: skip
def test_listeners_that_are_open_to_other_machines_are_known(
    listener: str, open_to_others: bool
) -> None:
    assert bool(exposed(config(listener))) == open_to_others
