"""A data directory's settings, and the defaults that they give its topics."""

import sys
from collections.abc import Mapping
from typing import Any

from kafkalog.config.declare import FOREVER, Flag, Long, Rate, Ratio, Setting, Settings, Whole
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import InvalidSetting

__all__ = ["BrokerConfig"]


class BrokerConfig(Settings):
    """The settings of a data directory; `topic` holds the defaults that they give its topics."""

    scope = "broker"

    log_retention_check_interval_ms = Long(
        300_000, "Time between two checks for segments to delete.", unit="ms", low=1
    )
    log_initial_task_delay_ms = Long(
        30_000, "Time from the start to the first run of each periodic job.", unit="ms", low=0
    )
    log_flush_scheduler_interval_ms = Long(
        FOREVER, "Time between two checks for logs whose flush.ms is over.", unit="ms", low=1
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
        1, "Threads that open logs after a crash and flush them at the end.", low=1, kafka=2
    )
    producer_id_expiration_ms = Whole(
        86_400_000, "Time after which an idle producer's sequence is forgotten.", unit="ms", low=1
    )
    producer_id_expiration_check_interval_ms = Whole(
        600_000, "Time between two checks for idle producers.", unit="ms", low=1
    )
    log_cleaner_enable = Flag(True, "Compact in the background the logs whose policy says so.")
    log_cleaner_backoff_ms = Long(
        15_000,
        "Time between two checks for logs to compact, when there are none.",
        unit="ms",
        low=0,
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
        "Time after which the next metadata record triggers a snapshot; 0: only their bytes do.",
        unit="ms",
        low=0,
    )
    metadata_max_retention_bytes = Long(
        104_857_600,
        "Size of the metadata log above which a snapshot truncates the log it replaces.",
        unit="bytes",
        low=0,
    )
    kafkalog_max_open_files = Long(
        0,
        "Files of all logs of the process that may be open at the same time; 0: half of its limit.",
        unit="files",
        low=0,
    )

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.topic = self.topic_defaults()
        """The topics' defaults: every broker synonym that was set."""
        super().__init__(given)

    @classmethod
    def topic_defaults(cls) -> TopicConfig:
        """The settings of topics without their own."""
        return TopicConfig()

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
