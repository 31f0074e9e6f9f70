"""The file quorum-state is Kafka's, and a damaged one is never taken for a new one."""

from __future__ import annotations

import pytest

from kafkalog.errors import CorruptLog
from kafkalog.kraft import loading
from kafkalog.raft.messages import QuorumState
from kafkalog.raft.quorum_state import parse_quorum_state, render_quorum_state
from kafkalog.raft.replicas import ReplicaKey
from tests.unit.raft.replica import key


@pytest.mark.parametrize(
    "state", [QuorumState(0), QuorumState(5, None, key(2)), QuorumState(5, 1, key(1)),
              QuorumState(5, 2)],
)  # fmt: skip
def test_version_1_keeps_everything(state: QuorumState) -> None:
    assert parse_quorum_state(render_quorum_state(state, 1, ())) == state


def test_version_0_has_votes_without_directories() -> None:
    data = render_quorum_state(QuorumState(5, None, key(2)), 0, (1, 2, 3))
    assert data == (
        b'{"clusterId":"","leaderId":-1,"leaderEpoch":5,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )
    assert parse_quorum_state(data) == QuorumState(5, None, ReplicaKey(2))


def test_version_1_always_has_a_directory() -> None:
    """Kafka's bytes: a replica of Kafka does not start without the field."""
    assert render_quorum_state(QuorumState(1, 8), 1, ()) == (
        b'{"leaderId":8,"leaderEpoch":1,"votedId":-1,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


def test_a_quorum_of_one_writes_the_same() -> None:
    alone = QuorumState(7, 1, key(1))
    assert render_quorum_state(alone, 0, [1]) == loading.render_own_state(1, 7, None)
    assert render_quorum_state(alone, 1, [1]) == (
        b'{"leaderId":1,"leaderEpoch":7,"votedId":1,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAD6Q","data_version":1}'
    )


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"5", b"null", b'{"leaderId":-1,"leaderEpoch":5,"data_version":0}',
     b'{"leaderId":-1,"leaderEpoch":"5","votedId":-1,"data_version":0}',
     b'{"leaderId":-1,"leaderEpoch":-5,"votedId":-1,"data_version":0}',
     b'{"leaderId":-1,"leaderEpoch":5,"votedId":-1,"data_version":9}',
     b'{"leaderId":-1,"leaderEpoch":5,"votedId":1,"votedDirectoryId":"!","data_version":1}',
     b"[" * 5_000, b"\xff\xfe"],
)  # fmt: skip
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptLog, match="quorum-state"):
        parse_quorum_state(data)
