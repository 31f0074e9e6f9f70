"""Every setting once: Kafka's name, type, default, range, unit, one sentence, broker synonym.

A setting is a class attribute whose name is Kafka's with dots as underscores; its value is
read as `config.segment_bytes` or `config["segment.bytes"]`.  docs/settings.md is rendered
from the same declarations, and so is every error message.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any

from kafkalog.config.declare import (
    FOREVER,
    Flag,
    Long,
    Rate,
    Ratio,
    Setting,
    Settings,
    Whole,
    Word,
    Words,
    markdown_table,
)
from kafkalog.errors import InvalidSetting

__all__ = [
    "FOREVER",
    "BrokerConfig",
    "GroupConfig",
    "TopicConfig",
    "parse_properties",
    "render_markdown",
]

MINUTE_MS, HOUR_MS = 60_000, 3_600_000

_TIERED = "Kept for Kafka: kafkalog has no tiered storage."
_COMPACTION = "compaction"
_THROTTLED = {
    "pattern": r"\*|[0-9]+:[0-9]+",
    "example": "partition:broker pairs or *",
}


class TopicConfig(Settings):
    """The settings of a topic, that is of each of its logs (Kafka's topic configurations)."""

    scope = "topic"

    cleanup_policy = Words(
        ("delete",),
        "What happens to old records: whole segments go (delete), or all but the last of each "
        "key (compact), or both; empty: neither.",
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
        "Largest record batch, header included, as it is stored.",
        unit="bytes",
        low=0,
        synonym="message.max.bytes",
    )
    message_downconversion_enable = Flag(
        True,
        "Kept for Kafka, which removed it in 4.0: kafkalog never converts batches down.",
        synonym="log.message.downconversion.enable",
    )
    message_format_version = Word(
        "3.0-IV1",
        "Kept for Kafka, which ignores it since 3.0: batches are written as version 2.",
        synonym="log.message.format.version",
    )
    message_timestamp_type = Word(
        "CreateTime",
        "Whether records keep their producer's time or get the time of the append.",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    message_timestamp_difference_max_ms = Long(
        FOREVER,
        "The limit of the next two where they are not given; removed in Kafka 4.0.",
        unit="ms",
        low=0,
        synonym="log.message.timestamp.difference.max.ms",
    )
    message_timestamp_before_max_ms = Long(
        FOREVER,
        "How far a producer's time may lie before now.",
        unit="ms",
        low=0,
        synonym="log.message.timestamp.before.max.ms",
    )
    message_timestamp_after_max_ms = Long(
        FOREVER,
        "How far a producer's time may lie after now (Kafka 4: one hour).",
        unit="ms",
        low=0,
        synonym="log.message.timestamp.after.max.ms",
    )
    min_cleanable_dirty_ratio = Ratio(
        0.5,
        "Share of not yet compacted bytes from which a log is compacted.",
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_insync_replicas = Whole(
        1,
        "Replicas in sync without which acks=all is refused.",
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
        "Size of a log above which its oldest segments go; -1: no limit.",
        unit="bytes",
        low=-1,
        synonym="log.retention.bytes",
    )
    retention_ms = Long(
        -1,
        "Age of its newest record at which a segment goes; -1: no limit.",
        unit="ms",
        low=-1,
        synonym="log.retention.ms",
        also={"log.retention.minutes": MINUTE_MS, "log.retention.hours": HOUR_MS},
        kafka=604_800_000,
    )
    segment_bytes = Whole(
        1_073_741_824,
        "Size at which a segment is closed and a new one begun (Kafka 4: at least 1 MiB).",
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
        "Whether a replica that is not in sync may lead, at the price of lost records.",
        synonym="unclean.leader.election.enable",
    )
    remote_storage_enable = Flag(False, _TIERED)
    remote_log_copy_disable = Flag(False, _TIERED)
    remote_log_delete_on_disable = Flag(False, _TIERED)
    local_retention_ms = Long(-2, _TIERED, unit="ms", low=-2, synonym="log.local.retention.ms")
    local_retention_bytes = Long(
        -2, _TIERED, unit="bytes", low=-2, synonym="log.local.retention.bytes"
    )
    kafkalog_durability = Word(
        "fsync",
        "What acks=all promises: on disk (fsync), on disk after a while (interval), or in "
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
    kafkalog_max_decompressed_bytes = Whole(
        268_435_456,
        "Largest size to which one compressed batch may grow; a larger one is refused.",
        unit="bytes",
        low=1,
        synonym="kafkalog.max.decompressed.bytes",
    )

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


class BrokerConfig(Settings):
    """The settings of a data directory; `topic` holds the defaults that they give its topics."""

    scope = "broker"

    log_retention_check_interval_ms = Long(
        300_000, "Time between two looks for segments to delete.", unit="ms", low=1
    )
    log_initial_task_delay_ms = Long(
        30_000, "Time from the start to the first run of each periodic job.", unit="ms", low=0
    )
    log_flush_scheduler_interval_ms = Long(
        FOREVER, "Time between two looks for logs whose flush.ms is over.", unit="ms", low=1
    )
    log_flush_offset_checkpoint_interval_ms = Whole(
        60_000, "Time between two writes of recovery-point-offset-checkpoint.", unit="ms", low=1
    )
    log_flush_start_offset_checkpoint_interval_ms = Whole(
        60_000, "Time between two writes of log-start-offset-checkpoint.", unit="ms", low=1
    )
    replica_high_watermark_checkpoint_interval_ms = Long(
        5_000, "Time between two writes of replication-offset-checkpoint.", unit="ms", low=1
    )
    num_recovery_threads_per_data_dir = Whole(
        1, "Threads that open logs after a crash and flush them at the end.", low=1
    )
    producer_id_expiration_ms = Whole(
        86_400_000, "Time after which an idle producer's sequence is forgotten.", unit="ms", low=1
    )
    producer_id_expiration_check_interval_ms = Whole(
        600_000, "Time between two looks for idle producers.", unit="ms", low=1
    )
    log_cleaner_enable = Flag(True, "Compact in the background the logs whose policy says so.")
    log_cleaner_backoff_ms = Long(
        15_000, "Time between two looks for logs to compact, when there are none.", unit="ms", low=0
    )
    log_cleaner_dedupe_buffer_size = Long(
        134_217_728,
        "Memory for the keys of one round of compaction, 24 bytes each.",
        unit="bytes",
        low=1,
    )
    log_cleaner_io_buffer_load_factor = Ratio(0.9, "How full that memory may become.")
    log_cleaner_io_max_bytes_per_second = Rate(
        sys.float_info.max, "Bytes that compaction reads and writes in a second.", unit="bytes"
    )
    metadata_log_max_record_bytes_between_snapshots = Long(
        20_971_520, "Bytes of metadata records after which a snapshot is due.", unit="bytes", low=1
    )
    metadata_log_max_snapshot_interval_ms = Long(
        3_600_000,
        "Time after which the next metadata record brings a snapshot; 0: only their bytes do.",
        unit="ms",
        low=0,
    )
    metadata_max_retention_bytes = Long(
        104_857_600,
        "Size of the metadata log above which a snapshot cuts off what it replaces.",
        unit="bytes",
        low=0,
    )
    kafkalog_max_open_files = Long(
        0,
        "Files of all logs of the process that may be open at once; 0: half of its limit.",
        unit="files",
        low=0,
    )

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.topic = TopicConfig()
        """The topics' defaults: every broker synonym that was given."""
        super().__init__(given)

    def _take(self, given: Mapping[str, object]) -> None:
        synonyms = {name for s in TopicConfig.table.values() for name in (s.synonym, *s.also)}
        super()._take({n: v for n, v in given.items() if n in self.table or n not in synonyms})
        topic: dict[str, object] = {}
        for setting in TopicConfig.table.values():
            names = [setting.synonym, *setting.also]
            named = [name for name in names if given.get(name) is not None]
            if named:
                topic[setting.name] = _converted(setting, named[0], given[named[0]])
        self.topic = TopicConfig.of(topic, self.topic)

    def _inherit(self, defaults: Settings) -> None:
        super()._inherit(defaults)
        assert isinstance(defaults, BrokerConfig)
        self.topic = defaults.topic

    def _explicit(self) -> dict[str, object]:
        table, found = TopicConfig.table, super()._explicit()
        of_topics = {table[name].synonym: value for name, value in self.topic._explicit().items()}
        return {**of_topics, **found}

    @classmethod
    def names(cls) -> list[str]:
        synonyms = [n for s in TopicConfig.table.values() for n in (s.synonym, *s.also) if n]
        return list(dict.fromkeys([*cls.table, *synonyms]))


class GroupConfig(Settings):
    """The settings of the group coordinator; a broker takes them with its own."""

    scope = "broker"

    group_initial_rebalance_delay_ms = Whole(
        3_000,
        "Time that an empty group waits for more members before its first generation; each "
        "new one lets it wait anew, up to the members' rebalance timeout.",
        unit="ms",
        low=0,
    )
    group_min_session_timeout_ms = Whole(
        6_000, "Shortest session timeout that a member may ask for.", unit="ms", low=1
    )
    group_max_session_timeout_ms = Whole(
        1_800_000, "Longest session timeout that a member may ask for.", unit="ms", low=1
    )
    group_max_size = Whole(2_147_483_647, "Members of a group.", unit="members", low=1)
    offset_metadata_max_bytes = Whole(
        4_096, "Longest text that is kept with a committed offset.", unit="characters", low=0
    )
    offsets_commit_timeout_ms = Whole(
        5_000, "How long a commit may wait for __consumer_offsets.", unit="ms", low=1
    )
    offsets_retention_minutes = Whole(
        10_080,
        "How long offsets are kept after their group lost its last member or, without "
        "members, after the commit.",
        unit="minutes",
        low=1,
    )
    offsets_retention_check_interval_ms = Long(
        600_000, "Time between two looks for offsets to forget.", unit="ms", low=1
    )


def _converted(setting: Setting[Any], name: str, found: object) -> object:
    """The value of `setting` that the broker's setting `name` means."""
    factor = setting.also.get(name, 1)
    if factor == 1:
        return setting.checked(found, name)
    try:
        count = Whole(0, "").parse(found)
        # Kafka reads any negative number of hours as "no limit".
        return setting.parse(count * factor if count >= 0 else -1)
    except (ValueError, TypeError):
        raise InvalidSetting(
            f"{name}: found {found!r}, wanted an int; {factor} times it is {setting.name}, "
            f"{setting.wanted()}"
        ) from None


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a Java properties text (meta.properties, server.properties).

    Lines join over a trailing backslash, `#` and `!` begin comments, `=`, `:` or a blank ends
    a key, and \\uXXXX, \\t, \\n, \\r, \\f are characters.  A later key replaces an earlier one.
    """
    escapes = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def plain(word: str) -> str:
        return re.sub(
            r"\\(u[0-9a-fA-F]{4}|.)",
            lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else escapes.get(m[1], m[1]),
            word,
        )

    found: dict[str, str] = {}
    lines = re.sub(r"(?m)^[ \t\f]*[#!].*$", "", text.replace("\r\n", "\n").replace("\r", "\n"))
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*", r"\1", lines)
    for line in joined.split("\n"):
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line.lstrip(" \t\f"))
        if match and (match[1] or match[2]):
            found[plain(match[1])] = plain(match[2])
    return found


def render_markdown() -> str:
    """docs/settings.md: every setting as a table row."""
    return "\n".join(
        [
            "# Settings",
            "",
            "Rendered from `kafkalog/config/` by `make docs`; do not edit. Names, types and",
            "meanings are Kafka's; those that begin with `kafkalog.` are ours. Values are text, as",
            "in a properties file, or Python's own. An unknown name is refused with the nearest",
            "known one, a wrong value with what was wanted.",
            "",
            "Nothing is deleted unless a setting says so: `retention.ms` and `retention.bytes`",
            "have no limit until they are given (Kafka deletes after seven days).",
            "",
            "## Topic settings",
            "",
            "Taken by `Log(path, config={...})`, and per topic by a data directory. A data",
            "directory takes the broker's names, too: they give the defaults of all its topics.",
            "",
            *markdown_table(TopicConfig, True),
            "",
            "## Broker settings",
            "",
            "Taken by a data directory.",
            "",
            *markdown_table(BrokerConfig, False),
            "",
        ]
    )
