"""The alarms of an operator: docs/deploy/alerts.yml and their part of docs/operations.md are made
from this table."""

from __future__ import annotations

import json
from typing import NamedTuple

__all__ = ["ALARMS", "Alarm", "render_markdown", "render_rules"]

CRITICAL = "critical"
"""Clients are hurt now, or records are at risk: wake somebody."""
WARNING = "warning"
"""It can wait until the morning."""
JOB = 'job="kafkalog"'
"""Kafka's own exporter uses some of the names, so each query selects our job; `@` stands for it in
the table."""


class Alarm(NamedTuple):
    """One alarm."""

    name: str
    severity: str
    wait: str
    """How long the query has a result before the alarm fires, as Prometheus writes times."""
    query: str
    """In PromQL; `@` stands for JOB."""
    summary: str
    """One sentence; a template of Prometheus."""
    causes: str
    """The meaning, and the usual reasons."""
    steps: tuple[str, ...]
    """Things to do, in order; Markdown."""

    @property
    def expression(self) -> str:
        """The query as Prometheus takes it."""
        return self.query.replace("@", JOB)


_HERE = "{{ $labels.instance }}"

_NODES = (
    Alarm("KafkalogDown", CRITICAL, "1m", "up{@} == 0",
          f"{_HERE} cannot be scraped.",
          "The process or its machine is gone, or the network to its metrics is cut.",
          ("`systemctl status kafkalog` and its last log lines: the exit status says why it ended "
           "([table](deploy/README.md#exit-status)).",
           "`curl http://HOST:9404/health/live` on the machine itself: if it answers, look for "
           "the network.",
           "Start it again. After a crash each log is recovered when it is first used.")),
    Alarm("KafkalogNotReady", CRITICAL, "5m", "kafkalog_ready{@} == 0",
          f"{_HERE} does not serve its clients.",
          "It is fenced, not registered, knows no active controller, still reads the state of "
          "groups and transactions, or cannot read it.",
          ("`curl http://HOST:9404/health/ready`: `missing` names each reason.",
           "No active controller, fenced, not registered: see the controllers "
           "(`kafkalog quorum describe --status`) or ZooKeeper, and the network to them.",
           "Partitions that cannot be read: see KafkalogCoordinatorFailed.")),
    Alarm("KafkalogRestarts", WARNING, "0m", "changes(kafkalog_start_time_seconds{@}[30m]) > 2",
          f"{_HERE} has started more than twice in half an hour.",
          "It crashes and is started again, or somebody restarts it.",
          ("See the last lines of the log before each start, and `dmesg` for the kernel's killer "
           "of processes that use too much memory.",)),
    Alarm("KafkalogOutOfDescriptors", CRITICAL, "0m",
          "increase(kafkalog_accept_pauses_total{@}[10m]) > 0",
          f"{_HERE} had no descriptor or memory for new connections.",
          "Connections and open segments use up the limit of open files.",
          ("Raise `LimitNOFILE` of the unit, or `ulimit -n`, and restart.",
           "See `kafka_server_socket_server_metrics_connection_count` for the listener that grows; "
           "set `max.connections.per.ip`.")),
)  # fmt: skip

