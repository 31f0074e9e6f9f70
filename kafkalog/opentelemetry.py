"""Traces and metrics of this process's clients and brokers, through OpenTelemetry's API.

    kafkalog.opentelemetry.instrument()

Spans follow OpenTelemetry's semantic conventions for messaging and Kafka; the context of a trace
travels in the records' headers, as the propagator writes it (W3C: traceparent).  Needs
`pip install "kafkalog[opentelemetry]"`.  Without the call nothing is changed, and costs no time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

from kafkalog import aio
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.producer.producer import Producer
from kafkalog.collector import TOTAL, Sources
from kafkalog.errors import ArgumentError, MissingPackage
from kafkalog.metrics.metric import Histogram, Kind
from kafkalog.metrics.table import METRICS
from kafkalog.types import Record

__all__ = ["instrument", "observe", "process", "uninstrument"]

LINKS_MAX = 128
"""Links of a span to the records of a poll; OpenTelemetry's own limit."""
KEY_MAX = 256
"""Characters of a record's key that a span shows."""
HEADER_BYTES = 8_192
"""A longer header carries no context: W3C's longest, baggage, has so many bytes."""
_SYSTEM = {"messaging.system": "kafka"}
_lock = threading.Lock()  # guards what follows
_originals: list[tuple[type, str, Any]] = []
_tracer: Any = None


def _api() -> Any:
    try:
        import opentelemetry.context
        import opentelemetry.metrics
        import opentelemetry.propagate
        import opentelemetry.trace
    except ImportError:
        raise MissingPackage(
            'kafkalog.opentelemetry needs opentelemetry-api: pip install "kafkalog[opentelemetry]"'
        ) from None
    return opentelemetry


def instrument(tracer_provider: Any = None) -> None:
    """From now on every producer's `send` and `send_many` makes a span and adds its context to the
    headers, and every consumer's `poll` makes a span with links to the records' contexts; asyncio's
    clients, too.  Harmless when repeated.

    `tracer_provider`: None: the global one.  Raises: MissingPackage.
    """
    global _tracer
    trace = _api().trace
    from kafkalog.client.link.software import software

    version = software()["client_software_version"]
    with _lock:
        _tracer = trace.get_tracer("kafkalog", version, tracer_provider=tracer_provider)
        if not _originals:
            _replace(Producer, "send", _sent)
            _replace(Producer, "send_many", _sent_many)
            _replace(aio.Producer, "send", _carried)
            _replace(aio.Producer, "send_many", _carried)
            _replace(Consumer, "poll", _polled)


def uninstrument() -> None:
    """Make no spans any more."""
    with _lock:
        while _originals:
            kind, name, method = _originals.pop()
            setattr(kind, name, method)


def _replace(kind: Any, name: str, around: Callable[..., Any]) -> None:
    method = getattr(kind, name)
    _originals.append((kind, name, method))

    @wraps(method)
    def replaced(*words: Any, **named: Any) -> Any:
        return around(method, *words, **named)

    setattr(kind, name, replaced)


# ---- producers ---------------------------------------------------------------------------


class _Headers(list[Any]):
    """Headers from asyncio's loop, with the context there: the client's thread has another."""

    def __init__(self, headers: Iterable[Any], context: Any) -> None:
        super().__init__(headers)
        self.context = context


def _carried(method: Callable[..., Any], *words: Any, **named: Any) -> Any:
    """A send of asyncio's producer."""
    named["headers"] = _Headers(named.get("headers") or (), _api().context.get_current())
    return method(*words, **named)


def _begin(producer: Any, topic: Any, operation: str, headers: Any, **more: Any) -> Any:
    """A span of a producer, which is not current."""
    attributes = {
        **_SYSTEM, "messaging.operation.name": operation, "messaging.operation.type": "send",
        "messaging.destination.name": str(topic),
        "messaging.client.id": producer.config.client_id, **more,
    }  # fmt: skip
    context = headers.context if isinstance(headers, _Headers) else None
    kind = _api().trace.SpanKind.PRODUCER
    return _tracer.start_span(f"{operation} {topic}", context, kind, attributes)


