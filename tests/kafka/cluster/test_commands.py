"""`kafkalog cluster` on a cluster of Apache Kafka 3.9, its controller, and two of our nodes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.cli.cluster.moving import RATES, THROTTLED
from kafkalog.metadata.image import BROKER, TOPIC
from kafkalog.server.broker import node_of
from kafkalog.types import TopicPartition
from kafkalog.zookeeper.reading import read_tree
from kafkalog.zookeeper.session import Session
from tests.kafka.cluster.nodes import Serving
from tests.support import apache, batches
from tests.support.waiting import wait_for
from tests.support.zookeeper import Broker, ZooKeeper

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]

KAFKA, SECOND, THIRD, SERVED = 1, 2, 3, 4
SETTINGS = {
    "replica.fetch.wait.max.ms": 100,
    "replica.fetch.backoff.ms": 50,
    "replica.lag.time.max.ms": 30_000,
    "controlled.shutdown.retry.backoff.ms": 50,
    "zookeeper.session.timeout.ms": 30_000,
    "zookeeper.connection.timeout.ms": 60_000,
    # A rate covers an hour: a replica that a test throttles stays behind until it is released.
    "replication.quota.window.size.seconds": 3600,
}
"""No session ends, and no node leaves an ISR, because the machine is busy: all end in order."""
PIECES, PIECE_BYTES = 4, 900_000
"""Records of more than a follower fetches at once."""
KAFKAS = """
replica.lag.time.max.ms=30000
replica.fetch.wait.max.ms=100
auto.leader.rebalance.enable=false
"""


class Ran(NamedTuple):
    """The result of a command."""

    status: int
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Nodes:
    """A broker of Kafka and two of ours."""

    def __init__(self, home: Path, kafka: Broker, hosts: str) -> None:
        self.home = home
        self.hosts = hosts
        self.servers = kafka.bootstrap_servers
        self.admin = kafkalog.Admin(self.servers)
        self.ours: dict[int, kafkalog.Broker] = {}
        self.capsys: pytest.CaptureFixture[str] | None = None
        for node in (SECOND, THIRD):
            self.begin(node)

    def begin(self, node: int) -> None:
        config = {**SETTINGS, "node.id": node, "zookeeper.connect": self.hosts}
        self.ours[node] = kafkalog.Broker(self.home / f"node{node}", config=config)
        self.there(node, True)

    def end(self, node: int) -> None:
        self.ours.pop(node).close()
        self.there(node, False)

    def there(self, node: int, wanted: bool) -> None:
        """Wait until Kafka lists the node, or does not."""
        wait_for(
            lambda: (node in {n.node for n in self.admin.describe_cluster().nodes}) == wanted,
            f"node {node} is there: {wanted}",
        )

    def topic(self, name: str, *replicas: list[int], **settings: str) -> str:
        config = {key.replace("_", "."): value for key, value in settings.items()}
        self.admin.create_topics([(name, -1, -1, config, list(replicas))]).check()
        wait_for(lambda: all(r["leader"] >= 0 for r in self.rows("status", name)), "it is led")
        return name

    def run(self, *words: object) -> Ran:
        """Run `kafkalog cluster WORDS` against Kafka's broker."""
        return self.main("cluster", *words, "--bootstrap-server", self.servers)

    def main(self, *words: object) -> Ran:
        """Run `kafkalog WORDS`."""
        assert self.capsys is not None
        self.capsys.readouterr()
        status = main([str(word) for word in words])
        return Ran(status, *self.capsys.readouterr())

    def rows(self, *words: object) -> list[dict[str, Any]]:
        """The output rows about partitions, from JSON."""
        return [row for row in self.run(*words, "--json").rows() if "topic" in row]

    def node_row(self, node: int) -> dict[str, Any]:
        (row,) = [r for r in self.run("status", "--json").rows() if r.get("node") == node]
        return row

    def throttled(self, node: int, topic: str) -> tuple[int, int]:
        """The rate at which one of our nodes copies, and how many replicas of a topic are copied at
        that rate, once the node applies it."""
        image = node_of(self.ours[node]).image
        rate = image.config(BROKER, str(node)).get(RATES[1], "0")
        named = image.config(TOPIC, topic).get(THROTTLED[1], "")
        return node_of(self.ours[node]).metadata.followed(lambda: (int(rate), named.count(":")))

    def size(self, node: int, topic: str) -> int:
        """The bytes of a topic on a node's disk, as the node reports them."""
        found = self.admin.describe_log_dirs([node]).check()[node]
        return sum(one.size_bytes for place in found for tp, one in place.replicas.items()
                   if tp.topic == topic)  # fmt: skip

    def produce(self, topic: str, count: int, partition: int = 0) -> None:
        with kafkalog.Producer(self.servers) as producer:
            for n in range(count):
                producer.send(topic, b"%d" % n, key=b"k%d" % n, partition=partition)


