"""Decides when a group member joins, what answers mean, and when its assignment is lost.

It only decides: no clock, no socket, no thread.  Each event leaves its effects in `effects`;
Membership reports events and carries out effects, and a simulation does the same
(tests/unit/client/consumer/simulation.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.assignors import Assignor, Subscriber
from kafkalog.client.consumer.session import Session
from kafkalog.client.link.chunks import topic_rows
from kafkalog.client.link.failures import check_code, passing
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL

__all__ = [
    "ASSIGNING", "IN", "JOINING", "LOST", "OUT", "REJOIN", "SYNCING",
    "Asks", "BeatAs", "Doubt", "DoubtTopics", "Effect", "Member", "MemberOptions", "Rest",
    "Unwanted",
]  # fmt: skip

NO_GENERATION = -1
LOST = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
"""Its partitions belong to other members now."""
REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, *LOST)
SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 3, 3
OUT, JOINING, ASSIGNING, SYNCING, IN = "out", "joining", "assigning", "syncing", "in"
"""ASSIGNING: it has joined; a leader now looks up the topics to assign."""


class MemberOptions(NamedTuple):
    """Settings of a member; times in milliseconds."""

    assignors: tuple[Assignor, ...]
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    instance_id: str | None = None
    rack: str | None = None


# ---- effects ---------------------------------------------------------------------------------


class BeatAs(NamedTuple):
    """As Session.begin."""

    member: GroupMetadata
    heard_s: float | None = None


class Asks(NamedTuple):
    """As Session.joins."""

    reads_on: bool


class Rest(NamedTuple):
    """As Session.rest."""


class Unwanted(NamedTuple):
    """The answer that is due is not wanted any more."""


class Doubt(NamedTuple):
    """The coordinator may have moved."""


class DoubtTopics(NamedTuple):
    """Metadata may be wrong."""


Effect = BeatAs | Asks | Rest | Unwanted | Doubt | DoubtTopics


class Member:
    """One member: its id, generation and assignment.  For the owner's thread only."""

    finds_topics = True
    """It resolves a pattern by itself."""

    def __init__(
        self, group: str, options: MemberOptions, session: Session, pauses_s: tuple[float, float]
    ) -> None:
        """`session`: read here, and changed by effects.  `pauses_s`: the shortest and longest
        backoff."""
        self.options = options
        self.session = session
        self.effects: list[Effect] = []
        self.metadata = GroupMetadata(group, instance_id=options.instance_id)
        """Its id and generation, as far as it knows."""
        self.latest = self.metadata
        """The last generation that it was in, even if that has ended: commits with it are then
        refused."""
        self.fenced: errors.KafkalogError | None = None
        """Another member has its instance id: it does not join again."""
        self.assignment: list[TopicPartition] = []
        """Its partitions in the last generation."""
        self.state = OUT
        self.cooperative = all(assignor.cooperative for assignor in options.assignors)
        """True if it keeps its partitions while others join."""
        self.counts: Mapping[str, int] | None = None
        """The partitions per topic when it assigned them; None: it is not the leader."""
        self.topics: set[str] = set()
        """Topics of all members, if it is the leader."""
        self.rebalances = 0
        """How often it got an assignment."""
        self._pauses_s = pauses_s
        self.pause_s = 0.0
        """The last backoff, since it got an assignment."""
        self._joined: Any = None
        """The answer to its JoinGroup."""
        self._last_assignment = (list[TopicPartition](), NO_GENERATION)

    @property
    def awaits(self) -> bool:
        """True if it waits for an answer."""
        return self.state in (JOINING, SYNCING)

    # ---- joining -------------------------------------------------------------------------

    def lost_membership(self, now_s: float) -> bool:
        """True if it ceased to be a member while waiting for others; it then starts over."""
        ended = self.ended(now_s)
        if ended is not None:
            self.rejoin()
            self.lose(ended)
        return ended is not None

    def join(self, topics: Iterable[str], owned: Sequence[TopicPartition]) -> dict[str, Any]:
        """A JoinGroup, which the coordinator answers once all members have sent theirs.

        `owned`: the partitions that it reads now, and keeps.
        """
        options, member = self.options, self.metadata
        protocols = [
            {"name": assignor.name, "metadata": self._subscription(assignor, topics, owned)}
            for assignor in options.assignors
        ]
        return {
            "group_id": member.group,
            "session_timeout_ms": options.session_timeout_ms,
            "rebalance_timeout_ms": options.rebalance_timeout_ms,
            "member_id": member.member_id,
            "group_instance_id": options.instance_id,
            "protocol_type": "consumer",
            "protocols": protocols,
        }

    def _subscription(
        self, assignor: Assignor, topics: Iterable[str], owned: Sequence[TopicPartition]
    ) -> bytes:
        partitions, generation = self._last_assignment
        return CONSUMER_PROTOCOL.encode_subscription(
            SUBSCRIPTION_VERSION,
            {
                "topics": sorted(set(topics)),
                "user_data": assignor.user_data(partitions, generation),
                "owned_partitions": topic_rows(owned, "topic"),
                "generation_id": generation,
                "rack_id": self.options.rack,
            },
        )

    def join_sent(self, reads_on: bool) -> None:
        """Its JoinGroup was sent."""
        self.state = JOINING
        self.effects.append(Asks(reads_on))

    def joined(self, answer: Any) -> None:
        """Its JoinGroup was answered.  Raises: the coordinator's error."""
        member = self.metadata
        self.state = OUT
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.metadata = member._replace(member_id=answer.member_id)
            return
        check_code(answer.error_code, f"group {member.group!r}", api=apis.JOIN_GROUP)
        self.metadata = member._replace(member_id=answer.member_id, generation=answer.generation_id)
        # The session begins with the coordinator's answer: an assignment may take long.
        self.effects.append(BeatAs(self.metadata))
        self.counts = None
        self._joined = answer
        self.state = ASSIGNING

    def topics_to_assign(self) -> set[str] | None:
        """The topics of all members, if it is the leader and assigns them; else None."""
        answer = self._joined
        if answer.leader != answer.member_id:
            return None
        members = [_subscriber(member) for member in answer.members]
        self.topics = {topic for member in members for topic in member.topics}
        return self.topics

    def sync(self, counts: Mapping[str, int] | None) -> dict[str, Any]:
        """A SyncGroup; `counts`: the partitions per topic to assign, None if it is not the
        leader."""
        answer, self.counts = self._joined, counts
        assignments = [] if counts is None else self._assignments(counts)
        return {
            "group_id": self.metadata.group,
            "generation_id": answer.generation_id,
            "member_id": answer.member_id,
            "group_instance_id": self.options.instance_id,
            "protocol_type": "consumer",
            "protocol_name": answer.protocol_name,
            "assignments": [] if getattr(answer, "skip_assignment", False) else assignments,
        }

    def _assignments(self, counts: Mapping[str, int]) -> list[dict[str, Any]]:
        """The leader's work: the assignments of all members."""
        answer = self._joined
        assignor = next(a for a in self.options.assignors if a.name == answer.protocol_name)
        assignments = assignor.assign([_subscriber(member) for member in answer.members], counts)
        return [
            {
                "member_id": member_id,
                "assignment": CONSUMER_PROTOCOL.encode_assignment(
                    ASSIGNMENT_VERSION,
                    {"assigned_partitions": topic_rows(owned, "topic"), "user_data": None},
                ),
            }
            for member_id, owned in assignments.items()
        ]

    def sync_sent(self) -> None:
        """Its SyncGroup was sent."""
        self.state = SYNCING

    def synced(self, answer: Any, sent_s: float) -> None:
        """Its SyncGroup, sent at `sent_s`, was answered.  Raises: the coordinator's error."""
        self.state = OUT
        check_code(answer.error_code, f"group {self.metadata.group!r}", api=apis.SYNC_GROUP)
        self.state = IN
        self.rebalances += 1
        self.assignment = _decode_assignment(answer.assignment)
        self._last_assignment = self.assignment, self.metadata.generation
        self.latest = self.metadata
        self.pause_s = 0.0
        self.effects.append(BeatAs(self.metadata, sent_s))

    def failed(self, problem: errors.KafkalogError, reached: bool) -> float:
        """A step of joining failed; returns the backoff in seconds.

        `reached`: whether any broker was ever reached.  Raises: the problem, if it is permanent;
        `pause_s` is the backoff.
        """
        before, self.state = self.state, OUT
        low_s, high_s = self._pauses_s
        self.pause_s = min(max(low_s, self.pause_s * 2), high_s)
        if problem.code in LOST:
            self.lose(problem)
        elif problem.code != ErrorCode.REBALANCE_IN_PROGRESS:
            if problem.code == ErrorCode.FENCED_INSTANCE_ID:
                self.lose(problem)
            if not passing(problem) or not reached:
                raise problem
            if before == ASSIGNING:  # the others wait for its assignment
                self.state = ASSIGNING
                self.effects.append(DoubtTopics())
            else:
                self.effects.append(Doubt())
        return self.pause_s

    # ---- staying and leaving ---------------------------------------------------------------

    def look(self, now_s: float) -> errors.KafkalogError | None:
        """The error that ended its membership, if any; it then joins again at the next step,
        unless it is `fenced`.

        Raises: any other permanent error of the coordinator.
        """
        if self.state != IN:
            return None
        problem = ended = self.ended(now_s)
        if ended is None:
            problem = self.session.problem
        if problem is None:
            return None
        if ended is None and problem.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
            return problem
        self.lose(problem)
        if ended is None and self.fenced is None:
            raise problem
        return problem

    def ended(self, now_s: float) -> errors.KafkalogError | None:
        """Why other members may have its partitions; None: they cannot."""
        session, why = self.session, ""
        if self.fenced is not None:
            return self.fenced
        if session.left:
            ms = self.options.rebalance_timeout_ms
            why = (
                f"poll was not called in max_poll_interval_ms ({ms} ms): the partitions were given "
                "up"
            )
        elif session.lapsed(now_s):
            ms = self.options.session_timeout_ms
            why = (
                f"no heartbeat was answered in session_timeout_ms ({ms} ms): other members may "
                "have the partitions now"
            )
        if why:
            return errors.Timeout(f"group {self.metadata.group!r}: {why}")
        problem = session.problem
        return problem if problem is not None and problem.code in LOST else None

    def rejoin(self) -> None:
        """Join again at the next step, as the same member."""
        if self.awaits:
            self.effects.append(Unwanted())
        self.state = OUT

    def mind_fencing(self, committer: GroupMetadata, problem: errors.KafkalogError) -> None:
        """A commit failed; if another member has its instance id, it is out for good."""
        fenced = problem.code == ErrorCode.FENCED_INSTANCE_ID
        if fenced and committer.member_id == self.metadata.member_id:  # not as an earlier member
            self.lose(problem)

    def lose(self, problem: errors.KafkalogError | None) -> None:
        """Leave the generation, and drop the member id if it left the group (None) or is unknown.

        Otherwise it keeps its id: a static member that was replaced is fenced again, and does not
        take the other's place.
        """
        if problem is not None and problem.code == ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = problem
        unknown = problem is None or problem.code == ErrorCode.UNKNOWN_MEMBER_ID
        gone = unknown or self.session.left
        self.effects.append(Rest())
        self.metadata = self.metadata._replace(
            generation=NO_GENERATION, member_id="" if gone else self.metadata.member_id
        )
        self.state = OUT
        self._last_assignment = [], NO_GENERATION

    @property
    def says_goodbye(self) -> bool:
        """True if it sends LeaveGroup.  A static member is expected back."""
        return bool(self.metadata.member_id) and self.options.instance_id is None


# ---- the consumer protocol ---------------------------------------------------------------------


def _subscriber(member: Any) -> Subscriber:
    version, found = CONSUMER_PROTOCOL.decode_subscription(member.metadata)
    owned = _partitions(found.owned_partitions) if version >= 1 else []
    return Subscriber(
        member.member_id,
        member.group_instance_id,
        tuple(found.topics),
        tuple(owned),
        found.generation_id if version >= 2 else NO_GENERATION,
        None if found.user_data is None else bytes(found.user_data),
    )


def _decode_assignment(data: bytes) -> list[TopicPartition]:
    if not data:
        return []
    _, found = CONSUMER_PROTOCOL.decode_assignment(data)
    return sorted(_partitions(found.assigned_partitions))


def _partitions(rows: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(row.topic, p) for row in rows for p in row.partitions]
