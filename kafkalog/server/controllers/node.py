"""A controller of a KRaft quorum as its request handlers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.clock import Clock
from kafkalog.config.server import ServerConfig
from kafkalog.metadata import configs

if TYPE_CHECKING:
    from kafkalog.directory.manager import Manager
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.metadata.requests import Result, SettingsAsked
    from kafkalog.replication.membership import QuorumReplica
    from kafkalog.server.admission import Admission
    from kafkalog.server.authentication import Authentication
    from kafkalog.server.controller_apis.interface import ControllerApis
    from kafkalog.server.handlers.api_versions import Rows
    from kafkalog.server.network.listeners import Listener
    from kafkalog.server.quotas import ClientQuotas
    from kafkalog.server.request import Request

__all__ = ["ControllerNode", "ReplicaMetadata"]


class ReplicaMetadata:
    """The committed metadata of a replica of the metadata log."""

    def __init__(self, replica: QuorumReplica, config: ServerConfig) -> None:
        """`config`: this node's settings."""
        self._replica, self._config = replica, config

    @property
    def image(self) -> MetadataImage:
        """The metadata that the quorum has committed, as far as this node has them."""
        return self._replica.image

    @property
    def controller(self) -> int:
        """The active controller; -1: none is known."""
        return self._replica.seen()[0]

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after each change, in order."""
        self._replica.listen(listener)

    def describe_configs(self, asked: SettingsAsked) -> list[Result]:
        """DescribeConfigs: the response's `results`."""
        return configs.describe_configs(self.image, asked, self._config)


class ControllerNode(NamedTuple):
    """One controller's parts; all are safe to use from many threads."""

    node_id: int
    config: ServerConfig
    """The settings of the start, with defaults for what was not given."""
    given: Mapping[str, object]
    """The settings as given."""
    manager: Manager
    metadata: ReplicaMetadata
    replica: QuorumReplica
    admission: Admission
    quotas: ClientQuotas
    authentication: Authentication
    controller_apis: ControllerApis
    """Has requests answered by the active controller, if that is this one."""
    listeners: tuple[Listener, ...]
    """The controllers' listeners, by number."""
    announced: Rows
    """The APIs and versions that they serve."""
    serve: Callable[[Request], None]
    """Has a request of a known caller answered."""

    @property
    def clock(self) -> Clock:
        """The clock for everything."""
        return self.manager.clock

    @property
    def image(self) -> MetadataImage:
        """The metadata as they are now."""
        return self.replica.image

    @property
    def clustered(self) -> bool:
        """True: brokers are other nodes."""
        return True

    @property
    def under_controllers(self) -> bool:
        """False: it is one, and checks the rights of callers itself."""
        return False

    @property
    def on_zookeeper(self) -> bool:
        """False: its metadata are a log."""
        return False
