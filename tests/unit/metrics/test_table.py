"""The table of metrics, and its comparison with Kafka's."""

from __future__ import annotations

import re

import pytest

from kafkalog.metrics.document import NAME, render_tables
from kafkalog.metrics.kafka import MISSING, documented
from kafkalog.metrics.kafka_undocumented import UNDOCUMENTED
from kafkalog.metrics.metric import OTHERS, Histogram, Kind, Readings
from kafkalog.metrics.table import BY_NAME, METRICS

KAFKA = """
    MessagesInPerSec BytesInPerSec ReplicationBytesInPerSec RequestRateAndQueueTimeMs EventQueueSize
    EventQueueTimeMs RequestsPerSec ErrorsPerSec TotalProduceRequestsPerSec TotalFetchRequestsPerSec
    FailedProduceRequestsPerSec FailedFetchRequestsPerSec RequestBytes TemporaryMemoryBytes
    MessageConversionsTimeMs MessageConversionsPerSec RequestQueueSize BytesOutPerSec
    ReplicationBytesOutPerSec BytesRejectedPerSec NoKeyCompactedTopicRecordsPerSec
    InvalidMagicNumberRecordsPerSec InvalidMessageCrcRecordsPerSec
    InvalidOffsetOrSequenceRecordsPerSec LogFlushRateAndTimeMs OfflineLogDirectoryCount
    LeaderElectionRateAndTimeMs UncleanLeaderElectionsPerSec
    ElectionFromEligibleLeaderReplicasPerSec ActiveControllerCount TopicsToDeleteCount
    ReplicasToDeleteCount TopicsIneligibleToDeleteCount ReplicasIneligibleToDeleteCount
    UnderReplicatedPartitions UnderMinIsrPartitionCount AtMinIsrPartitionCount ProducerIdCount
    PartitionCount OfflineReplicaCount LeaderCount IsrShrinksPerSec IsrExpandsPerSec
    FailedIsrUpdatesPerSec MaxLag ConsumerLag PurgatorySize TotalTimeMs RequestQueueTimeMs
    LocalTimeMs RemoteTimeMs ResponseQueueTimeMs ResponseSendTimeMs records-lag-max
    NetworkProcessorAvgIdlePercent ExpiredConnectionsKilledCount RequestHandlerAvgIdlePercent
    type={Produce|Fetch} type=Request partition-load-time-max partition-load-time-avg
    VerificationFailureRate VerificationTimeMs ReassigningPartitions ReassignmentBytesOutPerSec
    ReassignmentBytesInPerSec Size NumLogSegments LogStartOffset LogEndOffset remainingLogsToRecover
    remainingSegmentsToRecover LogDirectoryOffline num-partitions thread-idle-ratio-avg
    event-queue-size event-queue-time-ms event-processing-time-ms event-purgatory-time-ms
    batch-linger-time-ms batch-flush-time-ms batch-flush-rate group-count consumer-group-count
    consumer-group-rebalance-rate consumer-group-rebalance-count streams-group-count
    streams-group-rebalance-rate streams-group-rebalance-count NumGroups
    NumGroupsPreparingRebalance NumGroupsCompletingRebalance NumGroupsEmpty NumGroupsStable
    NumGroupsDead group-completed-rebalance-rate group-completed-rebalance-count NumOffsets
    offset-commit-rate offset-commit-count offset-expiration-rate offset-expiration-count
    offset-deletion-rate offset-deletion-count Remote BuildRemoteLogAuxState
    DelayedRemoteFetchMetrics DelayedRemoteListOffsetsMetrics RemoteLogManager
    RemoteStorageThreadPool current-state current-leader current-vote current-epoch high-watermark
    log-end-offset number-unknown-voter-connections commit-latency election-latency
    fetch-records-rate append-records-rate poll-idle-ratio-avg CurrentMetadataVersion
    HandleLoadSnapshotCount LatestSnapshotGeneratedBytes LatestSnapshotGeneratedAgeMs
    EventQueueProcessingTimeMs FencedBrokerCount ActiveBrokerCount GlobalTopicCount
    GlobalPartitionCount OfflinePartitionsCount PreferredReplicaImbalanceCount MetadataErrorCount
    LastAppliedRecordOffset LastCommittedRecordOffset LastAppliedRecordTimestamp
    LastAppliedRecordLagMs TimedOutBrokerHeartbeatCount EventQueueOperationsStartedCount
    EventQueueOperationsTimedOutCount NewActiveControllersCount last-applied-record-offset
    last-applied-record-timestamp last-applied-record-lag-ms metadata-load-error-count
    metadata-apply-error-count
""".split()  # noqa: SIM905
"""The names of the metrics that Kafka 4.4 documents for brokers and controllers (its document
"Monitoring")."""


