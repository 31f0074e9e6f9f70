"""The metrics of groups whose members heartbeat: share groups, and those with many offsets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.coordinator.thread import QUEUED_BYTES_MAX
from kafkalog.metadata.levels import SHARE_VERSION
from kafkalog.server.broker import node_of
from kafkalog.server.metrics import coordinators
from kafkalog.server.metrics.health import missing_of_broker
from kafkalog.wire import apis
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S, wait_for

MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
COUNTS = "kafka_server_group_coordinator_metrics_"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kafkalog.Broker]:
    """A broker that shows one committed offset at most."""
    config = {"kafkalog.metrics.max.partitions": 1}
    with kafkalog.Broker(tmp_path / "data", "127.0.0.1:0", config=config) as one:
        yield one


@pytest.fixture
def raw(broker: kafkalog.Broker) -> Iterator[Raw]:
    with Raw(broker.bootstrap_servers) as one:
        one.create("t", 2)
        one.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        yield one


def joined(raw: Raw, api: Any, **fields: Any) -> int:
    """The epoch of a new member of the group, once the coordinator takes it."""
    epochs: list[int] = []

    def answered() -> bool:
        answer = raw.call(api, 1, group_id="g", member_id="m", member_epoch=0,
                          subscribed_topic_names=["t"], **fields)  # fmt: skip
        epochs.append(answer.member_epoch)
        return not answer.error_code

    wait_for(answered, "the group has a member")
    return epochs[-1]


def committed(raw: Raw, epoch: int, *partitions: int) -> None:
    parts = [{"partition_index": one, "committed_offset": 0} for one in partitions]
    answer = raw.call(
        apis.OFFSET_COMMIT, 9, group_id="g", member_id="m", generation_id_or_member_epoch=epoch,
        topics=[{"name": "t", "partitions": parts}],
    )  # fmt: skip
    assert not any(one.error_code for topic in answer.topics for one in topic.partitions), answer


def test_share_groups_are_counted_by_their_states(raw: Raw, broker: kafkalog.Broker) -> None:
    joined(raw, apis.SHARE_GROUP_HEARTBEAT)
    found = broker.metrics()
    assert found[f'{COUNTS}share_group_count{{state="stable"}}'] == 1
    assert found[f'{COUNTS}share_group_count{{state="empty"}}'] == 0
    assert (found[f"{MANAGER}numgroups"], found[f"{MANAGER}numgroupsempty"]) == (0, 0)
    assert found['kafkalog_group_members{group="g"}'] == 1
    assert found['kafkalog_group_state{group="g",state="Stable"}'] == 1
    assert [name for name in found if name.startswith("kafkalog_group_lag")] == []
    left = raw.call(apis.SHARE_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", member_epoch=-1)
    assert not left.error_code, left
    found = broker.metrics()
    assert found[f'{COUNTS}share_group_count{{state="empty"}}'] == 1
    assert found['kafkalog_group_state{group="g",state="Empty"}'] == 1
    assert found[f"{MANAGER}numgroups"] == 0


def test_a_group_with_more_offsets_than_are_shown_has_members(
    raw: Raw, broker: kafkalog.Broker
) -> None:
    epoch = joined(
        raw, apis.CONSUMER_GROUP_HEARTBEAT, rebalance_timeout_ms=60_000, topic_partitions=[]
    )
    raw.produce("t", b"x", b"y")
    committed(raw, epoch, 0)
    assert broker.metrics()['kafkalog_group_lag_sum{group="g"}'] == 2
    committed(raw, epoch, 1)
    found = broker.metrics()
    assert found['kafkalog_group_members{group="g"}'] == 1
    assert 'kafkalog_group_state{group="g",state="Empty"}' not in found
    hidden = ("kafkalog_group_offset", "kafkalog_group_lag")
    assert [name for name in found if name.startswith(hidden)] == []
    assert found[f"{MANAGER}numoffsets"] == 2


def test_a_broker_without_its_share_states_is_not_ready(raw: Raw, broker: kafkalog.Broker) -> None:
    node = node_of(broker)
    wait_for(lambda: not list(missing_of_broker(node)), "it is ready")
    node.share_states.load({0: 0}, 1)  # there is no such log yet
    wait_for(lambda: "__share_group_state" in " ".join(missing_of_broker(node)), "it is not read")
    update = {"feature": SHARE_VERSION, "max_version_level": 0, "upgrade_type": 2}
    done = raw.call(apis.UPDATE_FEATURES, 2, timeout_ms=30_000, feature_updates=[update])
    assert not done.error_code, done
    wait_for(lambda: not list(missing_of_broker(node)), "it has no share groups")


def test_a_coordinator_without_room_is_left_out(
    broker: kafkalog.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "kafkalog_group_coordinator_bytes"
    begun, goes_on = threading.Event(), threading.Event()

    def busy(_step: Any) -> None:
        begun.set()
        goes_on.wait(LIMIT_S)

    coordinator = node_of(broker).coordinator
    coordinator.ask(busy, QUEUED_BYTES_MAX)
    begun.wait(LIMIT_S)
    with monkeypatch.context() as patch:
        patch.setattr(coordinators, "PATIENCE_S", 0.01)
        assert name not in broker.metrics()
        events = len(coordinator._events)
        assert name not in broker.metrics()
        assert len(coordinator._events) == events
    goes_on.set()
    wait_for(lambda: name in broker.metrics(), "the coordinator looks again")
