"""Callables that turn keys and values into bytes and back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog import Consumer, Producer, Record, TopicPartition, aio, errors
from kafkalog.client.producer.producer import OutgoingRecord
from kafkalog.serializers import (
    from_double,
    from_int,
    from_json,
    from_long,
    from_string,
    to_double,
    to_int,
    to_json,
    to_long,
    to_string,
)
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import LIMIT_S

LIMIT_MS = LIMIT_S * 1000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("serializers") / "data") as broker:
        yield broker


@pytest.fixture
def topic(shared: TestBroker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "-", request.node.name)
    shared.create_topic(name, 1)
    return name


def consumer(broker: TestBroker, topic: str, **options: Any) -> Consumer:
    return Consumer(broker.bootstrap_servers, topic, auto_offset_reset="earliest", **options)


def read(reader: Consumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        found += reader.poll(LIMIT_MS, count - len(found))
    return found


@pytest.mark.parametrize(
    ("to", "back", "value", "data"),
    [
        (to_json, from_json, {"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode()),
        (to_string, from_string, "ü", b"\xc3\xbc"),
        (to_int, from_int, -2, b"\xff\xff\xff\xfe"),
        (to_long, from_long, 1 << 40, b"\0\0\x01\0\0\0\0\0"),
        (to_double, from_double, 0.5, b"\x3f\xe0\0\0\0\0\0\0"),
    ],
)
def test_their_bytes(to: Any, back: Any, value: Any, data: bytes) -> None:
    assert to(value) == data and back(data) == value


@pytest.mark.parametrize(
    ("call", "wrong", "words"),
    [
        (to_int, 1 << 31, "to_int: found 2147483648"),
        (to_long, "1", "to_long: found '1'"),
        (from_int, b"123", "from_int: found 3 bytes, wanted 4"),
        (to_string, b"x", "to_string: found bytes, wanted a str"),
    ],
)
def test_refused_values(call: Any, wrong: Any, words: str) -> None:
    with pytest.raises(errors.ArgumentError, match=words):
        call(wrong)


def test_round_trip(shared: TestBroker, topic: str) -> None:
    values = [{"n": 1}, None, ["x"], 4, {"n": 5}]
    with Producer(
        shared.bootstrap_servers, key_serializer=to_long, value_serializer=to_json
    ) as producer:
        for value in values[:3]:
            producer.send(topic, value, 7)  # type: ignore[arg-type]
        producer.send_many(topic, values[3:], [8, None])  # type: ignore[arg-type]
    assert [one.value for one in shared.records(topic)][:2] == [b'{"n":1}', None]
    with consumer(
        shared, topic, key_deserializer=from_long, value_deserializer=from_json
    ) as reader:
        found: list[Any] = read(reader, 5)
        assert [one.value for one in found] == values
        assert [one.key for one in found] == [7, 7, 7, 8, None]
        reader.seek(TopicPartition(topic, 0), 0)
        assert next(iter(reader)).value == {"n": 1}
        reader.seek(TopicPartition(topic, 0), 0)
        (columns,) = reader.poll_arrow(LIMIT_MS)
        assert bytes(columns.numpy("value")[0]) == b'{"n":1}'


def test_batches_and_interceptors(shared: TestBroker, topic: str) -> None:
    """Interceptors see what the user sees; whole batches stay as they are."""
    seen: list[Any] = []

    class Looks:
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            seen.append(record.value)
            return record

        def on_consume(self, records: list[Record]) -> list[Record]:
            seen.extend(one.value for one in records)
            return records

    looks = [Looks()]
    with Producer(
        shared.bootstrap_servers, value_serializer=to_string, interceptors=looks
    ) as producer:
        producer.send(topic, "one").result(LIMIT_S)  # type: ignore[arg-type]
        log = shared.broker._node.partitions.existing_log(topic, 0)
        assert log is not None
        producer.send_batches(topic, log.read_batches(0, 1 << 20))
    with consumer(shared, topic, value_deserializer=from_string, interceptors=looks) as reader:
        assert [one.value for one in read(reader, 2)] == ["one", "one"]
    assert seen == ["one", b"one", "one", "one"]


def test_errors_and_results_of_a_serializer(shared: TestBroker, topic: str) -> None:
    with Producer(shared.bootstrap_servers, value_serializer=to_int) as producer:
        with pytest.raises(errors.ArgumentError, match="to_int: found 'x'"):
            producer.send(topic, "x")  # type: ignore[arg-type]
        producer.send(topic, 1).result(LIMIT_S)  # type: ignore[arg-type]
    wrong: Any = str
    with (
        Producer(shared.bootstrap_servers, value_serializer=wrong) as producer,
        pytest.raises(errors.ArgumentError, match="value: found str, wanted bytes"),
    ):
        producer.send(topic, 1)  # type: ignore[arg-type]
    assert len(shared.records(topic)) == 1


def test_a_record_that_cannot_be_read_is_not_skipped(shared: TestBroker, topic: str) -> None:
    """Records before it are returned first; then each poll raises until a seek; none is lost."""
    with Producer(shared.bootstrap_servers) as producer:
        for value in (b"1", b"2", b"no", b"4"):
            producer.send(topic, value)
    tp = TopicPartition(topic, 0)
    with consumer(shared, topic, value_deserializer=from_json) as reader:
        found: list[Any] = read(reader, 2)
        assert [one.value for one in found] == [1, 2]
        for _ in range(2):
            with pytest.raises(errors.Undeserializable, match=f"{topic}-0, offset 2: ") as raised:
                read(reader, 1)
            assert isinstance(raised.value.__cause__, ValueError)
            assert reader.position(tp) == 2
        reader.seek(tp, 3)
        assert [one.value for one in read(reader, 1)] == [4]
        reader.seek(tp, 1)
        coming = iter(reader)
        assert next(coming).value == 2
        with pytest.raises(errors.Undeserializable):
            next(coming)
        assert reader.position(tp) == 2


@pytest.mark.parametrize("where", ["deserializer", "on_consume"])
@pytest.mark.parametrize("iterated", [False, True], ids=["poll", "iteration"])
def test_ctrl_c_loses_no_record(shared: TestBroker, topic: str, where: str, iterated: bool) -> None:
    """No record was returned yet, so the next call returns those already read."""
    with Producer(shared.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % i for i in range(4)])
    pressed: list[str] = []

    def press(at: str) -> None:
        if at == where and not pressed:
            pressed.append(at)
            raise KeyboardInterrupt

    def number(data: bytes) -> int:
        if data == b"2":
            press("deserializer")
        return int(data)

    class Looks:
        def on_consume(self, records: list[Record]) -> list[Record]:
            press("on_consume")
            return records

    with consumer(shared, topic, value_deserializer=number, interceptors=[Looks()]) as reader:
        found: list[Any] = []

        def some() -> list[Record]:
            return [next(iter(reader))] if iterated else reader.poll(LIMIT_MS)

        while len(found) < 4:
            try:
                found += [one.value for one in some()]
            except KeyboardInterrupt:
                assert reader.position(TopicPartition(topic, 0)) == len(found)
    assert found == [0, 1, 2, 3] and pressed == [where]


def test_interceptors_hear_of_serializer_errors(shared: TestBroker, topic: str) -> None:
    acked: list[Any] = []

    class Looks:
        def on_ack(self, metadata: Any, error: Any) -> None:
            acked.append((metadata and metadata.offset, error))

    def picky(value: object) -> bytes:
        if value == "no":
            raise ValueError(value)
        return str(value).encode()

    with Producer(
        shared.bootstrap_servers, value_serializer=picky, interceptors=[Looks()]
    ) as producer:
        with pytest.raises(ValueError, match="no") as raised:
            producer.send(topic, "no")  # type: ignore[arg-type]
        assert acked == [(None, raised.value)]
        producer.send(topic, "yes").result(LIMIT_S)  # type: ignore[arg-type]
    assert acked[1:] == [(0, None)]


def test_asyncio_has_them_too(shared: TestBroker, topic: str) -> None:
    async def work() -> Any:
        async with aio.Producer(shared.bootstrap_servers, value_serializer=to_json) as producer:
            await producer.send(topic, [1])
        async with aio.Consumer(
            shared.bootstrap_servers, topic, auto_offset_reset="earliest",
            value_deserializer=from_json,
        ) as reader:  # fmt: skip
            async for record in reader:
                return record.value

    assert asyncio.run(work()) == [1]


@pytest.mark.parametrize(
    "name", ["key_serializer", "value_serializer", "key_deserializer", "value_deserializer"]
)
def test_they_are_callables(shared: TestBroker, name: str) -> None:
    kind: Any = Consumer if name.endswith("deserializer") else Producer
    with pytest.raises(errors.ArgumentError, match=f"{name}: found 'json' of type str"):
        kind(shared.bootstrap_servers, **{name: "json"})
