"""Votes, pre-votes, and how leaders begin and end."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from kafkalog.raft import elections, state
from kafkalog.raft.log import Batch, LeaderChange
from kafkalog.raft.messages import (
    Answer,
    AppendBatch,
    BecameLeader,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    Flush,
    LostLeadership,
    QuorumResponse,
    QuorumState,
    Resign,
    Response,
    Send,
    ShutDown,
    Timer,
    VoteRequest,
    WriteQuorumState,
)
from kafkalog.raft.replicas import ReplicaKey
from kafkalog.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.raft.replica import Replica, directory, key, log_of, voters


def vote(
    candidate: int, epoch: int, end: tuple[int, int], pre: bool = False, of: int = 1
) -> VoteRequest:
    """A request for the vote of node `of`; `end`: the candidate's offset and epoch."""
    return VoteRequest(key(of), epoch, key(candidate), end[1], end[0], pre)


def test_a_vote_is_written_before_it_is_given() -> None:
    one = Replica(1, log_of(1))
    assert one.asks(vote(2, 2, (1, 1))).vote_granted
    kinds = [type(effect) for effect in one.effects]
    *_, written = one.of(WriteQuorumState)
    assert written.state == QuorumState(2, None, key(2))
    assert kinds.index(Answer) > max(n for n, k in enumerate(kinds) if k is WriteQuorumState)


def test_a_vote_is_given_once_in_an_epoch() -> None:
    one = Replica(1, log_of(1))
    assert one.asks(vote(2, 2, (1, 1))).vote_granted
    assert not one.asks(vote(3, 2, (5, 1))).vote_granted
    assert one.asks(vote(2, 2, (1, 1))).vote_granted, "its answer may have been lost"
    again = Replica(1, log_of(1), one.state.stored)
    assert not again.asks(vote(3, 2, (5, 1))).vote_granted, "also after a restart"


@pytest.mark.parametrize(
    ("end", "granted"), [((3, 2), True), ((4, 2), True), ((2, 2), False), ((9, 1), False),
                         ((1, 3), True)],
)  # fmt: skip
def test_a_candidate_needs_the_longer_log(end: tuple[int, int], granted: bool) -> None:
    """The last epoch counts first, then the offset."""
    one = Replica(1, log_of(1, 2, 2))
    assert one.asks(vote(2, 5, end)).vote_granted == granted
    assert one.state.epoch == 5


def test_an_earlier_epoch_gets_no_vote() -> None:
    one = Replica(1, log_of(1, 7))
    found = one.asks(vote(2, 6, (9, 5)))
    assert found == QuorumResponse(ErrorCode.FENCED_LEADER_EPOCH, 7, None)


def test_a_replica_with_another_disk_does_not_vote_for_the_lost_one() -> None:
    one = Replica(1, log_of(1))
    asked = vote(2, 2, (1, 1))._replace(voter=ReplicaKey(1, directory(99)))
    assert one.asks(asked).error_code == ErrorCode.INVALID_VOTER_KEY
    assert one.state.epoch == 1 and not one.of(WriteQuorumState)[1:]


def test_a_pre_vote_changes_nothing() -> None:
    one = Replica(1, log_of(1))
    one.take(ShutDown())
    before = one.state
    assert one.asks(vote(2, 1, (1, 1), pre=True)).vote_granted
    assert (one.state.epoch, one.state.role) == (before.epoch, before.role)
    assert not one.asks(vote(2, 1, (0, 0), pre=True)).vote_granted


def test_a_follower_of_a_live_leader_grants_no_pre_vote() -> None:
    one = Replica(1, log_of(1), QuorumState(1, 3))
    assert one.asks(vote(2, 1, (1, 1), pre=True)).vote_granted, "its leader has not answered yet"
    one.fetched()
    assert not one.asks(vote(2, 1, (1, 1), pre=True)).vote_granted
    one.asks(EndQuorumEpochRequest(3, 1, (key(2), key(1))))
    assert one.asks(vote(2, 1, (1, 1), pre=True)).vote_granted, "its leader has resigned"


