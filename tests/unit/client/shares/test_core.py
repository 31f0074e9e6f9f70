"""The decisions of a share consumer: requests, sessions, and the end of each acknowledgement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafkalog import errors
from kafkalog.client.shares.core import EPOCH_MAX, ShareState, batches, topics_of
from kafkalog.client.shares.holding import ACCEPT, TYPES, Holding, Place
from kafkalog.types import Record
from kafkalog.wire.error_codes import ErrorCode

ID = UUID(int=7)
A, B = Place(ID, "t", 0), Place(ID, "t", 1)


class Member:
    """A member, whose nodes the test answers for."""

    def __init__(self, limited: bool = False) -> None:
        self.holding = Holding()
        self.state = ShareState(self.holding, limited, (0.1, 1.0))
        self.state.want({A: 1, B: 2})

    def send(self, fetches: bool = True, now_s: float = 0.0) -> list[Any]:
        found = self.state.plan(fetches, now_s)
        for one in found:
            self.state.sent(one)
        return found

    def answer(self, node: int, *rows: Any, code: int = 0) -> list[Any]:
        topic = SimpleNamespace(topic_id=ID, partitions=list(rows))
        answer = SimpleNamespace(error_code=code, error_message=None, responses=[topic])
        return self.state.answered(node, answer, 0.0)

    def acquire(self, node: int, place: Place, first: int, last: int, *offsets: int) -> None:
        """A node's answer: records at `offsets` of an acquired range."""
        part = SimpleNamespace(first_offset=first, last_offset=last, delivery_count=1)
        for found in self.answer(node, row(place, acquired=[part])):
            records = [record(place, offset) for offset in offsets]
            self.holding.add(found.place, found.source, found.ranges, records)

    def begun(self) -> Member:
        """With sessions."""
        self.send()
        for node in (1, 2):
            self.answer(node)
        return self


def record(place: Place, offset: int) -> Record:
    return Record(offset, 0, None, b"x", (), place.topic, place.number, 0, 0)


def row(place: Place, code: int = 0, ack: int = 0, acquired: Any = ()) -> Any:
    leader = SimpleNamespace(leader_id=-1, leader_epoch=-1)
    return SimpleNamespace(
        partition_index=place.number, error_code=code, error_message=None,
        acknowledge_error_code=ack, acknowledge_error_message=None, current_leader=leader,
        acquired_records=list(acquired), records=b"",
    )  # fmt: skip


def outcomes(holding: Holding) -> list[tuple[Place, list[int], int | None]]:
    found = holding.take_outcomes()
    return [(one.place, one.offsets, one.problem.code if one.problem else 0) for one in found]


def test_a_session_has_only_changes() -> None:
    member = Member()
    assert [(one.epoch, one.added) for one in member.send()] == [(0, [A]), (0, [B])]
    assert member.send() == []
    member.answer(1)
    member.answer(2)
    member.state.want({A: 2, B: 2})
    (request,) = member.send()
    assert (request.source.node, request.epoch, request.added) == (2, 1, [A])
    member.answer(2)
    member.state.want({A: 2})
    (request,) = member.send()
    assert (request.epoch, request.added, request.forgotten) == (2, [], [B])


def test_epochs_begin_again_at_one() -> None:
    member = Member().begun()
    member.state.sessions[1] = member.state.sessions[1]._replace(epoch=EPOCH_MAX)
    member.send()
    member.answer(1)
    assert member.state.sessions[1].epoch == 1


def test_acknowledgements_travel_with_a_fetch_or_alone() -> None:
    member = Member().begun()
    member.send()
    member.acquire(1, A, 0, 2, 0, 2)  # offset 1 is a gap
    member.answer(2)
    first, second = member.holding.take(9)
    assert (first.offset, second.offset, first.delivery_count) == (0, 2, 1)
    member.holding.acknowledge(first, TYPES["release"])
    member.holding.conclude()
    one, _ = member.send()
    assert one.fetches and one.acks == {A: {0: 2, 1: 0}} and not one.renews
    member.answer(1, row(A))
    assert outcomes(member.holding) == [(A, [0], 0)]
    member.holding.acknowledge(second, TYPES["renew"])
    member.holding.conclude()
    (one,) = member.send()
    assert not one.fetches and one.renews and one.acks == {A: {2: 4}}
    assert member.holding.take(9) == []
    member.answer(1, row(A))
    assert member.holding.take(9) == [second]


