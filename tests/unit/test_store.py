"""A store: topics, logs and clients of one directory, in one process."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from tests.conftest import ROOT
from tests.support.waiting import wait_for

CONFIG = {"kafkalog.durability": "os"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kafkalog.Store]:
    with kafkalog.Store(tmp_path / "data", config=CONFIG) as made:
        yield made


def test_topics_and_their_logs(store: kafkalog.Store) -> None:
    made = store.create_topic("orders", partitions=3, config={"retention.ms": 86_400_000,
                                                               "preallocate": False})  # fmt: skip
    assert (store.topics, len(store), "orders" in store, list(store)) == (
        ("orders",), 1, True, ["orders"],
    )  # fmt: skip
    assert len(made) == len(store["orders"]) == 3
    with store.producer() as producer:
        found = producer.send("orders", b"v", b"k", partition=2).result()
    log = store["orders"][2]
    assert (found.partition, found.offset, log.end_offset) == (2, 0, 1)
    assert [(r.topic, r.partition, r.value) for r in log] == [("orders", 2, b"v")]
    assert log.config.retention_ms == 86_400_000
    assert store["orders"][2] is log
    assert [x.end_offset for x in store["orders"]] == [0, 0, 1]
    log.close()
    assert store["orders"][2].end_offset == 1


def test_missing_topics_and_partitions(store: kafkalog.Store) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition, match="no topic 'x'"):
        store["x"]
    store.create_topic("x")
    with pytest.raises(errors.UnknownTopicOrPartition, match="no partition 1: it has 1"):
        store["x"][1]
    with pytest.raises(errors.TopicExists):
        store.create_topic("x")
    store["x"][0].append(b"gone")
    store.delete_topic("x")
    assert store.topics == ()


def test_logs_and_clients_read_each_others_records(store: kafkalog.Store) -> None:
    """With one handle: offsets continue, whichever of the two appends."""
    store.create_topic("t")
    log = store["t"][0]
    with store.producer() as producer:
        for i in range(6):
            if i % 2:
                assert log.append(b"%d" % i) == i
            else:
                assert producer.send("t", b"%d" % i).result().offset == i
    assert [r.value for r in log] == [b"%d" % i for i in range(6)]


def test_a_directory_has_one_store(tmp_path: Path, store: kafkalog.Store) -> None:
    with pytest.raises(errors.Locked):
        kafkalog.Store(tmp_path / "data")


def test_after_the_end_everything_says_so(tmp_path: Path) -> None:
    store = kafkalog.Store(tmp_path / "data", config=CONFIG)
    store.create_topic("t")
    producer = kafkalog.Producer(store, linger_ms=1_000_000)
    future = producer.send("t", b"waits")
    log = store["t"][0]
    store.close()
    store.close()
    assert future.result().offset == 0  # its clients end first, and in order
    for use in (lambda: store.topics, lambda: store["t"], store.producer, lambda: store.transport,
                lambda: kafkalog.Producer(store), lambda: store.create_topic("u"),
                lambda: producer.send("t", b"x"), lambda: log.append(b"x")):  # fmt: skip
        with pytest.raises(errors.Closed):
            use()
    assert store.closed
    assert "closed" in repr(store)
    with kafkalog.Store(tmp_path / "data", config=CONFIG) as again:
        assert again["t"][0][0].value == b"waits"


def test_a_brokers_store_is_the_same_and_leaves_it(tmp_path: Path) -> None:
    with kafkalog.Broker(tmp_path / "data", config=CONFIG) as broker:
        store = broker.store
        assert broker.store is store
        store.create_topic("t")
        with kafkalog.Producer(broker.bootstrap_servers) as over, store.producer() as inside:
            assert over.send("t", b"a").result().offset == 0
            assert inside.send("t", b"b").result().offset == 1
        assert [r.value for r in store["t"][0]] == [b"a", b"b"]
    with pytest.raises(errors.Closed):
        broker.store  # noqa: B018
    with pytest.raises(errors.Closed):
        store.topics  # noqa: B018


def test_many_stores_of_one_process(tmp_path: Path) -> None:
    stores = [kafkalog.Store(tmp_path / str(i), config=CONFIG) for i in range(3)]
    for i, store in enumerate(stores):
        store.create_topic(f"t{i}")
        with store.producer() as producer:
            producer.send(f"t{i}", b"x").result()
    assert [store.topics for store in stores] == [("t0",), ("t1",), ("t2",)]
    for store in stores:
        store.close()


def test_a_producer_that_is_dropped_is_closed_with_its_store(tmp_path: Path) -> None:
    """Its thread delivers what was sent, even when nothing refers to the producer any more."""
    with kafkalog.Store(tmp_path / "data", config=CONFIG) as store:
        store.create_topic("t")
        future = kafkalog.Producer(store).send("t", b"x")
        gc.collect()
        assert future.result().offset == 0


def test_every_client_of_a_store(store: kafkalog.Store) -> None:
    """A consumer in a group reads what a producer sends; the admin client lists the group."""
    store.create_topic("t", 2)
    with store.producer() as producer:
        producer.send_many("t", [b"%d" % i for i in range(100)], [b"%d" % i for i in range(100)])
    found: list[bytes | None] = []
    with store.consumer("t", group="g", auto_offset_reset="earliest") as consumer:
        while len(found) < 100:
            found += [record.value for record in consumer.poll(timeout_ms=1_000)]
        consumer.commit()
        assert "g" in [one.group for one in store.admin.list_groups()]
    assert sorted(int(value or b"") for value in found) == [*range(100)]
    assert store.admin is store.admin


def test_exactly_once_from_topic_to_topic(store: kafkalog.Store) -> None:
    """The offsets read are committed together with the records written."""
    store.create_topic("in")
    store.create_topic("out")
    with store.producer() as feed:
        feed.send_many("in", [b"%d" % i for i in range(20)])
    with (
        store.consumer("in", group="g", auto_offset_reset="earliest") as consumer,
        store.producer(transactional_id="mover") as producer,
    ):
        moved = 0
        while moved < 20:
            records = consumer.poll(timeout_ms=1_000, max_records=5)
            if not records:
                continue
            with producer.transaction():
                for record in records:
                    producer.send("out", b"<" + (record.value or b"") + b">")
                last = records[-1]
                tp = kafkalog.TopicPartition(last.topic, last.partition)
                producer.send_offsets({tp: last.offset + 1}, group=consumer.group_metadata())
            moved += len(records)
        wait_for(
            lambda: (
                (at := consumer.committed(tp))
                and at.offset == 20
                and len([*store["out"][0].read(isolation="read_committed")]) == 20
            ),
            "the last end's markers are there, each in its partition",
        )
    values = [r.value for r in store["out"][0].read(isolation="read_committed")]
    assert values == [b"<%d>" % i for i in range(20)]


def test_committed_records_are_visible_to_the_next_open(tmp_path: Path) -> None:
    """After the commit's answer the partitions get their markers, before the store has closed."""
    count = 60
    with kafkalog.Store(tmp_path, config=CONFIG) as store:
        store.create_topic("t", partitions=count)
        with store.producer(transactional_id="x") as producer, producer.transaction():
            for partition in range(count):
                producer.send("t", b"v", partition=partition)
    for partition in range(count):
        with kafkalog.Log(tmp_path / f"t-{partition}", mode="r") as log:
            assert [one.value for one in log.read(isolation="read_committed")] == [b"v"]


def test_a_store_imports_nothing_of_a_cluster(tmp_path: Path) -> None:
    """Each process would pay for them once, for example in a Spark sink's first delivery."""
    code = (
        "import sys, kafkalog\n"
        "with kafkalog.Store(sys.argv[1]) as store, store.producer() as producer:\n"
        "    producer.send('t', b'v').result()\n"
        "    store.admin\n"
        "print([m for m in sys.modules if m.startswith(('kafkalog.cluster', 'kazoo'))\n"
        "       or m.startswith('kafkalog.zookeeper')])"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "data")]
    assert subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout == b"[]\n"
