"""A whole node with something of everything, as small as possible: the case `node-4.4`."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicCollection, TopicPartition

import kafkalog
from kafkalog.wire import apis
from tests.kafka.clients import programs
from tests.kafka.golden.maker import EARLIEST, LATEST, METADATA, START_MS, Making, id_of, until
from tests.support import apache
from tests.support.batches import CODECS
from tests.support.raw import Raw

BROKER, GROUP = 4, 32
"""Kafka's numbers of resource types with settings."""
SETTINGS = """\
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=2
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.streams.initial.rebalance.delay.ms=0
metadata.log.max.snapshot.interval.ms=15000
"""
WORDS = "word-count"


def node(making: Making) -> None:
    """Codecs, transactions of both versions, groups of each kind, a cordoned directory, and a
    snapshot of everything."""
    with making.broker(SETTINGS) as admin:
        for codec in CODECS:
            topic = making.make(admin, f"{codec}-codec")
            producer = making.producer(compression_type=codec, enable_idempotence=True)
            for turn in range(2):
                making.send(producer, topic, 6, time_ms=START_MS + turn * 10_000)
        making.make(admin, "tx", 2)
        making.make(admin, "orders", 2)
        making.send(making.producer(), "orders", 4)
        members = joined_groups(making)
        share_group(making)
        streams_group(making, admin)
        transactions(making)
        making.configure(BROKER, "1", cordoned_log_dirs="*")
        until(lambda: refuses_topics(making), "the directory is cordoned")
        told(making)
        described(making, admin)
        making.answers()
        newest = max((making.log / METADATA).glob("*.checkpoint"), default=None)
        until(lambda: max((making.log / METADATA).glob("*.checkpoint"), default=None) != newest,
              "there is a newer snapshot")  # fmt: skip
        making.kept += members
    making.tidy(
        *("__cluster_metadata", "__consumer_offsets", "__transaction_state"),
        "__share_group_state",
    )


def transactions(making: Making) -> None:
    """Version 2 by Kafka's own producer and by ours, version 1 by librdkafka's."""
    apache.ask(
        "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", making.servers,
        *("--topic", "tx", "--num-records", "12", "--record-size", "10", "--throughput", "100"),
        *("--transactional-id", "java", "--transaction-duration-ms", "30"),
    )  # fmt: skip
    ours = kafkalog.Producer(making.servers, transactional_id="second")
    making.kept.append(ours)
    for turn in range(3):
        ours.begin_transaction()
        for number in range(3):
            ours.send("tx", b"turn %d" % turn, key=b"%d" % number, partition=number % 2)
        ours.abort_transaction() if turn == 1 else ours.commit_transaction()
    first = making.producer(transactional_id="first")
    first.init_transactions()
    for turn in range(2):
        first.begin_transaction()
        making.send(first, "tx", 3, partition=turn)
        group = Consumer({"bootstrap.servers": making.servers, "group.id": "tx-group"})
        first.send_offsets_to_transaction(
            [TopicPartition("tx", 0, turn + 5)], group.consumer_group_metadata()
        )
        group.close()
        first.abort_transaction() if turn else first.commit_transaction()
    long = {"transaction_timeout_ms": 900_000}
    second = kafkalog.Producer(making.servers, transactional_id="second-open", **long)
    second.begin_transaction()
    second.send("tx", b"open", partition=0)
    second.flush()
    first = making.producer(transactional_id="first-open", **long)
    first.init_transactions()
    first.begin_transaction()
    making.send(first, "tx", 2, partition=1)
    making.kept += [first, second]


def joined_groups(making: Making) -> list[Consumer]:
    """A classic group and one of KIP-848, with a commit in each; returns their members."""
    members = []
    for group, more in (
        ("classic", {"group.instance.id": "instance-1", "session.timeout.ms": 60_000}),
        ("consumer", {"group.protocol": "consumer"}),
    ):
        member = Consumer({"bootstrap.servers": making.servers, "group.id": group,
                           "client.id": f"{group}-1", "enable.auto.commit": False,
                           **more})  # fmt: skip
        member.subscribe(["orders"])
        until(lambda m=member: m.poll(0.1) or len(m.assignment()) == 2, f"{group} is joined")
        places = [TopicPartition("orders", n, n + 1, metadata="é") for n in range(2)]
        until(lambda m=member, p=places: m.commit(offsets=p, asynchronous=False), "it commits")
        members.append(member)
    return members


def share_group(making: Making) -> None:
    """A group that took records, with a dead member whose session has not expired."""
    making.configure(GROUP, "share", share_auto_offset_reset="earliest")
    command = apache.java(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--group", "share",
        *("--bootstrap-server", making.servers, "--topic", "orders"),
    )  # fmt: skip
    with background(command):
        # Kafka writes a partition's state when it begins and when records are acknowledged.
        state = "__share_group_state"
        until(lambda: ((making.offset(state, 0, LATEST) or {}).get("offset") or 0) > 2,
              "the share group has acknowledged")  # fmt: skip


