"""User code that raises: what its thread is decides what becomes of the exception, and no client
ends by it.

| code | called in | an Exception | SystemExit, KeyboardInterrupt and the like |
|---|---|---|---|
| add_done_callback, on_delivery, on_ack | the producer's thread | logged | logged |
| add_done_callback, on_ack of what has ended | the caller's | logged | raised |
| on_send | the caller's | logged, the record stays | raised, the record is not sent |
| serializer, partitioner | the caller's | raised, the record is not sent | the same |
| on_consume | the caller's | logged, the records stay | raised by poll, read again |
| on_commit | the caller's | logged | raised |
| deserializer | the caller's | Undeserializable, read again | raised by poll, read again |
| listener, callback of a commit | the caller's | raised by poll, close, commit | the same |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog import TopicPartition, errors
from tests.support.waiting import LIMIT_S, wait_for

KINDS = [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkalog.Store]:
    with kafkalog.Store(tmp_path_factory.mktemp("callbacks") / "data") as made:
        yield made


def raising(kind: type[BaseException]) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise kind("of the program")

    return call


class Interceptor:
    """Raises in one method."""

    def __init__(self, method: str, kind: type[BaseException]) -> None:
        setattr(self, method, raising(kind))


class Heard:
    """Has all methods."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def on_send(self, record: Any) -> Any:
        self.found.append(record.value)
        return record

    def on_ack(self, metadata: Any, error: Any) -> None:
        self.found.append(error or metadata.offset)

    def on_consume(self, records: list[Any]) -> list[Any]:
        self.found.append([one.offset for one in records])
        return records

    def on_commit(self, offsets: Any) -> None:
        self.found.append(next(iter(offsets.values())).offset)


