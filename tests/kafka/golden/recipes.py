"""How each case is made; cases/README.md describes their contents."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions

from kafkalog.wire import apis
from tests.kafka.golden.maker import EARLIEST, LATEST, METADATA, START_MS, Making, id_of, until
from tests.kafka.golden.node import node
from tests.support.batches import CODECS
from tests.support.raw import Raw

HOUR_MS = 3_600_000
LOOKUPS = tuple(START_MS + hours * HOUR_MS // 2 for hours in range(-1, 26, 3))
TOPIC, BROKER = 2, 4
"""Kafka's numbers of resource types with settings."""
FEW_GROUPS = "offsets.topic.num.partitions=4\ntransaction.state.log.num.partitions=2\n"


def codecs(making: Making) -> None:
    """Each codec; keys, values and headers of every kind; times out of order."""
    with making.broker() as admin:
        for codec in CODECS:
            topic = making.make(admin, f"{codec}-librdkafka")
            producer = making.producer(
                compression_type=codec, enable_idempotence=making.draw.random() < 0.5
            )
            for _ in range(10):
                time_ms = START_MS + making.draw.randrange(12 * HOUR_MS)
                making.send(producer, topic, 40, time_ms=time_ms)
        making.answers(LOOKUPS)
    making.tidy()


def segments(making: Making) -> None:
    """About ten segments a partition, rolled by time; late records, and single ones far ahead."""
    with making.broker() as admin:
        for interval in (512, 4096):
            topic = making.make(
                admin, f"seg{interval}", 2, segment_ms=HOUR_MS, index_interval_bytes=interval
            )
            for partition in range(2):
                producer = making.producer(enable_idempotence=True)
                for batch in range(60):
                    late = making.draw.random() < 0.1
                    time_ms = START_MS + batch * HOUR_MS // 6 - late * 2 * HOUR_MS
                    making.send(producer, topic, making.draw.randrange(1, 20), partition=partition,
                                time_ms=time_ms, step_ms=100)  # fmt: skip
        making.answers(LOOKUPS)
    making.tidy()


def transactions(making: Making) -> None:
    """Two producers interleaved, aborts, a fenced one, offsets in a transaction, one left open."""
    with making.broker(FEW_GROUPS) as admin:
        topic = making.make(admin, "tx-a", 2)
        plain = making.make(admin, "tx-b")
        first, second = (making.producer(transactional_id=f"rdk-{n}") for n in (1, 2))
        for producer in (first, second):
            producer.init_transactions()
        for turn in range(12):
            first.begin_transaction()
            second.begin_transaction()
            making.send(first, topic, making.draw.randrange(1, 9), partition=turn % 2)
            making.send(second, topic, making.draw.randrange(1, 9), partition=turn % 2)
            making.send(first, plain, 3)
            if turn == 5:
                group = Consumer({"bootstrap.servers": making.servers, "group.id": "tx-group"})
                first.send_offsets_to_transaction(
                    [TopicPartition(topic, 0, 11)], group.consumer_group_metadata()
                )
                group.close()
            second.abort_transaction() if turn % 3 == 0 else second.commit_transaction()
            first.abort_transaction() if turn % 4 == 1 else first.commit_transaction()
            making.send(making.producer(), topic, 2, partition=turn % 2)
        old = making.producer(transactional_id="fenced")
        old.init_transactions()
        old.begin_transaction()
        making.send(old, topic, 5)
        new = making.producer(transactional_id="fenced")
        new.init_transactions()
        with suppress(KafkaException):
            old.commit_transaction()
        new.begin_transaction()
        making.send(new, topic, 4)
        new.commit_transaction()
        open_ = making.producer(transactional_id="left-open", transaction_timeout_ms=900_000)
        open_.init_transactions()
        open_.begin_transaction()
        making.send(open_, topic, 6)
        making.send(making.producer(), topic, 3)
        making.kept += [open_, old]
        until(lambda: making.offset(topic, 0, LATEST, True) != making.offset(topic, 0, LATEST),
              "the open transaction holds back what is stable")  # fmt: skip
        making.answers()
        committed(making, ["tx-group"])
    making.tidy("__consumer_offsets", "__transaction_state")


