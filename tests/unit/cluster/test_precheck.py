"""A node is compared with the cluster that it is about to join: one row per rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from kafkalog.cluster.node.defaults import taken_over
from kafkalog.cluster.node.facts import OURS, REFUSE, WARN, Candidate, Facts, Finding, Peer
from kafkalog.cluster.node.precheck import findings, refusal
from kafkalog.config.server import ServerConfig
from kafkalog.metadata.image import TOPIC, MetadataImage, Partition, Topic, empty_image

NODE = 9
DEFAULTS = {"log.retention.ms": "-1", "log.message.timestamp.after.max.ms": "3600000"}
"""Like this node's own, so that nothing differs."""
RACKS = "brokers of Kafka create no topics while some brokers have a rack"
MAP = "listener.security.protocol.map"


def kafka(
    node: int = 1, listeners: str = "PLAINTEXT", rack: str | None = None, **more: str | None
) -> Peer:
    """A broker of Kafka that told its settings; `listeners`: "NAME", or "NAME:PROTOCOL", ..."""
    pairs = (one.partition(":") for one in listeners.split())
    endpoints = {name: protocol or "PLAINTEXT" for name, _, protocol in pairs}
    named = {name.replace("_", "."): text for name, text in more.items()}
    told = {name: text for name, text in {**DEFAULTS, **named}.items() if text is not None}
    return Peer(node, endpoints, rack, told)


def ours(node: int = 1, rack: str | None = None, **more: str) -> Peer:
    found = kafka(node, rack=rack, **more)
    return found._replace(settings={**(found.settings or {}), OURS: "fsync"})


def silent(node: int = 1, listeners: str = "PLAINTEXT", denied: bool = False) -> Peer:
    return kafka(node, listeners)._replace(settings=None, why="it does not answer", denied=denied)


def mine(known: bool = False, **given: Any) -> Candidate:
    config = {name.replace("_", "."): value for name, value in given.items()}
    return Candidate(
        NODE, ServerConfig({"listeners": "PLAINTEXT://10.0.0.4:9092", **config}), known
    )


def two(first: str, second: str, **more: Any) -> Candidate:
    """A node with two listeners."""
    protocols = f"{first}:PLAINTEXT,{second}:PLAINTEXT"
    more[MAP] = protocols
    return mine(listeners=f"{first}://10.0.0.4:9092,{second}://10.0.0.4:9093", **more)


def image(
    topics: Mapping[str, Mapping[str, str]] | None = None, held: tuple[str, ...] = (),
) -> MetadataImage:  # fmt: skip
    """`topics`: their settings; `held`: those with a replica on this node."""
    made = empty_image("cluster", NODE)
    partitions = {name: Partition(0, (NODE if name in held else 1, 2), (2,), 2, 0, 0)
                  for name in topics or {}}  # fmt: skip
    return made._replace(
        topics={name: Topic(name, uuid4(), {0: one}) for name, one in partitions.items()},
        configs={(TOPIC, name): said for name, said in (topics or {}).items()},
    )


def cluster(*peers: Peer, **more: Any) -> Facts:
    return Facts(more.pop("image", image()), peers, **more)


def found(facts: Facts, candidate: Candidate) -> list[tuple[str, str]]:
    return [(one.severity, one.subject) for one in findings(facts, candidate)]


