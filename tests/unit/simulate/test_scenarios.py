"""Cases in which other systems lost records, step by step, in a cluster in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kafkalog.simulate.ensemble import ENSEMBLE
from kafkalog.simulate.world import Violated
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Create, Seen
from tests.unit.simulate.scene import DURABLE, Scene


def test_kip_101_a_follower_that_restarts_keeps_committed_records(scene: Scene) -> None:
    """S-101: its high watermark is old when the leader dies and it takes over."""
    scene.sent(1)
    wanted = scene.values(1)
    scene.nodes[2].kill()
    scene.nodes[2].start()
    scene.until(lambda: 2 not in scene.isr())
    scene.until(lambda: scene.isr() == {1, 2, 3})
    scene.nodes[3].kill()
    scene.until(lambda: scene.isr() == {1, 2})
    scene.nodes[1].kill()
    scene.led_by(2)
    assert scene.values(2) == wanted
    scene.settle()


def test_kip_279_suffixes_of_several_leaders_converge(scene: Scene) -> None:
    """S-279: each leader has records of its own when the next one is elected."""
    scene.sent(1)
    for leader, following in ((1, 2), (2, 3), (3, 1)):
        scene.led_by(leader)
        scene.apart(leader)
        for _ in range(leader):
            scene.send(leader, acks=1)
        scene.nodes[leader].kill()
        scene.nodes[leader].start()
        scene.until(lambda one=leader: scene.leader() not in (one, -1))  # type: ignore[misc]
        scene.network.heal()
        scene.until(lambda: scene.isr() == {1, 2, 3})
        if scene.leader() != following:
            return scene.settle()  # another node was elected, which is fine
    return scene.settle()


def test_a_leader_that_dies_before_its_followers_know(scene: Scene) -> None:
    """S-hw: the record is acknowledged, but the followers' high watermarks are old."""
    scene.sent(1)
    wanted = scene.values(1)
    assert scene.replica(2).handle.high_watermark <= 1
    scene.nodes[1].kill()
    scene.until(lambda: scene.leader() in (2, 3))
    scene.led_by(scene.leader())
    new = scene.replica(scene.leader())
    scene.until(lambda: new.handle.high_watermark == 1)
    assert scene.values(new.node.number) == wanted
    scene.settle()


def test_a_leader_cut_off_acknowledges_nothing(scene: Scene) -> None:
    """S-zombie: it still leads, alone, but its high watermark stays."""
    scene.sent(1)
    scene.until(lambda: scene.replica(1).handle.high_watermark == 1)
    scene.apart(1)
    answers = scene.send(1)
    scene.until(lambda: scene.leader() in (2, 3))
    new = scene.leader()
    scene.led_by(new)
    scene.pass_ms(3_000)
    assert answers == [] and scene.replica(1).handle.high_watermark == 1
    scene.count -= 1
    scene.sent(new)
    scene.network.heal()
    scene.until(lambda: bool(answers))
    assert answers[0].error == "NotLeaderOrFollower"
    scene.settle()


def test_kip_497_a_replica_that_may_have_joined_is_waited_for(scene: Scene) -> None:
    """S-497: the controller's answer that a follower is in sync is lost."""
    active = next(one.number for one in scene.nodes.values() if one.controller.is_active)
    joins = next(one for one in (2, 3) if one != active)
    scene.apart(joins, 1)
    scene.sent(1)
    assert joins not in scene.isr()
    scene.network.heal()
    leader = scene.replica(1)
    scene.until(lambda: leader.isr is not None and leader.isr.due)
    scene.network.cut([(active, 1)])
    scene.until(lambda: scene.isr() == {1, 2, 3})
    scene.apart(joins, 1)
    answers = scene.send(1)
    scene.pass_ms(100)
    assert answers == [], f"{joins} is in the ISR, and does not have it"
    scene.settle()
    assert answers and answers[0].error == ""


