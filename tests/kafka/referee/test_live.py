"""A directory goes from Apache Kafka to kafkalog and back, written by both: the long form of
test_kafkas_directory_comes_home, which uses a directory that Kafka wrote before."""

import contextlib

import kafka
import pytest
from kafka.admin import KafkaAdminClient, NewTopic

import kafkalog
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "shared"
PARTITIONS = 2
CODECS = ("zstd", "lz4", "gzip", None)  # snappy needs one more package in kafka-python
SETTINGS = "log.index.interval.bytes=512\nlog.segment.delete.delay.ms=0\n"


def consume(broker, count):
    """All records of the topic by partition, as (offset, timestamp, key, value, headers)."""
    assigned = [kafka.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    consumer.assign(assigned)
    consumer.seek_to_beginning(*assigned)
    found = {number: [] for number in range(PARTITIONS)}
    for record in consumer:
        found[record.partition].append(
            (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        )
        if sum(map(len, found.values())) == count:
            break
    consumer.close()
    return found


def read(path, mode):
    with kafkalog.Log(path, mode=mode) as log:
        return [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in log.read()]


def produce(broker, codec, values):
    """One value to each partition in turn, in small batches, by an idempotent producer."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", compression_type=codec,
        enable_idempotence=True, linger_ms=5, batch_size=2000,
    )  # fmt: skip
    for i, value in enumerate(values):
        producer.send(TOPIC, value, key=b"k%d" % i, partition=i % PARTITIONS, headers=[("n", b"1")])
    producer.flush()
    producer.close()


@pytest.mark.long
def test_a_directory_passes_between_kafka_and_kafkalog(kafka_jars, tmp_path):
    """Kafka writes, we append, Kafka appends again; each reads everything the others wrote."""
    directory = tmp_path / "data"
    paths = [directory / f"{TOPIC}-{number}" for number in range(PARTITIONS)]
    with apache.Broker(directory, SETTINGS) as broker:
        with contextlib.closing(
            KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        ) as client:
            client.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        produce(broker, "gzip", [b"from kafka %d " % i * 20 for i in range(400)])
        first = consume(broker, 400)
        assert [read(path, "r") for path in paths] == list(first.values())

    assert [read(path, "w") for path in paths] == list(first.values())
    for number, path in enumerate(paths):
        with kafkalog.Log(path) as log:
            for i in range(50):
                log.append(b"ours %d" % i, key=b"k", headers=[("from", b"kafkalog"), ("x", None)])
            values = [b"ours, many, %d " % i * 20 for i in range(300)]
            for codec in CODECS:
                log.append_many(values, compression=codec, batch_bytes=5000)
            assert log.verify().clean
        first[number] = read(path, "r")
        assert len(first[number]) == 200 + 50 + len(CODECS) * 300

    total = sum(map(len, first.values()))
    with apache.Broker(directory, SETTINGS) as broker:
        assert "Recovering unflushed segment" not in broker.output()
        assert consume(broker, total) == first
        produce(broker, "lz4", [b"kafka again %d" % i for i in range(100)])
        second = consume(broker, total + 100)

    for number, path in enumerate(paths):
        assert read(path, "w") == second[number]
        with kafkalog.Log(path, mode="r") as log:
            assert log.verify().clean
            assert len(log.producers) == 2
