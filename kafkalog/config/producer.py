"""The settings of a producer, by the names of Kafka's clients."""

from kafkalog.config.client import ClientConfig
from kafkalog.config.declare import Flag, Whole, Word
from kafkalog.errors import InvalidSetting

__all__ = ["ACKS", "PARTITIONERS", "ProducerConfig"]

ACKS = {"0": 0, "1": 1, "-1": -1, "all": -1}
PARTITIONERS = (
    "murmur2",
    "murmur2_random",
    "consistent",
    "consistent_random",
    "crc32",
    "round_robin",
    "random",
)
"""As Java's clients, librdkafka's `partitioner` (crc32 is its consistent_random), or in turn."""


class ProducerConfig(ClientConfig):
    """How records are batched, sent and retried."""

    scope = "producer"

    acks = Word(
        "all",
        "The replicas that must have a record: 0 none, 1 the leader, all in-sync replicas.",
        choices=tuple(ACKS),
    )
    batch_size = Whole(
        1_000_000,
        "Size of a batch before compression; a larger record is sent alone.",
        unit="bytes", low=1, kafka=16_384,
    )  # fmt: skip
    buffer_memory = Whole(
        33_554_432, "Memory for records that wait for their acknowledgement.", unit="bytes", low=1
    )
    compression_gzip_level = Whole(
        -1, "gzip's level; -1: zlib's own default.", low=-1, high=9, never=(0,)
    )
    compression_lz4_level = Whole(9, "lz4's level.", low=1, high=17)
    compression_zstd_level = Whole(3, "zstd's level.", low=-131072, high=22)
    compression_type = Word("none", "The codec.", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    delivery_timeout_ms = Whole(
        120_000, "From send to the acknowledgement, retries included.", unit="ms", low=1
    )
    kafkalog_storage_timeout_ms = Whole(
        120_000,
        "How long to retry at a leader whose disk is full or failed (error 56).",
        unit="ms",
        low=0,
    )
    enable_idempotence = Flag(True, "No record is duplicated or out of order; needs acks=all.")
    linger_ms = Whole(5, "How long a batch waits for more records.", unit="ms", low=0)
    max_block_ms = Whole(
        60_000, "How long send waits for metadata and for space in the buffer.", unit="ms", low=0
    )
    max_in_flight_requests_per_connection = Whole(5, "Requests in flight to one broker.", low=1)
    max_request_size = Whole(1_048_576, "Of a record.", unit="bytes", low=1)
    metadata_max_age_ms = Whole(
        300_000, "Time after which metadata is refreshed.", unit="ms", low=1
    )
    metadata_max_idle_ms = Whole(
        300_000, "Time after which metadata of a topic that is not written to is dropped.",
        unit="ms", low=5_000,
    )  # fmt: skip
    partitioner = Word(
        "murmur2",
        "How a key is assigned to a partition; batches without keys are spread.",
        choices=PARTITIONERS,
    )
    partitioner_adaptive_partitioning_enable = Flag(
        True, "Send more records without a key to partitions with fewer waiting."
    )
    partitioner_availability_timeout_ms = Whole(
        0,
        "Time after which a leader that accepts nothing gets none of them; 0: never.",
        unit="ms",
        low=0,
    )
    retries = Whole(2_147_483_647, "How often a batch is retried.", low=0)
    transaction_timeout_ms = Whole(
        60_000, "Time after which the broker aborts a transaction.", unit="ms", low=1
    )
    transactional_id = Word("", "The producer's name for transactions; empty: no transactions.")

    def _check(self) -> None:
        sure = self.explicit("enable.idempotence") and self.enable_idempotence
        needs = {"enable.idempotence": sure, "transactional.id": bool(self.transactional_id)}
        for name, wanted in needs.items():
            if wanted and ACKS[self.acks] != -1:
                raise InvalidSetting(f"acks: found {self.acks}, wanted all for {name}")
        if self.transactional_id and not self.enable_idempotence:
            raise InvalidSetting(
                "enable.idempotence: found false, wanted true for transactional.id"
            )
