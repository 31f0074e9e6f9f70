"""Changes of the voters and of kraft.version (KIP-853)."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.raft.log import (
    Batch,
    LogView,
    VersionChange,
    appended,
    truncated,
    version_of,
    voters_in,
)
from kafkalog.raft.messages import (
    AddRaftVoterRequest,
    Answer,
    AppendBatch,
    BeginQuorumEpochRequest,
    ChangeVersion,
    FetchRequest,
    QuorumState,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoterResponse,
)
from kafkalog.raft.replicas import ReplicaKey, Voters
from kafkalog.raft.roles import Follower, Leader, Resigned
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.raft.replica import THREE, Replica, directory, key, log_of, voter, voters


def leader(among: Voters = THREE, version: int = 1, ready: bool = True) -> Replica:
    """Node 1, elected; `ready`: it has committed a record of its epoch."""
    one = Replica(1, log_of(1, among=among, version=version), itself=voter(1))
    one.elect()
    if ready:
        commit(one)
    return one


def commit(one: Replica) -> None:
    """All voters fetch everything."""
    one.flush()
    for number in [found.key.id for found in one.state.voters if found.key.id != 1]:
        one.fetch(number, one.state.log.end, one.state.epoch)


def error(one: Replica, request: Any) -> ErrorCode:
    """The error of a request; it must not wait."""
    found = one.asks(request)
    assert found is not None
    return ErrorCode(found.error_code)


def test_a_voter_is_added_once_it_has_caught_up() -> None:
    one = leader()
    assert error(one, AddRaftVoterRequest(voter(4))) == ErrorCode.REQUEST_TIMED_OUT
    one.fetch(4, one.state.log.end, 2)
    assert one.asks(AddRaftVoterRequest(voter(4))) is None, "it waits for the commit"
    assert one.state.voters == voters(1, 2, 3, 4), "in force at once"
    (batch,) = one.of(AppendBatch)
    assert batch.batch.control == (voters(1, 2, 3, 4),)
    commit(one)
    answers = [answer.message for answer in one.all if isinstance(answer, Answer)]
    changes = [answer for answer in answers if isinstance(answer, VoterResponse)]
    assert changes[-1].error_code == ErrorCode.NONE
    assert isinstance(one.role, Leader) and one.role.change is None


def test_voters_do_not_change_before_the_leader_has_committed_a_record() -> None:
    """The mistake of Raft's first rule for single changes, found in 2015."""
    one = leader(ready=False)
    assert error(one, RemoveRaftVoterRequest(key(3))) == ErrorCode.REQUEST_TIMED_OUT
    commit(one)
    assert one.asks(RemoveRaftVoterRequest(key(3))) is None


def test_one_change_at_a_time() -> None:
    one = leader()
    assert one.asks(RemoveRaftVoterRequest(key(3))) is None
    assert error(one, RemoveRaftVoterRequest(key(2))) == ErrorCode.REQUEST_TIMED_OUT
    commit(one)
    assert one.asks(RemoveRaftVoterRequest(key(2))) is None


def test_a_node_has_one_voter() -> None:
    one = leader()
    other = voter(2)._replace(key=ReplicaKey(2, directory(99)))
    assert error(one, AddRaftVoterRequest(other)) == ErrorCode.DUPLICATE_VOTER


@pytest.mark.parametrize("fields", [
    {"endpoints": (("PLAINTEXT", "localhost", 1),)}, {"key": ReplicaKey(4)},
])  # fmt: skip
def test_a_voter_that_the_others_could_not_reach_is_refused(fields: dict[str, Any]) -> None:
    """It has no listener of the controllers, or no directory id."""
    one = leader()
    one.asks(FetchRequest(fields.get("key", key(4)), 2, one.state.log.end, 2))
    found = error(one, AddRaftVoterRequest(voter(4)._replace(**fields)))
    assert found == ErrorCode.INVALID_REQUEST
    changed = voter(2)._replace(**{**fields, "key": fields.get("key", key(2))})
    for version in (0, 1):
        one = leader(voters(1, 2, 3, version=version), version=version)
        assert error(one, UpdateRaftVoterRequest(2, changed)) == ErrorCode.INVALID_REQUEST


def test_only_the_voter_itself_is_removed() -> None:
    one = leader()
    assert error(one, RemoveRaftVoterRequest(ReplicaKey(3, directory(99)))) == (
        ErrorCode.VOTER_NOT_FOUND
    )
    assert error(one, RemoveRaftVoterRequest(key(9))) == ErrorCode.VOTER_NOT_FOUND


def test_the_last_voter_stays() -> None:
    one = leader(voters(1))
    assert error(one, RemoveRaftVoterRequest(key(1))) == ErrorCode.INVALID_REQUEST


def test_version_0_has_fixed_voters() -> None:
    one = leader(voters(1, 2, 3, version=0), version=0)
    for request in (AddRaftVoterRequest(voter(4)), RemoveRaftVoterRequest(key(3))):
        assert error(one, request) == ErrorCode.UNSUPPORTED_VERSION


