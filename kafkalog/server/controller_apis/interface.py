"""Requests of handlers to the controller, of a single node or of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.metadata.requests import NewTopics
    from kafkalog.metadata.source import Quorum
    from kafkalog.server.request import Request
    from kafkalog.wire.error_codes import ErrorCode

__all__ = ["ControllerApis"]


class ControllerApis(Protocol):
    """The requests about the whole cluster.  Safe to use from many threads."""

    def handle(self, request: Request) -> Mapping[str, Any] | None:
        """Carry out a client's request; returns the response's fields, or None if the request was
        answered or will be.

        Raises: what handlers raise.
        """

    def handle_command(self, request: Request) -> Mapping[str, Any]:
        """Carry out the command of the cluster's controller; returns the response's fields.

        Raises: UnsupportedVersion: this is a single node.
        """

    def handle_as_controller(self, request: Request) -> None:
        """Answer a broker's request to the controller: NOT_CONTROLLER if this node is not it.

        Raises: UnsupportedVersion: this is a single node.
        """

    def change(
        self, request: Request, plan_of: Callable[[MetadataImage], Any]
    ) -> Mapping[str, Any] | None:
        """Carry out a request that `plan_of` plans, with one result: its answer, or None if it is
        answered later.  In a KRaft cluster the active controller plans it.

        Raises: errors of writing.
        """

    def create_topics(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        """Create topics that clients use; returns the outcome by topic: REQUEST_TIMED_OUT while
        one is being created, INVALID_REPLICATION_FACTOR for a coordinator's topic that needs
        more nodes than live now.
        """

    def quorum(self) -> Quorum:
        """The state of the metadata log.

        Raises: UnsupportedVersion: the cluster has none.
        """
