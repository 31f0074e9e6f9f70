"""The levels of this node's loggers, as settings: resources of the kind BROKER_LOGGER (KIP-412).

They are not part of the metadata: each node answers for its own, and forgets them when it ends.
Source: RuntimeLoggerManager, ConfigAdminManager, ConfigHelper.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from kafkalog.logs.levels import LEVELS, ROOT, levels, set_level
from kafkalog.logs.limit import limited
from kafkalog.metadata import translation
from kafkalog.metadata.configs import DELETE, SET, Refused, check_changes
from kafkalog.metadata.requests import ResourceAsked, ResourceChange, SettingChange
from kafkalog.security.permissions import CLUSTER_NAME, Kind, Operation
from kafkalog.server.node import Serving
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["BROKER_LOGGER", "describe_loggers", "incremental_alter_configs"]

_logger = limited(__name__)

BROKER_LOGGER = 8
"""Kafka's number of this kind of resource."""
DYNAMIC_BROKER_LOGGER = 6
"""Kafka's ConfigSource of a logger's level."""
NUMBER = re.compile("[+-]?[0-9]{1,10}")
"""As Kafka reads one; Python would also take other digits, spaces and underscores."""
_OPERATIONS = {2: "APPEND operation is", 3: "SUBTRACT operation is"}


def describe_loggers(node_id: int, asked: ResourceAsked) -> dict[str, Any]:
    """The levels of loggers: a result of DescribeConfigs."""
    result: dict[str, Any] = {"error_code": 0, "error_message": None, "configs": [],
                              "resource_type": asked.kind, "resource_name": asked.name}  # fmt: skip
    try:
        if not asked.name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if _number("Broker", asked.name) != node_id:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {node_id} but received {asked.name}",
            )
    except Refused as problem:
        result.update(error_code=int(problem.code), error_message=str(problem))
        return result
    result["configs"] = [
        {
            "name": name, "value": level, "read_only": False, "is_sensitive": False,
            "config_source": DYNAMIC_BROKER_LOGGER, "synonyms": [], "config_type": 0,
            "documentation": "",
        }
        for name, level in levels().items()
        if not asked.keys or name in asked.keys
    ]  # fmt: skip
    return result


def incremental_alter_configs(node: Serving, request: Request) -> Mapping[str, Any] | None:
    """Set the levels of loggers here; the controller does the rest of the request."""
    resources = request.body.resources
    mine = [one for one in resources if one.resource_type == BROKER_LOGGER]
    if not mine:
        return node.controller_apis.handle(request)
    part = copy(request.body)
    part.resources = mine
    asked = translation.some_settings(part)
    # A broker of a KRaft cluster leaves the other checks of this request to the controller.
    allowed = node.admission.allows(
        request.peer, Operation.ALTER_CONFIGS, Kind.CLUSTER, CLUSTER_NAME
    )
    counts = Counter(one.name for one in asked.resources)
    rows = []
    for one in asked.resources:
        row: dict[str, Any] = {"error_code": 0, "error_message": None,
                               "resource_type": one.kind, "resource_name": one.name}  # fmt: skip
        rows.append(row)
        try:
            if counts[one.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check(node.node_id, one, allowed)
        except Refused as problem:
            row.update(error_code=int(problem.code), error_message=str(problem))
            continue
        if not asked.validate_only:
            _set(one.changes)
    if len(mine) == len(resources):
        return {"responses": rows}
    request.body.resources = [one for one in resources if one.resource_type != BROKER_LOGGER]
    request.adjust(
        lambda answer: {**answer, "responses": [*answer["responses"], *rows]},
        lambda _: None,
        cut=True,
    )
    return node.controller_apis.handle(request)


def _check(node_id: int, asked: ResourceChange, allowed: bool) -> None:
    """Raises: Refused; nothing has changed."""
    check_changes(asked.changes)
    if not allowed:
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if (number := _number("Node", asked.name)) != node_id:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected node id. Expected {node_id}, but received {number}",
        )
    known = levels()
    for change in asked.changes:
        name = change.name
        if change.operation not in (SET, DELETE):
            unknown = f"Unknown operation type {change.operation} is"
            asked_for = _OPERATIONS.get(change.operation, unknown)
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{asked_for} not allowed for the BROKER_LOGGER resource",
            )
        if name not in known:
            raise Refused(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if change.operation == SET and change.value not in LEVELS:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {change.value} as it is not a supported "
                f"log level. Valid log levels are {', '.join(sorted(LEVELS))}",
            )
        if change.operation == DELETE and name == ROOT:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Removing the log level of the {ROOT} logger is not allowed",
            )


def _number(kind: str, name: str) -> int:
    """The number of a node.  `kind`: Broker or Node, as Kafka's sentences name it."""
    if not NUMBER.fullmatch(name):
        raise Refused(ErrorCode.INVALID_REQUEST, f"{kind} id must be an integer, but it is: {name}")
    return int(name)


def _set(changes: Sequence[SettingChange]) -> None:
    for one in changes:
        level = None if one.operation == DELETE else one.value
        set_level(one.name, level)
        shown = "that of the next one above" if level is None else level
        _logger.warning("logger %s: its level is %s", one.name, shown)
