"""Topics are created, grow and are deleted."""

from __future__ import annotations

from kafkalog.controller import brokers, topics
from kafkalog.metadata.image import NO_LEADER
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.loading import Znode
from tests.unit.controller.building import Cluster, Shown

LEAD, KNOW = "LeaderAndIsr", "UpdateMetadata"
P0, P1 = ("t", 0), ("t", 1)


def test_a_new_topic_is_led() -> None:
    """By its first live replica; the replicas learn that it is new, and all brokers learn of it."""
    of = Cluster((1, 2, 4))
    of.decide(topics.topics_changed(of.context, of.batch, of.topic("t", {0: (1, 2), 1: (3, 2)})))
    assert (of.shown(P0), of.shown(P1)) == (Shown(1, 0, (1, 2), 0), Shown(2, 0, (2,), 0))
    assert of.requests() == [
        (1, LEAD, [P0]), (2, LEAD, [P0, P1]), *((n, KNOW, [P0, P1]) for n in (1, 2, 4)),
    ]  # fmt: skip
    rows = of.sent[1].body["topic_states"][0]["partition_states"]
    assert [row["is_new"] for row in rows] == [True, True]


def test_a_topic_waits_for_its_brokers() -> None:
    """Until then the partition has no state, and no broker hears of it."""
    of = Cluster((1, 2))
    of.decide(topics.topics_changed(of.context, of.batch, of.topic("t", {0: (3,)})))
    assert of.sent == [] and tree.partition_path("t", 0) not in of.tree
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2, 3)))
    assert of.shown(P0) == Shown(3, 0, (3,), 0)
    assert {(n, kind) for n, kind, keys in of.requests() if keys} == {
        (3, LEAD), (1, KNOW), (2, KNOW), (3, KNOW),
    }  # fmt: skip


def test_a_topic_grows() -> None:
    """Its new partitions get leaders; the others do not change."""
    of = Cluster()
    of.decide(topics.topics_changed(of.context, of.batch, of.topic("t", {0: (1, 2)})))
    node = of.topic("t", {0: (1, 2), 1: (2, 3)})
    of.decide(topics.topics_changed(of.context, of.batch, node))
    assert (of.shown(P0), of.shown(P1)) == (Shown(1, 0, (1, 2), 0), Shown(2, 0, (2, 3), 0))
    assert of.requests() == [
        (2, LEAD, [P1]),
        (3, LEAD, [P1]),
        *((n, KNOW, [P1]) for n in (1, 2, 3)),
    ]


def test_a_controller_that_died_half_way_is_followed() -> None:
    """It had created the parent znodes of the state, but not the state itself."""
    of = Cluster()
    node = of.topic("t", {0: (1, 2)})
    of.tree[tree.partitions_path("t")] = of.tree[tree.partitions_path("t") + "/0"] = Znode(b"")
    of.decide(topics.topics_changed(of.context, of.batch, node))
    assert of.shown(P0) == Shown(1, 0, (1, 2), 0)


def test_a_topic_that_is_to_be_deleted_is_not_led_again() -> None:
    of = Cluster()
    of.decide(topics.topics_changed(of.context, of.batch, of.topic("t", {0: (1, 2)})))
    of.context.deleted.add("t")
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2, 3)))
    assert of.shown(P0) == Shown(1, 0, (1, 2), 0)
    states = of.sent[0].body["topic_states"][0]["partition_states"]
    assert (of.sent[0].api.name, states[0]["leader"]) == (KNOW, -2)


def test_a_topic_is_gone() -> None:
    of = Cluster()
    of.decide(topics.topics_changed(of.context, of.batch, of.topic("t", {0: (1, 2)})))
    of.context.deleted.add("t")
    of.context.offline_log_dirs[1] = frozenset({("t", 0), ("other", 0)})
    topics.topic_removed(of.context, "t")
    assert of.context.offline_log_dirs == {1: {("other", 0)}}
    assert not (of.context.partitions or of.context.ids or of.context.deleted)
    of.decide(brokers.begin(of.context, of.batch))
    assert {(kind, *keys) for _, kind, keys in of.requests()} == {(KNOW,)}


def test_unclean_election_of_a_topic() -> None:
    of = Cluster((2, 3))
    of.led(P0, (1, 2), Shown(NO_LEADER, 5, (1,), 7))
    of.decide(topics.unclean_changed(of.context, of.batch, "t", said=False))
    assert of.shown(P0) == Shown(NO_LEADER, 5, (1,), 7)
    of.decide(topics.unclean_changed(of.context, of.batch, "t", said=True))
    assert of.shown(P0) == Shown(2, 6, (2,), 8, recovering=True)
