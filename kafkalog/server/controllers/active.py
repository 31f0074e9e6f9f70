"""Requests to the active controller at a controller's own listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from kafkalog.controller.events import Caller
from kafkalog.errors import UnsupportedVersion
from kafkalog.metadata.source import free
from kafkalog.server.controller_apis.asking import ask
from kafkalog.server.controllers.envelope import refuse_as_not_controller

if TYPE_CHECKING:
    from kafkalog.metadata.requests import NewTopics
    from kafkalog.replication.membership import QuorumReplica
    from kafkalog.server.admission import Admission
    from kafkalog.server.network.listeners import Listener
    from kafkalog.server.request import Request
    from kafkalog.wire.error_codes import ErrorCode

__all__ = ["ActiveController"]


class ActiveController:
    """ControllerApis of a controller: its own answers, or NOT_CONTROLLER."""

    def __init__(
        self, replica: QuorumReplica, listeners: Sequence[Listener], admission: Admission
    ) -> None:
        """`listeners`: by number; `admission`: knows the callers' principals."""
        self._replica, self._listeners, self._admission = replica, listeners, admission

    def handle(self, request: Request) -> None:
        """As ControllerApis.handle: nothing is forwarded."""
        peer, meter = request.peer, request.meter
        caller = Caller(
            self._admission.principal(peer.principal), free if meter is None else meter.mutate
        )
        ask(
            self._replica.ask, request, refuse_as_not_controller,
            listener=self._listeners[peer.listener].name, context=caller,
        )  # fmt: skip

    def handle_as_controller(self, request: Request) -> None:
        """As ControllerApis.handle_as_controller."""
        self.handle(request)

    def handle_command(self, request: Request) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion("no controller of KRaft commands another one")

    def create_topics(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion("a controller creates no topics on its own account")

    def change(self, request: Request, plan_of: Callable[..., Any]) -> None:
        """As ControllerApis.change: the active controller plans it."""
        self.handle(request)

    def quorum(self) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion("the leader of the quorum knows its state")
