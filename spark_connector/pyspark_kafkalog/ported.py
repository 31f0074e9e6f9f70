"""Each option of Spark's Kafka source: what is other here, and the test that holds it.

For the documentation.  What the other source does was tried with Spark 4.2 on the same topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Ported(NamedTuple):
    """An option of Spark's Kafka source."""

    here: str
    """What is other; empty: nothing."""
    test: str
    """`file::function` below tests/spark."""


_BOTH = "test_both_places.py::"
_OPTIONS = "test_options.py::"
_STREAM = "test_stream_reader.py::"
_REFUSED = Ported(
    "refused, as there", f"{_OPTIONS}test_consumer_settings_that_kafkas_source_refuses_are_refused"
)
_IGNORED = Ported(
    "ignored with a warning",
    f"{_OPTIONS}test_options_of_kafkas_source_without_a_meaning_here_are_named",
)

PORTED: Mapping[str, Ported] = {
    "kafka.bootstrap.servers": Ported(
        "or `path`", "test_session.py::test_brokers_in_the_place_of_a_path"
    ),
    "subscribe": Ported(
        "a topic that is not there is refused at `load()`",
        f"{_BOTH}test_what_is_not_there_is_said_at_load",
    ),
    "subscribePattern": Ported(
        "an expression of Python; what only Java reads as sets is refused",
        f"{_BOTH}test_a_pattern",
    ),
    "assign": Ported(
        "a partition that is not there is refused; there it is left out",
        f"{_BOTH}test_what_is_not_there_is_said_at_load",
    ),
    "startingOffsets": Ported("", f"{_BOTH}test_offsets"),
    "endingOffsets": Ported("", f"{_BOTH}test_offsets_that_are_not_there"),
    "startingTimestamp": Ported("", f"{_BOTH}test_times"),
    "endingTimestamp": Ported("", f"{_BOTH}test_times_below_zero_are_those_of_kafkas_source"),
    "startingOffsetsByTimestamp": Ported("", f"{_BOTH}test_times"),
    "endingOffsetsByTimestamp": Ported("", f"{_BOTH}test_times"),
    "startingOffsetsByTimestampStrategy": Ported("", f"{_BOTH}test_no_record_at_the_starting_time"),
    "failOnDataLoss": Ported(
        "a topic that was deleted and made anew is a loss, too",
        f"{_BOTH}test_records_deleted_while_they_are_read",
    ),
    "minPartitions": Ported(
        "without it small partitions share a task; there each has one of its own",
        f"{_BOTH}test_no_record_is_lost_or_read_twice_at_the_cuts",
    ),
    "maxRecordsPerPartition": Ported(
        "holds alone; there only with `minPartitions`",
        f"{_BOTH}test_no_record_is_lost_or_read_twice_at_the_cuts",
    ),
    "includeHeaders": Ported("", f"{_BOTH}test_rows_are_the_records"),
    "kafka.isolation.level": Ported(
        "read_committed when it is not given; there read_uncommitted",
        f"{_BOTH}test_committed_and_all_records",
    ),
    "maxOffsetsPerTrigger": Ported(
        "", f"{_STREAM}test_batches_are_limited_by_offsets_and_by_bytes"
    ),
    "minOffsetsPerTrigger": Ported("", f"{_STREAM}test_a_minimum_waits_for_its_time"),
    "maxTriggerDelay": Ported("", f"{_STREAM}test_a_minimum_waits_for_its_time"),
    "groupIdPrefix": _IGNORED,
    "kafkaConsumer.pollTimeoutMs": Ported("", "test_patience.py::test_a_plan_and_its_tasks_wait"),
    "fetchOffset.numRetries": Ported(
        "", "test_places.py::test_a_broker_that_is_not_there_is_named"
    ),
    "fetchOffset.retryIntervalMs": Ported(
        "ignored with a warning: `kafka.retry.backoff.ms` and its `.max.ms` say it",
        _IGNORED.test,
    ),
    "kafka.group.id": Ported(
        "ignored with a warning: there is no group",
        f"{_OPTIONS}test_settings_that_change_nothing_are_ignored_by_name",
    ),
    "kafka.auto.offset.reset": _REFUSED,
    "kafka.key.deserializer": _REFUSED,
    "kafka.value.deserializer": _REFUSED,
    "kafka.enable.auto.commit": _REFUSED,
    "kafka.interceptor.classes": _REFUSED,
}