def compaction(making: Making) -> None:
    """Four rounds of the cleaner; tombstones that were removed and that stay."""
    # How long a tombstone stays depends on the clock, not on the records.
    begin_ms = round(time.time() * 1000) - 72 * HOUR_MS
    settings = "log.cleaner.backoff.ms=200\nlog.cleaner.min.cleanable.ratio=0.01\n"
    with making.broker(settings) as admin:
        short = making.make(admin, "c-short", 2, cleanup_policy="compact", segment_ms=HOUR_MS,
                            delete_retention_ms=100, min_cleanable_dirty_ratio=0.01)  # fmt: skip
        long = making.make(admin, "c-long", 2, cleanup_policy="compact", segment_ms=HOUR_MS,
                           delete_retention_ms=10**9, min_cleanable_dirty_ratio=0.01,
                           )  # fmt: skip
        producer = making.producer(enable_idempotence=True, compression_type="lz4")
        for turn in range(4):
            for topic in (short, long):
                for partition in range(2):
                    for batch in range(8):
                        time_ms = begin_ms + (8 * turn + batch) * 2 * HOUR_MS
                        making.send(producer, topic, 12, partition=partition, time_ms=time_ms,
                                    keys=40, tombstones=0.3)  # fmt: skip
            wanted = 8 * 12 * (turn + 1) - 12  # all but the active segment
            until(lambda w=wanted: cleaned(making) >= w, f"round {turn} of the cleaner")
        for topic in (short, long):  # answers must match the cleaned log
            making.configure(TOPIC, topic, min_cleanable_dirty_ratio="1.0")
        until(lambda: still(making), "the cleaner rests")
        making.answers()
    making.tidy()


def still(making: Making) -> bool:
    """True if no segment changes for ten times the cleaner's pause between two rounds."""

    def sizes() -> dict[str, int]:
        return {str(p): p.stat().st_size for p in making.log.glob("c-*/*.log")}

    before = sizes()
    threading.Event().wait(2)
    return sizes() == before


def cleaned(making: Making) -> int:
    """The lowest offset that the cleaner has reached in any partition of the case."""
    path = making.log / "cleaner-offset-checkpoint"
    if not path.exists():
        return -1
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    found = {(topic, int(n)): int(offset) for topic, n, offset in rows}
    places = [(topic, n) for topic, count in making.topics.items() for n in range(count)]
    return min(found.get(place, -1) for place in places)


def appendtime(making: Making) -> None:
    """LogAppendTime with each codec, recompressed by the broker, switched on and off."""
    with making.broker() as admin:
        names = [(f"append-{codec}", codec, {}) for codec in CODECS]
        names.append(("append-broker-gzip", "none", {"compression_type": "gzip"}))
        for name, codec, config in names:
            topic = making.make(admin, name, message_timestamp_type="LogAppendTime", **config)
            producer = making.producer(compression_type=codec, enable_idempotence=True)
            for time_ms in (0, START_MS, 1 << 53):
                making.send(producer, topic, 30, time_ms=time_ms)
        topic = making.make(admin, "switched", message_timestamp_type="CreateTime")
        producer = making.producer()
        for kind in ("CreateTime", "LogAppendTime", "CreateTime"):
            making.configure(TOPIC, topic, message_timestamp_type=kind)
            making.send(producer, topic, 20, time_ms=START_MS)
        making.answers([0, START_MS, START_MS + 1, 1 << 53])
    making.tidy()


