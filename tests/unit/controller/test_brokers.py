"""Brokers start, die, and ask for controlled shutdown: a table of steps for each."""

from __future__ import annotations

import random

import pytest

from kafkalog.controller import brokers, topics
from kafkalog.controller.isr import Wanted
from kafkalog.controller.partitions import leaderless
from kafkalog.metadata.image import NO_LEADER
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.zookeeper.session import Set
from tests.unit.controller.building import Cluster, Shown

KEY = ("t", 0)
LEAD, KNOW, STOP = "LeaderAndIsr", "UpdateMetadata", "StopReplica"


def cluster(state: Shown, living: tuple[int, ...] = (1, 2, 3), unclean: bool = False) -> Cluster:
    found = Cluster(living, unclean)
    found.led(KEY, (1, 2, 3), state)
    return found


@pytest.mark.parametrize(
    ("state", "living", "unclean", "wanted"),
    [
        # The leader dies: the first live in-sync replica of the assignment leads.
        (Shown(1, 5, (3, 1, 2), 7), (2, 3), False, Shown(2, 6, (3, 2), 8)),
        # A follower dies: it leaves the ISR, in a new epoch.
        (Shown(1, 5, (1, 2, 3), 7), (1, 3), False, Shown(1, 6, (1, 3), 8)),
        # A replica that was not in sync dies: nothing is written.
        (Shown(1, 5, (1, 2), 7), (1, 2), False, Shown(1, 5, (1, 2), 7)),
        # The last in-sync replica dies: it stays in the ISR, and there is no leader.
        (Shown(1, 5, (1,), 7), (2, 3), False, Shown(NO_LEADER, 6, (1,), 8)),
        # The same with unclean elections: a live replica leads, and is marked as recovering.
        (Shown(1, 5, (1,), 7), (2, 3), True, Shown(2, 6, (2,), 8, recovering=True)),
        # All in-sync replicas die at once: each has every record, so all stay in the ISR.
        (Shown(1, 5, (1, 2), 7), (3,), False, Shown(NO_LEADER, 6, (1, 2), 8)),
        (Shown(1, 5, (1, 2, 3), 7), (), False, Shown(NO_LEADER, 6, (1, 2, 3), 8)),
    ],
)
def test_brokers_die(state: Shown, living: tuple[int, ...], unclean: bool, wanted: Shown) -> None:
    of = cluster(state, unclean=unclean)
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(*living)))
    assert of.shown(KEY) == wanted
    leads = [(one, LEAD, [KEY]) for one in living if wanted != state]
    assert of.requests() == leads + [(one, KNOW, [KEY]) for one in living]


def test_a_broker_comes_back() -> None:
    """First all learn which brokers are alive; the last in-sync replica leads again."""
    of = cluster(Shown(NO_LEADER, 6, (1,), 8), (2, 3))
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2, 3)))
    assert of.shown(KEY) == Shown(1, 7, (1,), 9)
    assert of.requests()[0] == (1, KNOW, [KEY])
    assert sorted(of.requests()[3:]) == [
        (n, kind, [KEY]) for n in (1, 2, 3) for kind in (LEAD, KNOW)
    ]


def test_a_follower_comes_back_out_of_sync() -> None:
    of = cluster(Shown(1, 6, (1, 3), 8), (1, 3))
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2, 3)))
    assert of.shown(KEY) == Shown(1, 6, (1, 3), 8)
    assert of.requests() == [*((n, KNOW, [KEY]) for n in (2, 1, 3)), (2, LEAD, [KEY])]


def test_a_new_life_is_not_believed_at_once() -> None:
    """The same broker with a new epoch, its death unseen: it first leaves the ISR."""
    of = cluster(Shown(1, 5, (1, 2, 3), 7))
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2, 3, b1=201)))
    assert of.shown(KEY) == Shown(2, 6, (2, 3), 8)
    assert of.context.brokers[1].epoch == 201
    assert (1, LEAD, [KEY]) in of.requests()


def test_the_only_one_dies_and_comes_back_unseen() -> None:
    of = cluster(Shown(1, 5, (1,), 7))
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2, 3, b1=201)))
    assert of.shown(KEY) == Shown(1, 7, (1,), 9)


def test_a_broker_moves_without_dying() -> None:
    """It has other endpoints in the same epoch: all brokers get them, and nothing else changes."""
    of = cluster(Shown(1, 5, (1, 2, 3), 7))
    now = of.brokers(1, 2, 3)
    now[2] = now[2]._replace(endpoints=(("PLAINTEXT", "elsewhere", 1, 0),))
    deciding = brokers.brokers_changed(of.context, of.batch, now)
    with pytest.raises(StopIteration):
        next(deciding)
    sent = of.batch.sends()
    assert [(one.broker, one.api.name, one.body["topic_states"]) for one in sent] == [
        (n, KNOW, []) for n in (1, 2, 3)
    ]
    assert sent[0].body["live_brokers"][1]["endpoints"][0]["host"] == "elsewhere"


