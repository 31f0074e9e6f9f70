"""Assignments match those of Kafka's assignors."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import errors
from kafkalog.client.consumer.assignors import (
    ASSIGNORS,
    Subscriber,
    _read_user_data,
    cooperative_assignment,
    find_assignors,
    range_assignment,
    round_robin_assignment,
    sticky_assignment,
    sticky_user_data,
)
from kafkalog.client.consumer.sticky import Claims
from kafkalog.types import TopicPartition

Assign = Callable[[list[Subscriber], dict[str, int]], dict[str, list[TopicPartition]]]


def plain(found: dict[str, list[TopicPartition]]) -> dict[str, list[str]]:
    return {member: [f"{tp.topic}{tp.partition}" for tp in tps] for member, tps in found.items()}


def test_runs_of_each_topic() -> None:
    """The example of Kafka's documentation."""
    members = [Subscriber("c1", None, ("t", "u")), Subscriber("c0", None, ("t", "u"))]
    assert plain(range_assignment(members, {"t": 3, "u": 3})) == {
        "c0": ["t0", "t1", "u0", "u1"],
        "c1": ["t2", "u2"],
    }


def test_static_members_come_first_by_their_instance() -> None:
    members = [
        Subscriber("a", None, ("t",)),
        Subscriber("z", "i2", ("t",)),
        Subscriber("b", "i1", ("t",)),
    ]
    assert plain(range_assignment(members, {"t": 4})) == {
        "b": ["t0", "t1"], "z": ["t2"], "a": ["t3"],
    }  # fmt: skip


def test_topics_of_some_and_topics_that_are_not_there() -> None:
    members = [Subscriber("a", None, ("t", "gone")), Subscriber("b", None, ("u",))]
    assert plain(range_assignment(members, {"t": 1, "u": 2})) == {"a": ["t0"], "b": ["u0", "u1"]}
    assert range_assignment([], {"t": 1}) == {}


@pytest.mark.parametrize(
    ("assign", "wanted"),
    [
        (range_assignment, {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]}),
        (round_robin_assignment, {"a": [0, 3, 6, 9], "b": [1, 4, 7], "c": [2, 5, 8]}),
        (sticky_assignment, {"a": [0, 3, 6, 9], "b": [1, 4, 7], "c": [2, 5, 8]}),
        (cooperative_assignment, {"a": [0, 3, 6, 9], "b": [1, 4, 7], "c": [2, 5, 8]}),
    ],
)
def test_ten_partitions_and_three_consumers(assign: Assign, wanted: dict[str, list[int]]) -> None:
    members = [Subscriber(m, None, ("t",)) for m in "cab"]
    found = assign(members, {"t": 10})
    assert {m: [tp.partition for tp in tps] for m, tps in found.items()} == wanted


def test_consumers_of_different_topics() -> None:
    """The example of Kafka's documentation: round robin is uneven, sticky as even as possible."""
    partitions = {"t0": 1, "t1": 2, "t2": 3}
    members = [
        Subscriber("c0", None, ("t0",)),
        Subscriber("c1", None, ("t0", "t1")),
        Subscriber("c2", None, ("t0", "t1", "t2")),
    ]
    assert plain(round_robin_assignment(members, partitions)) == {
        "c0": ["t00"], "c1": ["t10"], "c2": ["t11", "t20", "t21", "t22"],
    }  # fmt: skip
    assert plain(sticky_assignment(members, partitions)) == {
        "c0": ["t00"], "c1": ["t10", "t11"], "c2": ["t20", "t21", "t22"],
    }  # fmt: skip


def after(
    found: dict[str, list[TopicPartition]], topics: tuple[str, ...], generation: int
) -> list[Subscriber]:
    """The members of an assignment as they join again, for both sticky and cooperative."""
    return [
        Subscriber(m, None, topics, tuple(tps), generation, sticky_user_data(tps, generation))
        for m, tps in found.items()
    ]


