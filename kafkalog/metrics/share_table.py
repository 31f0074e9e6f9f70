"""The metrics of share groups' records, at the leaders of their partitions."""

from __future__ import annotations

from kafkalog.metrics.metric import counter, gauge

__all__ = ["SHARES"]

_SESSIONS = "kafka.server:type=ShareSessionCache,name="
_GROUPS = "kafka.server:type=ShareGroupMetrics,name="
_PARTITIONS = "kafka.server:type=SharePartitionMetrics,name="
_OF_GROUP = "kafka_server_sharegroupmetrics_"
_OF_PARTITION = "kafka_server_sharepartitionmetrics_"
_WHERE = ["group", "topic", "partition"]

SHARES = (
    gauge("kafka_server_sharesessioncache_sharesessionscount", "", [], "Share sessions.",
          "Above it, group.share.max.share.sessions refuses members.",
          f"{_SESSIONS}ShareSessionsCount"),
    gauge("kafka_server_sharesessioncache_sharepartitionscount", "", [], "Partitions in them.", "",
          f"{_SESSIONS}SharePartitionsCount"),
    gauge("kafkalog_share_records_bytes", "bytes", [],
          "Approximate memory of share sessions and of what members hold.",
          "Above it, kafkalog.share.records.max.bytes gives members no more records."),
    counter(f"{_OF_GROUP}recordacknowledgements_total", "records", ["ackType"],
            "Records that members acknowledged, by type.",
            "Many Reject or Release: workers fail.", f"{_GROUPS}RecordAcknowledgementsPerSec"),
    counter("kafkalog_dead_letters_total", "records", ["group"],
            "Records that were written to the dead-letter topic of a group.",
            "See their headers for the reason.", f"{_GROUPS}DeadLetterQueueRecordCount"),
    counter(f"{_OF_GROUP}deadletterqueuetotalproducerequests_total", "", ["group"],
            "Writes to it, failed ones included.", "",
            f"{_GROUPS}DeadLetterQueueTotalProduceRequestsPerSec"),
    counter(f"{_OF_GROUP}deadletterqueuefailedproducerequests_total", "", ["group"],
            "Writes that were given up: records are archived without a dead letter.",
            "See the log for the reason.", f"{_GROUPS}DeadLetterQueueFailedProduceRequestsPerSec"),
    gauge(f"{_OF_PARTITION}inflightmessagecount", "records", _WHERE,
          "Offsets of a partition that a group has in flight.",
          "Stays near share.partition.max.record.locks: more or faster members.",
          f"{_PARTITIONS}InFlightMessageCount"),
    gauge(f"{_OF_PARTITION}inflightbatchcount", "", _WHERE,
          "Ranges of equal state that they are kept as.", "", f"{_PARTITIONS}InFlightBatchCount"),
    counter(f"{_OF_PARTITION}acquisitionlocktimeout_total", "records", _WHERE,
            "Records whose lock ended before a member acknowledged them.",
            "Grows: a larger share.record.lock.duration.ms, or fewer records a poll.",
            f"{_PARTITIONS}AcquisitionLockTimeoutPerSec"),
)  # fmt: skip
