"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the metadata know."""

from typing import Any

from kafkalog.server.handlers.common import Handler
from kafkalog.server.node import Node
from kafkalog.server.threads.requests import Request
from kafkalog.wire import apis

__all__ = ["HANDLERS"]


def describe_configs(node: Node, request: Request) -> dict[str, Any]:
    """Every setting of each resource, or those that were asked for."""
    return {"results": node.metadata.describe_configs(request.body)}


def alter_configs(node: Node, request: Request) -> dict[str, Any]:
    """All settings of a resource anew; open logs obey them when the answer goes out."""
    return {"responses": node.metadata.alter_configs(request.body)}


def incremental_alter_configs(node: Node, request: Request) -> dict[str, Any]:
    """Some settings of a resource."""
    return {"responses": node.metadata.incremental_alter_configs(request.body)}


HANDLERS: dict[int, Handler] = {
    apis.DESCRIBE_CONFIGS.key: describe_configs,
    apis.ALTER_CONFIGS.key: alter_configs,
    apis.INCREMENTAL_ALTER_CONFIGS.key: incremental_alter_configs,
}
