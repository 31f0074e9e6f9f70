"""The metrics of replicas, controllers and the quorum."""

from __future__ import annotations

from kafkalog.metrics.metric import Metric, counter, gauge

__all__ = ["CLUSTER", "NODE"]

_REPLICAS = "kafka.server:type=ReplicaManager,name="
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_BROKERS = "See which broker is missing (kafkalog cluster status), and its log."


def _replica(name: str, kafka: str, text: str, remedy: str = "") -> Metric:
    return gauge(f"kafka_server_replicamanager_{name}", "", [], text, remedy,
                 f"{_REPLICAS}{kafka}")  # fmt: skip


def _controller(name: str, kafka: str, text: str, remedy: str = "") -> Metric:
    return gauge(f"kafka_controller_kafkacontroller_{name}", "", [], text, remedy,
                 f"{_CONTROLLER}{kafka}")  # fmt: skip


CLUSTER = (
    _replica("leadercount", "LeaderCount", "Partitions that this node leads.",
             "Uneven: kafkalog cluster elect."),
    _replica("partitioncount", "PartitionCount", "Partitions with a replica on this node."),
    _replica("underreplicatedpartitions", "UnderReplicatedPartitions",
             "Those led here with a replica out of sync.", _BROKERS),
    _replica("underminisrpartitioncount", "UnderMinIsrPartitionCount",
             "Those led here with fewer replicas in sync than min.insync.replicas: acks=all "
             "fails.", _BROKERS),
    _replica("atminisrpartitioncount", "AtMinIsrPartitionCount",
             "Those led here with exactly so many.", _BROKERS),
    _replica("offlinereplicacount", "OfflineReplicaCount",
             "Replicas of this node that are offline.", "Check its disk, then restart it."),
    _replica("reassigningpartitions", "ReassigningPartitions",
             "Partitions led here that are being moved."),
    counter("kafka_server_replicamanager_isrshrinks_total", "", [],
            "Followers that left an ISR of a partition led here, as this node learnt it.",
            _BROKERS, f"{_REPLICAS}IsrShrinksPerSec"),
    counter("kafka_server_replicamanager_isrexpands_total", "", [],
            "Followers that joined one.", "", f"{_REPLICAS}IsrExpandsPerSec"),
    gauge("kafkalog_follower_lag_records", "records", ["broker"],
          "Largest number of records that a follower lacks of a partition led here, by "
          "follower.", _BROKERS, "kafka.server:type=ReplicaFetcherManager,name=MaxLag"),
    _controller("activecontrollercount", "ActiveControllerCount",
                "1: this node is the active controller; else 0. The sum over all nodes is 1.",
                "0 everywhere: see the controllers' logs, and ZooKeeper or the quorum."),
    _controller("globaltopiccount", "GlobalTopicCount", "Topics of the cluster."),
    _controller("globalpartitioncount", "GlobalPartitionCount", "Partitions of the cluster."),
    _controller("offlinepartitionscount", "OfflinePartitionsCount",
                "Partitions of the cluster that nobody leads.", _BROKERS),
    _controller("preferredreplicaimbalancecount", "PreferredReplicaImbalanceCount",
                "Partitions that are not led by their first replica.",
                "kafkalog cluster elect."),
    _controller("activebrokercount", "ActiveBrokerCount", "Brokers that are up.", _BROKERS),
    _controller("fencedbrokercount", "FencedBrokerCount", "Brokers that are not.", _BROKERS),
    _controller("lastappliedrecordoffset", "LastAppliedRecordOffset",
                "The offset of the last metadata record in effect here; -1 on ZooKeeper."),
    counter("kafkalog_leader_elections_total", "", [],
            "Elections of partitions' leaders that this node has seen.", "",
            "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs"),
    counter("kafka_controller_controllerstats_uncleanleaderelections_total", "", [],
            "Those of a leader out of sync, as far as this node has seen them: acknowledged "
            "records may be lost.", "Set unclean.leader.election.enable=false.",
            "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec"),
    gauge("kafka_server_raft_metrics_current_leader", "", [],
          "The leader of the metadata quorum, as this controller knows it; -1: none.",
          "See the controllers' logs.", "kafka.server:type=raft-metrics current-leader"),
    gauge("kafka_server_raft_metrics_current_epoch", "", [], "The epoch of the quorum.",
          "Rises often: elections fail; check the network between controllers.",
          "kafka.server:type=raft-metrics current-epoch"),
    gauge("kafka_server_raft_metrics_high_watermark", "offset", [],
          "The offset up to which metadata are committed.", "",
          "kafka.server:type=raft-metrics high-watermark"),
    gauge("kafka_server_raft_metrics_log_end_offset", "offset", [],
          "The offset of the next metadata record.", "",
          "kafka.server:type=raft-metrics log-end-offset"),
    gauge("kafkalog_raft_state", "", ["state"],
          "1 at the state of this controller's replica of the metadata log: leader, follower, "
          "candidate, prospective, resigned, unattached.", "",
          "kafka.server:type=raft-metrics current-state"),
)  # fmt: skip

NODE = (
    gauge("kafkalog_node_info", "", ["version", "node", "cluster", "roles"],
          "Always 1: which node this is."),
    gauge("kafkalog_start_time_seconds", "s", [], "When it started, since 1970."),
    gauge("kafkalog_ready", "", [], "1 if /health/ready says so, else 0.",
          "/health/ready names what is missing."),
)  # fmt: skip