_DISKS = (
    Alarm("KafkalogReplicasOffline", CRITICAL, "1m",
          "kafka_server_replicamanager_offlinereplicacount{@} > 0",
          f"{_HERE} has replicas that are offline.",
          "A disk failed, or a log is damaged and was refused when it was opened.",
          ("Find the partition and its reason in the log ([errors](#errors-in-the-log)).",
           "`dmesg`, SMART: if the disk is bad, replace it and let the cluster copy the replicas "
           "again.",
           "If a log is damaged: stop the node, `kafkalog verify DIR`, then `kafkalog repair DIR`, "
           "which shows its plan. Where another replica is in sync, move the partition's folder "
           "away instead of repairing it: the node copies it from the leader.",
           "A log whose disk failed stays offline until the node restarts.")),
    Alarm("KafkalogDiskAlmostFull", CRITICAL, "5m",
          "kafkalog_disk_free_bytes{@} < 2 * 1024 * 1024 * 1024",
          f"{_HERE} has less than 2 GiB left on its disk.",
          "On a full disk reads continue, and writes fail with KAFKA_STORAGE_ERROR until there is "
          "space.",
          ("`kafkalog topics --dir DIR` shows the sizes of logs.",
           "Set `retention.ms` or `retention.bytes` of the largest topics (`kafkalog configs`), or "
           "delete records (`kafkalog topics delete-records`): both work on a full disk.",
           "`kafkalog holds` shows segments that lagging readers keep from retention.",
           "Nothing needs a restart afterwards.")),
    Alarm("KafkalogDiskFillsUp", WARNING, "1h",
          "predict_linear(kafkalog_disk_free_bytes{@}[6h], 24 * 3600) < 0",
          f"{_HERE} will have a full disk within a day, if it goes on like that.",
          "More is written than retention deletes. Nothing is deleted unless a setting says so.",
          ("As for KafkalogDiskAlmostFull, without haste.",)),
    Alarm("KafkalogJobsFail", WARNING, "15m", "kafkalog_background_failures{@} > 0",
          f"{_HERE} has background jobs that fail, or ignored damaged files.",
          "Retention, flushes, checkpoints or compaction failed at their last run; or a file that "
          "can be made again was damaged.",
          ("The log names the job and the error ([errors](#errors-in-the-log)).",
           "`kafkalog verify DIR` checks the files; it may run while the node serves.")),
    Alarm("KafkalogSyncsSlow", WARNING, "15m",
          "histogram_quantile(0.99, sum by (job, instance, le) "
          "(rate(kafka_log_logflushstats_logflushrateandtimems_bucket{@}[5m]))) > 500",
          f"{_HERE}: one sync of a hundred takes longer than half a second.",
          "The disk is slow, or others use it. Producers with acks=all wait for syncs under "
          "`kafkalog.durability=fsync`.",
          ("`iostat -x 5`: find what else writes to the disk.",
           "A cloud disk may have used up its burst of operations.")),
    Alarm("KafkalogStorageErrors", WARNING, "5m",
          'rate(kafka_network_requestmetrics_errors_total{@,error="KAFKA_STORAGE_ERROR"}[5m]) > 0',
          f"{_HERE} answers {{{{ $labels.request }}}} with KAFKA_STORAGE_ERROR.",
          "A log is offline, the disk is full, or all producers that a partition remembers are in "
          "transactions.",
          ("See KafkalogReplicasOffline and KafkalogDiskAlmostFull, and the log.",)),
)  # fmt: skip

_CLUSTER = (
    Alarm("KafkalogPartitionsWithoutLeader", CRITICAL, "1m",
          "max by (job) (kafka_controller_kafkacontroller_offlinepartitionscount{@}) > 0",
          "{{ $value }} partitions have no leader.",
          "All replicas in sync are down, so nobody can write or read there.",
          ("`kafkalog topics describe --unavailable-partitions` names them and their replicas.",
           "Start the nodes that were in sync last. This loses nothing.",
           "Only if they are lost for good: `kafkalog cluster elect --unclean` lets another "
           "replica lead, and loses the records that it lacks.")),
    Alarm("KafkalogUnderMinIsr", CRITICAL, "1m",
          "kafka_server_replicamanager_underminisrpartitioncount{@} > 0",
          f"{_HERE} leads partitions that refuse acks=all.",
          "Fewer replicas are in sync than `min.insync.replicas`: producers get "
          "NOT_ENOUGH_REPLICAS.",
          ("`kafkalog cluster status` names the nodes that are missing: start them.",
           "Do not lower `min.insync.replicas`, unless losing acknowledged records is better than "
           "waiting.")),
    Alarm("KafkalogUnderReplicated", WARNING, "10m",
          "kafka_server_replicamanager_underreplicatedpartitions{@} > 0",
          f"{_HERE} leads partitions with a replica out of sync.",
          "A node is down, is catching up after a restart, or is too slow to follow.",
          ("`kafkalog cluster status` names the partitions and nodes.",
           "`kafkalog_follower_lag_records` falls: it is catching up; wait. It grows: see the "
           "follower's disk, network and log.",
           "After `kafkalog cluster reassign` the partitions that move count, too.")),
    Alarm("KafkalogUncleanElection", CRITICAL, "0m",
          "max by (job) (increase("
          "kafka_controller_controllerstats_uncleanleaderelections_total{@}[15m])) > 0",
          "A replica that was not in sync leads: acknowledged records may be lost.",
          "`unclean.leader.election.enable` is set, or somebody ran `kafkalog cluster elect "
          "--unclean`.",
          ("Set `unclean.leader.election.enable=false`, which is the default.",
           "`kafkalog cluster check` compares the replicas; find out from the producers what is "
           "missing.")),
    Alarm("KafkalogBrokersFenced", WARNING, "10m",
          "max by (job) (kafka_controller_kafkacontroller_fencedbrokercount{@}) > 0",
          "{{ $value }} brokers of the cluster are down.",
          "A broker was stopped or does not reach the controllers.",
          ("`kafkalog cluster status` names it.",
           "If it is gone for good: `kafkalog cluster drain NODE --replicas --execute`, then "
           "`kafkalog cluster unregister NODE`.")),
    Alarm("KafkalogQuorumWithoutLeader", CRITICAL, "1m",
          "kafka_server_raft_metrics_current_leader{@} < 0",
          f"The controller {_HERE} knows no leader of the metadata quorum.",
          "A majority of the controllers is down, or this one is cut off from them. Nothing of the "
          "cluster can change; partitions with in-sync replicas continue.",
          ("Start the controllers that are down.",
           "`kafkalog quorum describe --status` at each controller; check the network between "
           "them, certificates and passwords.")),
    Alarm("KafkalogQuorumElections", WARNING, "0m",
          "changes(kafka_server_raft_metrics_current_epoch{@}[30m]) > 5",
          f"The controller {_HERE} saw more than five elections in half an hour.",
          "Controllers do not reach each other in time: slow disks, a slow network, processes that "
          "stand still.",
          ("See the log of each controller, and the times of syncs on their disks.",)),
)  # fmt: skip

