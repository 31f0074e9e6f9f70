"""UpdateFeatures: the metadata decides."""

from typing import Any

from kafkalog.metadata import translation
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["update_features"]

ONE_RESULT_SINCE = 2
"""From this version on, features have no separate results."""


def update_features(node: Node, request: Request) -> dict[str, Any]:
    """One result for all: if one feature is refused, none changes."""
    result = node.alone().update_features(translation.features(request.body, request.version))
    if result["error_code"] or request.version >= ONE_RESULT_SINCE:
        return result
    fine = {"error_code": 0, "error_message": "NONE"}  # Kafka's word for it
    named = dict.fromkeys(one.feature for one in request.body.feature_updates)
    return {**result, "results": [{"feature": name, **fine} for name in named]}
