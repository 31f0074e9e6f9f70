"""Our fetcher follows partitions led by Apache Kafka 3.9, byte for byte; and we read its tree."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.link.transport import parse_servers
from kafkalog.log.log import Log
from kafkalog.replication.fetcher import Fetcher, Follow, Replica
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.options import FetcherOptions
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.loading import load
from kafkalog.zookeeper.reading import read_tree
from kafkalog.zookeeper.session import Create, Delete, Session
from tests.kafka.cluster import deeds
from tests.support import apache
from tests.support.copies import append_alone, batches_in, open_copy
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.support.zookeeper import Broker, ZooKeeper, ends

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]

US = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUICK = FetcherOptions(max_wait_ms=100, backoff_ms=50)
NUMBERS = itertools.count()


class Kafka:
    """Kafka's broker, 1, and the registration of one of our nodes, 2."""

    def __init__(self, broker: Broker, session: Session) -> None:
        self.broker = broker
        self.session = session
        self.raw = Raw(broker.bootstrap_servers)

    def coordinate(self) -> None:
        """Create the transactions' topic while no other node could get a part of it."""

        def found() -> bool:
            asked = {"key_type": 1, "coordinator_keys": ["any"]}
            (row,) = self.raw.call(apis.FIND_COORDINATOR, 4, **asked).coordinators
            return bool(row.error_code == 0)

        wait_for(found, "it coordinates")

    def register(self, rack: str | None = None) -> None:
        """Let the controller believe that we live."""
        endpoint = tree.Endpoint("PLAINTEXT", "127.0.0.1", apache.free_port(), "PLAINTEXT")
        data = tree.write_broker(tree.BrokerNode((endpoint,), rack, 5, {}))
        assert self.session.commit([Create(tree.broker_path(US), data, ephemeral=True)]).done
        wait_for(lambda: US in self.known(), "we are known")

    def leave(self) -> None:
        """Die, in the controller's eyes."""
        assert self.session.commit([Delete(tree.broker_path(US))]).done
        wait_for(lambda: US not in self.known(), "we are gone")

    def known(self) -> set[int]:
        return {row.node_id for row in self.raw.call(apis.METADATA, 9, topics=[]).brokers}

    def topic(self, **settings: str) -> str:
        """A new topic with one partition that it leads and we follow."""
        name = f"followed{next(NUMBERS)}"
        row = {
            "name": name, "num_partitions": -1, "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [1, US]}],
            "configs": [{"name": k.replace("_", "."), "value": v} for k, v in settings.items()],
        }  # fmt: skip
        done = self.raw.call(apis.CREATE_TOPICS, 5, topics=[row], timeout_ms=30_000)
        assert not done.topics[0].error_code, done
        wait_for(lambda: self.state(name) is not None, "it is led")
        return name

    def state(self, topic: str) -> tree.PartitionState | None:
        found = self.session.read(tree.partition_path(topic, 0))
        return None if found is None else tree.read_partition(topic, 0, found.data)

    def epoch(self, topic: str) -> int:
        """The leader's epoch."""
        state = self.state(topic)
        assert state is not None
        return state.leader_epoch

    def in_sync(self, topic: str) -> tuple[int, ...]:
        state = self.state(topic)
        return () if state is None else state.isr

    def bump(self, topic: str) -> None:
        """Die and come back: if we were in sync, the leader gets another epoch."""
        before = self.epoch(topic)
        self.leave()
        wait_for(lambda: self.epoch(topic) > before, "another epoch")
        self.register()

    def topic_id(self, topic: str) -> UUID:
        row = self.raw.call(apis.METADATA, 12, topics=[{"name": topic}]).topics[0]
        return UUID(str(row.topic_id))

    def end(self, topic: str) -> int:
        """The end of the log, as its leader reports it to a replica."""
        row = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        topics = [{"name": topic, "partitions": [row]}]
        found = self.raw.call(apis.LIST_OFFSETS, 7, replica_id=US, topics=topics)
        return int(found.topics[0].partitions[0].offset)

    def folder(self, topic: str) -> Path:
        return self.broker._folder / "data" / f"{topic}-0"

    def delete_before(self, topic: str, offset: int) -> None:
        """Raise the log's start, without waiting for replicas that do not follow."""
        rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        done = self.raw.call(apis.DELETE_RECORDS, 2, topics=rows, timeout_ms=10)
        assert done.topics[0].partitions[0].error_code in (0, 7), done

    def produce(self, topic: str, *values: bytes, acks: int = 1, codec: str = "none") -> None:
        def done() -> bool:
            code = self.raw.produce(topic, *values, acks=acks, codec=codec).error_code
            assert code in (0, 6), code  # it may not know yet that it leads
            return bool(code == 0)

        wait_for(done, "it is appended")


