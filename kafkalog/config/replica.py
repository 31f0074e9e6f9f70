"""The settings of a node of a cluster: its ZooKeeper, and the copies that it keeps."""

from kafkalog.config.declare import FOREVER, Flag, Long, Settings, Whole, Word

__all__ = ["RACK_AWARE", "ReplicaConfig"]

FROM_LEADER = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's names of how the copy is chosen that a consumer reads."""


class ReplicaConfig(Settings):
    """The settings of a node of a cluster; a broker takes them with its own."""

    scope = "broker"

    zookeeper_connect = Word(
        "",
        "The ZooKeeper of a cluster that this broker is to be a member of: "
        "host:port,.../chroot; empty: it is alone.",
    )
    zookeeper_session_timeout_ms = Whole(
        18_000,
        "How long ZooKeeper does not hear of a broker before it is dead for the others.",
        unit="ms",
        low=1,
    )
    zookeeper_connection_timeout_ms = Whole(
        18_000,
        "How long the first connection to ZooKeeper may take; not given: as long as "
        "zookeeper.session.timeout.ms.",
        unit="ms",
        low=1,
    )
    controlled_shutdown_enable = Flag(
        True, "At an end others of the cluster lead first what is led here."
    )
    controlled_shutdown_max_retries = Whole(
        3, "How often that is asked for once more, where nobody else could lead.", low=0
    )
    controlled_shutdown_retry_backoff_ms = Long(
        5000, "How long is waited before that.", unit="ms", low=0
    )
    replica_lag_time_max_ms = Long(
        30_000,
        "A copy that had not all there was for so long is no longer in sync.",
        unit="ms",
        low=1,
    )
    replica_fetch_max_bytes = Whole(
        1 << 20, "What a copy asks for of one partition at once.", unit="bytes", low=0
    )
    replica_fetch_response_max_bytes = Whole(
        10 << 20, "What a copy asks for of all partitions at once.", unit="bytes", low=0
    )
    replica_fetch_min_bytes = Whole(
        1, "What a leader waits for before it answers a copy.", unit="bytes", low=0
    )
    replica_fetch_wait_max_ms = Whole(500, "How long a leader waits for that.", unit="ms", low=1)
    replica_fetch_backoff_ms = Whole(
        1000, "How long a copy waits after a failure.", unit="ms", low=0
    )
    leader_replication_throttled_rate = Long(
        FOREVER,
        "How quickly copies that are not in sync get what the topic throttles; in sync they are "
        "never held back.",
        unit="bytes/s",
        low=0,
    )
    follower_replication_throttled_rate = Long(
        FOREVER,
        "How quickly this node copies what the topic throttles, where it is behind.",
        unit="bytes/s",
        low=0,
    )
    replication_quota_window_num = Whole(
        11, "Over how many windows these rates are measured.", low=1, high=100_000
    )
    replication_quota_window_size_seconds = Whole(
        1, "How long each window is.", unit="s", low=1, high=1_000_000
    )
    replica_selector_class = Word(
        FROM_LEADER,
        "Which copy a consumer reads: the leader's, or one in its own rack (client.rack, "
        "broker.rack) where there is one.",
        choices=(FROM_LEADER, RACK_AWARE),
    )
    auto_leader_rebalance_enable = Flag(
        True, "As the controller, let first replicas lead again where others lead too many."
    )
    leader_imbalance_check_interval_seconds = Long(
        300, "How often that is looked for.", unit="s", low=1
    )
    leader_imbalance_per_broker_percentage = Whole(
        10, "Of the partitions that a broker stands first in, so many others may lead.", low=0
    )

    @property
    def zookeeper_timeouts_ms(self) -> tuple[int, int]:
        """Of the session, and of the first connection."""
        session = self.zookeeper_session_timeout_ms
        given = self.explicit("zookeeper.connection.timeout.ms")
        return session, self.zookeeper_connection_timeout_ms if given else session
