"""How a node answers for copies that the controller has it drop."""

from __future__ import annotations

import errno
import logging
import shutil
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.client.admin import Admin
from kafkalog.errors import NotLeaderOrFollower
from kafkalog.metadata.image import Partition
from kafkalog.replication.roles import Drop, Follow, Held
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.replica_manager import ReplicaManager
from kafkalog.server.replica_retries import retry_of
from kafkalog.testing.standin import StandIn
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import STOP_REPLICA
from tests.support.waiting import wait_for

T = TopicPartition("t", 0)
PARTITION = Partition(0, (1, 2), (2,), 2, 0, 0)


class Kept:
    """A node of a cluster that keeps one copy."""

    def __init__(self, broker: Broker) -> None:
        self.node = node_of(broker)
        assert broker._member is not None
        self.member = broker._member
        assert isinstance(self.node.partitions, ReplicaManager)
        self.replicas = self.node.partitions
        self.folder = Path(broker.path) / "t-0"

    def drop(self, delete: bool = True) -> ErrorCode:
        """The answer to the controller's StopReplica."""
        member = self.member
        row = {"partition_index": 0, "leader_epoch": -2, "delete_partition": delete}
        fields = {
            "controller_id": member.controller, "controller_epoch": 99,
            "broker_epoch": member.epoch,
            "topic_states": [{"topic_name": "t", "partition_states": [row]}],
        }  # fmt: skip
        data = STOP_REPLICA.encode_request(STOP_REPLICA.max_version, fields)
        asked = STOP_REPLICA.decode_request(STOP_REPLICA.max_version, data)
        answer = member.obey(STOP_REPLICA, asked)
        (found,) = answer["partition_errors"]
        return ErrorCode(found["error_code"])


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    with StandIn() as inside:
        config = {"node.id": 1, "zookeeper.connect": inside.hosts,
                  "controlled.shutdown.enable": False}  # fmt: skip
        with Broker(tmp_path / "data", config=config) as broker:
            with Admin(broker.bootstrap_servers) as admin:
                admin.create_topic("t", 1)
            found = Kept(broker)
            wait_for(lambda: T in found.replicas.led.partitions(), "it is led")
            yield found


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


def test_a_copy_that_is_gone_is_dropped(kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """Controllers repeat the request; the second one finds nothing, and nothing is owed."""
    for _ in range(3):
        assert kept.drop() == ErrorCode.NONE
        assert (kept.folder.exists(), kept.replicas._retries) == (False, {})
    assert errors(caplog) == []


def test_a_folder_that_somebody_removed_is_dropped(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(kept.folder)
    assert (kept.drop(), kept.replicas._retries) == (ErrorCode.NONE, {})
    assert not kept.node.manager.has(T)
    assert errors(caplog) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EIO, ErrorCode.KAFKA_STORAGE_ERROR), (errno.ENOSPC, ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_a_copy_that_stays_is_owed(
    kept: Kept, native_test: Any, number: int, code: ErrorCode
) -> None:
    """Only a broken disk is called one; the node tries again by itself."""
    lib = native_test[1]
    lib.kl_io_fail(b"renameat", 1, number, 1, 0)
    try:
        assert kept.drop() == code
        assert [*kept.replicas._retries] == [T]
    finally:
        lib.kl_io_reset()
    wait_for(lambda: not kept.folder.exists(), "it is retried")
    wait_for(lambda: not kept.replicas._retries, "nothing is owed")
    kept.replicas.retry()  # nothing is owed any more


def test_retries_come_after_growing_delays() -> None:
    drop, now_s = Drop(T, True), 100.0
    found = retry_of(drop, "why", None, now_s)
    pauses = []
    for _ in range(9):
        pauses.append(found.due_s - now_s)
        now_s = found.due_s
        found = retry_of(drop, "why", found, now_s)
    assert pauses[0] < 1 and pauses[-1] == 60
    for one, later in pairwise(pauses):
        assert later == pytest.approx(min(2 * one, 60))
    other = retry_of(Follow(T, Held(UUID(int=1), PARTITION), False), "why", found, now_s)
    assert other.due_s - now_s < 1, "another change starts with a short pause"


def test_a_directory_that_closes_is_not_broken(kept: Kept) -> None:
    """And the copy is still there, so it is not called gone either."""
    kept.node.manager.close()
    assert kept.drop() == ErrorCode.UNKNOWN_SERVER_ERROR
    assert kept.folder.exists()


def test_a_copy_that_is_taken_away_has_no_broken_disk(kept: Kept) -> None:
    """The controller takes it away after its log was opened, before it is led."""
    member = kept.member
    log = kept.replicas.log(*T)
    assert kept.replicas._carry_out([Drop(T, False)]) == {}
    log.close()
    taken = threading.Event()

    def take(_: object) -> None:
        taken.set()
        assert kept.drop(delete=False) == ErrorCode.NONE

    kept.node.manager.on_open = take
    with pytest.raises(NotLeaderOrFollower):
        kept.replicas.log(*T)
    assert taken.is_set()
    assert member.held(T) is None
    assert not kept.replicas.offline(*T)