def said(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    return [line for line in caplog.messages if line.startswith(what)]


def works(producer: kafkalog.Producer[Any, Any], topic: str, offset: int) -> None:
    assert producer.send(topic, b"last").result(LIMIT_S).offset == offset


# ---- the producer's thread -----------------------------------------------------------------


@kinds
def test_callbacks_of_a_future(
    store: kafkalog.Store, unique: str, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    store.create_topic(unique)
    heard: list[int] = []
    with store.producer(linger_ms=100_000) as producer:
        future = producer.send(unique, b"x")
        many = producer.send_many(unique, [b"y"])
        for one in (future, many):
            one.add_done_callback(raising(kind))
            one.add_done_callback(lambda one: heard.append(1))
        producer.flush()
        works(producer, unique, 2)
        assert heard == [1, 1]
        assert len(said(caplog, "a callback of a delivery failed")) == 2
        if issubclass(kind, Exception):  # at once, in this thread
            future.add_done_callback(raising(kind))
            assert len(said(caplog, "a callback of a delivery failed")) == 3
        else:
            with pytest.raises(kind):
                future.add_done_callback(raising(kind))


@kinds
def test_on_delivery(
    store: kafkalog.Store, unique: str, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    store.create_topic(unique)
    with store.producer(on_delivery=raising(kind)) as producer:
        assert producer.send(unique, b"x").result(LIMIT_S).offset == 0
        works(producer, unique, 1)
        assert len(said(caplog, "on_delivery failed")) == 2


@kinds
def test_on_ack(
    store: kafkalog.Store, unique: str, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """Callbacks of a record that was taken, and of one that was refused, which `send` raises."""
    store.create_topic(unique)
    heard = Heard()
    with store.producer(interceptors=[Interceptor("on_ack", kind), heard],
                        linger_ms=100_000) as producer:  # fmt: skip
        producer.send(unique, b"x")
        producer.flush()
        wait_for(lambda: len(heard.found) == 2, "it is told after the flush has ended")
        assert (heard.found, len(said(caplog, "on_ack failed"))) == ([b"x", 0], 1)
        if issubclass(kind, Exception):
            with pytest.raises(errors.MessageTooLarge) as refused:
                producer.send(unique, b"y" * 3_000_000)
            assert heard.found[3:] == [refused.value]
        else:
            with pytest.raises(kind):
                producer.send(unique, b"y" * 3_000_000)
        works(producer, unique, 1)


# ---- the caller's thread -------------------------------------------------------------------


@kinds
def test_on_send(
    store: kafkalog.Store, unique: str, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    store.create_topic(unique)
    heard = Heard()
    with store.producer(interceptors=[Interceptor("on_send", kind), heard]) as producer:
        if issubclass(kind, Exception):
            works(producer, unique, 0)
            assert heard.found == [b"last", 0]
            assert said(caplog, "on_send failed")
        else:
            with pytest.raises(kind):
                producer.send(unique, b"x")
            assert (heard.found, producer._waiting.unfinished) == ([], {})


def test_interceptors_that_return_none(
    store: kafkalog.Store, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Forgets:
        def on_send(self, record: Any) -> None:
            """It should return it."""

        on_consume = on_send

    store.create_topic(unique)
    with store.producer(interceptors=[Forgets()]) as producer:
        works(producer, unique, 0)
    some = [Forgets()]
    with store.consumer(unique, auto_offset_reset="earliest", interceptors=some) as consumer:
        assert [record.value for record in consumer.poll(None)] == [b"last"]
    assert said(caplog, "on_send failed")
    assert said(caplog, "on_consume failed")


@pytest.mark.parametrize("what", ["key_serializer", "value_serializer", "partitioner"])
@kinds
def test_serializers_and_partitioners(
    store: kafkalog.Store, unique: str, kind: type[BaseException], what: str
) -> None:
    store.create_topic(unique)
    before = {"partitioner": lambda *_: 0}.get(what, lambda found: found)
    now = [before]
    options: dict[str, Any] = {what: lambda *words: now[0](*words)}
    with store.producer(**options) as producer:
        now[0] = raising(kind)
        with pytest.raises(kind, match="of the program"):
            producer.send(unique, b"x", b"k")
        now[0] = before
        works(producer, unique, 0)


@pytest.mark.parametrize("what", ["on_consume", "value_deserializer"])
@kinds
def test_callbacks_for_records(
    store: kafkalog.Store, unique: str, kind: type[BaseException], what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    store.create_topic(unique)
    with store.producer() as producer:
        producer.send_many(unique, [b"0", b"1"])
    heard = Heard()
    options: dict[str, Any] = {"interceptors": [heard]}
    if what == "on_consume":
        options["interceptors"] = [bad := Interceptor("on_consume", kind), heard]
    else:
        now: list[Any] = [raising(kind)]
        options[what] = lambda data: now[0](data)
    with store.consumer(unique, auto_offset_reset="earliest", **options) as consumer:
        if what == "on_consume" and issubclass(kind, Exception):
            assert len(consumer.poll(None)) == 2
            assert said(caplog, "on_consume failed")
        else:
            wanted = errors.Undeserializable if issubclass(kind, Exception) else kind
            with pytest.raises(wanted, match="of the program"):
                consumer.poll(None)
            assert heard.found == []
            if what == "on_consume":
                bad.on_consume = lambda records: records  # type: ignore[attr-defined]
            else:
                now[0] = bytes
            assert [one.offset for one in consumer.poll(None)] == [0, 1]
        assert heard.found == [[0, 1]]


@kinds
def test_callbacks_for_commits(
    store: kafkalog.Store, unique: str, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    store.create_topic(unique)
    tp, heard = TopicPartition(unique, 0), Heard()
    some = [Interceptor("on_commit", kind), heard]
    with store.consumer(group=unique, auto_commit=False, interceptors=some) as consumer:
        consumer.assign([tp])
        if issubclass(kind, Exception):
            consumer.commit({tp: 1})
            assert heard.found == [1]
            assert said(caplog, "on_commit failed")
        else:
            with pytest.raises(kind, match="of the program"):
                consumer.commit({tp: 1})
    with store.consumer(group=unique, auto_commit=False) as consumer:
        consumer.assign([tp])
        found = consumer.committed(tp)
        assert found is not None and found.offset == 1
        with pytest.raises(kind, match="of the program"):
            consumer.commit({tp: 2}, callback=raising(kind))
        consumer.commit({tp: 3}, wait=False, callback=raising(kind))
        with pytest.raises(kind, match="of the program"):
            while True:
                consumer.poll(1)
        assert consumer.committed(tp) == (3, -1, "")


@kinds
def test_listeners(store: kafkalog.Store, unique: str, kind: type[BaseException]) -> None:
    store.create_topic(unique)
    with store.producer() as producer:
        producer.send_many(unique, [b"0", b"1"])
    with store.consumer(group=unique, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(unique, on_assigned=raising(kind))
        with pytest.raises(kind, match="of the program"):
            consumer.poll(None)
        assert [one.offset for one in consumer.poll(None)] == [0, 1]