def test_kip_903_a_node_that_bounced_leaves_the_isr_first(make: Callable[..., Scene]) -> None:
    """S-903, S-966: it returns within its session, but registers again and must catch up."""
    scene = make(session_ms=2_000.0)
    before = scene.nodes[2].standing.epoch
    scene.sent(1)
    scene.nodes[2].kill(emptied=True)
    scene.nodes[2].start()
    scene.until(lambda: 2 not in scene.isr())
    scene.until(lambda: scene.isr() == {1, 2, 3})
    assert scene.nodes[2].standing.epoch > before
    assert scene.values(2) == scene.values(1)
    scene.settle()


def test_an_unclean_election_says_so_and_ends_equal(make: Callable[..., Scene]) -> None:
    """S-unclean: records of the old leader alone are lost, also on itself once it returns."""
    scene = make(unclean=True, nodes=2, replicas=2)
    scene.sent(1)
    scene.nodes[2].kill()
    scene.until(lambda: scene.isr() == {1})
    scene.sent(1)
    scene.nodes[1].kill()
    scene.nodes[2].start()
    scene.until(lambda: scene.leader() == 2)
    state = scene.checks.state(scene.tp)
    assert state is not None and state.recovering
    scene.led_by(2)
    scene.send(2, acks=1)
    scene.nodes[1].start()
    scene.until(lambda: scene.isr() == {1, 2})
    state = scene.checks.state(scene.tp)
    assert state is not None and not state.recovering
    scene.settle()
    assert scene.values(1) == scene.values(2)


def test_a_follower_below_the_leaders_log_start(scene: Scene) -> None:
    """S-retention: it starts over at the leader's log start."""
    scene.nodes[2].kill()
    scene.until(lambda: scene.isr() == {1, 3})
    for _ in range(30):
        scene.sent(1)
    scene.replica(1).log.delete_before(20)
    scene.nodes[2].start()
    scene.until(lambda: scene.isr() == {1, 2, 3})
    scene.settle()
    assert scene.replica(2).log.start_offset == scene.replica(1).log.start_offset == 20


def test_sessions_that_expire_begin_another_life(scene: Scene) -> None:
    """Z-1: a broker's session, and the controller's; each registers again."""

    def newer(node: int, than: int) -> bool:
        return scene.nodes[node].standing.epoch > than

    for node in (2, next(one.number for one in scene.nodes.values() if one.controller.is_active)):
        before = scene.nodes[node].standing.epoch
        scene.ensemble.expire(scene.nodes[node].link.session)
        scene.until(partial(newer, node, before))
    scene.sent(scene.leader())
    scene.settle()


def test_without_zookeeper_leaders_go_on(make: Callable[..., Scene]) -> None:
    """Z-2: acks=all works as long as the ISR answers, but no ISR can change."""
    scene = make(session_ms=60_000.0)
    for node in scene.nodes:
        scene.apart(node, ENSEMBLE)
    before = scene.checks.state(scene.tp)
    for _ in range(20):
        scene.sent(1)
        scene.pass_ms(300)
    assert scene.checks.state(scene.tp) == before
    scene.settle()


def test_a_controller_of_before_writes_nothing(scene: Scene) -> None:
    """Z-3: it is paused while another is elected, and resumes in the middle of a decision."""
    old = next(one for one in scene.nodes.values() if one.controller.is_active)
    other = next(one for one in (2, 3) if one != old.number)
    epoch = old.standing.controller_epoch
    scene.nodes[other].kill()
    scene.until(lambda: scene.isr() != {1, 2, 3})
    old.paused_until_ms = scene.world.now_ms + 3_000
    scene.resign()
    scene.nodes[other].start()
    scene.pass_ms(6_000)
    scene.until(lambda: scene.isr() == {1, 2, 3})
    controllers = [one for one in scene.nodes.values() if one.controller.is_active]
    assert len(controllers) == 1 and controllers[0].standing.controller_epoch > epoch
    scene.settle()


def test_a_power_cut_of_all_takes_nothing_that_was_acknowledged(make: Callable[..., Scene]) -> None:
    """With durability=fsync each replica only promises what is on its disk."""
    scene = make(durable=True, topic_config=DURABLE)
    for _ in range(5):
        scene.sent(1)
    wanted = scene.values(1)
    for node in scene.nodes.values():
        node.kill(power_cut=True)
    for node in scene.nodes.values():
        node.start()
    scene.settle()
    assert scene.values(3)[:5] == wanted


