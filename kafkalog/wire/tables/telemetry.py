"""Metrics that clients send (KIP-714)."""

from __future__ import annotations

from kafkalog.wire.api import Api

__all__ = [
    "GET_TELEMETRY_SUBSCRIPTIONS",
    "PUSH_TELEMETRY",
]

GET_TELEMETRY_SUBSCRIPTIONS = Api(
    71, "GetTelemetrySubscriptions", "0", flexible=0, served="0",
    request="ClientInstanceId:uuid",
    response="""
        ThrottleTimeMs:i32, ErrorCode:i16, ClientInstanceId:uuid, SubscriptionId:i32,
        AcceptedCompressionTypes:[]i8, PushIntervalMs:i32, TelemetryMaxBytes:i32,
        DeltaTemporality:bool, RequestedMetrics:[]str
    """,
)  # fmt: skip

PUSH_TELEMETRY = Api(
    72, "PushTelemetry", "0", flexible=0, served="0",
    request="""
        ClientInstanceId:uuid, SubscriptionId:i32, Terminating:bool, CompressionType:i8,
        Metrics:bytes
    """,
    response="ThrottleTimeMs:i32, ErrorCode:i16",
)  # fmt: skip