def _injected(span: Any) -> list[tuple[str, bytes]]:
    """The headers that say which span a record belongs to."""
    api, carrier = _api(), dict[str, str]()
    api.propagate.inject(carrier, api.trace.set_span_in_context(span))
    return [(name, text.encode()) for name, text in carrier.items()]


def _added(headers: Any, more: list[tuple[str, bytes]]) -> list[Any]:
    """Headers with those of a trace, which replace older ones."""
    names = {name for name, _ in more}
    return [*(one for one in headers or () if one[0] not in names), *more]


def _shown(key: str | bytes) -> str:
    """A key as an attribute: a long one is cut."""
    part = key[: KEY_MAX + 1]
    if isinstance(part, bytes):
        part = part.decode("utf-8", "backslashreplace")
    return part if len(key) <= KEY_MAX else f"{part[:KEY_MAX]}..."


def _sent(
    method: Callable[..., Any], producer: Any, topic: Any, value: Any, key: Any = None,
    **named: Any,
) -> Any:  # fmt: skip
    given = named.pop("headers", ())
    more: dict[str, Any] = {}
    if isinstance(key, (str, bytes)):
        more["messaging.kafka.message.key"] = _shown(key)
    if value is None:
        more["messaging.kafka.message.tombstone"] = True
    span = _begin(producer, topic, "send", given, **more)
    with _ends_if_refused(span):
        future = method(producer, topic, value, key, headers=_added(given, _injected(span)),
                        **named)  # fmt: skip
    future.add_done_callback(partial(_acknowledged, span))
    return future


def _sent_many(
    method: Callable[..., Any], producer: Any, topic: Any, values: Any, keys: Any = None,
    **named: Any,
) -> Any:  # fmt: skip
    given = named.pop("headers", None)
    count = len(values if values is not None else keys or ())
    span = _begin(producer, topic, "send", given, **{"messaging.batch.message_count": count})
    more = _injected(span)
    rows = [_added(row, more) for row in given or [()] * count]
    with _ends_if_refused(span):
        future = method(producer, topic, values, keys, headers=rows, **named)
    future.add_done_callback(partial(_acknowledged, span))
    return future


@contextmanager
def _ends_if_refused(span: Any) -> Iterator[None]:
    try:
        yield
    except BaseException as problem:
        _failed(span, problem)
        span.end()
        raise


def _failed(span: Any, problem: BaseException) -> None:
    trace = _api().trace
    span.set_attribute("error.type", type(problem).__qualname__)
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(problem)))


def _acknowledged(span: Any, future: Any) -> None:
    """The outcome of a send: in the producer's thread."""
    problem = future.exception()
    if problem is not None:
        _failed(span, problem)
    else:
        metadata = future.result()
        if hasattr(metadata, "offset"):
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
            span.set_attribute("messaging.kafka.offset", metadata.offset)
    span.end()


# ---- consumers ---------------------------------------------------------------------------


def _context(record: Record) -> Any:
    """The context in a record's headers."""
    carrier = {
        name: value.decode("utf-8", "replace")
        for name, value in record.headers
        if value is not None and len(value) <= HEADER_BYTES
    }
    return _api().propagate.extract(carrier)


def _of_consumer(consumer: Any, operation: str) -> dict[str, Any]:
    found = {**_SYSTEM, "messaging.operation.name": operation}
    if consumer is not None:
        found["messaging.client.id"] = consumer._config.client_id
        if consumer._config.group_id:
            found["messaging.consumer.group.name"] = consumer._config.group_id
    return found


def _links(records: Sequence[Record]) -> list[Any]:
    trace, found = _api().trace, dict[Any, Any]()
    for record in records:
        context = trace.get_current_span(_context(record)).get_span_context()
        if context.is_valid and len(found) < LINKS_MAX:
            found.setdefault((context.trace_id, context.span_id), trace.Link(context))
    return list(found.values())