@pytest.fixture(scope="module")
def kafka(memory: Path, zookeeper: ZooKeeper) -> Iterator[Kafka]:
    home = memory / "follower"
    home.mkdir()
    hosts = f"{zookeeper.hosts}/follower"
    with Broker(home / "kafka", hosts) as broker, Session(hosts, lambda _: None) as session:
        made = Kafka(broker, session)
        made.coordinate()
        made.register()
        yield made
        made.raw.close()


class Following:
    """Our replicas, and the fetcher that keeps them."""

    def __init__(self, kafka: Kafka, home: Path, options: FetcherOptions = QUICK) -> None:
        self.kafka = kafka
        self.home = home
        self.told: list[tuple[TopicPartition, errors.KafkalogError]] = []
        self.logs: dict[str, Log] = {}
        self._heard = threading.Lock()
        (address,) = parse_servers(kafka.broker.bootstrap_servers)
        self.fetcher = Fetcher(Replica(US), address, self._tell, options)

    def _tell(self, tp: TopicPartition, problem: errors.KafkalogError) -> None:
        with self._heard:
            self.told.append((tp, problem))

    def heard(self, kind: type[errors.KafkalogError], topic: str) -> bool:
        with self._heard:
            return any(tp.topic == topic and isinstance(p, kind) for tp, p in self.told)

    def follow(self, topic: str, epoch: int | None = None, **config: object) -> Log:
        """Open the replica, if it is not open, and follow under an epoch: the present one."""
        if topic not in self.logs:
            named = {key.replace("_", "."): value for key, value in config.items()}
            self.logs[topic] = open_copy(self.home / f"{topic}-0", named)
        log = self.logs[topic]
        epoch = self.kafka.epoch(topic) if epoch is None else epoch
        command = Follow(self.kafka.topic_id(topic), epoch, FollowerLog(log))
        self.fetcher.follow({TopicPartition(topic, 0): command})
        return log

    def let_go(self, topic: str) -> None:
        """Stop following it, and close the replica."""
        self.fetcher.drop([TopicPartition(topic, 0)])
        self.logs.pop(topic).close()

    def caught_up(self, topic: str) -> None:
        """Wait until the replica has everything, and knows that everything is committed."""
        log, end = self.logs[topic], -1

        def done() -> bool:
            nonlocal end
            end = self.kafka.end(topic)  # a marker may come late
            return (log.end_offset, log.high_watermark) == (end, end)

        try:
            wait_for(done, "the copy has all")
        except AssertionError:
            raise AssertionError(
                f"{log.end_offset}, {log.high_watermark} of {end}; {self.told[-3:]}"
            ) from None

    def start_of(self, log: Log, offset: int) -> None:
        """Wait until a replica begins at this offset."""
        wait_for(lambda: log.start_offset == offset, "the start follows")

    def same(self, topic: str, start: int = 0) -> int:
        """Wait until every byte from `start` on is the leader's; returns the number of batches."""
        self.caught_up(topic)
        ours: list[bytes] = []

        def same() -> bool:  # a truncation shows the new end before the file has it
            nonlocal ours
            ours = batches_in(self.home / f"{topic}-0", start)
            return ours == batches_in(self.kafka.folder(topic), start)

        wait_for(same, "the copy is the leader's, byte for byte")
        return len(ours)

    def close(self) -> None:
        self.fetcher.close()
        for log in self.logs.values():
            log.close()


Begin = Callable[..., Following]


@pytest.fixture
def begin(kafka: Kafka, tmp_path: Path) -> Iterator[Begin]:
    made: list[Following] = []

    def new(options: FetcherOptions = QUICK) -> Following:
        made.append(Following(kafka, tmp_path, options))
        return made[-1]

    yield new
    for one in made:
        one.close()