_SHARE = ("rate(kafkalog_thread_idle_seconds_total{{@,threads=\"{0}\"}}[5m]) / "
          "rate(kafkalog_thread_seconds_total{{@,threads=\"{0}\"}}[5m]) < 0.3")  # fmt: skip

_UNKNOWN = 'kafka_network_requestmetrics_errors_total{@,error="UNKNOWN_SERVER_ERROR"}'
"""Shown from the first one on, so that its first value is no increase: see the query."""

_LOAD = (
    Alarm("KafkalogNetworkThreadsBusy", WARNING, "15m", _SHARE.format("network"),
          f"The network threads of {_HERE} are idle less than 30 % of the time.",
          "They answer Produce and Fetch, encrypt, and send.",
          ("Raise `num.network.threads`, as far as there are cores (`kafkalog configs` changes it "
           "without a restart).",
           "Spread the leaders over more nodes (`kafkalog cluster reassign`).")),
    Alarm("KafkalogIoThreadsBusy", WARNING, "15m", _SHARE.format("io"),
          f"The I/O threads of {_HERE} are idle less than 30 % of the time.",
          "Many requests other than simple Produce and Fetch, or large ones.",
          ("See `kafka_network_requestmetrics_requests_total` by request for what is so frequent.",
           "Raise `num.io.threads` (`kafkalog configs` changes it without a restart). They run "
           "Python, so more of them than two or three at work do not make it faster.")),
    Alarm("KafkalogRequestQueueFull", WARNING, "10m",
          "rate(kafkalog_request_queue_full_total{@}[5m]) > 0",
          f"Requests to {_HERE} find no room in the queue.",
          "More requests arrive than the I/O threads answer; reading from clients stops while the "
          "queue is full.",
          ("As for KafkalogIoThreadsBusy.",
           "Find the client and give it a quota ([security](security.md#quotas)).")),
    Alarm("KafkalogUnknownServerErrors", WARNING, "0m",
          f"increase({_UNKNOWN}[15m]) > 0 or ({_UNKNOWN} unless {_UNKNOWN} offset 15m) > 0",
          f"{_HERE} answers {{{{ $labels.request }}}} with UNKNOWN_SERVER_ERROR.",
          "A fault of kafkalog, or an error that has no code of its own in Kafka's protocol.",
          ("The log has the error, with a traceback if it is a fault of kafkalog: report it.",)),
    Alarm("KafkalogAuthenticationFails", WARNING, "0m",
          "increase(kafka_server_socket_server_metrics_failed_authentication_total{@}[10m]) > 50",
          f"More than 50 logins at {_HERE} failed in ten minutes.",
          "A client has an old password or an expired token, or somebody guesses.",
          ("The log has the host and the mechanism of failures, never a name or a password.",)),
)  # fmt: skip

