"""`kafkalog_cluster`: three nodes in one process that die and lose each other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import kafkalog
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Address
from kafkalog.coordinator import core
from kafkalog.server.broker import node_of
from kafkalog.server.journal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafkalog.testing.cluster import TestCluster
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.membership import led_again, led_elsewhere, made_leader, shown_leader

NODES = [1, 2, 3]


def values(cluster: TestCluster, topic: str, count: int) -> list[int]:
    found = cluster.wait_for_records(topic, count)
    return [int(record.value or b"-1") for record in found]


def all_in_sync(cluster: TestCluster, topic: str = "t") -> None:
    cluster.wait_until(lambda: cluster.in_sync(topic) == NODES, "all are in sync")


@pytest.mark.kafkalog(topics={"orders": 3}, config={"log.retention.hours": 5})
def test_three_nodes_share_the_partitions(kafkalog_cluster: TestCluster) -> None:
    cluster = kafkalog_cluster
    assert cluster.running == NODES
    assert sorted(cluster.leader("orders", n) for n in range(3)) == NODES
    for n in range(3):
        cluster.wait_until(lambda n=n: cluster.in_sync("orders", n) == NODES, "all are in sync")
    cluster.fill("orders", ["1", "2", "3"], partition=0)
    assert values(cluster, "orders", 3) == [1, 2, 3]
    with kafkalog.Admin(cluster.bootstrap_servers) as admin:
        told = admin.describe_cluster()
        assert [n.node for n in told.nodes] == NODES
        assert told.controller in NODES
    for node in cluster.nodes.values():
        assert node.broker.config.topic.retention_ms == 5 * 3_600_000


def test_a_leader_is_killed(kafkalog_cluster: TestCluster) -> None:
    """Acknowledged records are there, once and in order; the killed node catches up again."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    with kafkalog.Producer(cluster.bootstrap_servers, acks="all") as producer:
        for n in range(50):
            producer.send("t", b"%d" % n).result(60)
        leader = cluster.leader("t")
        cluster.kill(leader)
        assert cluster.running == [node for node in NODES if node != leader]
        for n in range(50, 100):
            producer.send("t", b"%d" % n).result(60)
    assert cluster.leader("t") not in (leader, -1)
    assert values(cluster, "t", 100) == list(range(100))
    cluster.start(leader)
    all_in_sync(cluster)


@pytest.mark.kafkalog(config={"kafkalog.durability": "os", "replica.lag.time.max.ms": 60_000})
def test_a_topic_is_as_durable_as_it_is_set(kafkalog_cluster: TestCluster) -> None:
    """With any setting of the nodes, an acknowledged record is on disk on all in-sync replicas."""
    cluster = kafkalog_cluster
    durability = {"kafkalog.durability": "fsync"}
    cluster.create_topic("safe", config=durability)
    cluster.create_topic("later")
    all_in_sync(cluster, "safe")
    all_in_sync(cluster, "later")

    def synced(topic: str) -> list[int]:
        logs = [one.broker._node.partitions.log(topic, 0) for one in cluster.nodes.values()]
        return [log.flushed_offset for log in logs]

    with kafkalog.Producer(cluster.bootstrap_servers, acks="all") as producer:
        for n in range(1, 4):
            producer.send("safe", b"value").result(60)
            assert synced("safe") == [n] * 3
        producer.send("later", b"value").result(60)
        assert synced("later") == [0] * 3
        with kafkalog.Admin(cluster.bootstrap_servers) as admin:
            admin.alter_configs({("topic", "later"): durability}).check()
        leader = NODES.index(cluster.leader("later"))

        def followers() -> list[int]:
            return [one for place, one in enumerate(synced("later")) if place != leader]

        cluster.wait_until(lambda: followers() == [1, 1], "what was promised is on disk")
        producer.send("later", b"value").result(60)
        assert followers() == [2, 2]


