"""A controller from its election on: events, effects, and the tree after them."""

from __future__ import annotations

from functools import partial

import pytest

from kafkalog.controller.core import ASKED_MAX
from kafkalog.controller.events import (
    ClientRequest,
    Clock,
    Deposed,
    Options,
    QueueOverflow,
    Reply,
    Send,
    Tick,
    Timer,
)
from kafkalog.metadata.image import NO_LEADER
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import (
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION
from kafkalog.zookeeper import entities, tree, watches
from kafkalog.zookeeper.events import WatchesLost
from kafkalog.zookeeper.notifications import OBSOLETE_MS
from kafkalog.zookeeper.session import Create, Set
from kafkalog.zookeeper.store import partition_state
from tests.unit.controller.driven import T_ID, Driven, broker_epoch, kinds, stops, topic


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
    assert (1, "UpdateMetadata") in kinds(of)[:-1], "live brokers before leaders"


def test_a_new_controller_repairs_earlier_state(of: Driven) -> None:
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
    assert of.resigned and not of.controller.is_active
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
    assert of.controller.active is not None and of.controller.active.context.partitions == {}


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
    """The broker reports it, is asked which partitions it held, and no longer leads them."""
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
    """The broker gets back the partition that it could not keep: its replica counts as any other,
    clients see it, and it leads if it is the last one."""
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
    active = of.controller.active
    assert active is not None and active.context.offline_log_dirs == {1: frozenset()}
    assert offline() == []
    assert of.state("t", 0) == ((2, 1, (2,)) if len(replicas) > 1 else (1, 2, (1,)))
    disk(ErrorCode.KAFKA_STORAGE_ERROR)
    of.make(f"{tree.DELETE_TOPICS}/t")
    of.run()
    assert STOP_REPLICA not in {one.api for one in of.sent}, "one replica is out of reach"
    disk(ErrorCode.NONE)
    assert (1, "StopReplica") in kinds(of)


def test_first_replicas_lead_again(of: Driven) -> None:
    """By a znode, by a request, and by the timer, once they are in sync."""

    def back(epoch: int, version: int) -> None:
        state = tree.PartitionState(2, epoch, (1, 2, 3), 2)
        znode = of.znodes[tree.partition_path("t", 0)]
        assert znode.version == version
        active = of.controller.active
        assert active is not None
        path = tree.partition_path("t", 0)
        assert of.commit([Set(path, tree.write_partition(state))]).done
        active.context.read(("t", 0), partition_state(state, version + 1))

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


def test_a_lost_notification_of_settings_has_all_topics_read(of: Driven) -> None:
    """Other children of the folder are ignored."""
    of.make(f"{entities.CHANGES}/zzz", b"")
    of.run()
    of.die(2, 3)
    of.run()
    of.die(1)
    of.register(2)
    assert of.state("t", 0) == (NO_LEADER, 2, (1,))
    of.make("/config/topics/t", entities.write_config({"unclean.leader.election.enable": "true"}))
    data = entities.write_change(("topics", "other"))
    assert of.commit([Create(f"{entities.CHANGE}0000000001", data)]).done
    of.run()
    assert of.state("t", 0) == (2, 3, (2,))


def test_notifications_of_settings_are_deleted_when_they_are_old(
    of: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only because there are many."""
    monkeypatch.setattr(watches, "CHANGES_MAX", 1)
    data = entities.write_change(("topics", "t"))
    paths = [f"{entities.CHANGE}{number:010d}" for number in range(4)]
    for path, now_ms in zip(paths, (1, 1_000, 2_000, OBSOLETE_MS + 500), strict=True):
        assert of.commit([Create(path, data)]).done
        of.znodes[path] = of.znodes[path]._replace(created_ms=now_ms)
        of.run()
    assert [path in of.znodes for path in paths] == [False, True, True, True]


def test_a_broker_is_let_go(of: Driven) -> None:
    epoch = broker_epoch(of, 1)
    said = of.ask("end", CONTROLLED_SHUTDOWN, 3, broker_id=1, broker_epoch=epoch)
    assert (said.error_code, said.remaining_partitions) == (0, [])
    assert of.state("t", 0) == (2, 1, (2, 3))


def test_a_partition_is_moved(of: Driven) -> None:
    """Requested over the wire, then by the tree; a move ends when the new replica is in sync."""
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


def test_a_broker_that_lags_gets_the_full_state(of: Driven) -> None:
    """It gets the live brokers first: the request that named them may have been dropped, and a
    broker follows no leader that it does not know."""
    of.events.append(QueueOverflow(2))
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
    of.events.append(WatchesLost())
    of.run()
    assert of.state("t", 0) == (2, 1, (2, 3))
    assert of.state("new", 0) == (3, 0, (3,))
    assert (tree.topic_path("t"), False) in of.watches


def test_waiting_requests_are_bounded_and_answered(of: Driven) -> None:
    """However many requests there are, none waits for an answer that never comes."""
    request = CONTROLLED_SHUTDOWN.decode_request(
        3, CONTROLLED_SHUTDOWN.encode_request(3, {"broker_id": 9})
    )
    alter = of.controller.handle(Tick(Clock.BALANCE), 0)
    assert not any(isinstance(one, Send) for one in alter)
    of.die(1)
    looks = [effect for event in of.events for effect in of.controller.handle(event, 0)]
    of.events.clear()
    assert len(looks) == 1  # while the brokers are read, other requests wait
    for number in range(ASKED_MAX + 2):
        asked = ClientRequest(number, CONTROLLED_SHUTDOWN, request, 3)
        for one in of.controller.handle(asked, 0):
            assert isinstance(one, Reply)
            of.replies[one.token] = one.body
    assert of.replies == {ASKED_MAX: None, ASKED_MAX + 1: None}
    told = of.controller.handle(Deposed(), 0)
    assert sorted(one.token for one in told if isinstance(one, Reply)) == list(range(ASKED_MAX))
