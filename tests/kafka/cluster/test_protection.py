"""ACLs, credentials and quotas of a cluster of Kafka 3.9.2 and ours: each changes them, both obey.

The brokers, and all clients but those that log in, are anonymous.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.config.authorizer import ACL_AUTHORIZER
from kafkalog.errors import InvalidRequest
from kafkalog.security.acls import ALL, Acl, Pattern, Permission
from kafkalog.security.permissions import CLUSTER_NAME, Kind
from kafkalog.server.broker import node_of
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import acls
from kafkalog.zookeeper.session import Create, Session
from tests.kafka.cluster.mixed import KAFKA, OURS, SETTINGS
from tests.support import apache, batches
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.support.zookeeper import Broker, ZooKeeper
from tests.unit.server.test_acls import creation, wanted

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.long]

ME = "User:ANONYMOUS"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
KAFKAS = f"""
authorizer.class.name={ACL_AUTHORIZER}
listeners=PLAINTEXT://127.0.0.1:{{port}},CLIENTS://127.0.0.1:{{more}}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.clients.scram-sha-256.sasl.jaas.config={MODULE} required;
listener.name.clients.scram-sha-512.sasl.jaas.config={MODULE} required;
replica.fetch.wait.max.ms=100
"""
CLUSTER = Acl(Kind.CLUSTER, CLUSTER_NAME, Pattern.LITERAL, ME, "*", ALL, Permission.ALLOW)


class Both:
    """A broker of Kafka, which is the controller, and ours."""

    def __init__(self, kafka: Broker, login: int, ours: kafkalog.Broker, session: Session) -> None:
        self.kafka, self.ours, self.session = kafka, ours, session
        (ours_login,) = (one for one in node_of(ours).advertised if one.name == "CLIENTS")
        self.logins = {KAFKA: f"127.0.0.1:{login}", OURS: f"127.0.0.1:{ours_login.port}"}
        """The listeners with SCRAM."""
        self.raws = {KAFKA: Raw(kafka.bootstrap_servers, "c"),
                     OURS: Raw(ours.bootstrap_servers.partition(",")[0], "c")}  # fmt: skip

    def topic(self, name: str) -> None:
        """A topic with one partition on each: 0 on Kafka's, 1 on ours."""
        rows = [{"partition_index": n, "broker_ids": [id]} for n, id in enumerate((KAFKA, OURS))]
        row = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": rows}
        done = self.raws[KAFKA].call(apis.CREATE_TOPICS, 5, topics=[row], timeout_ms=30_000)
        assert not done.topics[0].error_code, done

        def led() -> bool:
            found = node_of(self.ours).image.partition(name, 1)
            return found is not None and found.leader == OURS

        wait_for(led, "ours leads")

    def produced(self, node: int, topic: str) -> Any:
        """The whole answer of the leader."""
        partition = (KAFKA, OURS).index(node)
        row = {"index": partition, "records": batches.batch([batches.Row(b"v", b"k", 0)])}
        return self.raws[node].call(
            apis.PRODUCE, 9, acks=1, timeout_ms=10_000,
            topic_data=[{"name": topic, "partition_data": [row]}],
        )  # fmt: skip

    def code(self, node: int, topic: str) -> int:
        row = self.produced(node, topic).responses[0].partition_responses[0]
        return int(row.error_code)

    def obeyed(self, topic: str, code: int) -> None:
        for node in self.raws:
            wait_for(lambda node=node: self.code(node, topic) == code, f"node {node} obeys")


