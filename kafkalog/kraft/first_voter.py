"""Makes a single node's metadata log that of a quorum with one voter, which others can join.

A single node is the only voter of its log, so a record on its disk is committed.  Its log may have
no voters (kraft.version 0), or the voter with an address at which the node listens no more.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalog.batch.control import control_key, control_kind
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import ArgumentError
from kafkalog.kraft import directory
from kafkalog.kraft.batches import VOTERS, control_batch
from kafkalog.kraft.loading import (
    QUORUM_STATE,
    Loaded,
    QuorumOnly,
    known_epoch,
    led_alone,
    load,
    render_own_state,
)
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import METADATA_VERSION
from kafkalog.metadata.levels import KRAFT_VERSION, KRAFT_VERSION_SINCE, RELEASES
from kafkalog.raft.replicas import ReplicaKey, Voter, Voters

if TYPE_CHECKING:
    from kafkalog.directory.manager import Manager
    from kafkalog.log.log import Log
    from kafkalog.raft.log import Control

__all__ = ["become_voter", "voters_in"]

_logger = limited(__name__)


def become_voter(
    manager: Manager, node: int, directory_id: uuid.UUID, endpoints: Sequence[tuple[str, str, int]]
) -> bool:
    """Write this node as the voter of its metadata log, with the listeners of its controller, if it
    is the only one and the log says otherwise; returns whether it was written.

    Any other directory stays as it is: one that is new, a voter's among several, an observer's.

    Raises: ArgumentError: the cluster's metadata.version is too old for it; CorruptLog, IoFailed,
    NoSpace.
    """
    if not directory.has_metadata(manager):
        return False
    log = manager.get(METADATA_TOPIC, 0)
    if not log.end_offset or not led_alone(log, node):
        return False
    assert manager.meta is not None
    cluster = manager.meta.cluster_id or ""
    itself = Voter(ReplicaKey(node, directory_id), tuple(endpoints))
    # The metadata are read by the replica soon; here they are only wanted for a change.
    records = _records(load(log, cluster, node, kind=QuorumOnly), itself)
    if not records:
        return False
    loaded = load(log, cluster, node)
    level = loaded.replay.image.features.get(METADATA_VERSION, 0)
    if level < KRAFT_VERSION_SINCE:
        raise ArgumentError(
            f"{manager.path}: found {METADATA_VERSION} {level}, wanted at least "
            f"{KRAFT_VERSION_SINCE} ({RELEASES[KRAFT_VERSION_SINCE - 1]}) for {KRAFT_VERSION} 1: "
            "raise it with kafkalog features upgrade while the node is a single one"
        )
    _append(manager, log, loaded, itself, records)
    _logger.info("%s: node %d is the voter of its metadata log", manager.path, node)
    return True


def voters_in(loaded: Loaded) -> Voters:
    """The voters that the log has; none with kraft.version 0."""
    if not loaded.kraft_version or loaded.voters is None:
        return ()
    from kafkalog.raft.codec import control_of  # not for a node that is alone: it starts sooner

    found = control_of(control_key(VOTERS), loaded.voters)
    return found if isinstance(found, tuple) else ()  # type: ignore[return-value]


def _records(loaded: Loaded, itself: Voter) -> tuple[Control, ...]:
    """The records that are missing; none if there are other voters."""
    if not loaded.kraft_version:
        from kafkalog.raft.log import VersionChange

        return VersionChange(1), (itself,)
    known = voters_in(loaded)
    if [one.key for one in known] != [itself.key] or known[0].endpoints == itself.endpoints:
        return ()
    return ((itself,),)


def _append(
    manager: Manager, log: Log, loaded: Loaded, itself: Voter, records: Sequence[Control]
) -> None:
    """Append the records in the last epoch, which this node led, then write quorum-state: after a
    crash in between the log counts."""
    epoch, _ = known_epoch(log, loaded.replay.image, itself.key.id)
    from kafkalog.raft.codec import control_record

    pairs = [control_record(one, 1) for one in records]
    rows = [(control_kind(key) or 0, value) for key, value in pairs]
    log.append_as_follower(control_batch(rows, log.end_offset, epoch, manager.clock.now_ms()))
    log.flush()
    with Directory(log.path) as folder:
        folder.replace(
            QUORUM_STATE, render_own_state(itself.key.id, epoch, itself.key.directory_id)
        )
