"""A log that cannot be opened is reported as in Kafka, and can be repaired without a restart."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.clock import ManualClock
from kafkalog.disk.layout import (
    PARTITION_METADATA,
    random_topic_id,
    render_partition_metadata,
)
from kafkalog.server import partitions
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S
from tests.unit.server.conftest import MakeBroker

OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR
FIRST = f"{0:020d}.log"


def folder_for_file(folder: Path) -> None:
    """Make the segment unreadable: a directory replaces it."""
    (folder / FIRST).rename(folder / "kept")
    (folder / FIRST).mkdir()


def another_topic(folder: Path) -> None:
    """The folder was restored from another topic's: it must not be read as this one."""
    (folder / PARTITION_METADATA).rename(folder / "kept")
    data = render_partition_metadata(random_topic_id())
    (folder / PARTITION_METADATA).write_bytes(data)


def gone(folder: Path) -> None:
    """The segment was removed, mistaken for log output."""
    (folder / FIRST).rename(folder / "kept")


def heal(folder: Path) -> None:
    if (folder / FIRST).is_dir():
        (folder / FIRST).rmdir()
    if not (folder / FIRST).exists():
        os.replace(folder / "kept", folder / FIRST)
    else:
        os.replace(folder / "kept", folder / PARTITION_METADATA)


def produce(raw: Raw, partition: int) -> int:
    part = {"index": partition, "records": batch([Row(b"x")])}
    topics = [{"name": "t", "partition_data": [part]}]
    answer = raw.call(
        apis.PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=10_000, topic_data=topics
    )
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(raw: Raw, partition: int, version: int = 12) -> int:
    part = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    answer = raw.call(
        apis.FETCH, version, replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
        isolation_level=0, session_id=0, session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[{"topic": "t", "partitions": [part]}],
    )  # fmt: skip
    return int(answer.responses[0].partitions[0].error_code)


def list_offsets(raw: Raw, partition: int) -> int:
    part = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
    answer = raw.call(
        apis.LIST_OFFSETS, 5, replica_id=-1, isolation_level=0,
        topics=[{"name": "t", "partitions": [part]}],
    )  # fmt: skip
    return int(answer.topics[0].partitions[0].error_code)


def described(raw: Raw) -> list[Any]:
    topics = [{"name": "t"}]
    answer = raw.call(apis.METADATA, 8, topics=topics, allow_auto_topic_creation=False)
    return sorted(answer.topics[0].partitions, key=lambda one: one.partition_index)


@pytest.mark.parametrize("damage", [folder_for_file, another_topic, gone])
def test_a_log_that_cannot_be_opened_is_offline(
    make_broker: MakeBroker, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Produce, Fetch, ListOffsets, Metadata and DescribeLogDirs report it; others still work."""
    with make_broker() as first, Raw(first.bootstrap_servers) as raw:
        raw.create("t", 2)
        assert [produce(raw, n) for n in (0, 1)] == [0, 0]
        folder = Path(first.path) / "t-0"
    damage(folder)
    clock = ManualClock()
    broker: Broker = make_broker(clock)
    with Raw(broker.bootstrap_servers) as raw:
        assert [one.leader_id for one in described(raw)] == [1, 1]  # no request has used it yet
        assert [produce(raw, 0), fetch(raw, 0), list_offsets(raw, 0)] == [OFFLINE] * 3
        assert fetch(raw, 0, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER  # the only fitting code
        said = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
        assert any("t-0 cannot be opened: " in one for one in said), said
        assert damage is not gone or any("ends at offset 0, wanted 1:" in one for one in said), said
        assert [produce(raw, 1), fetch(raw, 1), list_offsets(raw, 1)] == [0] * 3
        bad, good = described(raw)
        assert (bad.error_code, bad.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (bad.offline_replicas, bad.isr_nodes) == ([1], [1])
        assert (good.error_code, good.leader_id, good.offline_replicas) == (0, 1, [])
        (place,) = raw.call(apis.DESCRIBE_LOG_DIRS, 3, topics=None).results
        assert place.error_code == OFFLINE
        assert [p.partition_index for t in place.topics for p in t.partitions] == [1]
        heal(folder)
        assert produce(raw, 0) == OFFLINE  # it is left alone for a while
        clock.advance(int(partitions.RETRY_S * 1000) + 1)
        assert [one.error_code for one in described(raw)] == [0, 0]
        assert [fetch(raw, 0), produce(raw, 0)] == [0, 0]
        (place,) = raw.call(apis.DESCRIBE_LOG_DIRS, 3, topics=None).results
        assert place.error_code == 0


def test_a_log_that_fails_after_it_was_opened_is_told(
    make_broker: MakeBroker, native_test: tuple[Any, Any]
) -> None:
    """Metadata and DescribeLogDirs report it; the other partition still works."""
    _, lib = native_test
    with make_broker() as broker, Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 2)
        assert [produce(raw, n) for n in (0, 1)] == [0, 0]
        lib.kl_io_reset()
        lib.kl_io_fail(b"fdatasync", 1, errno.EIO, 1, 0)
        try:
            assert raw.produce("t", b"v", acks=-1).error_code == OFFLINE
        finally:
            lib.kl_io_reset()
        bad, good = described(raw)
        assert (bad.error_code, bad.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert bad.offline_replicas == [1]
        assert (good.error_code, good.leader_id, good.offline_replicas) == (0, 1, [])
        (place,) = raw.call(apis.DESCRIBE_LOG_DIRS, 3, topics=None).results
        assert place.error_code == OFFLINE
        assert produce(raw, 1) == 0
        with pytest.raises(errors.KafkalogError):
            broker.close()


def test_limits_of_connections_change_at_run_time(broker: Broker, raw: Raw) -> None:
    """Existing connections stay; new ones are accepted, or not, by the current limit."""
    broker_kind = 4
    assert raw.alter(broker_kind, "", max_connections_per_ip="1").error_code == 0
    with Raw(broker.bootstrap_servers) as second, pytest.raises(ConnectionError):
        second.call(apis.API_VERSIONS, 0)
    assert raw.call(apis.API_VERSIONS, 0).error_code == 0
    assert raw.alter(broker_kind, "", max_connections_per_ip=None).error_code == 0
    with Raw(broker.bootstrap_servers) as second:
        assert second.call(apis.API_VERSIONS, 0).error_code == 0
    assert raw.alter(broker_kind, "1", max_connections="1").error_code == 0
    with Raw(broker.bootstrap_servers) as waiting:
        waiting.socket.settimeout(0.2)
        waiting.send(apis.API_VERSIONS, 0, {})
        with pytest.raises(socket.timeout):
            waiting.receive_frame()
        waiting.socket.settimeout(LIMIT_S)
        assert raw.alter(broker_kind, "1", max_connections="2").error_code == 0
        assert waiting.receive(apis.API_VERSIONS, 0).error_code == 0


def test_static_settings_are_refused(raw: Raw) -> None:
    """With Kafka's message."""
    answer = raw.alter(4, "1", queued_max_requests="5")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (
        answer.error_message == "Cannot update these configs dynamically: ['queued.max.requests']"
    )
