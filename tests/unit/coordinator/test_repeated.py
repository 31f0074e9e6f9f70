"""Heartbeats that are answered without the coordinator: which, until when, and what it knows of
them."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.coordinator.consumer_groups.base import REPEAT_BYTES
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.consumer_calls import MODERN, ConsumerDesk, given
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.repeating import Network

SESSION_MS = MODERN["group_consumer_session_timeout_ms"]


class Settled(ConsumerDesk):
    """A group of members with their partitions; what the network repeats is that of "a"."""

    def __init__(self, *names: str) -> None:
        super().__init__(config(**MODERN))
        self.members(*names)
        self.at = self.described().group_epoch
        self.network = Network(lambda: self.now_ms)
        self.beat("a", self.at)
        assert self.repeats()

    def repeats(self) -> bool:
        """True if the next heartbeat of "a" does not reach the coordinator."""
        assert self.network is not None
        before = self.network.count
        assert self.beat("a", self.at).error is ErrorCode.NONE
        return self.network.count > before


def test_a_heartbeat_without_news_is_answered_so() -> None:
    desk = Settled("a", "b")
    assert [desk.repeats() for _ in range(3)] == [True] * 3


def silent(desk: Settled) -> None:
    """Let the session of "b" end."""
    desk.wait(SESSION_MS // 2)
    assert desk.repeats()
    desk.wait(SESSION_MS // 2)


@pytest.mark.parametrize(
    "act",
    [
        lambda desk: desk.beat("b", -1),
        lambda desk: desk.enter("c"),
        lambda desk: desk.beat("b", desk.at, subscribed_topic_names=["t", "u"]),
        silent,
    ],
    ids=["one leaves", "one joins", "one subscribes to other topics", "one is silent"],
)
def test_a_change_of_the_group_ends_it(act: Any) -> None:
    desk = Settled("a", "b")
    act(desk)
    told = desk.beat("a", desk.at)
    assert told.error is ErrorCode.NONE
    assert desk.described().assignment_epoch > desk.at
    assert told.member_epoch > desk.at or given(told) is not None


def test_a_change_of_its_topics_ends_it() -> None:
    desk = Settled("a")
    desk.change_topic("t", 9)
    desk.step(lambda step: desk.core.topics_changed({"t"}, step))
    assert desk.beat("a", desk.at).member_epoch == desk.at + 1


def test_its_session_ends_after_the_last_one() -> None:
    desk = Settled("a")
    for _ in range(4):
        desk.wait(SESSION_MS - 1)
        assert desk.repeats()
    desk.wait(SESSION_MS - 1)
    assert desk.has()
    desk.wait(1)
    assert not desk.has()
    assert desk.beat("a", desk.at).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_a_pattern_is_not() -> None:
    """Its heartbeats have the pattern's topics looked for again."""
    desk = ConsumerDesk(config(**MODERN))
    desk.network = Network(lambda: desk.now_ms)
    at = desk.enter("a", subscribed_topic_names=[], subscribed_topic_regex="t").member_epoch
    desk.look_up()
    for _ in range(4):
        at = desk.beat("a", at).member_epoch
    assert desk.network.count == 0


def test_a_repeated_answer_counts_as_memory_of_its_group() -> None:
    """Once for a member, also when it has ended, until the member is gone."""
    desk = ConsumerDesk(config(**MODERN))
    desk.network = Network(lambda: desk.now_ms)
    at = desk.enter("a").member_epoch
    weights = [desk.core.weight.bytes]
    for _ in range(3):
        assert desk.beat("a", at).error is ErrorCode.NONE
        weights.append(desk.core.weight.bytes)
    desk.beat("a", at, {}, rebalance_timeout_ms=5_000)
    weights.append(desk.core.weight.bytes)
    assert weights == [weights[0], *[weights[0] + REPEAT_BYTES] * 4]
    desk.beat("a", -1)
    other = ConsumerDesk(config(**MODERN))
    other.enter("a")
    other.beat("a", -1)
    assert desk.core.weight.bytes == other.core.weight.bytes


def test_nothing_more_is_repeated_beyond_the_limit_of_memory() -> None:
    """Those that are there stay."""
    desk = Settled("a")
    desk.core.weight.add(desk.settings.kafkalog_groups_max_bytes - desk.core.weight.bytes)
    desk.beat("a", desk.at, {"t": [0, 1, 2, 3]})
    desk.beat("a", desk.at)
    assert desk.repeats()
    desk = ConsumerDesk(config(**MODERN))
    desk.network = network = Network(lambda: desk.now_ms)
    at = desk.enter("a").member_epoch
    desk.core.weight.add(desk.settings.kafkalog_groups_max_bytes - desk.core.weight.bytes)
    for _ in range(3):
        assert desk.beat("a", at).error is ErrorCode.NONE
    assert network.count == 0


def test_a_coordinator_that_resigns_ends_it() -> None:
    desk = Settled("a")
    (partition,) = (n for n, shard in desk.core.shards.items() if "g" in shard.groups)
    desk.step(lambda step: desk.core.resign(partition, step))
    assert desk.beat("a", desk.at).error is ErrorCode.NOT_COORDINATOR