@pytest.fixture(scope="module")
def made(memory: Path, zookeeper: ZooKeeper) -> Iterator[Nodes]:
    home = memory / "commands"
    home.mkdir()
    hosts = f"{zookeeper.hosts}/commands"
    with Broker(home / "kafka", hosts, KAFKA, KAFKAS) as kafka:
        found = Nodes(home, kafka, hosts)
        yield found
        found.admin.close()
        for node in list(found.ours):
            found.ours.pop(node).close()


@pytest.fixture
def nodes(made: Nodes, capsys: pytest.CaptureFixture[str]) -> Iterator[Nodes]:
    made.capsys = capsys
    yield made
    for node in (SECOND, THIRD):
        if node not in made.ours:
            made.begin(node)
    for name in made.admin.list_topics():
        made.admin.delete_topic(name)
    wait_for(lambda: not made.rows("status"), "all topics are gone")


def test_status(nodes: Nodes) -> None:
    """All is well; a node stops, and the status names the consequences and the remedies."""
    topic = nodes.topic("seen", [KAFKA, SECOND, THIRD], min_insync_replicas="2")
    nodes.topic("seldom", [THIRD, SECOND], min_insync_replicas="2")
    wait_for(lambda: nodes.run("status").status == 0, "all is in sync")
    ran = nodes.run("status")
    assert "3 nodes, controller 1, 2 topics, 2 partitions" in ran.out
    assert "all replicas are in sync" in ran.out
    assert (nodes.node_row(THIRD)["leads"], nodes.node_row(THIRD)["replicas"]) == (1, 2)
    nodes.end(THIRD)
    nodes.produce(topic, 10)
    wait_for(
        lambda: {r["topic"]: r["state"] for r in nodes.rows("status")} ==
        {"seen": "under-replicated", "seldom": "under min isr"},
        "what is missing is said",
    )  # fmt: skip
    assert nodes.rows("status", topic)[0]["behind"] == {"2": 0, "3": None}
    ran = nodes.run("status")
    assert ran.status == 1
    assert "away: node 3; start it, or move its replicas to others" in ran.out
    assert "1 partition under min.insync.replicas: acks=all is refused" in ran.out
    nodes.begin(THIRD)
    wait_for(lambda: nodes.run("status").status == 0, "all is in sync again")
    assert "1 partition not led by the first replica" in nodes.run("status").out


def test_a_node_is_prechecked(nodes: Nodes) -> None:
    """Kafka tells its settings, also those that it was not given."""
    kafkas = nodes.home / "kafka" / "server.properties"
    ran = nodes.main("cluster", "precheck", "--config", kafkas)
    assert ran.status == 0 and "node.id: broker 1 is alive." in ran.out, ran
    joining = ("cluster", "precheck", "--zookeeper", nodes.hosts, "--node-id", SERVED)
    ran = nodes.main(*joining)
    said = [line for line in ran.out.splitlines() if "num.partitions" in line]
    assert ran.status == 0 and "takes over 1 on brokers 1, 2, 3" in said[0], ran
    ran = nodes.main(*joining, "--set", "broker.rack=east", "--json")
    assert [row["subject"] for row in ran.rows() if row["severity"] == "refuse"] == ["broker.rack"]
    assert ran.status == 1


def test_first_replicas_are_elected(nodes: Nodes) -> None:
    topic = nodes.topic("elected", [SECOND, KAFKA])
    nodes.end(SECOND)
    nodes.begin(SECOND)
    wait_for(lambda: len(nodes.rows("status", topic)[0]["isr"]) == 2, "it is in sync")
    assert nodes.rows("status", topic)[0]["leader"] == KAFKA
    ran = nodes.run("elect")
    assert (ran.status, ran.out) == (0, f"{topic}-0: node 2 leads\n"), ran.err
    assert "nothing to elect" in nodes.run("elect").out


