"""One of our nodes in a cluster of Apache Kafka 3.9: it leads and follows, ends and comes back."""

from __future__ import annotations

import errno
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.config.topic import TopicConfig
from kafkalog.metadata.image import BROKER, TOPIC
from kafkalog.server.broker import node_of
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import entities, own_settings, tree
from kafkalog.zookeeper.session import Create, Delete, Set
from tests.kafka.cluster.mixed import (
    KAFKA,
    NUMBERS,
    OURS,
    RACKS,
    SETTINGS,
    Cluster,
    Load,
    cluster,
)
from tests.support.hasty import Hasty
from tests.support.raw import Raw
from tests.support.stopped import standing_still
from tests.support.waiting import wait_for
from tests.support.zookeeper import ends
from tests.unit.zookeeper.test_tree import ZNODES

__all__ = ["cluster"]

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_both_say_the_same(cluster: Cluster) -> None:
    topic = cluster.topic([KAFKA, OURS], [OURS, KAFKA])

    def same() -> Any:
        theirs, mine = (cluster.metadata(raw, topic) for raw in (cluster.raw, cluster.mine))
        for row in (*theirs.topics[0].partitions, *mine.topics[0].partitions):
            row.isr_nodes.sort()
        return (theirs, mine) if theirs.topics == mine.topics else None

    # On a machine that stalls an ISR may shrink and grow between the two answers.
    theirs, mine = wait_for(same, "both say the same of the topic")
    assert sorted(b.node_id for b in mine.brokers) == sorted(b.node_id for b in theirs.brokers)
    assert mine.controller_id == theirs.controller_id == KAFKA
    assert mine.cluster_id == theirs.cluster_id


@pytest.mark.parametrize("leader", [KAFKA, OURS])
def test_every_copy_is_the_leaders(cluster: Cluster, leader: int) -> None:
    topic = cluster.topic([leader, KAFKA + OURS - leader], segment_bytes="100000")
    cluster.produce(topic)
    assert cluster.same(topic) >= 5
    for raw in (cluster.raw, cluster.mine):
        found = cluster.row(raw, topic, 0)
        assert (found.leader_id, sorted(found.isr_nodes)) == (leader, [KAFKA, OURS])
    log = cluster.log(topic)
    wait_for(lambda: log.high_watermark == log.end_offset, "all is shown")
    follower = cluster.raw if leader == OURS else cluster.mine
    refused = follower.produce(topic, b"x")
    assert refused.error_code == kafkalog.errors.NotLeaderOrFollower.code


def coordinated_by(cluster: Cluster, node: int, kind: int) -> str:
    """A group (kind 0), or a transactional id (1), that this node coordinates; both agree."""
    for raw in (cluster.raw, cluster.mine):
        raw.call(apis.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["any"])

    topic = ("__consumer_offsets", "__transaction_state")[kind]
    elect = [{"topic": topic, "partitions": [0, 1, 2, 3]}]
    names = [f"named{next(NUMBERS)}" for _ in range(16)]

    def found() -> str | None:
        cluster.raw.call(apis.ELECT_LEADERS, 2, election_type=0, topic_partitions=elect,
                         timeout_ms=10_000)  # fmt: skip
        told = [
            {row.key: row.node_id for row in raw.call(
                apis.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=names).coordinators}
            for raw in (cluster.raw, cluster.mine)
        ]  # fmt: skip
        if -1 in told[0].values() or told[0] != told[1]:
            return None
        return next((name for name in names if told[0][name] == node), None)

    name: str = wait_for(found, "it coordinates some")
    return name


