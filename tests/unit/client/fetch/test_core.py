"""The effect of an answer on a position, by the events since the request was sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalog.client.fetch.core import FetchState, Tempo
from kafkalog.client.fetch.epochs import FetchPosition
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.link.metadata import Known, metadata_of
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from tests.support.batches import Row, batch

TP = TopicPartition("t", 0)
DATA = batch([Row(b"x")] * 10, leader_epoch=3)
NO_LEADER = SimpleNamespace(leader_id=-1, leader_epoch=-1)


def metadata(
    epoch: int = 3, topic: int = 77, leader: int = 1, isr: tuple[int, ...] = (1, 2)
) -> Any:
    row = SimpleNamespace(
        partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2],
        isr_nodes=isr,
    )  # fmt: skip
    found = SimpleNamespace(
        name="t", topic_id=UUID(int=topic), error_code=0, is_internal=False, partitions=[row]
    )
    nodes = [SimpleNamespace(node_id=n, host="h", port=n, rack=None) for n in (1, 2)]
    return SimpleNamespace(brokers=nodes, cluster_id="c", controller_id=1, topics=[found])


def fetched(topic: int = 77, **fields: Any) -> Any:
    row = {
        "partition_index": 0, "error_code": 0, "records": DATA, "high_watermark": 10,
        "last_stable_offset": 10, "log_start_offset": 0, "aborted_transactions": None,
        "preferred_read_replica": -1, "current_leader": NO_LEADER, **fields,
    }  # fmt: skip
    rows = SimpleNamespace(topic="", topic_id=UUID(int=topic), partitions=[SimpleNamespace(**row)])
    return SimpleNamespace(
        throttle_time_ms=0, error_code=0, session_id=5, responses=[rows], node_endpoints=[]
    )


def ended(offset: int, epoch: int) -> Any:
    row = SimpleNamespace(partition=0, error_code=0, end_offset=offset, leader_epoch=epoch)
    topic = SimpleNamespace(topic="t", partitions=[row])
    return SimpleNamespace(throttle_time_ms=0, topics=[topic])


@pytest.fixture
def core() -> FetchState:
    """It knows node 1, which leads t-0 in epoch 3."""
    options = FetchOptions(out_of_range="earliest", rack="here", nearer_s=10.0)
    known = Known()
    known.answered(["t"], metadata_of(metadata()))
    return FetchState(known, {TP: 0}, options, Tempo(5_000, 100, 1_000))


def ask(core: FetchState, node: int = 1, now_s: float = 0.0) -> None:
    pending = core.ask(node, [TP], True, now_s)
    assert pending is not None
    core.sent(node, pending, now_s)


def test_an_answer_moves_the_position(core: FetchState) -> None:
    ask(core)
    core.answered(1, fetched(), 0.0)
    assert [(one.start, one.next_offset) for one in core.take()] == [(0, 10)]
    assert core.positions == {TP: 10}
    assert core.plan(0.0).nodes == {1: [TP]}


@pytest.mark.parametrize("to", [FetchPosition(0, -1), FetchPosition(0, 2), FetchPosition(4, 3)])
def test_an_answer_from_before_a_seek_changes_nothing(core: FetchState, to: FetchPosition) -> None:
    """Even at the same offset: the position may have to be validated first."""
    ask(core)
    core.seek(TP, to)
    core.answered(1, fetched(), 0.0)
    assert core.take() == [] and core.positions == {TP: to.offset}
    assert core.ends[TP].high_watermark == 10  # the next fetch may not repeat it


def test_an_answer_from_before_a_pause_changes_nothing(core: FetchState) -> None:
    ask(core)
    core.pause(TP)
    core.go_on(TP, 0)
    core.answered(1, fetched(), 0.0)
    assert core.take() == [] and core.positions == {TP: 0}


def test_an_answer_of_a_topic_that_was_recreated_changes_nothing(core: FetchState) -> None:
    ask(core)
    core.known.answered(["t"], metadata_of(metadata(epoch=0, topic=78)))
    core.answered(1, fetched(), 0.0)
    assert core.take() == [] and core.positions == {TP: 0} and core.ends == {}


@pytest.mark.parametrize("new", [{"epoch": 5}, {"epoch": 0, "topic": 78}], ids=["leader", "topic"])
def test_answers_of_an_earlier_leader_are_ignored(core: FetchState, new: dict[str, int]) -> None:
    core.seek(TP, FetchPosition(10, 2))
    ask(core)
    core.known.answered(["t"], metadata_of(metadata(**new)))
    core.answered(1, ended(4, 2), 0.0)
    assert core.warnings == [] and core.positions == {TP: 10}


def test_a_seek_to_the_same_offset_ends_the_search_for_another(core: FetchState) -> None:
    ask(core)
    core.answered(1, fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, records=None), 0.0)
    ((leader, some),) = core.resets().items()
    assert leader == 1 and not core.plan(0.0).nodes
    core.seek(TP, FetchPosition(0, -1))
    core.reset(TP, some[TP], FetchPosition(7, -1))
    assert core.positions == {TP: 0} and core.warnings == [] and core.plan(0.0).nodes


@pytest.mark.parametrize("answered_s", [1.0, 60.0])
def test_a_nearer_replica_that_lags_loses_no_position(core: FetchState, answered_s: float) -> None:
    """Not even if its time has expired before it answers: the leader decides."""
    ask(core)
    core.answered(1, fetched(preferred_read_replica=2, records=b""), 0.0)
    assert core.plan(1.0).nodes == {2: [TP]}
    ask(core, 2, 1.0)
    core.plan(answered_s)
    beyond = fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, records=None)
    core.answered(2, beyond, answered_s)
    assert not core.resets() and core.plan(answered_s).nodes == {1: [TP]}


# ---- a preferred replica (KIP-392) -----------------------------------------------------------


def sent_near(core: FetchState, now_s: float = 0.0) -> None:
    """Its leader names node 2 as the replica to read from."""
    ask(core, now_s=now_s)
    core.answered(1, fetched(preferred_read_replica=2, records=b""), now_s)


@pytest.mark.parametrize(
    "news",
    [{"isr": (1,)}, {"epoch": 4}, {"epoch": 0, "topic": 78}],
    ids=["isr", "leader", "topic"],
)
def test_later_metadata_ends_the_turn_of_a_nearer_replica(core: FetchState, news: Any) -> None:
    """It has left the ISR, and may never catch up; or it was named by another leader."""
    sent_near(core)
    assert core.plan(1.0).nodes == {2: [TP]}
    core.known.answered(["t"], metadata_of(metadata()))
    assert core.plan(1.0).nodes == {2: [TP]}, "nothing new"
    core.known.answered(["t"], metadata_of(metadata(**news)))
    assert core.plan(1.0).nodes == {1: [TP]}


def test_earlier_metadata_does_not_contradict_a_leader(core: FetchState) -> None:
    """The leader names a replica whose return to the ISR metadata does not know: without that,
    the leader would be asked again and again."""
    core.known.answered(["t"], metadata_of(metadata(isr=(1,))))
    sent_near(core)
    assert core.plan(1.0).nodes == {2: [TP]}


@pytest.mark.parametrize("now_s", [9.9, 10.0])
def test_a_nearer_replica_has_its_time(core: FetchState, now_s: float) -> None:
    """metadata.max.age.ms; then the leader says again where to read."""
    sent_near(core)
    assert core.plan(now_s).nodes == {2 if now_s < 10.0 else 1: [TP]}


def test_a_nearer_replica_without_records_is_left(core: FetchState) -> None:
    """It may have left the ISR, and get no records itself: its leader is asked, and names it
    again if all is well.  The answer with records begins its time again."""
    core.options = core.options._replace(nearer_s=300.0)
    sent_near(core)
    ask(core, 2, 20.0)
    core.answered(2, fetched(), 20.0)
    for now_s in (30.0, 49.9):
        ask(core, 2, now_s)
        core.answered(2, fetched(records=b""), now_s)
        assert core.plan(now_s).nodes == {2: [TP]}
    assert core.plan(50.0).nodes == {1: [TP]}
    sent_near(core, 50.0)
    assert core.plan(50.0).nodes == {2: [TP]}


def test_a_nearer_replica_that_is_named_again_and_again(core: FetchState) -> None:
    """Its leader does not know yet that it lacks the offset: the second refusal in a row is
    followed by a pause, and so on."""
    pauses_s, now_s = [], 0.0
    for _ in range(6):
        sent_near(core, now_s)
        ask(core, 2, now_s)
        beyond = fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, records=None)
        core.answered(2, beyond, now_s)
        assert core.plan(now_s).nodes in ({}, {1: [TP]})
        next_s = now_s if core.plan(now_s).nodes else core.next_s(now_s)
        assert next_s is not None
        pauses_s.append(next_s - now_s)
        now_s = next_s
    assert pauses_s == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.0])
    ask(core, now_s=now_s)
    core.answered(1, fetched(), now_s)
    assert core.plan(now_s).nodes == {1: [TP]} and core.positions == {TP: 10}


def test_leaders_that_name_another_again_and_again(core: FetchState) -> None:
    """The first is asked at once, each later one after a longer pause: every answer could name a
    new node, which gets a connection."""
    pauses_s, now_s = [], 0.0
    for number in range(6):
        (node,) = core.plan(now_s).nodes
        ask(core, node, now_s)
        at = SimpleNamespace(node_id=10 + number, host="h", port=1)
        named = SimpleNamespace(leader_id=10 + number, leader_epoch=4 + number)
        answer = fetched(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, records=None, current_leader=named
        )
        answer.node_endpoints.append(at)
        core.answered(node, answer, now_s)
        next_s = now_s if core.plan(now_s).nodes else core.next_s(now_s)
        assert next_s is not None and core.plan(next_s).nodes == {10 + number: [TP]}
        pauses_s.append(next_s - now_s)
        now_s = next_s
    assert pauses_s == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.0])


def test_nodes_that_have_gone_leave_nothing(core: FetchState) -> None:
    ask(core)
    answer = fetched()
    answer.throttle_time_ms = 1
    core.answered(1, answer, 0.0)
    assert core.sessions.keys() == core.paused.keys() == {1}
    core.gone(1)
    assert not core.sessions and not core.paused


def test_a_throttle_lasts_no_longer_than_a_request(core: FetchState) -> None:
    ask(core)
    answer = fetched()
    answer.throttle_time_ms = 2**31 - 1
    core.answered(1, answer, 0.0)
    assert not core.free(1, 4.9) and core.free(1, 5.0)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR,
     ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE],
    ids=lambda code: code.name,
)  # fmt: skip
def test_any_error_ends_the_turn_of_a_nearer_replica(core: FetchState, code: ErrorCode) -> None:
    sent_near(core)
    ask(core, 2)
    core.answered(2, fetched(error_code=code, records=None), 0.0)
    core.known.answered(["t"], metadata_of(metadata()))
    assert core.plan(0.0).nodes == {} and core.plan(0.1).nodes == {1: [TP]}
