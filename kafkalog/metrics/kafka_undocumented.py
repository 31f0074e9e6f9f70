"""The MBeans that a broker or a controller of Apache Kafka 4.4 has and its documentation does not
name: the metric here with the same meaning, or why there is none.

A name that ends with `*` stands for all that begin so, a type that begins with `*` for all that end
so.
"""

from __future__ import annotations

__all__ = ["UNDOCUMENTED"]

_CONTROLLER = "kafka.controller:type=KafkaController,name="
_COORDINATOR = "kafka.server:type=group-coordinator-metrics "
_LOADER = "kafka.server:type=MetadataLoader,name="
_QUORUM = "kafka.server:type=raft-metrics "
_SOCKETS = "kafka.server:type=socket-server-metrics "
_ACCEPTED = "kafkalog_connections_accepted_total"
_CHANNEL = "One client inside the broker; the node that it asks counts its requests."
_CLEANING = "Compaction is not timed; kafkalog_background_failures counts what failed."
_EXPIRED = "Not counted; kafka_network_requestmetrics_remotetimems shows how long requests wait."
_FETCHERS = "Not counted; kafkalog_follower_lag_records rises at the leader."
_LATE = "kafkalog_transactions by state: one stays in PrepareCommit or PrepareAbort."
_LEVELS = "kafkalog features describe shows it."
_MOVING = "A node has one directory: nothing moves between two."
_POOL = "kafkalog_network_buffer_bytes"
_QUEUED = "Throttled clients wait on their own; kafkalog_throttled_answers_total counts answers."
_REPEATED = "Logins that renew a session are counted with the others."
_ROUNDS = "The coordinator is one thread that answers in rounds; its phases are in " \
          "kafka_network_requestmetrics_*."  # fmt: skip
_SELECTOR = "Java's selector; kafkalog_network_bytes_total has bytes, " \
            "kafkalog_thread_idle_seconds_total idle time."  # fmt: skip
_SYSTEM = "The system has it, in /proc/PID/io."
_VOTERS = "kafkalog quorum describe shows it."

