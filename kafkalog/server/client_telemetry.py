"""Receives the metrics that clients send (KIP-714)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

from kafkalog.batch.codecs import GZIP, LZ4, SNAPPY, ZSTD, decompress
from kafkalog.errors import CorruptMessage, InvalidRecord, InvalidSetting, MessageTooLarge
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import CLIENT_METRICS
from kafkalog.server.client_software import TEXT_CHARACTERS, ClientSoftware
from kafkalog.telemetry.instances import RESERVED, Instance, Instances, Limits, Push
from kafkalog.telemetry.otlp import Decoded, decode
from kafkalog.telemetry.pushed import PushedMetrics, pushed_of
from kafkalog.telemetry.subscriptions import Client, Matched, Subscription
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.config.server import ServerConfig
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.metadata.source import Metadata
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.request import Request

__all__ = ["ClientTelemetry", "telemetry_of"]

_logger = limited(__name__)

CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""The codecs that clients may use, the best first; without one is accepted, too."""
T = TypeVar("T")


class ClientTelemetry:
    """The clients of one broker and their metrics.  Safe to use from many threads."""

    def __init__(self, config: ServerConfig, clock: Clock, reactor: Reactor) -> None:
        self.enabled = config.kafkalog_client_metrics_enable
        """False: clients are not to know that there is a receiver."""
        self._clock = clock
        self._max_bytes = config.telemetry_max_bytes
        self._points_max = config.kafkalog_client_metrics_max_series
        limits = Limits(
            self._max_bytes, self._points_max, config.kafkalog_client_metrics_max_bytes
        )  # fmt: skip
        self.software = ClientSoftware(reactor.connected)
        """The software of connections, for which subscriptions may ask."""
        self._matching = threading.Lock()  # one client at a time is compared with subscriptions
        self._lock = threading.Lock()  # guards what follows, and is never held for long
        self._instances = Instances(limits, reactor.connected)
        self._known: dict[str, tuple[Mapping[str, str], Subscription | None]] = {}
        """Subscriptions by name, with their settings; None: they are not understood."""

    def follow(self, metadata: Metadata) -> None:
        """Obey the subscriptions of the metadata, now and whenever they change."""

        def changed(change: Change) -> None:
            if any(kind == CLIENT_METRICS for kind, _ in change.resources):
                self._obey(change.new)

        metadata.listen(changed)
        self._obey(metadata.image)

    def _obey(self, image: MetadataImage) -> None:
        """Only a subscription with other settings than before is read, and its patterns are."""
        found: dict[str, tuple[Mapping[str, str], Subscription | None]] = {}
        for (kind, name), own in image.configs.items():
            if kind == CLIENT_METRICS:
                before = self._known.get(name)
                same = before is not None and before[0] == own
                found[name] = before if before is not None and same else (own, _read(name, own))
        with self._lock:
            self._known = found
            self._instances.subscribe(one for _, one in found.values() if one is not None)

    def _now_ms(self) -> float:
        return self._clock.monotonic_s() * 1000

    def _client(self, request: Request, instance_id: UUID) -> Client:
        peer = request.peer
        name, version = self.software.of(request.connection)
        address = peer.host.removeprefix("/")
        client_id = (peer.client_id or "")[:TEXT_CHARACTERS]
        return Client(instance_id, client_id, name, version, address, peer.port)

    def _with(self, request: Request, instance_id: UUID, act: Callable[[Instance], T]) -> T:
        """Act on the state of a request's client, under the lock; it is compared with the
        subscriptions without it."""
        client = self._client(request, instance_id)
        matched: Matched | None = None
        while True:
            with self._lock:
                one = self._instances.find(self._now_ms(), client, request.connection, matched)
                if one is not None:
                    return act(one)
                subscriptions = self._instances.subscriptions
            with self._matching:
                matched = subscriptions.matched(client)

    def ask(self, request: Request) -> dict[str, Any]:
        """The response to GetTelemetrySubscriptions."""
        asked_for = instance_id = request.body.client_instance_id
        while instance_id in RESERVED or (instance_id != asked_for and self._knows(instance_id)):
            instance_id = uuid4()

        def act(one: Instance) -> dict[str, Any]:
            error = self._instances.ask(self._now_ms(), one)
            if error is not ErrorCode.NONE:
                return {"error_code": error}
            return {
                "client_instance_id": instance_id,
                "subscription_id": one.wanted.subscription_id,
                "accepted_compression_types": list(CODECS),
                "push_interval_ms": one.wanted.interval_ms,
                "telemetry_max_bytes": self._max_bytes,
                "delta_temporality": True,
                "requested_metrics": list(one.wanted.metrics),
            }

        return self._with(request, instance_id, act)

    def _knows(self, instance_id: UUID) -> bool:
        with self._lock:
            return instance_id in self._instances

    def push(self, request: Request) -> dict[str, Any]:
        """The response to PushTelemetry."""
        body = request.body
        if body.client_instance_id in RESERVED:
            return {"error_code": ErrorCode.INVALID_REQUEST}
        size = len(body.metrics)
        pushed = Push(body.subscription_id, body.terminating, body.compression_type, size)

        def act(one: Instance) -> tuple[Instance, ErrorCode]:
            return one, self._instances.push(self._now_ms(), one, pushed)

        one, error = self._with(request, body.client_instance_id, act)
        if error is ErrorCode.NONE and size:
            found = self._points(request)
            with self._lock:
                if isinstance(found, Decoded):
                    self._instances.keep(self._now_ms(), one, *found)
                else:
                    error = found
                    self._instances.fail(one, error)
        return {"error_code": error}

    def _points(self, request: Request) -> Decoded | ErrorCode:
        """The metrics of a push, or why they cannot be read."""
        body = request.body
        try:
            data = decompress(body.compression_type, body.metrics, self._max_bytes)
            return decode(bytes(data), self._points_max)
        except (MessageTooLarge, CorruptMessage, InvalidRecord) as problem:
            large = isinstance(problem, MessageTooLarge)
            error = ErrorCode.TELEMETRY_TOO_LARGE if large else ErrorCode.INVALID_RECORD
            _logger.info("%r is refused with %s: %s", request, error.name, problem)
            return error

    def _alive(self) -> list[Instance]:
        """Those that are not forgotten; for what never changes of them, and roughly for the
        rest."""
        with self._lock:
            every = self._instances.all()
        now_ms = self._now_ms()
        return [one for one in every if one.expiry_ms > now_ms]

    def senders(self) -> set[UUID]:
        """The clients of which metrics are kept."""
        return {one.client.instance_id for one in self._alive() if one.series}

    def clients(self, only: Iterable[UUID] | None = None) -> list[PushedMetrics]:
        """The clients that ask for subscriptions or send metrics, and what they sent, by id;
        `only`: of these.  Pushes wait for no more than the copy of one client."""
        if only is None:
            only = [one.client.instance_id for one in self._alive()]
        found = []
        for number in sorted(only):
            with self._lock:
                kept = self._instances.kept(self._now_ms(), number)
            if kept is not None:
                found.append(pushed_of(kept))
        return found

    def counts(self) -> dict[str, int]:
        """As Instances.counts, and instance-count: the clients that are remembered."""
        count = len(self._alive())
        with self._lock:
            return {**self._instances.counts, "instance-count": count}


def _read(name: str, own: Mapping[str, str]) -> Subscription | None:
    """A subscription; None: it is not understood, as some in a directory of Apache Kafka."""
    try:
        return Subscription(own)
    except InvalidSetting as problem:
        _logger.warning("the subscription %s to clients' metrics is ignored: %s", name, problem)
        return None


def telemetry_of(config: ServerConfig, metadata: Metadata, reactor: Reactor,
                 clock: Clock) -> ClientTelemetry:  # fmt: skip
    """It obeys the metadata from now on.  In a cluster on ZooKeeper there are no subscriptions, as
    in Kafka, and no receiver."""
    made = ClientTelemetry(config, clock, reactor)
    made.enabled &= not metadata.on_zookeeper
    made.follow(metadata)
    return made
