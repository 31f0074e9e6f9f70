"""The settings of the group coordinator."""

from kafkalog.config.consumer_group import ConsumerGroupConfig, ShareGroupConfig
from kafkalog.config.declare import Long, Whole
from kafkalog.config.streams_group import StreamsGroupConfig

__all__ = ["GroupConfig"]


class GroupConfig(ConsumerGroupConfig, ShareGroupConfig, StreamsGroupConfig):
    """The settings of the group coordinator; a broker takes them with its own."""

    scope = "broker"

    group_initial_rebalance_delay_ms = Whole(
        3_000,
        "Time that an empty group waits for more members before its first generation; each new "
        "one restarts the wait, up to the members' rebalance timeout.",
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
    kafkalog_groups_max_bytes = Long(
        1 << 30,
        "Approximate memory for all groups, their members' metadata, and committed offsets; "
        "requests for more get GROUP_MAX_SIZE_REACHED.",
        unit="bytes",
        low=1,
    )
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
        600_000, "Time between two checks for expired offsets.", unit="ms", low=1
    )
