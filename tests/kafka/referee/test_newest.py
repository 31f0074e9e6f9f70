"""APIs that Apache Kafka 4.4 extended: the same requests, the same answers."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.metadata.levels import LEVEL
from kafkalog.server.broker import Broker
from kafkalog.server.handlers.api_versions import OF_TELEMETRY
from kafkalog.wire import apis
from kafkalog.wire.values import ZERO_UUID
from tests.kafka.referee import transaction_steps
from tests.support import apache
from tests.support.raw import Raw
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "1",
}
TOPICS = {"t": 1, "two": 2}
NONE_SUCH = uuid.UUID("12345678-1234-5678-1234-567812345678")
Step = Callable[[Raw], Any]
STEPS: dict[str, Step] = {}


def step(ask: Step) -> Step:
    """A request, named by its function; sent in the order of this file."""
    STEPS[ask.__name__] = ask
    return ask


def versions(raw: Raw, version: int = 4, **more: Any) -> Any:
    who = {"client_software_name": "a", "client_software_version": "1"}
    return raw.call(apis.API_VERSIONS, version, **who, **more)


def features(raw: Raw, *changes: tuple[str, int, int]) -> tuple[int, str | None]:
    """(error, message) of UpdateFeatures."""
    updates = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind}
        for name, level, kind in changes
    ]
    found = raw.call(apis.UPDATE_FEATURES, 2, feature_updates=updates)
    return found.error_code, found.error_message


@step
def ranges_of_versions(raw: Raw) -> Any:
    """The versions of every API that we announce; Kafka announces those of clients' metrics if it
    has a receiver, see tests/kafka/clients/test_client_telemetry.py."""
    known = {one.api_key: (one.min_version, one.max_version) for one in versions(raw).api_keys}
    served = [api for api in apis.BY_KEY.values() if api.served and api not in OF_TELEMETRY]
    return {api.name: known.get(api.key) for api in served}


@step
def versions_of_a_cluster_and_node(raw: Raw) -> Any:
    """KIP-1242: a client names its cluster and node; after an error it asks with the right ones."""
    mine = raw.call(apis.DESCRIBE_CLUSTER, 1, endpoint_type=1).cluster_id
    asked: list[dict[str, Any]] = [
        {}, {"cluster_id": mine, "node_id": 1}, {"cluster_id": mine, "node_id": 2},
        {"cluster_id": mine}, {"cluster_id": "other", "node_id": 1}, {"node_id": 7},
        {"cluster_id": "", "node_id": 1},
    ]  # fmt: skip
    found = [versions(raw, 5, **one) for one in asked]
    wrong = raw.call(
        apis.API_VERSIONS, 5, client_software_name="-", client_software_version="1",
        cluster_id="other",
    )  # fmt: skip
    return [(one.error_code, bool(one.api_keys)) for one in found], wrong.error_code


@step
def offsets_of_every_kind(raw: Raw) -> Any:
    def ask(version: int, timestamp: int) -> tuple[int, ...]:
        found = raw.offsets("t", timestamp, version=version)
        return found.error_code, found.timestamp, found.offset, found.leader_epoch

    return [ask(version, time) for version in (9, 10, 11) for time in (-1, -2, -3, -4, -5, -6, -7)]


@step
def log_dirs_that_are_cordoned(raw: Raw) -> Any:
    (one,) = raw.call(apis.DESCRIBE_LOG_DIRS, 5, topics=[]).results
    return one.error_code, one.is_cordoned, list(one.topics)


@step
def groups_deleted(raw: Raw) -> Any:
    found = []
    for version in (2, 3):
        commit(raw, f"gone-{version}", "t")
        names = [f"gone-{version}", "none-such", "", "none-such"]
        told = raw.call(apis.DELETE_GROUPS, version, groups_names=names).results
        found.append(sorted((one.group_id, one.error_code, one.error_message) for one in told))
    return found


def commit(raw: Raw, group: str, name: str) -> int:
    """The error of an OffsetCommit of offset 5."""
    parts = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}]
    topics = [{"name": name, "partitions": parts}]
    found = raw.call(apis.OFFSET_COMMIT, 9, group_id=group, member_id="", topics=topics)
    return int(found.topics[0].partitions[0].error_code)


def ids(raw: Raw) -> dict[str, uuid.UUID]:
    """The ids of the topics, and one that no topic has."""
    found = raw.call(apis.METADATA, 12, topics=[{"name": name} for name in TOPICS]).topics
    return {**{one.name: one.topic_id for one in found}, "": NONE_SUCH, "zero": ZERO_UUID}


def named(topics: Any, known: dict[str, uuid.UUID]) -> Any:
    """An answer's topics, by name again: (name, its partitions)."""
    names = {topic_id: name for name, topic_id in known.items()}
    return sorted(
        (names[one.topic_id], sorted(tuple(value for _, value in each) for each in one.partitions))
        for one in topics
    )


