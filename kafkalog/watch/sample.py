"""The answers of one round of asking a cluster; a part that could not be asked says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.client.calls.groups import GroupInfo, GroupListing
from kafkalog.client.calls.nodes import ClusterInfo, LogDir
from kafkalog.client.calls.quorum import QuorumInfo
from kafkalog.client.calls.transactions import TransactionInfo, TransactionListing
from kafkalog.client.link.metadata import TopicInfo
from kafkalog.types import TopicPartition

__all__ = [
    "CLUSTER", "GROUPS", "MEMBERS", "OFFSETS", "OPEN", "POSITIONS", "QUORUM", "SIZES", "TOPICS",
    "TRANSACTIONS", "GroupSample", "Positions", "Sample", "Seen",
]  # fmt: skip

CLUSTER, QUORUM, TOPICS, SIZES, OFFSETS = "cluster", "quorum", "topics", "sizes", "offsets"
GROUPS, MEMBERS, POSITIONS = "groups", "members", "positions"
TRANSACTIONS, OPEN = "transactions", "open transactions"
# The names of the parts, in `Sample.problems`.


class Seen(NamedTuple):
    """A number, and when it was answered: rates need the time of each."""

    at_s: float
    """By the monotonic clock."""
    value: int


class Positions(NamedTuple):
    """How far a group has come."""

    at_s: float
    """By the monotonic clock."""
    offsets: Mapping[TopicPartition, int]
    """Committed offsets; for a share group where its partitions begin."""
    lags: Mapping[TopicPartition, int]
    """The lags that a broker has told; only for share groups."""


class GroupSample(NamedTuple):
    """A group."""

    listing: GroupListing
    info: GroupInfo | None
    """Its members; None: not asked in this round, or not answered."""
    positions: Positions | None
    """None: not asked in this round, or not answered."""
    problem: str = ""
    """Why the group was not answered; empty: no failure."""


class Sample(NamedTuple):
    """A cluster.  Parts that were not asked in this round are those of an earlier one."""

    at_ms: int
    """When the round ended, in ms since 1970."""
    at_s: float
    """The same by the monotonic clock."""
    cluster: ClusterInfo | None
    quorum: QuorumInfo | None
    """None: not asked yet, no right, or a cluster without KRaft."""
    topics: Mapping[str, TopicInfo]
    """All topics that the user may describe, internal ones included."""
    starts: Mapping[TopicPartition, int]
    """Where logs begin, of the partitions asked in this round because a caller wants them."""
    ends: Mapping[TopicPartition, Seen]
    """High watermarks of the partitions asked in this round."""
    dirs: Mapping[int, tuple[LogDir, ...]]
    """The log directories of each node that told them."""
    dirs_at_s: float
    """When they were asked, by the monotonic clock."""
    groups: Mapping[str, GroupSample]
    """All groups that the user may describe."""
    transactions: tuple[TransactionListing, ...]
    open: tuple[TransactionInfo, ...]
    """Ongoing transactions, as far as they were described."""
    problems: Mapping[str, str]
    """By part: why this round got no answer, or not a whole one."""
