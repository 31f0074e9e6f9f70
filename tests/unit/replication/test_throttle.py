"""Which replicas are throttled, and when, by the time that a test passes in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.client.link.transport import parse_servers
from kafkalog.errors import ArgumentError
from kafkalog.replication.fetcher import Fetcher, Follow, Replica
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.followers import Follower
from kafkalog.replication.options import FetcherOptions
from kafkalog.replication.throttle import ALL, NONE, Quota, Throttle, throttled
from kafkalog.types import TopicPartition
from tests.support.copies import open_copy
from tests.support.waiting import wait_for

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


@pytest.mark.parametrize(
    ("words", "named"),
    [((), []), (("*",), range(9)), (("0:1", "3:2", "5:1"), [0, 5]), (("1:11", "2:10"), [])],
)
def test_throttled_replicas_of_this_node(words: tuple[str, ...], named: list[int]) -> None:
    of_us = throttled(words, 1)
    assert [n for n in range(9) if n in of_us] == list(named)


def test_without_a_rate_nothing_is_too_much() -> None:
    quota = Quota()
    quota.count(1 << 60, 0)
    assert not quota.exceeded(0)
    quota.set_rate(1)
    assert quota.exceeded(0), "it was counted"
    quota.set_rate()
    assert not quota.exceeded(0)


def test_a_rate_is_that_of_one_window_at_least() -> None:
    """A burst counts as if it was spread over a whole window."""
    quota = Quota(windows=11, window_s=1)
    quota.set_rate(1_000)
    assert not quota.exceeded(0)
    quota.count(1_000, 0)
    assert not quota.exceeded(0), "exactly the rate"
    quota.count(1, 0)
    assert quota.exceeded(0) and quota.exceeded(1_000)
    assert not quota.exceeded(1_001), "over that time it is within the rate"


def test_old_bytes_do_not_count() -> None:
    quota = Quota(windows=3, window_s=2)
    quota.set_rate(10)
    quota.count(1_000_000, 0)
    assert quota.exceeded(5_999)
    assert not quota.exceeded(6_000)


def test_a_rate_of_zero_lets_one_through() -> None:
    """A follower may fetch once; then not until that is out of the windows."""
    quota = Quota()
    quota.set_rate(0)
    assert not quota.exceeded(5)
    quota.count(1, 5)
    assert quota.exceeded(6) and quota.exceeded(11_004)
    assert not quota.exceeded(11_005)


@pytest.mark.parametrize("seed", range(3))
def test_a_checking_caller_stays_at_the_rate(seed: int) -> None:
    """Whatever the sizes of the pieces, in the end the rate is met."""
    draw = random.Random(seed)
    rate, piece, whole_s = 50_000, 20_000, 120
    quota = Quota()
    quota.set_rate(rate)
    now_ms = got = 0
    while now_ms < whole_s * 1_000:
        now_ms += draw.randint(1, 50)
        if not quota.exceeded(now_ms):
            more = draw.randint(1, piece)
            quota.count(more, now_ms)
            got += more
    assert 0.8 * rate * whole_s < got < 1.2 * rate * whole_s


@pytest.mark.parametrize(("windows", "window_s"), [(0, 1), (-1, 1), (1, 0), (1 << 30, 1)])
def test_windows_that_are_none(windows: int, window_s: int) -> None:
    with pytest.raises(ArgumentError, match="windows"):
        Quota(windows, window_s)


def test_only_named_replicas_are_throttled() -> None:
    throttle = Throttle(Quota())
    throttle.quota.set_rate(1)
    throttle.took(A, 1_000, 0)
    assert not throttle.holds(A, 0), "nothing is named"
    throttle.put("a", ALL)
    assert not throttle.holds(A, 0)
    throttle.took(B, 1_000, 0)
    assert not throttle.holds(A, 0)
    throttle.took(A, 1_000, 0)
    assert throttle.holds(A, 0) and not throttle.holds(B, 0)
    throttle.put("b", frozenset({3}))
    assert throttle.holds(B, 0), "all share one rate"
    assert not throttle.holds(B._replace(partition=2), 0)
    throttle.put("a", NONE)
    assert not throttle.holds(A, 0)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[kafkalog.Broker]:
    """A broker that leads `t`, whose partition 0 has three batches; node 2 must get a replica."""
    config = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with kafkalog.Broker(tmp_path / "leader", config=config) as broker:
        with kafkalog.Admin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
        for _ in range(3):
            put(broker)
        broker._node.reactor.set_followers("t", 0, [Follower(2, False, False)])
        yield broker


def put(broker: kafkalog.Broker) -> None:
    with kafkalog.Producer(broker.bootstrap_servers, acks="all") as producer:
        producer.send("t", b"one", partition=0)


def test_a_copy_that_is_behind_stays_so_until_the_throttle_is_lifted(
    leader: kafkalog.Broker, tmp_path: Path
) -> None:
    """A second replica, which is not throttled, overtakes it."""
    throttle = Throttle(Quota(windows=11, window_s=1_000_000))
    throttle.put("t", ALL)
    throttle.quota.set_rate(0)
    free = FetcherOptions(max_wait_ms=50, partition_bytes=1, backoff_ms=50)
    topic = leader._node.image.topics["t"]
    (place,) = parse_servers(leader.bootstrap_servers)
    told: list[object] = []
    with (
        open_copy(tmp_path / "slow" / "t-0") as slow,
        open_copy(tmp_path / "quick" / "t-0") as quick,
    ):
        slowed = free._replace(throttle=throttle)
        held = Fetcher(Replica(2), place, lambda *what: told.append(what), slowed)
        other = Fetcher(Replica(2), place, lambda *what: told.append(what), free)
        try:
            epoch = topic.partitions[0].leader_epoch
            held.follow({TopicPartition("t", 0): Follow(topic.id, epoch, FollowerLog(slow))})
            wait_for(lambda: slow.end_offset == 1, "the first piece is there")
            other.follow({TopicPartition("t", 0): Follow(topic.id, epoch, FollowerLog(quick))})
            wait_for(lambda: quick.end_offset == 3, "the other has all")
            assert slow.end_offset == 1
            throttle.quota.set_rate()
            wait_for(lambda: slow.high_watermark == 3, "it has all")
            throttle.quota.set_rate(0)
            for end in (4, 5):
                put(leader)
                wait_for(lambda end=end: slow.end_offset == end, "it is in sync")
            assert told == []
        finally:
            held.close()
            other.close()