def test_a_removed_leader_leads_until_that_is_committed_and_does_not_count() -> None:
    one = leader()
    assert one.asks(RemoveRaftVoterRequest(key(1))) is None
    one.flush()
    end = one.state.log.end
    one.fetch(2, end, 2)
    assert isinstance(one.role, Leader) and one.state.high_watermark < end
    one.fetch(3, end, 2)
    assert one.state.high_watermark == end and isinstance(one.role, Resigned)


def test_a_removed_leader_without_followers_resigns() -> None:
    one = leader()
    assert one.asks(RemoveRaftVoterRequest(key(1))) is None
    one.wait(3_000)
    assert isinstance(one.role, Resigned)


@pytest.mark.parametrize("committed", [False, True])
def test_a_voter_stands_until_its_removal_is_committed(committed: bool) -> None:
    """It may have the longest log of those that are left, and they grant it their votes."""
    log = log_of(1, 1)
    log = appended(log, Batch(2, 2, 1, (voters(2, 3),)))._replace(flushed=3)
    one = Replica(1, log, QuorumState(1, 2))
    one.state = one.state._replace(high_watermark=3 if committed else 2)
    if committed:
        one.wait(10_000)
        assert isinstance(one.role, Follower)
        return
    one.elect()
    assert isinstance(one.role, Leader)
    one.fetch(2, one.state.log.end, one.state.epoch)
    one.fetch(3, one.state.log.end, one.state.epoch)
    assert isinstance(one.role, Resigned), "its removal is committed now"


def test_a_change_that_takes_too_long_is_answered() -> None:
    one = leader()
    assert one.asks(RemoveRaftVoterRequest(key(3))) is None
    one.wait(2_000)
    (answer,) = one.of(Answer)
    assert answer.message.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_change_is_answered_when_the_leader_loses_its_epoch() -> None:
    one = leader()
    assert one.asks(RemoveRaftVoterRequest(key(3))) is None
    one.asks(BeginQuorumEpochRequest(key(1), 2, 9))
    errors = [answer.message.error_code for answer in one.of(Answer)]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]


def test_truncated_voters_are_no_longer_in_force() -> None:
    view = LogView(voters=((-1, voters(1, 2, 3)),))
    view = appended(view, Batch(0, 0, 1, (voters(1, 2),)))
    assert voters_in(view) == voters(1, 2)
    assert voters_in(truncated(view, 0)) == voters(1, 2, 3)


def test_an_update_changes_a_voters_endpoints() -> None:
    one = leader()
    moved = voter(2)._replace(endpoints=(("CONTROLLER", "elsewhere", 9093),))
    assert error(one, UpdateRaftVoterRequest(1, moved)) == ErrorCode.FENCED_LEADER_EPOCH
    assert error(one, UpdateRaftVoterRequest(2, moved)) == ErrorCode.NONE
    assert one.state.voters == (voter(1), moved, voter(3))


def test_kraft_version_1_needs_every_voters_directory() -> None:
    one = leader(voters(1, 2, 3, version=0), version=0)
    one.take(ChangeVersion("token", 1))
    (answer,) = one.of(Answer)
    assert answer.message.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "[2, 3]" in answer.message.error_message
    for number in (2, 3):
        assert error(one, UpdateRaftVoterRequest(2, voter(number))) == ErrorCode.NONE
    one.take(ChangeVersion("token", 1))
    (batch,) = one.of(AppendBatch)
    assert batch.batch.control == (VersionChange(1), voters(1, 2, 3))
    assert version_of(one.state.log) == 1 and one.state.voters == voters(1, 2, 3)


def test_an_observer_joins_by_itself() -> None:
    one = Replica(4, log_of(1, 1), auto_join=True, itself=voter(4), bootstrap=(1,))
    one.asks(BeginQuorumEpochRequest(key(4), 1, 1))
    one.fetched()
    assert isinstance(one.role, Follower)
    for _ in range(2):
        one.wait(1_000)
        one.fetched()
    (send,) = one.sent(AddRaftVoterRequest)
    assert send.message == AddRaftVoterRequest(voter(4), False)


def test_a_node_with_another_disk_removes_its_old_voter_first() -> None:
    one = Replica(3, log_of(1, 1), auto_join=True, bootstrap=(1,))
    new = ReplicaKey(3, directory(33))
    itself = voter(3)._replace(key=new)
    one.state = one.state._replace(me=new, options=one.options._replace(itself=itself))
    assert not one.state.votes
    one.asks(BeginQuorumEpochRequest(new, 1, 1))
    one.fetched()
    for _ in range(2):
        one.wait(1_000)
        one.fetched()
    (send,) = one.sent(RemoveRaftVoterRequest)
    assert send.message == RemoveRaftVoterRequest(key(3))
