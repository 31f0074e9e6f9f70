"""The metrics of logs and their directory."""

from __future__ import annotations

from kafkalog.metrics.metric import Metric, gauge, histogram

__all__ = ["STORAGE"]


def _log(name: str, kafka: str, unit: str, text: str) -> Metric:
    return gauge(f"kafka_log_log_{name}", unit, ["topic", "partition"], text, "",
                 f"kafka.log:type=Log,name={kafka}")  # fmt: skip


STORAGE = (
    _log("size", "Size", "bytes", "Bytes of the log's segments. Only open logs are here: a log "
         "is opened when it is first used."),
    _log("numlogsegments", "NumLogSegments", "", "Segments of the log."),
    _log("logstartoffset", "LogStartOffset", "offset", "The first offset of the log."),
    _log("logendoffset", "LogEndOffset", "offset", "The offset of its next record."),
    gauge("kafkalog_log_high_watermark", "offset", ["topic", "partition"],
          "The offset up to which consumers see its records."),
    gauge("kafkalog_log_unflushed_records", "records", ["topic", "partition"],
          "Offsets that are not known to be on disk.",
          "Grows without end: the disk is too slow, or flush.messages is too large."),
    histogram("kafka_log_logflushstats_logflushrateandtimems", "ms", [],
              "Rounds of syncs of all logs of the process; one serves all who wait for it.",
              "A slow disk, or one that others use.",
              "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"),
    gauge("kafkalog_partitions", "", [], "Partitions in the data directory."),
    gauge("kafkalog_logs_open", "", [], "Those whose logs are open."),
    gauge("kafkalog_log_bytes", "bytes", [], "Bytes of all open logs.",
          "Set retention.ms or retention.bytes of the largest topics."),
    gauge("kafkalog_disk_free_bytes", "bytes", [],
          "Bytes that the file system of the data directory has left.",
          "Delete records (kafkalog topics, retention) before the disk is full."),
    gauge("kafkalog_logs_offline", "", [],
          "Open logs whose disk has failed; they stay offline until a restart.",
          "Check the disk, then restart.",
          "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"),
    gauge("kafkalog_recovered_segments", "", [],
          "Segments of the open logs whose batches were read when the log was opened, after a "
          "crash."),
    gauge("kafkalog_recovered_truncated_bytes", "bytes", [],
          "Bytes that were cut from the open logs then: the torn end of the last write.",
          "More than a batch per log: the disk lost what it had confirmed."),
    gauge("kafkalog_background_failures", "", [],
          "Damaged files that were ignored, and background jobs (retention, flushes, "
          "checkpoints, compaction) whose last run failed.",
          "See the log; `kafkalog verify` checks files."),
    gauge("kafka_server_replicamanager_produceridcount", "", [],
          "Producer ids that the open logs remember.",
          "A shorter producer.id.expiration.ms; look for clients that make new producers "
          "all the time.", "kafka.server:type=ReplicaManager,name=ProducerIdCount"),
)  # fmt: skip