def test_the_last_records_of_a_follower_are_shown_once_they_are_on_its_disk(
    make: Callable[..., Scene],
) -> None:
    """It leads next, alone: readers see no record that the next power failure could take."""
    scene = make(durable=True, nodes=2, replicas=2, disk_ms=50.0, topic_config=DURABLE)
    scene.send(1)
    scene.until(lambda: scene.replica(2).log.end_offset == 1)
    assert scene.replica(2).handle.flushed_offset == 0
    scene.nodes[1].kill(power_cut=True)
    scene.led_by(2)
    shown = scene.replica(2).handle.high_watermark
    scene.nodes[2].kill(power_cut=True)
    scene.nodes[2].start()
    scene.until(lambda: scene.tp in scene.nodes[2].replicas)
    assert scene.replica(2).log.end_offset >= shown
    scene.nodes[1].start()
    scene.settle()


def test_replicas_move_while_a_leader_dies(make: Callable[..., Scene]) -> None:
    """S-reassign: the new replica cannot join, and the one to remove leads until it dies."""
    scene = make(nodes=5)
    scene.controlled_by(5)
    scene.sent(1)
    scene.apart(4, 1, 2)
    wanted = tree.write_reassignment({scene.tp: (4, 2, 3)})
    scene.tree.commit([Create(tree.REASSIGNMENT, wanted)])
    scene.until(lambda: scene.tp in scene.nodes[4].replicas)
    scene.sent(1)
    scene.nodes[1].kill()
    scene.until(lambda: scene.leader() in (2, 3))
    scene.led_by(scene.leader())
    scene.sent(scene.leader())
    assert 4 not in scene.isr()
    scene.network.heal()
    scene.until(lambda: scene.isr() == {2, 3, 4})
    scene.until(lambda: tree.REASSIGNMENT not in scene.tree.znodes)
    scene.nodes[1].start()
    scene.settle()
    assert len(scene.values(4)) == 3 and scene.values(4) == scene.values(2)
    scene.until(lambda: scene.tp not in scene.nodes[1].replicas)


def test_watches_that_are_late_lost_or_seen_twice(make: Callable[..., Scene]) -> None:
    """Z-4: their paths are read again, and only that counts."""
    scene = make(nodes=4, session_ms=60_000.0)
    scene.controlled_by(4)
    controller = scene.nodes[4]
    for path, children in (
        (tree.BROKERS, True), (tree.TOPICS, True), (tree.topic_path("t"), False),
        (tree.REASSIGNMENT, False), (tree.ISR_CHANGES, True), (tree.BROKERS, True),
        (tree.CONTROLLER, False), (tree.broker_path(2), False),
    ):  # fmt: skip
        controller.controller.seen(Seen(path, children))
    scene.sent(1)
    before = scene.nodes[2].standing.epoch
    scene.network.cut([(ENSEMBLE, 4)])
    scene.nodes[2].kill()
    scene.ensemble.expire(scene.nodes[2].link.session)
    scene.nodes[2].start()
    scene.pass_ms(1_000)
    scene.network.heal()
    scene.until(lambda: scene.nodes[2].standing.epoch > before and scene.isr() == {1, 2, 3})
    scene.sent(1)
    scene.apart(4, ENSEMBLE)
    scene.nodes[3].kill()
    scene.ensemble.expire(scene.nodes[3].link.session)
    scene.until(lambda: not controller.link.connected, 90_000)
    scene.network.heal()
    scene.until(lambda: 3 not in scene.isr())
    scene.settle()


def test_a_former_leader_misses_records_that_another_took(scene: Scene) -> None:
    """It rightly refuses the next record; from the real leader that would mean a lost record."""
    scene.sent(1)
    scene.apart(1)
    scene.until(lambda: scene.leader() in (2, 3))
    leader = scene.leader()
    scene.led_by(leader)
    scene.sent(leader)
    (late,) = scene.send(1)
    assert late.error == "OutOfOrderSequenceNumber"
    scene.checks.out_of_order(scene.tp, late.leader_epoch, 7, 2)
    with pytest.raises(Violated, match="out of order"):
        scene.checks.out_of_order(scene.tp, scene.replica(leader).leader_epoch, 7, 2)