@pytest.mark.parametrize(
    ("coordinator", "first"),
    [
        (KAFKA, OURS), (OURS, KAFKA),
        pytest.param(KAFKA, KAFKA, marks=pytest.mark.long),
        pytest.param(OURS, OURS, marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_transactions_over_both(cluster: Cluster, coordinator: int, first: int) -> None:
    """Each coordinates; each leads one of the partitions; offsets of groups are part of them.

    `first`: the bootstrap server; in `make test` not the coordinator.
    """
    topic = cluster.topic([KAFKA, OURS], [OURS, KAFKA])
    name = coordinated_by(cluster, coordinator, 1)
    groups = [coordinated_by(cluster, node, 0) for node in (KAFKA, OURS)]
    servers = (cluster.raw if first == KAFKA else cluster.mine).address
    with kafkalog.Producer(servers, transactional_id=name) as producer:
        for n in range(4):
            try:
                with producer.transaction():
                    for partition in (0, 1):
                        producer.send(topic, b"%d" % n, partition=partition)
                    offsets = {TopicPartition(topic, 0): n}
                    for group in groups:
                        producer.send_offsets(offsets, group)
                    producer.flush()
                    if n % 2:
                        raise KeyError(n)
            except KeyError:
                pass
    for partition in (0, 1):
        log = cluster.log(topic, partition)
        wait_for(lambda log=log: log.last_stable_offset == 8, "all is stable")
        assert cluster.same(topic, partition) == 8
        assert len(log.aborted(0, 8)) == 2
    for group in groups:
        with kafkalog.Consumer(servers, group=group) as consumer:
            assert consumer.committed(TopicPartition(topic, 0)).offset == 2


def test_a_follower_that_stands_still_leaves_and_joins(cluster: Cluster) -> None:
    """Its process is stopped where we lead; ours is silent where it leads."""
    led, followed = cluster.topic([OURS, KAFKA]), cluster.topic([KAFKA, OURS])
    assert cluster.kafka._process is not None
    process = cluster.kafka._process.pid
    cluster.produce(led, 1)
    assert cluster.same(led) == 5
    isr = partial(node_of(cluster.ours).partitions.led.isr, TopicPartition(led, 0))
    # On a busy machine it may have left before it is stopped.
    wait_for(lambda: (sorted(isr().in_sync), isr().due) == ([KAFKA, OURS], False), "in sync")
    with standing_still(process):
        assert cluster.mine.produce(led, b"alone", acks=1).error_code == 0
        wait_for(lambda: isr().due, "proposed")
        assert cluster.log(led).high_watermark == 5, "a replica that may still be in sync lacks it"
    cluster.in_sync(led, KAFKA, OURS)
    wait_for(lambda: cluster.log(led).high_watermark == 6, "it has all again")
    cluster.ours.pause()
    try:
        cluster.raw.produce(followed, b"alone", acks=1)
    finally:
        cluster.ours.resume()
    assert cluster.raw.produce(followed, b"both").error_code == 0
    assert cluster.same(followed) == 2


def test_deleted_records_are_gone_from_all_copies(cluster: Cluster) -> None:
    """The request waits for a paused replica until its timeout."""
    topic = cluster.topic([OURS, KAFKA])
    cluster.produce(topic, 4)
    cluster.same(topic)

    def delete(offset: int, timeout_ms: int) -> tuple[int, int]:
        rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        found = cluster.mine.call(apis.DELETE_RECORDS, 2, topics=rows, timeout_ms=timeout_ms)
        row = found.topics[0].partitions[0]
        return row.error_code, row.low_watermark

    assert delete(2, 60_000) == (0, 2)
    (copy,) = node_of(cluster.ours).reactor.followers(topic, 0)
    assert copy.log_start == 2
    assert cluster.kafka._process is not None
    process = cluster.kafka._process.pid
    with standing_still(process):
        error, low = delete(4, 200)
    assert (error, low) == (ErrorCode.REQUEST_TIMED_OUT, 2)
    assert delete(4, 60_000) == (0, 4)
    cluster.in_sync(topic, KAFKA, OURS)


def test_ours_dies_and_comes_back(cluster: Cluster) -> None:
    """Kafka leads; then ours has everything again, in its next life."""
    topic = cluster.topic([OURS, KAFKA], [KAFKA, OURS])
    cluster.produce(topic, 5)
    cluster.produce(topic, 5, partition=1)
    before = cluster.ours._member.epoch
    cluster.end(cluster.ours.abandon)
    cluster.in_sync(topic, KAFKA)
    assert cluster.state(topic).leader == KAFKA
    for partition in (0, 1):
        assert cluster.raw.produce(topic, b"alone", partition=partition).error_code == 0
    cluster.begin()
    assert cluster.ours._member.epoch > before
    for partition in (0, 1):
        cluster.in_sync(topic, KAFKA, OURS, partition=partition)
        assert cluster.same(topic, partition) > 5
    elect = {"topic": topic, "partitions": [0]}
    cluster.raw.call(apis.ELECT_LEADERS, 2, election_type=0, topic_partitions=[elect],
                     timeout_ms=10_000)  # fmt: skip
    cluster.led(topic, 0, OURS)
    cluster.produce(topic, 5)
    cluster.same(topic)
    assert cluster.log(topic).epochs[-1].epoch == cluster.state(topic).leader_epoch


def test_a_log_goes_offline_while_it_is_led(cluster: Cluster, native_test: tuple[Any, Any]) -> None:
    """Kafka's controller hears of it, lets Kafka lead, and reports the offline replica; after a
    restart our node has everything again."""
    topic = cluster.topic([OURS, KAFKA], [OURS, KAFKA])
    cluster.produce(topic, 5)
    cluster.in_sync(topic, OURS, KAFKA)
    hooks = native_test[1]
    hooks.kl_io_fail(b"fdatasync", 1, errno.EIO, 1, 0)
    try:
        assert cluster.mine.produce(topic, b"x").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    finally:
        hooks.kl_io_reset()
    cluster.led(topic, 0, KAFKA)
    cluster.in_sync(topic, KAFKA)
    for raw in (cluster.raw, cluster.mine):
        wait_for(
            lambda raw=raw: cluster.row(raw, topic, 0).offline_replicas == [OURS],
            "both say whose copy is offline",
        )
    assert cluster.leader(cluster.raw, topic, 1) == OURS
    assert cluster.raw.produce(topic, b"alone").error_code == 0
    cluster.produce(topic, 5, partition=1)
    cluster.end(cluster.ours.abandon)
    cluster.begin()
    for partition in (0, 1):
        cluster.in_sync(topic, KAFKA, OURS, partition=partition)
        cluster.same(topic, partition)


def test_an_orderly_end(cluster: Cluster) -> None:
    """Every partition keeps a leader, which has what we acknowledged with acks=1 until the end;
    the replica needs no recovery."""
    topic = cluster.topic([OURS, KAFKA])
    cluster.produce(topic, 5)
    epoch = cluster.state(topic).leader_epoch
    servers = f"{cluster.kafka.bootstrap_servers},{cluster.ours.bootstrap_servers}"
    with Hasty(servers, topic) as load:
        load.more()
        cluster.end(cluster.ours.close)
        load.more()
    state = cluster.state(topic)
    assert (state.leader, state.isr, state.leader_epoch) == (KAFKA, (KAFKA,), epoch + 1)
    cluster.begin()
    cluster.in_sync(topic, KAFKA, OURS)
    assert cluster.log(topic).recovery.segments_recovered == 0
    cluster.same(topic)
    log = cluster.log(topic)
    wait_for(lambda: log.high_watermark == log.end_offset, "all is shown")
    assert load.lost(log.read()) == []


def test_a_topic_is_deleted(cluster: Cluster) -> None:
    topic = cluster.topic([OURS, KAFKA], [KAFKA, OURS])
    cluster.produce(topic, 2)
    cluster.mine.call(apis.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=10_000)

    def left() -> list[Path]:
        return [path for folder in cluster.folders.values() for path in folder.glob(f"{topic}-*")
                if not path.name.endswith("-delete")]  # fmt: skip

    wait_for(lambda: not left(), "no copy is left")
    assert cluster.row(cluster.mine, topic, 0).error_code == 3
    again = cluster.topic([OURS, KAFKA])
    cluster.produce(again, 1)
    cluster.same(again)


def test_settings_that_change_are_obeyed(cluster: Cluster) -> None:
    topic = cluster.topic([OURS, KAFKA], max_message_bytes="3000")
    refused = cluster.mine.produce(topic, b"x" * 4000)
    assert refused.error_code == kafkalog.errors.MessageTooLarge.code
    change = {"name": "max.message.bytes", "config_operation": 0, "value": "9000"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    done = cluster.mine.call(
        apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    )
    assert not done.responses[0].error_code
    wait_for(lambda: not cluster.mine.produce(topic, b"x" * 4000).error_code, "it is obeyed")


def set_by_kafka(cluster: Cluster, kind: int, resource: str, name: str, value: str) -> str:
    """Kafka's controller changes a setting; returns why not."""
    change = {"name": name, "config_operation": 0, "value": value}
    row = {"resource_type": kind, "resource_name": resource, "configs": [change]}
    done = cluster.raw.call(apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=[row], validate_only=False)
    return done.responses[0].error_message or ""


def test_settings_that_kafka_does_not_know(cluster: Cluster) -> None:
    """Those that are kept out of its znode are those that it does not know, and with them there it
    goes on changing the topic's others; it accepts any of a broker."""
    topic = cluster.topic([OURS, KAFKA])
    unknown = {
        name for name in TopicConfig.table
        if "Unknown topic config" in set_by_kafka(cluster, TOPIC, topic, name, "0")
    }  # fmt: skip
    assert unknown == {name for name in TopicConfig.table if own_settings.is_own(name)}
    topic_id = cluster.metadata(cluster.raw, topic).topics[0].topic_id
    data = own_settings.write(topic_id, {"kafkalog.durability": "os"})
    told = Create(entities.CHANGE, entities.write_change(("topics", topic)), sequence=True)
    assert cluster.session.commit([Create(own_settings.path_of(topic), data), told]).done
    log = node_of(cluster.ours).partitions

    def seen() -> tuple[str, int]:
        config = log.config(topic)
        return config.kafkalog_durability, config.retention_ms

    wait_for(lambda: seen()[0] == "os", "it is obeyed")
    assert set_by_kafka(cluster, TOPIC, topic, "retention.ms", "77000") == ""
    wait_for(lambda: seen() == ("os", 77_000), "both are obeyed")
    for resource in ("", str(KAFKA)):
        for name, value in (("kafkalog.durability", "os"), ("log.retention.ms", "-1")):
            assert set_by_kafka(cluster, BROKER, resource, name, value) == ""


def test_partitions_are_added(cluster: Cluster) -> None:
    topic = cluster.topic([KAFKA, OURS])
    more = {"name": topic, "count": 2, "assignments": [{"broker_ids": [OURS, KAFKA]}]}
    done = cluster.mine.call(apis.CREATE_PARTITIONS, 3, topics=[more], timeout_ms=10_000)
    assert not done.results[0].error_code, done
    cluster.led(topic, 1, OURS)
    cluster.produce(topic, 2, partition=1)
    cluster.same(topic, 1)


def test_the_session_ends(cluster: Cluster) -> None:
    """A new session begins by itself, and with it another life of the node."""
    topic = cluster.topic([OURS, KAFKA])
    member = cluster.ours._member
    before = member.epoch
    ends(cluster.session.hosts, tree.broker_path(OURS))
    wait_for(lambda: member.epoch > before, "it is registered again")
    cluster.in_sync(topic, KAFKA, OURS)
    cluster.produce(topic, 2)
    cluster.same(topic)


@pytest.mark.parametrize("coordinator", [KAFKA, OURS])
def test_groups(cluster: Cluster, coordinator: int) -> None:
    """Our consumer and librdkafka's, wherever the coordinator is; they continue elsewhere."""
    topic = cluster.topic([OURS, KAFKA], [KAFKA, OURS])
    group = coordinated_by(cluster, coordinator, 0)
    for partition in (0, 1):
        cluster.produce(topic, 3, partition)
    servers = cluster.ours.bootstrap_servers
    with kafkalog.Consumer(servers, group=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        seen: list[Any] = []
        wait_for(lambda: seen.extend(consumer.poll(100)) or len(seen) == 30, "it reads all")
        consumer.commit()
    cluster.produce(topic, 1)
    from confluent_kafka import Consumer

    other = Consumer({"bootstrap.servers": cluster.kafka.bootstrap_servers, "group.id": group,
                      "auto.offset.reset": "error"})  # fmt: skip
    other.subscribe([topic])
    more: list[Any] = []
    wait_for(lambda: more.extend(other.consume(10, 0.1)) or len(more) == 5, "it goes on")
    assert {(one.topic(), one.partition()) for one in more} == {(topic, 0)}
    other.close()


def test_a_follower_names_the_leader(cluster: Cluster) -> None:
    """In answers that only the leader can give."""
    topic = cluster.topic([KAFKA, OURS])
    refused = kafkalog.errors.NotLeaderOrFollower.code
    assert cluster.mine.offsets(topic, -1).error_code == refused
    row = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    asked = [{"topic": topic, "partitions": [row]}]
    found = cluster.mine.call(apis.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=asked)
    assert found.topics[0].partitions[0].error_code == refused
    rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}]
    found = cluster.mine.call(apis.DELETE_RECORDS, 2, topics=rows, timeout_ms=1000)
    assert found.topics[0].partitions[0].error_code == refused


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/kafka-acl/Topic/secret", b"{}"),
        ("/kafka-acl-extended/prefixed/Topic/secret", b"{}"),
        ("/config/users/alice", ZNODES["/config/users/alice"].data),
    ],
)
def test_protection_that_nobody_enforces_is_named(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, data: bytes
) -> None:
    """The node joins: neither broker has an authorizer, or a listener where clients log in."""
    cluster.session.ensure([path])
    assert cluster.session.commit([Set(path, data)]).done
    config = {**SETTINGS, "zookeeper.connect": cluster.session.hosts, "node.id": 9}
    try:
        with kafkalog.Broker(tmp_path / "new", config=config):
            assert any("and neither does this node" in one.getMessage() for one in caplog.records)
    finally:
        assert cluster.session.commit([Delete(path)]).done


def test_directories_that_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    """One that was served alone, and one of another cluster."""
    alone, other = tmp_path / "alone", tmp_path / "other"
    joining = {"zookeeper.connect": cluster.session.hosts, "node.id": 9}
    kafkalog.Broker(alone, config={"node.id": 9}).close()
    with pytest.raises(kafkalog.errors.ArgumentError, match="a node that is alone"):
        kafkalog.Broker(alone, config=joining)
    shutil.copytree(cluster.folders[OURS], other, ignore=shutil.ignore_patterns(".lock*"))
    meta = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(re.sub("cluster.id=.*", "cluster.id=elsewhere", meta))
    with pytest.raises(kafkalog.errors.ArgumentError, match="found cluster elsewhere"):
        kafkalog.Broker(other, config={**joining, "node.id": OURS})


@pytest.mark.long
def test_a_number_that_lives_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    config = {**SETTINGS, "zookeeper.connect": cluster.session.hosts, "node.id": KAFKA}
    config |= {"zookeeper.session.timeout.ms": 2_000, "zookeeper.connection.timeout.ms": 60_000}
    with pytest.raises(kafkalog.errors.DuplicateBrokerRegistration, match="broker 1 is registered"):
        kafkalog.Broker(tmp_path / "new", config=config)


def test_both_kinds_announce_the_same(cluster: Cluster) -> None:
    """Except two newer APIs, of which Kafka has them only with KRaft; and no features."""
    named = {"client_software_name": "test", "client_software_version": "1"}
    theirs, ours = (raw.call(apis.API_VERSIONS, 3, **named) for raw in (cluster.raw, cluster.mine))
    new = {one.api_key for one in ours.api_keys} - {one.api_key for one in theirs.api_keys}
    assert new == {apis.LIST_CONFIG_RESOURCES.key, apis.DESCRIBE_TOPIC_PARTITIONS.key}
    for found in (theirs, ours):
        assert (found.supported_features, found.finalized_features) == ([], [])
        assert found.finalized_features_epoch == 0


@pytest.mark.parametrize("leader", [KAFKA, OURS])
def test_a_consumer_reads_the_copy_in_its_rack(cluster: Cluster, leader: int) -> None:
    """The leader sends it there, and it is served there: our consumer, and librdkafka's."""
    other = KAFKA + OURS - leader
    topic = cluster.topic([leader, other])
    cluster.produce(topic, 4)
    cluster.same(topic)
    raws = {KAFKA: cluster.raw, OURS: cluster.mine}
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    asked = {"max_wait_ms": 100, "max_bytes": 1 << 20, "session_epoch": -1,
             "topics": [{"topic": topic, "partitions": [row]}]}  # fmt: skip

    def sent() -> bool:
        found = raws[leader].call(apis.FETCH, 11, rack_id=RACKS[other], **asked)
        return bool(found.responses[0].partitions[0].preferred_read_replica == other)

    wait_for(sent, "the leader knows that it is there")
    stays = raws[leader].call(apis.FETCH, 11, rack_id=RACKS[leader], **asked)
    assert stays.responses[0].partitions[0].preferred_read_replica == -1
    servers = raws[leader].address
    config = {"client.rack": RACKS[other], "isolation.level": "read_committed"}
    with kafkalog.Consumer(servers, auto_offset_reset="earliest", config=config) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen: list[Any] = []
        wait_for(lambda: seen.extend(consumer.poll(100)) or len(seen) == 20, "it reads all")
        assert [*consumer._fetcher.core.nearer] == [(topic, 0)]
        cluster.produce(topic, 1)
        wait_for(lambda: seen.extend(consumer.poll(100)) or len(seen) == 25, "and what comes")
    assert [one.offset for one in seen] == [*range(25)]
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    theirs = Consumer({"bootstrap.servers": servers, "group.id": "any",
                       "client.rack": RACKS[other]})  # fmt: skip
    theirs.assign([Place(topic, 0, 0)])
    more: list[Any] = []
    wait_for(lambda: more.extend(theirs.consume(25, 0.1)) or len(more) == 25, "it reads all")
    theirs.close()


def test_a_partition_is_moved_under_load(cluster: Cluster) -> None:
    """To our node and back, through either; cancelled half way; nothing lost or duplicated."""
    topic = cluster.topic([KAFKA])
    servers = f"{cluster.kafka.bootstrap_servers},{cluster.ours.bootstrap_servers}"

    def move(raw: Raw, *replicas: int) -> None:
        row = {"partition_index": 0, "replicas": list(replicas) or None}
        asked = [{"name": topic, "partitions": [row]}]
        done = raw.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=asked, timeout_ms=30_000)
        assert not done.error_code and not done.responses[0].partitions[0].error_code, done

    def moving(raw: Raw) -> list[Any]:
        asked = [{"name": topic, "partition_indexes": [0]}]
        rows = raw.call(apis.LIST_PARTITION_REASSIGNMENTS, 0, topics=asked, timeout_ms=9000).topics
        return [*rows]

    def moved(*replicas: int) -> None:
        wait_for(lambda: not moving(cluster.mine), "it is moved")
        wait_for(lambda: {*cluster.state(topic).isr} == {*replicas}, "in sync")
        folders = {n: folder / f"{topic}-0" for n, folder in cluster.folders.items()}
        wait_for(lambda: all(folder.exists() == (n in replicas) for n, folder in folders.items()),
                 "the old replica is removed")  # fmt: skip

    load = Load(servers, topic)
    try:
        load.more()
        for raw, replicas in (
            (cluster.mine, [OURS]), (cluster.raw, [KAFKA, OURS]), (cluster.mine, [KAFKA]),
            (cluster.raw, [OURS, KAFKA]),
        ):  # fmt: skip
            move(raw, *replicas)
            moved(*replicas)
            load.more()
    finally:
        load.end()
    cluster.same(topic)
    with kafkalog.Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen: list[Any] = []
        wait_for(lambda: seen.extend(consumer.poll(100)) or len(seen) >= len(load.sent), "all")
    assert [one.value for one in seen] == load.sent