UNDOCUMENTED: tuple[tuple[str, str], ...] = (
    ("kafka:type=kafka.Log4jController,name=Loggers", "Levels of the log are Python's."),
    ("kafka.cluster:type=Partition,name=*",
     "Series of each partition would have no bound; kafka_server_replicamanager_* have the sums, "
     "kafkalog cluster status names the partitions."),
    ("kafka.controller:type=ControllerEventManager,name=AvgIdleRatio", "Not timed."),
    (f"{_CONTROLLER}BrokerRegistrationState",
     "kafkalog cluster endpoints --include-fenced-brokers shows each."),
    (f"{_CONTROLLER}ControlledShutdownBrokerCount", "Not counted."),
    (f"{_CONTROLLER}IgnoredStaticVoters", _VOTERS),
    (f"{_CONTROLLER}TimeSinceLastHeartbeatReceivedMs",
     "Not shown; kafka_controller_kafkacontroller_fencedbrokercount has those that are late."),
    ("kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=*", _LATE),
    ("kafka.log:type=Log,name=RetentionSizeInPercent",
     "kafka_log_log_size, divided by the topic's retention.bytes."),
    ("kafka.log:type=LogCleaner,name=*", _CLEANING),
    ("kafka.log:type=LogCleanerManager,name=*", _CLEANING),
    ("kafka.log:type=LogManager,name=CordonedLogDirectoryCount",
     "A setting: kafkalog configs shows cordoned.log.dirs."),
    ("kafka.log:type=LogManager,name=LogDirectoryCordoned", "The same."),
    ("kafka.network:type=Acceptor,name=AcceptorBlockedPercent",
     "kafkalog_accept_pauses_total has the pauses."),
    ("kafka.network:type=Processor,name=IdlePercent",
     "kafka_network_socketserver_networkprocessoravgidlepercent has the mean of the threads."),
    ("kafka.network:type=RequestChannel,name=ResponseQueueSize",
     "kafka_network_requestmetrics_responsequeuetimems has how long answers wait."),
    ("kafka.network:type=RequestMetrics,name=ThrottleTimeMs", "kafkalog_throttled_seconds_total"),
    ("kafka.network:type=SocketServer,name=MemoryPoolAvailable", _POOL),
    ("kafka.network:type=SocketServer,name=MemoryPoolUsed", _POOL),
    *((f"kafka.server:type={name} *", _CHANNEL) for name in (
        "*-channel-metrics", "alter-partition-metrics", "directory-assignments-metrics",
        "forwarding-metrics", "heartbeat-metrics", "registration-metrics",
        "replica-fetcher-metrics",
    )),
    ("kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments", _MOVING),
    ("kafka.server:type=BrokerMetadataListener,name=*",
     "Not timed; kafka_controller_kafkacontroller_lastappliedrecordoffset shows how far."),
    ("kafka.server:type=ControllerMutation queue-size", _QUEUED),
    ("kafka.server:type=ControllerServer,name=ClusterId", "kafkalog_node_info"),
    ("kafka.server:type=ControllerServer,name=linux-disk-*", _SYSTEM),
    ("kafka.server:type=ControllerServer,name=yammer-metrics-count", "A figure of Java's library."),
    ("kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec", _EXPIRED),
    ("kafka.server:type=DelayedProduceMetrics,name=ExpiresPerSec", _EXPIRED),
    ("kafka.server:type=DelayedShareFetchMetrics,name=ExpiresPerSec", _EXPIRED),
    ("kafka.server:type=DelayedOperationPurgatory,name=NumDelayedOperations",
     "kafka_server_delayedoperationpurgatory_purgatorysize has those that wait."),
    ("kafka.server:type=FetcherStats,name=BytesPerSec",
     "kafka_server_brokertopicmetrics_replicationbytesin_total"),
    ("kafka.server:type=FetcherStats,name=RequestsPerSec",
     "kafka_network_requestmetrics_requests_total, at the leaders."),
    ("kafka.server:type=LeaderReplication byte-rate",
     "kafka_server_brokertopicmetrics_replicationbytesout_total, of all replicas."),
    ("kafka.server:type=ForwardingManager,name=*",
     "kafka_network_requestmetrics_remotetimems, of the API that is forwarded."),
    ("kafka.server:type=KafkaRequestHandlerPool,name=BrokerRequestHandlerAvgIdlePercent",
     "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent has all."),
    ("kafka.server:type=KafkaRequestHandlerPool,name=ControllerRequestHandlerAvgIdlePercent",
     "The same."),
    ("kafka.server:type=KafkaServer,name=BrokerState", "kafkalog_ready"),
    ("kafka.server:type=KafkaServer,name=ClusterId", "kafkalog_node_info"),
    ("kafka.server:type=KafkaServer,name=linux-disk-*", _SYSTEM),
    ("kafka.server:type=KafkaServer,name=yammer-metrics-count", "A figure of Java's library."),
    (f"{_LOADER}AvgIdleRatio", "Not timed."),
    (f"{_LOADER}CurrentControllerId", "kafka_server_raft_metrics_current_leader"),
    (f"{_LOADER}FinalizedLevel", _LEVELS),
    ("kafka.server:type=ReplicaAlterLogDirsManager,name=*", _MOVING),
    ("kafka.server:type=ReplicaFetcherManager,name=DeadThreadCount", _FETCHERS),
    ("kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount", _FETCHERS),
    ("kafka.server:type=ReplicaFetcherManager,name=MinFetchRate", _FETCHERS),
    ("kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
     "kafkalog_transaction_open_seconds; kafkalog transactions find-hanging names them."),
    ("kafka.server:type=app-info *", "kafkalog_node_info, kafkalog_start_time_seconds"),
    ("kafka.server:type=broker-metadata-metrics ignored-static-voters", _VOTERS),
    ("kafka.server:type=client-metrics *",
     "kafka_network_requestmetrics_requests_total of GetTelemetrySubscriptions and PushTelemetry."),
    (f"{_COORDINATOR}background-*", _ROUNDS),
    (f"{_COORDINATOR}batch-buffer-cache-*", _ROUNDS),
    (f"{_COORDINATOR}classic-group-count",
     "kafka_coordinator_group_groupmetadatamanager_numgroups"),
    (f"{_COORDINATOR}offset-count", "kafka_coordinator_group_groupmetadatamanager_numoffsets"),
    (f"{_COORDINATOR}streams-group-topology-description-*",
     "Not counted; the requests by API and error code show it."),
    ("kafka.server:type=kafka-metrics-count count", "A figure of Java's library."),
    ("kafka.server:type=node-metrics *", _LEVELS),
    (f"{_QUORUM}current-vote-directory-id", _VOTERS),
    (f"{_QUORUM}log-end-epoch", "kafka_server_raft_metrics_current_epoch, once the leader writes."),
    (f"{_QUORUM}number-of-observers", _VOTERS),
    (f"{_QUORUM}number-of-voters", _VOTERS),
    (f"{_QUORUM}uncommitted-voter-change", _VOTERS),
    (f"{_SOCKETS}MemoryPool*", _POOL),
    (f"{_SOCKETS}broker-connection-accept-rate", _ACCEPTED),
    (f"{_SOCKETS}connection-accept-rate", _ACCEPTED),
    (f"{_SOCKETS}connection-accept-throttle-time",
     "kafkalog_connections_refused_total, with the reason `rate`."),
    (f"{_SOCKETS}ip-connection-accept-throttle-time", "The same."),
    (f"{_SOCKETS}connection-close-*",
     "kafkalog_connections_closed_total has those that the broker closed, by reason."),
    (f"{_SOCKETS}connection-creation-*", _ACCEPTED),
    (f"{_SOCKETS}connections", "Clients' software is not counted."),
    (f"{_SOCKETS}expired-connections-killed-count",
     "kafkalog_connections_closed_total, with the reason `unauthenticated`."),
    (f"{_SOCKETS}failed-authentication-rate",
     "The rate of kafka_server_socket_server_metrics_failed_authentication_total."),
    (f"{_SOCKETS}failed-reauthentication-*", _REPEATED),
    (f"{_SOCKETS}incoming-byte-*", "kafkalog_network_bytes_total"),
    (f"{_SOCKETS}outgoing-byte-*", "kafkalog_network_bytes_total"),
    (f"{_SOCKETS}io-*", _SELECTOR),
    (f"{_SOCKETS}network-io-*", _SELECTOR),
    (f"{_SOCKETS}reauthentication-latency-*", _REPEATED),
    (f"{_SOCKETS}request-*", "kafka_network_requestmetrics_requests_total"),
    (f"{_SOCKETS}response-*", "kafka_network_requestmetrics_requests_total"),
    (f"{_SOCKETS}select-*", _SELECTOR),
    (f"{_SOCKETS}successful-authentication-no-reauth-total", _REPEATED),
    (f"{_SOCKETS}successful-authentication-rate",
     "The rate of kafka_server_socket_server_metrics_successful_authentication_total."),
    (f"{_SOCKETS}successful-reauthentication-*", _REPEATED),
    ("kafka.utils:type=Throttler,name=cleaner-io",
     "log.cleaner.io.max.bytes.per.second bounds it."),
)  # fmt: skip
"""(MBean and its name or attribute, text)."""
