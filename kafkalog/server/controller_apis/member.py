"""Requests about the cluster on one of its members, which forwards them to the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from kafkalog.controller.events import Caller
from kafkalog.errors import (
    BadZnode,
    PeerGone,
    Timeout,
    UnsupportedVersion,
    ZooKeeperAway,
    for_clients,
)
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import BROKER
from kafkalog.server.controller_apis.asking import ask
from kafkalog.server.controller_apis.protection import PROTECTION
from kafkalog.server.controller_apis.settings_requests import SETTINGS_REQUESTS
from kafkalog.server.controller_apis.topic_creation import TopicCreation
from kafkalog.server.failures import answer_failure, handler_failed
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import mapped

if TYPE_CHECKING:
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.metadata.requests import NewTopics
    from kafkalog.replication.membership import Controlling, ZooKeeperMembership
    from kafkalog.server.controller_apis.forwarder import ControllerForwarder, Send
    from kafkalog.server.request import Request

__all__ = ["ClusterMember"]

_logger = limited(__name__)

MUTATING = frozenset(
    api.key for api in (apis.CREATE_TOPICS, apis.CREATE_PARTITIONS, apis.DELETE_TOPICS)
)
"""Requests that controller_mutation_rate limits."""
NOT_HERE = "This is not the correct controller."


class ClusterMember:
    """ControllerApis of a member of a cluster, which may be its controller."""

    def __init__(
        self, member: ZooKeeperMembership, controller: Controlling, forwarder: ControllerForwarder
    ) -> None:
        """`controller`: this node's own, active or standby."""
        self._member, self._controller, self._forwarder = member, controller, forwarder
        self._topics = TopicCreation(member, forwarder)

    def handle(self, request: Request) -> None:
        """As ControllerApis.handle: the controller answers, here or on its node, or this node if
        only its own settings change, or what protects the cluster.

        In the forwarder's thread, as the controller may need this node before it answers.  A
        request that another node forwarded is not forwarded again.
        """
        settings, protecting = (
            SETTINGS_REQUESTS.get(request.api.key),
            PROTECTION.get(request.api.key),
        )
        if protecting is not None:
            self._answer_here(request, lambda: protecting(self._member.alter, request))
        elif settings is not None and self._is_own(request):
            changes, plan = settings.convert(request.body), settings.plan
            self._answer_here(
                request, lambda: {"responses": self._member.alter_configs(changes, plan)}
            )
        elif self._controller.is_active:
            self._ask_here(request)
        elif self._member.controller == self._member.node or not self._may_forward(request):
            answer_failure(request, ErrorCode.NOT_CONTROLLER, NOT_HERE)
        else:
            self._forward(request)

    def handle_command(self, request: Request) -> Mapping[str, Any]:
        """As ControllerApis.handle_command."""
        return self._member.obey(request.api, request.body)

    def handle_as_controller(self, request: Request) -> None:
        """As ControllerApis.handle_as_controller."""
        self._ask_here(request)

    def create_topics(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        """As ControllerApis.create_topics."""
        return self._topics.create(wanted)

    def change(self, request: Request, plan_of: Callable[[MetadataImage], Any]) -> None:
        """As ControllerApis.change: this node writes it."""
        self._answer_here(request, lambda: self._member.alter(plan_of)[0])

    def quorum(self) -> NoReturn:
        """Raises: UnsupportedVersion."""
        raise UnsupportedVersion(f"node {self._member.node}'s cluster has no metadata log")

    def _is_own(self, request: Request) -> bool:
        """True if the request changes settings of this very broker; clients send it directly."""
        own = (BROKER, str(self._member.node))
        return any((one.resource_type, one.resource_name) == own for one in request.body.resources)

    def _may_forward(self, request: Request) -> bool:
        """False if another node forwarded it, or the client has a quota that the controller counts,
        which must know who asks."""
        forwarded = request.peer.client_id in {str(one) for one in self._member.image.brokers}
        meter = request.meter if request.api.key in MUTATING else None
        return not forwarded and (meter is None or not meter.has_mutation_rate)

    def _answer_here(self, request: Request, work: Callable[[], Mapping[str, Any]]) -> None:
        """Let this node itself carry out a request, by writing into ZooKeeper."""

        def run(_: Send) -> None:
            try:
                request.answer(work())
            except ZooKeeperAway as problem:  # its outcome is unknown
                answer_failure(request, ErrorCode.REQUEST_TIMED_OUT, for_clients(problem))
            except BadZnode as problem:
                _logger.error("%r: %s", request, problem)
                answer_failure(request, ErrorCode.UNKNOWN_SERVER_ERROR, str(problem))
            except Exception as problem:
                handler_failed(request, problem)

        self._forwarder.forward(run, request.size)

    def _forward(self, request: Request) -> None:
        def forward(send: Send) -> None:
            try:
                request.answer(mapped(send(request.api, request.body, request.version)))
            except (PeerGone, Timeout) as problem:  # its outcome is unknown
                answer_failure(request, ErrorCode.REQUEST_TIMED_OUT, for_clients(problem))
            except Exception as problem:
                handler_failed(request, problem)

        self._forwarder.forward(forward, request.size)

    def _ask_here(self, request: Request) -> None:
        """Let this node's controller answer."""
        meter = request.meter
        ask(self._controller.ask, request, _refuse, context=meter and Caller(charge=meter.mutate))


def _refuse(request: Request) -> None:
    answer_failure(request, ErrorCode.NOT_CONTROLLER, NOT_HERE)
