"""The metrics of connections, requests and topics."""

from __future__ import annotations

from kafkalog.metrics.metric import Metric, counter, gauge, histogram

__all__ = ["NETWORK", "TOPICS"]

_REQUESTS = "kafka.network:type=RequestMetrics,name="
_TOPICS = "kafka.server:type=BrokerTopicMetrics,name="
_SOCKETS = "kafka.server:type=socket-server-metrics"
_SESSIONS = "kafka.server:type=FetchSessionCache,name="
_MANY = "Find the client by its quota metrics or its log; set quotas (docs/security.md)."


def _phase(name: str, kafka: str, text: str, remedy: str) -> Metric:
    return histogram(f"kafka_network_requestmetrics_{name}", "ms", ["request"], text, remedy,
                     f"{_REQUESTS}{kafka}")  # fmt: skip


NETWORK = (
    counter("kafka_network_requestmetrics_requests_total", "", ["request"],
            "Requests by API. Kafka also has a label of the version, and counts Fetch as "
            "FetchConsumer and FetchFollower.", "", f"{_REQUESTS}RequestsPerSec"),
    counter("kafka_network_requestmetrics_errors_total", "", ["request", "error"],
            "Error codes in answers by API, NONE included: each partition's, group's or topic's "
            "counts. Long lists that are encoded piece by piece (Metadata) count as NONE.",
            "Look up the error in Kafka's list, and the broker's log.",
            f"{_REQUESTS}ErrorsPerSec"),
    _phase("totaltimems", "TotalTimeMs", "From the last byte of a request received to the last "
           "byte of its answer sent.", "See which phase below takes the time."),
    _phase("requestqueuetimems", "RequestQueueTimeMs", "Waiting for a thread.",
           "More num.network.threads or num.io.threads, or fewer requests."),
    _phase("localtimems", "LocalTimeMs", "Work of the thread.",
           "A slow disk (see the page cache and its write-back), or large requests."),
    _phase("remotetimems", "RemoteTimeMs", "Waiting for followers, the disk, new records or "
           "other requests; in Python also for the threads of large requests.",
           "Of Produce: slow followers or syncs. Of Fetch: fetch.max.wait.ms, nothing bad."),
    _phase("responsequeuetimems", "ResponseQueueTimeMs", "The answer waits to be sent.",
           "Clients that read slowly, or too few num.network.threads."),
    _phase("responsesendtimems", "ResponseSendTimeMs", "Sending the answer.",
           "A slow network or client; cold records that come from the disk."),
    gauge("kafka_network_requestchannel_requestqueuesize", "", [],
          "Requests that wait for an I/O thread.", "More num.io.threads.",
          "kafka.network:type=RequestChannel,name=RequestQueueSize"),
    counter("kafkalog_request_queue_full_total", "", [],
            "Requests that found no room in that queue.",
            "More num.io.threads, or a larger queued.max.requests."),
    counter("kafkalog_requests_fast_total", "", [],
            "Requests that were answered without Python: Produce, Fetch, and heartbeats of "
            "consumer groups that say what the ones before them said."),
    gauge("kafka_network_socketserver_networkprocessoravgidlepercent", "share", [],
          "Share of time that the network threads wait, since the start.",
          "Below 0.3: more num.network.threads.",
          "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"),
    gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "share", [],
          "Share of time that the I/O threads wait, since the start.",
          "Below 0.3: more num.io.threads.",
          "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"),
    counter("kafkalog_thread_idle_seconds_total", "s", ["threads"],
            "Time that threads of a kind (network, io) wait; for a rate."),
    counter("kafkalog_thread_seconds_total", "s", ["threads"],
            "All time of these threads, up to their last request."),
    gauge("kafkalog_network_threads", "", [], "Network threads, ending ones included."),
    gauge("kafka_server_delayedoperationpurgatory_purgatorysize", "", ["delayedOperation"],
          "Requests that wait: Produce for the disk or followers, Fetch for records.", "",
          "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize"),
    gauge("kafka_server_socket_server_metrics_connection_count", "", ["listener"],
          "Connections now.", _MANY, f"{_SOCKETS} connection-count"),
    counter("kafkalog_connections_accepted_total", "", [], "Connections accepted.", _MANY),
    counter("kafkalog_connections_refused_total", "", ["reason"],
            "Connections refused: `count`, an address had max.connections.per.ip; `rate`, it "
            "came too fast.", _MANY),
    counter("kafkalog_connections_closed_total", "", ["reason"],
            "Connections closed by the broker: `idle`; `half_frame`, a request that did not "
            "end; `garbage`, no request; `unauthenticated`, too late or too many, also a "
            "session that has expired.",
            "Look for clients that hang, or are no Kafka clients.",
            "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount"),
    counter("kafkalog_accept_pauses_total", "", [],
            "Pauses of 100 ms without a descriptor or memory for a new connection.",
            "Raise the limit of open files (ulimit -n)."),
    counter("kafka_server_socket_server_metrics_failed_authentication_total", "", ["listener"],
            "Connections whose SASL authentication failed.",
            "Look for wrong passwords, and for attacks, in the log.",
            f"{_SOCKETS} failed-authentication-total"),
    counter("kafka_server_socket_server_metrics_successful_authentication_total", "",
            ["listener"], "Connections that authenticated by SASL.", "",
            f"{_SOCKETS} successful-authentication-total"),
    counter("kafkalog_tls_handshakes_total", "", ["result"], "TLS handshakes: ok, failed.",
            "See the reasons in the log."),
    counter("kafkalog_network_bytes_total", "bytes", ["direction"],
            "Bytes on all connections, in and out, before encryption."),
    gauge("kafkalog_network_buffer_bytes", "bytes", [],
          "Memory of requests and answers, free memory included.",
          "A smaller queued.max.request.bytes."),
    counter("kafkalog_throttled_answers_total", "", [],
            "Answers after which a client had to wait for its quota.",
            "Raise the quota, or look for the client that needs so much."),
    counter("kafkalog_throttled_seconds_total", "s", [], "How long, together."),
    counter("kafkalog_cold_reads_total", "", [],
            "Pieces of answers that had to come from the disk.",
            "Consumers read old records; more memory keeps more in the page cache."),
    gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "", [],
          "Incremental fetch sessions.", "", f"{_SESSIONS}NumIncrementalFetchSessions"),
    gauge("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", "", [],
          "Partitions in them.", "", f"{_SESSIONS}NumIncrementalFetchPartitionsCached"),
    counter("kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", "", [],
            "Sessions that made room for others.",
            "A larger max.incremental.fetch.session.cache.slots.",
            f"{_SESSIONS}IncrementalFetchSessionEvictionsPerSec"),
)  # fmt: skip


