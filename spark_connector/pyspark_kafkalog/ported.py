"""Each option of Spark's Kafka source and sink: what is other here, and the test that holds it.

For the documentation.  What the other source does was tried with Spark 4.2 on the same topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Ported(NamedTuple):
    """An option of Spark's Kafka source."""

    here: str
    """The difference; empty: none."""
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
        "a topic that is not there is refused at `load()`; with `failOnDataLoss` false, when a "
        "query without a checkpoint begins",
        f"{_BOTH}test_missing_topics_and_partitions_are_reported_at_load",
    ),
    "subscribePattern": Ported(
        "an expression of Python; what only Java reads as sets is refused",
        f"{_BOTH}test_a_pattern",
    ),
    "assign": Ported(
        "a partition that is not there is refused; there it is left out",
        f"{_BOTH}test_missing_topics_and_partitions_are_reported_at_load",
    ),
    "startingOffsets": Ported("", f"{_BOTH}test_offsets"),
    "endingOffsets": Ported("", f"{_BOTH}test_offsets_that_are_not_there"),
    "startingTimestamp": Ported("", f"{_BOTH}test_times"),
    "endingTimestamp": Ported("", f"{_BOTH}test_times_below_zero_are_those_of_kafkas_source"),
    "startingOffsetsByTimestamp": Ported("", f"{_BOTH}test_times"),
    "endingOffsetsByTimestamp": Ported("", f"{_BOTH}test_times"),
    "startingOffsetsByTimestampStrategy": Ported("", f"{_BOTH}test_no_record_at_the_starting_time"),
    "failOnDataLoss": Ported(
        "a recreated topic is a loss, too",
        f"{_BOTH}test_a_recreated_topic_is_another_topic",
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

_SINK = "test_sink.py::"
_SINK_PLACES = "test_sink_places.py::"
_SINK_SESSION = "test_sink_session.py::"

PORTED_SINK: Mapping[str, Ported] = {
    "`kafka.bootstrap.servers`": Ported("or `path`", f"{_SINK_PLACES}test_every_column"),
    "`topic`": Ported("", f"{_SINK}test_the_option_goes_before_the_column"),
    "other `kafka.*`": Ported(
        "what changes no record is ignored with a warning, what cannot be is refused by name",
        f"{_SINK}test_settings_of_javas_producer",
    ),
    "columns `key`, `value`, `topic`, `partition`": Ported("", f"{_SINK_PLACES}test_every_column"),
    "column `headers`": Ported(
        "written whenever it is there, as there; left out with `includeHeaders` false",
        f"{_SINK}test_headers_are_left_out_on_request_alone",
    ),
    "column `timestamp`": Ported("the record's time", f"{_SINK_PLACES}test_every_column"),
    "the partition of a key": Ported(
        "", f"{_SINK_PLACES}test_keys_find_their_partitions_and_keep_their_order"
    ),
    "a topic that does not exist": Ported(
        "as there, if brokers create topics: with their `num.partitions`; with a path it gets one "
        "partition. To choose, create it before the first write",
        f"{_SINK_PLACES}test_a_missing_topic",
    ),
    "`mode`": Ported(
        "`append` must be said; Spark hands its default to no Python source",
        f"{_SINK_SESSION}test_a_data_frame",
    ),
    "`outputMode`": Ported(
        "`append`; Spark lets no Python sink take `update`, and a log cannot take `complete`: use "
        "`foreachBatch`, which takes each of them",
        f"{_SINK_SESSION}test_update_mode_wants_foreach_batch",
    ),
    "delivery": Ported(
        "each micro-batch once, in a transaction; there at least once",
        f"{_SINK_PLACES}test_a_micro_batch_is_there_once",
    ),
}
"""By option, column or behaviour, of the sink."""
