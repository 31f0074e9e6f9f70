"""Traces and metrics through OpenTelemetry, as its SDK gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import kafkalog
from kafkalog import Consumer, Producer, Record, aio, errors, opentelemetry
from kafkalog.testing.broker import TestBroker
from tests.support.waiting import LIMIT_S, wait_for

KNOWN = {
    value for module in (messaging_attributes, error_attributes)
    for value in vars(module).values() if isinstance(value, str)
}  # fmt: skip
"""The attributes that the semantic conventions have."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    with TestBroker(tmp_path / "data") as made:
        made.create_topic("t", 1)
        yield made


@pytest.fixture
def provider() -> TracerProvider:
    return TracerProvider()


@pytest.fixture
def spans(provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    opentelemetry.instrument(provider)
    yield exporter
    opentelemetry.uninstrument()


def finished(exporter: InMemorySpanExporter, *names: str) -> list[Any]:
    """The spans with these names, once there is one of each; all attributes are known ones."""
    found: list[Any] = []

    def there() -> bool:
        found[:] = exporter.get_finished_spans()
        return {one.name for one in found} >= {*names}

    wait_for(there, f"spans {names}")
    for one in found:
        assert set(one.attributes or ()) <= KNOWN
    return [one for name in names for one in found if one.name == name]


def read(broker: TestBroker, count: int, group: str | None = None) -> list[Record]:
    taken: list[Record] = []
    with Consumer(broker.bootstrap_servers, "t", group=group, client_id="reads",
                  auto_offset_reset="earliest") as consumer:  # fmt: skip
        wait_for(lambda: taken.extend(consumer.poll(100)) or len(taken) >= count, "all records")
        for record in taken:
            with opentelemetry.process(record, consumer):
                pass
    return taken


def test_a_trace_goes_from_the_producer_to_the_work_on_the_record(
    broker: TestBroker, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    tracer = provider.get_tracer("test")
    with (
        Producer(broker.bootstrap_servers, client_id="writes") as producer,
        tracer.start_as_current_span("order"),
    ):
        producer.send("t", b"v", b"k", headers=[("own", b"1"), ("traceparent", b"old")])
    (record,) = read(broker, 1, "g")
    assert [name for name, _ in record.headers] == ["own", "traceparent"]
    order, send, poll, process = finished(spans, "order", "send t", "poll t", "process t")
    assert send.parent.span_id == order.context.span_id
    assert process.parent.span_id == send.context.span_id
    assert {one.context.trace_id for one in (order, send, process)} == {order.context.trace_id}
    assert [one.context.span_id for one in poll.links] == [send.context.span_id]
    assert poll.parent is None
    kinds = (SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER)
    assert (send.kind, poll.kind, process.kind) == kinds
    both = {"messaging.system": "kafka", "messaging.destination.name": "t"}
    place = {"messaging.destination.partition.id": "0", "messaging.kafka.offset": 0}
    assert dict(send.attributes) == {
        **both, **place, "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.client.id": "writes", "messaging.kafka.message.key": "k",
    }  # fmt: skip
    of_group = {"messaging.client.id": "reads", "messaging.consumer.group.name": "g"}
    assert dict(poll.attributes) == {
        **both, **of_group, "messaging.operation.name": "poll",
        "messaging.operation.type": "receive", "messaging.batch.message_count": 1,
    }  # fmt: skip
    assert dict(process.attributes) == {
        **both, **of_group, **place, "messaging.operation.name": "process",
        "messaging.operation.type": "process", "messaging.kafka.message.key": "k",
    }  # fmt: skip


def test_many_records_have_one_span(broker: TestBroker, spans: InMemorySpanExporter) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_many("t", [b"1", b"2"], headers=[[("own", b"1")], None])
        producer.send_many("t", [b"3"])
    first, second, third = read(broker, 3)
    assert [name for name, _ in first.headers] == ["own", "traceparent"]
    assert first.headers[1] == second.headers[0] != third.headers[0]
    one, other = finished(spans, "send t")
    counts = [span.attributes["messaging.batch.message_count"] for span in (one, other)]
    assert counts == [2, 1]
    links = [link for poll in finished(spans, "poll t") for link in poll.links]
    assert {link.context.span_id for link in links} == {one.context.span_id, other.context.span_id}


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"k" * 256, "k" * 256),
        (b"k" * 257, "k" * 256 + "..."),
        (b"\xff" * 1_000_000, "\\xff" * 64 + "..."),
    ],
)
def test_a_long_key_is_cut(
    broker: TestBroker, spans: InMemorySpanExporter, key: bytes, shown: str
) -> None:
    """A span is not as large as the record."""
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"v", key).result(LIMIT_S)
    read(broker, 1)
    send, process = finished(spans, "send t", "process t")
    for one in (send, process):
        assert one.attributes["messaging.kafka.message.key"] == shown