def test_a_disk_fails() -> None:
    """The broker stays alive, but no longer leads the partition on that disk."""
    of = cluster(Shown(1, 5, (1, 2), 7))
    of.decide(brokers.log_dirs_failed(of.context, of.batch, 1, [KEY, ("gone", 0)]))
    assert of.shown(KEY) == Shown(2, 6, (2,), 8)
    knows = [one for one in of.sent if one.api.name == KNOW]
    assert [one.broker for one in knows] == [1, 2, 3]
    row = knows[0].body["topic_states"][0]["partition_states"][0]
    assert (row["leader"], row["offline_replicas"]) == (2, [1])


def test_a_new_controller_tells_all_and_mends() -> None:
    """It handles what changed while there was no controller."""
    of = cluster(Shown(1, 5, (1, 2), 7), (2, 3))
    of.decide(brokers.begin(of.context, of.batch))
    assert of.shown(KEY) == Shown(2, 6, (2,), 8)
    assert of.requests() == [
        *((n, KNOW, []) for n in (2, 3)),
        *((n, kind, [KEY]) for kind in (LEAD, KNOW) for n in (2, 3)),
    ]
    assert of.sent[2].api.name == LEAD
    row = of.sent[2].body["topic_states"][0]["partition_states"][0]
    assert (row["controller_epoch"], row["is_new"]) == (4, False)
    assert of.sent[2].body["live_leaders"] == [{"broker_id": 2, "host_name": "host2", "port": 9092}]


# ---- controlled shutdown --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "broker", "left", "wanted", "requests"),
    [
        # It leads: another in-sync replica takes over, and it leaves the ISR.
        (Shown(1, 5, (1, 2, 3), 7), 1, [], Shown(2, 6, (2, 3), 8), {(n, LEAD) for n in (1, 2, 3)}),
        # It follows: it stops, and the remaining replicas get the new state.
        (Shown(1, 5, (1, 2, 3), 7), 3, [], Shown(1, 6, (1, 2), 8),
         {(1, LEAD), (2, LEAD), (3, STOP)}),
        # No other replica is in sync: it stays leader, and the answer lists the partition.
        (Shown(1, 5, (1,), 7), 1, [KEY], Shown(1, 5, (1,), 7), set()),
        # It follows out of sync: it stops, and nothing is written.
        (Shown(1, 5, (1, 2), 7), 3, [], Shown(1, 5, (1, 2), 7), {(3, STOP)}),
    ],
)  # fmt: skip
def test_a_broker_is_let_go(
    state: Shown, broker: int, left: list[tuple[str, int]], wanted: Shown,
    requests: set[tuple[int, str]],
) -> None:  # fmt: skip
    of = cluster(state)
    answer = of.decide(brokers.shut_down(of.context, of.batch, broker, 100 + broker))
    assert answer == (ErrorCode.NONE, left)
    assert of.shown(KEY) == wanted
    assert {(one, kind) for one, kind, _ in of.requests() if kind != KNOW} == requests
    # A broker asks repeatedly: nothing more is written.
    again = of.decide(brokers.shut_down(of.context, of.batch, broker, 100 + broker))
    assert (again, of.shown(KEY)) == (answer, wanted)


def test_a_broker_shutting_down_is_not_elected() -> None:
    of = cluster(Shown(1, 5, (1, 2, 3), 7))
    of.decide(brokers.shut_down(of.context, of.batch, 2, -1))
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2, 3)))
    assert of.shown(KEY) == Shown(3, 7, (3,), 9)
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2)))
    assert of.shown(KEY) == Shown(NO_LEADER, 8, (3,), 10)
    # It stops and starts again: it may be elected again once it is in sync.
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2, b2=300)))
    assert of.context.shutting_down == set()


def test_controlled_shutdown_checks_its_broker() -> None:
    of = cluster(Shown(1, 5, (1, 2, 3), 7), (1, 2))
    stale = of.decide(brokers.shut_down(of.context, of.batch, 1, 100))
    unknown = of.decide(brokers.shut_down(of.context, of.batch, 3, 103))
    assert (stale[0], unknown[0]) == (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE)
    assert of.context.shutting_down == set() and of.sent == []


def test_a_partition_with_one_copy_does_not_hold_its_broker() -> None:
    of = Cluster()
    of.led(KEY, (1,), Shown(1, 5, (1,), 7))
    assert of.decide(brokers.shut_down(of.context, of.batch, 1, 101)) == (ErrorCode.NONE, [])
    assert of.shown(KEY) == Shown(1, 5, (1,), 7)


# ---- states that others changed ----------------------------------------------------------------