def test_an_unclean_election_asks_first(nodes: Nodes) -> None:
    """A replica out of sync then leads, without the records that only the other had."""
    topic = nodes.topic("unclean", [SECOND, THIRD])
    nodes.produce(topic, 3)
    nodes.end(THIRD)
    nodes.produce(topic, 2)
    nodes.end(SECOND)
    nodes.begin(THIRD)
    assert [r["state"] for r in nodes.rows("status", topic)] == ["offline"]
    ran = nodes.run("elect", "--unclean")
    assert (ran.status, "Nothing was done" in ran.err) == (1, True)
    ran = nodes.run("elect", "--unclean", "--yes")
    assert (ran.status, ran.out) == (0, f"{topic}-0: node 3 leads\n"), ran.err
    nodes.begin(SECOND)
    wait_for(lambda: nodes.run("status", topic).status == 0, "it follows")
    checked = nodes.rows("check", topic)[0]
    assert (checked["end"], checked["different"], checked["nodes"]) == (3, 0, [SECOND, THIRD])


def test_a_plan_is_shown_and_carried_out(nodes: Nodes) -> None:
    topic = nodes.topic("spread", [KAFKA], [KAFKA], [KAFKA])
    for partition in range(3):
        nodes.produce(topic, 100, partition)
    ran = nodes.run("reassign", topic, "--replication-factor", 3)
    assert "3 partitions: 6 replicas to copy" in ran.out and "--execute does it" in ran.out
    assert [r["replicas"] for r in nodes.rows("status", topic)] == [[KAFKA]] * 3, "only shown"
    ran = nodes.run("reassign", topic, "--replication-factor", 3, "--execute")
    assert (ran.status, ran.out) == (0, "3 partitions moved\n"), ran
    rows = nodes.rows("status", topic)
    assert sorted(r["leader"] for r in rows) == [KAFKA, SECOND, THIRD]
    assert all(sorted(r["isr"]) == [KAFKA, SECOND, THIRD] for r in rows)
    assert "spread evenly" in nodes.run("reassign", topic).out
    ran = nodes.run("check", topic)
    assert ran.status == 0
    assert "3 partitions with 300 records compared: all copies are equal" in ran.out


def test_a_node_is_drained(nodes: Nodes) -> None:
    """First it leads nothing, then it has no replicas; a sole replica stays until --replicas."""
    nodes.topic("drained", [SECOND, KAFKA], [THIRD, SECOND])
    nodes.topic("lonely", [SECOND])
    nodes.produce("lonely", 20)
    ran = nodes.run("drain", SECOND, "--execute")
    assert (ran.status, ran.out) == (1, "1 partition moved\n")
    assert "lonely-0; --replicas moves the replicas, too" in ran.err
    assert [r["leader"] for r in nodes.rows("status")] == [KAFKA, THIRD, SECOND]
    assert nodes.rows("status")[0]["replicas"] == [KAFKA, SECOND]
    ran = nodes.run("drain", SECOND, "--replicas", "--execute")
    assert (ran.status, ran.out) == (
        0, "3 partitions moved\nnode 2 keeps nothing: it can be stopped\n",
    ), ran  # fmt: skip
    assert nodes.node_row(SECOND)["replicas"] == 0
    ran = nodes.run("check", "lonely")
    assert (ran.status, "1 partition with one replica only" in ran.out) == (0, True)


def test_a_reassignment_is_listed_and_cancelled(nodes: Nodes) -> None:
    """A node that cannot fetch gets no copy; a second plan waits for the first."""
    topic = nodes.topic("moving", [SECOND])
    nodes.produce(topic, 10)
    nodes.ours[SECOND].faults.disconnect("Fetch", times=None)
    try:
        ran = nodes.run("reassign", topic, "--to", "3", "--execute", "--no-wait")
        assert "1 partition started" in ran.out
        wait_for(
            lambda: [(r["topic"], r["adding"]) for r in nodes.rows("status", topic)] ==
            [(topic, [THIRD])], "it is shown",
        )  # fmt: skip
        ran = nodes.run("reassign", topic, "--to", "1", "--execute")
        assert (ran.status, "moving already, as moving-0" in ran.err) == (1, True)
        ran = nodes.run("reassign", "--cancel")
        assert (ran.status, ran.out) == (
            0,
            "1 partition cancelled: replicas stay where they were\n",
        )
    finally:
        nodes.ours[SECOND].faults.clear()
    assert nodes.rows("status", topic)[0]["replicas"] == [SECOND]
    assert nodes.run("reassign", "--watch").out == "nothing is moving\n"


