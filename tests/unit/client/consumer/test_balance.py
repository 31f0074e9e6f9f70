"""Partitions are balanced among readers of different topics, in steps that do not depend on how
many of them move."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.client.consumer.assignors import Subscriber, round_robin_assignment
from kafkalog.client.consumer.balance import Loads
from kafkalog.client.consumer.sticky import Claims, balanced
from kafkalog.types import TopicPartition
from tests.support.effort import SEED

Topics = dict[str, list[str]]
MEMBERS, TOPICS, EACH = 1_000, 100, 40


def improvable(topics: Topics, held: Mapping[str, Mapping[str, int]]) -> bool:
    """True if a reader could hand over a partition, also along a chain, to one with two fewer."""
    load = {reader: sum(by.values()) for reader, by in held.items()}
    for start in topics:
        reached, left = {start}, [start]
        while left:
            giver = left.pop()
            more = {r for r, some in topics.items() if held[giver].keys() & set(some)} - reached
            reached |= more
            left += more
        if any(load[other] <= load[start] - 2 for other in reached):
            return True
    return False


def loads(
    topics: Topics, counts: Mapping[str, int], kept: Mapping[str, Mapping[str, int]]
) -> Loads:
    """The balanced loads; `counts`: partitions that nobody keeps."""
    found = Loads(topics, kept)
    found.add(counts)
    found.balance()
    return found


@given(st.data())
def test_no_chain_of_readers_could_do_better(data: st.DataObject) -> None:
    names = [f"t{n}" for n in range(data.draw(st.integers(1, 5)))]
    some = st.lists(st.sampled_from(names), unique=True)
    topics = {f"r{n}": data.draw(some) for n in range(data.draw(st.integers(1, 7)))}
    kept = {
        reader: {topic: data.draw(st.integers(1, 9)) for topic in own if data.draw(st.booleans())}
        for reader, own in topics.items()
    }
    read = {topic for own in topics.values() for topic in own}
    left = {topic: data.draw(st.integers(0, 12)) for topic in sorted(read)}
    found = loads(topics, left, kept)
    assert not improvable(topics, found.held)
    for reader, held in found.held.items():
        assert held.keys() <= set(topics[reader]) and 0 not in held.values()
    for topic in read:
        before = left[topic] + sum(by.get(topic, 0) for by in kept.values())
        assert sum(by.get(topic, 0) for by in found.held.values()) == before
    again = loads(topics, dict.fromkeys(read, 0), found.held)
    assert again.held == found.held


def drawn(draw: random.Random) -> Topics:
    """A thousand readers, each of some of a hundred topics."""
    names = [f"t{n}" for n in range(TOPICS)]
    return {f"r{n}": draw.sample(names, draw.randrange(1, TOPICS)) for n in range(MEMBERS)}


def nested(_draw: random.Random) -> Topics:
    """Each reads the topics of the one before, and perhaps one more."""
    names = [f"t{n}" for n in range(TOPICS)]
    return {f"r{n}": names[: n * TOPICS // MEMBERS + 1] for n in range(MEMBERS)}


def chained(_draw: random.Random) -> Topics:
    """Each topic shares readers only with its neighbours: moves take chains of a hundred."""
    names = [f"t{n}" for n in range(TOPICS)]
    pairs = list(pairwise(names))
    return {f"r{n}": list(pairs[n % len(pairs)]) for n in range(MEMBERS)}


@pytest.mark.parametrize("keeps", ["nothing", "all at one", "all at few"])
@pytest.mark.parametrize("make", [drawn, nested, chained])
def test_a_thousand_readers_of_a_hundred_topics(
    make: Callable[[random.Random], Topics], keeps: str
) -> None:
    """At most a few looks at each subscription, whatever the readers had before."""
    topics = make(random.Random(SEED))
    counts = dict.fromkeys(sorted({topic for own in topics.values() for topic in own}), EACH)
    owners = {"nothing": [], "all at one": ["r999"], "all at few": ["r0", "r500", "r999"]}[keeps]
    kept: dict[str, dict[str, int]] = {}
    for owner in owners:
        kept[owner] = {topic: counts.pop(topic) for topic in topics[owner] if topic in counts}
    every = {**dict.fromkeys((t for by in kept.values() for t in by), 0), **counts}
    found = loads(topics, every, kept)
    assert sum(sum(by.values()) for by in found.held.values()) == EACH * len(every)
    subscriptions = sum(map(len, topics.values()))
    assert found.steps < 40 * (subscriptions + EACH * TOPICS), f"seed {SEED}"


def test_readers_that_must_hand_over_some_keep_the_others() -> None:
    """A reader that must give up some keeps as many of its own as it may have."""
    claims = {"a": Claims(1, tuple(TopicPartition("t", p) for p in range(6)))}
    readers = {"a": ["t", "u"], "b": ["t"], "c": ["u"]}
    found = balanced(readers, {"t": 8, "u": 4}, claims)
    assert sorted(map(len, found.values())) == [4, 4, 4]
    assert found["a"] == [TopicPartition("t", p) for p in range(4)]
    assert found["b"] == [TopicPartition("t", p) for p in range(4, 8)]
    assert found["c"] == [TopicPartition("u", p) for p in range(4)]


def test_round_robin_looks_at_no_member_that_does_not_read_the_topic() -> None:
    """One reader of a topic of 2,000 partitions among 1,000 members that read another."""
    seen = 0

    class Name(str):
        def __hash__(self) -> int:
            nonlocal seen
            seen += 1
            return str.__hash__(self)

    members = [Subscriber(Name(f"m{n}"), None, ("t",) if n else ("u",)) for n in range(MEMBERS)]
    found = round_robin_assignment(members, {"t": 10, "u": 2_000})
    assert len(found["m0"]) == 2_000
    assert seen < 20_000
