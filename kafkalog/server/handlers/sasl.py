"""SASL on connections that are authenticated, or need not be."""

from typing import Any

from kafkalog.server.node import Serving
from kafkalog.server.request import Request
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["sasl_authenticate", "sasl_handshake"]


def sasl_handshake(node: Serving, request: Request) -> dict[str, Any] | None:
    """Begin to authenticate again (KIP-368), if the session of the connection ends."""
    if node.authentication.again(request):
        return None
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}


def sasl_authenticate(node: Serving, request: Request) -> dict[str, Any]:
    """Always refused: a handshake comes first."""
    return {
        "error_code": ErrorCode.ILLEGAL_SASL_STATE,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
        "session_lifetime_ms": 0,
    }
