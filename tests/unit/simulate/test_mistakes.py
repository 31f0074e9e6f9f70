"""Rare cases, step by step: each finds its planted mistake every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kafkalog.simulate.ensemble import ENSEMBLE
from kafkalog.simulate.mutants import MUTANTS
from kafkalog.simulate.replica import Fetch
from kafkalog.simulate.rules import Rules
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Create
from tests.unit.simulate.scene import DURABLE, Scene

Make = Callable[..., Scene]
PATIENT = {"lag_ms": 60_000}
"""No replica leaves the ISR for being slow."""
NEVER = 1e9
"""Slows a disk down so that it syncs nothing."""


def on_disk(make: Make, **setup: object) -> Scene:
    return make(durable=True, topic_config=DURABLE, disk_ms=1.0, **setup)


def acks_1_after_its_leader_began_to_stop(make: Make) -> None:
    """It is refused: a follower would no longer get it in time."""
    scene, gone = make(**PATIENT), list[int]()
    scene.controlled_by(3)
    scene.nodes[1].stop(lambda: gone.append(1))
    scene.apart(1, 2)
    (answer,) = scene.send(1, acks=1)
    scene.until(lambda: bool(gone))
    assert answer.error == "NotLeaderOrFollower"
    scene.led_by(2)
    scene.settle()


def acks_1_before_its_leader_began_to_stop(make: Make) -> None:
    """The leader waits for the followers in sync to have it."""
    scene, gone = make(**PATIENT), list[int]()
    scene.controlled_by(3)
    scene.apart(1, 2)
    scene.sent(1, acks=1)
    scene.nodes[1].stop(lambda: gone.append(1))
    scene.pass_ms(200)
    assert not gone and scene.leader() == 1
    scene.network.heal()
    scene.until(lambda: bool(gone))
    scene.led_by(2)
    assert scene.replica(2).log.end_offset == 1
    scene.settle()


def dies_unseen(scene: Scene, node: int, leader: int) -> None:
    """A follower loses power and returns within its session, and is then alone in the ISR."""
    scene.nodes[node].kill(power_cut=True)
    scene.nodes[node].disk_factor = 1.0
    scene.nodes[leader].kill()
    scene.ensemble.expire(scene.nodes[leader].link.session)
    scene.until(lambda: scene.leader() == node)
    scene.nodes[node].start()
    scene.led_by(node)
    scene.nodes[leader].start()
    scene.settle()


def who_leads_shows_what_is_on_disk(make: Make) -> None:
    """A new leader syncs its last records as a follower before it counts itself in."""
    scene = on_disk(make, nodes=2, replicas=2)
    scene.nodes[1].disk_factor = scene.nodes[2].disk_factor = NEVER
    scene.send(1)
    scene.until(lambda: scene.replica(2).log.end_offset == 1)
    scene.nodes[1].kill(power_cut=True)
    scene.led_by(2)
    shown = scene.replica(2).handle.high_watermark
    scene.nodes[2].kill(power_cut=True)
    scene.nodes[2].disk_factor = scene.nodes[1].disk_factor = 1.0
    scene.nodes[2].start()
    scene.led_by(2)
    assert scene.replica(2).log.end_offset >= shown, "committed: a reader saw it"
    scene.nodes[1].start()
    scene.settle()


def a_follower_promises_what_is_on_disk(make: Make) -> None:
    """Records that it has appended but not synced yet are not acknowledged."""
    scene = on_disk(make, replicas=2, **PATIENT)
    scene.controlled_by(3)
    scene.nodes[2].disk_factor = NEVER
    answers = scene.send(1)
    scene.until(lambda: scene.replica(2).log.end_offset == 1)
    scene.pass_ms(100)
    dies_unseen(scene, 2, 1)
    assert not answers


def what_was_found_is_promised_once_it_is_on_disk(make: Make) -> None:
    """After a kill a node finds its records in the page cache."""
    scene = on_disk(make, replicas=2, **PATIENT)
    scene.controlled_by(3)
    scene.nodes[2].disk_factor = NEVER
    answers = scene.send(1)
    scene.until(lambda: scene.replica(2).log.end_offset == 1)
    scene.nodes[2].kill()
    scene.nodes[2].start()
    scene.until(lambda: scene.nodes[2].standing.epoch > 0)
    scene.until(lambda: scene.replica(2).command is not None)
    scene.pass_ms(1_000)
    if 2 in scene.isr():
        dies_unseen(scene, 2, 1)
    else:
        assert scene.replica(2).on_disk == 0 and answers
        scene.nodes[2].kill()
        scene.nodes[2].disk_factor = 1.0
        scene.settle()


def a_suffix_that_one_follower_has(make: Make) -> None:
    """It is cut where the logs diverge, not below, where only the leader knows of commits."""
    scene = make(**PATIENT)
    leader = scene.replica(1)
    scene.until(lambda: leader.waits == {2, 3})
    scene.network.cut([(2, 1)])
    answers = scene.send(1)
    scene.until(lambda: scene.replica(2).log.end_offset == 1)
    scene.until(lambda: leader.waits == {3} and scene.replica(3).log.end_offset == 1)
    scene.send(1)
    scene.until(lambda: scene.replica(3).log.end_offset == 2)
    scene.network.cut([(1, 2), (1, 3)])
    scene.network.heal([(2, 1)])
    scene.until(lambda: bool(answers))
    assert scene.replica(3).handle.high_watermark == 0
    scene.nodes[1].kill()
    scene.led_by(2)
    scene.until(lambda: scene.replica(3).log.end_offset < 2)
    scene.nodes[2].kill()
    scene.led_by(3)
    scene.network.heal()
    scene.nodes[1].start()
    scene.settle()


def a_leader_that_comes_back_parted(make: Make) -> None:
    """S-14704: the high watermark is beyond the point where its log diverges: it cuts first."""
    scene = make()
    scene.sent(1)
    scene.until(lambda: scene.replica(1).handle.high_watermark == 1)
    scene.apart(1)
    scene.send(1, acks=1)
    scene.until(lambda: scene.leader() in (2, 3))
    new = scene.leader()
    scene.led_by(new)
    scene.count -= 1
    for _ in range(3):
        scene.sent(new)
    scene.network.heal()
    scene.until(lambda: scene.isr() == {1, 2, 3})
    scene.settle()


def a_fetch_of_an_earlier_epoch(make: Make) -> None:
    """S-320: it arrives late, at the same leader, which has not heard of the leader in between.
    What it says about the follower's log was true before that one."""
    scene = make(**PATIENT)
    scene.controlled_by(3)
    scene.nodes[1].kill()
    scene.led_by(2)
    scene.nodes[1].start()
    scene.until(lambda: scene.isr() == {1, 2, 3})
    scene.sent(2)
    old = scene.replica(2)
    scene.until(lambda: old.waits == {1, 3})
    epoch = old.leader_epoch
    scene.network.cut([(2, 1)])
    scene.send(2)
    scene.until(lambda: scene.replica(3).log.end_offset == 2)
    scene.network.cut([(3, 2)])
    late = Fetch(scene.tp, 3, scene.nodes[3].standing.epoch, epoch, 2, epoch, 0)
    scene.tree.commit([Create(tree.ELECTION, tree.write_isr_change((scene.tp,)))])
    scene.led_by(1)
    scene.until(lambda: scene.replica(3).log.end_offset == 1)
    scene.nodes[1].kill()
    scene.until(lambda: scene.leader() == 2)
    scene.network.heal()
    scene.until(lambda: old.leads and old.leader_epoch > epoch)
    assert old.log.end_offset == 2 and scene.replica(3).log.end_offset == 1
    rows: list[Any] = []
    old.fetch(late, rows.append)
    scene.pass_ms(0.01)
    assert [row.error_code for row in rows] == [ErrorCode.FENCED_LEADER_EPOCH]
    newer = late._replace(leader_epoch=old.leader_epoch + 1)
    old.fetch(newer, rows.append)
    assert rows[1].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    scene.settle()


