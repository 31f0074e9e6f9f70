"""Requests and responses between replicas, events and effects of the core.

The messages have the fields of Kafka's that carry meaning, by the codec's names; the driver adds
topics, partitions and endpoints.  Source: KIP-595, KIP-630, KIP-853, KIP-996.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from kafkalog.raft.log import Batch, OffsetAndEpoch
from kafkalog.raft.quorum_state import QuorumState
from kafkalog.raft.replicas import ReplicaKey, Voter, Voters
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "NOT_SAID",
    "AddRaftVoterRequest",
    "Answer",
    "Append",
    "AppendBatch",
    "Appended",
    "BecameLeader",
    "BeginQuorumEpochRequest",
    "ChangeVersion",
    "Effect",
    "EndQuorumEpochRequest",
    "Event",
    "Failed",
    "FetchRequest",
    "FetchResponse",
    "FetchSnapshotRequest",
    "FetchSnapshotResponse",
    "FinishSnapshot",
    "Flush",
    "Flushed",
    "HighWatermark",
    "LostLeadership",
    "QuorumResponse",
    "QuorumState",
    "RemoveRaftVoterRequest",
    "Request",
    "Resign",
    "Response",
    "Send",
    "SetTimer",
    "ShutDown",
    "SnapshotLoaded",
    "SnapshotTaken",
    "Timer",
    "TrimLog",
    "Truncate",
    "UpdateRaftVoterRequest",
    "VoteRequest",
    "VoterResponse",
    "WriteQuorumState",
    "WriteSnapshot",
]


NOT_SAID = (1 << 63) - 1
"""The high watermark of a sender that does not say which it knows, as in Kafka."""


# ---- requests and responses ------------------------------------------------------------------


class VoteRequest(NamedTuple):
    """Vote: for the candidate's epoch, or, before it, for its own (`pre_vote`)."""

    voter: ReplicaKey
    replica_epoch: int
    replica: ReplicaKey
    last_offset_epoch: int
    last_offset: int
    pre_vote: bool


class BeginQuorumEpochRequest(NamedTuple):
    """A new leader makes itself known."""

    voter: ReplicaKey
    leader_id: int
    leader_epoch: int


class EndQuorumEpochRequest(NamedTuple):
    """A leader resigned."""

    leader_id: int
    leader_epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]


class FetchRequest(NamedTuple):
    """The end of the sender's log: everything below `fetch_offset` is on its disk."""

    replica: ReplicaKey
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int = NOT_SAID
    """The one that the sender knows: a higher one is answered at once (KIP-1166)."""


class FetchSnapshotRequest(NamedTuple):
    """Bytes of a snapshot from a position on."""

    replica: ReplicaKey
    current_leader_epoch: int
    snapshot: OffsetAndEpoch
    position: int


class AddRaftVoterRequest(NamedTuple):
    """Add a voter."""

    voter: Voter
    ack_when_committed: bool = True


class RemoveRaftVoterRequest(NamedTuple):
    """Remove a voter."""

    voter: ReplicaKey


class UpdateRaftVoterRequest(NamedTuple):
    """A voter's own endpoints and versions."""

    current_leader_epoch: int
    voter: Voter


class QuorumResponse(NamedTuple):
    """The response to Vote, BeginQuorumEpoch and EndQuorumEpoch."""

    error_code: ErrorCode
    leader_epoch: int
    leader_id: int | None
    vote_granted: bool = False


class FetchResponse(NamedTuple):
    """The response to Fetch; with neither `diverging` nor `snapshot` the logs are equal up to the
    offset of the request."""

    error_code: ErrorCode
    leader_epoch: int
    leader_id: int | None
    high_watermark: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    records: Any = ()
    """Batches, as the core wants them; on the wire, their bytes."""


class FetchSnapshotResponse(NamedTuple):
    """The response to FetchSnapshot."""

    error_code: ErrorCode
    leader_epoch: int
    leader_id: int | None
    size: int = 0
    position: int = 0
    records: Any = None
    """The bytes from `position` on, as many as the driver sends at once."""
    snapshot: OffsetAndEpoch | None = None


class VoterResponse(NamedTuple):
    """The response to AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, and to ChangeVersion."""

    error_code: ErrorCode
    leader_epoch: int
    leader_id: int | None
    error_message: str | None = None


# ---- events ----------------------------------------------------------------------------------


