"""The metrics of groups and transactions."""

from __future__ import annotations

from kafkalog.metrics.metric import Metric, gauge

__all__ = ["COORDINATORS"]

_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="
_METRICS = "kafka.server:type=group-coordinator-metrics,name="


def _number(name: str, kafka: str, text: str, remedy: str = "") -> Metric:
    return gauge(f"kafka_coordinator_group_groupmetadatamanager_{name}", "", [], text, remedy,
                 f"{_GROUPS}{kafka}")  # fmt: skip


COORDINATORS = (
    _number("numgroups", "NumGroups", "Classic groups that this node coordinates."),
    _number("numgroupspreparingrebalance", "NumGroupsPreparingRebalance",
            "Those that wait for members.", "Stays above 0: a member does not answer."),
    _number("numgroupscompletingrebalance", "NumGroupsCompletingRebalance",
            "Those that wait for their leader's assignment."),
    _number("numgroupsstable", "NumGroupsStable", "Those at work."),
    _number("numgroupsempty", "NumGroupsEmpty", "Those without members."),
    _number("numgroupsdead", "NumGroupsDead", "Those that are being deleted."),
    _number("numoffsets", "NumOffsets", "Committed offsets of all groups."),
    gauge("kafka_server_group_coordinator_metrics_consumer_group_count", "", ["state"],
          "Groups whose members heartbeat (KIP-848), by state.", "",
          f"{_METRICS}consumer-group-count"),
    gauge("kafka_server_group_coordinator_metrics_share_group_count", "", ["state"],
          "Share groups (KIP-932), by state.", "", f"{_METRICS}share-group-count"),
    gauge("kafka_server_group_coordinator_metrics_streams_group_count", "", ["state"],
          "Streams groups (KIP-1071), by state.",
          "not_ready: topics of the application are missing or have the wrong size.",
          f"{_METRICS}streams-group-count"),
    gauge("kafka_server_group_coordinator_metrics_num_partitions", "", ["state"],
          "Partitions of __consumer_offsets that this node coordinates: active, loading, "
          "failed.", "failed: see the log for the partition that cannot be read.",
          f"{_METRICS}num-partitions"),
    gauge("kafkalog_group_coordinator_bytes", "bytes", [], "Approximate memory of all groups.",
          "Above it, kafkalog.groups.max.bytes refuses members and commits."),
    gauge("kafkalog_group_members", "", ["group"], "Members of a group."),
    gauge("kafkalog_group_state", "", ["group", "state"], "1 at the state of a group."),
    gauge("kafkalog_group_offset", "offset", ["group", "topic", "partition"],
          "The committed offset of a group."),
    gauge("kafkalog_group_lag", "records", ["group", "topic", "partition"],
          "Records between the committed offset and the end that consumers see. Only where this "
          "node has the partition's open log.",
          "Grows: more members, up to the number of partitions, or faster ones."),
    gauge("kafkalog_group_lag_sum", "records", ["group"],
          "The sum over these partitions; missing where none is shown.", "The same."),
    gauge("kafkalog_transaction_coordinator_partitions", "", ["state"],
          "Partitions of __transaction_state that this node coordinates: active, loading, "
          "failed.", "failed: see the log for the partition that cannot be read."),
    gauge("kafkalog_transactions", "", ["state"],
          "Transactional ids that this node coordinates, by state; Ongoing ones are open.",
          "PrepareCommit and PrepareAbort stay above 0: a partition does not take the marker."),
    gauge("kafkalog_transaction_open_seconds", "s", [],
          "Age of the oldest open transaction; 0: there is none.",
          "kafkalog transactions: find it, and abort it if its producer is gone."),
)  # fmt: skip