def test_sticky_members_keep_their_partitions() -> None:
    """The example of Kafka's documentation: the second of three leaves."""
    topics = ("t0", "t1", "t2", "t3")
    partitions = dict.fromkeys(topics, 2)
    first = sticky_assignment([Subscriber(m, None, topics) for m in ("c0", "c1", "c2")], partitions)
    assert plain(first) == {
        "c0": ["t00", "t11", "t30"], "c1": ["t01", "t20", "t31"], "c2": ["t10", "t21"],
    }  # fmt: skip
    left = [m for m in after(first, topics, 1) if m.member_id != "c1"]
    second = sticky_assignment(left, partitions)
    assert {len(tps) for tps in second.values()} == {4}
    for m in ("c0", "c2"):
        assert set(first[m]) <= set(second[m])


def test_a_cooperative_member_waits_for_revoked_partitions() -> None:
    """Two rebalances: the first revokes the partition, the second assigns it (KIP-429)."""
    partitions = {"t": 4}
    one = cooperative_assignment([Subscriber("a", None, ("t",))], partitions)
    members = [*after(one, ("t",), 1), Subscriber("b", None, ("t",))]
    two = cooperative_assignment(members, partitions)
    assert plain(two) == {"a": ["t0", "t1"], "b": []}
    three = cooperative_assignment(after(two, ("t",), 2), partitions)
    assert plain(three) == {"a": ["t0", "t1"], "b": ["t2", "t3"]}


def test_the_later_generation_wins_a_claimed_partition() -> None:
    t0 = TopicPartition("t", 0)
    for generations, owner in (((3, 4), "b"), ((4, 3), "a")):
        members = [
            Subscriber(m, None, ("t",), user_data=sticky_user_data([t0], generation))
            for m, generation in zip("ab", generations, strict=True)
        ]
        assert t0 in sticky_assignment(members, {"t": 2})[owner]


def test_user_data_is_as_java_writes_it() -> None:
    data = sticky_user_data([TopicPartition("t", 0), TopicPartition("t", 1)], 7)
    assert data is not None
    assert data.hex() == "0000000100017400000002000000000000000100000007"
    old, cut = data[:-4], data[:9]  # version 0 has no generation
    for given_data, kept in ((data, True), (old, True), (cut, False), (b"?", False)):
        members = [
            Subscriber("a", None, ("t",)), Subscriber("z", None, ("t",), user_data=given_data)
        ]  # fmt: skip
        found = plain(sticky_assignment(members, {"t": 4}))
        assert found["z"] == (["t0", "t1"] if kept else ["t1", "t3"])


def test_assignors_by_name() -> None:
    java = "org.apache.kafka.clients.consumer."
    found = find_assignors(f"cooperative-sticky, {java}RangeAssignor")
    assert [one.name for one in found] == ["cooperative-sticky", "range"]
    assert find_assignors(ASSIGNORS["sticky"]) == (ASSIGNORS["sticky"],)
    with pytest.raises(errors.ArgumentError, match="'rang': wanted one of range, roundrobin"):
        find_assignors("rang")
    with pytest.raises(errors.ArgumentError, match="none given"):
        find_assignors([])


MEMBERS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), st.sets(st.sampled_from("tuv")), max_size=6
)
PARTITIONS = st.dictionaries(st.sampled_from("tuv"), st.integers(0, 9))


