"""DescribeConfigs and ListConfigResources, answered from the metadata."""

from typing import Any

from kafkalog.metadata import translation
from kafkalog.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from kafkalog.metadata.requests import SettingsAsked
from kafkalog.server.node import Node, Serving
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["describe_configs", "list_config_resources"]

LOG_DIRS = "log.dirs"
STATIC_SOURCE, LIST_TYPE = 4, 7
"""Kafka's ConfigSource for a value from a properties file, and ConfigType for a list."""
KINDS_SINCE = 1
"""Before this version, the API only listed settings of client metrics."""
BROKER_LOGGER = 8
"""A resource kind of Kafka's that does not exist here: this is no JVM."""
_KINDS = (BROKER, TOPIC, GROUP, CLIENT_METRICS)


def describe_configs(node: Serving, request: Request) -> dict[str, Any]:
    """Every setting of each resource, or the requested ones."""
    wanted = translation.settings(request.body)
    results = node.metadata.describe_configs(wanted)
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
