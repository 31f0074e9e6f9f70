"""Nodes of ours and a broker of Apache Kafka 3.9 in one cluster, connected by SASL_SSL: each kind
is the controller and the leader."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Options, parse_servers
from kafkalog.client.login.security import security_of
from kafkalog.config.client import ClientConfig
from kafkalog.server.broker import node_of
from kafkalog.testing.cluster import SETTINGS
from kafkalog.wire import apis
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Session
from tests.support import apache
from tests.support.copies import batches_in
from tests.support.secured import ALICE, PASSWORD, PLAIN, SCRAM, jaas
from tests.support.secured_nodes import LISTENER, LOGIN, SECRET, SecuredNodes
from tests.support.waiting import wait_for
from tests.support.zookeeper import Broker, ZooKeeper

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

KAFKA, OURS = 1, (2, 3)
PATIENT = {
    "zookeeper.session.timeout.ms": 20_000, "zookeeper.connection.timeout.ms": 60_000,
    "replica.lag.time.max.ms": 5_000, "offsets.topic.replication.factor": 3,
}  # fmt: skip
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{LOGIN};User:{ALICE}",
}


class Mixed:
    """A broker of Kafka, which starts first and so is the controller, and two nodes of ours."""

    def __init__(self, home: Path, zookeeper: ZooKeeper, more: dict[str, object]) -> None:
        """`more`: settings of all nodes."""
        self.hosts = f"{zookeeper.hosts}/secured{len(more)}"
        self.ours = SecuredNodes(home, self.hosts, "SASL_SSL")
        inside = apache.free_port()
        users = {f"user_{LOGIN}": SECRET, f"user_{ALICE}": PASSWORD}
        login = jaas(PLAIN, username=LOGIN, password=SECRET, **users).replace("\\", "\\\\")
        port = apache.free_port()
        lines = {
            **SETTINGS, **PATIENT,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},{LISTENER}://127.0.0.1:{inside}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_SSL",
            "inter.broker.listener.name": LISTENER,
            "ssl.keystore.type": "PEM", "ssl.keystore.location": self.ours.papers.server,
            "ssl.truststore.type": "PEM", "ssl.truststore.location": self.ours.papers.authority,
            "sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": login,
            "controlled.shutdown.enable": "true", **more,
        }  # fmt: skip
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        self.folder = home / "kafka"
        self.kafka = Broker(self.folder, self.hosts, KAFKA, text, port=port)
        self.servers = f"127.0.0.1:{inside}"

    def topic(self, name: str, *replicas: int) -> None:
        """Create a topic, and wait until all replicas are in sync."""
        with kafkalog.Admin(self.servers, config=self.ours.client) as admin:
            admin.create_topics([(name, -1, -1, {}, [list(replicas)])]).check()
        self.ours.in_sync(name, *replicas)

    def transaction(self, name: str, topics: list[str], value: bytes) -> None:
        """Write a value to each topic, in one transaction."""
        with (
            kafkalog.Producer(
                self.all_servers, transactional_id=name, config=self.ours.client
            ) as producer,
            producer.transaction(),
        ):
            for topic in topics:
                producer.send(topic, value, partition=0)

    @property
    def all_servers(self) -> str:
        return f"{self.servers},{self.ours.servers}"

    def read(self, topics: list[str], group: str, count: int) -> list[bytes | None]:
        """The committed values that a group reads."""
        found: list[bytes | None] = []
        with kafkalog.Consumer(
            self.all_servers, group=group, auto_offset_reset="earliest",
            isolation="read_committed", config=self.ours.client,
        ) as consumer:  # fmt: skip
            consumer.subscribe(topics)

            def all_read() -> bool:
                found.extend(one.value for one in consumer.poll(100))
                return len(found) >= count

            wait_for(all_read, f"{count} are read", 120)
            consumer.commit()
        return found

    def controller(self, session: Session) -> int:
        found = session.read(tree.CONTROLLER)
        return -1 if found is None else tree.read_controller(found.data).broker

    def copies(self, topic: str) -> list[list[bytes]]:
        folders = [self.folder / "data", *(self.ours.home / f"node{n}" for n in OURS)]
        return [batches_in(each / f"{topic}-0") for each in folders]


@pytest.fixture(params=[{}, AUTHORIZER], ids=["open", "authorized"])
def mixed(tmp_path: Path, zookeeper: ZooKeeper, request: pytest.FixtureRequest) -> Iterator[Mixed]:
    made = Mixed(tmp_path, zookeeper, request.param)
    with made.kafka, made.ours:
        made.ours.begin(*OURS, settings={**PATIENT, **request.param})
        wait_for(lambda: all(
            {*node_of(one).image.brokers} == {KAFKA, *OURS} for one in made.ours.nodes.values()
        ), "all know all")  # fmt: skip
        yield made


def test_each_kind_is_the_controller_and_the_leader(mixed: Mixed) -> None:
    with Session(mixed.hosts, lambda _: None) as session:
        assert mixed.controller(session) == KAFKA
        mixed.topic("theirs", KAFKA, *OURS)
        mixed.topic("ours", OURS[0], KAFKA, OURS[1])
        topics = ["theirs", "ours"]
        for number in range(6):  # their coordinators are on different nodes
            mixed.transaction(f"writer-{number}", topics, b"%d" % number)
        wanted = sorted(2 * [b"%d" % number for number in range(6)])
        for group in ("a", "b", "c"):
            assert sorted(mixed.read(topics, group, 12), key=repr) == sorted(wanted, key=repr)
        mixed.kafka.stop()  # in order: ours take over its partitions
        wait_for(lambda: mixed.controller(session) in OURS, "one of ours is the controller", 120)
        mixed.ours.in_sync("theirs", *OURS)
        mixed.ours.produce("theirs", b"while it is away")
        with mixed.kafka:
            mixed.ours.in_sync("theirs", KAFKA, *OURS)
            mixed.ours.in_sync("ours", KAFKA, *OURS)
            assert mixed.controller(session) in OURS
            mixed.topic("later", KAFKA, *OURS)  # by a controller of ours, led by Kafka
            mixed.transaction("last", ["later", "ours", "theirs"], b"last")
            assert mixed.read(["later"], "d", 1) == [b"last"]
            for topic in ("theirs", "ours", "later"):
                wait_for(
                    lambda topic=topic: len({tuple(one) for one in mixed.copies(topic)}) == 1,
                    f"{topic}: all copies are equal",
                )


TOKENS = {
    "delegation.token.secret.key": "k3y", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    f"listener.name.{LISTENER.lower()}.scram-sha-256.sasl.jaas.config": jaas(SCRAM),
}  # fmt: skip


@pytest.fixture
def tokens(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Mixed]:
    made = Mixed(tmp_path, zookeeper, TOKENS)
    with made.kafka, made.ours:
        made.ours.begin(OURS[0], settings={**PATIENT, **TOKENS})
        yield made


def test_delegation_tokens_of_either_are_accepted_by_both(tokens: Mixed) -> None:
    """Each kind makes one; the other renews it, then ends it."""
    ours = tokens.ours.nodes[OURS[0]].bootstrap_servers

    def asked(servers: str, client: dict[str, str], api: Any, **body: Any) -> Any:
        (address,) = parse_servers(servers)
        security = security_of(ClientConfig(client))
        with contextlib.closing(Connection(address, Options(security=security))) as made:
            return made.call(api, body, made.version_of(api))

    def accepted(servers: str, client: dict[str, str]) -> bool:
        try:
            return bool(asked(servers, client, apis.METADATA, topics=[]).cluster_id)
        except errors.SaslAuthenticationFailed:
            return False

    for maker, other in ((ours, tokens.servers), (tokens.servers, ours)):
        made = asked(maker, tokens.ours.client, apis.CREATE_DELEGATION_TOKEN, renewers=[],
                     max_lifetime_ms=-1)  # fmt: skip
        assert made.error_code == 0
        password = base64.b64encode(bytes(made.hmac)).decode()
        login = {
            **tokens.ours.client, "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": jaas(SCRAM, username=made.token_id, password=password,
                                     tokenauth="true"),
        }  # fmt: skip
        for servers in (maker, other):
            wait_for(lambda s=servers, c=login: accepted(s, c), "the token is accepted", 60)
        renewed = asked(other, tokens.ours.client, apis.RENEW_DELEGATION_TOKEN,
                        hmac=made.hmac, renew_period_ms=3_600_000)  # fmt: skip
        assert renewed.error_code == 0

        def seen(servers: str) -> list[int]:
            found = asked(servers, tokens.ours.client, apis.DESCRIBE_DELEGATION_TOKEN, owners=None)
            return [one.expiry_timestamp for one in found.tokens]

        wait_for(lambda s=maker, r=renewed: seen(s) == [r.expiry_timestamp_ms], "it is known", 60)
        ended = asked(other, tokens.ours.client, apis.EXPIRE_DELEGATION_TOKEN, hmac=made.hmac,
                      expiry_time_period_ms=-1)  # fmt: skip
        assert ended.error_code == 0
        for servers in (maker, other):
            wait_for(lambda s=servers, c=login: not accepted(s, c), "it is refused", 60)