@given(MEMBERS, PARTITIONS, st.data())
def test_sticky_shares_are_even_and_settle(
    members: dict[str, set[str]], partitions: dict[str, int], data: st.DataObject
) -> None:
    """Whatever members claim, each partition has one owner that subscribes to it, the shares are as
    even as possible, and the same members get the same assignment again.  Cooperative rebalances
    end in the same balance.
    """
    every = [TopicPartition(t, p) for t, n in sorted(partitions.items()) for p in range(n + 1)]
    claims = {
        m: data.draw(st.lists(st.sampled_from(every), unique=True, max_size=6) if every
                     else st.just([]))
        for m in members
    }  # fmt: skip
    topics = {m: tuple(sorted(some)) for m, some in members.items()}
    subscribers = [
        Subscriber(m, None, topics[m], tuple(claims[m]), 1, sticky_user_data(claims[m], 1))
        for m in members
    ]
    found = sticky_assignment(subscribers, partitions)
    wanted = {topic for some in members.values() for topic in some}
    assert sorted(tp for tps in found.values() for tp in tps) == sorted(
        TopicPartition(t, p) for t, n in partitions.items() if t in wanted for p in range(n)
    )
    for giver, tps in found.items():
        assert {tp.topic for tp in tps} <= members[giver]
        for taker in members:
            if any(tp.topic in members[taker] for tp in tps):
                assert len(tps) - len(found[taker]) <= 1
    same = [
        Subscriber(m, None, topics[m], user_data=sticky_user_data(tps, 2))
        for m, tps in found.items()
    ]
    assert sticky_assignment(same, partitions) == found
    given_out = cooperative_assignment(subscribers, partitions)
    for _ in range(3):
        for m, tps in given_out.items():
            others = {tp for o, more in claims.items() if o != m for tp in more}
            assert not set(tps) & others, "somebody still reads it"
        claims = {m: list(tps) for m, tps in given_out.items()}
        joining = [Subscriber(m, None, topics[m], tuple(tps), 2) for m, tps in given_out.items()]
        given_out = cooperative_assignment(joining, partitions)
    assert sorted(map(len, given_out.values())) == sorted(map(len, found.values()))


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.sets(st.sampled_from("tuv")), max_size=6
    ),
    st.dictionaries(st.sampled_from("tuv"), st.integers(0, 9)),
)
def test_each_partition_has_one_subscribed_owner(
    members: dict[str, set[str]], partitions: dict[str, int]
) -> None:
    subscribers = [Subscriber(m, None, tuple(sorted(topics))) for m, topics in members.items()]
    found = range_assignment(subscribers, partitions)
    assert set(found) == set(members)
    given_out = [tp for tps in found.values() for tp in tps]
    wanted = {topic for topics in members.values() for topic in topics}
    assert sorted(given_out) == sorted(
        TopicPartition(t, p) for t, n in partitions.items() if t in wanted for p in range(n)
    )
    for member, tps in found.items():
        assert {tp.topic for tp in tps} <= members[member]
    for topic in wanted:
        counts = [sum(tp.topic == topic for tp in found[m]) for m in members if topic in members[m]]
        assert max(counts) - min(counts) <= 1


def entry(size: int, count: int) -> bytes:
    return struct.pack(">hi", size, count)


def test_user_data_that_goes_backwards_is_no_claim() -> None:
    """A name of a negative length would be read again two thousand million times, or its partitions
    would be, until the leader has no memory left."""
    again = struct.pack(">i", 2**31 - 1) + entry(0, 0) + entry(-6, 0)
    many = struct.pack(">i", 1_000) + entry(0, 8) + bytes(32) + entry(-38, 0) + bytes(64)
    for data in (again, many):
        member = Subscriber("m", None, ("t",), user_data=data)
        assert sticky_assignment([member], {"t": 1}) == {"m": [TopicPartition("t", 0)]}
        assert _read_user_data(data) == Claims(-1, ())


@pytest.mark.parametrize("assign", [range_assignment, round_robin_assignment])
def test_members_of_many_topics_take_no_quadratic_time(assign: Assign) -> None:
    """A test for membership looks at no list: 3,000 topics of 100 members would be compared
    450 million times."""
    seen = 0

    class Name(str):
        def __eq__(self, other: object) -> bool:
            nonlocal seen
            seen += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    topics = [f"t{n}" for n in range(300)]
    members = [Subscriber(f"m{n}", None, tuple(map(Name, topics))) for n in range(10)]
    found = assign(members, dict.fromkeys(topics, 10))
    assert sum(map(len, found.values())) == 3_000
    assert seen < 100_000