@pytest.mark.parametrize("stops", [False, True])
def test_a_replica_that_stands_for_nothing_grants_a_pre_vote_once_its_leader_is_silent(
    stops: bool,
) -> None:
    """An observer that became a voter by a record that it lacks, or a voter that shuts down: the
    others may need its vote."""
    number = 2 if stops else 4
    one = Replica(number, log_of(1), QuorumState(1, 3))
    one.wait(0)
    one.fetched()
    if stops:
        one.take(ShutDown())
    one.wait(one.options.fetch_timeout_ms - 1)
    assert not one.asks(vote(1, 1, (5, 1), pre=True, of=number)).vote_granted
    one.wait(1)
    assert isinstance(one.role, Follower)
    assert one.asks(vote(1, 1, (5, 1), pre=True, of=number)).vote_granted


def test_a_leader_whose_process_has_ended_is_replaced_before_the_fetch_timeout() -> None:
    one = Replica(1, log_of(1), QuorumState(1, 3))
    one.wait(0)
    one.fetched()
    (number,) = one.pending(FetchRequest)
    one.take(Response(number, None))
    assert not one.asks(vote(2, 1, (1, 1), pre=True)).vote_granted, "an answer was lost, no more"
    one.wait(one.options.backoff_ms)
    (number,) = one.pending(FetchRequest)
    one.take(Response(number, None, refused=True))
    assert isinstance(one.role, Prospective) and one.state.epoch == 1
    assert one.asks(vote(2, 1, (1, 1), pre=True)).vote_granted


def test_a_replica_that_alone_cannot_reach_the_leader_follows_it_again() -> None:
    """It stands once, not each time that it is refused."""
    one = Replica(1, log_of(1), QuorumState(1, 3))
    one.wait(0)
    one.fetched()
    one.take(Response(one.pending(FetchRequest)[0], None, refused=True))
    for send in one.sent(VoteRequest):
        one.answers(send, one.response(leader=3))
    assert isinstance(one.role, Follower) and one.state.epoch == 1
    for _ in range(3):
        one.wait(one.options.backoff_ms)
        one.take(Response(one.pending(FetchRequest)[0], None, refused=True))
        assert isinstance(one.role, Follower)


def test_another_node_that_refuses_does_not_matter() -> None:
    one = Replica(1, log_of(1), QuorumState(1, 3))
    one.wait(0)
    one.fetched()
    before = one.role
    elections.on_refused(step := state.Step(one.state, one.now_ms, one.draw), 2)
    assert step.state.role == before


def test_an_election_begins_with_pre_votes_of_the_same_epoch() -> None:
    one = Replica(1, log_of(1))
    one.wait(5_000)
    assert isinstance(one.role, Prospective) and one.state.epoch == 1
    asked = one.sent(VoteRequest)
    assert [(send.node_id, send.message) for send in asked] == [
        (2, VoteRequest(key(2), 1, key(1), 1, 1, True)),
        (3, VoteRequest(key(3), 1, key(1), 1, 1, True)),
    ]
    one.answers(asked[0], one.response(granted=True))
    assert isinstance(one.role, Candidate) and one.state.epoch == 2
    assert one.of(WriteQuorumState)[0].state == QuorumState(2, None, key(1))
    assert [send.message.pre_vote for send in one.sent(VoteRequest)] == [False, False]


def test_a_leader_begins_its_epoch_with_a_leader_change() -> None:
    one = Replica(1, log_of(1))
    one.elect()
    appended = [effect.batch for effect in one.all if isinstance(effect, AppendBatch)]
    assert appended[0].base_offset == 1 and appended[0].epoch == 2
    change, version, found = appended[0].control
    assert change == LeaderChange(1, (key(1), key(2), key(3)), (key(1), key(2)))
    assert (version.version, found) == (1, voters(1, 2, 3)), "the voters it was formatted with"
    assert BecameLeader(2, 4) in one.all
    written = [effect.state for effect in one.all if isinstance(effect, WriteQuorumState)]
    assert written[-1] == QuorumState(2, 1, key(1))


def test_a_single_voter_elects_itself() -> None:
    one = Replica(1, log_of(1, among=voters(1)))
    one.wait(5_000)
    one.flush()
    assert isinstance(one.role, Leader)
    assert one.state.high_watermark == one.state.log.end


@pytest.mark.parametrize(("last", "pre_vote", "valid"), [
    (2, False, True), (3, False, False), (3, True, True), (4, True, False),
])  # fmt: skip
def test_a_log_that_no_candidate_has_is_refused(last: int, pre_vote: bool, valid: bool) -> None:
    one = Replica(1, log_of(1))
    answer = one.asks(VoteRequest(key(1), 3, key(2), last, 5, pre_vote))
    assert answer.error_code == (ErrorCode.NONE if valid else ErrorCode.INVALID_REQUEST)
    assert one.state.epoch == (3 if valid else 1)


