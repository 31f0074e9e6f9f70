"""The settings of a cluster node: its ZooKeeper, and its replicas."""

from kafkalog.config.declare import FOREVER, Flag, Long, Settings, Whole, Word

__all__ = ["RACK_AWARE", "ReplicaConfig"]

FROM_LEADER = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's names for how the replica is chosen that a consumer reads."""


class ReplicaConfig(Settings):
    """The settings of a cluster node; a broker takes them with its own."""

    scope = "broker"

    zookeeper_connect = Word(
        "",
        "The ZooKeeper of the cluster that this broker joins: host:port,.../chroot; empty: a "
        "single node.",
    )
    zookeeper_session_timeout_ms = Whole(
        18_000,
        "Time without a heartbeat after which ZooKeeper considers a broker dead.",
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
        True,
        "At shutdown, hand this node's leaderships to other nodes first, with everything that "
        "acks=1 acknowledged.",
    )
    controlled_shutdown_max_retries = Whole(
        3, "Number of retries of that, if no other node could lead.", low=0
    )
    controlled_shutdown_retry_backoff_ms = Long(
        5000, "Wait before each of these retries.", unit="ms", low=0
    )
    replica_lag_time_max_ms = Long(
        30_000,
        "Time after which a follower that has not caught up leaves the ISR.",
        unit="ms",
        low=1,
    )
    replica_fetch_max_bytes = Whole(
        1 << 20, "Bytes that a follower fetches of one partition per request.", unit="bytes", low=0
    )
    replica_fetch_response_max_bytes = Whole(
        10 << 20,
        "Bytes that a follower fetches of all partitions per request.",
        unit="bytes",
        low=0,
    )
    replica_fetch_min_bytes = Whole(
        1, "Bytes that a leader waits for before it answers a follower.", unit="bytes", low=0
    )
    replica_fetch_wait_max_ms = Whole(
        500, "How long a leader waits for these bytes.", unit="ms", low=1
    )
    replica_fetch_backoff_ms = Whole(
        1000, "How long a follower waits after a failure.", unit="ms", low=0
    )
    leader_replication_throttled_rate = Long(
        FOREVER,
        "Bytes a second that followers out of sync get of the replicas that the topic "
        "throttles; those in sync are never held back.",
        unit="bytes/s",
        low=0,
    )
    follower_replication_throttled_rate = Long(
        FOREVER,
        "Bytes a second that this node copies, while out of sync, of the replicas that the "
        "topic throttles.",
        unit="bytes/s",
        low=0,
    )
    replication_quota_window_num = Whole(
        11, "Number of windows over which these rates are measured.", low=1, high=100_000
    )
    replication_quota_window_size_seconds = Whole(
        1, "How long each window is.", unit="s", low=1, high=1_000_000
    )
    replica_selector_class = Word(
        FROM_LEADER,
        "Which replica a consumer reads: the leader, or one in its own rack (client.rack, "
        "broker.rack) if there is one.",
        choices=(FROM_LEADER, RACK_AWARE),
    )
    auto_leader_rebalance_enable = Flag(
        True, "As the controller, elect preferred leaders where others lead too many partitions."
    )
    leader_imbalance_check_interval_seconds = Long(
        300, "How often the controller checks this.", unit="s", low=1
    )
    leader_imbalance_per_broker_percentage = Whole(
        10,
        "Percentage of the partitions with this broker as the preferred leader that other "
        "brokers may lead.",
        low=0,
    )

    @property
    def zookeeper_timeouts_ms(self) -> tuple[int, int]:
        """For the session, and for the first connection."""
        session = self.zookeeper_session_timeout_ms
        given = self.explicit("zookeeper.connection.timeout.ms")
        return session, self.zookeeper_connection_timeout_ms if given else session