@pytest.fixture(scope="module")
def both(memory: Path, zookeeper: ZooKeeper) -> Iterator[Both]:
    home = memory / "protection"
    home.mkdir()
    hosts = f"{zookeeper.hosts}/protection"
    port, login = apache.free_port(), apache.free_port()
    with Session(hosts, lambda _: None) as session:
        session.ensure(acls.folders_of(acls.Resource.of(CLUSTER)))
        path = acls.path_of(acls.Resource.of(CLUSTER))
        assert session.commit([Create(path, acls.write_acls([CLUSTER]))]).done
        settings = KAFKAS.format(port=port, more=login)
        config = {**SETTINGS, "zookeeper.connect": hosts, "authorizer.class.name": ACL_AUTHORIZER}
        del config["broker.rack"], config["replica.selector.class"]
        config |= {
            "listeners": "PLAINTEXT://127.0.0.1:0,CLIENTS://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        }
        with (
            Broker(home / "kafka", hosts, KAFKA, settings, port=port) as kafka,
            kafkalog.Broker(home / "ours", config=config) as ours,
        ):
            wait_for(lambda: len(node_of(ours).image.brokers) == 2, "ours knows both")
            yield Both(kafka, login, ours, session)


@pytest.mark.parametrize("asked", [KAFKA, OURS])
def test_acls(both: Both, asked: int) -> None:
    """Those of either are enforced by both at once: literal ones, and prefixes."""
    topic = f"acls{asked}"
    both.topic(topic)
    both.obeyed(topic, DENIED)
    raw = both.raws[asked]
    for pattern, name in ((Pattern.LITERAL, topic), (Pattern.PREFIXED, topic[:-1])):
        row = creation(resource_name=name, resource_pattern_type=pattern, operation=4)
        assert raw.call(apis.CREATE_ACLS, 2, creations=[row]).results[0].error_code == 0
        both.obeyed(topic, 0)
        deny = {**row, "permission_type": Permission.DENY}
        assert raw.call(apis.CREATE_ACLS, 2, creations=[deny]).results[0].error_code == 0
        both.obeyed(topic, DENIED)
        shown = [{(one.resource_name, one.pattern_type, acl.principal, acl.operation,
                   acl.permission_type) for one in raw.call(apis.DESCRIBE_ACLS, 2, **wanted()
                                                            ).resources for acl in one.acls}
                 for raw in both.raws.values()]  # fmt: skip
        assert shown[0] == shown[1]
        filters = [wanted(resource_name_filter=name, pattern_type_filter=pattern)]
        (gone,) = raw.call(apis.DELETE_ACLS, 2, filters=filters).filter_results
        assert len(gone.matching_acls) == 2
        assert both.session.read(acls.path_of(acls.Resource(Kind.TOPIC, pattern, name))) is None


@pytest.mark.parametrize("asked", [KAFKA, OURS])
def test_quotas(both: Both, asked: int) -> None:
    topic = f"quotas{asked}"
    both.topic(topic)
    raw = both.raws[KAFKA]
    row = creation(resource_name=topic, operation=ALL)
    assert raw.call(apis.CREATE_ACLS, 2, creations=[row]).results[0].error_code == 0
    both.obeyed(topic, 0)

    def waits(node: int) -> bool:
        with Raw(both.raws[node].address, "slow") as one:
            kept, both.raws[node] = both.raws[node], one
            try:
                return bool(both.produced(node, topic).throttle_time_ms)
            finally:
                both.raws[node] = kept

    for entity in ({"client-id": "slow"}, {"client-id": None},
                   {"user": "ANONYMOUS", "client-id": "slow"}, {"user": None}):  # fmt: skip
        assert alter_on(both.raws[asked], entity, producer_byte_rate=1.0).error_code == 0
        for node in both.raws:
            wait_for(lambda node=node: waits(node), f"node {node} slows it down")
        assert described_on(both.raws[KAFKA]) == described_on(both.raws[OURS]) != {}
        assert alter_on(both.raws[asked], entity, producer_byte_rate=None).error_code == 0
        wait_for(lambda: not node_of(both.ours).quotas.active, "none is left")


def alter_on(raw: Raw, entity: dict[str, str | None], **values: float | None) -> Any:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}
           for key, value in values.items()]  # fmt: skip
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    return raw.call(
        apis.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": named, "ops": ops}], validate_only=False
    ).entries[0]


def described_on(raw: Raw) -> dict[Any, Any]:
    found = raw.call(apis.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
    assert found.error_code == 0
    return {
        tuple(sorted((part.entity_type, part.entity_name or "") for part in one.entity)): {
            value.key: value.value for value in one.values
        }
        for one in found.entries
    }


@pytest.mark.parametrize("asked", [KAFKA, OURS])
def test_users(both: Both, asked: int) -> None:
    """Those that either was given log in at both, until they are deleted."""
    name, mechanism = f"al/ice{asked}", "SCRAM-SHA-256"
    jaas = f'{MODULE} required username="{name}" password="s3cret";'
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
             "sasl.jaas.config": jaas}  # fmt: skip

    def logs_in(node: int) -> bool:
        try:
            with kafkalog.Admin(both.logins[node], config=login) as one:
                one.describe_cluster()
            return True
        except kafkalog.errors.SaslAuthenticationFailed:
            return False

    new = kafkalog.UserScramCredentialUpsertion(name, mechanism, "s3cret", 4096)
    with kafkalog.Admin(both.raws[asked].address) as admin:
        admin.alter_user_scram_credentials([new]).check()
        for node in both.raws:
            wait_for(lambda node=node: logs_in(node), f"it logs in at {node}", pause_s=0.1)
        for raw in both.raws.values():
            found = raw.call(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": name}])
            (info,) = found.results[0].credential_infos
            assert (info.mechanism, info.iterations) == (1, 4096)
        admin.alter_user_scram_credentials([(name, mechanism)]).check()
        for node in both.raws:
            wait_for(lambda node=node: not logs_in(node), f"refused at {node}", pause_s=0.1)


def test_the_most_acls_of_a_resource_are_stored(zookeeper: ZooKeeper) -> None:
    """They are created, read, and replaced, in one session: no request is too large for it."""
    one = CLUSTER._replace(kind=Kind.TOPIC, name="é" * 120, operation=3)
    resource = acls.Resource.of(one)
    many = [one._replace(principal=f"User:{n:030000}") for n in range(34)]

    def fits(size: int) -> bool:
        try:
            acls.operations(resource, None, dict.fromkeys([*many, last(size)], True))
        except InvalidRequest:
            return False
        return True

    def last(size: int) -> Acl:
        return one._replace(principal="User:" + "x" * size)

    size = bisect.bisect_left(range(1, 30_000), True, key=lambda n: not fits(n))
    assert 0 < size < 29_999
    whole = [*many, last(size)]
    with Session(f"{zookeeper.hosts}/most", lambda _: None) as session:
        session.ensure(acls.folders_of(resource))
        made = acls.operations(resource, None, dict.fromkeys(whole, True))
        assert session.commit(made).done
        znode = session.read(acls.path_of(resource))
        assert znode is not None and [*acls.read_acls(resource, znode.data)] == whole
        other = one._replace(principal="User:" + "y" * size)
        changed = acls.operations(resource, znode, {whole[-1]: False, other: True})
        assert session.commit(changed).done
