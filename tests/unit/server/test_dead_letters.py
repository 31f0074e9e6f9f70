"""Dead letters of share groups (KIP-1191): what is written, where, and when it cannot be."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import AclBinding, NewTopic, Record, ShareConsumer
from kafkalog.client.link.failures import failure
from kafkalog.config.authorizer import STANDARD_AUTHORIZER
from kafkalog.errors import TopicAuthorizationFailed
from kafkalog.server import dead_letters
from kafkalog.server.broker import node_of
from kafkalog.server.dead_letters import DeadLetters
from kafkalog.testing.broker import TestBroker as Broker
from kafkalog.testing.cluster import TestCluster as Cluster
from kafkalog.testing.controllers import OwnController
from kafkalog.wire.error_codes import ErrorCode
from tests.support.secured import ALICE, PLAIN, jaas
from tests.support.secured_nodes import LISTENER, LOGIN, SECRET, SecuredNodes
from tests.support.waiting import LIMIT_S, wait_for

QUICK = {
    "group.share.min.heartbeat.interval.ms": 5,
    "group.share.heartbeat.interval.ms": 5,
    "group.share.assignment.interval.ms": 0,
    "errors.deadletterqueue.auto.create.topics.enable": True,
}
EXPLICIT = {"share.acknowledgement.mode": "explicit", "fetch.max.wait.ms": 20}
NAME, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
OWN = {"share.auto.offset.reset": "earliest", NAME: "dlq.t", "share.delivery.count.limit": "2"}
ENABLED = {"errors.deadletterqueue.group.enable": "true"}


def prepare(bootstrap: str, partitions: int = 1) -> None:
    """A topic, and a group that has dead letters."""
    with kafkalog.Admin(bootstrap) as admin:
        admin.update_features({"share.version": 2}).check()
        admin.create_topic("t", partitions)
        admin.alter_configs({("group", "g"): OWN}).check()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", config=QUICK) as made:
        prepare(made.bootstrap_servers)
        yield made


def end(
    bootstrap: str, kind: str, *values: bytes, group: str = "g",
    config: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write records, and make a member end each with this acknowledgement."""
    with kafkalog.Producer(bootstrap, config=config) as producer:
        producer.send_many("t", list(values), [b"k"] * len(values)).result(LIMIT_S)
    left = list(values)
    with ShareConsumer(bootstrap, "t", group=group, config={**EXPLICIT, **(config or {})}) as one:

        def ended() -> bool:
            for record in one.poll(50):
                if record.value not in values:
                    one.acknowledge(record, "reject")  # of another test's part
                    continue
                one.acknowledge(record, kind)
                if kind == "reject" or record.delivery_count == 2:
                    left.remove(record.value or b"")
            return not left

        wait_for(ended, "the end of the records")
        one.commit().check()


def letters(bootstrap: str, count: int, config: Mapping[str, str] | None = None) -> list[Record]:
    found: list[Record] = []
    with kafkalog.Consumer(bootstrap, auto_offset_reset="earliest", config=config) as consumer:
        consumer.assign([("dlq.t", 0)])

        def all_there() -> bool:
            found.extend(consumer.poll(20))
            return len(found) >= count

        wait_for(all_there, "the letters")
    return found


def headers(record: Record) -> dict[str, bytes | None]:
    prefix = "__dlq.errors."
    assert all(name.startswith(prefix) for name, _ in record.headers)
    return {name.removeprefix(prefix): value for name, value in record.headers}


def test_rejected_and_too_often_delivered_records_have_letters(broker: Broker) -> None:
    end(broker.bootstrap_servers, "reject", b"1")
    end(broker.bootstrap_servers, "release", b"2")
    first, second = letters(broker.bootstrap_servers, 2)
    assert (first.key, first.value) == (None, None)
    assert headers(first) == {
        "topic": b"t", "partition": b"0", "offset": b"0", "group": b"g", "delivery.count": b"1",
        "message": b"Offset rejected by client.",
    }  # fmt: skip
    found = headers(second)
    assert (found["offset"], found["delivery.count"]) == (b"1", b"2")
    assert found["message"] == b"Offset delivery count exceeded the threshold."


