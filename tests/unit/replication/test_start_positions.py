"""A follower starts at any position: it ends with the leader's records, and its other records, as
far as they were shown, are kept in a file next to its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import kafkalog
from kafkalog.client.link.transport import parse_servers
from kafkalog.log.log import Log, handle_of
from kafkalog.log.removal import truncate_fully
from kafkalog.replication.fetcher import Fetcher, Follow, Replica
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.followers import Follower
from kafkalog.replication.options import FetcherOptions
from kafkalog.types import TopicPartition
from tests.support.copies import append_alone, batches_in, open_copy
from tests.support.waiting import wait_for

HAS = 10
"""The leader's records, a batch each: below COMMON in epoch 0, the others in its own epoch."""
COMMON, EPOCH = 4, 9
TP = TopicPartition("t", 0)
OPTIONS = FetcherOptions(max_wait_ms=50, backoff_ms=50)


class Leader:
    """A broker that leads `t-0`, and node 2, which has a replica."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "leader" / "t-0"
        config = {"listeners": "PLAINTEXT://127.0.0.1:0"}
        self.broker = kafkalog.Broker(home / "leader", config=config)
        with kafkalog.Admin(self.broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        self.put(COMMON)
        node = self.broker._node
        handle, reactor = handle_of(node.partitions.log(*TP)), node.reactor
        handle.lead(EPOCH)
        reactor.put_partition(handle, leader_epoch=EPOCH, durable=False)
        reactor.set_followers("t", 0, [Follower(2, False, False)])
        self.put(HAS - COMMON)
        self.topic_id = self.broker._node.image.topics["t"].id
        self.told: list[kafkalog.KafkalogError] = []

    def put(self, count: int) -> None:
        with kafkalog.Producer(self.broker.bootstrap_servers, acks="all") as producer:
            for number in range(count):
                producer.send("t", b"%d" % number, partition=0)
                producer.flush()

    @property
    def copy(self) -> Path:
        return self.home / "copy" / "t-0"

    def copied(self, until: int) -> None:
        """Let the replica have the records below `until` already."""
        with open_copy(self.copy) as log:
            at = 0
            for batch in batches_in(self.folder, 0, until):
                log.append_as_follower(batch)
                at += 1
            assert log.end_offset == at == until
            handle_of(log).show_until(until)

    def follow(self, then: Callable[[Log], None], topic_id: object = None) -> None:
        """Let the replica follow until `then` has returned."""
        (place,) = parse_servers(self.broker.bootstrap_servers)
        with open_copy(self.copy) as log:
            fetcher = Fetcher(Replica(2), place, lambda _, why: self.told.append(why), OPTIONS)
            try:
                command = Follow(topic_id or self.topic_id, EPOCH, FollowerLog(log))
                fetcher.follow({TP: command})
                then(log)
            finally:
                fetcher.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    made = Leader(tmp_path)
    with made.broker:
        yield made


def empty(leader: Leader) -> None:
    """A new disk."""


def older(leader: Leader) -> None:
    leader.copied(COMMON)


def equal(leader: Leader) -> None:
    leader.copied(HAS)


def longer(leader: Leader) -> None:
    """It has records that the leader lost in an unclean election."""
    leader.copied(HAS)
    append_alone(leader.copy, (EPOCH, 5))


def led_alone(leader: Leader) -> None:
    """It led in an epoch that the leader never heard of."""
    leader.copied(COMMON)
    append_alone(leader.copy, (1, 3))


def led_alone_and_longer(leader: Leader) -> None:
    leader.copied(COMMON)
    append_alone(leader.copy, (1, HAS), (2, HAS))


def begins_behind(leader: Leader) -> None:
    """Its log begins above the leader's end."""
    with open_copy(leader.copy) as log:
        truncate_fully(handle_of(log), 5 * HAS)
    append_alone(leader.copy, (EPOCH, 3))


@pytest.mark.parametrize(
    ("made", "start", "kept"),
    [
        (empty, 0, 0), (older, 0, 0), (equal, 0, 0), (longer, 0, 5), (led_alone, 0, 3),
        (led_alone_and_longer, 0, 2 * HAS), (begins_behind, HAS, 3),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_it_ends_with_the_leaders_records(
    leader: Leader, made: Callable[[Leader], None], start: int, kept: int
) -> None:
    """`kept`: how many batches only it had."""
    made(leader)
    before = batches_in(leader.copy) if leader.copy.exists() else []

    def caught_up(log: Log) -> None:
        wait_for(lambda: log.end_offset == log.high_watermark == HAS, "it has all")
        report = log.verify()
        assert log.start_offset == start and report.clean, report.findings

    leader.follow(caught_up)
    assert batches_in(leader.copy) == batches_in(leader.folder, start)
    aside = [path.read_bytes() for path in leader.copy.glob("*.damaged")]
    assert aside == ([b"".join(before[-kept:])] if kept else [])
    assert leader.told == []


def test_a_log_of_another_topic_is_not_followed(leader: Leader) -> None:
    """Its topic id differs, and not a byte of it is changed."""
    append_alone(leader.copy, (0, 3))
    before = batches_in(leader.copy)
    leader.follow(lambda _: wait_for(lambda: bool(leader.told), "it is reported"), uuid4())
    assert batches_in(leader.copy) == before
    assert "TOPIC_ID" in str(leader.told[0]) or "topic" in str(leader.told[0])
