"""Refused and failed writes, and those of others: retried, or left alone."""

from __future__ import annotations

from functools import partial

import pytest

from kafkalog.controller.events import Clock, Options, QueueOverflow, Tick
from kafkalog.replication import isr
from kafkalog.replication.followers import Follower, FollowerState
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR
from kafkalog.wire.tables.internal import ALTER_PARTITION
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.events import Commit
from kafkalog.zookeeper.session import Create, Delete, Set
from tests.unit.controller.driven import T_ID, Driven, broker_epoch, kinds, stops, topic


def test_another_writers_state_is_read_again(of: Driven) -> None:
    """The state changes between the decision and the write: the decision is made again."""
    path = tree.partition_path("t", 0)

    def meddle(commit: Commit) -> None:
        of.before = lambda _: None
        other = tree.PartitionState(1, 0, (1, 3), 2)
        assert of.commit([Set(path, tree.write_partition(other))]).done

    of.before = meddle
    of.die(1)
    of.run()
    assert of.state("t", 0) == (3, 1, (3,))


def wants(of: Driven, led: isr.Isr) -> isr.Isr:
    """Send the ISR that the leader proposes; returns its state after the answer."""
    assert led.proposal is not None and led.due
    row = {
        "partition_index": 0, "leader_epoch": led.leader_epoch, "leader_recovery_state": 0,
        "partition_epoch": led.partition_epoch,
        "new_isr_with_epochs": [{"broker_id": n, "broker_epoch": -1} for n in led.proposal.isr],
    }  # fmt: skip
    of.replies.clear()
    said = of.ask(
        "isr", ALTER_PARTITION, 3, broker_id=led.leader, broker_epoch=broker_epoch(of, led.leader),
        topics=[{"topic_id": T_ID, "partitions": [row]}],
    )  # fmt: skip
    return isr.answered(led, led, said.topics[0].partitions[0])


def hears(of: Driven, led: isr.Isr) -> isr.Isr:
    """Deliver to the leader everything that was sent to it."""
    for send in of.sent:
        if send.broker == led.leader and send.api is LEADER_AND_ISR:
            (topic,) = send.body["topic_states"]
            (row,) = topic["partition_states"]
            found = isr.Isr(
                row["leader"], row["leader_epoch"], row["partition_epoch"],
                tuple(row["replicas"]), tuple(row["isr"]),
            )  # fmt: skip
            if found.leader_epoch > led.leader_epoch:  # Kafka's brokers ignore any other
                led = isr.told(led, found) or led
    of.sent.clear()
    return led


def gone(node: int) -> FollowerState:
    return FollowerState(Follower(node, True, True), 0, 0, -1)


@pytest.mark.parametrize("notified", [False, True])
def test_a_leader_hears_of_another_writers_state(of: Driven, notified: bool) -> None:
    """Its proposal is refused because of a change that it does not know. Then it hears of the
    change, and its next proposal is written: the replica that is gone leaves the ISR.
    `notified`: the controller learns of the change before the proposal."""
    path = tree.partition_path("t", 0)
    other = tree.PartitionState(1, 0, (1, 2, 3), 2)
    assert of.commit([Set(path, tree.write_partition(other))]).done
    if notified:
        told = tree.write_isr_change((("t", 0),))
        assert of.commit([Create(f"{tree.ISR_CHANGE}0000000001", told)]).done
        of.run()
    led = isr.shrink(isr.Isr(1, 0, 0, (1, 2, 3), (1, 2, 3)), [gone(3)], 1000, {})
    led = wants(of, led)
    assert led.proposal is not None and led.proposal.outdated
    led = hears(of, led)
    assert led == isr.Isr(1, 1, 2, (1, 2, 3), (1, 2, 3))
    led = wants(of, isr.shrink(led, [gone(3)], 1000, {}))
    assert (led.in_sync, led.proposal) == ((1, 2), None)
    assert of.state("t", 0) == (1, 1, (1, 2))


def test_no_leader_is_chosen_for_a_topic_being_deleted(of: Driven) -> None:
    """Only the controller learns of another's write to a topic that is being deleted."""
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    of.sent.clear()
    active = of.controller.active
    assert active is not None
    other = tree.write_partition(tree.PartitionState(1, 0, (1, 3), 2))
    assert of.commit([Set(tree.partition_path("t", 0), other)]).done
    active.context.stale.add(("t", 0))
    ticks(of, Clock.BALANCE)
    assert of.state("t", 0) == (1, 0, (1, 3))
    assert LEADER_AND_ISR not in {one.api for one in of.sent}