def test_letters_and_acknowledgements_are_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the most that have counts of their own, groups are counted together."""
    bootstrap = broker.bootstrap_servers
    served = broker.broker
    assert served is not None
    end(bootstrap, "reject", b"1", b"2")
    end(bootstrap, "release", b"3")
    letters(bootstrap, 3)
    monkeypatch.setattr(node_of(served).letters, "_counted_max", 1)
    with kafkalog.Admin(bootstrap) as admin:
        admin.alter_configs({("group", "h"): {**OWN, NAME: "dlq.none.__"}}).check()
        admin.create_topic("dlq.none.__", 1)
    end(bootstrap, "reject", b"4", group="h")
    wait_for(lambda: lag(broker, "h") == 0, "the end of the record")

    def counted() -> dict[str, float]:
        return {name.removeprefix("kafka_server_share"): value
                for name, value in served.metrics().items()}  # fmt: skip

    found = counted()
    said = "groupmetrics_recordacknowledgements_total"
    assert found[f'{said}{{ackType="Reject"}}'] == 6
    assert found[f'{said}{{ackType="Release"}}'] == 2
    assert found[f'{said}{{ackType="Accept"}}'] == found[f'{said}{{ackType="Renew"}}'] == 0
    assert found['kafkalog_dead_letters_total{group="g"}'] == 3
    writes = "groupmetrics_deadletterqueuetotalproducerequests_total"
    assert found[f'{writes}{{group="g"}}'] >= 2
    failed = "groupmetrics_deadletterqueuefailedproducerequests_total"
    assert [value for name, value in found.items() if name.startswith(failed)] == [0, 0]
    assert 'kafkalog_dead_letters_total{group="(others)"}' in found


def test_share_partitions_are_shown_while_members_read(broker: Broker) -> None:
    served = broker.broker
    assert served is not None
    with kafkalog.Producer(broker.bootstrap_servers) as producer:
        producer.send_many("t", [b"1", b"2", b"3"]).result(LIMIT_S)
    with ShareConsumer(broker.bootstrap_servers, "t", group="g", config=EXPLICIT) as one:
        records = wait_for(lambda: one.poll(50), "records")
        found = served.metrics()
        where = '{group="g",topic="t",partition="0"}'
        of_partition = "kafka_server_sharepartitionmetrics_"
        assert found[f"{of_partition}inflightmessagecount{where}"] == len(records) == 3
        assert found[f"{of_partition}inflightbatchcount{where}"] == 1
        assert found[f"{of_partition}acquisitionlocktimeout_total{where}"] == 0  # none has ended
        assert found["kafka_server_sharesessioncache_sharesessionscount"] == 1
        assert found["kafka_server_sharesessioncache_sharepartitionscount"] == 1
        held = found["kafkalog_share_records_bytes"]
        broker.clock.advance(31_000)
        name = f"{of_partition}acquisitionlocktimeout_total{where}"
        wait_for(lambda: served.metrics()[name] == 3, "the end of the locks")
    found = served.metrics()
    assert found["kafka_server_sharesessioncache_sharesessionscount"] == 0
    assert found["kafkalog_share_records_bytes"] < held


def test_accepted_records_have_none(broker: Broker) -> None:
    with kafkalog.Producer(broker.bootstrap_servers) as producer:
        producer.send_many("t", [b"1", b"2"]).result(LIMIT_S)
    with ShareConsumer(broker.bootstrap_servers, "t", group="g", config=EXPLICIT) as one:
        first, second = wait_for(lambda: one.poll(50), "records")
        one.acknowledge(first)
        one.acknowledge(second, "reject")
        one.commit().check()
    (letter,) = letters(broker.bootstrap_servers, 1)
    assert headers(letter)["offset"] == b"1"


def test_copies_in_several_rounds(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "ROUND_BYTES", 100)
    monkeypatch.setattr(dead_letters, "ROUND_RECORDS", 3)
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({("group", "g"): {**OWN, COPY: "true"}}).check()
    values = [b"%d" % number * 40 for number in range(10)]
    end(broker.bootstrap_servers, "reject", *values)
    found = letters(broker.bootstrap_servers, 10)
    assert [(one.key, one.value) for one in found] == [(b"k", value) for value in values]
    assert [headers(one)["offset"] for one in found] == [b"%d" % n for n in range(10)]


def test_a_copy_that_is_too_large_has_only_headers(broker: Broker) -> None:
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        small = NewTopic("dlq.t", 1, config={**ENABLED, "max.message.bytes": "1000"})
        admin.create_topics([small]).check()
        admin.alter_configs({("group", "g"): {**OWN, COPY: "true"}}).check()
    end(broker.bootstrap_servers, "reject", b"x" * 2_000)
    (letter,) = letters(broker.bootstrap_servers, 1)
    assert letter.value is None and headers(letter)["offset"] == b"0"


def test_letters_of_a_broker_that_ended_are_written_after_its_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "bury", lambda *_: None)
        broker.restart()
        end(broker.bootstrap_servers, "reject", b"1")
    broker.restart()
    end(broker.bootstrap_servers, "reject", b"2")
    found = [headers(one)["offset"] for one in letters(broker.bootstrap_servers, 2)]
    assert sorted(found) == [b"0", b"1"]


@pytest.mark.parametrize("name", ["dead", "dlq.t"])
def test_records_whose_letters_cannot_be_written_are_archived(
    broker: Broker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the prefix, or with a topic that is not for letters."""
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("dlq.t", 1)
        admin.alter_configs({("group", "g"): {**OWN, NAME: name}}).check()
    end(broker.bootstrap_servers, "reject", b"1")
    wait_for(lambda: lag(broker) == 0, "the end of the record")
    assert f"not written to the dead-letter topic: {name}" in caplog.text
    assert broker.records("dlq.t") == []