def who_may_have_joined(make: Make, after: Callable[[Scene, Any], Any]) -> None:
    """S-497: the answer that 3 is in sync is lost; then another arrives that does not have it."""
    scene = make(nodes=4)
    scene.controlled_by(4)
    leader = scene.replica(1)
    scene.apart(3, 1)
    scene.send(1)
    scene.until(lambda: leader.isr is not None and leader.isr.due)
    asked = leader.isr
    scene.until(lambda: leader.isr is not None and leader.isr.proposal is None)
    earlier = asked, leader.isr
    scene.network.heal()
    scene.until(lambda: leader.isr is not None and leader.isr.due)
    scene.network.cut([(4, 1)])
    scene.until(lambda: scene.isr() == {1, 2, 3})
    scene.apart(3, 1)
    scene.until(lambda: leader.waits == {2}, 1_000)  # no fetch of 3 is left that counts again
    assert leader.isr is not None and leader.isr.due
    leader.answered(*after(scene, earlier))
    answers = scene.send(1)
    scene.pass_ms(50)
    assert answers == [], "3 is in the ISR, and does not have it"
    scene.settle()
    assert answers and answers[0].error == ""


def refused_because_of_another(scene: Scene, _: Any) -> Any:
    now = scene.replica(1).isr
    return now, SimpleNamespace(error_code=ErrorCode.INVALID_UPDATE_VERSION)