def _polled(method: Callable[..., Any], consumer: Any, *words: Any, **named: Any) -> Any:
    begun_ns = time.time_ns()
    records: list[Record] = method(consumer, *words, **named)
    if not records:
        return records  # a poll without records is no event
    topics = sorted({one.topic for one in records})
    attributes = {
        **_of_consumer(consumer, "poll"), "messaging.operation.type": "receive",
        "messaging.batch.message_count": len(records),
    }  # fmt: skip
    if len(topics) == 1:
        attributes["messaging.destination.name"] = topics[0]
    kind = _api().trace.SpanKind.CLIENT
    name = f"poll {topics[0]}" if len(topics) == 1 else "poll"
    _tracer.start_span(
        name, None, kind, attributes, links=_links(records), start_time=begun_ns
    ).end()  # fmt: skip
    return records


@contextmanager
def process(record: Record, consumer: Any = None) -> Iterator[Any]:
    """The work on a record, as a span that is current within the block, and whose parent is the
    span that sent the record; an exception marks it as failed.  Without `instrument` it does
    nothing.

    `consumer`: its group and client id are noted.
    """
    if not _originals:
        yield None
        return
    attributes = {
        **_of_consumer(getattr(consumer, "_below", consumer), "process"),
        "messaging.operation.type": "process", "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }  # fmt: skip
    if isinstance(record.key, bytes):
        attributes["messaging.kafka.message.key"] = _shown(record.key)
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    with _tracer.start_as_current_span(
        f"process {record.topic}", _context(record), _api().trace.SpanKind.CONSUMER, attributes
    ) as span:
        try:
            yield span
        except BaseException as problem:
            span.set_attribute("error.type", type(problem).__qualname__)
            raise


# ---- metrics -----------------------------------------------------------------------------


def observe(*sources: Any, meter_provider: Any = None) -> None:
    """Show the metrics of brokers, stores, logs and clients as observable instruments, under the
    names of docs/metrics.md and of `MetricsCollector`; of a histogram its count and its sum.  A
    source is not kept alive.  Readings are made when OpenTelemetry's reader asks.

    `meter_provider`: None: the global one.  Raises: MissingPackage; ArgumentError: as
    MetricsCollector.
    """
    if not sources:
        raise ArgumentError("observe: found no source, wanted a Broker, Store, Log or client")
    meter = _api().metrics.get_meter("kafkalog", meter_provider=meter_provider)
    watched = _Observed(Sources(*sources))
    for name, (counts, text, unit) in watched.instruments().items():
        make = meter.create_observable_counter if counts else meter.create_observable_gauge
        make(name, callbacks=[partial(watched.values, name)], unit=unit, description=text)


class _Observed:
    """The sources, read once for all instruments that a reader asks in turn."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._lock = threading.Lock()  # guards what follows
        self._found: dict[str, list[tuple[dict[str, str], float]]] = {}
        self._given: set[str] = set()

    def instruments(self) -> dict[str, tuple[bool, str, str]]:
        """By name: True for a count; the meaning; the unit."""
        readings, clients = self._sources.read()
        found: dict[str, tuple[bool, str, str]] = {}
        for one in METRICS if readings.families() else ():
            if one.kind is Kind.HISTOGRAM:
                found[f"{one.name}_count"] = True, one.text, ""
                found[f"{one.name}_sum"] = True, one.text, one.unit
            else:
                found[one.name] = one.kind is Kind.COUNTER, one.text, one.unit
        for value in clients:
            found[value.name] = value.name.endswith(TOTAL), value.text, ""
        return found

    def values(self, name: str, _options: Any) -> list[Any]:
        """The values of an instrument; all are read again when one is asked for once more."""
        from opentelemetry.metrics import Observation

        with self._lock:
            if name in self._given or not self._given:
                self._given.clear()
                self._read()
            self._given.add(name)
            return [Observation(value, labels) for labels, value in self._found.get(name, ())]

    def _read(self) -> None:
        self._found = {}
        readings, clients = self._sources.read()
        for metric, samples in readings.families():
            for labels, value in samples:
                if isinstance(value, Histogram):
                    self._add(f"{metric.name}_count", labels, float(sum(value.counts)))
                    self._add(f"{metric.name}_sum", labels, value.total)
                else:
                    self._add(metric.name, labels, float(value))
        for name, client_id, number, _ in clients:
            self._add(name, {"client_id": client_id}, number)

    def _add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self._found.setdefault(name, []).append((dict(labels), value))
