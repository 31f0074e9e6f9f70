"""Security and the features that share state with it, two at a time (docs/pairs.md)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.client.calls.acls import AclBinding, AclBindingFilter
from kafkalog.clock import ManualClock
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.server.broker import Broker, node_of
from kafkalog.testing.broker import TestBroker
from kafkalog.testing.security import Security
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches, mirrors, sasl
from tests.support.certificates import Certificates, client_context
from tests.support.raw import Raw
from tests.support.sasl import authenticate
from tests.support.waiting import wait_for
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.transactions.test_transactions import ONE_PARTITION, Client

OK = ErrorCode.NONE
ME = "User:ANONYMOUS"
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED


# ---- a right that goes away --------------------------------------------------------------------


class Ruled:
    """A broker with ACLs for everybody, whose administrator is in this process."""

    def __init__(self, broker: Broker, admin: kafkalog.Admin, raw: Raw) -> None:
        self.broker, self.admin, self.raw = broker, admin, raw

    def allow(self, kind: str, name: str, operation: str = "all") -> None:
        self.admin.create_acls([AclBinding(kind, name, ME, operation)]).check()

    def forbid(self, kind: str, name: str) -> None:
        gone = self.admin.delete_acls([AclBindingFilter(kind, name)]).check()
        assert all(gone.values())


@pytest.fixture
def ruled(make_broker: MakeBroker) -> Iterator[Ruled]:
    """Everything that the tests name is allowed."""
    settings = {**ONE_PARTITION, "authorizer_class_name": STANDARD_AUTHORIZER}
    broker = make_broker(ManualClock(), **settings)
    with kafkalog.Admin(broker.store) as admin, Raw(broker.bootstrap_servers) as raw:
        made = Ruled(broker, admin, raw)
        for kind, name in (("topic", "t"), ("group", "g"), ("transactional_id", "t")):
            made.allow(kind, name)
        admin.create_topic("t", 1)
        yield made


def seen(raw: Raw, isolation: int) -> int:
    """Bytes of records that a reader of t sees."""
    return len(raw.fetch("t", isolation_level=isolation).records)


@pytest.mark.parametrize(
    ("kind", "denied"), [("topic", TOPIC_DENIED), ("transactional_id", ID_DENIED)]
)
def test_a_transaction_whose_producer_loses_its_right(
    ruled: Ruled, kind: str, denied: ErrorCode
) -> None:
    """Records that it writes from then on are refused, and never shown.  Without a right on the
    topic it can still end the transaction; without one on its id, only its time does."""
    client = Client(ruled.raw, timeout_ms=10_000)
    assert client.add("t", 0) == [OK]
    assert client.write("t", b"before").error_code == OK
    ruled.forbid(kind, "t")
    assert client.write("t", b"after", sequence=client.sequence).error_code == denied
    if kind == "topic":
        assert client.end(commit=True).error_code == OK
        ruled.allow(kind, "t")
        wait_for(lambda: seen(ruled.raw, 1) > 0, "its marker, which comes after the answer")
    else:
        assert client.end(commit=True).error_code == denied
        assert seen(ruled.raw, 0) > 0 and seen(ruled.raw, 1) == 0
        clock = node_of(ruled.broker).clock
        assert isinstance(clock, ManualClock)

        def ended() -> bool:
            clock.advance(10_000)
            found = ruled.raw.fetch("t", isolation_level=1)
            return bool(found.last_stable_offset == found.high_watermark)

        wait_for(ended, "the coordinator aborts it")
        ruled.allow(kind, "t")
        assert client.end(commit=True).error_code not in (OK, denied)  # too late
    assert ruled.raw.fetch("t").high_watermark == 2  # a record and its marker


def test_a_group_whose_member_loses_its_right(ruled: Ruled) -> None:
    """It is told in the next heartbeat, and can neither commit nor leave; the group goes on with
    it, as by Kafka, until its session ends."""
    raw = ruled.raw
    raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=0)
    body = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
            "member_id": ""}  # fmt: skip
    again = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
             ErrorCode.COORDINATOR_NOT_AVAILABLE)  # fmt: skip

    def joined() -> Any:
        found = raw.call(apis.JOIN_GROUP, 2, **body)
        return None if found.error_code in again else found

    found = wait_for(joined, "it has joined")
    assert found.error_code == OK
    member = {"group_id": "g", "member_id": found.member_id, "generation_id": found.generation_id}
    assignment = [{"member_id": found.member_id, "assignment": b"mine"}]
    assert raw.call(apis.SYNC_GROUP, 2, **member, assignments=assignment).error_code == OK
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7,
                                            "committed_metadata": ""}]}]  # fmt: skip
    commit = {"group_id": "g", "member_id": found.member_id,
              "generation_id_or_member_epoch": found.generation_id, "topics": topics}  # fmt: skip

    def committed() -> int:
        answer = raw.call(apis.OFFSET_COMMIT, 7, **commit)
        return int(answer.topics[0].partitions[0].error_code)

    assert (raw.call(apis.HEARTBEAT, 2, **member).error_code, committed()) == (OK, OK)
    ruled.forbid("topic", "t")
    assert (raw.call(apis.HEARTBEAT, 2, **member).error_code, committed()) == (OK, TOPIC_DENIED)
    ruled.allow("topic", "t")
    ruled.forbid("group", "g")
    assert raw.call(apis.HEARTBEAT, 2, **member).error_code == GROUP_DENIED
    assert committed() == GROUP_DENIED
    left = raw.call(apis.LEAVE_GROUP, 1, group_id="g", member_id=found.member_id)
    assert left.error_code == GROUP_DENIED
    assert len(ruled.admin.describe_groups(["g"])["g"].members) == 1
    assert ruled.admin.list_group_offsets("g")[TopicPartition("t", 0)].offset == 7
    ruled.allow("group", "g")
    assert raw.call(apis.HEARTBEAT, 2, **member).error_code == OK


# ---- TLS ---------------------------------------------------------------------------------------


class Encrypted:
    """A broker with one SASL_SSL listener, whose clock stands still; bob is a super user."""

    def __init__(self, folder: Path, stack: ExitStack, **more: object) -> None:
        self.certificates, self.stack, self.clock = Certificates(folder), stack, ManualClock()
        config = sasl.encrypted(self.certificates, "PLAIN", **more)
        config |= {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:bob"}
        self.broker = stack.enter_context(Broker(folder / "data", config=config, clock=self.clock))
        self._context = client_context(self.certificates.trust)

    def connect(self, user: str, client_id: str = "raw") -> Raw:
        raw = self.stack.enter_context(Raw(self.broker.bootstrap_servers, client_id))
        raw.socket = self._context.wrap_socket(raw.socket, server_hostname="localhost")
        assert authenticate(raw, user).error_code == OK
        return raw


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_quotas_over_tls(tmp_path: Path, stack: ExitStack) -> None:
    """Bytes of requests and of records, not of TLS; the connection is muted, others are not."""
    served = Encrypted(tmp_path, stack)
    bob, other = served.connect("bob"), served.connect("bob", "other")
    assert bob.create("t").error_code == OK

    def limit(key: str, value: float | None) -> None:
        ops = [{"key": key, "value": value or 0.0, "remove": value is None}]
        entry = {"entity": [{"entity_type": "client-id", "entity_name": "raw"}], "ops": ops}
        found = other.call(apis.ALTER_CLIENT_QUOTAS, validate_only=False, entries=[entry])
        assert found.entries[0].error_code == OK

    def produced(raw: Raw) -> int:
        data = batches.batch([batches.Row(b"x" * 1000, None, 0)])
        entry = {"name": "t", "partition_data": [{"index": 0, "records": data}]}
        answer = raw.call(apis.PRODUCE, 9, acks=1, timeout_ms=30_000, topic_data=[entry])
        assert answer.responses[0].partition_responses[0].error_code == OK
        return int(answer.throttle_time_ms)

    assert produced(bob) == 0
    limit("producer_byte_rate", 100.0)
    wait_ms = produced(bob)
    assert wait_ms > 0 and produced(other) == 0
    bob.send(apis.METADATA, 1, {"topics": None})
    assert other.call(apis.METADATA, topics=None).brokers
    served.clock.advance(wait_ms)
    assert bob.receive(apis.METADATA, 1).brokers
    limit("producer_byte_rate", None)
    limit("consumer_byte_rate", 100.0)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20,
             "topics": [{"topic": "t", "partitions": [part]}]}  # fmt: skip
    found = bob.call(apis.FETCH, 11, **asked)
    assert found.throttle_time_ms > 0
    assert other.call(apis.FETCH, 11, **asked).throttle_time_ms == 0


def test_re_authentication_under_load_over_tls(tmp_path: Path, stack: ExitStack) -> None:
    """Eight clients write, read and renew their sessions again and again: each keeps its
    connection and its principal, and no record is lost or another's."""
    served = Encrypted(
        tmp_path, stack, connections_max_reauth_ms=3_600_000, connections_max_idle_ms=-1,
        kafkalog_authentication_max_ms=3_600_000, kafkalog_half_frame_max_ms=3_600_000,
    )  # fmt: skip  # all clients move the one clock
    bob = served.connect("bob")
    with kafkalog.Admin(served.broker.store) as admin:
        admin.create_acls([AclBinding("topic", "alice", "User:alice", "all", pattern="prefixed")])
    count, rounds = 8, 10
    for number in range(count):
        assert bob.create(f"{('alice', 'bob')[number % 2]}-{number}").error_code == OK

    clients = [served.connect(("alice", "bob")[number % 2]) for number in range(count)]

    def run(number: int) -> None:
        user, raw = ("alice", "bob")[number % 2], clients[number]
        for turn in range(rounds):
            served.clock.advance(2_000)
            assert authenticate(raw, user).error_code == OK
            for one in range(5):
                value = f"{number} {turn} {one}".encode()
                assert raw.produce(f"{user}-{number}", value).error_code == OK
            assert raw.fetch(f"{user}-{number}", turn * 5).high_watermark == turn * 5 + 5
            refused = raw.fetch(f"bob-{number ^ 1}" if user == "alice" else f"{user}-{number}")
            assert refused.error_code == (TOPIC_DENIED if user == "alice" else OK)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(run, number) for number in range(count)]:
            done.result()
    for number in range(count):
        topic = f"{('alice', 'bob')[number % 2]}-{number}"
        assert bob.fetch(topic).high_watermark == rounds * 5


