"""The metrics of this process's brokers, logs and clients, for prometheus_client."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog import aio
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.metrics import group_of
from kafkalog.client.producer.producer import Producer
from kafkalog.errors import ArgumentError, Closed, ForkedHandle, ReadOnly, StorageOffline
from kafkalog.log.log import Log, handle_of
from kafkalog.metrics import exposition
from kafkalog.metrics.metric import Readings
from kafkalog.metrics.table import METRICS
from kafkalog.server.metrics.storage import read_partitions
from kafkalog.server.metrics.watched import Watched, readings_of
from kafkalog.store import Store, broker_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

__all__ = ["TOTAL", "ClientValue", "MetricsCollector", "Sources"]

TOTAL = "_total"
_GONE = (Closed, ForkedHandle, ReadOnly, StorageOffline)
"""A source with these has nothing to show any more, or not here."""


class ClientValue(NamedTuple):
    """A metric of a client."""

    name: str
    """As the JMX exporter gives it to Java's clients; that of a count ends with TOTAL."""
    client_id: str
    value: float
    text: str


class _Source(NamedTuple):
    """An object with metrics."""

    seen: weakref.ref[Any]
    client_id: str
    """The label of a client; empty: it is none."""


class Sources:
    """Brokers, logs and clients of this process, none of which is kept alive.  Safe to use from
    many threads."""

    def __init__(self, *sources: Any) -> None:
        """Raises: ArgumentError: another object, or a second broker or store."""
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards what follows
        self._sources: list[_Source] = []
        for one in sources:
            self.add(one)

    def add(self, source: Any) -> None:
        """Show one more.

        Raises: ArgumentError: another object, or a second broker or store; ForkedHandle.
        """
        if self._pid != os.getpid():
            raise ForkedHandle("the collector belongs to the parent process: make another one")
        kinds = (Watched, Store, Log, Producer, Consumer, aio.Producer, aio.Consumer)
        if not isinstance(source, kinds):
            raise ArgumentError(
                f"found {type(source).__name__}, wanted a Broker, Store, Log, Producer or Consumer"
            )
        with self._lock:
            known = [(one.seen(), one.client_id) for one in self._sources]
            if any(there is source for there, _ in known):
                return
            broker = isinstance(source, (Watched, Store))
            if broker and any(isinstance(there, (Watched, Store)) for there, _ in known):
                raise ArgumentError("found a second broker or store, wanted at most one")
            client_id = "" if isinstance(source, (Watched, Store, Log)) else _client_id(
                source, {name for there, name in known if there is not None}
            )  # fmt: skip
            self._sources.append(_Source(weakref.ref(source), client_id))

    def read(self) -> tuple[Readings, list[ClientValue]]:
        """The metrics now: of brokers and logs, and of clients; of a source that has ended none,
        and in a forked child none."""
        readings = Readings(METRICS)
        if self._pid != os.getpid():
            return readings, []  # the lock may be held by a thread that this process does not have
        with self._lock:
            self._sources = [one for one in self._sources if one.seen() is not None]
            sources = [(there, one.client_id) for one in self._sources
                       if (there := one.seen()) is not None]  # fmt: skip
        logs, clients = [], []
        for there, client_id in sources:
            if client_id:
                clients.append((there, client_id))
            elif isinstance(there, Log):
                logs.append(there)
            else:
                readings = _read(there) or readings
        _read_logs(readings, logs)
        return readings, list(_clients(clients))


class MetricsCollector(Sources):
    """Shows metrics through prometheus_client, next to the program's own:

        prometheus_client.REGISTRY.register(kafkalog.MetricsCollector(broker, producer))

    Sources are at most one `Broker` or `Store`, and any number of `Log`, `Producer` and `Consumer`,
    also asyncio's.  A source is not kept alive; it disappears with its end, a closed client once
    nobody has it any more.  Safe to use from many threads; a forked child needs one of its own.
    """

    def __init__(self, *sources: Any) -> None:
        """Show these; `add` adds others.

        Raises: MissingPackage (prometheus-client), ArgumentError: another object, or a second
        broker or store.
        """
        exposition.required("kafkalog.MetricsCollector")
        super().__init__(*sources)

    def describe(self) -> Sequence[Family]:
        """Nothing, so that registering reads no metrics."""
        return ()

    def collect(self) -> Iterator[Family]:
        """The metrics now; of a source that has ended none, and in a forked child none."""
        from prometheus_client import core

        readings, clients = self.read()
        yield from exposition.families(readings)
        made: dict[str, Any] = {}
        for name, client_id, value, text in clients:
            if name not in made:
                family = (core.CounterMetricFamily if name.endswith(TOTAL)
                          else core.GaugeMetricFamily)  # fmt: skip
                made[name] = family(name.removesuffix(TOTAL), text, labels=["client_id"])
            made[name].add_metric([client_id], value)
        yield from made.values()


def _client_id(source: Any, taken: set[str]) -> str:
    """A label that no other client of the collector has."""
    kind = "producer" if isinstance(source, (Producer, aio.Producer)) else "consumer"
    names = []
    if isinstance(source, Producer) and source.config.explicit("client.id"):
        kind = source.config.client_id
        names = [kind]
    names += [f"{kind}-{number}" for number in range(1, len(taken) + 2)]
    return next(name for name in names if name not in taken)


def _read(source: Watched | Store) -> Readings | None:
    try:
        if isinstance(source, Store):
            return readings_of(broker_of(source))
        return readings_of(source)
    except _GONE:
        return None


def _read_logs(readings: Readings, logs: Sequence[Log]) -> None:
    """A partition that is there already is the same log, or one with the same name."""
    shown = readings.flat()
    found = {}
    for log in logs:
        tp = handle_of(log).tp
        name = f'kafka_log_log_size{{topic="{tp.topic}",partition="{tp.partition}"}}'
        if name in shown or tp in found:
            continue
        try:
            found[tp] = handle_of(log).state()
        except _GONE:
            continue
    read_partitions(readings, found, sorted(found))


def _now(client: Any) -> dict[str, float]:
    """A client's metrics; asyncio's return them without waiting for the loop."""
    found = client.metrics()
    if not isinstance(found, Coroutine):
        mine: dict[str, float] = found
        return mine
    try:
        found.send(None)
    except StopIteration as end:
        value: dict[str, float] = end.value
        return value
    found.close()
    return {}


def _clients(clients: Sequence[tuple[Any, str]]) -> Iterator[ClientValue]:
    for client, client_id in clients:
        try:
            values = _now(client)
        except _GONE:
            continue
        kind = "producer" if isinstance(client, (Producer, aio.Producer)) else "consumer"
        for name, value in values.items():
            full = f"kafka_{kind}_{group_of(kind, name)}_{name}".replace("-", "_")
            text = f"The client's {name}: see docs/clients.md of kafkalog."
            yield ClientValue(full, client_id, value, text)