@step
def offsets_committed_by_id(raw: Raw) -> Any:
    known = ids(raw)
    parts = [
        {"partition_index": one, "committed_offset": 5 + one, "committed_metadata": text}
        for one, text in ((0, "m"), (1, "x" * 5000), (7, ""))
    ]

    def ask(group: str, *topics: str, **more: Any) -> Any:
        entries = [{"topic_id": known[one], "partitions": parts} for one in topics]
        body = {"group_id": group, "member_id": "", "topics": entries, **more}
        return named(raw.call(apis.OFFSET_COMMIT, 10, **body).topics, known)

    return [
        ask("by-id", "two", "t"), ask("by-id", "", "two"), ask("by-id", ""),
        ask("by-id", "zero", "t"), ask("no-group", "two", "", generation_id_or_member_epoch=3),
        ask("by-id", "two", "", generation_id_or_member_epoch=3), ask("by-id"),
    ]  # fmt: skip


@step
def offsets_fetched_by_id(raw: Raw) -> Any:
    known = ids(raw)
    raw.create("short", 1)
    commit(raw, "by-id", "short")
    raw.call(apis.DELETE_TOPICS, 6, topics=[{"name": "short"}], timeout_ms=30_000)

    def ask(group: str, topics: list[str] | None, **more: Any) -> Any:
        entries = None if topics is None else [
            {"topic_id": known[one], "partition_indexes": [0, 1, 7]} for one in topics
        ]  # fmt: skip
        asked = {"group_id": group, "topics": entries, **more}
        (found,) = raw.call(apis.OFFSET_FETCH, 10, groups=[asked], require_stable=True).groups
        return found.group_id, found.error_code, named(found.topics, known)

    return [
        ask(group, topics)
        for group in ("by-id", "no-group", "")
        for topics in (["two", "t"], ["", "two"], [""], ["zero", "t"], [], None)
    ] + [ask("by-id", ["t"], member_id="nobody", member_epoch=3)]


@step
def offsets_of_transactions_by_id(raw: Raw) -> Any:
    """KIP-1319; the group's partition joins the transaction."""
    known = ids(raw)
    name = "by-id"
    raw.call(apis.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[name])
    body = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    made = raw.call(apis.INIT_PRODUCER_ID, 4, **body)
    who = {"transactional_id": name, "producer_id": made.producer_id,
           "producer_epoch": made.producer_epoch}  # fmt: skip
    parts = [
        {"partition_index": one, "committed_offset": 6, "committed_metadata": text}
        for one, text in ((0, "m"), (1, "x" * 5000), (7, ""))
    ]

    def ask(group: str, *topics: str, **more: Any) -> Any:
        entries = [{"topic_id": known[one], "partitions": parts} for one in topics]
        asked = {**who, "group_id": group, "topics": entries, **more}
        return named(raw.call(apis.TXN_OFFSET_COMMIT, 6, **asked).topics, known)

    found = [
        ask("of-ids", "", "zero"), ask("", "two", ""),
        ask("of-ids", "two", "", "t"), ask("no-group", "two", "", generation_id_or_member_epoch=3),
        ask("no-group", "two", generation_id_or_member_epoch=3, member_id="m"),
        ask("of-ids", "two", "", producer_epoch=made.producer_epoch + 1), ask("of-ids"),
    ]  # fmt: skip
    ended = raw.call(apis.END_TXN, 5, **who, committed=True)
    asked = {"group_id": "of-ids", "topics": None}

    def over() -> bool:
        nonlocal asked_now
        asked_now = raw.call(apis.OFFSET_FETCH, 10, groups=[asked], require_stable=True)
        return bool(asked_now.groups[0].topics) and not any(
            each.error_code for one in asked_now.groups[0].topics for each in one.partitions
        )

    asked_now: Any = None
    wait_for(over, "the end of the transaction", 60)
    return found, ended.error_code, named(asked_now.groups[0].topics, known)


@step
def markers_of_version_2_of_transactions(raw: Raw) -> Any:
    """KIP-1228: a marker with the epoch of an open transaction is late, and ends nothing."""
    client = transaction_steps.Client(raw, "marked-twice")
    client.init()
    client.init()

    def mark(transaction: int, epoch: int = 0, coordinator: int = 5, version: int = 2) -> int:
        marker = {
            "producer_id": client.producer_id, "producer_epoch": client.epoch + epoch,
            "transaction_result": False, "coordinator_epoch": coordinator,
            "topics": [{"name": "two", "partition_indexes": [0]}],
            "transaction_version": transaction,
        }  # fmt: skip
        (found,) = raw.call(apis.WRITE_TXN_MARKERS, version, markers=[marker]).markers
        return int(found.topics[0].partitions[0].error_code)

    def open_now() -> bool:
        asked = [{"name": "two", "partition_indexes": [0]}]
        (found,) = raw.call(apis.DESCRIBE_PRODUCERS, 0, topics=asked).topics[0].partitions
        return any(one.current_txn_start_offset >= 0 for one in found.active_producers)

    told = [client.add(0), client.write(), open_now()]
    told += [mark(2), open_now(), mark(3), mark(2, epoch=-1), open_now()]
    told += [mark(2, version=1), open_now(), mark(2), mark(2), mark(2, coordinator=4)]
    told += [client.write(), open_now(), mark(1), open_now(), mark(2)]
    told += [client.write(), mark(2), mark(2, epoch=1), open_now(), mark(2), mark(2, epoch=1)]
    return [*told, mark(2, epoch=1, coordinator=4), mark(0, epoch=1), open_now()]