def test_a_throttle_holds_a_copy_back_until_it_is_lifted(nodes: Nodes) -> None:
    """One piece comes at any rate; then the copy makes no progress, while others are made."""
    topic = nodes.topic("slow", [SECOND])
    with kafkalog.Producer(nodes.servers, acks="all") as producer:
        for _ in range(PIECES):
            producer.send(topic, bytes(PIECE_BYTES), partition=0)
    nodes.ours[SECOND].faults.disconnect("Fetch", times=None)  # until all nodes know the rate
    try:
        moved = (topic, "--to", "2,3", "--replication-factor", 2)
        ran = nodes.run("reassign", *moved, "--throttle", 1, "--execute", "--no-wait")
        assert (ran.status, "1 partition started" in ran.out) == (0, True), ran
        for node in (SECOND, THIRD):
            wait_for(lambda node=node: nodes.throttled(node, topic) == (1, 1), "it is known")
    finally:
        nodes.ours[SECOND].faults.clear()
    wait_for(lambda: nodes.size(THIRD, topic) > 0, "a piece of it is there")
    some = nodes.size(THIRD, topic)
    other = nodes.topic("quick", [SECOND, THIRD], [KAFKA, THIRD])
    for partition in range(2):
        nodes.produce(other, 100, partition)
    wait_for(lambda: nodes.rows("check", other)[0]["different"] == 0, "others are there")
    assert nodes.rows("status", topic)[0]["isr"] == [SECOND]
    assert nodes.size(THIRD, topic) == some < (PIECES - 1) * PIECE_BYTES
    with Watch(nodes) as watch:
        part = some / nodes.size(SECOND, topic)
        wait_for(lambda: f"{part:4.0%}  0 partitions " in watch.look(), "it shows how far it is")
        for broker in (KAFKA, SECOND, THIRD):
            nodes.admin.alter_configs({("broker", str(broker)): dict.fromkeys(RATES)}).check()
    assert "100%  1 partition " in watch.shown
    assert [(ran.status, "1 partition moved" in ran.out) for ran in watch.ran] == [(0, True)]
    wait_for(lambda: sorted(nodes.rows("status", topic)[0]["isr"]) == [SECOND, THIRD], "all is")
    assert nodes.size(THIRD, topic) == nodes.size(SECOND, topic)


class Watch:
    """`reassign --watch` in a thread, whose stderr is a terminal; a context manager, which waits
    for the end of the command."""

    def __init__(self, nodes: Nodes) -> None:
        self.ran: list[Ran] = []
        self.shown = ""
        self._thread = threading.Thread(
            target=lambda: self.ran.append(nodes.run("reassign", "--watch"))
        )
        self._undo = contextlib.ExitStack()

    def look(self) -> str:
        """The terminal's output so far."""
        while select.select([self._screen], [], [], 0)[0]:
            self.shown += os.read(self._screen, 65536).decode()
        return self.shown

    def __enter__(self) -> Watch:
        self._screen, terminal = pty.openpty()
        self._undo.callback(os.close, self._screen)
        stderr = self._undo.enter_context(os.fdopen(terminal, "w"))
        self._undo.enter_context(contextlib.redirect_stderr(stderr))
        self._undo.callback(self.look)
        self._thread.start()
        self._undo.callback(self._thread.join)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