def test_an_acknowledgement_of_a_partition_that_is_not_wanted_is_sent_alone() -> None:
    member = Member().begun()
    member.send()
    member.acquire(1, A, 5, 5, 5)
    member.holding.take(1)
    member.holding.accept_rest()
    member.holding.conclude()
    member.state.want({B: 1})
    (one,) = member.send()
    assert (one.fetches, one.source.node, one.acks) == (False, 1, {A: {5: ACCEPT}})


@pytest.mark.parametrize("lost", ["session", "epoch", "connection"])
def test_the_end_of_a_session_fails_its_acknowledgements(lost: str) -> None:
    """Those in flight, those that are due, and those of records that are still out; buffered
    records are dropped."""
    member = Member().begun()
    member.send()
    member.acquire(1, A, 0, 3, 0, 1, 2, 3)
    sent, due, out = member.holding.take(3)
    for one in (sent, due):
        member.holding.acknowledge(one, ACCEPT)
        member.holding.conclude()
        if one is sent:
            member.send(fetches=False)
    codes = {
        "session": ErrorCode.SHARE_SESSION_NOT_FOUND,
        "epoch": ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
    if lost in codes:
        member.answer(1, code=codes[lost])
        first = int(codes[lost])
    else:
        member.state.failed(1, errors.PeerGone("gone"), 0.0)
        first = 0
    gone = ErrorCode.INVALID_SHARE_SESSION_EPOCH
    found = member.holding.take_outcomes()
    assert [one.offsets for one in found] == [[0], [1]]
    now, later = found[0].problem, found[1].problem
    assert now is not None and later is not None and later.code == gone
    assert isinstance(now, errors.PeerGone) if lost == "connection" else now.code == first
    assert member.holding.take(9) == []
    (one,) = [request for request in member.send(now_s=9.0) if request.source.node == 1]
    assert one.epoch == 0 and not one.acks
    member.answer(1)
    member.holding.acknowledge(out, ACCEPT)
    member.holding.conclude()
    member.send(now_s=9.0)
    assert outcomes(member.holding) == [(A, [2], gone)]


def test_a_partition_without_an_answer_has_failed() -> None:
    member = Member().begun()
    member.send()
    member.acquire(1, A, 0, 0, 0)
    member.holding.take(1)
    member.holding.accept_rest()
    member.holding.conclude()
    member.send(fetches=False)
    member.answer(1)
    assert outcomes(member.holding) == [(A, [0], ErrorCode.INVALID_RECORD_STATE)]


def test_a_failed_renewal_does_not_return_the_record() -> None:
    member = Member().begun()
    member.send()
    member.acquire(1, A, 0, 0, 0)
    (one,) = member.holding.take(1)
    member.holding.acknowledge(one, TYPES["renew"])
    member.holding.conclude()
    member.send(fetches=False)
    assert member.holding.full and not member.holding.ready
    member.answer(1, row(A, code=ErrorCode.INVALID_RECORD_STATE))
    assert outcomes(member.holding) == [(A, [0], ErrorCode.INVALID_RECORD_STATE)]
    assert not member.holding.full
    with pytest.raises(errors.ArgumentError):
        member.holding.acknowledge(one, ACCEPT)


def test_time_is_over_for_acknowledgements_due_and_in_flight() -> None:
    member = Member().begun()
    member.send()
    member.acquire(1, A, 0, 1, 0, 1)
    for one in member.holding.take(2):
        member.holding.acknowledge(one, ACCEPT)
        member.holding.conclude()
        member.send(fetches=False)
    assert member.state.acknowledging()
    member.state.give_up(errors.Timeout("late"))
    assert not member.state.acknowledging()
    assert [one.offsets for one in member.holding.take_outcomes()] == [[0], [1]]
    member.answer(1, row(A))  # too late
    assert outcomes(member.holding) == []


def test_one_node_at_a_time_in_turn_with_a_limit_of_records() -> None:
    member = Member(limited=True)
    asked = []
    for _ in range(4):
        (one,) = member.send()
        assert member.send() == []
        asked.append(one.source.node)
        member.answer(one.source.node)
    assert asked == [1, 2, 1, 2]


def test_backoffs_grow_until_an_answer() -> None:
    member = Member()
    moved = row(A, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    member.send()
    for pause_s in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        member.answer(1, moved)
        assert member.state.stale and member.state.next_s(0.0) == pause_s
        asked = [one.source.node for one in member.send()]
        assert asked.count(1) == 0
        asked = [one.source.node for one in member.send(now_s=pause_s)]
        assert asked.count(1) == 1
    member.answer(1)
    assert member.state.next_s(0.0) is None
    assert member.state.problem is None


def test_a_permanent_failure_of_a_partition_names_it() -> None:
    member = Member().begun()
    member.send()
    member.answer(1, row(A, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    problem = member.state.problem
    assert isinstance(problem, errors.TopicAuthorizationFailed) and problem.partition == A.tp


def test_ranges_of_a_request() -> None:
    assert batches({3: 1, 1: 1, 2: 1, 5: 1, 6: 2}) == [
        {"first_offset": 1, "last_offset": 3, "acknowledge_types": [1]},
        {"first_offset": 5, "last_offset": 6, "acknowledge_types": [1, 2]},
    ]
    found = topics_of([B], {A: {0: 1}})
    assert [(one["topic_id"], len(one["partitions"])) for one in found] == [(ID, 2)]


def test_another_acknowledgement_of_a_record_ends_no_renewal() -> None:
    """The leader has moved while the renewal was in flight, and gave the record again."""
    one = Member().begun()
    one.send()
    one.acquire(1, A, 0, 0, 0)
    one.holding.acknowledge(one.holding.take(1)[0], TYPES["renew"])
    one.holding.conclude()
    one.state.want({A: 2})
    one.answer(2)
    one.send()
    one.acquire(2, A, 0, 0, 0)
    one.holding.acknowledge(one.holding.take(1)[0], ACCEPT)
    one.holding.conclude()
    one.send()
    one.answer(2, row(A))
    assert [found.problem for found in one.holding.take_outcomes()] == [None]
    assert one.holding.take(1) == []


def test_records_that_a_leader_gives_again_come_once() -> None:
    """It may have lost the leadership, and got it back, within the session."""
    one = Member().begun()
    for offsets in ((0, 1, 2), (1, 2, 3)):
        one.send()
        one.acquire(1, A, offsets[0], offsets[-1], *offsets)
    assert [record.offset for record in one.holding.take(9)] == [0, 1, 2, 3]


def test_records_that_reach_nobody_come_first_and_are_not_accepted() -> None:
    one = Member().begun()
    one.send()
    one.acquire(1, A, 0, 2, 0, 1, 2)
    holding = one.holding
    taken = holding.take(2)
    holding.hide(taken)
    holding.accept_rest()
    holding.conclude()
    assert not holding.due and not holding.unsaid()
    holding.put_back(taken)
    assert [record.offset for record in holding.take(9)] == [0, 1, 2]
    assert len(holding.unsaid()) == 3


def test_records_that_reach_the_program_are_its_own_then() -> None:
    one = Member().begun()
    one.send()
    one.acquire(1, A, 0, 0, 0)
    taken = one.holding.take(1)
    one.holding.hide(taken)
    one.holding.show(taken)
    assert one.holding.unsaid() == taken
    one.holding.accept_rest()
    one.holding.conclude()
    (acks,) = one.holding.due.values()
    assert acks == {A: {0: ACCEPT}}


def test_records_that_reach_nobody_are_dropped_with_their_session() -> None:
    one = Member().begun()
    one.send()
    one.acquire(1, A, 0, 0, 0)
    taken = one.holding.take(1)
    one.holding.hide(taken)
    one.send()
    one.state.failed(1, errors.PeerGone("gone"), 0.0)
    one.holding.put_back(taken)
    assert not one.holding.ready and not one.holding.unsaid()


def test_a_renewed_record_that_reaches_nobody_is_still_the_programs() -> None:
    one = Member().begun()
    one.send()
    one.acquire(1, A, 0, 0, 0)
    (held,) = one.holding.take(1)
    one.holding.acknowledge(held, TYPES["renew"])
    one.holding.conclude()
    one.send()
    one.answer(1, row(A))
    again = one.holding.take(1)
    one.holding.hide(again)
    one.holding.put_back(again)
    one.holding.acknowledge(held, ACCEPT)
    assert one.holding.take(1) == [held]