def test_the_tree_and_brokers_agree(kafka: Kafka) -> None:
    """And it accepts our registration as a broker's."""
    raw, session = kafka.raw, kafka.session
    kafka.leave()
    deeds.create(raw, {"plain": [[1], [1], [1]], "other": [[1]]})
    first_id = deeds.producer_id(raw)
    said = raw.call(apis.METADATA, 12, topics=None, include_topic_authorized_operations=False)
    found = read_tree(session, US)
    assert found == load(session.tree("/"), US)
    assert not found.problems
    assert found.image.cluster_id == said.cluster_id
    assert found.image.next_producer_id >= first_id + 1000
    assert {t.name: (t.topic_id, len(t.partitions)) for t in said.topics} == {
        name: (topic.id, len(topic.partitions)) for name, topic in found.image.topics.items()
    }
    for topic in said.topics:
        assert topic.topic_id != UUID(int=0)
        for row in topic.partitions:
            ours = found.image.topics[topic.name].partitions[row.partition_index]
            assert (ours.leader, ours.leader_epoch) == (row.leader_id, row.leader_epoch)
            assert (*ours.isr,) == (*row.isr_nodes,)

    def brokers() -> set[tuple[int, str | None]]:
        return {(row.node_id, row.rack) for row in raw.call(apis.METADATA, 9, topics=[]).brokers}

    assert brokers() == {(1, None)}
    kafka.register("r2")
    wait_for(lambda: brokers() == {(1, None), (US, "r2")}, "its rack is known")
    epoch = session.read(tree.broker_path(US))
    assert epoch is not None
    registered = load(session.tree(tree.BROKERS), US).image.brokers[US]
    assert (registered.epoch, registered.rack) == (epoch.created, "r2")
    kafka.leave()
    kafka.register()


@pytest.mark.parametrize(
    ("version", "durable"),
    [
        (17, False), (11, True),
        *(pytest.param(*other, marks=pytest.mark.long) for other in
          [(17, True), (14, False), (14, True), (12, False), (12, True), (11, False)]),
    ],
)  # fmt: skip
def test_every_kind_of_batch_arrives_as_it_is(
    kafka: Kafka, begin: Begin, version: int, durable: bool
) -> None:
    """Compressed, idempotent, committed and aborted; our fetches let acks=all be answered.

    In `make test` the newest version and the oldest, durable.
    """
    topic = kafka.topic(segment_bytes="100000")
    following = begin(QUICK._replace(version_max=version))
    durability = "fsync" if durable else "os"
    log = following.follow(topic, segment_bytes=70_000, kafkalog_durability=durability)
    for codec in CODECS:
        kafka.produce(topic, *(b"%d" % n * 100 for n in range(200)), acks=-1, codec=codec)
    servers = kafka.broker.bootstrap_servers
    with kafkalog.Producer(servers) as idempotent:
        for n in range(500):
            idempotent.send(topic, b"x" * n, partition=0)
    with kafkalog.Producer(servers, transactional_id=topic) as producer:
        for n in range(4):
            try:
                with producer.transaction():
                    producer.send(topic, b"in %d" % n, partition=0)
                    producer.flush()
                    if n % 2:
                        raise KeyError(n)
            except KeyError:
                pass
    wait_for(
        lambda: following.same(topic) > 10 and log.last_stable_offset == log.end_offset,
        "the last marker, which is written after the abort",
    )
    assert len(log.segments) > 1
    assert len(log.aborted(0, log.end_offset)) == 2
    assert [one.epoch for one in log.epochs] == [kafka.epoch(topic)]
    if durable:
        assert log.flushed_offset == log.end_offset
    assert following.told == []


def test_a_copy_goes_on_where_it_ended(kafka: Kafka, begin: Begin) -> None:
    topic = kafka.topic()
    for _ in range(3):
        following = begin()
        kafka.produce(topic, b"a", b"b")
        following.follow(topic)
        following.same(topic)
        following.let_go(topic)
        kafka.produce(topic, b"c", codec="gzip")
    following = begin()
    following.follow(topic)
    assert following.same(topic) == 6


def test_a_follower_begins_after_deleted_records(kafka: Kafka, begin: Begin) -> None:
    """For an empty replica, and for one that ended earlier; also from inside a batch."""
    topic = kafka.topic()
    following = begin()
    folder = following.home / f"{topic}-0"
    for aside, values in (("empty", []), ("behind", [b"old"] * 10), ("whole", [b"new"] * 10)):
        if values:
            kafka.produce(topic, *values)
        following.follow(topic)
        following.same(topic)
        following.let_go(topic)
        shutil.copytree(folder, following.home / aside / folder.name)
    kafka.delete_before(topic, 15)
    for aside in ("empty", "behind"):
        back = begin()
        back.home = following.home / aside
        log = back.follow(topic)
        back.caught_up(topic)
        assert log.end_offset == 20
        following.start_of(log, 15)
        assert back.same(topic, 10) == 1
        back.let_go(topic)
    log = following.follow(topic)
    kafka.produce(topic, b"last")
    following.same(topic, 20)
    kafka.delete_before(topic, 20)
    following.start_of(log, 20)


