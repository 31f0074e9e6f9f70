"""Authentication of a connection by SASL."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = ["SASL_AUTHENTICATE", "SASL_HANDSHAKE"]

SASL_HANDSHAKE = Api(
    17, "SaslHandshake", "0-1", served="0-1",
    request="Mechanism:str",
    response="ErrorCode:i16, Mechanisms:[]str",
)  # fmt: skip

SASL_AUTHENTICATE = Api(
    36, "SaslAuthenticate", "0-2", flexible=2, served="0-2",
    request="AuthBytes:bytes",
    response="""
        ErrorCode:i16, ErrorMessage:str(null), AuthBytes:bytes, SessionLifetimeMs:i64(1+)
    """,
)  # fmt: skip
