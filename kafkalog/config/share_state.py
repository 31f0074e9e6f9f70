"""The settings of the share coordinator."""

from kafkalog.config.declare import Long, Settings, Whole

__all__ = ["ShareStateConfig"]


class ShareStateConfig(Settings):
    """The settings of the share coordinator; a broker takes them with its own."""

    scope = "broker"

    share_coordinator_state_topic_num_partitions = Whole(
        50, "Partitions of __share_group_state.", low=1
    )
    share_coordinator_state_topic_replication_factor = Whole(
        3,
        "Replicas of __share_group_state, which a cluster creates once so many nodes are up; a "
        "single node keeps one.",
        low=1,
        high=32_767,
    )
    share_coordinator_state_topic_min_isr = Whole(
        2,
        "min.insync.replicas of __share_group_state when a cluster creates it; a single node has "
        "one.",
        low=1,
        high=32_767,
    )
    share_coordinator_state_topic_segment_bytes = Whole(
        104_857_600, "segment.bytes of __share_group_state.", unit="bytes", low=1
    )
    share_coordinator_snapshot_update_records_per_snapshot = Whole(
        500,
        "Changes of a share partition's state that are written one by one before all of it is "
        "written again.",
        low=0,
        high=500,
    )
    share_coordinator_write_timeout_ms = Whole(
        5_000, "How long a change may wait for __share_group_state.", unit="ms", low=1
    )
    share_coordinator_state_topic_prune_interval_ms = Whole(
        300_000,
        "Time between two deletions of records of __share_group_state that later ones replace.",
        unit="ms",
        low=1,
    )
    share_coordinator_cold_partition_snapshot_interval_ms = Whole(
        300_000,
        "Time after which the state of a share partition is written again even if nothing changes, "
        "so that older records can be deleted.",
        unit="ms",
        low=1,
    )
    kafkalog_share_states_max_bytes = Long(
        1 << 30,
        "Approximate memory for the states of all share partitions; requests for more get a "
        "retriable error.",
        unit="bytes",
        low=1,
    )