REPLICATION = {"inter_broker_listener_name": "REPLICATION"}
INSIDE = {"inter_broker_listener_name": "IN"}
CONTROL = {"control_plane_listener_name": "CONTROL"}
LISTENERS = [
    ("the same", cluster(kafka()), mine(), []),
    ("an empty cluster", cluster(), mine(), []),
    ("another one by name", cluster(kafka(1, "REPLICATION", **REPLICATION)), mine(),
     [(REFUSE, "listener REPLICATION")]),
    ("only another one, not told", cluster(silent(1, "REPLICATION")), mine(),
     [(REFUSE, "listener REPLICATION"), (WARN, "settings of other brokers")]),
    ("several, not told, one of them ours", cluster(silent(1, "REPLICATION PLAINTEXT")), mine(),
     [(WARN, "listener REPLICATION"), (WARN, "settings of other brokers")]),
    ("several, not told, none of them ours", cluster(silent(1, "A B")), mine(),
     [(REFUSE, "listener PLAINTEXT"), (WARN, "listener A"), (WARN, "listener B"),
      (WARN, "settings of other brokers")]),
    ("present, as well", cluster(kafka(1, "REPLICATION", **REPLICATION)),
     two("REPLICATION", "OUTSIDE"), []),
    ("present, but this node has another between brokers",
     cluster(kafka(1, "REPLICATION", **REPLICATION)),
     two("REPLICATION", "OUTSIDE", inter_broker_listener_name="OUTSIDE"),
     [(REFUSE, "listener OUTSIDE")]),
    ("encrypted", cluster(kafka(1, "PLAINTEXT:SSL")), mine(), [(REFUSE, "listener PLAINTEXT")]),
    ("encrypted, under another name", cluster(kafka(1, "SSL:SSL", security_inter_broker_protocol=
     "SSL")), mine(), [(REFUSE, "listener SSL")]),
    ("encrypted, here as well", cluster(kafka(1, "SSL:SSL", security_inter_broker_protocol="SSL")),
     mine(listeners="SSL://10.0.0.4:9092"), []),
    ("encrypted here, and not there", cluster(kafka(1, "IN", **INSIDE)),
     mine(listeners="IN://10.0.0.4:9092", listener_security_protocol_map="IN:SASL_SSL"),
     [(REFUSE, "listener IN")]),
    ("of an unknown protocol", cluster(kafka(1, "IN:", **INSIDE)._replace(endpoints={"IN": ""})),
     mine(listeners="IN://10.0.0.4:9092", listener_security_protocol_map="IN:SSL"),
     [(REFUSE, "listener IN")]),
    ("two, while brokers change from one to the other, here not yet",
     cluster(kafka(1, "PLAINTEXT SSL:SSL", security_inter_broker_protocol="SSL")),
     mine(listeners="PLAINTEXT://10.0.0.4:9092,SSL://10.0.0.4:9093"), []),
    ("two, while brokers change from one to the other, first here",
     cluster(kafka(1, "PLAINTEXT SSL:SSL")),
     mine(listeners="PLAINTEXT://10.0.0.4:9092,SSL://10.0.0.4:9093",
          security_inter_broker_protocol="SSL"), []),
    ("of clients", cluster(kafka(1, "PLAINTEXT OUTSIDE")), mine(), [(WARN, "listener OUTSIDE")]),
    ("of clients, encrypted", cluster(kafka(1, "PLAINTEXT OUTSIDE:SSL")), mine(),
     [(WARN, "listener OUTSIDE")]),
    ("the controller's", cluster(kafka(1, "PLAINTEXT CONTROL", **CONTROL)), mine(),
     [(REFUSE, "listener CONTROL")]),
    ("the controller's, on both", cluster(kafka(1, "PLAINTEXT CONTROL", **CONTROL)),
     two("PLAINTEXT", "CONTROL", **CONTROL), []),
    ("the controller's, only here", cluster(kafka()), two("PLAINTEXT", "CONTROL", **CONTROL),
     [(REFUSE, "listener CONTROL")]),
]  # fmt: skip

RACKED = [
    ("all", cluster(kafka(rack="a")), mine(broker_rack="b"), []),
    ("only here, new", cluster(kafka()), mine(broker_rack="b"), [(REFUSE, "broker.rack")]),
    ("only here, while racks are introduced", cluster(kafka()),
     mine(known=True, broker_rack="b"), [(WARN, "broker.rack")]),
    ("all but here", cluster(kafka(rack="a")), mine(known=True), [(REFUSE, "broker.rack")]),
    ("all but here, of kafkalog only", cluster(ours(rack="a")), mine(), [(WARN, "broker.rack")]),
    ("some", cluster(kafka(1, rack="a"), kafka(2)), mine(), [(WARN, "broker.rack")]),
]  # fmt: skip

OLD = "inter.broker.protocol.version"
TIERED = {"remote.storage.enable": "true"}
VERSIONS = [
    ("3.9", cluster(kafka(inter_broker_protocol_version="3.9-IV0")), mine(), []),
    ("an old one", cluster(kafka(inter_broker_protocol_version="2.7")), mine(), [(REFUSE, OLD)]),
    ("an untested one", cluster(kafka(inter_broker_protocol_version="3.4")), mine(),
     [(WARN, OLD)]),
    ("a migration to KRaft", cluster(kafka(zookeeper_metadata_migration_enable="true")), mine(),
     [(REFUSE, "zookeeper.metadata.migration.enable")]),
    ("a controller of KRaft", cluster(kafka(), kraft=True), mine(), [(REFUSE, "KRaft")]),
    ("old messages of a topic", cluster(kafka(), image=image({"t": {"message.format.version":
     "0.10.2"}})), mine(), [(WARN, "message.format.version")]),
    ("new messages of a topic", cluster(kafka(), image=image({"t": {"message.format.version":
     "2.8"}})), mine(), []),
    ("old messages of a broker", cluster(kafka(log_message_format_version="0.10.2")), mine(),
     [(WARN, "log.message.format.version")]),
    ("tiered storage", cluster(kafka(), image=image({"t": TIERED})), mine(),
     [(WARN, "remote.storage.enable")]),
    ("tiered storage, with a replica here", cluster(kafka(), image=image({"t": TIERED}, ("t",))),
     mine(known=True), [(REFUSE, "remote.storage.enable")]),
]  # fmt: skip

