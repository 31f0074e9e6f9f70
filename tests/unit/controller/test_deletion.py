"""Topics are deleted, first on the brokers, then in the tree."""

from __future__ import annotations

from kafkalog.controller import brokers, deletion, reassign, topics
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import Delete
from tests.unit.controller.building import Cluster

KNOW, STOP = "UpdateMetadata", "StopReplica"
P0, P1 = ("t", 0), ("t", 1)
OK = ErrorCode.NONE


def cluster() -> Cluster:
    """A topic to delete, and another one."""
    of = Cluster((1, 2))
    for name in ("t", "other"):
        node = of.topic(name, {0: (1, 2), 1: (2,)})
        of.decide(topics.topics_changed(of.context, of.batch, node))
    of.tree["/config/topics/t"] = Znode(b'{"version":1,"config":{}}')
    of.tree[f"{tree.DELETE_TOPICS}/t"] = Znode(b"")
    return of


def names(of: Cluster) -> set[str]:
    """The znodes of the topic t."""
    return {path for path in of.tree if "t" in path.split("/")}


def drop(of: Cluster, broker: int, error: ErrorCode, *keys: tuple[str, int]) -> None:
    answers = dict.fromkeys(keys, error)
    of.decide(deletion.replicas_dropped(of.context, of.batch, broker, answers))


def test_a_topic_is_deleted() -> None:
    of = cluster()
    of.decide(deletion.topics_to_delete(of.context, of.batch, ["t"]))
    assert of.requests() == [
        (1, KNOW, [P0, P1]), (2, KNOW, [P0, P1]), (1, STOP, [P0]), (2, STOP, [P0, P1]),
    ]  # fmt: skip
    stop = of.sent[-1].body["topic_states"][0]["partition_states"][0]
    assert stop == {"partition_index": 0, "leader_epoch": -2, "delete_partition": True}
    drop(of, 2, OK, P0, P1)
    assert names(of) and of.context.ids.keys() == {"t", "other"}
    drop(of, 1, OK, P0)
    assert names(of) == set() and of.context.deleted == set()
    assert {key[0] for key in of.context.partitions} == {"other"}
    assert tree.partition_path("other", 1) in of.tree


def test_a_topic_waits_for_a_broker_that_is_away() -> None:
    """When it returns, it gets StopReplica for the topic, and no LeaderAndIsr."""
    of = cluster()
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1)))
    of.decide(deletion.topics_to_delete(of.context, of.batch, ["t"]))
    assert of.requests() == [(1, KNOW, [P0, P1])]
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2)))
    told = {(broker, kind): keys for broker, kind, keys in of.requests()}
    assert (told[1, STOP], told[2, STOP]) == ([P0], [P0, P1])
    assert P0 not in told[2, "LeaderAndIsr"]


def test_failed_deletions_are_retried() -> None:
    of = cluster()
    of.decide(deletion.topics_to_delete(of.context, of.batch, ["t"]))
    drop(of, 2, ErrorCode.KAFKA_STORAGE_ERROR, P0, P1)
    drop(of, 1, OK, P0)
    assert names(of)
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2, b2=300)))
    assert [row for row in of.requests() if row[1] == STOP] == [(2, STOP, [P0, P1])]
    drop(of, 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, P0, P1)
    assert names(of) == set()


def test_unanswered_deletions_are_not_repeated() -> None:
    """Only failures are retried, and none while the topic waits for a broker."""
    of = cluster()
    of.decide(deletion.topics_to_delete(of.context, of.batch, ["t"]))
    drop(of, 2, ErrorCode.KAFKA_STORAGE_ERROR, P1)
    of.decide(deletion.delete_again(of.context, of.batch))
    assert of.requests() == [(2, STOP, [P1])]
    of.decide(deletion.delete_again(of.context, of.batch))
    assert of.requests() == []
    drop(of, 2, ErrorCode.KAFKA_STORAGE_ERROR, P1)
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2)))
    of.decide(deletion.delete_again(of.context, of.batch))
    assert of.requests() == [] and of.context.failed == {}
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2)))
    assert [row for row in of.requests() if row[1] == STOP] == [
        (1, STOP, [P0]),
        (2, STOP, [P0, P1]),
    ]


def test_a_broker_that_deleted_a_topic_does_not_recreate_it() -> None:
    """It would create the replica again, and nobody would ask it to delete that. This holds even if
    it restarts while the topic waits for another broker."""
    of = cluster()
    of.decide(deletion.topics_to_delete(of.context, of.batch, ["t"]))
    drop(of, 2, OK, P0, P1)
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2)))
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2, b2=300)))
    told = {(broker, kind): keys for broker, kind, keys in of.requests()}
    assert told[2, "LeaderAndIsr"] == [("other", 0), ("other", 1)]
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2, b2=300)))
    assert [row for row in of.requests() if row[1] == STOP] == [(1, STOP, [P0])]
    drop(of, 1, OK, P0)
    assert names(of) == set()


def test_a_topic_that_is_moved_is_deleted() -> None:
    """Old and new brokers drop their copies."""
    of = cluster()
    of.decide(reassign.reassign(of.context, of.batch, {P1: (1,)}))
    assert of.context.partitions[P1].replicas == (1, 2)
    of.decide(deletion.topics_to_delete(of.context, of.batch, ["t"]))
    stops = [row for row in of.requests() if row[1] == STOP]
    assert stops == [(1, STOP, [P0, P1]), (2, STOP, [P0, P1])]
    for broker in (1, 2):
        drop(of, broker, OK, P0, P1)
    assert names(of) == set() and of.context.moves_to_check == set()


def test_a_controller_that_died_half_way_is_followed() -> None:
    """Some of the znodes are gone; the brokers have nothing left to delete."""
    of = cluster()
    del of.tree[tree.partition_path("t", 1)]
    of.tree[f"{tree.DELETE_TOPICS}/never"] = Znode(b"")
    of.begin()
    of.decide(brokers.begin(of.context, of.batch))
    assert (2, STOP, [P0, P1]) in of.requests()
    assert of.context.deleted == {"t"}  # the other topic never existed, and its znode is gone
    for broker in (1, 2):
        drop(of, broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, P0, P1)
    assert names(of) == set() and of.context.deleted == set()
    assert f"{tree.DELETE_TOPICS}/never" not in of.tree


def test_a_tree_that_refuses_is_asked_again() -> None:
    """The znode that marks the topic for deletion stays until the rest is gone."""
    of = cluster()
    of.decide(deletion.topics_to_delete(of.context, of.batch, ["t"]))
    of.refuse = lambda one: isinstance(one, Delete) and one.path == tree.topic_path("t")
    drop(of, 2, OK, P0, P1)
    drop(of, 1, OK, P0)
    assert names(of) == {tree.topic_path("t"), f"{tree.DELETE_TOPICS}/t"}
    assert of.context.failed == {"t": set()}
    of.refuse = lambda _: False
    of.decide(deletion.delete_again(of.context, of.batch))
    assert names(of) == set() and of.context.deleted == set() and of.context.failed == {}


def test_an_answer_about_another_topic_deletes_nothing() -> None:
    of = cluster()
    drop(of, 1, OK, ("other", 0))
    drop(of, 2, OK, ("other", 0), ("other", 1))
    assert "other" in of.context.ids and not of.context.dropped
