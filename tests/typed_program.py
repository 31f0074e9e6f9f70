"""A user's program with the main parts of the package, for a type checker: it is never run.

`.ci/wheel` checks it against the installed wheel.  Lines with a user's likely mistakes are marked,
and an unnecessary mark is an error, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars

import kafkalog
from kafkalog import TopicPartition, aio, errors
from kafkalog.serializers import from_json, to_json, to_long

TP = TopicPartition("orders", 0)


def one_log(path: str) -> list[bytes | None]:
    with kafkalog.Log(path, config={"segment.bytes": 1 << 20}) as log:
        offset: int = log.append(b"value", key=b"key", headers=[("h", b"v")])
        span: kafkalog.AppendedOffsets = log.append_many([b"a", b"b"], compression="zstd")
        log.append("text")  # type: ignore[arg-type]
        log.flush()
        found: kafkalog.FoundOffset | None = log.find_time(1_700_000_000_000)
        after: int | None = log.offset_at(1_700_000_000_000)
        record: kafkalog.Record = log[offset]
        records: Iterator[kafkalog.Record] = log[offset : span.last_offset]
        assert found is None or after == found.offset
        return [record.value, *(one.value for one in records)]


def columns(log: kafkalog.Log) -> int:
    scan: kafkalog.Scan = log.scan(columns=["key", "offset"], isolation="read_committed")
    rows = sum(len(batch.numpy("offset")) for batch in scan)
    frame: polars.DataFrame = scan.to_polars()
    lazy: polars.LazyFrame = kafkalog.polars.scan("data", "orders")
    eager: polars.DataFrame = lazy.select("key").collect()
    return rows + scan.count() + frame.height + eager.height


def in_process(path: str) -> None:
    with kafkalog.Store(path) as store:
        store.create_topic("orders", partitions=3, config={"retention.ms": 86_400_000})
        names: tuple[str, ...] = store.topics
        with store.producer(transactional_id="till") as producer, producer.transaction():
            future: kafkalog.Future = producer.send("orders", b"value", key=b"key")
            many: kafkalog.ManyFuture = producer.send_many("orders", [b"a", b"b"])
        sent: kafkalog.RecordMetadata = future.result()
        ranges: list[kafkalog.SentRange] = many.result()
        print(names, sent.offset, [one.last_offset for one in ranges])


def over_a_socket(where: str | kafkalog.Store) -> None:
    with kafkalog.Producer(where, acks="all") as producer:
        producer.send("orders", to_json({"apples": 3}))
        producer.send("orders", {"apples": 3})  # type: ignore[arg-type]
        bare: kafkalog.Producer = producer
    with kafkalog.Producer(where, value_serializer=to_json) as typed:
        typed.send("orders", {"apples": 3}, b"key")
        typed.send("orders", None)
        typed.send("orders", 3, 4)  # type: ignore[arg-type]
    with kafkalog.Producer(where, value_serializer=to_long, key_serializer=to_json) as longs:
        longs.send("orders", 3, ["key"])
        longs.send("orders", b"3")  # type: ignore[arg-type]
    if not isinstance(where, str):
        where.producer(value_serializer=to_json).send("orders", {"apples": 3})
        where.producer(linger_ms=5).send("orders", 3)  # type: ignore[arg-type]
    print(bare)
    with kafkalog.Consumer(
        where, "orders", group="billing", auto_offset_reset="earliest", value_deserializer=from_json
    ) as consumer:
        for record in consumer.poll(timeout_ms=1_000):
            consumer.commit({TP: kafkalog.CommittedOffset(record.offset + 1)})
        place: kafkalog.CommittedOffset | None = consumer.committed(TP)
        print(place)
    with kafkalog.Admin(where) as admin:
        created: kafkalog.Results[str, kafkalog.CreatedTopic] = admin.create_topics(["a", ("b", 3)])
        admin.create_topics(1)  # type: ignore[arg-type]
        print(created["a"].topic_id, admin.list_topics())


async def without_blocking(where: str) -> None:
    async with aio.Producer(where) as producer, aio.Consumer(where, "orders") as consumer:
        sent: kafkalog.RecordMetadata = await producer.send("orders", b"value")
        async with aio.Producer(where, value_serializer=to_json) as typed:
            await typed.send("orders", {"apples": 3})
            await typed.send("orders", 3, 4)  # type: ignore[arg-type]
        async for record in consumer:
            assert record.offset >= sent.offset


def failures(path: str) -> None:
    try:
        kafkalog.Log(path, mode="r")
    except kafkalog.Locked as problem:
        code: int | None = problem.code
        print(code, problem.retriable)
    except (errors.NotFound, kafkalog.KafkalogError):
        print(kafkalog.CorruptLog)  # type: ignore[attr-defined]


def a_broker(path: str) -> str:
    with kafkalog.Broker(path, listeners="PLAINTEXT://127.0.0.1:0") as broker:
        return broker.bootstrap_servers