def answered_again(_: Scene, earlier: Any) -> Any:
    asked, then = earlier
    return asked, SimpleNamespace(
        error_code=0, leader_epoch=then.leader_epoch, partition_epoch=then.partition_epoch,
        isr=list(then.in_sync), leader_recovery_state=0,
    )  # fmt: skip


def a_command_that_comes_again(make: Make) -> None:
    """A repeated LeaderAndIsr for an earlier leader epoch has no effect."""
    told: list[dict[str, Any]] = []

    def noted(api: Any, body: dict[str, Any]) -> dict[str, Any]:
        if api is LEADER_AND_ISR:
            told.append(body)
        return body

    scene = make(controls=noted)
    scene.controlled_by(3)
    scene.nodes[1].kill()
    scene.led_by(2)
    two = scene.nodes[2]
    scene.until(lambda: scene.replica(3).leader_epoch == scene.replica(2).leader_epoch)
    epoch = scene.replica(2).leader_epoch
    mine = [one for one in told if one["broker_epoch"] == two.standing.epoch]
    states = [one["topic_states"][0]["partition_states"][0] for one in mine]
    before = mine[[state["leader"] for state in states].index(1)]
    before = {**before, "controller_epoch": two.standing.controller_epoch}
    version = LEADER_AND_ISR.max_version
    data = LEADER_AND_ISR.encode_request(version, before)
    two.serve(None, (LEADER_AND_ISR, version, data), lambda _: None)  # type: ignore[arg-type]
    assert scene.replica(2).leads and scene.replica(2).leader_epoch == epoch
    scene.nodes[1].start()
    scene.settle()


def a_life_that_did_not_catch_up(make: Make) -> None:
    """S-903: 3 catches up, dies, and is back with an empty disk when its joining is decided."""
    scene = make(session_ms=60_000.0)
    scene.controlled_by(2)
    leader = scene.replica(1)
    scene.apart(3, 1)
    scene.sent(1)
    scene.network.heal()
    scene.until(lambda: leader.isr is not None and leader.isr.due)
    scene.network.cut([(1, 2)])
    before = scene.nodes[3].standing.epoch
    scene.nodes[3].kill(emptied=True)
    scene.apart(3, 1)
    scene.ensemble.expire(scene.nodes[3].link.session)
    scene.nodes[3].start()
    scene.until(lambda: scene.nodes[3].standing.epoch > before)
    assert scene.replica(3).log.end_offset == 0
    scene.network.heal([(1, 2)])
    scene.pass_ms(2_000)
    assert scene.isr() == {1, 2}, "candidate"
    scene.settle()


def a_decision_of_an_earlier_controller(make: Make) -> None:
    """Z-3: a late write of a proposal that the next controller refused."""
    scene = make(session_ms=60_000.0)
    scene.controlled_by(3)
    leader = scene.replica(1)
    scene.apart(2, 1)
    scene.sent(1)
    scene.until(lambda: scene.isr() == {1, 3})
    scene.network.heal([(1, 2), (2, 1)])
    scene.until(lambda: leader.isr is not None and leader.isr.due)
    scene.network.cut([(3, ENSEMBLE), (2, ENSEMBLE)])
    scene.pass_ms(20)
    scene.apart(2, 1)
    scene.resign()
    scene.until(lambda: scene.nodes[1].controller.is_active)
    scene.ensemble.expire(scene.nodes[2].link.session)
    scene.network.heal([(2, ENSEMBLE)])
    scene.until(lambda: leader.isr is not None and leader.isr.proposal is None, 60_000)
    assert scene.isr() == {1, 3}
    scene.sent(1)
    scene.network.heal([(3, ENSEMBLE)])
    scene.pass_ms(500)
    assert scene.isr() == {1, 3}, "candidate"
    scene.settle()


def an_answer_of_before(make: Make) -> None:
    """S-fetchresp: an answer to a fetch in the previous epoch is ignored; following continues."""
    scene = make(**PATIENT)
    scene.controlled_by(3)
    scene.until(lambda: scene.replica(1).waits == {2, 3})
    scene.network.cut([(1, 3)])
    epoch = scene.replica(1).leader_epoch
    scene.nodes[2].kill()
    scene.ensemble.expire(scene.nodes[2].link.session)
    scene.until(lambda: scene.replica(1).leader_epoch > epoch)
    scene.until(lambda: scene.replica(3).leader_epoch > epoch)
    scene.network.heal([(1, 3)])
    scene.pass_ms(50)
    scene.sent(1)
    scene.nodes[2].start()
    scene.settle()