@pytest.mark.parametrize("request_", [
    VoteRequest(key(1), 3, key(-1), 2, 5, False), BeginQuorumEpochRequest(key(1), -1, 3),
    EndQuorumEpochRequest(-1, 3, ()),
])  # fmt: skip
def test_a_node_without_a_number_is_refused(request_: Any) -> None:
    """The file quorum-state has no word for its vote or its leadership."""
    one = Replica(1, log_of(1))
    assert one.asks(request_).error_code == ErrorCode.INVALID_REQUEST
    assert one.state.epoch == 1


def test_an_observer_never_stands() -> None:
    one = Replica(4, log_of(1), bootstrap=(1,))
    for _ in range(5):
        one.wait(5_000)
        assert isinstance(one.role, Unattached)
        assert one.sent(FetchRequest), "it looks for the leader"
        one.answers(one.sent(FetchRequest)[0], None)


def test_an_observer_comes_back_to_a_leader_that_joined_after_its_last_record() -> None:
    one = Replica(4, log_of(1, among=()), QuorumState(1, 9), bootstrap=(1,))
    asked = set()
    for share in (0.0, 0.9):
        one.draw = lambda share=share: share  # type: ignore[method-assign]
        one.wait(5_000)
        asked |= {send.node_id for send in one.sent(FetchRequest)}
    assert asked == {1, 9}


def test_the_clock_may_be_negative() -> None:
    one = Replica(1, log_of(1))
    one.now_ms = -30_000.0
    one.take(Timer())
    assert one.sent(FetchRequest), "it looks for the leader"


def test_a_refused_pre_vote_leads_back_to_the_leader() -> None:
    one = Replica(1, log_of(1), QuorumState(1, 3))
    one.wait(5_000)
    assert isinstance(one.role, Prospective)
    for send in one.sent(VoteRequest):
        one.answers(send, one.response(leader=3))
    assert isinstance(one.role, Follower) and one.role.leader_id == 3 and one.state.epoch == 1


def test_a_dead_leader_is_replaced_although_all_know_it() -> None:
    """A pre-vote is granted by a replica that still names the leader."""
    one = Replica(1, log_of(1), QuorumState(1, 3))
    one.wait(5_000)
    one.answers(one.sent(VoteRequest)[0], one.response(granted=True, leader=3))
    assert isinstance(one.role, Candidate) and one.state.epoch == 2


def test_two_of_three_elect_a_leader_when_the_third_is_gone() -> None:
    """Both follow it, and have fetched from it.  Requests to it get no response."""
    found = {number: Replica(number, log_of(1), QuorumState(1, 3)) for number in (1, 2)}
    for number, one in found.items():
        one.draw = random.Random(number).random  # type: ignore[method-assign]
        one.wait(0)
        one.fetched()
        one.wait(500)
    for _ in range(200):  # 20 election timeouts
        for one in found.values():
            one.wait(100)
            waiting = deque((one, send) for send in one.sent(VoteRequest))
            while waiting:
                sender, send = waiting.popleft()
                if target := found.get(send.node_id):
                    sender.answers(send, target.asks(send.message))
                    waiting += [(sender, more) for more in sender.sent(VoteRequest)]
        if any(isinstance(one.role, Leader) for one in found.values()):
            break
    leader_ids = {one.state.leader_id for one in found.values() if isinstance(one.role, Leader)}
    assert len(leader_ids) == 1 and 3 not in leader_ids


def test_a_leader_that_starts_again_leads_no_more_and_votes_for_nobody() -> None:
    one = Replica(1, log_of(1, 2), QuorumState(2, 1, key(1)))
    assert isinstance(one.role, Resigned)
    assert not one.asks(vote(2, 2, (9, 2))).vote_granted
    one.wait(5_000)
    assert isinstance(one.role, Unattached) and one.state.epoch == 3


def test_a_candidate_that_starts_again_stays_one() -> None:
    one = Replica(1, log_of(1), QuorumState(2, None, key(1)))
    assert isinstance(one.role, Candidate)
    assert not one.asks(vote(2, 2, (9, 1))).vote_granted