_CLIENTS = (
    Alarm("KafkalogCoordinatorFailed", CRITICAL, "1m",
          'kafka_server_group_coordinator_metrics_num_partitions{@,state="failed"} > 0 or '
          'kafkalog_transaction_coordinator_partitions{@,state="failed"} > 0',
          f"{_HERE} cannot read the state of some groups or transactions.",
          "A partition of `__consumer_offsets` or `__transaction_state` is damaged, or its disk "
          "failed. Groups and transactional ids of this partition are not served.",
          ("The log names the partition and the reason.",
           "With the node stopped: `kafkalog verify DIR`, then `kafkalog repair DIR` keeps what is "
           "whole. In a cluster, let another replica lead instead: `kafkalog cluster drain NODE "
           "--execute`.")),
    Alarm("KafkalogGroupRebalances", WARNING, "15m",
          'kafkalog_group_state{@,state=~"PreparingRebalance|CompletingRebalance"} == 1',
          "The group {{ $labels.group }} has been rebalancing for a quarter of an hour.",
          "A member joins and leaves in turn, or does not answer within its "
          "`max.poll.interval.ms`.",
          ("`kafkalog groups describe GROUP --members` shows them; see their logs.",)),
    Alarm("KafkalogLagGrows", WARNING, "30m",
          "sum by (job, group) (kafkalog_group_lag_sum{@}) > 10000 and "
          "sum by (job, group) (deriv(kafkalog_group_lag_sum{@}[30m])) > 0",
          "The group {{ $labels.group }} lags by {{ $value }} records, and falls behind.",
          "Its members are too few or too slow, or they have ended.",
          ("`kafkalog groups describe GROUP` shows the partitions, their lag and members.",
           "More members help up to the number of partitions.")),
    Alarm("KafkalogGroupsTakeMemory", WARNING, "15m",
          "kafkalog_group_coordinator_bytes{@} > 0.8 * 1024 * 1024 * 1024",
          f"Groups at {_HERE} take 80 % of the memory that `kafkalog.groups.max.bytes` grants.",
          "Beyond it, new members and commits get GROUP_MAX_SIZE_REACHED. The rule is for the "
          "default of 1 GiB.",
          ("Delete groups that nobody uses (`kafkalog groups`), or raise the setting.",)),
    Alarm("KafkalogTransactionOpen", WARNING, "5m", "kafkalog_transaction_open_seconds{@} > 1200",
          f"A transaction at {_HERE} has been open for more than 20 minutes.",
          "Readers of committed records wait for its end. The coordinator aborts it after its "
          "`transaction.timeout.ms`, of at most `transaction.max.timeout.ms`, 15 minutes by "
          "default.",
          ("`kafkalog transactions list --duration-filter 1200000` finds it.",
           "If its producer is gone: `kafkalog transactions force-terminate ID`.")),
)  # fmt: skip

PARTS = (("Nodes", _NODES), ("Disks", _DISKS), ("Replicas and controllers", _CLUSTER),
         ("Load", _LOAD), ("Groups and transactions", _CLIENTS))  # fmt: skip
"""Headings, and the alarms below each."""
ALARMS = tuple(one for _, alarms in PARTS for one in alarms)


def render_rules() -> str:
    """docs/deploy/alerts.yml; texts are quoted as in JSON, which YAML includes."""
    lines = ["# Rendered by `make docs` from the table in kafkalog/metrics/alarms.py.",
             "groups:", "  - name: kafkalog", "    rules:"]  # fmt: skip
    for one in ALARMS:
        described = f"{_plain(one.causes)} See docs/operations.md, {one.name}."
        lines += [
            f"      - alert: {one.name}",
            f"        expr: {json.dumps(one.expression)}",
            f"        for: {one.wait}",
            f"        labels: {{severity: {one.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(_plain(one.summary))}",
            f"          description: {json.dumps(described)}",
        ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("`", "")


def render_markdown() -> str:
    """The alarms in docs/operations.md: when each fires, and how to act on it."""
    lines: list[str] = []
    for heading, alarms in PARTS:
        lines += [f"### {heading}", ""]
        for one in alarms:
            shown = one.query.replace("{@}", "").replace("@,", "")
            wait = "" if one.wait == "0m" else f", for {one.wait}"
            lines += [
                f"#### {one.name}",
                "",
                f"{one.severity.capitalize()}: `{shown}`{wait}.",
                "",
                one.causes,
                "",
                *(f"{number}. {step}" for number, step in enumerate(one.steps, 1)),
                "",
            ]
    return "\n".join(lines)
