"""All metrics of one node, and its HTTP endpoint."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafkalog.client.link.software import software
from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited
from kafkalog.metrics import exposition
from kafkalog.metrics.endpoint import OK, TEXT, UNAVAILABLE, Endpoint, Page
from kafkalog.metrics.metric import Readings
from kafkalog.metrics.table import METRICS
from kafkalog.server.metrics import clients, cluster, coordinators, network, storage
from kafkalog.server.metrics.health import missing_of_broker, missing_of_controller
from kafkalog.server.metrics.labels import Labels
from kafkalog.server.metrics.shares import read_shares
from kafkalog.server.network.listeners import is_loopback
from kafkalog.shares.figures import Place
from kafkalog.telemetry.pushed import PushedMetrics
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.config.server import ServerConfig
    from kafkalog.console.server import ConsoleServer
    from kafkalog.server.controller_server import ControllerServer
    from kafkalog.server.node import Node
    from kafkalog.server.replica_manager import ReplicaManager

__all__ = ["BrokerParts", "Watch"]

_logger = limited(__name__)

SETTING = "kafkalog.http.listen"
STARTS = "the node starts"
AT_ONCE = ("/health/live", "/health/ready")


class BrokerParts(NamedTuple):
    """A running broker."""

    node: Node
    serving: network.Serving
    replicas: ReplicaManager | None
    """The replicas of a node of a cluster."""
    is_controller: Callable[[], bool] | None
    """True if it is the active controller; None: it never is."""


class Watch:
    """Reads one node's metrics from its start to its end, and serves them if a setting says so.
    Safe to use from many threads."""

    def __init__(self, config: ServerConfig, name: str) -> None:
        """Serve /metrics and /health where the settings want it; the node starts only now.
        `name`: the threads' names begin so.

        Raises: InvalidSetting, MissingPackage, IoFailed (the address cannot be bound).
        """
        self._config = config
        self._topics = Labels[str](config.kafkalog_metrics_max_topics)
        self._partitions = Labels[TopicPartition](config.kafkalog_metrics_max_partitions)
        self._groups = Labels[str](config.kafkalog_metrics_max_groups)
        self._clients = Labels[UUID](config.kafkalog_metrics_max_clients)
        self._share_partitions = Labels[Place](config.kafkalog_metrics_max_partitions)
        self._reading = threading.Lock()  # one reader at a time, and nobody ends while it reads
        self._broker: BrokerParts | None = None
        self._controllers: ControllerServer | None = None
        self._elections: cluster.Elections | None = None
        self._counts: cluster.ImageCounts | None = None
        self._started_s = 0.0
        self._endpoint: Endpoint | ConsoleServer | None = None
        if (place := config.http_place) is not None:
            exposition.required(SETTING)
            if not is_loopback(place[0]):
                _logger.warning("%s: %s: everyone who can connect reads the metrics, also "
                                "names of topics and groups", SETTING, place[0])  # fmt: skip
            pages = {
                "/metrics": self._metrics, "/health/live": self._live,
                "/health/ready": self._ready,
            }  # fmt: skip
            if config.kafkalog_console_enable and config.serves_clients:
                from kafkalog.server.metrics.console import serve_console

                self._endpoint = serve_console(config, name, pages, AT_ONCE, lambda: self._node)
            else:
                self._endpoint = Endpoint(*place, name, pages, at_once=AT_ONCE)

    @property
    def address(self) -> str:
        """Where it serves: host:port; empty: nowhere."""
        return "" if self._endpoint is None else self._endpoint.address

    @property
    def url(self) -> str:
        """Where browsers find it, with the scheme; empty: nowhere."""
        return "" if self._endpoint is None else self._endpoint.url

    @property
    def _node(self) -> Node | None:
        """The broker's, while it serves."""
        broker = self._broker
        return None if broker is None else broker.node

    def follow_controllers(self, controllers: ControllerServer) -> None:
        """Read a controller, too, from now on."""
        elections = cluster.Elections(controllers.node.node_id)
        controllers.replica.listen(elections.changed)
        with self._reading:
            self._controllers, self._elections = controllers, elections
            self._counts = cluster.ImageCounts()
            self._started_s = controllers.node.clock.now_ms() / 1000

    def follow_broker(self, parts: BrokerParts) -> None:
        """Read a broker from now on."""
        node = parts.node
        elections = cluster.Elections(node.node_id)
        node.metadata.listen(elections.changed)
        with self._reading:
            self._broker, self._elections = parts, elections
            self._counts = cluster.ImageCounts(
                lambda topic: node.partitions.config(topic).min_insync_replicas
            )
            self._started_s = node.clock.now_ms() / 1000

    def close(self) -> None:
        """Stop serving; a page in progress is finished first.  Idempotent."""
        if self._endpoint is not None:
            self._endpoint.close()
        with self._reading:
            self._broker = self._controllers = None

    # ---- reading -------------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Sentences: the reasons why the node does not serve its clients; none: it does."""
        broker, controllers = self._broker, self._controllers  # without the lock: see _ready
        if broker is None and controllers is None:
            return [STARTS]
        found: list[str] = []
        if controllers is not None:
            found += missing_of_controller(controllers.node)
        if broker is not None:
            found += missing_of_broker(broker.node)
        elif self._config.serves_clients:
            found.append(STARTS)
        return list(dict.fromkeys(found))

    def readings(self) -> Readings:
        """All metrics now; nothing but the node's readiness before it serves.

        Raises: Closed, ForkedHandle.
        """
        with self._reading:
            found = Readings(METRICS)
            found.add("kafkalog_ready", int(not self.missing()))
            if self._broker is not None or self._controllers is not None:
                self._read_node(found)
                self._read_servers(found)
            return found

    def client_metrics(self) -> list[PushedMetrics]:
        """The metrics that clients have sent to the broker; none to a controller alone."""
        with self._reading:
            return [] if self._broker is None else self._broker.node.telemetry.clients()

    def _read_node(self, found: Readings) -> None:
        node = self._broker.node if self._broker is not None else None
        one = node or (self._controllers.node if self._controllers is not None else None)
        assert one is not None
        roles = ["broker"] * (node is not None) + ["controller"] * (self._controllers is not None)
        version = software()["client_software_version"]
        found.add("kafkalog_node_info", 1, version=version, node=str(one.node_id),
                  cluster=one.image.cluster_id, roles=",".join(roles))  # fmt: skip
        found.add("kafkalog_start_time_seconds", self._started_s)
        assert self._elections is not None and self._counts is not None
        self._elections.read(found)
        self._counts.read(found, one.image, one.node_id)

    def _read_servers(self, found: Readings) -> None:
        active: list[bool] = []
        if (broker := self._broker) is not None:
            network.read_network(found, broker.serving)
            self._read_broker(found, broker)
            active += [] if broker.is_controller is None else [broker.is_controller()]
        if (controllers := self._controllers) is not None:
            other = Readings(METRICS)
            network.read_network(other, controllers.serving)
            found.merge(other)
            cluster.read_quorum(found, controllers.replica)
            active.append(controllers.replica.is_active)
        if active:
            name = "kafka_controller_kafkacontroller_activecontrollercount"
            found.add(name, int(any(active)))
        network.add_shares(found)

    def _read_broker(self, found: Readings, broker: BrokerParts) -> None:
        node = broker.node
        logs = storage.log_states(node.manager)
        network.read_topics(found, node.reactor, self._topics)
        storage.read_storage(found, node.manager, logs, self._partitions)
        offline = node.partitions.unopened() + sum(one.offline for one in logs.values())
        found.add("kafka_server_replicamanager_offlinereplicacount", offline)
        replicas = broker.replicas
        bytes_in = 0 if replicas is None else replicas.bytes_in
        found.add("kafka_server_brokertopicmetrics_replicationbytesin_total", bytes_in)
        if replicas is not None:
            cluster.read_followers(found, node.reactor, replicas.led, logs)
        room = self._config.kafkalog_metrics_max_partitions
        coordinators.read_groups(found, node.coordinator, self._groups, room, logs)
        coordinators.read_transactions(found, node.transactions)
        clients.read_clients(found, node.telemetry, self._clients)
        read_shares(found, node.shares, node.letters, self._share_partitions)

    # ---- pages ---------------------------------------------------------------------------------

    def _metrics(self, accept: str) -> Page:
        try:
            readings = self.readings()
        except KafkalogError as problem:
            return Page(UNAVAILABLE, TEXT, f"{problem}\n".encode())
        content_type, body = exposition.page(readings, accept)
        return Page(OK, content_type, body)

    @staticmethod
    def _live(_accept: str) -> Page:
        return _state(OK, "live", ())

    def _ready(self, _accept: str) -> Page:
        """It waits for no reader of metrics: its caller is impatient."""
        missing = self.missing()
        status = UNAVAILABLE if missing else OK
        return _state(status, "not ready" if missing else "ready", missing)


def _state(status: int, state: str, missing: Iterable[str]) -> Page:
    body = json.dumps({"status": state, "missing": list(missing)}) + "\n"
    return Page(status, "application/json", body.encode())
