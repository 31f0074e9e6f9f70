"""The settings of a consumer, by the names of Kafka's clients."""

import re

from kafkalog.config.client import ClientConfig
from kafkalog.config.declare import Flag, Whole, Word
from kafkalog.errors import InvalidSetting

__all__ = ["ConsumerConfig", "duration_ms"]

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def duration_ms(text: str) -> int | None:
    """An ISO 8601 duration of days and smaller units (`PT1H30M`) in ms; None if it is none."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes = (int(found or 0) for found in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(float(match[4] or 0) * 1000)


class ConsumerConfig(ClientConfig):
    """How partitions are assigned, read and committed."""

    scope = "consumer"

    allow_auto_create_topics = Flag(True, "Whether the broker may create a missing topic.")
    auto_commit_interval_ms = Whole(5_000, "How often positions are committed.", unit="ms", low=0)
    auto_offset_reset = Word(
        "latest",
        "Where to begin without a committed offset, or with one out of range: earliest, "
        "latest, none (an error), by_duration:PT1H (records up to that age).",
    )
    check_crcs = Flag(True, "Whether the checksums of batches are verified.")
    client_rack = Word(
        "", "The consumer's rack: sent to the group's leader, and used to read from near replicas."
    )
    default_api_timeout_ms = Whole(60_000, "For one call, retries included.", unit="ms", low=1)
    enable_auto_commit = Flag(True, "Whether a group's positions are committed automatically.")
    enable_auto_offset_store = Flag(
        True,
        "Whether a commit without offsets commits the records handed out; false: what "
        "store_offsets was given.",
    )
    exclude_internal_topics = Flag(True, "Whether a pattern leaves out internal topics.")
    fetch_max_bytes = Whole(52_428_800, "Of one answer.", unit="bytes", low=1)
    fetch_max_wait_ms = Whole(500, "How long a broker waits for fetch.min.bytes.", unit="ms", low=0)
    fetch_min_bytes = Whole(1, "Fewer bytes make the broker wait for more.", unit="bytes", low=0)
    group_id = Word("", "The group; empty: none.")
    group_protocol = Word(
        "classic",
        "classic: members agree by themselves; consumer: the coordinator assigns partitions "
        "(KIP-848).",
        choices=("classic", "consumer"),
        fold=str.lower,
    )
    group_remote_assignor = Word(
        "", "With group.protocol=consumer: uniform or range, by the broker; empty: its default."
    )
    group_instance_id = Word("", "The name of a static member; empty: a dynamic member.")
    heartbeat_interval_ms = Whole(3_000, "How often a member sends a heartbeat.", unit="ms", low=1)
    isolation_level = Word(
        "read_uncommitted",
        "Whether open and aborted transactions are left out.",
        choices=("read_uncommitted", "read_committed"),
    )
    max_partition_fetch_bytes = Whole(
        1_048_576, "Most bytes of one partition in an answer; a larger batch comes alone.",
        unit="bytes", low=1,
    )  # fmt: skip
    max_poll_interval_ms = Whole(
        300_000, "Time without a poll after which a member gives up its partitions.",
        unit="ms", low=1,
    )  # fmt: skip
    max_poll_records = Whole(500, "Most records that one poll returns.", low=1)
    metadata_max_age_ms = Whole(
        300_000, "Time after which metadata is refreshed.", unit="ms", low=1
    )
    partition_assignment_strategy = Word(
        "range,cooperative-sticky",
        "range, roundrobin, sticky, cooperative-sticky; several with commas.",
    )
    session_timeout_ms = Whole(
        45_000, "Time without a heartbeat after which a member is removed.", unit="ms", low=1
    )

    def _check(self) -> None:
        reset = self.auto_offset_reset
        kind, _, rest = reset.partition(":")
        known = reset in ("earliest", "latest", "none")
        if not known and (kind != "by_duration" or duration_ms(rest) is None):
            raise InvalidSetting(
                f"auto.offset.reset: found {reset!r}, wanted earliest, latest, none or "
                "by_duration:PT1H"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidSetting(
                f"heartbeat.interval.ms: found {self.heartbeat_interval_ms}, wanted less than "
                f"session.timeout.ms, which is {self.session_timeout_ms}"
            )
        unused = {
            "classic": ("group.remote.assignor",),
            "consumer": (
                "heartbeat.interval.ms", "partition.assignment.strategy", "session.timeout.ms",
            ),
        }  # fmt: skip
        for name in unused[self.group_protocol]:
            if self.explicit(name):
                raise InvalidSetting(
                    f"{name}: found with group.protocol={self.group_protocol}, which does not use "
                    "it; wanted no value"
                )
        if self.explicit("enable.auto.commit") and self.enable_auto_commit and not self.group_id:
            raise InvalidSetting("enable.auto.commit: found true, wanted a group to commit for")
