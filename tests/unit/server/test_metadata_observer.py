"""The metadata log of a node that is a broker alone: a replica that never votes."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import errors
from kafkalog.config.server import ServerConfig
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.kraft.snapshots import SnapshotName, list_snapshots
from kafkalog.log.log import Log
from kafkalog.metadata.image import METADATA_VERSION
from kafkalog.quorum.identity import Identity
from kafkalog.quorum.replica import controller_thread, raft_thread
from kafkalog.quorum.replica.disk import ReplicaDisk
from kafkalog.quorum.replica.replica import MetadataReplica
from kafkalog.server.broker import Broker, node_of
from kafkalog.wire import apis
from tests.support.controllers import CLUSTER, Controller
from tests.support.copies import batches_in
from tests.support.waiting import wait_for

NODE = 2


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as running:
        yield running


def started(controller: Controller, path: Path, **more: object) -> Broker:
    return Broker(path, config={**controller.settings, "node.id": NODE, **more})


def topic(controller: Controller, number: int) -> None:
    controller.write(("TopicRecord", {"name": f"t{number}", "topic_id": UUID(int=500 + number)}))


def known(broker: Broker, number: int) -> bool:
    return f"t{number}" in node_of(broker).image.topics


@pytest.mark.parametrize(
    ("name", "level"),
    [(METADATA_VERSION, 34), (METADATA_VERSION, 6), ("transaction.version", 3), ("new.thing", 1)],
)
def test_an_unsupported_feature_is_refused_by_name(
    controller: Controller, tmp_path: Path, name: str, level: int
) -> None:
    controller.write(("FeatureLevelRecord", {"name": name, "feature_level": level}))
    with pytest.raises(errors.ArgumentError, match=rf"{name}: found {level}"):
        started(controller, tmp_path / "d")
    assert not controller.count(apis.BROKER_REGISTRATION)


def test_a_start_that_meets_no_controller_names_them(tmp_path: Path) -> None:
    """It knows the cluster already."""
    with Controller() as gone:
        settings: dict[str, Any] = gone.settings
        started(gone, tmp_path / "d").close()
    settings |= {"node.id": NODE, "initial.broker.registration.timeout.ms": 3000}
    settings["controller.quorum.fetch.timeout.ms"] = 200  # then others are asked for the leader
    with pytest.raises(errors.Timeout, match=f"Fetch to {gone.servers}: .*refused"):
        Broker(tmp_path / "d", config=settings)


def test_a_controller_whose_fetch_is_too_old_is_named(
    controller: Controller, tmp_path: Path
) -> None:
    controller.versions[apis.FETCH] = (4, 16)
    quick = {"initial.broker.registration.timeout.ms": 2000}
    with pytest.raises(errors.Timeout, match=r"up to 16, wanted 17: .* Kafka 3\.9 or later"):
        started(controller, tmp_path / "d", **quick)


def test_a_leader_whose_metadata_do_not_come_is_named(
    controller: Controller, tmp_path: Path
) -> None:
    controller.commits = False
    controller._committed = 0
    quick = {"initial.broker.registration.timeout.ms": 2000}
    with pytest.raises(errors.Timeout, match=f"node 1 at {controller.servers} leads"):
        started(controller, tmp_path / "d", **quick)


def test_a_full_disk_ends_no_heartbeat_and_nothing_is_missed_later(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions are read, and led, until there is space again."""
    full, append = threading.Event(), Log.append_as_follower
    refused = threading.Event()

    def appends(log: Log, batches: Any) -> Any:
        if full.is_set() and log.topic == METADATA_TOPIC:
            refused.set()
            raise errors.NoSpace(errno.ENOSPC, "no space")
        return append(log, batches)

    monkeypatch.setattr(Log, "append_as_follower", appends)
    monkeypatch.setattr(raft_thread, "DISK_S", 0.05)
    with started(controller, tmp_path / "d") as broker:
        full.set()
        topic(controller, 1)
        wait_for(refused.is_set, "the disk is full")
        sent = controller.count(apis.BROKER_HEARTBEAT)
        wait_for(lambda: controller.count(apis.BROKER_HEARTBEAT) >= sent + 5, "it is alive")
        assert not known(broker, 1)
        full.clear()
        wait_for(lambda: known(broker, 1), "the record has come")
    assert controller.count(apis.BROKER_REGISTRATION) == 1


