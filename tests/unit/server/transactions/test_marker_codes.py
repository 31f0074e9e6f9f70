"""Answers to WriteTxnMarkers are those that coordinators of any broker understand."""

from __future__ import annotations

import pytest

from kafkalog.server.handlers.transactions import marker_code
from kafkalog.wire.error_codes import ErrorCode

KNOWN_TO_KAFKA = {
    "INVALID_PRODUCER_EPOCH", "KAFKA_STORAGE_ERROR", "NONE", "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT",
    "TRANSACTION_COORDINATOR_FENCED", "UNKNOWN_TOPIC_OR_PARTITION",
}  # fmt: skip


@pytest.mark.parametrize("met", ErrorCode, ids=lambda code: code.name)
def test_codes_unknown_to_kafka_request_the_marker_again(met: ErrorCode) -> None:
    told = "NOT_LEADER_OR_FOLLOWER" if met.name not in KNOWN_TO_KAFKA else met.name
    assert marker_code(met).name == told
