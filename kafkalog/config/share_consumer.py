"""The settings of a share consumer, by the names of Kafka's clients."""

from kafkalog.config.client import ClientConfig
from kafkalog.config.declare import Flag, Whole, Word

__all__ = ["ShareConsumerConfig"]


class ShareConsumerConfig(ClientConfig):
    """How records are acquired and acknowledged."""

    scope = "share consumer"

    check_crcs = Flag(True, "Whether the checksums of batches are verified.")
    client_rack = Word("", "The consumer's rack, for the group's coordinator.")
    default_api_timeout_ms = Whole(60_000, "For one call, retries included.", unit="ms", low=1)
    fetch_max_bytes = Whole(52_428_800, "Of one answer.", unit="bytes", low=1)
    fetch_max_wait_ms = Whole(500, "How long a broker waits for fetch.min.bytes.", unit="ms", low=0)
    fetch_min_bytes = Whole(1, "Fewer bytes make the broker wait for more.", unit="bytes", low=0)
    group_id = Word("", "The share group.")
    max_poll_interval_ms = Whole(
        300_000, "Time without a poll after which a member leaves the group.", unit="ms", low=1
    )
    max_poll_records = Whole(
        500, "Most records that one poll returns, and that one request acquires.", low=1
    )
    metadata_max_age_ms = Whole(
        300_000, "Time after which metadata is refreshed.", unit="ms", low=1
    )
    share_acknowledgement_mode = Word(
        "implicit",
        "implicit: the next poll accepts the records of the last one; explicit: `acknowledge` is "
        "called for each.",
        choices=("implicit", "explicit"),
        fold=str.lower,
    )
    share_acquire_mode = Word(
        "batch_optimized",
        "batch_optimized: whole batches are acquired, which may be more than max.poll.records; "
        "record_limit: never more.",
        choices=("batch_optimized", "record_limit"),
        fold=str.lower,
    )
