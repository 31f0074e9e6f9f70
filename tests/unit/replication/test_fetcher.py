"""A fetcher's thread survives any failure, and logs it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.link.transport import Address, Options, Tcp, parse_servers
from kafkalog.replication.fetcher import Fetcher, Follow, Replica
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.followers import Follower
from kafkalog.replication.following import Action, EpochEnd
from kafkalog.replication.options import FetcherOptions
from kafkalog.types import TopicPartition
from tests.support.copies import open_copy
from tests.support.waiting import wait_for

TP = TopicPartition("t", 0)
QUICK = FetcherOptions(max_wait_ms=50, backoff_ms=20)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[kafkalog.Broker]:
    """A broker that leads `t-0`, which has one record."""
    config = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with kafkalog.Broker(tmp_path / "leader", config=config) as broker:
        with kafkalog.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        with kafkalog.Producer(broker.bootstrap_servers, acks="1") as producer:
            producer.send("t", b"value", partition=0)
        broker._node.reactor.set_followers("t", 0, [Follower(2, False, False)])
        yield broker


class FailsOnce(Tcp):
    """A transport whose first connect fails with an unexpected error."""

    failed = False

    def connect(self, address: Address, options: Options) -> socket.socket:
        if not self.failed:
            self.failed = True
            raise RuntimeError("unheard of")
        return super().connect(address, options)


class FailsThrice(Tcp):
    """A transport whose first connects fail."""

    failures = 3

    def connect(self, address: Address, options: Options) -> socket.socket:
        if self.failures:
            self.failures -= 1
            raise errors.PeerGone("nobody is there")
        return super().connect(address, options)


class CopyFailsOnce(FollowerLog):
    """A replica that cannot handle its first answer."""

    failed = False

    def do(self, action: Action | EpochEnd, asked: int = -1) -> Action:
        if not self.failed:
            self.failed = True
            raise RuntimeError("unheard of")
        return super().do(action, asked)


@pytest.mark.parametrize("what", ["the way", "the copy"])
def test_unexpected_errors_do_not_end_the_fetcher(
    leader: kafkalog.Broker, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    (place,) = parse_servers(leader.bootstrap_servers)
    topic = leader._node.image.topics["t"]
    way = FailsOnce([place]) if what == "the way" else Tcp([place])
    kind = CopyFailsOnce if what == "the copy" else FollowerLog
    with open_copy(tmp_path / "copy" / "t-0") as log:
        fetcher = Fetcher(Replica(2), place, lambda *_: None, QUICK, transport=way)
        try:
            epoch = topic.partitions[0].leader_epoch
            fetcher.follow({TP: Follow(topic.id, epoch, kind(log))})
            wait_for(lambda: log.high_watermark == 1, "it has all")
        finally:
            fetcher.close()
    (line,) = [one for one in caplog.records if one.exc_info]
    named = f"{place} is" if what == "the way" else "t-0: is"
    assert line.message == f"{named} not followed for now" and "unheard of" in caplog.text


@pytest.mark.parametrize("early", [False, True])
def test_a_new_partition_does_not_wait_for_records_of_others(
    leader: kafkalog.Broker, tmp_path: Path, early: bool
) -> None:
    """The leader waits for records of `t` when `u` is to be followed; `early`: before the leader
    knows that it has a follower."""
    (place,) = parse_servers(leader.bootstrap_servers)
    with kafkalog.Admin(leader.bootstrap_servers) as admin:
        admin.create_topic("u", 1)
    with kafkalog.Producer(leader.bootstrap_servers, acks="1") as producer:
        producer.send("u", b"value", partition=0)
    topics, reactor = leader._node.image.topics, leader._node.reactor

    def known() -> None:
        reactor.set_followers("u", 0, [Follower(2, False, False)])

    def command(name: str, log: kafkalog.Log) -> Follow:
        return Follow(topics[name].id, topics[name].partitions[0].leader_epoch, FollowerLog(log))

    told: list[TopicPartition] = []
    with open_copy(tmp_path / "t" / "t-0") as t, open_copy(tmp_path / "u" / "u-0") as u:
        patient = FetcherOptions(max_wait_ms=600_000, backoff_ms=100)
        fetcher = Fetcher(Replica(2), place, lambda tp, _: told.append(tp), patient)
        try:
            fetcher.follow({TP: command("t", t)})
            wait_for(lambda: reactor.stats().parked == 1, "it waits")
            if not early:
                known()
            fetcher.follow({TopicPartition("u", 0): command("u", u)})
            if early:
                wait_for(lambda: TopicPartition("u", 0) in told, "it is refused")
                known()
            wait_for(lambda: u.high_watermark == 1, "it has the record")
        finally:
            fetcher.close()


def test_a_reason_is_reported_once_and_not_at_each_retry(
    leader: kafkalog.Broker, tmp_path: Path
) -> None:
    """First nobody listens; then the leader refuses, until it knows its follower."""
    (place,) = parse_servers(leader.bootstrap_servers)
    topic, reactor = leader._node.image.topics["t"], leader._node.reactor
    reactor.set_followers("t", 0, [])
    way = FailsThrice([place])
    told: list[str] = []
    with open_copy(tmp_path / "copy" / "t-0") as log:
        fetcher = Fetcher(Replica(2), place, lambda _, why: told.append(str(why)), QUICK,
                          transport=way)  # fmt: skip
        try:
            epoch = topic.partitions[0].leader_epoch
            fetcher.follow({TP: Follow(topic.id, epoch, FollowerLog(log))})
            wait_for(lambda: fetcher._followed[TP].refused > 3, "it has been refused several times")
            assert (way.failures, told[0]) == (0, "nobody is there")
            assert len(told) == 2 and "t-0" in told[1]
            reactor.set_followers("t", 0, [Follower(2, False, False)])
            wait_for(lambda: log.high_watermark == 1, "it has all")
            reactor.set_followers("t", 0, [])
            wait_for(lambda: len(told) == 3, "it is said again after a success")
        finally:
            fetcher.close()
    assert told[2] == told[1]


def test_a_host_that_none_can_be_is_not_reached() -> None:
    """A broker may return any name; it is treated as a host that does not answer."""
    with pytest.raises(errors.PeerGone, match="label"):
        Tcp([]).connect(Address("a" * 64 + ".invalid", 9092), Options())