def test_a_new_leader_is_followed() -> None:
    one = Replica(1, log_of(1))
    found = one.asks(BeginQuorumEpochRequest(key(1), 2, 4))
    assert found == QuorumResponse(ErrorCode.NONE, 4, 2)
    assert isinstance(one.role, Follower) and one.role.leader_id == 2
    assert one.asks(BeginQuorumEpochRequest(key(1), 3, 3)).error_code == (
        ErrorCode.FENCED_LEADER_EPOCH
    )


def test_a_leader_without_followers_resigns() -> None:
    one = Replica(1, log_of(1), fetch_timeout_ms=2000)
    one.elect()
    one.fetch(2, 4, 2)
    one.wait(2_900)
    assert isinstance(one.role, Leader)
    one.wait(200)
    assert isinstance(one.role, Resigned) and LostLeadership(2) in one.effects
    ended = one.sent(EndQuorumEpochRequest)
    assert [send.node_id for send in ended] == [2, 3]
    assert ended[0].message.preferred_candidates == (key(2), key(3)), "the longest log first"


def test_the_preferred_successor_stands_at_once() -> None:
    first, second = (Replica(n, log_of(1), QuorumState(1, 3)) for n in (1, 2))
    for one in (first, second):
        one.wait(0)
        one.fetched()
        one.asks(EndQuorumEpochRequest(3, 1, (key(1), key(2))))
    assert isinstance(first.role, Prospective) and isinstance(second.role, Follower)
    second.wait(1_000)
    assert isinstance(second.role, Prospective)


def test_a_leader_resigns_when_it_cannot_lead() -> None:
    one = Replica(1, log_of(1))
    one.elect()
    one.take(Resign(1))
    assert isinstance(one.role, Leader), "the event is of an earlier epoch"
    one.take(Resign(2))
    assert isinstance(one.role, Resigned)


def test_a_step_is_pure() -> None:
    one = Replica(1, log_of(1))
    before = one.state
    first = one.wait(5_000)
    after = one.state
    one.state, one.now_ms = before, one.now_ms - 5_000
    assert one.wait(5_000) == first and one.state == after


def test_the_only_voter_leads_again_at_once() -> None:
    """A restart of a quorum of one waits for no election timeout."""
    for stored in (None, QuorumState(3, 1, key(1)), QuorumState(3, None, key(1))):
        one = Replica(1, log_of(1, 3, among=voters(1)), stored)
        one.wait(0)
        assert isinstance(one.role, Leader)
        assert one.state.epoch == 4


@pytest.mark.parametrize(
    "stored",
    [None, QuorumState(5), QuorumState(5, 1), QuorumState(5, 2), QuorumState(5, None, key(1))],
)
@pytest.mark.parametrize("among", [(1,), (1, 2, 3)])
def test_a_replica_that_observes_never_stands(
    stored: QuorumState | None, among: tuple[int, ...]
) -> None:
    """A voter whose node is a broker alone now: nobody could reach it as a leader."""
    replica = Replica(1, log_of(5, among=voters(*among)), stored, observes=True, bootstrap=(-2,))
    for _ in range(20):
        replica.wait(5_000)
        assert isinstance(replica.role, Unattached | Follower)
        assert not replica.sent(VoteRequest)
    assert not replica.state.votes
    assert any(isinstance(one, Send) for one in replica.all)


def test_a_replica_that_observes_fetches_without_waiting_for_its_disk() -> None:
    replica = Replica(4, log_of(5), QuorumState(5, 2), observes=True)
    replica.wait(0)
    batch = Batch(1, 1, 5, (), 1)
    replica.fetched(records=(batch,), high_watermark=1)
    (sent,) = replica.sent(FetchRequest)
    assert sent.message.fetch_offset == 2
    assert not replica.of(Flush)


def test_a_voter_that_only_observes_now_syncs_all_that_its_leader_counts() -> None:
    replica = Replica(1, log_of(5), QuorumState(5, 2), observes=True)
    replica.wait(0)
    replica.fetched(records=(Batch(1, 1, 5, (), 1),), high_watermark=1)
    assert replica.of(Flush)
    assert not replica.sent(FetchRequest)
    replica.flush()
    (sent,) = replica.sent(FetchRequest)
    assert sent.message.fetch_offset == 2
