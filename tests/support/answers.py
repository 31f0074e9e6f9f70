"""A log's answers, in the form of the expected files."""

from typing import Any

from tests.support.kafka_data import Expected

TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def read_all(log: Any, **how: Any) -> tuple[Expected, ...]:
    """Everything that log.read(**how) yields."""
    return tuple(as_expected(record) for record in log.read(**how))


def as_expected(record: Any) -> Expected:
    return Expected(
        record.offset,
        record.timestamp_ms,
        TIMESTAMP_TYPES[record.timestamp_type],
        record.key,
        record.value,
        tuple(record.headers),
        record.leader_epoch,
    )


def find_time(log: Any, timestamp_ms: int) -> tuple[tuple[Any, Any], Any]:
    """((offset, timestamp), leader epoch) as ListOffsets answers; None if nothing is found."""
    return _found(log.find_time(timestamp_ms))


def find_largest_time(log: Any) -> tuple[tuple[Any, Any], Any]:
    return _found(log.find_largest_time())


def _found(found: Any) -> tuple[tuple[Any, Any], Any]:
    if found is None:
        return (None, None), None
    epoch = None if found.leader_epoch < 0 else found.leader_epoch
    return (found.offset, found.timestamp_ms), epoch