def test_a_full_disk_lets_no_log_be_read_again(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known up to the batch that was refused, and may be long."""
    left, refused, append = [2], [0], Log.append_as_follower
    views, view = list[str](), ReplicaDisk.view

    def appends(log: Log, batches: Any) -> Any:
        if not left[0]:
            refused[0] += 1
            raise errors.NoSpace(errno.ENOSPC, "no space")
        left[0] -= 1
        return append(log, batches)

    def viewed(disk: ReplicaDisk) -> Any:
        views.append(disk.folder)
        return view(disk)

    monkeypatch.setattr(Log, "append_as_follower", appends)
    monkeypatch.setattr(raft_thread, "DISK_S", 0.02)
    for number in range(3):
        topic(controller, number)
    config = ServerConfig.of({**controller.settings, "node.id": NODE})
    with Manager(tmp_path / "d", config, node_id=NODE, adopt=True) as manager:
        identity = Identity(CLUSTER, NODE, UUID(int=1234))
        replica = MetadataReplica(manager, config, identity, ())
        monkeypatch.setattr(ReplicaDisk, "view", viewed)
        replica.start()
        try:
            wait_for(lambda: refused[0] > 5, "the disk is full")
            assert not replica.image.topics
            left[0] = 1_000
            wait_for(lambda: {"t0", "t1", "t2"} <= {*replica.image.topics}, "there is space")
            assert views == []
            log, again = replica._raft.state.log, view(replica._disk)
            assert log._replace(flushed=0) == again._replace(flushed=0)
        finally:
            replica.stop()
    assert b"".join(batches_in(tmp_path / "d" / f"{METADATA_TOPIC}-0")) == controller.log


def test_a_read_that_fails_ends_no_role(
    controller: Controller, tmp_path: Path, native_test: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without descriptors the broker goes on with the metadata that it has, until it can read."""
    monkeypatch.setattr(controller_thread, "READ_S", 0.02)
    hooks = native_test[1]
    with started(controller, tmp_path / "d") as broker:
        hooks.kl_io_reset()
        hooks.kl_io_fail(b"pread", 1, errno.EMFILE, 1, 0)
        try:
            topic(controller, 1)
            wait_for(lambda: hooks.kl_io_calls(b"pread") > 5, "it was read again and again")
            sent = controller.count(apis.BROKER_HEARTBEAT)
            wait_for(lambda: controller.count(apis.BROKER_HEARTBEAT) >= sent + 5, "it is alive")
            assert not known(broker, 1)
        finally:
            hooks.kl_io_reset()
        wait_for(lambda: known(broker, 1), "the record is applied")
        topic(controller, 2)
        wait_for(lambda: known(broker, 2), "it follows on")
    assert controller.count(apis.BROKER_REGISTRATION) == 1


def test_it_takes_snapshots(controller: Controller, tmp_path: Path) -> None:
    """The next start reads them, and the log after them."""
    small = {"metadata.log.max.record.bytes.between.snapshots": 1}
    folder = tmp_path / "d" / f"{METADATA_TOPIC}-0"

    def newest() -> SnapshotName:
        return list_snapshots(str(folder))[-1]

    with started(controller, tmp_path / "d", **small) as broker:
        topic(controller, 1)
        wait_for(lambda: known(broker, 1), "the topic is known")
        end = node_of(broker).image.offset + 1

        def covered() -> bool:
            """Records that come while a snapshot is written are in the next, after one more."""
            controller.write(("NoOpRecord", {}))
            return newest().offset >= end

        wait_for(covered, "a snapshot has it", pause_s=0.1)
    topic(controller, 2)
    with started(controller, tmp_path / "d") as broker:
        assert known(broker, 1)
        wait_for(lambda: known(broker, 2), "what was written in between")


def test_damage_of_its_own_log_is_not_the_leaders(controller: Controller, tmp_path: Path) -> None:
    """It is found at the start, before the broker registers."""
    with started(controller, tmp_path / "d"):
        topic(controller, 1)
    (path,) = (tmp_path / "d" / f"{METADATA_TOPIC}-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(errors.KafkalogError):
        started(controller, tmp_path / "d")
    assert controller.count(apis.BROKER_REGISTRATION) == 1


def test_a_restart_waits_for_the_leaders_high_watermark(
    controller: Controller, tmp_path: Path
) -> None:
    """Records on its disk may never have been committed."""
    folder = tmp_path / "d" / f"{METADATA_TOPIC}-0"
    broker = started(controller, tmp_path / "d")
    controller.commits = False
    topic(controller, 1)
    wait_for(lambda: b"".join(batches_in(folder)) == controller.log, "it is copied")
    assert not known(broker, 1)
    broker.abandon()
    config = ServerConfig.of({**controller.settings, "node.id": NODE})
    with Manager(tmp_path / "d", config, adopt=True) as manager:
        identity = Identity(CLUSTER, NODE, controller.directories[NODE])
        replica = MetadataReplica(manager, config, identity, ())
        replica.start()
        try:
            wait_for(lambda: replica.caught_up, "it has what is committed")
            assert "t1" not in replica.image.topics
            controller.commits = True
            topic(controller, 2)
            wait_for(lambda: {"t1", "t2"} <= {*replica.image.topics}, "both are committed now")
        finally:
            replica.stop()