def test_a_node_without_a_replica_is_asked(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients get an error that makes them look for another node; nothing is logged as an error."""
    topic = cluster.topic([KAFKA])
    cluster.produce(topic, 1)
    elsewhere = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert cluster.mine.fetch(topic).error_code in elsewhere
    assert cluster.mine.produce(topic, b"x").error_code in elsewhere
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_a_move_is_given_up(cluster: Cluster) -> None:
    """While the target is silent: what it then begins to copy is removed again."""
    topic = cluster.topic([KAFKA])
    cluster.produce(topic, 2)

    def ask(replicas: list[int] | None) -> None:
        row = {"partition_index": 0, "replicas": replicas}
        asked = [{"name": topic, "partitions": [row]}]
        done = cluster.raw.call(
            apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=asked, timeout_ms=30_000
        )
        assert not done.error_code and not done.responses[0].partitions[0].error_code, done

    def kept() -> tree.TopicNode:
        found = cluster.session.read(tree.topic_path(topic))
        assert found is not None
        return tree.read_topic(topic, found.data)

    cluster.ours.pause()
    try:
        ask([OURS])
        assert (kept().replicas[0], kept().adding[0], kept().removing[0]) == (
            (OURS, KAFKA), (OURS,), (KAFKA,),
        )  # fmt: skip
        ask(None)
        assert (kept().replicas[0], *kept().adding, *kept().removing) == ((KAFKA,),)
    finally:
        cluster.ours.resume()
    after = cluster.topic([OURS])  # the controller's requests come in order
    assert cluster.state(topic).isr == (KAFKA,)
    wait_for(lambda: not (cluster.folders[OURS] / f"{topic}-0").exists(), "it is removed")
    assert cluster.leader(cluster.mine, after, 0) == OURS


@pytest.mark.parametrize(("old", "new"), [(KAFKA, OURS), (OURS, KAFKA)])
def test_a_topic_is_deleted_while_it_is_moved(cluster: Cluster, old: int, new: int) -> None:
    """By Kafka's controller, while our node is silent."""
    topic = cluster.topic([old])
    cluster.produce(topic, 2)
    cluster.ours.pause()
    try:
        row = {"partition_index": 0, "replicas": [new]}
        done = cluster.raw.call(
            apis.ALTER_PARTITION_REASSIGNMENTS, 0,
            topics=[{"name": topic, "partitions": [row]}], timeout_ms=30_000,
        )  # fmt: skip
        assert not done.responses[0].partitions[0].error_code, done
        cluster.raw.call(apis.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=0)
        wait_for(lambda: cluster.session.read(f"{tree.DELETE_TOPICS}/{topic}"), "it is asked for")
        assert cluster.session.read(tree.topic_path(topic))
    finally:
        cluster.ours.resume()
    wait_for(lambda: cluster.session.read(tree.topic_path(topic)) is None, "it is deleted")
    folders = [folder / f"{topic}-0" for folder in cluster.folders.values()]
    wait_for(lambda: not any(folder.exists() for folder in folders), "no copy is left")
    wait_for(lambda: topic not in node_of(cluster.ours).image.topics, "our node forgot it")