def _topic(name: str, kafka: str, unit: str, text: str, remedy: str = "") -> Metric:
    return counter(f"kafka_server_brokertopicmetrics_{name}_total", unit, ["topic"], text, remedy,
                   f"{_TOPICS}{kafka}")  # fmt: skip


TOPICS = (
    _topic("messagesin", "MessagesInPerSec", "records", "Records appended by producers, and by "
           "the broker to its own topics."),
    _topic("bytesin", "BytesInPerSec", "bytes", "Bytes of their batches."),
    _topic("bytesout", "BytesOutPerSec", "bytes", "Bytes of records sent to consumers."),
    _topic("totalproducerequests", "TotalProduceRequestsPerSec", "",
           "Appends to partitions that reached the log, of any producer."),
    _topic("failedproducerequests", "FailedProduceRequestsPerSec", "",
           "Those that were refused.", "See the errors of Produce by code."),
    _topic("totalfetchrequests", "TotalFetchRequestsPerSec", "",
           "Partitions in answers to consumers' Fetch; those of a session without news are in "
           "none. Kafka counts each look, also of followers."),
    _topic("failedfetchrequests", "FailedFetchRequestsPerSec", "", "Those with an error.",
           "See the errors of Fetch by code."),
    counter("kafka_server_brokertopicmetrics_replicationbytesin_total", "bytes", [],
            "Bytes of records that this node got from leaders.", "",
            f"{_TOPICS}ReplicationBytesInPerSec"),
    counter("kafka_server_brokertopicmetrics_replicationbytesout_total", "bytes", [],
            "Bytes of records sent to followers.", "",
            f"{_TOPICS}ReplicationBytesOutPerSec"),
)  # fmt: skip