def test_a_mirror_over_sasl_ssl(tmp_path: Path) -> None:
    """Records, transactions and groups, each side with its own authority, user and rights."""
    acls = [("alice", "ALL", kind, "*") for kind in ("topic", "group", "transactional_id")]
    acls.append(("alice", "ALL", "cluster", "kafka-cluster"))
    with ExitStack() as stack:
        sides = [
            stack.enter_context(TestBroker(
                tmp_path / name, security=Security("sasl_ssl", {"alice": name}, acls=acls,
                                                   mechanism="SCRAM-SHA-512"),
            ))
            for name in ("source", "target")
        ]  # fmt: skip
        source, target = (one.broker.store for one in sides)
        with kafkalog.Admin(source) as admin:
            admin.create_topic(mirrors.TOPIC, mirrors.PARTITIONS)
        mirrors.fill(source, "secured", 5)
        mirrors.commit(source, "g", mirrors.TOPIC, "secured")
        configs = [one.client_config("kafkalog", "alice") for one in sides]
        addresses = [config.pop("bootstrap.servers") for config in configs]
        mirror = kafkalog.Mirror(
            *addresses, mirrors.TOPIC, groups="g", source_config=configs[0],
            target_config=configs[1],
        )  # fmt: skip
        mirror.copy()
        assert mirrors.rows(target, mirrors.TOPIC) == mirrors.rows(source, mirrors.TOPIC)
        with kafkalog.Admin(target) as admin:
            assert len(admin.list_group_offsets("g")) == mirrors.PARTITIONS