def lag(broker: Broker, group: str = "g") -> int | None:
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        (row,) = admin.list_share_group_offsets(group).values()
    return row.lag


def test_attempts_are_repeated_and_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letters, "PAUSE_S", 0.001)
    made: list[str] = []

    def create(name: str) -> ErrorCode:
        made.append(name)
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED

    assert broker.broker is not None
    monkeypatch.setattr(node_of(broker.broker).letters._topics, "_create", create)
    end(broker.bootstrap_servers, "reject", b"1")
    wait_for(lambda: lag(broker) == 0, "the end of the record")
    assert made == ["dlq.t"] * dead_letters.ATTEMPTS
    assert "THROTTLING_QUOTA_EXCEEDED" in caplog.text


def test_more_letters_than_are_written_at_a_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "FLYING_MAX", 1)
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({("group", "g"): {**OWN, "share.delivery.count.limit": "5"}}).check()
    with kafkalog.Producer(broker.bootstrap_servers) as producer:
        producer.send_many("t", [b"%d" % n for n in range(20)]).result(LIMIT_S)
    with ShareConsumer(broker.bootstrap_servers, "t", group="g", config=EXPLICIT) as one:
        for record in wait_for(lambda: one.poll(50), "records"):
            one.acknowledge(record, "reject" if record.offset % 2 else "accept")
        one.commit().check()
    found = letters(broker.bootstrap_servers, 10)
    assert sorted(int(headers(one)["offset"] or b"") for one in found) == [*range(1, 20, 2)]


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no letter be given up because the machine is slow."""
    monkeypatch.setattr(dead_letters, "ATTEMPTS", 100_000)
    monkeypatch.setattr(dead_letters, "PAUSE_MAX_S", 0.05)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_letters_wait_for_replicas_and_new_topics(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    code: ErrorCode,
) -> None:  # fmt: skip
    monkeypatch.setattr(dead_letters, "PAUSE_S", 0.001)
    assert broker.broker is not None
    appends = node_of(broker.broker).letters._appends
    append, failures = appends.append_batch, [code] * (dead_letters.ATTEMPTS - 1)

    def fails_first(*what: Any) -> None:
        if failures:
            what[-1](failure(failures.pop(), "dlq.t-0"))
        else:
            append(*what)

    monkeypatch.setattr(appends, "append_batch", fails_first)
    end(broker.bootstrap_servers, "reject", b"1")
    (letter,) = letters(broker.bootstrap_servers, 1)
    assert headers(letter)["offset"] == b"0" and not failures
    assert "not written to the dead-letter topic" not in caplog.text


@pytest.mark.long
def test_the_topic_may_have_another_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three brokers leads a partition of the records; one creates and leads the topic."""
    monkeypatch.setattr(dead_letters, "PAUSE_S", 0.05)
    patient(monkeypatch)
    config = {**QUICK, "replica.lag.time.max.ms": 600_000}  # a busy machine shrinks no ISR
    with Cluster(tmp_path, config=config) as cluster:
        bootstrap = cluster.bootstrap_servers
        prepare(bootstrap, partitions=3)
        assert len({cluster.leader("t", number) for number in range(3)}) == 3
        with kafkalog.Producer(bootstrap) as producer:
            for number in range(3):
                producer.send("t", b"%d" % number, partition=number).result(LIMIT_S)
        with ShareConsumer(bootstrap, "t", group="g", config=EXPLICIT) as one:

            def ended() -> bool:
                for record in one.poll(50):
                    one.acknowledge(record, "reject")
                one.commit()  # if it fails, as a node was fenced, the record comes again
                return partitions(bootstrap) == {b"0", b"1", b"2"}

            wait_for(ended, "a letter of each partition")
    mine = [one for one in caplog.record_tuples if one[0] == dead_letters.__name__]
    assert [one for one in mine if one[1] >= logging.ERROR] == []


