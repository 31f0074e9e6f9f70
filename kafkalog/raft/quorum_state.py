"""The file `quorum-state`: epoch, leader and vote of a replica, which survive a restart.

Source: KIP-595; KIP-853 for the fields of kraft.version 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from kafkalog.disk.layout import parse_uuid, uuid_text
from kafkalog.errors import CorruptLog
from kafkalog.raft.replicas import NO_DIRECTORY, ReplicaKey

__all__ = ["QuorumState", "parse_quorum_state", "render_quorum_state"]

NOBODY = -1


class QuorumState(NamedTuple):
    """The contents of the file `quorum-state`."""

    epoch: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None


def render_quorum_state(state: QuorumState, version: int, voters: Sequence[int]) -> bytes:
    """The file's contents.

    `version`: kraft.version; `voters`: their ids, which the file has with version 0 only.
    """
    leader = NOBODY if state.leader_id is None else state.leader_id
    content: dict[str, object] = {"leaderId": leader, "leaderEpoch": state.epoch}
    voted = state.voted
    if version == 0:
        # In an epoch whose leader is known nobody votes any longer.
        known = voted is None or state.leader_id is not None
        content = {
            "clusterId": "", **content, "votedId": NOBODY if known or voted is None else voted.id,
            "appliedOffset": 0, "currentVoters": [{"voterId": one} for one in voters],
            "data_version": 0,
        }  # fmt: skip
        return _compact(content)
    voter = voted or ReplicaKey(NOBODY)
    content |= {"votedId": voter.id, "votedDirectoryId": uuid_text(voter.directory_id)}
    return _compact({**content, "data_version": 1})


def _compact(content: dict[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def parse_quorum_state(data: bytes) -> QuorumState:
    """The state in a file.

    Raises: CorruptLog: a replica that does not know its vote must not vote.
    """
    try:
        found = json.loads(data)
        version = _number(found, "data_version")
        if version not in (0, 1):
            raise ValueError(f"data_version {version}")
        epoch, leader = _number(found, "leaderEpoch"), _number(found, "leaderId")
        voted, directory_id = _number(found, "votedId"), NO_DIRECTORY
        if version == 1 and voted >= 0 and found.get("votedDirectoryId"):
            directory_id = parse_uuid(found["votedDirectoryId"])
        if epoch < 0:
            raise ValueError(f"leaderEpoch {epoch}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptLog(
            f"quorum-state: found {error}, wanted leaderId, leaderEpoch, votedId and data_version"
        ) from error
    return QuorumState(
        epoch, leader if leader >= 0 else None,
        ReplicaKey(voted, directory_id) if voted >= 0 else None,
    )  # fmt: skip


def _number(found: object, name: str) -> int:
    if not isinstance(found, dict):
        raise TypeError(f"a {type(found).__name__}")
    number = found[name]
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{name} {number!r}"[:80])
    return number