@pytest.mark.parametrize(
    ("version", "alone"),
    [
        (17, [(0, 5)]), (17, [(0, 1), (1, 4)]), (11, [(1, 40)]),
        *(pytest.param(*other, marks=pytest.mark.long) for other in
          [(17, [(1, 40)]), (11, [(0, 5)]), (11, [(0, 1), (1, 4)])]),
    ],
)  # fmt: skip
def test_records_unknown_to_the_leader_are_truncated(
    kafka: Kafka, begin: Begin, alone: Sequence[tuple[int, int]], version: int
) -> None:
    """We wrote alone at the end of epoch 0, or led epoch 1, which the leader of epoch 2 does not
    know: those records are removed, and no others.  In `make test` each way once."""
    topic = kafka.topic()
    following = begin(QUICK._replace(version_max=version))
    kafka.produce(topic, *[b"both"] * 10)
    following.follow(topic)
    following.same(topic)
    kafka.bump(topic)
    following.follow(topic)
    wait_for(lambda: US in kafka.in_sync(topic), "in sync again")
    following.let_go(topic)
    kafka.bump(topic)
    kafka.produce(topic, *[b"leader"] * 3)
    append_alone(following.home / f"{topic}-0", *alone)
    log = following.follow(topic)
    following.same(topic)
    assert [one.epoch for one in log.epochs] == [0, 2]


def test_another_epoch_than_the_leaders(kafka: Kafka, begin: Begin) -> None:
    """A past epoch ends it until the next command; a future one is retried."""
    past, future, fine = kafka.topic(), kafka.topic(), kafka.topic()
    following = begin()
    before = kafka.epoch(past)
    kafka.bump(past)
    following.follow(past, before)
    following.follow(future, kafka.epoch(future) + 1)
    following.follow(fine)
    kafka.produce(fine, b"x")
    following.same(fine)
    wait_for(lambda: following.heard(errors.FencedLeaderEpoch, past), "the past one")
    wait_for(lambda: any(tp.topic == future for tp, _ in following.told), "the future one")
    assert {tp.topic for tp in following.fetcher.following()} == {future, fine}
    kafka.produce(past, b"x")
    following.follow(past)
    following.same(past)


def test_a_copy_that_fails_is_left_and_holds_up_no_other(kafka: Kafka, begin: Begin) -> None:
    broken, fine = kafka.topic(), kafka.topic()
    following = begin()
    following.follow(fine)
    following.follow(broken).close()
    kafka.produce(broken, b"x")
    kafka.produce(fine, b"x")
    following.same(fine)
    wait_for(lambda: following.heard(errors.Closed, broken), "the failure is reported")
    assert [tp.topic for tp in following.fetcher.following()] == [fine]


def test_a_leader_that_dies_and_comes_back(kafka: Kafka, begin: Begin) -> None:
    """It lost the end of its log, which was not on its disk: ours is truncated to the same end."""
    topic = kafka.topic()
    following = begin()
    for n in range(5):
        kafka.produce(topic, b"%d" % n)
    following.follow(topic)
    following.same(topic)
    before = batches_in(kafka.folder(topic))
    kafka.broker.kill()
    (segment,) = kafka.folder(topic).glob("*.log")
    segment.write_bytes(b"".join(before[:3]))
    ends(kafka.session.hosts, tree.broker_path(1))
    kafka.broker.__enter__()  # the fixture ends it
    kafka.raw.close()
    kafka.raw = Raw(kafka.broker.bootstrap_servers)
    wait_for(lambda: kafka.end(topic) == 3, "it leads what it has")
    following.same(topic)
    assert batches_in(kafka.folder(topic)) == before[:3]
    wait_for(lambda: US in kafka.known(), "we are known")
    following.follow(topic)
    kafka.produce(topic, b"again")
    assert following.same(topic) == 4
    assert any(isinstance(problem, errors.PeerGone) for _, problem in following.told)