def streams_group(making: Making, admin: Any) -> None:
    """A word count under the protocol of KIP-1071, which has counted; its member is also dead."""
    making.make(admin, "lines")
    making.make(admin, "counts")
    producer = making.producer()
    producer.produce("lines", b"one and one", b"k")
    producer.flush()
    settings = making.case / "streams.properties"
    with tempfile.TemporaryDirectory() as state:
        settings.write_text(
            f"bootstrap.servers={making.servers}\napplication.id={WORDS}\n"
            f"group.protocol=streams\nstate.dir={state}\ncommit.interval.ms=100\n"
        )
        with background([*programs.command("streams"), str(settings)]):
            until(lambda: (making.offset("counts", 0, LATEST) or {}).get("offset"), "it counts")
            until(lambda: committed_of(making, WORDS), "it has committed")
        for name in admin.list_topics().topics:
            if name.startswith(f"{WORDS}-"):
                making.topics[name] = 1


def committed_of(making: Making, group: str) -> list[dict[str, Any]]:
    """A group's committed offsets, as lines of offsets.jsonl."""
    with Raw(making.servers) as raw:
        found = raw.call(apis.OFFSET_FETCH, 7, group_id=group, topics=None)
    return [
        {"group": group, "topic": topic.name, "partition": place.partition_index,
         "offset": place.committed_offset, "metadata": place.metadata,
         "leader_epoch": None if place.committed_leader_epoch < 0 else place.committed_leader_epoch}
        for topic in found.topics
        for place in topic.partitions
    ]  # fmt: skip


@contextmanager
def background(command: list[str]) -> Iterator[None]:
    """A program that is killed at the end, so that no member leaves its group."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def refuses_topics(making: Making) -> bool:
    """True if Kafka has no directory for a new topic."""
    entry = {"name": "none", "num_partitions": 1, "replication_factor": 1}
    with Raw(making.servers) as raw:
        (found,) = raw.call(
            apis.CREATE_TOPICS, 7, topics=[entry], timeout_ms=30_000, validate_only=True
        ).topics
    return int(found.error_code) == 38  # INVALID_REPLICATION_FACTOR


def told(making: Making) -> None:
    """Write producers.jsonl, transactions.jsonl, offsets.jsonl, listed.json."""
    with Raw(making.servers) as raw:
        parts = [{"name": name, "partition_indexes": [*range(count)]}
                 for name, count in making.topics.items()]  # fmt: skip
        answers = raw.call(apis.DESCRIBE_PRODUCERS, 0, topics=parts).topics
        making.lines("producers.jsonl", [
            {"topic": topic.name, "partition": one.partition_index,
             "txn_start_offset": None if p.current_txn_start_offset < 0
             else p.current_txn_start_offset,
             **{name: getattr(p, name) for name in (
                 "producer_id", "producer_epoch", "last_sequence", "last_timestamp",
                 "coordinator_epoch")}}
            for topic in answers for one in topic.partitions for p in one.active_producers
        ])  # fmt: skip
        listed = raw.call(apis.LIST_TRANSACTIONS, 0).transaction_states
        ids = sorted(one.transactional_id for one in listed)
        states = raw.call(apis.DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids).transaction_states
        making.lines("transactions.jsonl", [
            {"transactional_id": one.transactional_id, "state": one.transaction_state,
             "producer_id": one.producer_id, "producer_epoch": one.producer_epoch,
             "timeout_ms": one.transaction_timeout_ms,
             "partitions": sorted(f"{t.topic}-{n}" for t in one.topics for n in t.partitions)}
            for one in states
        ])  # fmt: skip
        groups = {one.group_id: one for one in raw.call(apis.LIST_GROUPS, 5).groups}
        making.json("listed.json", {
            name: [one.group_type, one.group_state] for name, one in groups.items()
        })  # fmt: skip
    kept = ("classic", "consumer", "tx-group", WORDS)
    making.lines("offsets.jsonl", [row for name in kept for row in committed_of(making, name)])


def described(making: Making, admin: Any) -> None:
    """Write metadata.json: topics with their ids and ends."""
    found = admin.describe_topics(TopicCollection([*making.topics]))
    making.json("metadata.json", {
        "topics": {name: {"partitions": count, "internal": False,
                          "topic_id": id_of(found[name].result(30))}
                   for name, count in making.topics.items()},
        "ends": {name: [[(making.offset(name, n, query) or {}).get("offset") or 0
                         for query in (EARLIEST, LATEST)] for n in range(count)]
                 for name, count in making.topics.items()},
    })  # fmt: skip