class Request(NamedTuple):
    """Another replica, or an administrator, sent a request; `token` is for its Answer."""

    token: Any
    message: Any


class Response(NamedTuple):
    """The outcome of a Send; `message` None: the request failed or timed out."""

    number: int
    message: Any
    refused: bool = False
    """The node's machine answered that nobody listens there: its process has ended."""


class Timer(NamedTuple):
    """The time of the last SetTimer has come."""


class Append(NamedTuple):
    """The state machine above appends records; the outcome is Appended."""

    token: Any
    record_count: int
    data: Any
    epoch: int
    """The epoch of the leadership in which the records were made."""


class Flushed(NamedTuple):
    """A Flush ended."""

    number: int


class SnapshotTaken(NamedTuple):
    """The state machine above wrote a snapshot of committed records, and it is on disk, as is the
    one before it."""

    snapshot: OffsetAndEpoch
    begins: OffsetAndEpoch | None = None
    """The snapshot at whose end the log may begin: records below it need not be kept any longer;
    None: all are."""


class SnapshotLoaded(NamedTuple):
    """The snapshot of FinishSnapshot is on disk, and the log begins at its end.  No other event
    comes between the two."""

    snapshot: OffsetAndEpoch
    version: int
    voters: Voters
    """Those of its records; empty with kraft.version 0."""


class ChangeVersion(NamedTuple):
    """Raise kraft.version (UpdateFeatures)."""

    token: Any
    version: int


class Resign(NamedTuple):
    """The state machine above cannot lead the epoch any longer."""

    epoch: int


class ShutDown(NamedTuple):
    """The node shuts down in order."""


Event: TypeAlias = (
    "Request | Response | Timer | Append | Flushed | SnapshotTaken | SnapshotLoaded | ChangeVersion"
    " | Resign | ShutDown"
)


# ---- effects ---------------------------------------------------------------------------------


class WriteQuorumState(NamedTuple):
    """Write the file; it is durable before the next effect is carried out."""

    state: QuorumState


class Send(NamedTuple):
    """Send a request to a node; its outcome is the Response with the same number."""

    node_id: int
    number: int
    message: Any


class Answer(NamedTuple):
    """Answer a request."""

    token: Any
    message: Any
    read_from: int | None = None
    """The driver adds records from this offset on, or bytes of the snapshot from this position
    on."""
    snapshot: OffsetAndEpoch | None = None


class AppendBatch(NamedTuple):
    """Append a batch at the end of the log; it need not be on disk before the next effect."""

    batch: Batch


class Appended(NamedTuple):
    """The outcome of an Append: the offset of the last record, which is committed once the high
    watermark is above it in the same epoch; None: this replica does not lead that epoch."""

    token: Any
    last_offset: int | None
    epoch: int


class Truncate(NamedTuple):
    """Remove the records from an offset on, durably before the next effect."""

    offset: int


class Flush(NamedTuple):
    """Sync the log as it is now; report the end with Flushed."""

    number: int


class TrimLog(NamedTuple):
    """Remove the records below an offset, and the snapshots that end below it; one that ends there
    has these records."""

    offset: int


class WriteSnapshot(NamedTuple):
    """Write bytes of a snapshot that is being fetched."""

    snapshot: OffsetAndEpoch
    position: int
    records: Any


class FinishSnapshot(NamedTuple):
    """The snapshot is complete: make it durable, and begin an empty log at its end; then report
    SnapshotLoaded, as the next event of all: until then the core does not know the log's end.  The
    state machine above loads it."""

    snapshot: OffsetAndEpoch


class HighWatermark(NamedTuple):
    """Records below it are committed."""

    offset: int


class BecameLeader(NamedTuple):
    """This replica leads an epoch: the state machine above becomes active once it applied
    everything below `offset`, the end of the epoch's first records."""

    epoch: int
    offset: int


class LostLeadership(NamedTuple):
    """This replica no longer leads the epoch; records that are not committed may be lost."""

    epoch: int


class SetTimer(NamedTuple):
    """Send Timer at this time; it replaces the earlier one."""

    at_ms: float


class Failed(NamedTuple):
    """The log contradicts the leader's committed records: the driver stops this replica."""

    why: str


Effect: TypeAlias = (
    "WriteQuorumState | Send | Answer | AppendBatch | Appended | Truncate | Flush | TrimLog"
    " | WriteSnapshot | FinishSnapshot | HighWatermark | BecameLeader | LostLeadership | SetTimer"
    " | Failed"
)
