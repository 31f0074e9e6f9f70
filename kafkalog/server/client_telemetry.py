"""Receives the metrics that clients send (KIP-714)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from kafkalog.batch.codecs import GZIP, LZ4, SNAPPY, ZSTD, decompress
from kafkalog.errors import CorruptMessage, InvalidRecord, InvalidSetting, MessageTooLarge
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import CLIENT_METRICS
from kafkalog.telemetry.instances import RESERVED, Instance, Instances, Limits, Push
from kafkalog.telemetry.otlp import Decoded, decode
from kafkalog.telemetry.pushed import PushedMetrics, pushed_of
from kafkalog.telemetry.subscriptions import Client, Subscription
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

SOFTWARE_MAX = 16_384
"""Connections whose software is remembered; that of the oldest is `unknown` beyond it."""
TEXT_CHARACTERS = 250
"""Longer client ids and names of software are cut."""
UNKNOWN = "unknown"
"""Kafka's word for the software of a client that has not named it."""
CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""The codecs that clients may use, the best first; without one is accepted, too."""


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
        self._lock = threading.Lock()  # guards what follows
        self._instances = Instances(limits, lambda number: reactor.connected([number])[0][0])
        self._software: OrderedDict[int, tuple[str, str]] = OrderedDict()  # by connection
        self._told: set[tuple[str, str]] = set()

    def follow(self, metadata: Metadata) -> None:
        """Obey the subscriptions of the metadata, now and whenever they change."""

        def changed(change: Change) -> None:
            if any(kind == CLIENT_METRICS for kind, _ in change.resources):
                self._obey(change.new)

        metadata.listen(changed)
        self._obey(metadata.image)

    def _obey(self, image: MetadataImage) -> None:
        found = []
        told = set()
        for (kind, name), own in image.configs.items():
            if kind == CLIENT_METRICS:
                try:
                    found.append(Subscription(own))
                except InvalidSetting as problem:  # from a directory of Apache Kafka
                    told.add((name, str(problem)))
        with self._lock:
            self._instances.subscribe(found)
            fresh, self._told = told - self._told, told
        for name, why in sorted(fresh):
            _logger.warning("the subscription %s to clients' metrics is ignored: %s", name, why)

    def note_software(self, connection: int, name: str, version: str) -> None:
        """A client has named its software, which subscriptions may ask for."""
        if not self.enabled:
            return
        with self._lock:
            self._software[connection] = name[:TEXT_CHARACTERS], version[:TEXT_CHARACTERS]
            if len(self._software) > SOFTWARE_MAX:
                self._software.popitem(last=False)

    def _now_ms(self) -> float:
        return self._clock.monotonic_s() * 1000

    def _find(self, request: Request, instance_id: UUID) -> Instance:
        peer = request.peer
        name, version = self._software.get(request.connection, (UNKNOWN, UNKNOWN))
        address = peer.host.removeprefix("/")
        client_id = (peer.client_id or "")[:TEXT_CHARACTERS]
        client = Client(instance_id, client_id, name, version, address, peer.port)
        return self._instances.find(self._now_ms(), client, request.connection)

    def ask(self, request: Request) -> dict[str, Any]:
        """The response to GetTelemetrySubscriptions."""
        instance_id = request.body.client_instance_id
        with self._lock:
            while instance_id in RESERVED or (
                instance_id != request.body.client_instance_id and instance_id in self._instances
            ):
                instance_id = uuid4()
            one = self._find(request, instance_id)
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

    def push(self, request: Request) -> dict[str, Any]:
        """The response to PushTelemetry."""
        body = request.body
        if body.client_instance_id in RESERVED:
            return {"error_code": ErrorCode.INVALID_REQUEST}
        size = len(body.metrics)
        pushed = Push(body.subscription_id, body.terminating, body.compression_type, size)
        with self._lock:
            one = self._find(request, body.client_instance_id)
            error = self._instances.push(self._now_ms(), one, pushed)
        if error is ErrorCode.NONE and size:
            found = self._read(request)
            with self._lock:
                if isinstance(found, Decoded):
                    self._instances.keep(one, *found)
                else:
                    error = found
                    self._instances.fail(one, error)
        return {"error_code": error}

    def _read(self, request: Request) -> Decoded | ErrorCode:
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

    def clients(self) -> list[PushedMetrics]:
        """The clients that ask for subscriptions or send metrics, and what they sent, by id."""
        with self._lock:
            now_ms = self._now_ms()
            return [pushed_of(one, now_ms) for one in self._instances.all(now_ms)]

    def counts(self) -> dict[str, int]:
        """As Instances.counts, and instance-count: the clients that are remembered."""
        with self._lock:
            count = len(self._instances.all(self._now_ms()))
            return {**self._instances.counts, "instance-count": count}


def telemetry_of(config: ServerConfig, metadata: Metadata, reactor: Reactor,
                 clock: Clock) -> ClientTelemetry:  # fmt: skip
    """It obeys the metadata from now on.  In a cluster on ZooKeeper there are no subscriptions, as
    in Kafka, and no receiver."""
    made = ClientTelemetry(config, clock, reactor)
    made.enabled &= not metadata.on_zookeeper
    made.follow(metadata)
    return made
