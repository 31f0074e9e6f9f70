"""A topic's settings: Kafka's name, type, default, range, unit, one sentence, broker synonym.

A setting is a class attribute whose name is Kafka's with dots as underscores; its value is
read as `config.segment_bytes` or `config["segment.bytes"]`.  docs/settings.md is rendered
from the same declarations, and so is every error message.
"""

from kafkalog.config.declare import FOREVER, Flag, Long, Ratio, Settings, Whole, Word, Words
from kafkalog.errors import InvalidSetting

__all__ = [
    "HOUR_MS",
    "MINUTE_MS",
    "TopicConfig",
    "compresses",
    "flush_period_ms",
    "timestamp_window",
]

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
_ARRAY_MAX = (1 << 31) - 9
"""The largest array in a JVM that Kafka relies on."""

_TIERED = "Kept for Kafka: kafkalog has no tiered storage."
_COMPACTION = "compaction"
_THROTTLED = {
    "pattern": r"\*|[0-9]+:[0-9]+",
    "example": "partition:broker pairs or *",
}


class TopicConfig(Settings):
    """The settings of a topic, which apply to each of its logs (Kafka's topic configurations)."""

    scope = "topic"

    cleanup_policy = Words(
        ("delete",),
        "What happens to old records: whole segments are deleted (delete), or all but the last "
        "of each key (compact), or both; empty: neither.",
        choices=("compact", "delete"),
        synonym="log.cleanup.policy",
    )
    compression_type = Word(
        "producer",
        "The codec of stored batches; producer: as they came.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonym="compression.type",
    )
    compression_gzip_level = Whole(
        -1,
        "gzip's level; -1: zlib's own default.",
        low=-1,
        high=9,
        never=(0,),
        synonym="compression.gzip.level",
    )
    compression_lz4_level = Whole(
        9, "lz4's level.", low=1, high=17, synonym="compression.lz4.level"
    )
    compression_zstd_level = Whole(
        3, "zstd's level.", low=-131072, high=22, synonym="compression.zstd.level"
    )
    delete_retention_ms = Long(
        86_400_000,
        "How long compaction keeps tombstones and transaction markers.",
        unit="ms",
        low=0,
        synonym="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms = Long(
        60_000,
        "How long a file stays under its .deleted name before it is removed.",
        unit="ms",
        low=0,
        synonym="log.segment.delete.delay.ms",
    )
    flush_messages = Long(
        FOREVER,
        "Appended records after which an append asks for an fsync.",
        unit="records",
        low=1,
        synonym="log.flush.interval.messages",
    )
    flush_ms = Long(
        FOREVER,
        "Longest time that appended records stay only in memory.",
        unit="ms",
        low=0,
        synonym="log.flush.interval.ms",
        also={"log.flush.scheduler.interval.ms": 1},
    )
    follower_replication_throttled_replicas = Words(
        (), "Replicas whose fetching as a follower is throttled.", **_THROTTLED
    )
    leader_replication_throttled_replicas = Words(
        (), "Replicas whose serving as a leader is throttled.", **_THROTTLED
    )
    index_interval_bytes = Whole(
        4096,
        "Bytes of records between two entries of the offset index.",
        unit="bytes",
        low=0,
        synonym="log.index.interval.bytes",
    )
    max_compaction_lag_ms = Long(
        FOREVER,
        "Longest time that a record waits for compaction; compacted topics also roll by it.",
        unit="ms",
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    min_compaction_lag_ms = Long(
        0,
        "Shortest time that a record is kept from compaction.",
        unit="ms",
        low=0,
        synonym="log.cleaner.min.compaction.lag.ms",
    )
    max_message_bytes = Whole(
        1_048_588,
        "Largest record batch as stored, header included.",
        unit="bytes",
        low=0,
        synonym="message.max.bytes",
    )
    max_decompressed_message_bytes = Whole(
        _ARRAY_MAX,
        "Largest record, decompressed, that a producer may send in a compressed batch.",
        unit="bytes",
        low=1,
        high=_ARRAY_MAX,
        synonym="max.decompressed.message.bytes",
    )
    message_timestamp_type = Word(
        "CreateTime",
        "Whether records keep their producer's time or get the time of the append.",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    message_timestamp_before_max_ms = Long(
        FOREVER,
        "How far a producer's time may be before now.",
        unit="ms",
        low=0,
        synonym="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms = Long(
        FOREVER,
        "How far a producer's time may be after now; retention.ms counts from that time.",
        unit="ms",
        low=0,
        synonym="log.message.timestamp.after.max.ms",
        served=HOUR_MS,
    )
    min_cleanable_dirty_ratio = Ratio(
        0.5,
        "Share of uncompacted bytes from which a log is compacted.",
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_insync_replicas = Whole(
        1,
        "In-sync replicas below which acks=all is refused.",
        unit="replicas",
        low=1,
        synonym="min.insync.replicas",
    )
    preallocate = Flag(
        False,
        "Whether a new segment reserves its whole size on disk at once.",
        synonym="log.preallocate",
    )
    retention_bytes = Long(
        -1,
        "Size of a log above which its oldest segments are deleted; below 0: no limit.",
        unit="bytes",
        synonym="log.retention.bytes",
    )
    retention_ms = Long(
        -1,
        "Age of its newest record at which a segment is deleted; -1: no limit.",
        unit="ms",
        low=-1,
        synonym="log.retention.ms",
        also={"log.retention.minutes": MINUTE_MS, "log.retention.hours": HOUR_MS},
        kafka=604_800_000,
    )
    segment_bytes = Whole(
        1_073_741_824,
        "Size at which a segment is closed and a new one begun; of a broker's topic at least "
        "1 MiB, as in Kafka 4, whose internal.segment.bytes is for tests.",
        unit="bytes",
        low=14,
        synonym="log.segment.bytes",
    )
    segment_index_bytes = Whole(
        10_485_760,
        "Largest size of an offset or time index; a full one also ends its segment.",
        unit="bytes",
        low=4,
        synonym="log.index.size.max.bytes",
    )
    segment_jitter_ms = Long(
        0,
        "Largest random time by which segment.ms is shortened, drawn for each segment.",
        unit="ms",
        low=0,
        synonym="log.roll.jitter.ms",
        also={"log.roll.jitter.hours": HOUR_MS},
    )
    segment_ms = Long(
        604_800_000,
        "Time after which an append begins a new segment.",
        unit="ms",
        low=1,
        synonym="log.roll.ms",
        also={"log.roll.hours": HOUR_MS},
    )
    unclean_leader_election_enable = Flag(
        False,
        "Whether a replica that is not in sync may lead, losing records.",
        synonym="unclean.leader.election.enable",
    )
    remote_storage_enable = Flag(False, _TIERED, only=False)
    remote_log_copy_disable = Flag(False, _TIERED)
    remote_log_delete_on_disable = Flag(False, _TIERED)
    remote_copy_lag_ms = Long(0, _TIERED, unit="ms", low=-1, synonym="log.remote.copy.lag.ms")
    remote_copy_lag_bytes = Long(
        -1, _TIERED, unit="bytes", low=-1, synonym="log.remote.copy.lag.bytes"
    )
    local_retention_ms = Long(-2, _TIERED, unit="ms", low=-2, synonym="log.local.retention.ms")
    local_retention_bytes = Long(
        -2, _TIERED, unit="bytes", low=-2, synonym="log.local.retention.bytes"
    )
    errors_deadletterqueue_group_enable = Flag(
        False, "Share groups may write their dead letters to the topic."
    )
    kafkalog_durability = Word(
        "fsync",
        "What acks=all promises: on disk (fsync), on disk later (interval), or in "
        "memory (os, Kafka's rule). An append never waits for the disk, a flush always does.",
        choices=("fsync", "interval", "os"),
        synonym="kafkalog.durability",
    )
    kafkalog_durability_interval_ms = Long(
        1000,
        "Time between the fsyncs of kafkalog.durability=interval where flush.ms is longer.",
        unit="ms",
        low=1,
        synonym="kafkalog.durability.interval.ms",
    )
    kafkalog_check_compressed = Flag(
        False,
        "Check every record of every compressed batch, as Kafka does; else only if another "
        "setting or an implausible header requires it.",
        synonym="kafkalog.check.compressed",
    )
    kafkalog_max_decompressed_bytes = Whole(
        268_435_456,
        "Largest size of one compressed batch when decompressed; a larger one is refused.",
        unit="bytes",
        low=1,
        synonym="kafkalog.max.decompressed.bytes",
    )

    @classmethod
    def served(cls) -> "TopicConfig":
        """A broker's defaults: any client may write to it, but not to a bare log."""
        made = cls()
        made._values = {setting.name: setting.served for setting in cls.table.values()}
        return made

    @classmethod
    def _hint(cls, name: str) -> str:
        for setting in cls.table.values():
            if name == setting.synonym or name in setting.also:
                return f"it is the broker's name of {setting.name}"
        return super()._hint(name)

    def _check(self) -> None:
        low, high = self.min_compaction_lag_ms, self.max_compaction_lag_ms
        if low > high:
            raise InvalidSetting(
                f"min.compaction.lag.ms: found {low}, wanted at most max.compaction.lag.ms, {high}"
            )


def timestamp_window(config: TopicConfig) -> tuple[int, int]:
    """How far a producer's time may be before and after now, in ms; FOREVER: no limit."""
    return config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms


def flush_period_ms(config: TopicConfig) -> int:
    """The longest time that a log's records may stay only in memory; FOREVER: no limit."""
    if config.kafkalog_durability == "interval":
        return min(config.flush_ms, config.kafkalog_durability_interval_ms)
    return config.flush_ms


def compresses(config: TopicConfig) -> bool:
    """True if the topic has its own codec for appended batches."""
    return config.compression_type not in ("producer", "uncompressed")
