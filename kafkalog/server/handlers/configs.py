"""DescribeConfigs and ListConfigResources, answered from the metadata."""

from typing import Any

from kafkalog.metadata import translation
from kafkalog.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kafkalog.metadata.requests import SettingsAsked
from kafkalog.server.handlers.loggers import BROKER_LOGGER, describe_loggers
from kafkalog.server.node import Node, Serving
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["describe_configs", "list_config_resources"]

LOG_DIRS = "log.dirs"
STATIC_SOURCE, LIST_TYPE = 4, 7
"""Kafka's ConfigSource for a value from a properties file, and ConfigType for a list."""
KINDS_SINCE = 1
"""Before this version, the API only listed settings of client metrics."""
_KINDS = (BROKER, BROKER_LOGGER, TOPIC, GROUP, CLIENT_METRICS)


def describe_configs(node: Serving, request: Request) -> dict[str, Any]:
    """Every setting of each resource, or the requested ones."""
    wanted = translation.settings(request.body)
    others = [one for one in wanted.resources if one.kind != BROKER_LOGGER]
    results = node.metadata.describe_configs(wanted._replace(resources=others))
    loggers = {one.name: one for one in wanted.resources if one.kind == BROKER_LOGGER}
    results += [describe_loggers(node.node_id, one) for one in loggers.values()]
    keys = {(one.kind, one.name): one.keys for one in wanted.resources}
    for result in results:
        where = (result["resource_type"], result["resource_name"])
        includes_directory = LOG_DIRS in (keys[where] or (LOG_DIRS,))
        if where == (BROKER, str(node.node_id)) and includes_directory:
            result["configs"].append(_directory(node, wanted))
    return {"results": results}


def _directory(node: Serving, wanted: SettingsAsked) -> dict[str, Any]:
    """The data directory under the name of Kafka's setting; here it is not given as a setting."""
    said = {"name": LOG_DIRS, "value": node.manager.path, "source": STATIC_SOURCE}
    return {
        "name": LOG_DIRS,
        "value": node.manager.path,
        "read_only": True,
        "config_source": STATIC_SOURCE,
        "is_sensitive": False,
        "synonyms": [said] if wanted.synonyms else [],
        "config_type": LIST_TYPE,
        "documentation": "The data directory." if wanted.documentation else None,
    }


def list_config_resources(node: Node, request: Request) -> dict[str, Any]:
    """The resources that have settings: of the requested kinds, else of all (KIP-1142)."""
    kinds = request.body.resource_types if request.version >= KINDS_SINCE else [CLIENT_METRICS]
    if set(kinds) - set(_KINDS):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    image = node.image
    nodes = [str(node.node_id)]
    there = {BROKER: nodes, BROKER_LOGGER: nodes, TOPIC: list(image.topics)}
    found = [
        {"resource_name": name, "resource_type": kind}
        for kind in _KINDS
        if not kinds or kind in kinds
        for name in there.get(kind, [n for k, n in image.configs if k == kind])
    ]
    return {"config_resources": found}