@step
def the_directory_of_the_log(raw: Raw) -> Any:
    """It is the one that DescribeLogDirs names; each side has its own."""
    (directory,) = raw.call(apis.DESCRIBE_LOG_DIRS, 4, topics=[]).results
    found = []
    for names, resource in ((["log.dirs"], "1"), (["log.dirs"], ""), (None, "1")):
        asked = {"resource_type": 4, "resource_name": resource, "configuration_keys": names}
        body = {"resources": [asked], "include_synonyms": True, "include_documentation": False}
        (one,) = raw.call(apis.DESCRIBE_CONFIGS, 4, **body).results
        for each in one.configs:
            if each.name == "log.dirs":
                synonyms = [(s.name, s.value == directory.log_dir, s.source) for s in each.synonyms]
                found.append(
                    (
                        resource,
                        each.value == directory.log_dir,
                        each.read_only,
                        each.config_source,
                        each.is_sensitive,
                        each.config_type,
                        synonyms,
                    )
                )
    return found  # fmt: skip


@step
def a_version_that_is_not_announced(raw: Raw) -> Any:
    body = {"transactional_id": "two-phases", "transaction_timeout_ms": 60_000}
    try:
        return raw.call(apis.INIT_PRODUCER_ID, 6, **body, enable2_pc=True).error_code
    except ConnectionError:
        return None


@step
def registrations_ended(raw: Raw) -> Any:
    """Only we refuse to unregister broker 1 itself."""

    def told(found: Any) -> tuple[int, str | None]:
        return found.error_code, found.error_message

    brokers = [raw.call(apis.UNREGISTER_BROKER, 0, broker_id=one) for one in (7, -1)]
    controllers = [raw.call(apis.UNREGISTER_CONTROLLER, 0, controller_id=one) for one in (1, 7, -1)]
    return [told(one) for one in (*brokers, *controllers)]


@step
def levels_lowered(raw: Raw) -> Any:
    """Kafka starts on the newest level, we were raised to it."""
    name = "metadata.version"
    return [features(raw, (name, level, kind)) for level in (20, LEVEL - 1) for kind in (2, 3)]


# ---- both sides --------------------------------------------------------------------------------


def ready(raw: Raw) -> None:
    """Create the topics and the coordinators; raises until the broker is ready."""
    for name, count in TOPICS.items():
        assert raw.create(name, count).error_code in (0, 36)
        for partition in range(count):
            assert raw.offsets(name, -1, partition, version=8).error_code == 0
    for kind in (0, 1):
        assert raw.call(apis.FIND_COORDINATOR, 2, key="g", key_type=kind).error_code == 0
    assert commit(raw, "ready", "t") == 0
    body = {"transactional_id": "ready", "transaction_timeout_ms": 60_000}
    assert raw.call(apis.INIT_PRODUCER_ID, 4, **body).error_code == 0


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
    with apache.Broker(directory, lines, heap="256m") as kafka:

        def is_ready() -> bool:
            with contextlib.suppress(OSError, AssertionError), Raw(kafka.bootstrap_servers) as raw:
                ready(raw)
                return True
            return False

        wait_until(is_ready, "Kafka is ready", 90)
        theirs = transcript(kafka.bootstrap_servers)
    with Broker(tmp_path_factory.mktemp("ours"), config=SETTINGS) as broker:

        def are_ready() -> bool:
            with contextlib.suppress(AssertionError), Raw(broker.bootstrap_servers) as raw:
                ready(raw)
                return True
            return False

        wait_until(are_ready, "we are ready", 90)
        with Raw(broker.bootstrap_servers) as raw:
            assert features(raw, ("metadata.version", LEVEL, 1)) == (0, None)
        ours = transcript(broker.bootstrap_servers)
    yield theirs, ours


@pytest.mark.parametrize("name", STEPS)
def test_kafka_gives_the_same_answer(
    transcripts: tuple[dict[str, Any], dict[str, Any]], name: str
) -> None:
    theirs, ours = transcripts
    assert not isinstance(theirs[name], str), theirs[name]  # otherwise it failed, and cannot judge
    assert ours[name] == theirs[name], f"Kafka: {theirs[name]}\nours: {ours[name]}"