def test_each_of_kafkas_metrics_is_here_or_explained() -> None:
    rows = documented()
    assert [name for name in KAFKA if not any(name in bean for bean, _, _ in rows)] == []
    assert all(bool(ours) != bool(why) for _, ours, why in rows)


def test_rows_of_undocumented_beans_name_metrics_that_exist() -> None:
    rows = [row for row, _ in UNDOCUMENTED]
    assert len(set(rows)) == len(rows) and not {*rows} & {row for row, _, _ in documented()}
    named = {name for _, text in UNDOCUMENTED for name in NAME.findall(text)}
    assert len(named) > 15
    for name in named:
        known = [one for one in BY_NAME if one == name or one.startswith(name.removesuffix("*"))]
        assert known if name.endswith("*") else name in BY_NAME, name


def test_names_are_prometheus_and_say_the_kind() -> None:
    assert len(BY_NAME) == len(METRICS) > 80
    for one in METRICS:
        assert re.fullmatch(r"kafka(log)?_[a-z0-9_]+", one.name)
        assert one.name.endswith("_total") == (one.kind is Kind.COUNTER), one.name
        assert one.text.endswith("."), one.name
        assert not one.remedy or one.remedy.endswith((".", ")"), ), one.name  # fmt: skip
        assert all(re.fullmatch(r"[A-Za-z][A-Za-z_]*", label) for label in one.labels)


def test_names_are_those_of_the_usual_rules_for_kafkas_beans() -> None:
    """Lower case, `PerSec` becomes `_total`; only where Kafka's meaning is ours."""
    wrong = []
    for one in METRICS:
        bean = re.fullmatch(r"kafka\.([a-z.]+):type=([\w-]+),name=([\w-]+)", one.kafka)
        if bean is None or one.name.startswith("kafkalog_"):
            continue
        area, kind, name = (text.lower().replace(".", "_").replace("-", "_")
                            for text in bean.groups())  # fmt: skip
        name = name.replace("persec", "_total")
        if one.kind is Kind.COUNTER and name.endswith("_count"):
            name = name.removesuffix("_count") + "_total"
        if name == "requesthandleravgidlepercent":  # a meter, of which the mean is taken
            name = "requesthandleravgidle_percent"
        if one.name != f"kafka_{area}_{kind}_{name}":
            wrong.append((one.name, f"kafka_{area}_{kind}_{name}"))
    assert wrong == []


def test_no_bean_is_listed_twice() -> None:
    beans = [bean for bean, _ in MISSING] + [one.kafka for one in METRICS if one.kafka]
    assert sorted({*beans}) == sorted(beans)


def test_the_document_has_each_metric_and_each_bean() -> None:
    text = render_tables()
    assert all(f"| `{one.name}` |" in text for one in METRICS)
    assert all(line.count(" | ") in (1, 5) for line in text.splitlines() if line.startswith("| `"))
    assert OTHERS not in text.replace(f"`{OTHERS}`", "")


def test_readings_are_flat_under_their_labels() -> None:
    one = Readings(METRICS)
    one.add("kafkalog_ready", 1)
    one.add("kafkalog_group_members", 2, group="g")
    times = Histogram((1.0, 2.0), (1, 0, 3), 12.5)
    one.add("kafka_network_requestmetrics_totaltimems", times, request="Fetch")
    other = Readings(METRICS)
    other.add("kafkalog_group_members", 3, group="g")
    other.add("kafkalog_group_members", 4, group="h")
    other.add("kafka_network_requestmetrics_totaltimems", times, request="Fetch")
    one.merge(other)
    assert one.flat() == {
        "kafkalog_ready": 1, 'kafkalog_group_members{group="g"}': 5,
        'kafkalog_group_members{group="h"}': 4,
        'kafka_network_requestmetrics_totaltimems_count{request="Fetch"}': 8,
        'kafka_network_requestmetrics_totaltimems_sum{request="Fetch"}': 25.0,
    }  # fmt: skip
    with pytest.raises(KeyError):
        one.add("kafkalog_unknown", 1)