def clocks(of: Driven) -> list[int]:
    """The times of the retries that were set since the last call."""
    found = [one.at_ms for one in of.timers if one.clock is Clock.RETRY]
    of.timers.clear()
    return found


def ticks(of: Driven, clock: Clock) -> None:
    of.events.append(Tick(clock))
    of.run()


@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_deletion_that_failed_is_tried_again_by_the_time(all_of_it: bool) -> None:
    """Only a broker that failed is asked again, each time later, at most a minute later, even
    without balancing of leaders. `all_of_it`: the request was refused as a whole."""
    of = Driven(Options("PLAINTEXT", rebalances=False))
    of.register(1, 2)
    of.elect()
    topic(of, {0: (1, 2)})
    of.sent.clear()
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    assert clocks(of) == [], "nothing failed"
    row = {"topic_name": "t", "partition_index": 0, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    fails = {"error_code": -1} if all_of_it else {"partition_errors": [row]}
    others, waits = [one for one in of.sent if one.broker == 1], []
    for _ in range(8):
        of.answer(partial(stops, 2), **fails)
        waits += clocks(of)
        of.sent.clear()
        ticks(of, Clock.RETRY)
        assert kinds(of) == [(2, "StopReplica")]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    of.answer(partial(stops, 2), partition_errors=[])
    assert tree.topic_path("t") in of.znodes, "1 has not answered yet"
    of.sent += others
    of.answer(partial(stops, 1), partition_errors=[])
    assert not any("t" in path.split("/") for path in of.znodes)
    assert clocks(of) == []


def test_a_removal_that_was_refused_is_tried_again_by_the_time(of: Driven) -> None:
    """A foreign znode stays below the topic's for a while."""
    below = f"{tree.topic_path('t')}/other"
    of.make(below)
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    for broker in (1, 2, 3):
        of.answer(partial(stops, broker), partition_errors=[])
    of.sent.clear()
    assert clocks(of) == [1_000] and tree.topic_path("t") in of.znodes
    ticks(of, Clock.RETRY)
    assert clocks(of) == [2_000] and of.sent == []
    assert of.commit([Delete(below)]).done
    ticks(of, Clock.BALANCE)
    assert tree.topic_path("t") in of.znodes, "another clock"
    ticks(of, Clock.RETRY)
    assert not any("t" in path.split("/") for path in of.znodes)
    topic(of, {0: (1,)})
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    row = {"topic_name": "t", "partition_index": 0, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    of.answer(partial(stops, 1), partition_errors=[row])
    assert clocks(of) == [1_000], "another deletion starts over"


class Died(Exception):
    """The controller died."""


def moves(of: Driven) -> tree.TopicNode:
    return tree.read_topic("t", of.znodes[tree.topic_path("t")].data)


def ends(commit: Commit) -> bool:
    """True if this write ends a move of the topic."""
    path = tree.topic_path("t")
    return any(
        isinstance(one, Set) and one.path == path and not tree.read_topic("t", one.data).removing
        for multi in commit.multis for one in multi
    )  # fmt: skip


def move(of: Driven) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [2, 1]}]}]
    of.ask("move", apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics)


def test_leaving_replicas_stop_before_a_reassignment_ends(of: Driven) -> None:
    """If the controller dies in between, no replica is left behind: the next one stops it again."""

    def dies(commit: Commit) -> None:
        if ends(commit):
            raise Died

    of.before = dies
    with pytest.raises(Died):
        move(of)
    assert (3, "StopReplica") in kinds(of)
    assert moves(of).removing == {0: (3,)}
    assert tree.read_partition("t", 0, of.znodes[tree.partition_path("t", 0)].data).isr == (1, 2)
    of.before = lambda _: None
    of.events.clear()
    of.sent.clear()
    of.elect()
    assert (3, "StopReplica") in kinds(of)
    assert (moves(of).replicas, moves(of).removing) == ({0: (2, 1)}, {})


def test_the_end_of_a_move_that_cannot_be_written_comes_another_time(of: Driven) -> None:
    """The topic was changed; the end is written once the change was read."""
    path = tree.topic_path("t")
    found = []

    def changed(commit: Commit) -> None:
        if ends(commit):
            of.before = seen
            assert of.commit([Set(path, of.znodes[path].data)]).done

    def seen(commit: Commit) -> None:
        active = of.controller.active
        assert active is not None
        found.append((active.context.partitions["t", 0], moves(of).removing))
        of.before = lambda _: None

    of.before = changed
    move(of)
    ((one, removing),) = found
    assert (one.replicas, one.removing_replicas, one.isr) == ((2, 1, 3), (3,), (1, 2))
    assert removing == {0: (3,)}
    assert (moves(of).replicas, moves(of).removing) == ({0: (2, 1)}, {})
    assert of.state("t", 0) == (1, 2, (1, 2))
    assert kinds(of)[-1] == (3, "StopReplica")