class Noting(TraceContextTextMapPropagator):
    """The usual one, which notes the headers that it gets."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def extract(self, carrier: Any, *words: Any, **named: Any) -> Any:
        self.sizes |= {name: len(text) for name, text in carrier.items()}
        return super().extract(carrier, *words, **named)


@pytest.fixture
def noting() -> Iterator[Noting]:
    before, made = propagate.get_global_textmap(), Noting()
    propagate.set_global_textmap(made)
    yield made
    propagate.set_global_textmap(before)


def test_long_headers_are_not_read_as_a_context(
    spans: InMemorySpanExporter, noting: Noting
) -> None:
    """No context is longer than W3C's baggage may be, and a header may have megabytes."""
    headers = (("photo", bytes(8_193)), ("baggage", bytes(8_192)), ("empty", None))
    with opentelemetry.process(Record(0, 0, None, b"v", headers, "t", 0, 0, -1)):
        pass
    assert noting.sizes == {"baggage": 8_192}


def test_tombstones_and_records_without_a_trace(
    broker: TestBroker, spans: InMemorySpanExporter
) -> None:
    opentelemetry.uninstrument()
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("t", None, b"\xff", headers=[("traceparent", b"\xff"), ("null", None)])
    assert opentelemetry.instrument() is None
    (record,) = read(broker, 1)
    assert len(record.headers) == 2


def test_failures_are_in_the_span(broker: TestBroker, spans: InMemorySpanExporter) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(errors.UnknownTopicOrPartition):
            producer.send("t", b"v", partition=-7)
        broker.fail("Produce", "INVALID_RECORD")
        future = producer.send("t", None)
        assert isinstance(future.exception(LIMIT_S), errors.InvalidRecord)
        with pytest.raises(errors.InvalidRecord):
            producer.flush()
    refused, failed = finished(spans, "send t")
    assert refused.attributes["error.type"] == "UnknownTopicOrPartition"
    assert failed.attributes["error.type"] == "InvalidRecord"
    assert failed.attributes["messaging.kafka.message.tombstone"] is True
    assert {one.status.status_code for one in (refused, failed)} == {StatusCode.ERROR}


def test_failed_work_is_in_the_span(broker: TestBroker, spans: InMemorySpanExporter) -> None:
    record = Record(7, 0, None, b"v", (), "t", 0, 0, -1)
    with pytest.raises(KeyError), opentelemetry.process(record):
        raise KeyError("no such order")
    (work,) = finished(spans, "process t")
    assert work.attributes["error.type"] == "KeyError"
    assert work.status.status_code is StatusCode.ERROR and work.parent is None


def test_asyncio_keeps_the_context(
    broker: TestBroker, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    async def both() -> None:
        tracer = provider.get_tracer("test")
        async with aio.Producer(broker.bootstrap_servers) as producer:
            with tracer.start_as_current_span("order"):
                await producer.send("t", b"v", headers=[("own", b"1")])
                await producer.send_many("t", [b"w"])
        async with aio.Consumer(
            broker.bootstrap_servers, "t", auto_offset_reset="earliest"
        ) as consumer:
            taken: list[Record] = []
            while len(taken) < 2:
                taken += await consumer.poll(1_000)
            with opentelemetry.process(taken[0], consumer):
                assert trace.get_current_span().get_span_context().is_valid

    asyncio.run(both())
    order, one, many, *_ = finished(spans, "order", "send t", "process t", "poll t")
    assert one.parent.span_id == many.parent.span_id == order.context.span_id


def test_nothing_is_changed_without_it(broker: TestBroker, spans: InMemorySpanExporter) -> None:
    opentelemetry.instrument()  # a second time
    opentelemetry.uninstrument()
    assert "replaced" not in Producer.send.__code__.co_name
    for kind in (Producer, Consumer, aio.Producer):
        assert not any(hasattr(one, "__wrapped__") and one.__module__ == opentelemetry.__name__
                       for one in vars(kind).values())  # fmt: skip
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"v")
    (record,) = read(broker, 1)
    assert record.headers == () and spans.get_finished_spans() == ()


def values(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    found: Any = reader.get_metrics_data()
    return {
        metric.name: [(dict(point.attributes), point.value) for point in metric.data.data_points]
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_metrics_are_observable_instruments(broker: TestBroker) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with Producer(broker.bootstrap_servers, client_id="p") as producer:
        opentelemetry.observe(broker.broker, producer, meter_provider=provider)
        name = "kafka_producer_producer_metrics_record_send_total"
        assert values(reader)[name] == [({"client_id": "p"}, 0.0)]
        producer.send("t", b"v").result(LIMIT_S)
        wait_for(lambda: values(reader)[name] == [({"client_id": "p"}, 1.0)], "it is counted")
        found = values(reader)
    messages = found["kafka_server_brokertopicmetrics_messagesin_total"]
    assert ({"topic": "t"}, 1.0) in messages
    produce = [value for labels, value in found["kafka_network_requestmetrics_totaltimems_count"]
               if labels == {"request": "Produce"}]  # fmt: skip
    assert produce == [1.0]
    assert found["kafkalog_ready"] == [({}, 1.0)]
    provider.shutdown()


def test_only_sources_with_metrics_are_observed() -> None:
    with pytest.raises(errors.ArgumentError, match="no source"):
        opentelemetry.observe()
    wrong: Any = object()
    with pytest.raises(errors.ArgumentError, match="object"):
        opentelemetry.observe(wrong)


def test_it_is_a_public_module() -> None:
    assert kafkalog.opentelemetry is opentelemetry
