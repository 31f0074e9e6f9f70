"""A follower's fetch offset promises what it has: with durability, what is on its disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.client.link.transport import parse_servers
from kafkalog.config.topic import TopicConfig
from kafkalog.log.log import Log, handle_of
from kafkalog.replication.fetcher import Fetcher, Follow, Replica
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.followers import Follower
from kafkalog.replication.options import FetcherOptions
from kafkalog.types import TopicPartition
from tests.support.copies import batches_in, open_copy
from tests.support.waiting import wait_for

TP = TopicPartition("t", 0)
QUICK = FetcherOptions(max_wait_ms=50, backoff_ms=50)
DURABILITY = "kafkalog.durability"


class Leader:
    """A broker that leads `t-0` and never waits for a disk; node 2 must get a replica."""

    def __init__(self, broker: kafkalog.Broker) -> None:
        self.broker = broker
        with kafkalog.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        self.put()
        self.topic = broker._node.image.topics["t"]
        broker._node.reactor.set_followers("t", 0, [Follower(2, False, False)])

    def put(self) -> None:
        with kafkalog.Producer(self.broker.bootstrap_servers, acks="1") as producer:
            producer.send("t", b"value", partition=0)

    @property
    def promised(self) -> int:
        """The offset below which the leader believes the follower to have all records."""
        (state,) = self.broker._node.reactor.followers("t", 0)
        return state.log_end

    def follow(self, log: Log) -> Fetcher:
        (place,) = parse_servers(self.broker.bootstrap_servers)
        fetcher = Fetcher(Replica(2), place, lambda *_: None, QUICK)
        epoch = self.topic.partitions[0].leader_epoch
        fetcher.follow({TP: Follow(self.topic.id, epoch, FollowerLog(log))})
        return fetcher


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", DURABILITY: "os"}
    with kafkalog.Broker(tmp_path / "leader", config=config) as broker:
        yield Leader(broker)


@pytest.fixture
def disk(native_test: tuple[Any, Any]) -> Iterator[Any]:
    """The test build's library, which can hold calls to the disk."""
    _, lib = native_test
    lib.kl_io_reset()
    yield lib
    lib.kl_io_reset()


def promised_once_synced(leader: Leader, log: Log, end: int, disk: Any) -> None:
    """While syncs are held it has all up to `end` but does not promise that; then it does."""
    wait_for(lambda: log.end_offset == end, "it has all")
    wait_for(
        lambda: disk.kl_io_waiting(b"fdatasync") or leader.promised == end, "it syncs, or asks"
    )
    assert leader.promised < end
    disk.kl_io_hold(b"fdatasync", disk.KL_HOLD_NONE)
    wait_for(lambda: leader.promised == end, "it asks for what is next")
    assert log.flushed_offset == end


def test_a_durable_copy_is_on_disk_before_more_is_asked_for(
    leader: Leader, tmp_path: Path, disk: Any
) -> None:
    """Both its records from before it follows, and later ones."""
    with open_copy(tmp_path / "copy" / "t-0", {DURABILITY: "fsync"}) as log:
        (batch,) = batches_in(tmp_path / "leader" / "t-0")
        log.append_as_follower(batch)
        disk.kl_io_hold(b"fdatasync", disk.KL_HOLD_ALL)
        fetcher = leader.follow(log)
        try:
            promised_once_synced(leader, log, 1, disk)
            disk.kl_io_hold(b"fdatasync", disk.KL_HOLD_ALL)
            leader.put()
            promised_once_synced(leader, log, 2, disk)
        finally:
            disk.kl_io_reset()
            fetcher.close()


def test_another_durability_is_obeyed_at_once(leader: Leader, tmp_path: Path, disk: Any) -> None:
    """Turned on, it also syncs what was promised before; and it can be turned off again."""
    lax, durable = (TopicConfig.of({DURABILITY: word}) for word in ("os", "fsync"))
    with open_copy(tmp_path / "copy" / "t-0", {DURABILITY: "os"}) as log:
        fetcher = leader.follow(log)
        try:
            wait_for(lambda: leader.promised == 1, "it asks for what is next")
            assert log.flushed_offset == 0
            handle_of(log).configure(durable)
            fetcher.settle([TP])
            wait_for(lambda: log.flushed_offset == 1, "what was promised is on disk")
            disk.kl_io_hold(b"fdatasync", disk.KL_HOLD_ALL)
            leader.put()
            promised_once_synced(leader, log, 2, disk)
            handle_of(log).configure(lax)
            fetcher.settle([TP])
            disk.kl_io_hold(b"fdatasync", disk.KL_HOLD_ALL)
            leader.put()
            wait_for(lambda: leader.promised == 3, "it asks for what is next")
            assert log.flushed_offset == 2
        finally:
            disk.kl_io_reset()
            fetcher.close()