def test_a_reassignment_refused_at_its_end_completes_later(of: Driven) -> None:
    """By then the new replica is in sync, and its leader sends no further request."""
    path = tree.topic_path("t")
    of.register(4)
    rows = [{"partition_index": 0, "replicas": [4, 2]}]
    topics = [{"name": "t", "partitions": rows}]
    of.ask("move", apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics)
    led = isr.Isr(1, 1, 1, (4, 2, 1, 3), (1, 2, 3))

    def changed(commit: Commit) -> None:
        if any(one.path == path for multi in commit.multis for one in multi):
            of.before = lambda _: None
            assert of.commit([Set(path, of.znodes[path].data)]).done

    of.before = changed
    wants(of, led._replace(proposal=isr.Proposal((1, 2, 3, 4), (-1,) * 4)))
    assert (moves(of).replicas, moves(of).adding, moves(of).removing) == ({0: (4, 2)}, {}, {})
    assert of.state("t", 0) == (4, 2, (2, 4))


def refusal(code: ErrorCode, *partitions: int, name: str = "t") -> dict[str, object]:
    """An answer to StopReplica that refuses these partitions of the topic; none means 0."""
    rows = [{"topic_name": name, "partition_index": number, "error_code": code}
            for number in partitions or (0,)]  # fmt: skip
    return {"partition_errors": rows}


FAILS = refusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def stray_replicas(of: Driven) -> object:
    """The replicas that must be deleted, as the controller knows them."""
    active = of.controller.active
    assert active is not None
    return active.context.stray_replicas


def test_a_copy_that_a_move_leaves_behind_is_dropped_in_the_end(of: Driven) -> None:
    """Its broker could not delete it: it is asked again, each time later, until it has."""
    move(of)
    assert clocks(of) == []
    waits = []
    for _ in range(8):
        assert kinds(of)[-1] == (3, "StopReplica")
        of.answer(partial(stops, 3), **FAILS)
        waits += clocks(of)
        of.sent.clear()
        ticks(of, Clock.RETRY)
        assert kinds(of) == [(3, "StopReplica")]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    (row,) = of.sent[0].body["topic_states"][0]["partition_states"]
    assert row == {"partition_index": 0, "leader_epoch": 1, "delete_partition": True}
    of.answer(partial(stops, 3), partition_errors=[])
    ticks(of, Clock.RETRY)
    assert (stray_replicas(of), of.sent, clocks(of)) == ({}, [], [])