RULES = {"rules": ("Topic/t",)}
USERS = {"users": ("alice",)}
AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
SASL = "PLAINTEXT OUTSIDE:SASL_PLAINTEXT"
LOGIN = mine(
    **{
        "listeners": "PLAINTEXT://10.0.0.4:9092,OUTSIDE://10.0.0.4:9093",
        MAP: "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    }
)
PROTECTION = [
    ("an authorizer whose rules are elsewhere", cluster(kafka(**AUTHORIZER)), mine(),
     [(REFUSE, "ACLs")]),
    ("a broker that refuses to tell its settings", cluster(silent(denied=True)), mine(known=True),
     [(REFUSE, "ACLs"), (WARN, "settings of other brokers")]),
    ("rules, enforced", cluster(kafka(**AUTHORIZER), **RULES), mine(known=True),
     [(REFUSE, "ACLs")]),
    ("rules, enforced by one of two", cluster(kafka(), kafka(2, **AUTHORIZER), **RULES), mine(),
     [(REFUSE, "ACLs")]),
    ("rules, and a broker that refuses to tell its settings", cluster(silent(denied=True), **RULES),
     mine(known=True), [(REFUSE, "ACLs"), (WARN, "settings of other brokers")]),
    ("rules that nobody enforces", cluster(kafka(authorizer_class_name=""), **RULES), mine(),
     [(WARN, "ACLs")]),
    ("rules, no broker answers, new", cluster(silent(), **RULES), mine(),
     [(REFUSE, "ACLs"), (WARN, "settings of other brokers")]),
    ("rules, no broker answers, a node of the cluster", cluster(silent(), **RULES),
     mine(known=True), [(WARN, "ACLs"), (WARN, "settings of other brokers")]),
    ("rules, no other broker, new", cluster(**RULES), mine(), [(REFUSE, "ACLs")]),
    ("rules, no other broker, a node of the cluster", cluster(**RULES), mine(known=True),
     [(WARN, "ACLs")]),
    ("users, and a place to log in", cluster(kafka(1, SASL), **USERS), mine(known=True),
     [(REFUSE, "SCRAM"), (WARN, "listener OUTSIDE")]),
    ("users, and no place to log in", cluster(kafka(), **USERS), mine(), [(WARN, "SCRAM")]),
    ("users, no other broker, new", cluster(**USERS), mine(), [(REFUSE, "SCRAM")]),
    ("users, no other broker, a node of the cluster", cluster(**USERS), mine(known=True),
     [(WARN, "SCRAM")]),
    ("tokens, and a place to log in", cluster(kafka(1, SASL), tokens=2), mine(),
     [(REFUSE, "delegation tokens"), (WARN, "listener OUTSIDE")]),
    ("an authorizer on both", cluster(kafka(**AUTHORIZER), **RULES), mine(**AUTHORIZER), []),
    ("an authorizer here, the only node", cluster(**RULES), mine(**AUTHORIZER), []),
    ("an authorizer only here", cluster(kafka(), **RULES), mine(**AUTHORIZER), [(WARN, "ACLs")]),
    ("an authorizer here, and one that refuses to tell its settings",
     cluster(silent(denied=True), **RULES), mine(**AUTHORIZER),
     [(WARN, "settings of other brokers")]),
    ("an authorizer of another kind", cluster(kafka(authorizer_class_name="org.x.Ranger")),
     mine(**AUTHORIZER), [(REFUSE, "authorizer.class.name")]),
    ("users, and a place to log in here, too", cluster(kafka(1, SASL), **USERS), LOGIN, []),
    ("users and tokens, and a place to log in here, too",
     cluster(kafka(1, SASL), **USERS, tokens=2), LOGIN, [(WARN, "delegation tokens")]),
    ("tokens, and their key here", cluster(kafka(1, SASL), tokens=2),
     mine(delegation_token_secret_key="k"), [(WARN, "listener OUTSIDE")]),
]  # fmt: skip

RETENTION, WEEK = "log.retention.ms", {"log_retention_ms": None, "log_retention_hours": "168"}
SETTINGS = [
    ("not given here, and others agree", cluster(kafka(1, **WEEK), kafka(2, **WEEK)), mine(),
     [(WARN, RETENTION)]),
    ("given here, and different", cluster(kafka(1, log_retention_hours="168", log_retention_ms=
     "1000")), mine(log_retention_ms=-1), [(WARN, RETENTION)]),
    ("others do not agree", cluster(kafka(1, log_retention_ms="1"), kafka(2)), mine(),
     [(WARN, RETENTION)]),
    ("too small for this node", cluster(kafka(log_segment_bytes="1000")), mine(),
     [(WARN, "log.segment.bytes")]),
    ("unreadable", cluster(kafka(log_segment_bytes="many")), mine(), []),
    ("of the broker", cluster(kafka(default_replication_factor="3")), mine(),
     [(WARN, "default.replication.factor")]),
]  # fmt: skip

ROWS = [*LISTENERS, *RACKED, *VERSIONS, *PROTECTION, *SETTINGS]
NAMES = [f"{kind}: {row[0]}" for kind, rows in (
    ("listener", LISTENERS), ("rack", RACKED), ("version", VERSIONS), ("protection", PROTECTION),
    ("setting", SETTINGS)) for row in rows]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_findings(row: tuple[str, Facts, Candidate, list[tuple[str, str]]]) -> None:
    """Severity and subject; each says what is wrong and what to do, in sentences."""
    _, facts, candidate, expected = row
    assert found(facts, candidate) == expected
    for one in findings(facts, candidate):
        assert one.problem.endswith(".") and one.remedy.endswith("."), one
        assert "  " not in str(one)


def test_a_refusal_names_the_lines_to_set() -> None:
    those = findings(cluster(kafka(1, "REPLICATION", **REPLICATION)), mine())
    for part in ("listeners=REPLICATION://10.0.0.4:9092", f"{MAP}=REPLICATION:PLAINTEXT",
                 "inter.broker.listener.name=REPLICATION"):  # fmt: skip
        assert part in refusal(those)
    those = findings(cluster(kafka(1, "IN:SASL_SSL", **INSIDE)), mine())
    assert f"{MAP}=IN:SASL_SSL" in refusal(those)
    those = findings(cluster(kafka(1, "PLAINTEXT CONTROL", **CONTROL)), mine())
    assert "listeners=...,CONTROL://HOST:PORT" in refusal(those)
    assert "control.plane.listener.name=CONTROL" in refusal(those)
    assert refusal([Finding(WARN, "a", "b.", "c.")]) == ""


def test_settings_adopted_from_other_brokers() -> None:
    """Settings the others agree on and this node was not given, under the broker's name."""
    hours = kafka(1, log_retention_ms=None, log_retention_hours="24", num_partitions="7",
                  log_cleanup_policy="compact", log_segment_bytes="1000")  # fmt: skip
    same = kafka(2, log_retention_ms="86400000", num_partitions="7", log_cleanup_policy="compact")
    assert taken_over([hours, same, silent(3)], mine().config) == {
        "log.cleanup.policy": ("compact",), "log.retention.ms": 86_400_000, "num.partitions": 7,
    }  # fmt: skip
    given = mine(log_retention_minutes=5, num_partitions=1).config
    assert "num.partitions" not in taken_over([hours, same], given)
    assert "log.retention.ms" not in taken_over([hours, same], given)
    assert taken_over([hours, kafka(2, num_partitions="8")], mine().config).keys() == {
        "log.cleanup.policy"
    }
    assert taken_over([], mine().config) == {}
    made = ServerConfig.of(taken_over([hours, same], mine().config), mine().config)
    assert (made.topic.retention_ms, made.topic.cleanup_policy) == (86_400_000, ("compact",))


def test_names_between_brokers() -> None:
    """The listener between brokers, as Kafka and as kafkalog chooses it."""
    assert kafka(1, "A PLAINTEXT").inner == "PLAINTEXT"
    assert kafka(1, "A SSL:SSL", security_inter_broker_protocol="SSL").inner == "SSL"
    assert kafka(1, "A B", inter_broker_listener_name="b").inner == "B"
    assert ours()._replace(endpoints={"A": "PLAINTEXT", "B": "PLAINTEXT"}).inner == "A"
    assert silent(1, "A B").inner is None
    assert two("A", "PLAINTEXT").config.inner_listener == "PLAINTEXT"
    assert two("A", "B").config.inner_listener == "A"
