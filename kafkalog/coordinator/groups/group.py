"""A group and its offsets; of a classic group, its members and votes.  State and its bookkeeping,
no protocol.

Source: KIP-62, KIP-134, KIP-345, KIP-394 and Kafka's ClassicGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.coordinator.consumer_groups.base import NewerGroup
from kafkalog.coordinator.consumer_groups.records import CLASSIC
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.share_groups.state import ShareGroup
from kafkalog.coordinator.step import Answer
from kafkalog.coordinator.streams_groups.state import StreamsGroup
from kafkalog.coordinator.weight import Weight, text_bytes
from kafkalog.types import TopicPartition
from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "CONSUMER",
    "GROUP_BYTES",
    "ClassicPart",
    "Commit",
    "CommittedOffset",
    "Group",
    "InitialDelay",
    "Member",
    "Protocols",
    "State",
    "expected_bytes",
    "member_bytes",
    "offset_bytes",
    "topics_bytes",
]

CONSUMER = "consumer"
"""The protocol type whose metadata the coordinator can read."""

GROUP_BYTES, MEMBER_BYTES, EXPECTED_BYTES, OFFSET_BYTES = 2_500, 1_500, 700, 400
PROTOCOL_BYTES, TOPIC_BYTES = 200, 140
"""Memory of one item besides its strings, including its timer and any handed-out id that has not
joined yet.  Measured, and rounded up."""

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, in the member's order of preference."""


class State(Enum):
    """A group's state; the values are Kafka's names on the wire."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


BEFORE = {
    State.EMPTY: {State.PREPARING, State.DEAD},
    State.PREPARING: {State.EMPTY, State.COMPLETING, State.STABLE},
    State.COMPLETING: {State.PREPARING},
    State.STABLE: {State.COMPLETING},
    State.DEAD: set(State) - {State.DEAD},
}
"""The allowed previous states of each state.  From Dead to Empty: the deletion failed."""


class CommittedOffset(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    leader_epoch: int
    """-1: unknown."""
    metadata: str
    commit_ms: int
    expire_ms: int
    """When it expires, if the request said so; else -1."""
    position: int
    """Grows with each commit: tells which of two is newer."""
    topic_id: UUID = ZERO_UUID
    """The topic's id at the time of the commit; ZERO_UUID if unknown."""

    def of_other(self, topic_id: UUID) -> bool:
        """True if it was committed for a topic with another id, if both ids are known."""
        return ZERO_UUID not in (self.topic_id, topic_id) and self.topic_id != topic_id


class Commit(NamedTuple):
    """A commit that is being written to the journal."""

    offsets: dict[TopicPartition, CommittedOffset]
    transactional: bool = False
    """Offsets committed in a transaction: they apply when its marker says so."""


class InitialDelay(NamedTuple):
    """An empty group waits for more members before its first generation."""

    delay_ms: int
    """Length of the running timer."""
    left_ms: int
    """How long it may still be extended."""


class Member:
    """A member of a group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
        "weighed_bytes",
    )

    def __init__(
        self, member_id: str, instance_id: str | None, client_id: str, client_host: str
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = 0
        self.session_timeout_ms = 0
        self.protocols: Protocols = ()
        self.assignment = b""
        self.join: Answer | None = None
        """Answers the JoinGroup that waits for the generation."""
        self.sync: Answer | None = None
        """Answers the SyncGroup that waits for the assignment."""
        self.is_new = False
        """Its first JoinGroup still waits: it has no session yet, but the join itself expires."""
        self.weighed_bytes = 0
        """Its share of the group's weight."""

    @property
    def names(self) -> tuple[str | None, ...]:
        """The strings that identify it, as long as a request may make them."""
        return self.member_id, self.instance_id, self.client_id

    def metadata(self, protocol: str) -> bytes:
        """Its metadata for a protocol; empty if it does not support it."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str | None:
        """The one of `candidates` that it prefers."""
        return next((name for name, _ in self.protocols if name in candidates), None)

    @property
    def keeps_session(self) -> bool:
        """True if it counts as alive without heartbeats because it waits for our answer."""
        return not self.is_new and (self.join is not None or self.sync is not None)


class ClassicPart(NamedTuple):
    """A classic group that was taken out of its Group."""

    bytes: int
    """Its share of the group's weight."""
    fields: dict[str, Any]


