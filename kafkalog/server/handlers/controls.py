"""Requests from a cluster's controller, and requests to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.errors import Closed, PeerGone, Timeout, for_clients
from kafkalog.metadata import configs, translation
from kafkalog.metadata.image import BROKER
from kafkalog.server.handlers.failures import answer_failure, handler_failed
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.requests import SettingChanges
    from kafkalog.replication.membership import Controlling
    from kafkalog.server.controller_calls import Ask

__all__ = ["as_controller", "obey", "to_controller"]

FAILED = "The controller failed to handle the request; its log says why."


def obey(node: Node, request: Request) -> Mapping[str, Any]:
    """Carry out the controller's command; it is complete when it is answered."""
    return node.joined().obey(request.api, request.body)


def as_controller(node: Node, request: Request) -> None:
    """Answer a broker's request to the cluster's controller, if this node is the controller."""
    node.joined()
    if node.controller is None:
        answer_failure(request, ErrorCode.NOT_CONTROLLER)
        return
    _ask(node.controller, request)


def to_controller(node: Node, request: Request) -> None:
    """Let the controller answer a client's request about the whole cluster: here, or on its node.

    In its own thread, as the controller may need this node before it answers.  A request that
    another node forwarded is not forwarded again.
    """
    member, errands = node.joined(), node.errands
    assert errands is not None
    settings = _SETTINGS.get(request.api.key)
    if settings is not None and _is_of(node, request):
        asked_for, plan = settings.convert(request.body), settings.plan

        def alter(_: Ask) -> None:
            try:
                request.answer({"responses": member.alter_configs(asked_for, plan)})
            except Exception as problem:
                handler_failed(request, problem)

        errands.forward(alter, request.size)
        return
    if node.controller is not None and node.controller.reigns:
        _ask(node.controller, request)
        return
    if member.controller == node.node_id or _is_broker(node, request.peer.client_id):
        answer_failure(request, ErrorCode.NOT_CONTROLLER, "This is not the correct controller.")
        return

    def forward(ask: Ask) -> None:
        try:
            request.answer(ask(request.api, request.body, request.version))
        except (PeerGone, Timeout) as problem:  # its outcome is unknown
            answer_failure(request, ErrorCode.REQUEST_TIMED_OUT, for_clients(problem))
        except Exception as problem:
            handler_failed(request, problem)

    errands.forward(forward, request.size)


def _is_of(node: Node, request: Request) -> bool:
    """True if the request changes settings of this very broker; clients send it directly."""
    return any(one.resource_type == BROKER and one.resource_name == str(node.node_id)
               for one in request.body.resources)  # fmt: skip


def _is_broker(node: Node, client_id: str | None) -> bool:
    number = client_id or ""
    return number.isdecimal() and int(number) in node.image.brokers


def _ask(controller: Controlling, request: Request) -> None:
    def answer(body: Mapping[str, Any] | Exception | None) -> None:
        if body is None:
            answer_failure(request, ErrorCode.NOT_CONTROLLER, "This is not the correct controller.")
            return
        if isinstance(body, Exception):  # the controller has logged it
            answer_failure(request, ErrorCode.UNKNOWN_SERVER_ERROR, FAILED)
            return
        try:
            request.answer(body)
        except Closed:
            pass  # the client no longer waits for it
        except Exception as problem:
            handler_failed(request, problem)

    settings = _SETTINGS.get(request.api.key)
    body = request.body if settings is None else settings.convert(request.body)
    controller.ask(request.api, body, request.version, answer, size=request.size)


class _Settings(NamedTuple):
    """How a request to change settings is read."""

    convert: Callable[[Any], SettingChanges]
    plan: Callable[..., tuple[list[tuple[str, Any]], list[dict[str, Any]]]]


_SETTINGS = {
    apis.ALTER_CONFIGS.key: _Settings(translation.all_settings, configs.alter_configs),
    apis.INCREMENTAL_ALTER_CONFIGS.key: _Settings(
        translation.some_settings, configs.incremental_alter_configs
    ),
}