def test_a_copy_that_differs_is_told(nodes: Nodes) -> None:
    """It is whole and well-formed, but differs from the leader's."""
    topic = nodes.topic("differs", [KAFKA, THIRD])
    nodes.produce(topic, 5)
    nodes.end(THIRD)
    log = nodes.home / f"node{THIRD}" / f"{topic}-0" / f"{0:020}.log"
    header = next(batches.headers(log.read_bytes()))
    whole = log.read_bytes()
    after = bytearray(whole[header.pos + 21 : header.pos + header.batch_bytes])
    at = after.rindex(b"k4")
    after[at : at + 2] = b"K4"
    sealed = batches.seal(bytes(after), header.base_offset, header.leader_epoch)
    log.write_bytes(sealed + whole[header.batch_bytes :])
    nodes.begin(THIRD)
    wait_for(lambda: nodes.run("status", topic).status == 0, "it is in sync")
    (row,) = nodes.rows("check", topic)
    assert (row["records"], row["different"]) == (5, 1)
    (one,) = row["differences"]
    assert one["offset"] == 4
    assert (one["nodes"]["1"]["key"], one["nodes"]["3"]["key"]) == ('"k4"', '"K4"')
    ran = nodes.run("check", topic)
    assert (ran.status, "1 partition DIFFER" in ran.out) == (1, True)


def test_a_copy_that_lacks_a_batch_is_told(nodes: Nodes) -> None:
    """In the middle: it ends where the others do, so it counts as in sync."""
    topic = nodes.topic("lacks", [KAFKA, THIRD])
    for _ in range(3):
        nodes.produce(topic, 2)
    nodes.end(THIRD)
    log = nodes.home / f"node{THIRD}" / f"{topic}-0" / f"{0:020}.log"
    whole = log.read_bytes()
    first, lost, _ = batches.headers(whole)
    log.write_bytes(whole[: lost.pos] + whole[lost.pos + lost.batch_bytes :])
    assert (first.base_offset, lost.base_offset) == (0, 2)
    nodes.begin(THIRD)
    wait_for(lambda: nodes.run("status", topic).status == 0, "it is in sync")
    (row,) = nodes.rows("check", topic)
    assert (row["records"], row["different"], row["end"]) == (6, 2, 6)
    told = [(one["offset"], one["nodes"]["1"]["key"], one["nodes"]["3"])
            for one in row["differences"]]  # fmt: skip
    assert told == [(2, '"k0"', None), (3, '"k1"', None)]
    ran = nodes.run("check", topic)
    assert (ran.status, "1 partition DIFFER" in ran.out, "3: nothing" in ran.out) == (1, True, True)


def test_a_node_is_served(nodes: Nodes, tmp_path: Path) -> None:
    """By `kafkalog serve --zookeeper`: it leads what it is given, and gives it up at SIGTERM."""
    where = apache.free_port()
    served = Serving(tmp_path / "served", nodes.hosts, SERVED, tmp_path / "data", where)
    with served:
        nodes.there(SERVED, True)
        topic = nodes.topic("served", [SERVED, KAFKA])
        nodes.produce(topic, 10)
        assert [(r["leader"], r["behind"]) for r in nodes.rows("status", topic)] == [
            (SERVED, {"1": 0})
        ]
        assert served.stop() == 0, served.output()
    nodes.there(SERVED, False)
    assert [(r["leader"], r["isr"]) for r in nodes.rows("status", topic)] == [(KAFKA, [KAFKA])]
    ran = nodes.run("reassign", topic, "--to", KAFKA, "--replication-factor", 1, "--execute")
    assert (ran.status, ran.out) == (0, "1 partition moved\n"), "so that it can be deleted"


ALONE = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}