_CLASSIC = (
    "state", "state_ms", "generation", "protocol_type", "protocol", "leader", "initial",
    "new_member_added", "members", "static", "pending", "pending_sync", "topics", "_joined",
    "_support",
)  # fmt: skip


class Group:
    """One group.  Only for the coordinator's thread."""

    def __init__(self, group_id: str, wall_ms: int, within: Weight | None = None) -> None:
        """`within`: the sum to which its weight is added."""
        self.group_id = group_id
        self.weight = Weight(within)
        """Approximate memory that it takes."""
        self.weight.add(GROUP_BYTES + text_bytes(group_id))
        self.state = State.EMPTY
        self.state_ms = wall_ms
        """When it entered the state; -1 if loaded from a record without a time."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.initial: InitialDelay | None = None
        self.new_member_added = False
        """Since the initial delay was last extended."""
        self.members: dict[str, Member] = {}
        """By member id, in the order in which they joined."""
        self.static: dict[str, str] = {}
        """Instance ids and their member ids."""
        self.pending: set[str] = set()
        """Member ids that were handed out and have not joined yet."""
        self.pending_sync: set[str] = set()
        """Members of the generation that have not asked for their assignment yet."""
        self.topics: set[str] | None = None
        """Topics that members of protocol type "consumer" subscribe to; None if unknown."""
        self.offsets: dict[str, dict[int, CommittedOffset]] = {}
        """By topic and partition."""
        self.pending_offsets: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        """Commits of transactions that have not ended, by producer id."""
        self.commits: dict[int, Commit] = {}
        """Commits being written to the journal, by an arbitrary number."""
        self.writing = 0
        """Group records being written to the journal."""
        self.recorded = False
        """True if the journal may hold records that need a tombstone of the group; Kafka also loads
        a group from a commit that was deleted later."""
        self.foreign: dict[bytes, int] = {}
        """Keys and kinds of its live records of a newer group type (records.FOREIGN)."""
        self.consumer: ConsumerGroup | None = None
        """Its members that heartbeat (KIP-848); None: it is no consumer group."""
        self.share: ShareGroup | None = None
        """Its members that share partitions (KIP-932); None: it is no share group."""
        self.streams: StreamsGroup | None = None
        """Its members that process tasks (KIP-1071); None: it is no streams group."""
        self._joined = 0
        self._support: Counter[str] = Counter()

    # ---- states ----------------------------------------------------------------------------

    def become(self, state: State, wall_ms: int) -> None:
        """Enter a state."""
        assert self.state in BEFORE[state], f"{self.group_id}: {self.state} to {state}"
        self.state = state
        self.state_ms = wall_ms

    @property
    def unused(self) -> bool:
        """True if it has no members or offsets, and the journal will add none."""
        if not self.is_empty or self.members or self.pending:
            return False
        inside = self.offsets or self.pending_offsets
        return not (inside or self.commits or self.writing or self.recorded or self.newer_keys)

    @property
    def is_empty(self) -> bool:
        """True if it has no members, of any type."""
        return self.state is State.EMPTY and not (self.newer and self.newer.members)

    @property
    def newer(self) -> NewerGroup[Any, Any] | None:
        """Its members that heartbeat, of any type."""
        return self.consumer or self.share or self.streams

    @property
    def is_classic(self) -> bool:
        """True if it has members of the classic protocol, or is about to."""
        return self.state not in (State.EMPTY, State.DEAD) or bool(self.members or self.pending)

    @property
    def newer_keys(self) -> dict[bytes, int]:
        """Keys and kinds of the records of a newer type that the journal has, or may have."""
        unsure = {} if self.newer is None else self.newer.unsure
        kinds = {key: kind for key, (kind, _) in unsure.items() if kind != CLASSIC}
        return {**self.foreign, **kinds}

    @property
    def takes_consumers(self) -> bool:
        """True if it has members that heartbeat, or a write about them is in progress."""
        consumer = self.consumer
        return consumer is not None and bool(consumer.members or consumer.writing)

    @property
    def takes_tasks(self) -> bool:
        """True if it has members that process tasks, or a write about them is in progress."""
        streams = self.streams
        return streams is not None and bool(streams.members or streams.writing)

    @property
    def can_rebalance(self) -> bool:
        """True if a rebalance may begin now."""
        return self.state in BEFORE[State.PREPARING]

    @property
    def all_joined(self) -> bool:
        """True if every member, and every handed-out member id, waits for the generation."""
        return self._joined == len(self.members) and not self.pending

    @property
    def joined_count(self) -> int:
        """Members whose JoinGroup waits."""
        return self._joined

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # ---- the classic part as a whole -------------------------------------------------------

    def take_classic(self, wall_ms: int) -> ClassicPart:
        """Take the classic group out, with its members and their waiting requests."""
        weight = sum(member.weighed_bytes for member in self.members.values())
        weight += sum(map(expected_bytes, self.pending)) + topics_bytes(self.topics)
        weight += text_bytes(self.protocol_type)
        part = ClassicPart(weight, {name: getattr(self, name) for name in _CLASSIC})
        self.weight.add(-weight)
        empty = Group(self.group_id, wall_ms)
        for name in _CLASSIC:
            setattr(self, name, getattr(empty, name))
        return part

    def put_classic(self, part: ClassicPart) -> None:
        """Put a classic group in, instead of the empty one."""
        for name, value in part.fields.items():
            setattr(self, name, value)
        self.weight.add(part.bytes)

    # ---- members ---------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a new member that does not replace another."""
        if not self.members:
            self.be_of(protocol_type)
        if self.leader is None:
            self.leader = member.member_id
        self._insert(member)
        self._expect_no_more(member.member_id)

    def be_of(self, protocol_type: str | None) -> None:
        """Record the protocol type of its members."""
        self.weight.add(text_bytes(protocol_type) - text_bytes(self.protocol_type))
        self.protocol_type = protocol_type

    def expect(self, member_id: str) -> None:
        """Remember a member id that was handed out."""
        self.pending.add(member_id)
        self.weight.add(expected_bytes(member_id))

    def _expect_no_more(self, member_id: str) -> None:
        if member_id in self.pending:
            self.pending.remove(member_id)
            self.weight.add(-expected_bytes(member_id))

    def expect_nobody(self) -> None:
        """Forget the handed-out ids."""
        for member_id in list(self.pending):
            self._expect_no_more(member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id; the longest member succeeds the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supports_no_more(member.protocols)
            self._joined -= member.join is not None
            self.weight.add(-member.weighed_bytes)
            if member.instance_id is not None:
                del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._expect_no_more(member_id)
        self.pending_sync.discard(member_id)

    def replace(self, old: Member, member_id: str) -> Member:
        """Give a static member a new id; it keeps everything except its waiting requests."""
        assert old.instance_id is not None
        leader = self.leader
        self.remove(old.member_id)
        member = Member(member_id, old.instance_id, old.client_id, old.client_host)
        member.rebalance_timeout_ms = old.rebalance_timeout_ms
        member.session_timeout_ms = old.session_timeout_ms
        member.protocols = old.protocols
        member.assignment = old.assignment
        self._insert(member)
        self.leader = member_id if leader == old.member_id else leader
        return member

    def _insert(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._support.update({name for name, _ in member.protocols})
        self._joined += member.join is not None
        member.weighed_bytes = 0
        self.weigh(member)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def speak(self, member: Member, protocols: Protocols) -> None:
        """Take over what a member says in a new JoinGroup."""
        self._supports_no_more(member.protocols)
        member.protocols = protocols
        self._support.update({name for name, _ in protocols})
        self.weigh(member)

    def _supports_no_more(self, protocols: Protocols) -> None:
        """A member no longer supports these: names that no other has are forgotten."""
        for name in {name for name, _ in protocols}:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    def subscribe(self, topics: set[str] | None) -> None:
        """Remember the topics to which its members subscribe; None: unknown."""
        self.weight.add(topics_bytes(topics) - topics_bytes(self.topics))
        self.topics = topics

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set a member's assignment."""
        member.assignment = assignment
        self.weigh(member)

    def weigh(self, member: Member) -> None:
        """Update the weight of a changed member."""
        found = member_bytes(member.names, member.protocols, member.assignment)
        self.weight.add(found - member.weighed_bytes)
        member.weighed_bytes = found

    def park_join(self, member: Member, answer: Answer) -> Answer | None:
        """Let a member's JoinGroup wait; returns the one that waited before, if any."""
        before, member.join = member.join, answer
        self._joined += before is None
        return before

    def take_join(self, member: Member) -> Answer | None:
        """Take the waiting JoinGroup, to answer it now."""
        answer, member.join = member.join, None
        self._joined -= answer is not None
        return answer

    def elect(self) -> bool:
        """Choose a leader that has joined: the current leader, else the longest of these
        members."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            leader = next((m for m in self.members.values() if m.join is not None), None)
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    # ---- protocols -------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """True if a member with these protocols may join."""
        names = list(names)
        if self.state is State.EMPTY:
            return bool(protocol_type and names)
        everybody = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._support[name] == everybody for name in names
        )

    def choose_protocol(self) -> str | None:
        """The protocol that all support and most prefer; ties go to the longest member."""
        everybody = len(self.members)
        candidates = {name for name, count in self._support.items() if count == everybody}
        votes = Counter(m.vote(candidates) for m in self.members.values())
        votes.pop(None, None)
        return max(votes, key=votes.__getitem__, default=None)

    def subscribes(self, topic: str) -> bool:
        """True if members use the topic; if that is unknown, they do."""
        if self.consumer is not None and not self.is_classic:
            return topic in self.consumer.topics
        if self.streams is not None and not self.is_classic:
            return self.streams.reads(topic)
        if self.topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.topics

    # ---- offsets ---------------------------------------------------------------------------

    def offset(self, topic: str, partition: int) -> CommittedOffset | None:
        """The last committed offset, if any."""
        return self.offsets.get(topic, {}).get(partition)

    def put_offset(self, where: TopicPartition, offset: CommittedOffset) -> None:
        """Apply a commit."""
        partitions = self.offsets.setdefault(where.topic, {})
        before = partitions.get(where.partition)
        self.weight.add(
            offset_bytes(offset.metadata) - (offset_bytes(before.metadata) if before else 0)
        )
        partitions[where.partition] = offset

    def drop_offset(self, where: TopicPartition) -> None:
        """Forget a partition's commit, if any, and those of transactions that have not ended."""
        partitions = self.offsets.get(where.topic, {})
        before = partitions.pop(where.partition, None)
        self.weight.add(-offset_bytes(before.metadata) if before else 0)
        if not partitions:
            self.offsets.pop(where.topic, None)
        for producer_id, pending in list(self.pending_offsets.items()):
            if (offset := pending.pop(where, None)) is not None:
                self.weight.add(-offset_bytes(offset.metadata))
            if not pending:
                del self.pending_offsets[producer_id]

    def known_offsets(self) -> Iterator[TopicPartition]:
        """Partitions with a commit, or one in progress; some occur twice."""
        for topic, partitions in self.offsets.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)
        for commit in self.commits.values():
            yield from commit.offsets
        for pending in self.pending_offsets.values():
            yield from pending

    def unstable(self, where: TopicPartition) -> bool:
        """True if a transaction that has not ended has committed for the partition."""
        if any(where in offsets for offsets in self.pending_offsets.values()):
            return True
        return any(one.transactional and where in one.offsets for one in self.commits.values())


# ---- estimates of memory -----------------------------------------------------------------------


def member_bytes(
    names: Iterable[str | None], said: Iterable[tuple[str, bytes]], assignment: bytes
) -> int:
    """Memory of a member with these names and this metadata for its protocols."""
    texts = sum(map(text_bytes, names))
    texts += sum(PROTOCOL_BYTES + text_bytes(name) + len(data) for name, data in said)
    return MEMBER_BYTES + texts + len(assignment)


def topics_bytes(topics: Collection[str] | None) -> int:
    """Memory of the topics to which a group's members subscribe."""
    return sum(TOPIC_BYTES + text_bytes(topic) for topic in topics or ())


def expected_bytes(member_id: str) -> int:
    """Memory of a handed-out id."""
    return EXPECTED_BYTES + text_bytes(member_id)


def offset_bytes(metadata: str) -> int:
    """Memory of a committed offset with this metadata string."""
    return OFFSET_BYTES + text_bytes(metadata)
