"""The settings of the transaction coordinator."""

from kafkalog.config.declare import Long, Settings, Whole

__all__ = ["TransactionConfig"]


class TransactionConfig(Settings):
    """The settings of the transaction coordinator; a broker takes them with its own."""

    scope = "broker"

    transaction_max_timeout_ms = Whole(
        900_000, "Longest timeout that a transactional producer may ask for.", unit="ms", low=1
    )
    transactional_id_expiration_ms = Whole(
        604_800_000,
        "How long a transactional id is kept after its last transaction.",
        unit="ms",
        low=1,
    )
    kafkalog_transactional_ids_max = Whole(
        1_000_000,
        "Transactional ids kept; a new one must wait until others have expired.",
        low=1,
    )
    kafkalog_transactions_max_bytes = Long(
        1 << 30,
        "Approximate memory for all transactional ids and partitions of open transactions; "
        "requests for more get a retriable error.",
        unit="bytes",
        low=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Whole(
        10_000,
        "Time between two checks for transactions whose timeout has passed.",
        unit="ms",
        low=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = Whole(
        3_600_000, "Time between two checks for expired transactional ids.", unit="ms", low=1
    )
    transaction_state_log_num_partitions = Whole(50, "Partitions of __transaction_state.", low=1)
    transaction_state_log_segment_bytes = Whole(
        104_857_600, "segment.bytes of __transaction_state.", unit="bytes", low=1
    )
    transaction_state_log_replication_factor = Whole(
        3,
        "Replicas of __transaction_state, which a cluster creates once so many nodes are up; a "
        "single node keeps one.",
        low=1,
        high=32_767,
    )
    transaction_state_log_min_isr = Whole(
        2,
        "min.insync.replicas of __transaction_state when a cluster creates it; a single node has "
        "one.",
        low=1,
    )
