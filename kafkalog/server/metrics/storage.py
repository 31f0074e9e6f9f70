"""Reads the metrics of logs and of their directory."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkalog._native import lib
from kafkalog.log.figures import TIME_BOUNDS_MS, sync_times
from kafkalog.log.handle import states
from kafkalog.metrics.metric import OTHERS, Histogram, Readings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalog.directory.manager import Manager
    from kafkalog.server.metrics.labels import Labels
    from kafkalog.types import TopicPartition

__all__ = ["LogStates", "log_states", "read_partitions", "read_storage"]

_OF_PARTITIONS: tuple[tuple[str, Callable[[Any], int]], ...] = (
    ("kafka_log_log_size", lambda one: one.size_bytes),
    ("kafka_log_log_numlogsegments", lambda one: one.segment_count),
    ("kafka_log_log_logstartoffset", lambda one: one.log_start_offset),
    ("kafka_log_log_logendoffset", lambda one: one.log_end_offset),
    ("kafkalog_log_high_watermark", lambda one: one.high_watermark),
    ("kafkalog_log_unflushed_records", lambda one: one.log_end_offset - one.flushed_offset),
)
_SUMMED = ("kafka_log_log_size", "kafka_log_log_numlogsegments")
"""Those whose sum over the partitions without a label is shown."""


class LogStates(dict["TopicPartition", Any]):
    """The kl_log_state of each open log, with the array that they are rows of."""

    def __init__(self, rows: Mapping[TopicPartition, Any], array: object) -> None:
        super().__init__(rows)
        self._array = array


def log_states(manager: Manager) -> LogStates:
    """The kl_log_state of each open log, read with one call of C."""
    handles = manager.handles()
    if not handles:
        return LogStates({}, None)
    found, statuses = states(handles)
    rows = {one.tp: found[at] for at, one in enumerate(handles) if statuses[at] == lib.KL_OK}
    return LogStates(rows, found)


def read_partitions(
    readings: Readings, logs: Mapping[TopicPartition, Any], shown: Iterable[TopicPartition]
) -> None:
    """Read those logs that have a label of their own."""
    for name, value in _OF_PARTITIONS:
        for tp in shown:
            readings.add(name, value(logs[tp]), topic=tp.topic, partition=str(tp.partition))


def read_storage(
    readings: Readings, manager: Manager, logs: Mapping[TopicPartition, Any],
    labels: Labels[TopicPartition],
) -> None:  # fmt: skip
    """Read the logs and their directory; `logs`: as from log_states.

    Raises: Closed, ForkedHandle.
    """
    readings.add("kafkalog_partitions", len(manager.partitions()))
    readings.add("kafkalog_logs_open", len(logs))
    readings.add("kafkalog_log_bytes", sum(one.size_bytes for one in logs.values()))
    readings.add("kafkalog_logs_offline", sum(one.offline for one in logs.values()))
    readings.add("kafka_server_replicamanager_produceridcount",
                 sum(one.producer_count for one in logs.values()))  # fmt: skip
    recovered = [one.recovery for one in manager.handles()]
    readings.add("kafkalog_recovered_segments", sum(one.segments_recovered for one in recovered))
    readings.add("kafkalog_recovered_truncated_bytes",
                 sum(one.truncated_bytes for one in recovered))  # fmt: skip
    readings.add("kafkalog_background_failures", len(manager.problems))
    with suppress(OSError):
        disk = os.statvfs(manager.path)
        readings.add("kafkalog_disk_free_bytes", disk.f_bavail * disk.f_frsize)
    times = sync_times()
    readings.add("kafka_log_logflushstats_logflushrateandtimems",
                 Histogram(TIME_BOUNDS_MS, times.buckets, times.sum_ms))  # fmt: skip
    shown = sorted(labels.shown(logs))
    rest = logs.keys() - set(shown)
    read_partitions(readings, logs, shown)
    for name, value in _OF_PARTITIONS:
        if rest and name in _SUMMED:
            total = sum(value(logs[tp]) for tp in rest)
            readings.add(name, total, topic=OTHERS, partition=OTHERS)
