"""The metrics that Kafka 4.4 documents for brokers and controllers, and why some are not here."""

from __future__ import annotations

from kafkalog.metrics.table import METRICS

__all__ = ["MISSING", "documented"]

_COORDINATOR = "kafka.server:type=group-coordinator-metrics,name="
_EVENTS = "kafka.controller:type=ControllerEventManager,name="
_TIERED = "There is no tiered storage."
_SHOWN = "the counters of errors by code show it"
_QUEUES = "The controller's events are not timed one by one; Raft and decisions have threads of " \
          "their own."  # fmt: skip
_TIMES = "The coordinator is one thread that answers in rounds; its phases are in " \
         "kafka_network_requestmetrics_*."  # fmt: skip
_RATES = "Not counted; the requests by API and error code show it."
_SHARES = "Not counted apart; the requests ShareFetch, ShareAcknowledge and " \
          "WriteShareGroupState by API and error code show it."  # fmt: skip
_LOCKS = "Fetches hold no lock of a share partition while they read."
_KRAFT = "Metadata records are applied as they are committed, by one thread; " \
         "kafka_controller_kafkacontroller_lastappliedrecordoffset shows how far."  # fmt: skip

MISSING: tuple[tuple[str, str], ...] = (
    ("kafka.controller:type=ControllerChannelManager,name=RequestRateAndQueueTimeMs",
     "Only on ZooKeeper; requests to brokers have no queue of their own to be timed."),
    (f"{_EVENTS}EventQueueSize", _QUEUES),
    (f"{_EVENTS}EventQueueTimeMs", _QUEUES),
    (f"{_EVENTS}EventQueueProcessingTimeMs", _QUEUES),
    ("kafka.network:type=RequestMetrics,name=RequestBytes",
     "Bytes are counted for all requests together: kafkalog_network_bytes_total."),
    ("kafka.network:type=RequestMetrics,name=TemporaryMemoryBytes",
     "No message format is converted; kafkalog_network_buffer_bytes has the memory."),
    ("kafka.network:type=RequestMetrics,name=MessageConversionsTimeMs",
     "No message format is converted."),
    ("kafka.server:type=BrokerTopicMetrics,name={Produce|Fetch}MessageConversionsPerSec",
     "No message format is converted."),
    ("kafka.server:type=BrokerTopicMetrics,name=BytesRejectedPerSec",
     f"Bytes of refused batches are not counted; {_SHOWN} (MESSAGE_TOO_LARGE)."),
    ("kafka.server:type=BrokerTopicMetrics,name=NoKeyCompactedTopicRecordsPerSec",
     f"Not counted apart; {_SHOWN} (INVALID_RECORD)."),
    ("kafka.server:type=BrokerTopicMetrics,name=InvalidMagicNumberRecordsPerSec",
     f"Not counted apart; {_SHOWN} (INVALID_RECORD)."),
    ("kafka.server:type=BrokerTopicMetrics,name=InvalidMessageCrcRecordsPerSec",
     f"Not counted apart; {_SHOWN} (CORRUPT_MESSAGE)."),
    ("kafka.server:type=BrokerTopicMetrics,name=InvalidOffsetOrSequenceRecordsPerSec",
     f"Not counted apart; {_SHOWN} (OUT_OF_ORDER_SEQUENCE_NUMBER)."),
    ("kafka.controller:type=ControllerStats,name=ElectionFromEligibleLeaderReplicasPerSec",
     "Not counted apart from other elections."),
    ("kafka.controller:type=KafkaController,name=TopicsToDeleteCount",
     "Only on ZooKeeper; a deletion there is not counted while it waits."),
    ("kafka.controller:type=KafkaController,name=ReplicasToDeleteCount", "The same."),
    ("kafka.controller:type=KafkaController,name=TopicsIneligibleToDeleteCount", "The same."),
    ("kafka.controller:type=KafkaController,name=ReplicasIneligibleToDeleteCount", "The same."),
    ("kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec",
     "A refused proposal is repeated or outdated; the log has it."),
    ("kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
     "The leader has each follower's lag: kafkalog_follower_lag_records."),
    ("kafka.consumer:type=consumer-fetch-manager-metrics records-lag-max",
     "A client's; `kafkalog.Consumer.metrics()` has it. The broker's is kafkalog_group_lag."),
    ("kafka.server:type={Produce|Fetch},user,client-id",
     "One series per client has no bound; the sums are in kafkalog_throttled_*."),
    ("kafka.server:type=Request,user,client-id", "The same."),
    ("kafka.server:type=Request", "Exempt requests are not timed."),
    (f"{_COORDINATOR}partition-load-time-max", "Loading is not timed; num-partitions shows it."),
    (f"{_COORDINATOR}partition-load-time-avg", "The same."),
    ("kafka.server:type=transaction-coordinator-metrics,name=partition-load-time-max",
     "Loading is not timed; kafkalog_transaction_coordinator_partitions shows it."),
    ("kafka.server:type=transaction-coordinator-metrics,name=partition-load-time-avg",
     "The same."),
    ("kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate",
     f"Not counted apart; {_SHOWN} (of Produce)."),
    ("kafka.server:type=AddPartitionsToTxnManager,name=VerificationTimeMs",
     "Part of the RemoteTimeMs of Produce."),
    ("kafka.server:type=BrokerTopicMetrics,name=ReassignmentBytesOutPerSec",
     "Part of ReplicationBytesOutPerSec."),
    ("kafka.server:type=BrokerTopicMetrics,name=ReassignmentBytesInPerSec", "Not counted."),
    ("kafka.log:type=LogManager,name=remainingLogsToRecover",
     "A log is recovered when it is first used: kafkalog_recovered_segments."),
    ("kafka.log:type=LogManager,name=remainingSegmentsToRecover", "The same."),
    ("kafka.log:type=LogManager,name=LogDirectoryOffline",
     "A node has one directory, whose logs fail one by one: kafkalog_logs_offline."),
    (f"{_COORDINATOR}thread-idle-ratio-avg", _TIMES),
    (f"{_COORDINATOR}event-queue-size", _TIMES),
    (f"{_COORDINATOR}event-queue-time-ms", _TIMES),
    (f"{_COORDINATOR}event-processing-time-ms", _TIMES),
    (f"{_COORDINATOR}event-purgatory-time-ms", _TIMES),
    (f"{_COORDINATOR}batch-linger-time-ms", _TIMES),
    (f"{_COORDINATOR}batch-flush-time-ms", _TIMES),
    (f"{_COORDINATOR}batch-flush-rate", _TIMES),
    (f"{_COORDINATOR}group-count",
     "kafka_coordinator_group_groupmetadatamanager_numgroups has the classic ones, "
     "kafka_server_group_coordinator_metrics_consumer_group_count those whose members heartbeat, "
     "kafka_server_group_coordinator_metrics_share_group_count the share groups, "
     "kafka_server_group_coordinator_metrics_streams_group_count the streams groups."),
    (f"{_COORDINATOR}consumer-group-rebalance-rate", _RATES),
    (f"{_COORDINATOR}consumer-group-rebalance-count", _RATES),
    (f"{_COORDINATOR}streams-group-rebalance-rate", _RATES),
    (f"{_COORDINATOR}streams-group-rebalance-count", _RATES),
    (f"{_COORDINATOR}share-group-rebalance-rate", _RATES),
    (f"{_COORDINATOR}share-group-rebalance-count", _RATES),
    ("kafka.server:type=share-coordinator-metrics", _SHARES),
    ("kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs", "Not timed."),
    ("kafka.server:type=ShareGroupMetrics,name=TopicPartitionsAcquireTimeMs", _LOCKS),
    ("kafka.server:type=ShareGroupMetrics,name=RequestTopicPartitionsFetchRatio", _LOCKS),
    ("kafka.server:type=SharePartitionMetrics,name=FetchLockTimeMs", _LOCKS),
    ("kafka.server:type=SharePartitionMetrics,name=FetchLockRatio", _LOCKS),
    ("kafka.server:type=SharePartitionMetrics,name=InFlightBatchMessageCount",
     "InFlightMessageCount and InFlightBatchCount tell the mean."),
    ("kafka.server:type=ShareSessionCache,name=ShareSessionEvictionsPerSec",
     "No session makes room for another: a new one is refused."),
    ("kafka.server:type=BrokerTopicMetrics,name=TotalShareFetchRequestsPerSec", _SHARES),
    ("kafka.server:type=BrokerTopicMetrics,name=FailedShareFetchRequestsPerSec", _SHARES),
    ("kafka.server:type=BrokerTopicMetrics,name=TotalShareAcknowledgementRequestsPerSec", _SHARES),
    ("kafka.server:type=BrokerTopicMetrics,name=FailedShareAcknowledgementRequestsPerSec", _SHARES),
    (f"{_COORDINATOR}group-completed-rebalance-rate", _RATES),
    (f"{_COORDINATOR}group-completed-rebalance-count", _RATES),
    (f"{_COORDINATOR}offset-commit-rate", _RATES),
    (f"{_COORDINATOR}offset-commit-count", _RATES),
    (f"{_COORDINATOR}offset-expiration-rate", _RATES),
    (f"{_COORDINATOR}offset-expiration-count", _RATES),
    (f"{_COORDINATOR}offset-deletion-rate", _RATES),
    (f"{_COORDINATOR}offset-deletion-count", _RATES),
    ("kafka.server:type=BrokerTopicMetrics,name=Remote*", _TIERED),
    ("kafka.server:type=BrokerTopicMetrics,name=BuildRemoteLogAuxState*", _TIERED),
    ("kafka.server:type=DelayedRemoteFetchMetrics", _TIERED),
    ("kafka.server:type=DelayedRemoteListOffsetsMetrics", _TIERED),
    ("kafka.server:type=RemoteLogManager", _TIERED),
    ("kafka.log.remote:type=RemoteLogManager", _TIERED),
    ("org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool", _TIERED),
    ("kafka.server:type=raft-metrics current-vote", "kafkalog quorum describe tells more."),
    ("kafka.server:type=raft-metrics number-unknown-voter-connections", "Always 0 in Kafka."),
    ("kafka.server:type=raft-metrics commit-latency", "Not timed."),
    ("kafka.server:type=raft-metrics election-latency", "Not timed."),
    ("kafka.server:type=raft-metrics fetch-records-rate", "The offsets' rates tell it."),
    ("kafka.server:type=raft-metrics append-records-rate", "The offsets' rates tell it."),
    ("kafka.server:type=raft-metrics poll-idle-ratio-avg", "Not timed."),
    ("kafka.server:type=MetadataLoader,name=CurrentMetadataVersion",
     "kafkalog features describe tells it."),
    ("kafka.server:type=MetadataLoader,name=HandleLoadSnapshotCount", "Not counted."),
    ("kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedBytes", "Not counted."),
    ("kafka.server:type=SnapshotEmitter,name=LatestSnapshotGeneratedAgeMs", "Not counted."),
    ("kafka.controller:type=KafkaController,name=MetadataErrorCount",
     "An error ends the node's part in the cluster; /health/ready names it."),
    ("kafka.controller:type=KafkaController,name=LastCommittedRecordOffset",
     "kafka_server_raft_metrics_high_watermark."),
    ("kafka.controller:type=KafkaController,name=LastAppliedRecordTimestamp", _KRAFT),
    ("kafka.controller:type=KafkaController,name=LastAppliedRecordLagMs", _KRAFT),
    ("kafka.controller:type=KafkaController,name=TimedOutBrokerHeartbeatCount",
     "FencedBrokerCount shows the result."),
    ("kafka.controller:type=KafkaController,name=EventQueueOperationsStartedCount", _QUEUES),
    ("kafka.controller:type=KafkaController,name=EventQueueOperationsTimedOutCount", _QUEUES),
    ("kafka.controller:type=KafkaController,name=NewActiveControllersCount",
     "kafka_server_raft_metrics_current_epoch rises with each."),
    ("kafka.server:type=broker-metadata-metrics last-applied-record-offset",
     "kafka_controller_kafkacontroller_lastappliedrecordoffset, also of brokers."),
    ("kafka.server:type=broker-metadata-metrics last-applied-record-timestamp", _KRAFT),
    ("kafka.server:type=broker-metadata-metrics last-applied-record-lag-ms", _KRAFT),
    ("kafka.server:type=broker-metadata-metrics metadata-load-error-count",
     "An error ends the node's part in the cluster; /health/ready names it."),
    ("kafka.server:type=broker-metadata-metrics metadata-apply-error-count", "The same."),
)  # fmt: skip
"""Kafka's metrics without a counterpart of the same meaning, and why."""


def documented() -> list[tuple[str, str, str]]:
    """Each of Kafka's metrics: its MBean, our name (empty: none), and why there is none."""
    ours = [(one.kafka, one.name, "") for one in METRICS if one.kafka]
    return sorted([*ours, *((bean, "", why) for bean, why in MISSING)])
