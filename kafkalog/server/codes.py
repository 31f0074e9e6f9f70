"""The error codes that clients get for failures."""

import logging

from kafkalog.errors import Closed, KafkalogError, NotFound, StaleLog
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["code_of", "known_code"]

_logger = logging.getLogger(__name__)


def known_code(problem: BaseException) -> ErrorCode | None:
    """Kafka's error code for a failure; None if Kafka has no code for it."""
    if isinstance(problem, (Closed, NotFound)):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # its log is gone: so is the partition
    if isinstance(problem, StaleLog):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # it was truncated since: the client asks again
    if isinstance(problem, KafkalogError) and problem.code is not None:
        return ErrorCode(problem.code)
    return None


def code_of(problem: BaseException) -> ErrorCode:
    """Kafka's error code for a failure; a failure without one is logged."""
    found = known_code(problem)
    if found is not None:
        return found
    _logger.error("answered UNKNOWN_SERVER_ERROR: %s: %s", type(problem).__name__, problem)
    return ErrorCode.UNKNOWN_SERVER_ERROR