def test_a_state_that_somebody_else_wrote_is_read_again() -> None:
    """No decision touches its partition until then; other partitions are not affected."""
    of = cluster(Shown(1, 5, (1, 2, 3), 7))
    of.refuse = lambda _: True
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2, 3)))
    assert of.context.stale == {KEY}
    assert {kind for _, kind, _ in of.requests()} == {KNOW}
    of.refuse = lambda _: False
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(3)))
    assert of.shown(KEY) == Shown(1, 5, (1, 2, 3), 7)
    of.read_again()
    of.decide(brokers.begin(of.context, of.batch))
    assert of.shown(KEY) == Shown(3, 6, (3,), 8)


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_events(seed: int) -> None:
    """Whatever the order, epochs only rise, the ISR is never empty and has the leader in it, and a
    decision is final: repeating it changes nothing.  (Each step also checks that the controller's
    view is the tree's.)"""
    rng = random.Random(seed)
    of, lives, epochs = Cluster((1, 2, 3, 4)), {1, 2, 3, 4}, {}
    for at in range(3):
        node = of.topic(f"t{at}", {n: tuple(rng.sample(range(1, 5), 3)) for n in range(2)})
        of.decide(topics.topics_changed(of.context, of.batch, node))
    altered: set[ErrorCode] = set()
    for step in range(60):
        before, any_one = dict(of.context.partitions), rng.randint(1, 4)
        match rng.choice(["die", "come", "come", "bounce", "let go", "alter", "alter"]):
            case "die":
                lives.discard(any_one)
            case "come":
                lives.add(any_one)
            case "bounce" if any_one in lives:
                epochs[f"b{any_one}"] = 1000 + step
            case "let go":
                of.decide(brokers.shut_down(of.context, of.batch, any_one, -1))
            case "alter":
                for key, one in rng.sample(sorted(before.items()), 3):
                    also = [n for n in one.replicas if n != one.leader and rng.random() < 0.7]
                    isr = tuple((n, -1) for n in (one.leader, *also))
                    wanted = Wanted(one.leader, one.leader_epoch, isr, False, one.partition_epoch)
                    sender = of.context.brokers.get(one.leader)
                    if sender is not None:
                        altered.update(
                            error for error, _ in
                            of.alter(sender.id, (key, wanted), epoch=sender.epoch)
                        )  # fmt: skip
        epochs = {name: epoch for name, epoch in epochs.items() if int(name[1:]) in lives}
        now = of.brokers(*sorted(lives), **epochs)
        of.refuse = lambda one: isinstance(one, Set) and rng.random() < 0.1
        of.decide(brokers.brokers_changed(of.context, of.batch, now))
        of.requests()
        of.refuse = lambda _: False
        of.read_again()
        of.decide(brokers.begin(of.context, of.batch))
        for key, one in of.context.partitions.items():
            was = before[key]
            assert one.leader_epoch >= was.leader_epoch
            assert one.partition_epoch >= was.partition_epoch
            assert len(one.isr) > 0 and (one.leader == NO_LEADER or one.leader in one.isr)
            if one.leader == NO_LEADER:
                assert not of.context.electable(key) & {*one.isr}
            else:
                assert {*one.isr} <= {*of.context.holding(key)}
        state = dict(of.context.partitions)
        of.decide(brokers.begin(of.context, of.batch))
        assert state == of.context.partitions
    assert sum(one.leader_epoch for one in of.context.partitions.values()) > 20
    assert altered == {ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA}
    assert leaderless(of.context) == [] or lives != {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("state", "living", "reborn", "wanted"),
    [
        # The leader restarted: an in-sync replica that did not restart leads.
        (Shown(1, 5, (1, 2, 3), 7), (1, 2, 3), (1,), Shown(2, 6, (2, 3), 8)),
        # A follower restarted: it leaves the ISR.
        (Shown(1, 5, (1, 2, 3), 7), (1, 2, 3), (2,), Shown(1, 6, (1, 3), 8)),
        # All of the ISR restarted: it stays, in a new epoch, since records may have been lost.
        (Shown(1, 5, (1, 2), 7), (1, 2, 3), (1, 2), Shown(1, 6, (1, 2), 8)),
        (Shown(1, 5, (1,), 7), (1, 2, 3), (1,), Shown(1, 6, (1,), 8)),
        # The leader is dead, and the replica that restarted is all that is left of the ISR.
        (Shown(1, 5, (1, 2), 7), (2, 3), (2,), Shown(2, 7, (2,), 9)),
        # A replica that was not in sync restarted: nothing is written.
        (Shown(1, 5, (1, 2), 7), (1, 2, 3), (3,), Shown(1, 5, (1, 2), 7)),
    ],
)
def test_brokers_came_back_while_nobody_reigned(
    state: Shown, living: tuple[int, ...], reborn: tuple[int, ...], wanted: Shown
) -> None:
    """They registered after the partition's state was written: their deaths went unseen."""
    of = cluster(state)
    of.brokers(*living, **{f"b{one}": 200 + one for one in reborn})
    of.begin()
    of.decide(brokers.begin(of.context, of.batch))
    assert of.shown(KEY) == wanted
    of.begin()
    of.decide(brokers.begin(of.context, of.batch))
    assert of.shown(KEY) == wanted
