"""A broker as the request handlers see it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkalog.clock import Clock
from kafkalog.config.server import ServerConfig
from kafkalog.server.network.listeners import INSIDE, INSIDE_PLACE, Advertised

if TYPE_CHECKING:
    from kafkalog.coordinator.groups.core import GroupCoordinatorState
    from kafkalog.coordinator.share_state.core import ShareStateCoordinator
    from kafkalog.coordinator.thread import Coordinator
    from kafkalog.coordinator.transactions.core import TransactionCoordinatorState
    from kafkalog.directory.manager import Manager
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.metadata.source import Described, Metadata
    from kafkalog.server.admission import Admission
    from kafkalog.server.authentication import Authentication
    from kafkalog.server.client_telemetry import ClientTelemetry
    from kafkalog.server.controller_apis.interface import ControllerApis
    from kafkalog.server.dead_letters import DeadLetters
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.partitions import Partitions
    from kafkalog.server.quotas import ClientQuotas
    from kafkalog.server.share_persister import SharePersister
    from kafkalog.server.threads.acknowledger import Acknowledger
    from kafkalog.server.threads.deletions import Deletions
    from kafkalog.server.threads.serial_executor import SerialExecutor
    from kafkalog.server.transactions.inter_broker_client import InterBrokerClient
    from kafkalog.server.transactions.markers import Markers
    from kafkalog.server.transactions.producer_ids import ProducerIds
    from kafkalog.server.transactions.write_guards import Guards
    from kafkalog.shares.leader import Shares

__all__ = ["Node", "Serving"]


class Serving(Protocol):
    """The parts that a broker's and a controller's listeners have in common."""

    @property
    def config(self) -> ServerConfig:
        """The settings of the start."""

    @property
    def manager(self) -> "Manager":
        """The data directory."""

    @property
    def metadata(self) -> "Described":
        """The source of the metadata."""

    @property
    def admission(self) -> "Admission":
        """The permissions of each principal."""

    @property
    def quotas(self) -> "ClientQuotas":
        """How much each client may use."""

    @property
    def authentication(self) -> "Authentication":
        """Authenticates connections."""

    @property
    def controller_apis(self) -> "ControllerApis":
        """Carries out requests about the whole cluster."""

    @property
    def image(self) -> "MetadataImage":
        """The metadata as they are now."""

    @property
    def node_id(self) -> int:
        """This node's number."""

    @property
    def on_zookeeper(self) -> bool:
        """True if it is a node of a cluster on ZooKeeper."""

    @property
    def under_controllers(self) -> bool:
        """True if it is a node of a KRaft cluster: its active controller carries out changes."""


class Node(NamedTuple):
    """One broker's parts; all are safe to use from many threads."""

    config: ServerConfig
    """The settings of the start, with defaults for what was not given."""
    given: Mapping[str, object]
    """The settings as given: a file's, or the caller's."""
    manager: "Manager"
    metadata: "Metadata"
    partitions: "Partitions"
    reactor: "Reactor"
    admission: "Admission"
    """The permissions of each principal."""
    quotas: "ClientQuotas"
    """How much each client may use."""
    authentication: "Authentication"
    """Authenticates connections."""
    coordinator: "Coordinator[GroupCoordinatorState]"
    acknowledger: "Acknowledger"
    advertised: tuple[Advertised, ...]
    """The addresses for clients, by listener number."""
    producer_ids: "ProducerIds"
    bulk: "SerialExecutor"
    """Big requests, and batches that decompress to many bytes: only one of them takes its memory at
    a time, and the I/O threads stay free for small requests."""
    transactions: "Coordinator[TransactionCoordinatorState]"
    share_states: "Coordinator[ShareStateCoordinator]"
    """The states of share partitions that are coordinated here."""
    persister: "SharePersister"
    """Keeps the states of share partitions, here or on other brokers."""
    guards: "Guards"
    """Writes that the transaction coordinator allowed."""
    markers: "Markers"
    continuations: "SerialExecutor"
    """Continues writes once the coordinator has answered."""
    deletions: "Deletions"
    """Answers DeleteRecords once the replicas have dropped the records."""
    controller_apis: "ControllerApis"
    """Carries out requests about the whole cluster."""
    peers: "InterBrokerClient | None"
    """Requests to other brokers; None: a single node."""
    shares: "Shares"
    """The share groups' records of the partitions that are led here."""
    telemetry: "ClientTelemetry"
    """The metrics that clients send."""
    letters: "DeadLetters"
    """Writes the records that share groups give up to their dead-letter topics."""

    @property
    def clock(self) -> Clock:
        """The clock for everything."""
        return self.manager.clock

    @property
    def image(self) -> "MetadataImage":
        """The metadata as they are now."""
        return self.metadata.image

    @property
    def clustered(self) -> bool:
        """True if this is one of several nodes."""
        return self.metadata.clustered

    @property
    def on_zookeeper(self) -> bool:
        """True if it is a node of a cluster on ZooKeeper."""
        return self.metadata.on_zookeeper

    @property
    def under_controllers(self) -> bool:
        """True if it is a broker of a KRaft cluster: its controllers carry out changes."""
        return self.clustered and not self.on_zookeeper

    @property
    def node_id(self) -> int:
        """This broker's number."""
        return self.metadata.image.node_id

    @property
    def rack(self) -> str | None:
        """The rack that is reported to clients."""
        return self.config.broker_rack or None

    def address_for(self, listener: int) -> Advertised:
        """This broker's address for clients of a listener."""
        return INSIDE_PLACE if listener == INSIDE else self.advertised[listener]
