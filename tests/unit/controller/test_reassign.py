"""Partitions are reassigned to other brokers: started, completed, replaced, cancelled, refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkalog.controller import brokers, deletion, reassign
from kafkalog.controller.isr import Wanted
from kafkalog.metadata.image import NO_LEADER
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.loading import Znode
from tests.unit.controller.building import Cluster, Shown

pytestmark = pytest.mark.slow

LEAD, KNOW, STOP = "LeaderAndIsr", "UpdateMetadata", "StopReplica"
KEY = ("t", 0)
BAD, NONE = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NONE


def cluster(replicas: tuple[int, ...] = (1, 2), state: Shown | None = None) -> Cluster:
    found = Cluster((1, 2, 3, 4))
    found.led(KEY, replicas, state or Shown(replicas[0], 5, replicas, 7))
    return found


def move(of: Cluster, *replicas: int, key: tuple[str, int] = KEY) -> ErrorCode:
    """Request a reassignment through the wire format."""
    return asked(of, list(replicas), key)


def cancel(of: Cluster, key: tuple[str, int] = KEY) -> ErrorCode:
    return asked(of, None, key)


def asked(of: Cluster, replicas: list[int] | None, key: tuple[str, int]) -> ErrorCode:
    api = apis.ALTER_PARTITION_REASSIGNMENTS
    row = {"partition_index": key[1], "replicas": replicas}
    data = api.encode_request(0, {"topics": [{"name": key[0], "partitions": [row]}]})
    body = of.decide(
        reassign.alter_reassignments(of.context, of.batch, api.decode_request(0, data))
    )
    answer = api.decode_response(0, api.encode_response(0, body))
    assert not answer.error_code
    (found,) = answer.responses[0].partitions
    assert bool(found.error_message) == bool(found.error_code)
    return ErrorCode(found.error_code)


def kept(of: Cluster, key: tuple[str, int] = KEY) -> tuple[tuple[int, ...], ...]:
    """The replicas, the adding replicas and the removing replicas."""
    one = of.context.partitions[key]
    return one.replicas, one.adding_replicas, one.removing_replicas


def listed(of: Cluster, *keys: tuple[str, int]) -> dict[tuple[str, int], tuple[Any, ...]]:
    api = apis.LIST_PARTITION_REASSIGNMENTS
    topics = [{"name": name, "partition_indexes": [number]} for name, number in keys] or None
    request = api.decode_request(0, api.encode_request(0, {"topics": topics}))
    body = reassign.list_reassignments(of.context, request)
    answer = api.decode_response(0, api.encode_response(0, body))
    return {
        (topic.name, row.partition_index): (
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas),
        )
        for topic in answer.topics for row in topic.partitions
    }  # fmt: skip


def in_sync(of: Cluster, *isr: int, key: tuple[str, int] = KEY) -> Shown:
    """Let the leader report this ISR; returns the state in the answer."""
    now = of.shown(key)
    wanted = Wanted(now.leader, now.leader_epoch, tuple((one, 100 + one) for one in isr), False,
                    now.partition_epoch)  # fmt: skip
    ((error, shown),) = of.alter(now.leader, (key, wanted))
    assert error is NONE
    return shown


def test_a_partition_is_moved() -> None:
    """Old and new replicas stay until the new are in sync; then one leads, the old are deleted."""
    of = cluster()
    assert move(of, 3, 4) is NONE
    assert kept(of) == ((3, 4, 1, 2), (3, 4), (1, 2)) == listed(of)[KEY] == listed(of, KEY)[KEY]
    assert of.shown(KEY) == Shown(1, 6, (1, 2), 8)
    assert of.requests() == [
        *((n, LEAD, [KEY]) for n in (3, 4, 1, 2)), *((n, KNOW, [KEY]) for n in (1, 2, 3, 4)),
    ]  # fmt: skip
    rows = {
        send.broker: send.body["topic_states"][0]["partition_states"][0] for send in of.sent[:4]
    }
    assert {n: row["is_new"] for n, row in rows.items()} == {1: False, 2: False, 3: True, 4: True}
    assert rows[1]["adding_replicas"] == [3, 4] and rows[1]["removing_replicas"] == [1, 2]

    assert in_sync(of, 1, 2, 3) == Shown(1, 6, (1, 2, 3), 9)
    assert kept(of) == ((3, 4, 1, 2), (3, 4), (1, 2)), "one is missing"
    assert in_sync(of, 1, 2, 3, 4) == Shown(1, 6, (1, 2, 3, 4), 10), "as it asked"
    assert kept(of) == ((3, 4), (), ()) and listed(of) == listed(of, KEY) == {}
    assert of.shown(KEY) == Shown(3, 7, (3, 4), 11)
    assert of.requests() == [
        (3, LEAD, [KEY]), (4, LEAD, [KEY]), *((n, KNOW, [KEY]) for n in (1, 2, 3, 4)),
        (1, STOP, [KEY]), (2, STOP, [KEY]),
    ]  # fmt: skip
    stop = of.sent[-1].body["topic_states"][0]["partition_states"][0]
    assert stop == {"partition_index": 0, "leader_epoch": 7, "delete_partition": True}


@pytest.mark.parametrize(
    ("wanted", "now", "leader", "stopped"),
    [
        ((2, 1), (1, 2), 1, []),  # another order: the preferred leader is elected only on request
        ((1,), (1, 2), 1, [2]),
        ((2,), (1, 2), 2, [1]),  # the leader leaves
    ],
)
def test_a_reassignment_without_copying_ends_at_once(
    wanted: tuple[int, ...], now: tuple[int, ...], leader: int, stopped: list[int]
) -> None:
    of = cluster(now)
    assert move(of, *wanted) is NONE
    assert kept(of) == (wanted, (), ())
    isr = tuple(one for one in now if one in wanted)
    assert of.shown(KEY) == Shown(leader, 6, isr, 8)
    assert [row for row in of.requests() if row[1] == STOP] == [(n, STOP, [KEY]) for n in stopped]


def test_a_move_is_given_up() -> None:
    """Even if a new replica already leads; the new replicas are deleted."""
    of = cluster()
    assert cancel(of) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    move(of, 3, 4)
    in_sync(of, 1, 2, 3)
    now = of.shown(KEY)
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2, 3, 4)))
    assert of.shown(KEY).leader == 3
    assert cancel(of) is NONE
    assert kept(of) == ((1, 2), (), ())
    assert of.shown(KEY) == Shown(2, now.leader_epoch + 2, (2,), now.partition_epoch + 2)
    assert [row for row in of.requests() if row[1] == STOP] == [(n, STOP, [KEY]) for n in (3, 4)]
    assert cancel(of) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_another_move_takes_its_place() -> None:
    of = cluster()
    move(of, 3, 4)
    in_sync(of, 1, 2, 3)
    assert move(of, 2, 4) is NONE
    assert kept(of) == ((2, 4, 1), (4,), (1,))
    assert of.shown(KEY) == Shown(1, 7, (1, 2), 10), "3 is no longer in sync, since it is removed"
    assert [row for row in of.requests() if row[1] == STOP] == [(3, STOP, [KEY])]
    in_sync(of, 1, 2, 4)
    assert kept(of) == ((2, 4), (), ()) and of.shown(KEY).leader == 2


def test_the_last_replica_stays() -> None:
    """Neither a move nor its cancellation deletes the only copy."""
    of = cluster((1, 2), Shown(1, 5, (1,), 7))
    assert move(of, 2) is NONE
    assert kept(of) == ((2, 1), (), (1,)) and of.shown(KEY) == Shown(1, 6, (1,), 8)
    of = cluster()
    move(of, 3, 4)
    in_sync(of, 1, 2, 3)
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(3, 4)))
    assert of.shown(KEY).isr == (3,)
    before = of.shown(KEY)
    assert cancel(of) is BAD and move(of, 1, 2, 4) is BAD
    assert of.shown(KEY) == before and kept(of) == ((3, 4, 1, 2), (3, 4), (1, 2))


@pytest.mark.parametrize(
    ("key", "replicas", "error"),
    [
        (KEY, (), BAD),
        (KEY, (1, 1), BAD),
        (KEY, (-1, 1), BAD),
        (KEY, (1, 9), BAD),  # 9 is not alive
        (("t", 9), (1, 9), BAD),
        (("t", 9), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("other", 0), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refused_reassignments(
    key: tuple[str, int], replicas: tuple[int, ...], error: ErrorCode
) -> None:
    of = cluster()
    assert move(of, *replicas, key=key) is error
    assert of.shown(KEY) == Shown(1, 5, (1, 2), 7) and of.sent == []


def test_kept_replicas_may_be_dead() -> None:
    of = cluster((1, 2), Shown(1, 5, (1,), 7))
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 3)))
    assert move(of, 3, 2) is NONE
    assert kept(of) == ((3, 2, 1), (3,), (1,))


def test_a_topic_being_deleted_is_not_moved() -> None:
    """Its move is over, is listed no more, and does not end even if the new replicas catch up."""
    of = cluster()
    of.tree["/admin"] = Znode(None)
    by_tree(of, t0=(3, 2))
    of.tree[f"{tree.DELETE_TOPICS}/t"] = Znode(b"")
    of.decide(deletion.topics_to_delete(of.context, of.batch, ["t"]))
    stops = [row for row in of.requests() if row[1] == STOP]
    assert stops == [(n, STOP, [KEY]) for n in (1, 2, 3)]
    assert listed(of) == listed(of, KEY) == {} and left(of) is None
    assert move(of, 4, 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before = kept(of)
    in_sync(of, 1, 2, 3)
    assert kept(of) == before and STOP not in {kind for _, kind, _ in of.requests()}


def test_the_next_controller_goes_on() -> None:
    of = cluster()
    move(of, 3, 2)
    path = tree.partition_path(*KEY)
    state = tree.PartitionState(1, 6, (1, 2, 3), 4)
    of.tree[path] = Znode(tree.write_partition(state), of.tree[path].version + 1)
    of.begin()  # the old controller died after the leader's request
    of.decide(brokers.begin(of.context, of.batch))
    assert kept(of) == ((3, 2), (), ()) and of.shown(KEY).leader == 3


def test_a_partition_that_was_never_led_has_nothing_to_move() -> None:
    of = Cluster((1, 2))
    of.topic("t", {0: (3, 4)})
    of.begin()
    assert move(of, 2, 1) is NONE
    assert kept(of) == ((2, 1), (), ()) and of.shown(KEY) == Shown(2, 0, (2, 1), 0)


def test_a_concurrently_changed_topic_is_left_alone() -> None:
    """The other change stays; the request is refused, and must be retried."""
    of = cluster()
    of.topic("t", {0: (1, 2), 1: (2, 1)})
    of.tree[tree.topic_path("t")] = of.tree[tree.topic_path("t")]._replace(version=1)
    assert move(of, 3) is ErrorCode.UNKNOWN_SERVER_ERROR
    found = tree.read_topic("t", of.tree[tree.topic_path("t")].data)
    assert found.replicas == {0: (1, 2), 1: (2, 1)}
    assert of.shown(KEY) == Shown(1, 5, (1, 2), 7) and of.sent == []


def test_many_partitions_of_a_topic() -> None:
    """They need more than one write, and none undoes an earlier one."""
    of = cluster()
    count = reassign.AT_ONCE + 2
    of.topic("t", dict.fromkeys(range(count), (1, 2)))
    for number in range(count):
        state = tree.PartitionState(1, 0, (1, 2), 1)
        of.tree[tree.partition_path("t", number)] = Znode(tree.write_partition(state))
    of.begin()
    wanted = {("t", number): (1, 3) for number in range(count)}
    answers = of.decide(reassign.reassign(of.context, of.batch, wanted))
    assert set(answers.values()) == {None}
    assert {kept(of, key) for key in wanted} == {((1, 3, 2), (3,), (2,))}


# ---- /admin/reassign_partitions ----------------------------------------------------------------


def by_tree(of: Cluster, **wanted: tuple[int, ...]) -> dict[tuple[str, int], reassign.Refusal]:
    """Write a reassignment as a tool does; `t0`: partition 0 of topic t."""
    keys = {(name[:-1], int(name[-1])): replicas for name, replicas in wanted.items()}
    of.tree[tree.REASSIGNMENT] = Znode(tree.write_reassignment(keys))
    read = tree.read_reassignment(of.tree[tree.REASSIGNMENT].data)
    return of.decide(reassign.reassign_requested(of.context, of.batch, read))


def left(of: Cluster) -> dict[tuple[str, int], tuple[int, ...]] | None:
    znode = of.tree.get(tree.REASSIGNMENT)
    return None if znode is None else tree.read_reassignment(znode.data)


def test_the_old_way_in() -> None:
    """Completed and refused moves are removed from the znode; the last one deletes it."""
    of = cluster()
    of.led(("u", 0), (1, 2), Shown(1, 5, (1, 2), 7))
    of.tree["/admin"] = Znode(None)
    refused = by_tree(of, t0=(3, 2), u0=(4, 2), v0=(1,))
    assert {key: one.error for key, one in refused.items()} == {
        ("v", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert left(of) == {("t", 0): (3, 2), ("u", 0): (4, 2)}
    in_sync(of, 1, 2, 3)
    assert left(of) == {("u", 0): (4, 2)}
    assert cancel(of, ("u", 0)) is NONE
    assert left(of) is None
    assert by_tree(of, t0=(2, 3)) == {} and left(of) is None


def test_the_later_request_wins() -> None:
    of = cluster()
    by_tree(of, t0=(3, 2))
    assert move(of, 4, 2) is NONE
    assert left(of) is None and kept(of) == ((4, 2, 1), (4,), (1,))


# ---- any order of events -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_in_any_order(seed: int) -> None:
    """Moves, cancellations, deaths: the leader keeps its replica, no in-sync replica is deleted,
    and a move that can complete is complete."""
    draw = random.Random(seed)
    of = cluster(state=Shown(1, 5, (1, 2), 7))
    living = [1, 2, 3, 4]
    for _ in range(60):
        one, dropped = of.context.partitions[KEY], set()
        step = draw.randrange(4)
        if step == 0:
            move(of, *draw.sample(range(1, 5), draw.randint(1, 3)))
        elif step == 1:
            cancel(of)
        elif step == 2:
            living = sorted(draw.sample(range(1, 5), draw.randint(2, 4)))
            of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(*living)))
        elif one.leader in living:
            may = [n for n in one.replicas if n in living and n != one.leader]
            in_sync(of, one.leader, *draw.sample(may, draw.randint(0, len(may))))
        for send in of.sent:
            if send.api.name == STOP:
                dropped.add(send.broker)
        now = of.context.partitions[KEY]
        assert {*now.isr} <= {*now.replicas} and not dropped & {*now.replicas}
        assert now.leader == NO_LEADER or (now.leader in now.isr and now.leader in living)
        assert not (reassign.moving(now) and {*reassign.target(now)} <= {*now.isr})


def test_a_replica_given_up_after_a_disk_failure_may_return() -> None:
    """The disk's failure is forgotten with the replica; a new replica is placed there again."""
    of = cluster()
    of.decide(brokers.log_dirs_failed(of.context, of.batch, 1, [KEY]))
    assert move(of, 2, 3) is NONE
    in_sync(of, 2, 3)
    assert kept(of) == ((2, 3), (), ())
    assert of.context.offline_log_dirs == {1: set()}
    assert of.context.stray_replicas == {"t": {(0, 1)}}
    of.decide(brokers.log_dirs_failed(of.context, of.batch, 1, [KEY]))  # an earlier answer
    assert of.context.offline_log_dirs == {1: set()} and of.sent == []
    assert move(of, 1, 2) is NONE
    assert (1, LEAD, [KEY]) in of.requests()
