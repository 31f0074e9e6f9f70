"""A broker with streams groups: it creates the internal topics of an application, and gives its
members their tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.metadata.levels import STREAMS_VERSION
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.coordinator.streams_group_calls import (
    COUNTING,
    given_tasks,
    internal,
    subtopology,
    topology,
)

SETTINGS = {"group.streams.initial.rebalance.delay.ms": 0}
COUNT = "kafka_server_group_coordinator_metrics_streams_group_count"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", "127.0.0.1:0", config=SETTINGS) as one:
        yield one


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers) as one:
        one.create("t", 4)
        one.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["s"])
        yield one


def say(raw: Raw, epoch: int, **fields: Any) -> Any:
    body = {"group_id": "s", "member_id": "a", "member_epoch": epoch,
            "endpoint_information_epoch": -1, **fields}  # fmt: skip
    return raw.call(apis.STREAMS_GROUP_HEARTBEAT, 1, **body)


def come(raw: Raw, found: dict[str, Any], wanted: int = 0) -> Any:
    """A first heartbeat, once the coordinator takes it and has this many statuses."""
    answers: list[Any] = []

    def taken() -> bool:
        answers.append(
            say(raw, 0, topology=found, rebalance_timeout_ms=60_000, process_id="p",
                active_tasks=[], standby_tasks=[], warmup_tasks=[])
        )  # fmt: skip
        return not answers[-1].error_code and len(answers[-1].status) == wanted

    wait_for(taken, "the group")
    return answers[-1]


def test_internal_topics_are_created_with_their_settings(raw: Raw, broker: Broker) -> None:
    ready = come(raw, COUNTING)
    found = given_tasks(ready)
    assert found == {"active": {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}}
    with kafkalog.Admin(broker.bootstrap_servers) as admin:
        topics = admin.describe_topics(["again", "kept"]).check()
        assert {name: len(one.partitions) for name, one in topics.items()} == {
            "again": 4, "kept": 4,
        }  # fmt: skip
        kept = admin.describe_configs([("topic", "kept")])["topic", "kept"]
        assert kept["cleanup.policy"].value == "compact"
    metrics = broker.metrics()
    assert metrics[f'{COUNT}{{state="stable"}}'] == 1
    assert metrics[f'{COUNT}{{state="not_ready"}}'] == 0
    assert metrics['kafkalog_group_members{group="s"}'] == 1


def test_a_topic_that_cannot_be_created_is_named(raw: Raw, broker: Broker) -> None:
    wrong = internal("kept", **{"cleanup.policy": "none"})
    found = topology(subtopology("0", "t", state_changelog_topics=[wrong]))
    come(raw, found, wanted=1)

    def named() -> bool:
        (status,) = say(raw, 0, topology=found, rebalance_timeout_ms=60_000, process_id="p",
                        active_tasks=[], standby_tasks=[], warmup_tasks=[]).status  # fmt: skip
        return "; Creation failed: kept (INVALID_CONFIG)." in status.status_detail

    wait_for(named, "the reason")
    assert broker.metrics()[f'{COUNT}{{state="not_ready"}}'] == 1


def test_a_group_is_there_after_a_restart(tmp_path: Path) -> None:
    with (
        Broker(tmp_path / "data", "127.0.0.1:0", config=SETTINGS) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        raw.create("t", 4)
        raw.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["s"])
        epoch = come(raw, topology()).member_epoch
    with (
        Broker(tmp_path / "data", "127.0.0.1:0", config=SETTINGS) as broker,
        Raw(broker.bootstrap_servers) as raw,
    ):
        unready = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
        wait_for(lambda: say(raw, epoch).error_code not in unready, "the coordinator")
        again = say(raw, epoch)
        assert (again.error_code, again.member_epoch) == (0, epoch)


def test_a_cluster_without_the_feature_refuses_streams_groups(raw: Raw) -> None:
    update = {"feature": STREAMS_VERSION, "max_version_level": 0, "upgrade_type": 2}
    done = raw.call(apis.UPDATE_FEATURES, 2, timeout_ms=30_000, feature_updates=[update])
    assert not done.error_code, done
    refused = ErrorCode.UNSUPPORTED_VERSION
    assert say(raw, 0, topology=topology()).error_code == refused
    (row,) = raw.call(apis.STREAMS_GROUP_DESCRIBE, 1, group_ids=["s"]).groups
    assert (row.group_id, row.error_code) == ("s", refused)


def test_settings_of_a_group_are_bounded(raw: Raw) -> None:
    for name, value, why in (
        ("streams.num.standby.replicas", "3", "must be less than or equal to"),
        ("streams.task.offset.interval.ms", "1", "must be greater than or equal to"),
        ("streams.session.timeout.ms", "1", "must be greater than or equal to"),
        ("streams.rack.aware.assignment.tags", "a,a", "each at most once"),
        ("streams.assignor.name", "none", "one of sticky"),
    ):
        answer = raw.alter(32, "s", **{name.replace(".", "_"): value})
        assert (answer.error_code, why in answer.error_message) == (40, True), answer
    assert not raw.alter(32, "s", streams_num_standby_replicas="2").error_code
    found = raw.describe(32, "s")
    assert found["streams.num.standby.replicas"].value == "2"
    assert found["streams.session.timeout.ms"].value == "45000"