def test_two_nodes_lose_each_other(kafkalog_cluster: TestCluster) -> None:
    """A follower that its leader does not hear of leaves the ISR, and returns to it."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    leader = cluster.leader("t")
    lost, other = sorted(set(NODES) - {leader}, key=lambda node: node == cluster.controller)
    cluster.partition(leader, lost)
    cluster.fill("t", ["1"])
    left = sorted((leader, other))
    cluster.wait_until(lambda: cluster.in_sync("t") == left, "it has left")
    cluster.stop(lost)
    cluster.start(lost)
    assert len(cluster.nodes[lost].broker.faults.all) == 1, "they are still cut off"
    cluster.fill("t", ["2"])
    assert cluster.in_sync("t") != NODES
    cluster.heal()
    all_in_sync(cluster)
    assert values(cluster, "t", 2) == [1, 2]


def test_a_group_and_a_transaction_go_on_elsewhere(kafkalog_cluster: TestCluster) -> None:
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    servers = cluster.bootstrap_servers
    with kafkalog.Producer(servers, transactional_id="x") as producer:
        for n in range(4):
            if n == 2:
                cluster.kill(cluster.leader("__transaction_state", 0))
                assert len(cluster.running) == 2
            with producer.transaction():
                producer.send("t", b"%d" % n)
                producer.send_offsets({TopicPartition("t", 0): n}, "g")
    assert values(cluster, "t", 4) == [0, 1, 2, 3]
    assert cluster.committed("g") == {TopicPartition("t", 0): 3}


@pytest.mark.kafkalog(config={"offsets.topic.num.partitions": 1, "replica.lag.time.max.ms": 60_000})
@pytest.mark.kafkalog(zookeeper=True)
def test_a_returning_leader_reads_records_of_others(
    kafkalog_cluster: TestCluster,
) -> None:
    """Although it never heard of another leader: the epoch shows it.  The next epoch is that of a
    leader that stayed, which reloads nothing."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    with kafkalog.Admin(cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", {TopicPartition("t", 0): 5}).check()
    position = {TopicPartition("t", 0): 5}
    assert cluster.committed("g") == position
    all_in_sync(cluster, OFFSETS_TOPIC)
    broker = cluster.nodes[cluster.leader(OFFSETS_TOPIC)].broker
    node = broker._node
    log = node.partitions.log(OFFSETS_TOPIC, 0)
    log.append(None, key=[*log.read()][-1].key)  # stands for a record of another leader
    member = broker._member
    assert member is not None
    epoch = member.image.topics[OFFSETS_TOPIC].partitions[0].leader_epoch
    led_again(member, OFFSETS_TOPIC, epoch + 1)
    assert cluster.committed("g") == position
    led_again(member, OFFSETS_TOPIC, epoch + 3)
    assert cluster.committed("g") == {}
    cluster.kill(
        cluster.leader(OFFSETS_TOPIC)
    )  # its hand-over would wait for the epochs it made up


