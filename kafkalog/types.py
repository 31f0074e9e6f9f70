"""The plain tuples that kafkalog returns, without behaviour.

Times are milliseconds since 1970 UTC, offsets are log offsets.  A Record is a tuple because
millions are made: its maker (kafkalog.log.scan.rows) fills them in bulk.
"""

from typing import Final, NamedTuple

__all__ = [
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "NO_TIMESTAMP_TYPE",
    "AbortedTransaction",
    "AppendedOffsets",
    "FoundOffset",
    "Header",
    "LeaderEpoch",
    "ProducerState",
    "Record",
    "Recovery",
    "SentBatches",
    "SharedRecord",
    "TopicPartition",
]

Header = tuple[str, bytes | None]
"""A record header: its name and its value, which may be null."""

NO_TIMESTAMP_TYPE: Final = -1
"""Record.timestamp_type of message format 0, which has no times."""
CREATE_TIME: Final = 0
"""Record.timestamp_type: the producer set the time."""
LOG_APPEND_TIME: Final = 1
"""Record.timestamp_type: the log set the time as it appended."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """One record as read from a log."""

    offset: int
    timestamp_ms: int
    """-1 when its producer gave none."""
    key: bytes | None
    value: bytes | None
    """None is a tombstone in a compacted topic."""
    headers: tuple[Header, ...]
    """In the order in which they were sent; a name may occur twice."""
    topic: str
    partition: int
    timestamp_type: int
    """CREATE_TIME or LOG_APPEND_TIME."""
    leader_epoch: int
    """Epoch of the leader that appended it; -1 when unknown."""


class SharedRecord(NamedTuple):
    """One record as a share group delivers it: a Record, and how often it was delivered."""

    offset: int
    timestamp_ms: int
    """-1 when its producer gave none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """In the order in which they were sent; a name may occur twice."""
    topic: str
    partition: int
    timestamp_type: int
    """CREATE_TIME or LOG_APPEND_TIME."""
    leader_epoch: int
    """Epoch of the leader that appended it; -1 when unknown."""
    delivery_count: int
    """1 for the first delivery; a group's share.delivery.count.limit is the last one."""


class AppendedOffsets(NamedTuple):
    """The offsets that one call appended, both ends included."""

    base_offset: int
    """-1 when nothing was appended."""
    last_offset: int
    count: int  # type: ignore[assignment]  # a tuple's count() is of no use here
    """Records."""


class SentBatches(NamedTuple):
    """The result of sending to a socket."""

    bytes: int
    next_offset: int
    """Where to continue reading."""


class FoundOffset(NamedTuple):
    """The result of a lookup by time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int
    """-1 when unknown."""


class AbortedTransaction(NamedTuple):
    """A transaction whose records a read_committed reader skips."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""
    last_stable_offset: int
    """Right after the marker."""


class LeaderEpoch(NamedTuple):
    """A leader epoch and the first offset that its leader appended."""

    epoch: int
    start_offset: int


class ProducerState(NamedTuple):
    """A log's state of an idempotent producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1: only markers so far."""
    last_offset: int
    offset_delta: int
    """Last offset of its last batch minus the first."""
    last_timestamp_ms: int
    coordinator_epoch: int
    """-1: no transaction was ended here."""
    txn_start_offset: int
    """First offset of its open transaction; -1: none."""


class Recovery(NamedTuple):
    """The result of the recovery when a log is opened."""

    truncated_bytes: int
    """Cut from the tail, together with the segments dropped after it."""
    truncated_pos: int
    """Where in `truncated_segment`; -1: nothing was cut."""
    truncated_segment: int
    """Base offset."""
    segments_recovered: int
    """Segments whose batches were read."""
    segments_dropped: int
    indexes_rebuilt: int
    kept: str = ""
    """The first of the `.damaged` files that hold what was cut; empty: nothing, or only zeros."""
