"""DescribeClientQuotas, answered from the metadata."""

from __future__ import annotations

from typing import Any

from kafkalog.controller import client_quotas as rules
from kafkalog.metadata import translation
from kafkalog.metadata.configs import Refused
from kafkalog.server.node import Node
from kafkalog.server.request import Request

__all__ = ["describe_client_quotas"]


def describe_client_quotas(node: Node, request: Request) -> dict[str, Any]:
    """The quotas of the entities that the filters match."""
    try:
        found = rules.describe_client_quotas(node.image, translation.quotas_asked(request.body))
    except Refused as error:
        return {"error_code": error.code, "error_message": str(error), "entries": None}
    return {"error_code": 0, "error_message": None, "entries": found}