def test_copies_on_a_disk_that_failed_are_dropped_when_their_broker_comes(
    of: Driven, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the broker restarts its answer would be the same: it is not asked again, and there is
    one warning, not one per partition."""
    topic(of, {0: (1, 2, 3), 1: (1, 2, 3)})
    rows = [{"partition_index": number, "replicas": [2, 1]} for number in (0, 1)]
    topics = [{"name": "t", "partitions": rows}]
    of.ask("move", apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics)
    of.answer(partial(stops, 3), **refusal(ErrorCode.KAFKA_STORAGE_ERROR, 0, 1))
    assert clocks(of) == [] and stray_replicas(of) == {"t": {(0, 3), (1, 3)}}
    assert [one.message for one in caplog.records] == [
        "broker 3 cannot drop t-0 and 1 more now: KAFKA_STORAGE_ERROR"
    ]
    of.sent.clear()
    of.register(3)
    assert (3, "StopReplica") in kinds(of)
    of.answer(partial(stops, 3), partition_errors=[])
    assert stray_replicas(of) == {}


@pytest.mark.parametrize("waits", ["a copy", "a topic"])
def test_a_dead_broker_slows_no_retry(of: Driven, waits: str) -> None:
    """A broker is gone for good, with a replica or a topic to delete. What fails on others is
    still retried after a second, and so is what fails later."""
    of.die(3)
    of.run()
    if waits == "a copy":
        move(of)
        assert stray_replicas(of) == {"t": {(0, 3)}}
    else:
        of.make(f"{tree.DELETE_TOPICS}/t")
    fails = refusal(ErrorCode.UNKNOWN_SERVER_ERROR, name="u")
    for _ in range(2):
        topic(of, {0: (1,)}, "u")
        of.make(f"{tree.DELETE_TOPICS}/u")
        of.run()
        times = []
        for answer in (fails, fails, {"partition_errors": []}):
            of.answer(partial(stops, 1), **answer)
            times += clocks(of)
            ticks(of, Clock.RETRY)
        assert times == [1_000, 2_000]
        assert tree.topic_path("u") not in of.znodes


def test_a_copy_that_its_broker_keeps_again_is_not_dropped(of: Driven) -> None:
    move(of)
    of.answer(partial(stops, 3), **FAILS)
    rows = [{"partition_index": 0, "replicas": [2, 1, 3]}]
    of.ask(
        "back", apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[{"name": "t", "partitions": rows}]
    )
    assert moves(of).adding == {0: (3,)}
    of.sent.clear()
    ticks(of, Clock.RETRY)
    assert (stray_replicas(of), of.sent) == ({}, [])


def test_a_copy_of_a_broker_that_is_away_is_dropped_when_it_comes(of: Driven) -> None:
    of.die(3)
    of.run()
    move(of)
    assert moves(of).removing == {} and (3, "StopReplica") not in kinds(of)
    of.register(3)
    assert (3, "StopReplica") in kinds(of)
    of.answer(partial(stops, 3), partition_errors=[])
    assert stray_replicas(of) == {}


@pytest.mark.parametrize("why", ["it comes", "it is behind", "it failed", "its topic is to go"])
def test_a_deposed_controller_deletes_nothing(of: Driven, why: str) -> None:
    """No other write would show the controller that it was deposed."""
    if why == "it comes":
        of.die(3)
        of.run()
    move(of)
    if why == "it failed":
        of.answer(partial(stops, 3), error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert of.commit([Set(tree.CONTROLLER_EPOCH, tree.write_epoch(9))]).done
    of.sent.clear()
    if why == "it comes":
        of.register(3)
    elif why == "it is behind":
        of.events.append(QueueOverflow(3))
    elif why == "it failed":
        of.events.append(Tick(Clock.RETRY))
    else:
        of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    assert of.resigned and "StopReplica" not in {kind for _, kind in kinds(of)}


def test_a_copy_that_is_to_go_is_known_to_the_nodes_next_reign(of: Driven) -> None:
    """Requests that still wait for brokers are lost when the outcome of a write is unknown."""
    move(of)
    of.sent.clear()
    of.elect()
    assert (3, "StopReplica") in kinds(of)
    of.answer(partial(stops, 3), partition_errors=[])
    of.sent.clear()
    of.elect()
    assert stray_replicas(of) == {} and "StopReplica" not in {kind for _, kind in kinds(of)}


def test_a_deletion_waits_for_no_copy_that_a_move_left_behind(of: Driven) -> None:
    """Its broker is asked again with the others, and also after the topic is gone."""
    move(of)
    of.answer(partial(stops, 3), **FAILS)
    of.sent.clear()
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    assert {broker for broker, kind in kinds(of) if kind == "StopReplica"} == {1, 2, 3}
    for broker in (1, 2):
        of.answer(partial(stops, broker), partition_errors=[])
    assert not any("t" in path.split("/") for path in of.znodes)
    of.answer(partial(stops, 3), **FAILS)
    of.sent.clear()
    ticks(of, Clock.RETRY)
    assert kinds(of) == [(3, "StopReplica")]
    of.answer(partial(stops, 3), partition_errors=[])
    clocks(of)
    ticks(of, Clock.RETRY)
    assert (stray_replicas(of), of.sent, clocks(of)) == ({}, [], [])


@pytest.mark.parametrize("again", [False, True])
def test_a_copy_of_a_topic_that_is_gone_is_dropped_when_its_broker_comes(
    of: Driven, again: bool
) -> None:
    """The replica was moved off while the broker was away, then the topic was deleted. `again`:
    the broker must keep a replica of a new topic with that name, which is not deleted."""
    of.die(3)
    of.run()
    move(of)
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    for broker in (1, 2):
        of.answer(partial(stops, broker), partition_errors=[])
    assert tree.topic_path("t") not in of.znodes
    if again:
        topic(of, {0: (1, 3)})
    of.sent.clear()
    of.register(3)
    rows = [one.body["topic_states"] for one in of.sent if stops(3, one)]
    if again:
        assert (rows, stray_replicas(of)) == ([], {})
        return
    row = {"partition_index": 0, "leader_epoch": -1, "delete_partition": True}
    assert rows == [[{"topic_name": "t", "partition_states": [row]}]]
    of.answer(partial(stops, 3), partition_errors=[])
    assert stray_replicas(of) == {}
