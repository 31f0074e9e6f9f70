"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: the metadata
know."""

from typing import Any

from kafkalog.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kafkalog.server import asked
from kafkalog.server.node import Node
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "alter_configs",
    "describe_configs",
    "incremental_alter_configs",
    "list_config_resources",
]

KINDS_SINCE = 1
"""Before this version the question was for settings of client metrics only."""
BROKER_LOGGER = 8
"""A kind of Kafka's that nothing has here: this is no JVM."""
_KINDS = (BROKER, TOPIC, GROUP, CLIENT_METRICS)


def describe_configs(node: Node, request: Request) -> dict[str, Any]:
    """Every setting of each resource, or those that were asked for."""
    return {"results": node.metadata.describe_configs(asked.settings(request.body))}


def alter_configs(node: Node, request: Request) -> dict[str, Any]:
    """Replace all settings of a resource; open logs obey them when the answer goes out."""
    return {"responses": node.alone().alter_configs(asked.all_settings(request.body))}


def incremental_alter_configs(node: Node, request: Request) -> dict[str, Any]:
    """Some settings of a resource."""
    return {"responses": node.alone().incremental_alter_configs(asked.some_settings(request.body))}


def list_config_resources(node: Node, request: Request) -> dict[str, Any]:
    """What has settings: of the kinds that were asked for, else of all (KIP-1142)."""
    kinds = request.body.resource_types if request.version >= KINDS_SINCE else [CLIENT_METRICS]
    if set(kinds) - set(_KINDS) - {BROKER_LOGGER}:
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    image = node.image
    there = {BROKER: [str(node.node_id)], TOPIC: list(image.topics)}
    found = [
        {"resource_name": name, "resource_type": kind}
        for kind in _KINDS
        if not kinds or kind in kinds
        for name in there.get(kind, [n for k, n in image.configs if k == kind])
    ]
    return {"config_resources": found}
