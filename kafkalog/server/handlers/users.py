"""DescribeUserScramCredentials, answered from the metadata."""

from typing import Any

from kafkalog.controller import users
from kafkalog.server.node import Serving
from kafkalog.server.request import Request

__all__ = ["describe_user_scram_credentials"]


def describe_user_scram_credentials(node: Serving, request: Request) -> dict[str, Any]:
    """The mechanisms and iterations of each user's credentials, and nothing else of them."""
    asked = request.body.users
    names = None if asked is None else [one.name for one in asked]
    return {
        "error_message": "",  # as Kafka
        "results": users.describe_user_scram_credentials(node.image, names),
    }