def epochs(making: Making) -> None:
    """One broker that is stopped and started: each start begins new leader epochs."""
    for turn in range(4):
        with making.broker() as admin:
            if turn == 0:
                making.make(admin, "ep", 1, segment_ms=HOUR_MS)
                making.make(admin, "ep2", 2, segment_ms=HOUR_MS)
            places = [(topic, n) for topic, count in making.topics.items() for n in range(count)]
            for topic, partition in places:
                until(lambda t=topic, p=partition: making.offset(t, p, LATEST), f"{topic} leads")
                producer = making.producer(enable_idempotence=True)
                for batch in range(3):
                    making.send(producer, topic, making.draw.randrange(5, 30), partition=partition,
                                time_ms=START_MS + (3 * turn + batch) * HOUR_MS // 2)  # fmt: skip
            if turn == 3:
                making.answers(LOOKUPS)
    making.tidy()


def deleted(making: Making) -> None:
    """DeleteRecords into a batch, retention by size and by time, and everything deleted."""
    with making.broker("log.retention.check.interval.ms=500\n") as admin:
        config = {"segment_ms": HOUR_MS, "file_delete_delay_ms": 100}
        names = {
            "del-records": {}, "ret-bytes": {"retention_bytes": 6000},
            "all-gone": {"retention_ms": 1000}, "both": {"retention_bytes": 6000},
        }  # fmt: skip
        for name, more in names.items():
            # The timestamps are old: retention by time waits until everything is written.
            first = {k: v for k, v in more.items() if k != "retention_ms"}
            making.make(admin, name, **config, **first)
            producer = making.producer(enable_idempotence=True)
            for batch in range(30):
                making.send(producer, name, 10, time_ms=START_MS + batch * HOUR_MS // 3)
        for name in ("del-records", "both"):
            place = TopicPartition(name, 0, 247)  # in the middle of a batch
            admin.delete_records([place])[place].result(30)
        making.configure(TOPIC, "all-gone", retention_ms="1000")

        def start(topic: str) -> int:
            return (making.offset(topic, 0, EARLIEST) or {}).get("offset") or 0

        until(lambda: start("all-gone") == 300, "everything of all-gone is gone")
        until(lambda: start("ret-bytes") > 0, "some of ret-bytes is gone")
        until(lambda: not list(making.log.glob("*/*.deleted")), "the files are gone")
        making.answers(LOOKUPS)
    making.tidy()


def committed(making: Making, groups: list[str]) -> None:
    """Write offsets.jsonl: the committed offsets of each group."""
    found = []
    for group in groups:
        with Raw(making.servers) as raw:  # librdkafka ends a string at its first zero byte
            told = raw.call(apis.OFFSET_FETCH, 7, group_id=group, topics=None)
        for topic in told.topics:
            for place in topic.partitions:
                epoch = place.committed_leader_epoch
                found.append({"group": group, "topic": topic.name,
                              "partition": place.partition_index, "offset": place.committed_offset,
                              "leader_epoch": None if epoch < 0 else epoch,
                              "metadata": place.metadata})  # fmt: skip
    making.lines("offsets.jsonl", found)


def groups(making: Making) -> None:
    """Classic groups: two members, a static one, commits alone, one that emptied, one deleted."""
    orders = TopicPartition("orders", 0)
    with making.broker(FEW_GROUPS) as admin:
        making.make(admin, "orders", 4)
        members = [
            member(making, "app-one", "a1"), member(making, "app-one", "a2"),
            member(making, "static-group", "s1", {"group.instance.id": "instance-1"}),
        ]  # fmt: skip
        gone = member(making, "emptied", "e1")
        every = [*members, gone]
        until(lambda: joined(admin, "app-one", 2, every), "app-one is stable")
        for group in ("static-group", "emptied"):
            until(lambda g=group: joined(admin, g, 1, every), f"{group} is stable")
        for turn in range(3):
            for one in every:
                for place in one.assignment():
                    at = TopicPartition(
                        place.topic, place.partition, turn * 7 + 1, metadata=f"turn ü={turn}"
                    )
                    one.commit(offsets=[at], asynchronous=False)
        gone.close()
        for group in ("manual-only", "with space & ünicode", "deleted"):
            alone = Consumer({"bootstrap.servers": making.servers, "group.id": group})
            orders.offset = 3
            alone.commit(offsets=[orders], asynchronous=False)
            alone.close()
        admin.delete_consumer_groups(["deleted"])["deleted"].result(30)
        names = ["app-one", "emptied", "manual-only", "static-group", "with space & ünicode"]
        committed(making, names)
        described = admin.describe_consumer_groups(names)
        making.json("groups.json", [told(described[name].result(30)) for name in names])
        listed = admin.list_consumer_groups().result().valid
        making.json("listed.json", sorted(one.group_id for one in listed))
        making.kept += members
    making.topics.clear()
    making.tidy("__consumer_offsets")


def member(making: Making, group: str, client: str, more: dict[str, str] | None = None) -> Consumer:
    """A consumer that subscribed to orders; it must be polled until it has joined."""
    consumer = Consumer({"bootstrap.servers": making.servers, "group.id": group,
                         "client.id": client, "enable.auto.commit": False,
                         "session.timeout.ms": 60_000, **(more or {})})  # fmt: skip
    consumer.subscribe(["orders"])
    return consumer


def joined(admin: Any, group: str, count: int, members: list[Consumer]) -> bool:
    """True if the group is stable with this many members, all of which know their partitions."""
    for one in members:
        one.poll(0.1)
    try:
        asked = admin.describe_consumer_groups([group])
        found = asked[group].result(30)
    except KafkaException:  # its coordinator is not available yet
        return False
    return found.state.name == "STABLE" and len(found.members) == count


def told(group: Any) -> dict[str, object]:
    """A group in the form of groups.json."""
    members = [
        {
            "member_id": one.member_id, "client_id": one.client_id, "host": one.host,
            "group_instance_id": one.group_instance_id,
            "assignment": sorted(f"{p.topic}-{p.partition}" for p in
                                 one.assignment.topic_partitions),
        }
        for one in group.members
    ]  # fmt: skip
    found: dict[str, object] = {
        "group": group.group_id,
        "state": group.state.name.capitalize(),
        "assignor": group.partition_assignor,
        "simple": group.is_simple_consumer_group,
        "type": "Classic",
        "members": sorted(members, key=lambda one: str(one["client_id"])),
    }
    return found


def kraft(making: Making) -> None:
    """A whole node with its metadata log: topics made, grown and deleted, settings, snapshots."""
    settings = (
        "metadata.log.max.snapshot.interval.ms=3000\n"
        "metadata.log.max.record.bytes.between.snapshots=2000\n"
    )
    with making.broker(FEW_GROUPS + settings) as admin:
        making.make(admin, "orders", 3, retention_ms=-1)
        making.make(admin, "events", 2, cleanup_policy="compact,delete")
        making.make(admin, "doomed", 2)
        for topic, partition in (("orders", 0), ("orders", 2), ("events", 1)):
            making.send(making.producer(), topic, 20, partition=partition)
        admin.create_partitions([NewPartitions("orders", 5)])["orders"].result(30)
        making.topics["orders"] = 5
        admin.delete_topics(["doomed"])["doomed"].result(30)
        del making.topics["doomed"]
        making.configure(BROKER, "1", log_cleaner_threads="2")
        making.configure(BROKER, "", message_max_bytes="2000000")
        making.make(admin, "late", 1)
        until(lambda: all(making.offset(topic, n, LATEST) for topic, count in making.topics.items()
                          for n in range(count)), "all partitions have leaders")  # fmt: skip
        until(lambda: any(one for one in (making.log / METADATA).glob("*.checkpoint")
                          if int(one.name[:20])), "there is a snapshot")  # fmt: skip
        found = admin.describe_topics(TopicCollection([*making.topics]))
        ends = {
            topic: [
                [(making.offset(topic, n, query) or {}).get("offset") or 0
                 for query in (EARLIEST, LATEST)]
                for n in range(count)
            ]
            for topic, count in making.topics.items()
        }  # fmt: skip
        making.json("metadata.json", {
            "ends": ends,
            "topics": {name: {"partitions": count, "internal": False,
                              "topic_id": id_of(found[name].result(30))}
                       for name, count in making.topics.items()},
            "broker_configs": {"log.cleaner.threads": "2"},
            "default_broker_configs": {"message.max.bytes": "2000000"},
        })  # fmt: skip
        making.answers()
    making.tidy("__cluster_metadata")


RECIPES: dict[str, Callable[[Making], None]] = {
    "appendtime": appendtime,
    "codecs": codecs,
    "compaction": compaction,
    "deleted": deleted,
    "epochs": epochs,
    "groups-4.1": groups,
    "kraft": kraft,
    "kraft-4.4": kraft,
    "node-4.4": node,
    "segments": segments,
    "transactions": transactions,
}
"""By the name of the case."""
