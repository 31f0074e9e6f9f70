"""A controller from its election on: what it is told, what it does, what the tree says then."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from kafkalog.cluster.controller.core import ASKED_MAX
from kafkalog.cluster.controller.events import (
    Asked,
    Behind,
    Clock,
    Commit,
    Deposed,
    Options,
    Reply,
    Send,
    Tick,
    Timer,
    Unwatched,
)
from kafkalog.metadata.image import NO_LEADER
from kafkalog.metadata.zookeeper import entities, tree
from kafkalog.metadata.zookeeper.session import Create, Delete, Set
from kafkalog.replication import isr
from kafkalog.replication.followers import Follower, FollowerState
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import (
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION
from tests.unit.cluster.driven import Driven

T_ID = uuid.uuid5(uuid.NAMESPACE_DNS, "t")


def topic(of: Driven, replicas: dict[int, tuple[int, ...]], name: str = "t") -> None:
    """Somebody makes a topic, or more partitions of it."""
    node = tree.TopicNode(uuid.uuid5(uuid.NAMESPACE_DNS, name), replicas, {}, {})
    path, data = tree.topic_path(name), tree.write_topic(node)
    change = Set(path, data) if path in of.znodes else Create(path, data)
    assert of.commit([change]).done
    of.run()


@pytest.fixture
def of() -> Driven:
    """Brokers 1, 2 and 3; topic t with a partition on each, led by 1."""
    found = Driven()
    found.register(1, 2, 3)
    found.elect()
    topic(found, {0: (1, 2, 3)})
    assert found.state("t", 0) == (1, 0, (1, 2, 3))
    found.sent.clear()
    return found


def kinds(of: Driven) -> list[tuple[int, str]]:
    return [(one.broker, one.api.name) for one in of.sent]


def stops(broker: int, send: Send) -> bool:
    return send.broker == broker and send.api is STOP_REPLICA


def broker_epoch(of: Driven, broker: int) -> int:
    return of.znodes[tree.broker_path(broker)].created


def test_a_topic_comes_and_grows() -> None:
    of = Driven()
    of.register(1, 2)
    of.elect()
    topic(of, {0: (2, 1)})
    assert of.state("t", 0) == (2, 0, (2, 1))
    topic(of, {0: (2, 1), 1: (1,)})
    assert of.state("t", 1) == (1, 0, (1,))
    leads = [one for one in of.sent if one.api is LEADER_AND_ISR]
    assert [one.broker for one in leads] == [2, 1, 1]
    assert all(one.body["topic_states"][0]["partition_states"][0]["is_new"] for one in leads)


def test_a_leader_dies_and_comes_back(of: Driven) -> None:
    of.die(1)
    of.run()
    assert of.state("t", 0) == (2, 1, (2, 3))
    assert kinds(of) == [(n, kind) for kind in ("LeaderAndIsr", "UpdateMetadata") for n in (2, 3)]
    of.sent.clear()
    of.register(1)
    assert of.state("t", 0) == (2, 1, (2, 3))
    assert kinds(of)[-1] == (1, "LeaderAndIsr")
    assert (1, "UpdateMetadata") in kinds(of)[:-1], "who lives is known before who is followed"


def test_what_was_there_before_the_reign_is_mended(of: Driven) -> None:
    of.events.append(Deposed())
    of.run()
    of.die(1)
    topic(of, {0: (3, 1)}, "later")
    assert of.state("t", 0) == (1, 0, (1, 2, 3))
    of.elect()
    assert of.state("t", 0) == (2, 1, (2, 3))
    assert of.state("later", 0) == (3, 0, (3,))
    assert all(one.body["controller_epoch"] == 3 for one in of.sent)


def test_it_resigns_when_another_reigns(of: Driven) -> None:
    path = tree.CONTROLLER_EPOCH
    assert of.commit([Set(path, tree.write_epoch(9))]).done
    of.die(1)
    of.run()
    assert of.resigned and not of.controller.reigns
    assert of.sent == []
    assert of.ask("later", CONTROLLED_SHUTDOWN, 3, broker_id=2) is None
    assert of.replies == {"later": None}


def test_an_isr_is_changed_by_its_leader(of: Driven) -> None:
    row = {
        "partition_index": 0, "leader_epoch": 0, "leader_recovery_state": 0, "partition_epoch": 0,
        "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": -1}],
    }  # fmt: skip
    said = of.ask(
        "isr", ALTER_PARTITION, 3, broker_id=1, broker_epoch=broker_epoch(of, 1),
        topics=[{"topic_id": T_ID, "partitions": [row]}],
    )  # fmt: skip
    assert (said.error_code, said.topics[0].partitions[0].partition_epoch) == (0, 1)
    assert of.state("t", 0) == (1, 0, (1,))
    assert {one.api for one in of.sent} == {UPDATE_METADATA}


def test_what_another_wrote_is_read_again(of: Driven) -> None:
    """Between what is known and what is written: it is decided anew."""
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
    """The leader proposes an ISR; after the answer."""
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
    """The leader is told all that was sent to it."""
    for send in of.sent:
        if send.broker == led.leader and send.api is LEADER_AND_ISR:
            (topic,) = send.body["topic_states"]
            (row,) = topic["partition_states"]
            found = isr.Isr(
                row["leader"], row["leader_epoch"], row["partition_epoch"],
                tuple(row["replicas"]), tuple(row["isr"]),
            )  # fmt: skip
            led = isr.told(led, found) or led
    of.sent.clear()
    return led


def gone(node: int) -> FollowerState:
    return FollowerState(Follower(node, True, True), 0, 0, -1)


@pytest.mark.parametrize("notified", [False, True])
def test_a_leader_is_told_what_another_wrote(of: Driven, notified: bool) -> None:
    """Its proposal is refused by what it has not heard of; then it hears that, and its next one
    is written: who is gone leaves the ISR.  `notified`: the controller knows before it is asked."""
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
    assert led == isr.Isr(1, 0, 1, (1, 2, 3), (1, 2, 3))
    led = wants(of, isr.shrink(led, [gone(3)], 1000, {}))
    assert (led.in_sync, led.proposal) == ((1, 2), None)
    assert of.state("t", 0) == (1, 0, (1, 2))


def test_who_dropped_a_topic_is_not_told_to_lead_it(of: Driven) -> None:
    """What another wrote of a topic that is to go is known to nobody but the controller."""
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    of.sent.clear()
    office = of.controller.office
    assert office is not None
    office.context.stale.add(("t", 0))
    of.events.append(Tick(Clock.BALANCE))
    of.run()
    assert LEADER_AND_ISR not in {one.api for one in of.sent}


def test_a_notification_of_isrs_is_read_and_taken_away(of: Driven) -> None:
    state = tree.PartitionState(1, 0, (1, 3), 2)
    assert of.commit([Set(tree.partition_path("t", 0), tree.write_partition(state))]).done
    path = f"{tree.ISR_CHANGE}0000000001"
    assert of.commit([Create(path, tree.write_isr_change((("t", 0), ("gone", 1))))]).done
    of.run()
    assert of.state("t", 0) == (1, 0, (1, 3))
    assert path not in of.znodes
    assert kinds(of) == [(n, "UpdateMetadata") for n in (1, 2, 3)]


def test_a_topic_goes_when_all_have_dropped_it(of: Driven) -> None:
    path = f"{tree.DELETE_TOPICS}/t"
    of.make(path)
    of.run()
    assert path in of.znodes
    for broker in (1, 2, 3):
        assert tree.topic_path("t") in of.znodes
        of.answer(partial(stops, broker), partition_errors=[])
    assert path not in of.znodes
    assert not any(path.startswith(tree.topic_path("t")) for path in of.znodes)
    assert of.controller.office is not None and of.controller.office.context.partitions == {}


def clocks(of: Driven) -> list[int]:
    """When it is to be tried again, of all that was set since it was asked."""
    found = [one.at_ms for one in of.timers if one.clock is Clock.RETRY]
    of.timers.clear()
    return found


def ticks(of: Driven, clock: Clock) -> None:
    of.events.append(Tick(clock))
    of.run()


@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_deletion_that_failed_is_tried_again_by_the_time(all_of_it: bool) -> None:
    """Who failed is asked again, and nobody else: later each time, and at most a minute later,
    also where leaderships are not balanced.  `all_of_it`: the request was refused as a whole."""
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
    """Somebody keeps something below the topic for a while."""
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
    assert clocks(of) == [1_000], "another deletion begins anew"


def test_topics_are_kept_where_deleting_is_off() -> None:
    of = Driven(Options("PLAINTEXT", deletes=False))
    of.register(1)
    of.elect()
    topic(of, {0: (1,)})
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    assert f"{tree.DELETE_TOPICS}/t" not in of.znodes
    assert of.state("t", 0) == (1, 0, (1,))


def test_a_disk_fails(of: Driven) -> None:
    """The broker says that one did, is asked which partitions it held, and leads them no more."""
    path = f"{tree.LOG_DIR_EVENT}0000000001"
    assert of.commit([Create(path, tree.write_log_dir_event(1))]).done
    of.run()
    assert path not in of.znodes
    rows = [{"partition_index": 0, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}]
    topics = [{"topic_id": T_ID, "partition_errors": rows}]
    of.answer(lambda send: send.api is LEADER_AND_ISR, topics=topics)
    assert of.state("t", 0) == (2, 1, (2, 3))
    of.answer(lambda send: send.broker == 2 and send.api is LEADER_AND_ISR, topics=[])


@pytest.mark.parametrize("replicas", [(1, 2), (1,)])
def test_a_disk_is_there_again(replicas: tuple[int, ...]) -> None:
    """The broker takes the partition that it could not keep: it counts as any other copy, is told
    to clients, and leads where it is the last."""
    of = Driven()
    of.register(1, 2)
    of.elect()
    topic(of, {0: replicas})

    def disk(error: ErrorCode) -> None:
        of.transaction += 1
        path = f"{tree.LOG_DIR_EVENT}{of.transaction:010}"
        of.sent.clear()
        assert of.commit([Create(path, tree.write_log_dir_event(1))]).done
        of.run()
        rows = [{"partition_index": 0, "error_code": error}]
        topics = [{"topic_id": T_ID, "partition_errors": rows}]
        of.answer(lambda send: send.broker == 1 and send.api is LEADER_AND_ISR, topics=topics)

    def offline() -> list[int]:
        last = [one for one in of.sent if one.api is UPDATE_METADATA][-1]
        found: list[int] = last.body["topic_states"][0]["partition_states"][0]["offline_replicas"]
        return found

    disk(ErrorCode.KAFKA_STORAGE_ERROR)
    leader = 2 if len(replicas) > 1 else NO_LEADER
    assert of.state("t", 0) == (leader, 1, replicas[1:] or replicas)
    assert offline() == [1]
    disk(ErrorCode.NONE)
    office = of.controller.office
    assert office is not None and office.context.lost_directories == {1: frozenset()}
    assert offline() == []
    assert of.state("t", 0) == ((2, 1, (2,)) if len(replicas) > 1 else (1, 2, (1,)))
    disk(ErrorCode.KAFKA_STORAGE_ERROR)
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    assert STOP_REPLICA not in {one.api for one in of.sent}, "a copy is out of reach"
    disk(ErrorCode.NONE)
    assert (1, "StopReplica") in kinds(of)


def test_first_replicas_lead_again(of: Driven) -> None:
    """By a znode, by a request, and by the time, as soon as they are in sync."""

    def back(epoch: int, version: int) -> None:
        state = tree.PartitionState(2, epoch, (1, 2, 3), 2)
        znode = of.znodes[tree.partition_path("t", 0)]
        assert znode.version == version
        office = of.controller.office
        assert office is not None
        path = tree.partition_path("t", 0)
        assert of.commit([Set(path, tree.write_partition(state))]).done
        office.context.read(("t", 0), state, version + 1)

    back(4, 0)
    of.make(tree.ELECTION, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}')
    of.run()
    assert of.state("t", 0) == (1, 5, (1, 2, 3))
    assert tree.ELECTION not in of.znodes

    back(6, 2)
    said = of.ask("elect", apis.ELECT_LEADERS, 2, election_type=0, topic_partitions=None)
    assert [one.partition_result[0].error_code for one in said.replica_election_results] == [0]
    assert of.state("t", 0) == (1, 7, (1, 2, 3))
    asked = [{"topic": "t", "partitions": [0, 8]}]
    said = of.ask("again", apis.ELECT_LEADERS, 2, election_type=0, topic_partitions=asked)
    (result,) = said.replica_election_results
    codes = [(row.partition_id, row.error_code) for row in result.partition_result]
    assert sorted(codes) == [
        (0, ErrorCode.ELECTION_NOT_NEEDED), (8, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]  # fmt: skip

    back(8, 4)
    of.events.append(Tick(Clock.BALANCE))
    of.run()
    assert of.state("t", 0) == (1, 9, (1, 2, 3))
    assert of.timers == [Timer(Clock.BALANCE, 5_000), Timer(Clock.BALANCE, 300_000)]


def test_a_topic_changes_its_mind_about_unclean_leaders(of: Driven) -> None:
    of.die(2, 3)
    of.run()
    of.die(1)
    of.register(2)
    assert of.state("t", 0) == (NO_LEADER, 2, (1,))
    of.make("/config/topics/t", entities.write_config({"unclean.leader.election.enable": "true"}))
    data = entities.write_change(("topics", "t"))
    assert of.commit([Create(f"{entities.CHANGE}0000000000", data)]).done
    of.run()
    assert of.state("t", 0) == (2, 3, (2,))


def test_a_broker_is_let_go(of: Driven) -> None:
    epoch = broker_epoch(of, 1)
    said = of.ask("end", CONTROLLED_SHUTDOWN, 3, broker_id=1, broker_epoch=epoch)
    assert (said.error_code, said.remaining_partitions) == (0, [])
    assert of.state("t", 0) == (2, 1, (2, 3))


def test_a_partition_is_moved(of: Driven) -> None:
    """Asked over the wire, then by the tree; a move ends when the new replica is in sync."""
    rows = [{"partition_index": 0, "replicas": [1, 2]}]
    topics = [{"name": "t", "partitions": rows}]
    said = of.ask("move", apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics)
    assert said.responses[0].partitions[0].error_code == 0
    assert of.state("t", 0) == (1, 1, (1, 2))
    assert (3, "StopReplica") in kinds(of)

    of.register(4)
    of.make(tree.REASSIGNMENT, tree.write_reassignment({("t", 0): (4, 2)}))
    of.run()
    said = of.ask("list", apis.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    assert said.topics[0].partitions[0].adding_replicas == [4]
    state = of.state("t", 0)
    assert state is not None
    row = {
        "partition_index": 0, "leader_epoch": state[1], "leader_recovery_state": 0,
        "partition_epoch": of.znodes[tree.partition_path("t", 0)].version,
        "new_isr_with_epochs": [{"broker_id": n, "broker_epoch": -1} for n in (1, 2, 4)],
    }  # fmt: skip
    of.ask("isr", ALTER_PARTITION, 3, broker_id=1, broker_epoch=broker_epoch(of, 1),
           topics=[{"topic_id": T_ID, "partitions": [row]}])  # fmt: skip
    assert of.state("t", 0) == (4, state[1] + 1, (2, 4))
    assert tree.REASSIGNMENT not in of.znodes


class Died(Exception):
    """A controller did."""


def moves(of: Driven) -> tree.TopicNode:
    return tree.read_topic("t", of.znodes[tree.topic_path("t")].data)


def ends(commit: Commit) -> bool:
    """Whether this write says that a move of the topic has ended."""
    path = tree.topic_path("t")
    return any(
        isinstance(one, Set) and one.path == path and not tree.read_topic("t", one.data).removing
        for multi in commit.multis for one in multi
    )  # fmt: skip


def move(of: Driven) -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [2, 1]}]}]
    of.ask("move", apis.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics)


def test_who_goes_is_stopped_before_the_end_of_a_move_is_written(of: Driven) -> None:
    """So a controller that dies in between leaves no copy behind: the next one stops it again."""

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
    """Somebody changed the topic meanwhile: it comes when that is read."""
    path = tree.topic_path("t")
    found = []

    def changed(commit: Commit) -> None:
        if ends(commit):
            of.before = seen
            assert of.commit([Set(path, of.znodes[path].data)]).done

    def seen(commit: Commit) -> None:
        office = of.controller.office
        assert office is not None
        found.append((office.context.partitions["t", 0], moves(of).removing))
        of.before = lambda _: None

    of.before = changed
    move(of)
    ((one, removing),) = found
    assert (one.replicas, one.removing_replicas, one.isr) == ((2, 1, 3), (3,), (1, 2))
    assert removing == {0: (3,)}
    assert (moves(of).replicas, moves(of).removing) == ({0: (2, 1)}, {})
    assert of.state("t", 0) == (1, 2, (1, 2))
    assert kinds(of)[-1] == (3, "StopReplica")


def test_a_move_whose_end_is_refused_as_it_begins_comes_another_time(of: Driven) -> None:
    """The new replica is in sync by then, and its leader asks nothing more."""
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


def test_producer_ids_are_given_out_once(of: Driven) -> None:
    def given(token: str) -> tuple[int, int]:
        epoch = broker_epoch(of, 2)
        said = of.ask(token, ALLOCATE_PRODUCER_IDS, 0, broker_id=2, broker_epoch=epoch)
        assert said.error_code == 0
        return said.producer_id_start, said.producer_id_len

    assert [given("a"), given("b")] == [(0, 1000), (1000, 1000)]
    block = tree.write_producer_ids(tree.ProducerIdBlock(7, 2000, 4999))
    assert of.commit([Set(tree.PRODUCER_IDS, block)]).done  # by a broker of an older version
    assert given("c") == (5000, 1000)
    said = of.ask("d", ALLOCATE_PRODUCER_IDS, 0, broker_id=2, broker_epoch=1)
    assert said.error_code == ErrorCode.STALE_BROKER_EPOCH
    of.events.append(Deposed())
    of.run()
    of.elect()
    assert given("e") == (6000, 1000)


def test_who_is_behind_is_told_all_again(of: Driven) -> None:
    """Who lives before all else: what it was told of that may be what was dropped, and it follows
    nobody whom it does not know."""
    of.events.append(Behind(2))
    of.run()
    assert kinds(of) == [(2, "UpdateMetadata"), (2, "LeaderAndIsr"), (2, "UpdateMetadata")]
    first, _, last = (send.body for send in of.sent)
    assert [broker["id"] for broker in first["live_brokers"]] == [1, 2, 3]
    assert first["topic_states"] == []
    assert [topic["topic_name"] for topic in last["topic_states"]] == ["t"]


def test_watches_that_were_lost_are_left_again(of: Driven) -> None:
    of.watches.clear()
    of.die(1)
    topic(of, {0: (3,)}, "new")
    assert of.events == type(of.events)()
    of.events.append(Unwatched())
    of.run()
    assert of.state("t", 0) == (2, 1, (2, 3))
    assert of.state("new", 0) == (3, 0, (3,))
    assert (tree.topic_path("t"), False) in of.watches


def test_what_waits_is_bounded_and_answered(of: Driven) -> None:
    """Nobody waits for an answer that never comes, however many ask."""
    request = CONTROLLED_SHUTDOWN.decode_request(
        3, CONTROLLED_SHUTDOWN.encode_request(3, {"broker_id": 9})
    )
    alter = of.controller.handle(Tick(Clock.BALANCE), 0)
    assert not any(isinstance(one, Send) for one in alter)
    of.die(1)
    looks = [effect for event in of.events for effect in of.controller.handle(event, 0)]
    of.events.clear()
    assert len(looks) == 1  # the brokers are read: what is asked meanwhile waits
    for number in range(ASKED_MAX + 2):
        asked = Asked(number, CONTROLLED_SHUTDOWN, request, 3)
        for one in of.controller.handle(asked, 0):
            assert isinstance(one, Reply)
            of.replies[one.token] = one.body
    assert of.replies == {ASKED_MAX: None, ASKED_MAX + 1: None}
    told = of.controller.handle(Deposed(), 0)
    assert sorted(one.token for one in told if isinstance(one, Reply)) == list(range(ASKED_MAX))
