"""A broker as the request handlers see it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.clock import Clock
from kafkalog.config.server import ServerConfig
from kafkalog.errors import NotController, UnsupportedVersion
from kafkalog.server.network.listeners import INSIDE, INSIDE_PLACE, Advertised

if TYPE_CHECKING:
    from kafkalog.coordinator.groups.core import GroupCore
    from kafkalog.coordinator.thread import Coordinator
    from kafkalog.coordinator.transactions.core import TransactionCore
    from kafkalog.directory.manager import Manager
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.metadata.source import Changeable, Metadata
    from kafkalog.replication.membership import Controlling, Membership
    from kafkalog.server.admission import Admission
    from kafkalog.server.controller_calls import Errands
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.partitions import Partitions
    from kafkalog.server.threads.acknowledger import Acknowledger
    from kafkalog.server.threads.bulk import Bulk
    from kafkalog.server.threads.deletions import Deletions
    from kafkalog.server.transactions.markers import Markers
    from kafkalog.server.transactions.producer_ids import ProducerIds
    from kafkalog.server.transactions.remote import Afar
    from kafkalog.server.transactions.write_guards import Guards

__all__ = ["Node"]


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
    coordinator: "Coordinator[GroupCore]"
    acknowledger: "Acknowledger"
    advertised: tuple[Advertised, ...]
    """The addresses for clients, by listener number."""
    producer_ids: "ProducerIds"
    bulk: "Bulk"
    transactions: "Coordinator[TransactionCore]"
    guards: "Guards"
    """Writes that the transaction coordinator allowed."""
    markers: "Markers"
    begun: "Bulk"
    """Continues writes once the coordinator has answered."""
    deletions: "Deletions"
    """Answers DeleteRecords once the replicas have dropped the records."""
    kraft: "Changeable | None"
    """Metadata of a single node, which it may change."""
    member: "Membership | None"
    """Membership of a cluster node."""
    controller: "Controlling | None"
    """Controller of a cluster node, active or standby."""
    afar: "Afar | None"
    """Requests of a cluster node to the others."""
    errands: "Errands | None"
    """Requests of a cluster node to the controller for clients."""

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
    def node_id(self) -> int:
        """This broker's number."""
        return self.metadata.image.node_id

    @property
    def rack(self) -> str | None:
        """The rack that is reported to clients."""
        return self.config.broker_rack or None

    def alone(self) -> "Changeable":
        """The metadata, to change it here.

        Raises: NotController: this node is one of several.
        """
        if self.kraft is None:
            raise NotController(
                f"node {self.node_id} is one of several and cannot change the metadata itself"
            )
        return self.kraft

    def joined(self) -> "Membership":
        """Its cluster membership.

        Raises: UnsupportedVersion: it has none.
        """
        if self.member is None:
            raise UnsupportedVersion(f"node {self.node_id} is not part of a cluster")
        return self.member

    def told(self, listener: int) -> Advertised:
        """This broker's address for clients of a listener."""
        return INSIDE_PLACE if listener == INSIDE else self.advertised[listener]