def partitions(bootstrap: str) -> set[bytes | None]:
    """The partitions of the records that have letters."""
    with kafkalog.Admin(bootstrap) as admin:
        if "dlq.t" not in admin.list_topics():
            return set()
    return {headers(one)["partition"] for one in letters(bootstrap, 1)}


@pytest.mark.long
def test_brokers_write_letters_as_themselves(tmp_path: Path) -> None:
    """With TLS, logins and ACLs, to another broker: the member has no right to the topic."""
    authority = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{LOGIN};User:ANONYMOUS",  # the controller knows nodes as ANONYMOUS
    }
    states = "share.coordinator.state.topic."
    one_copy = dict.fromkeys(
        ["min.insync.replicas", "default.replication.factor", "offsets.topic.replication.factor",
         f"{states}replication.factor", f"{states}min.isr"], 1,
    )  # fmt: skip
    controller = OwnController(str(tmp_path / "controller"), authority)
    nodes = SecuredNodes(tmp_path, "", "SASL_SSL")
    with closing(controller), nodes:
        for number in (1, 2):
            own = {
                **QUICK, **one_copy, **controller.settings(number), **authority,
                "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{LISTENER}:SASL_SSL",
                "zookeeper.connect": None,
            }  # fmt: skip
            nodes.begin(number, settings=own)
        above = {**nodes.client, "sasl.jaas.config": jaas(PLAIN, username=LOGIN, password=SECRET)}
        with kafkalog.Admin(nodes.servers, config=above) as admin:
            admin.update_features({"share.version": 2}).check()
            admin.create_topics([("t", -1, -1, {}, [[2]])]).check()
            admin.create_topics([("dlq.t", -1, -1, ENABLED, [[1]])]).check()
            admin.alter_configs({("group", "g"): OWN}).check()
            mine = [("topic", "t"), ("group", "g")]
            admin.create_acls(
                [AclBinding(kind, name, f"User:{ALICE}", "all") for kind, name in mine]
            ).check()
        end(nodes.servers, "reject", b"1", config=nodes.client)
        (letter,) = letters(nodes.servers, 1, config=above)
        assert headers(letter)["offset"] == b"0"
        with (
            kafkalog.Producer(nodes.servers, config=nodes.client) as producer,
            pytest.raises(TopicAuthorizationFailed),
        ):
            producer.send("dlq.t", b"mine").result(LIMIT_S)
