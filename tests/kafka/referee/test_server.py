"""The same requests to Apache Kafka and to us have the same answers, but for addresses and ids."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.kafka.referee import fault_steps, transaction_steps
from tests.support import apache, batches
from tests.support.raw import Raw

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "transaction.state.log.num.partitions": "1",
}
LEVELS = ("--release-version", "4.1")
"""With the feature levels of our new directories, which older Kafkas open, too."""
TOPICS = {"t": {}, "two": {}, "compacted": {"cleanup.policy": "compact"}}
NOW_MS = int(time.time() * 1000)
NONE_SUCH = uuid.UUID("12345678-1234-5678-1234-567812345678")
Step = Callable[[Raw], Any]
STEPS: dict[str, Step] = {}


def step(ask: Step) -> Step:
    """A request, named by its function; sent in the order of this file."""
    STEPS[ask.__name__] = ask
    return ask


def many(*asks: Callable[[], Any]) -> list[Any]:
    """The answers, or that the connection was closed."""
    return [ask() for ask in asks]


# ---- ListOffsets -------------------------------------------------------------------------------


def offsets(raw: Raw, version: int, timestamp: int, **more: Any) -> tuple[int, ...]:
    epoch = more.pop("epoch", -1)
    topic = more.pop("topic", "t")
    part = {"partition_index": more.pop("partition", 0), "timestamp": timestamp,
            "current_leader_epoch": epoch}  # fmt: skip
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}], **more}
    found = raw.call(apis.LIST_OFFSETS, version, **body).topics[0].partitions[0]
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


@step
def times_of_every_version(raw: Raw) -> Any:
    times = (-1, -2, -3, -4, -5, -6, -7, 0, NOW_MS, NOW_MS + 1, NOW_MS + 5)
    return [[offsets(raw, version, one) for one in times] for version in range(1, 11)]


@step
def times_by_isolation_epoch_and_place(raw: Raw) -> Any:
    return [
        offsets(raw, 8, -1, isolation_level=1),
        offsets(raw, 8, -1, epoch=7),
        offsets(raw, 8, -1, partition=9),
        offsets(raw, 8, -1, topic="missing"),
        offsets(raw, 8, -2, topic="two", partition=1),
        offsets(raw, 8, -3, topic="two", partition=1),
        offsets(raw, 8, 5, topic="two", partition=1),
    ]


@step
def a_partition_asked_for_twice(raw: Raw) -> Any:
    part = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "topics": [{"name": "t", "partitions": [part, part]}]}
    return {p.error_code for p in raw.call(apis.LIST_OFFSETS, 8, **body).topics[0].partitions}


# ---- epochs, producers, records --------------------------------------------------------------


@step
def ends_of_epochs(raw: Raw) -> Any:
    def ask(topic: str, epoch: int, current: int = -1) -> tuple[int, ...]:
        part = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
        body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
        found = raw.call(apis.OFFSET_FOR_LEADER_EPOCH, 4, **body).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    return many(*[lambda a=a: ask(*a) for a in (
        ("t", 0), ("t", -1), ("t", 5), ("t", 0, 3), ("missing", 0), ("two", 0))])  # fmt: skip


@step
def producers_of_a_partition(raw: Raw) -> Any:
    data = batches.batch([batches.Row(b"v", b"k", NOW_MS)] * 2, producer_id=77, producer_epoch=3,
                         base_sequence=0)  # fmt: skip
    raw.produce_batch("two", data)
    asked = [{"name": "two", "partition_indexes": [0, 5]}]
    here, missing = raw.call(apis.DESCRIBE_PRODUCERS, 0, topics=asked).topics[0].partitions
    return [dict(one) for one in here.active_producers], missing.error_code


@step
def producer_ids(raw: Raw) -> Any:
    answers = []
    for version, pid, epoch in ((0, -1, -1), (4, -1, -1), (3, 5, -1), (3, -1, 5)):
        while True:
            found = raw.call(
                apis.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=0,
                producer_id=pid, producer_epoch=epoch,
            )  # fmt: skip
            if found.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break  # Kafka returns it until it has fetched its first ids
        answers.append((found.error_code, found.producer_epoch, found.producer_id >= 0))
    return answers


@step
def records_deleted(raw: Raw) -> Any:
    def ask(topic: str, offset: int, partition: int = 0) -> tuple[int, ...]:
        part = {"partition_index": partition, "offset": offset}
        body = {"topics": [{"name": topic, "partitions": [part]}], "timeout_ms": 10_000}
        found = raw.call(apis.DELETE_RECORDS, 2, **body).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    return [
        ask("t", 1), ask("t", 0), ask("t", 99), ask("t", -2), ask("t", -1),
        ask("compacted", 0), ask("missing", 0), ask("t", 0, 9), offsets(raw, 8, -2),
    ]  # fmt: skip


# ---- the cluster -----------------------------------------------------------------------------


@step
def metadata_of_every_version(raw: Raw) -> Any:
    answers = []
    for version in range(14):
        # Before version 4 a request always creates missing topics, at an unknown time.
        names = ("t", "missing", "a b") if version >= 4 else ("t", "a b")
        asked = [{"name": name} for name in names]
        found = raw.call(apis.METADATA, version, topics=asked, allow_auto_topic_creation=False)
        topics = {
            topic.name: (topic.error_code, topic.is_internal, topic.topic_authorized_operations,
                         [dict(p) for p in topic.partitions])
            for topic in found.topics
        }  # fmt: skip
        answers.append((topics, len(found.brokers), found.error_code))
    return answers


@step
def metadata_by_id_and_with_operations(raw: Raw) -> Any:
    asked = [{"topic_id": NONE_SUCH, "name": None}]
    unknown = raw.call(apis.METADATA, 12, topics=asked,
                       include_topic_authorized_operations=True).topics  # fmt: skip
    found = raw.call(apis.METADATA, 10, topics=[{"name": n} for n in ("t", "missing", "a b")],
                     allow_auto_topic_creation=False,
                     include_cluster_authorized_operations=True,
                     include_topic_authorized_operations=True)  # fmt: skip
    return (
        [(t.error_code, t.name, t.topic_id, t.topic_authorized_operations) for t in unknown],
        found.cluster_authorized_operations,
        {t.name: (t.error_code, t.topic_authorized_operations) for t in found.topics},
    )  # fmt: skip


@step
def pages_of_partitions(raw: Raw) -> Any:
    def ask(limit: int, cursor: Any = None, *names: str) -> Any:
        found = raw.call(
            apis.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": name} for name in names],
            response_partition_limit=limit, cursor=cursor,
        )  # fmt: skip
        topics = [
            (t.name, t.error_code, t.is_internal, t.topic_authorized_operations,
             [dict(p) for p in t.partitions])
            for t in found.topics
        ]  # fmt: skip
        return topics, found.next_cursor and dict(found.next_cursor)

    names = ("compacted", "missing", "t", "two")
    return [
        ask(100, None, *names), ask(1, None, *names), ask(2, None, "two", "t"),
        ask(3, {"topic_name": "two", "partition_index": 1}, *names),
        ask(100, {"topic_name": "t", "partition_index": 0}, *names),
    ]  # fmt: skip


@step
def the_cluster(raw: Raw) -> Any:
    found = [
        raw.call(apis.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True),
        raw.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=1),
        raw.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=2),
        raw.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=9),
    ]
    return [(f.error_code, f.endpoint_type, len(f.brokers), f.cluster_authorized_operations)
            for f in found]  # fmt: skip


@step
def log_dirs(raw: Raw) -> Any:
    asked = [{"topic": "two", "partitions": [0, 1, 9]}, {"topic": "missing", "partitions": [0]}]
    answers = []
    for version in (1, 4):
        found = raw.call(apis.DESCRIBE_LOG_DIRS, version, topics=asked)
        (one,) = found.results
        answers.append((found.error_code, one.error_code, [
            (t.name, [(p.partition_index, p.offset_lag, p.is_future_key)
                      for p in sorted(t.partitions, key=lambda p: p.partition_index)])
            for t in sorted(one.topics, key=lambda t: t.name)
        ]))  # fmt: skip
    return answers


@step
def elections_and_reassignments(raw: Raw) -> Any:
    asked = [{"topic": "t", "partitions": [0, 9]}, {"topic": "missing", "partitions": [0]}]
    elected = []
    for version, topics in ((0, asked), (1, asked), (2, asked), (2, None)):
        found = raw.call(apis.ELECT_LEADERS, version, topic_partitions=topics, timeout_ms=10_000)
        elected.append((found.error_code, sorted(
            (t.topic, sorted((p.partition_id, p.error_code) for p in t.partition_result))
            for t in found.replica_election_results
        )))  # fmt: skip
    moves = [{"name": "t", "partitions": [
        {"partition_index": 0, "replicas": None}, {"partition_index": 9, "replicas": [1]},
    ]}, {"name": "missing", "partitions": [{"partition_index": 0, "replicas": [1]}]},
        {"name": "two", "partitions": [{"partition_index": 0, "replicas": [1]},
                                       {"partition_index": 1, "replicas": [7]}]}]  # fmt: skip
    moved = raw.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=moves, timeout_ms=10_000)
    listed = raw.call(apis.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout_ms=10_000)
    return (
        elected,
        moved.error_code,
        sorted((t.name, sorted((p.partition_index, p.error_code) for p in t.partitions))
               for t in moved.responses),
        (listed.error_code, [t.name for t in listed.topics]),
    )  # fmt: skip


# ---- coordinators, versions ------------------------------------------------------------------


@step
def coordinators(raw: Raw) -> Any:
    answers = []
    for version in range(5):
        keys = {"coordinator_keys": ["g", "h"]} if version >= 4 else {"key": "g"}
        found = raw.call(apis.FIND_COORDINATOR, version, key_type=0, **keys)
        for one in found.coordinators if version >= 4 else [found]:
            answers.append((version, one.error_code, one.node_id, one.port > 0))
    return answers


@step
def versions_and_software(raw: Raw) -> Any:
    answers = []
    for version, name, number in (
        (0, "", ""), (3, "a", "1"), (3, "-a", "1"), (4, "a b", "1"), (4, "a", ""),
        (4, "a.b-c", "1.0"),
    ):  # fmt: skip
        found = raw.call(apis.API_VERSIONS, version, client_software_name=name,
                         client_software_version=number)  # fmt: skip
        answers.append((found.error_code, bool(found.api_keys)))
    raw.send_bytes(apis.API_VERSIONS, 99, b"")
    found = raw.receive(apis.API_VERSIONS, 0)
    return answers, found.error_code, [key.api_key for key in found.api_keys]


@step
def topics_made_by_asking(raw: Raw) -> Any:
    """Topics made by Metadata, also with colliding names.  We answer the request that creates a
    topic with the topic, Kafka with the error that there is none."""

    def ask(*names: str) -> list[Any]:
        found = raw.call(apis.METADATA, 12, topics=[{"name": name} for name in names]).topics
        return sorted((t.name, t.error_code, len(t.partitions)) for t in found)

    first = ask("made.so", "made_so", "bad name", "__consumer_offsets")
    assert ("made.so", 0, 1) in first or ("made.so", 3, 0) in first
    first = [one for one in first if one[0] != "made.so"]
    deadline_s = time.monotonic() + 30
    while ask("made.so")[0][1]:
        assert time.monotonic() < deadline_s
    return first, ask("made.so")


@step
def settings_of_new_topics(raw: Raw) -> Any:
    pairs = [
        ("message.timestamp.difference.max.ms", "5"), ("message.format.version", "3.0"),
        ("message.downconversion.enable", "true"), ("remote.storage.enable", "true"),
        ("remote.storage.enable", "false"), ("segment.bytes", "1048575"),
        ("segment.bytes", "1048576"), ("internal.segment.bytes", "1000"),
        ("retention.bytes", "-2"), ("retention.bytes", "-3"), ("retention.ms", "-2"),
        ("local.retention.ms", "5"), ("local.retention.bytes", "-3"), ("cleanup.policy", ""),
    ]  # fmt: skip
    found = []
    for number, (name, value) in enumerate(pairs):
        made = raw.create(f"s{number}", **{name.replace(".", "_"): value})
        told = [(c.value, c.config_source) for c in made.configs or [] if c.name == name]
        found.append((name, value, made.error_code, made.error_code or told))
    return found


@step
def settings_altered(raw: Raw) -> Any:
    wanted: list[tuple[int, str, str, str | None]] = [
        (2, "t", "segment.bytes", "1000"), (2, "t", "message.format.version", "3.0"),
        (2, "t", "retention.bytes", "-2"), (4, "", "log.segment.bytes", "1000"),
        (4, "", "min.insync.replicas", "1"), (4, "1", "min.insync.replicas", "1"),
        (4, "", "min.insync.replicas", None),
    ]  # fmt: skip
    return [
        (name, value, raw.alter(kind, resource, **{name.replace(".", "_"): value}).error_code)
        for kind, resource, name, value in wanted
    ]


@step
def least_replicas_in_sync(raw: Raw) -> Any:
    """KIP-966: a setting of the whole cluster, from the beginning."""
    found = []
    for kind, name in ((4, ""), (4, "1"), (2, "t")):
        one = raw.describe(kind, name)["min.insync.replicas"]
        told = [(each.name, each.value, each.source) for each in one.synonyms]
        found.append((one.value, one.config_source, told))
    return found


@step
def the_quorum(raw: Raw) -> Any:
    asked = [
        {"topic_name": name, "partitions": [{"partition_index": number}]}
        for name, number in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("x", 0))
    ]
    answers = []
    for version in (0, 1, 2):
        for topics in ([asked[0]], asked[1:2], asked[2:], []):
            found = raw.call(apis.DESCRIBE_QUORUM, version, topics=topics)
            parts = [(t.topic_name, p.partition_index, p.error_code, p.error_message, p.leader_id,
                      [v.replica_id for v in p.current_voters], len(p.observers),
                      [v.last_fetch_timestamp > 0 for v in p.current_voters])
                     for t in found.topics for p in t.partitions]  # fmt: skip
            answers.append((found.error_code, parts, [node.node_id for node in found.nodes]))
    return answers


@step
def resources_with_settings(raw: Raw) -> Any:
    kinds: list[list[int]] = [[4], [16], [32], [99], [2, 4]]
    found = [raw.call(apis.LIST_CONFIG_RESOURCES, 1, resource_types=one) for one in kinds]
    told = [
        (
            one.error_code,
            sorted(
                (r.resource_type, r.resource_name)
                for r in one.config_resources
                if r.resource_name in ("1", "t", "two")
            ),
        )
        for one in found
    ]
    return told, raw.call(apis.LIST_CONFIG_RESOURCES, 0).config_resources  # fmt: skip


@step
def replicas_moved_between_directories(raw: Raw) -> Any:
    (here,) = raw.call(apis.DESCRIBE_LOG_DIRS, 4, topics=[]).results
    dirs = [
        {"path": here.log_dir, "topics": [{"name": "t", "partitions": [0, 7]},
                                          {"name": "nope", "partitions": [0]}]},
        {"path": "/elsewhere", "topics": [{"name": "two", "partitions": [0]}]},
        {"path": "relative", "topics": [{"name": "compacted", "partitions": [0]}]},
    ]  # fmt: skip
    found = raw.call(apis.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs).results
    return sorted((t.topic_name, sorted((p.partition_index, p.error_code) for p in t.partitions))
                  for t in found)  # fmt: skip


@step
def features_that_are_on(raw: Raw) -> Any:
    """Only features of served protocols: groups' and transactions' are left out."""
    told = []
    for version in (3, 4):
        found = raw.call(
            apis.API_VERSIONS, version, client_software_name="a", client_software_version="1"
        )
        here = ("metadata.version", "eligible.leader.replicas.version", "kraft.version")
        told.append((
            sorted((f.name, f.max_version_level, f.min_version_level)
                   for f in found.finalized_features if f.name in here),
            sorted((f.name, f.min_version, f.max_version)
                   for f in found.supported_features if f.name in here),
        ))  # fmt: skip
    return told


STEPS.update(transaction_steps.STEPS)


# ---- both sides --------------------------------------------------------------------------------


def ready(raw: Raw) -> None:
    """Create the topics, and three records in `t`; raises until the broker is ready."""
    for name, config in TOPICS.items():
        made = raw.create(name, 2 if name == "two" else 1, **{
            key.replace(".", "_"): value for key, value in config.items()
        })  # fmt: skip
        assert made.error_code in (0, 36)
    for name in TOPICS:
        for partition in range(2 if name == "two" else 1):
            assert offsets(raw, 8, -1, topic=name, partition=partition)[0] == 0
    for codec in ("none", "gzip", "none"):
        if offsets(raw, 8, -1)[2] < 3:
            found = raw.produce("t", b"v", codec=codec, timestamp_ms=NOW_MS)
            assert found.error_code == 0
    raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=0)
    assert raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=0).error_code == 0


def transcript(address: str) -> dict[str, Any]:
    """Every answer, or its failure."""
    answers: dict[str, Any] = {}
    for name, ask in STEPS.items():
        with Raw(address) as raw:
            try:
                answers[name] = ask(raw)
            except (ConnectionError, TimeoutError) as problem:
                answers[name] = type(problem).__name__
    return answers


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory, wait_until) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Kafka's answers, and ours."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    lines = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
    directory: Path = tmp_path_factory.mktemp("kafka") / "data"
    with apache.Broker(directory, lines, heap="256m", formatted=LEVELS) as kafka:

        def is_ready() -> bool:
            with contextlib.suppress(OSError, AssertionError), Raw(kafka.bootstrap_servers) as raw:
                ready(raw)
                return True
            return False

        wait_until(is_ready, "Kafka is ready", 90)
        theirs = transcript(kafka.bootstrap_servers)
        for name, fault in fault_steps.FAULTS.items():
            theirs[name] = fault_steps.answer(kafka.bootstrap_servers, fault)
    with Broker(tmp_path_factory.mktemp("ours"), config=SETTINGS) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            ready(raw)
        ours = transcript(broker.bootstrap_servers)
        for name, fault in fault_steps.FAULTS.items():
            planted = broker.faults.fail(fault.api.name, fault.error.name)
            ours[name] = fault_steps.answer(broker.bootstrap_servers, fault)
            assert planted.hits == 1
    yield theirs, ours


@pytest.mark.parametrize("name", STEPS)
def test_kafka_gives_the_same_answer(
    transcripts: tuple[dict[str, Any], dict[str, Any]], name: str
) -> None:
    theirs, ours = transcripts
    assert ours[name] == theirs[name], f"Kafka: {theirs[name]}\nours: {ours[name]}"


@pytest.mark.parametrize("name", fault_steps.FAULTS)
def test_a_planted_error_is_told_as_kafka_tells_it(
    transcripts: tuple[dict[str, Any], dict[str, Any]], name: str
) -> None:
    """A test's broker returns it where nothing is wrong, and its clients see no difference."""
    theirs, ours = transcripts
    assert fault_steps.codes(theirs[name]) == {fault_steps.FAULTS[name].error}, theirs[name]
    assert ours[name] == theirs[name], f"Kafka: {theirs[name]}\nours: {ours[name]}"