def test_a_directory_that_was_alone_is_adopted(nodes: Nodes) -> None:
    """While a controller runs: shown, done, and again after a crash in between.  Then it is a
    node's, with its topics, records and settings, and Kafka copies them."""
    home = nodes.home / "alone"
    with kafkalog.Broker(home, config={**ALONE, "node.id": 1}) as alone:
        with kafkalog.Admin(alone.bootstrap_servers) as admin:
            admin.create_topic("brought", 2, config={"retention.ms": 1234567890})
        with kafkalog.Producer(alone.bootstrap_servers) as producer:
            for n in range(30):
                producer.send("brought", b"%d" % n, partition=n % 2)
    words = ["cluster", "adopt", "--dir", str(home), "--zookeeper", nodes.hosts, "--node-id"]
    ran = nodes.main(*words, "1")
    assert (ran.status, "node 1: found it alive in the cluster" in ran.err) == (2, True)
    ran = nodes.main(*words, "4")
    assert ran.status == 0 and "nothing was changed" in ran.out and "FOR GOOD" in ran.out
    assert (home / "__cluster_metadata-0").exists() and "brought" not in nodes.admin.list_topics()
    ran = nodes.main(*words, "4", "--execute")
    assert (ran.status, ran.err) == (0, ""), ran
    aside = home.with_name("alone.alone")
    (aside / "__cluster_metadata-0").rename(home / "__cluster_metadata-0")  # as if it had crashed
    assert nodes.main(*words, "4", "--execute").status == 0
    assert "version=0" in (home / "meta.properties").read_text()
    ran = nodes.main(*words, "4")
    assert (ran.status, "wanted a directory that was served alone" in ran.err) == (2, True)
    config = {**SETTINGS, "node.id": 4, "zookeeper.connect": nodes.hosts}
    with kafkalog.Broker(home, config=config) as ours:
        wait_for(lambda: [r["leader"] for r in nodes.rows("status")] == [4, 4], "it leads both")
        partitions = node_of(ours).partitions
        wait_for(lambda: partitions.is_open("brought", 0), "it has opened the partition")
        assert partitions.log("brought", 0).recovery.segments_recovered == 0
        settings = nodes.admin.describe_configs([("topic", "brought")])["topic", "brought"]
        assert settings["retention.ms"].value == "1234567890"
        ran = nodes.run(
            "reassign", "brought", "--to", "1,4", "--replication-factor", 2, "--execute"
        )
        assert ran.status == 0, ran
        assert "2 partitions with 30 records compared: all copies" in nodes.run("check").out
        assert nodes.run("drain", 4, "--replicas", "--execute").status == 0
    nodes.there(4, False)
    config = {"node.id": 4, "listeners": "PLAINTEXT://127.0.0.1:0"}
    (home / "left-0").mkdir()
    with pytest.raises(kafkalog.errors.ArgumentError, match="in its cluster with --zookeeper"):
        kafkalog.Broker(home, config=config)


def test_the_first_of_a_cluster_gives_it_its_id(nodes: Nodes) -> None:
    """On an empty tree; groups' offsets and producers' ids are kept."""
    home, hosts = nodes.home / "founder", nodes.hosts.replace("/commands", "/founded")
    with kafkalog.Broker(home, config=ALONE) as alone:
        servers = alone.bootstrap_servers
        with kafkalog.Producer(servers, transactional_id="x") as one, one.transaction():
            one.send("founding", b"1")
        with kafkalog.Consumer(servers, group="g") as consumer:
            consumer.commit({TopicPartition("founding", 0): 1})
        image = alone._node.image
    words = ["cluster", "adopt", "--dir", str(home), "--zookeeper", hosts, "--execute"]
    ran = nodes.main(*words)
    assert (ran.status, "an empty tree" in ran.out) == (0, True), ran
    with Session(hosts, lambda _: None) as session:
        found = read_tree(session, 1).image
    assert found.cluster_id == image.cluster_id
    assert found.topics.keys() == {"founding", "__consumer_offsets", "__transaction_state"}
    for name, topic in found.topics.items():
        assert topic.id == image.topics[name].id
        for number, one in topic.partitions.items():
            before = image.topics[name].partitions[number]
            assert (one.isr, one.leader_epoch) == ((1,), before.leader_epoch + 1)
    assert found.next_producer_id >= image.next_producer_id > 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["drain"], "drain: which node? there are 1, 2, 3"),
        (["drain", 9], "drain: no node 9; the cluster has 1, 2, 3"),
        (["reassign", "--to", "1,7"], "node 7 does not exist; the cluster has 1, 2, 3"),
        (["reassign", "--replication-factor", 4], "found 4, wanted at most 3"),
        (["reassign", "--throttle", 5], "--throttle: needs --execute"),
        (["reassign", "--watch", "--execute"], "not with --watch"),
        (["drain", 1, "--to", "3"], "--to is an option of reassign"),
        (["status", "absent"], "the cluster has no topic 'absent'"),
        (["rassign"], "did you mean reassign?"),
    ],
)
def test_a_mistake_is_told(nodes: Nodes, words: list[object], why: str) -> None:
    ran = nodes.run(*words)
    assert (ran.status, ran.out) == (2, "")
    assert why in ran.err
