"""The steps with a broker: an unmodified Kafka client over the demo's directory."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import layout
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from source import Flight, new_york_ms
from tour import check, code, say

import kafkalog

GROUP = "departures"
# A group waits three seconds for more members before it starts; here there is only one.
CONFIG = {"group.initial.rebalance.delay.ms": 0}


def by_a_kafka_client(directory: Path, flights: list[Flight]) -> None:
    """kafka-python, as it comes from the package index, produces, consumes and commits."""
    code(f'with kafkalog.Broker("{directory.name}") as broker:')
    code("    KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)")
    began = time.perf_counter()
    with kafkalog.Broker(directory, config=CONFIG) as broker:
        millis = (time.perf_counter() - began) * 1000
        say(f"serves {broker.bootstrap_servers} after {millis:.0f} ms")
        _one_day(broker.bootstrap_servers, flights)
        _live(broker.bootstrap_servers, flights[:1000])


def _one_day(address: str, flights: list[Flight]) -> None:
    """Independence Day, found by time as a client does it."""
    begin, end = new_york_ms(2013, 7, 4), new_york_ms(2013, 7, 5)
    consumer = KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=10_000)
    partitions = [TopicPartition(layout.TOPIC, n) for n in range(layout.PARTITIONS)]
    consumer.assign(partitions)
    starts = consumer.offsets_for_times(dict.fromkeys(partitions, begin))
    stops = consumer.offsets_for_times(dict.fromkeys(partitions, end))
    wanted = sum(begin <= flight.timestamp_ms < end for flight in flights)
    for partition in partitions:
        consumer.seek(partition, starts[partition].offset)
    carriers: Counter[str] = Counter()
    left = {tp: stops[tp].offset - starts[tp].offset for tp in partitions}
    for record in consumer:
        tp = TopicPartition(record.topic, record.partition)
        if record.offset < stops[tp].offset:
            carriers[record.key.decode()] += 1
            left[tp] -= 1
        if not any(count > 0 for count in left.values()):
            break
    consumer.close()
    first = ", ".join(f"{name} {count}" for name, count in carriers.most_common(4))
    say(f"4 July 2013: {sum(carriers.values())} departures: {first}, ...")
    check(sum(carriers.values()) == wanted, "a client reads what was written without a server")


def _live(address: str, flights: list[Flight]) -> None:
    """A producer with acks=all, a group that reads what it wrote and commits."""
    topic = "departures-now"
    producer = KafkaProducer(bootstrap_servers=address, compression_type="gzip", linger_ms=5)
    sent = [producer.send(topic, flight.value, key=flight.key) for flight in flights]
    producer.flush()
    check(
        all(future.succeeded() for future in sent),
        f"{len(sent):,} records produced by kafka-python, each on disk when it was acknowledged",
    )
    producer.close()
    seen = _read(topic, address, len(flights))
    check(seen[-1] == json.loads(flights[-1].value), "a consumer group reads them, and commits")
    check(not _read(topic, address, 0), "a second member of the group finds nothing left")


def _read(topic: str, address: str, count: int) -> list[Any]:
    """The records that the group has not seen; stops after `count`, or when no more come."""
    consumer = KafkaConsumer(
        topic, bootstrap_servers=address, group_id=GROUP, auto_offset_reset="earliest",
        consumer_timeout_ms=10_000 if count else 500,
    )  # fmt: skip
    seen = []
    for record in consumer:
        seen.append(json.loads(record.value))
        if len(seen) == count:
            break
    consumer.commit()
    consumer.close()
    return seen
