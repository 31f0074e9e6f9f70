"""Who reads what: the range assignor, as Kafka's does it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.client.assignors import Subscriber, range_assignment
from kafkalog.types import TopicPartition


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


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.sets(st.sampled_from("tuv")), max_size=6
    ),
    st.dictionaries(st.sampled_from("tuv"), st.integers(0, 9)),
)
def test_each_partition_has_one_owner_who_asked_for_it(
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