@pytest.mark.kafkalog(config={"offsets.topic.num.partitions": 1, "replica.lag.time.max.ms": 60_000})
@pytest.mark.kafkalog(zookeeper=True)
def test_commits_of_an_earlier_leadership_are_not_made(kafkalog_cluster: TestCluster) -> None:
    """Another leader may have written the marker that ends their transaction."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    with kafkalog.Admin(cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", {TopicPartition("t", 0): 5}).check()
    broker = cluster.nodes[cluster.leader(OFFSETS_TOPIC)].broker
    node = broker._node
    member, where = broker._member, TopicPartition(OFFSETS_TOPIC, 0)
    assert member is not None
    epoch = member.image.topics[OFFSETS_TOPIC].partitions[0].leader_epoch
    guard = node.guards.begin(where, 1, 0)
    made_leader(member, OFFSETS_TOPIC, epoch, changes=1)
    assert guard.holds, "only its followers changed"
    made_leader(member, OFFSETS_TOPIC, epoch + 2, changes=1)
    assert guard.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not node.guards.any()


@pytest.mark.kafkalog(
    config={
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "replica.lag.time.max.ms": 60_000,
    }
)
@pytest.mark.kafkalog(zookeeper=True)
def test_a_coordinator_that_hears_of_its_lead_first_reads_once_it_leads(
    kafkalog_cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller sends all brokers the leaders (UpdateMetadata) before it makes them lead
    (LeaderAndIsr): nothing has to wait after that."""
    monkeypatch.setattr(core, "LOAD_AGAIN_MS", 3_600_000)
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    with kafkalog.Producer(cluster.bootstrap_servers, transactional_id="x") as producer:
        producer.begin_transaction()
        producer.abort_transaction()
    position = {TopicPartition("t", 0): 5}
    with kafkalog.Admin(cluster.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", position).check()
    for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        all_in_sync(cluster, topic)
        hears_of_its_lead_first(cluster, topic)
    assert cluster.committed("g") == position


def hears_of_its_lead_first(cluster: TestCluster, topic: str) -> None:
    """Act as if another node had led the coordinator's partition 0 in between."""
    broker = cluster.nodes[cluster.leader(topic)].broker
    node = broker._node
    known = (node.coordinator if topic == OFFSETS_TOPIC else node.transactions).core
    assert broker._member is not None
    epoch = node.image.topics[topic].partitions[0].leader_epoch + 2
    shown_leader(broker._member, topic, epoch)
    cluster.wait_until(lambda: known.unread == {0: epoch}, "the read is refused")
    made_leader(broker._member, topic, epoch)
    cluster.wait_until(lambda: 0 in known.shards, "its partition is read")
    assert known.shards[0].epoch == epoch


def test_a_producer_goes_where_a_refusal_sends_it(kafkalog_cluster: TestCluster) -> None:
    """KIP-951: by its metadata alone it would ask the old leader forever."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    all_in_sync(cluster)
    with kafkalog.Producer(cluster.bootstrap_servers, acks=1) as producer:
        assert producer.send("t", b"0").result(60).offset == 0
        old, new = led_elsewhere(cluster, "t")
        assert producer.send("t", b"1").result(60).offset == 1
    logs = [cluster.nodes[node].broker._node.partitions.log("t", 0) for node in (old, new)]
    assert [log.end_offset for log in logs] == [1, 2]


def test_too_few_in_sync_are_told(kafkalog_cluster: TestCluster) -> None:
    """With one of three in sync acks=all is refused, acks=1 and reads are not; later all work."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    cluster.fill("t", ["0"])
    leader = cluster.leader("t")
    for node in NODES:
        if node != leader:
            cluster.stop(node)
    cluster.wait_until(lambda: cluster.in_sync("t") == [leader], "one is left")
    with (
        pytest.raises(kafkalog.errors.KafkalogError, match="NOT_ENOUGH_REPLICAS"),
        kafkalog.Producer(cluster.bootstrap_servers, config={"retries": 0}) as producer,
    ):
        producer.send("t", b"1").result(60)
    with kafkalog.Producer(cluster.bootstrap_servers, acks="1") as producer:
        producer.send("t", b"2").result(60)
    found: list[bytes | None] = []
    with kafkalog.Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        cluster.wait_until(
            lambda: found.extend(r.value for r in consumer.poll(100)) or len(found) >= 2,
            "both are read",
        )
    assert (found, cluster.running) == ([b"0", b"2"], [leader])
    cluster.heal()
    all_in_sync(cluster)
    cluster.fill("t", ["3"])
    assert values(cluster, "t", 3) == [0, 2, 3]


@pytest.mark.kafkalog(zookeeper=True)
def test_producer_ids_are_retriable_without_an_answer(kafkalog_cluster: TestCluster) -> None:
    """If the controller does not answer: COORDINATOR_LOAD_IN_PROGRESS, which is retriable."""
    cluster = kafkalog_cluster
    cluster.create_topic("t")
    node = next(node for node in NODES if node != cluster.controller)
    fault = cluster.nodes[cluster.controller].disconnect("AllocateProducerIds", times=2)
    host, port = cluster.nodes[node].bootstrap_servers.split(":")
    body = {"transactional_id": None, "transaction_timeout_ms": 1000}
    with closing(Connection(Address(host, int(port)))) as connection:
        codes = [connection.call(apis.INIT_PRODUCER_ID, body).error_code for _ in range(3)]
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2 + [ErrorCode.NONE]
    assert fault.hits == 2 and ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.retriable
    cluster.nodes[cluster.controller].disconnect("AllocateProducerIds", times=2)
    with kafkalog.Producer(cluster.bootstrap_servers, idempotent=True) as producer:
        assert producer.send("t", b"1").result(60).offset == 0


def test_a_node_alone_stops_in_order_and_starts_at_once(kafkalog_cluster: TestCluster) -> None:
    """Its controller has to know by its last heartbeat that this life is over."""
    cluster = kafkalog_cluster
    node, rest = cluster.nodes[3], [1, 2]
    for _ in range(2):
        node.stop()
        cluster.wait_until(
            lambda: all([*node_of(cluster.nodes[one].broker).image.living] == rest for one in rest),
            "the others know",
        )
        node.start()
        cluster.heal()  # waits until all are known


def test_a_cluster_without_pytest(tmp_path: Path) -> None:
    """The records of a killed node are there again once it is back."""
    with TestCluster(tmp_path, config={"default.replication.factor": 1}) as cluster:
        cluster.create_topic("one")
        cluster.create_topic("two", replication_factor=2)
        cluster.fill("one", ["1"])
        assert cluster.in_sync("one") == [cluster.leader("one")]
        assert len(cluster.in_sync("two")) == 2
        cluster.kill(cluster.leader("one"))
        assert cluster.leader("one") == -1 or cluster.leader("one") not in cluster.running
        cluster.heal()
        assert values(cluster, "one", 1) == [1]
        for node in NODES:
            cluster.stop(node)
        with pytest.raises(kafkalog.errors.Closed, match="are down"):
            cluster.leader("one")
    cluster.close()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda cluster: cluster.partition(1, 1),
        lambda cluster: cluster.partition(1, 9),
        lambda cluster: cluster.kill(0),
        lambda cluster: cluster.start("1"),
    ],
)
def test_invalid_nodes_are_reported(
    kafkalog_cluster: TestCluster, wrong: Callable[[TestCluster], None]
) -> None:
    with pytest.raises(kafkalog.errors.ArgumentError, match=r"wanted (two nodes|one of 1, 2, 3)"):
        wrong(kafkalog_cluster)