def who_joins_when_a_leader_begins(make: Make) -> None:
    """A new leader does not know yet what is committed: a replica that lacks it must not join."""
    scene = make(nodes=5, replicas=4)
    scene.controlled_by(5)
    scene.sent(1)
    scene.until(lambda: all(scene.replica(n).handle.high_watermark == 1 for n in (1, 2, 3, 4)))
    scene.apart(3, 1)
    answers = scene.send(1)
    scene.until(lambda: scene.replica(2).log.end_offset == scene.replica(4).log.end_offset == 2)
    scene.network.cut([(1, 2), (1, 4)])
    scene.until(lambda: bool(answers))
    assert scene.isr() == {1, 2, 4} and scene.replica(2).handle.high_watermark == 1
    scene.nodes[1].kill()
    scene.network.cut([(4, 2), (2, 3)])
    scene.led_by(2)
    scene.pass_ms(300)
    assert scene.isr() == {2, 4}, "candidate"
    scene.settle()


def leads_alone(scene: Scene, node: int) -> bool:
    isr = scene.replica(node).isr
    return isr is not None and isr.in_sync == (node,)


def epochs_that_the_leader_never_had(make: Make) -> None:
    """S-279: two nodes each led alone; neither has the epochs of the other in between."""
    scene = make(unclean=True, nodes=2, replicas=2)
    scene.sent(1)
    for leads in (1, 2):
        scene.nodes[3 - leads].kill()
        if not scene.nodes[leads].up:
            scene.nodes[leads].start()
        scene.until(lambda one=leads: scene.isr() == {one})  # type: ignore[misc]
        scene.led_by(leads)
        scene.until(partial(leads_alone, scene, leads))
        scene.count = scene.replica(leads).log.end_offset
        for _ in range(leads):
            scene.send(leads, acks=1)
    scene.nodes[2].kill()
    scene.nodes[1].start()
    scene.led_by(1)
    assert scene.replica(1).log.epoch_end(1) == (1, 2)
    scene.nodes[2].start()
    scene.settle()
    assert scene.replica(2).log.epoch_end(1) == (1, 2)


class Found(NamedTuple):
    """The scenario that finds a mistake."""

    scenario: Callable[[Make], None]
    says: str
    """A pattern that the failure matches."""


SCRIPTED: Mapping[str, Found] = {
    "takes-to-the-end": Found(acks_1_after_its_leader_began_to_stop, "orderly"),
    "lets-go-at-once": Found(acks_1_before_its_leader_began_to_stop, "orderly"),
    "unsynced-leader": Found(who_leads_shows_what_is_on_disk, "committed|candidate"),
    "unsynced-follower": Found(a_follower_promises_what_is_on_disk, "committed|candidate"),
    "unsynced-found": Found(what_was_found_is_promised_once_it_is_on_disk, "committed|candidate"),
    "cut-where-parted": Found(a_suffix_that_one_follower_has, "committed|candidate"),
    "cut-to-watermark": Found(a_suffix_that_one_follower_has, "committed|candidate"),
    "watermark-first": Found(a_leader_that_comes_back_parted, "follower"),
    "no-fence": Found(a_fetch_of_an_earlier_epoch, "maximal"),
    "joins-early": Found(who_joins_when_a_leader_begins, "candidate"),
    "their-end": Found(epochs_that_the_leader_never_had, "settles"),
    "reverted": Found(partial(who_may_have_joined, after=refused_because_of_another), "maximal"),
    "late-answers": Found(partial(who_may_have_joined, after=answered_again), "maximal"),
    "obeys-all": Found(a_command_that_comes_again, "leads"),
    "any-life-joins": Found(a_life_that_did_not_catch_up, "candidate"),
    "no-epoch-check": Found(a_decision_of_an_earlier_controller, "candidate"),
    "no-compare": Found(a_decision_of_an_earlier_controller, "candidate"),
    "answers-of-before": Found(an_answer_of_before, "never"),
}


def made(make: Make, rules: Rules) -> Make:
    def one(controls: Any = None, **setup: object) -> Scene:
        return make(rules=rules._replace(controls=controls) if controls else rules, **setup)

    return one


@pytest.mark.parametrize("name", SCRIPTED)
def test_nothing_is_lost(name: str, make: Make) -> None:
    SCRIPTED[name].scenario(made(make, Rules()))


@pytest.mark.parametrize("name", SCRIPTED)
def test_the_mistake_is_found(name: str, make: Make) -> None:
    with pytest.raises(AssertionError, match=SCRIPTED[name].says):
        SCRIPTED[name].scenario(made(make, MUTANTS[name].rules))
