"""A member of a consumer group: joins, shares partitions out when it leads, and stays.

It waits only as long as it is told: a join that others delay goes on at the next step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.assignors import Assignor, Subscriber
from kafkalog.client.consumer.heartbeat import COORDINATOR_MOVED, Keeper, leave_group
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, passing
from kafkalog.client.link.patience import NotYet
from kafkalog.client.link.wakeup import Waker
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL

__all__ = ["MemberOptions", "Membership"]

_logger = logging.getLogger(__name__)
NO_GENERATION = -1
LOST = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
"""Its partitions belong to others now."""
REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS, *LOST)
GRACE_MS = 5_000
SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 3, 3
OUT, JOINING, SHARING, SYNCING, IN = "out", "joining", "sharing", "syncing", "in"
"""SHARING: it has joined, and asks for what it is to share out."""


class MemberOptions(NamedTuple):
    """How a member behaves; times in milliseconds."""

    assignors: tuple[Assignor, ...]
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    instance_id: str | None = None
    rack: str | None = None


class Membership:
    """One member: its id, its generation, its share.  One thread, besides its Keeper's."""

    def __init__(
        self, cluster: Cluster, group: str, options: MemberOptions, keeper: Keeper, waker: Waker
    ) -> None:
        """Nothing is sent yet."""
        self.cluster = cluster
        self.options = options
        self.metadata = GroupMetadata(group, instance_id=options.instance_id)
        """Its id and its generation, as far as it knows."""
        self.latest = self.metadata
        """Of the latest generation that it was in, also when that is over: what is committed with
        it is refused then."""
        self.fenced: errors.KafkalogError | None = None
        """Another member has its instance id: it never joins again."""
        self.share: list[TopicPartition] = []
        """What the last generation gave it."""
        self.state = OUT
        self.cooperative = all(assignor.cooperative for assignor in options.assignors)
        """Whether it keeps what it has while others join."""
        self.counts: dict[str, int] | None = None
        """How many partitions each topic had when it shared them out; None: it does not lead."""
        self.topics: set[str] = set()
        """Of all members, when it leads."""
        self.rebalances = 0
        """How often it was given a share."""
        self._keeper = keeper
        self._waker = waker
        self._connection: Connection | None = None
        self._answer: Any = None
        self._due_s = 0.0
        self._sent_s = 0.0
        self._pause_s = 0.0
        self._rest_until_s = 0.0
        self._told = (list[TopicPartition](), NO_GENERATION)

    @property
    def connection(self) -> Connection | None:
        """Where an answer is due that lets it go on."""
        return self._connection if self.state in (JOINING, SYNCING) else None

    # ---- joining -----------------------------------------------------------------------

    def step(self, topics: Iterable[str], owned: Sequence[TopicPartition], until_s: float) -> bool:
        """Go on with joining until `until_s` (time.monotonic); True: it is in, with a new share.

        `owned`: what it reads now, and keeps.  A nudge of the waker ends a step, too.  What passes
        is tried again, by later steps too, for as long as it takes.

        Raises: what the coordinator answers and lasts; why no broker was ever reached; WakeUp.
        """
        while True:
            self._out_of_it()
            if owned and self.metadata.generation == NO_GENERATION:
                return False  # what it has is others' now: its owner has to know first
            if (rest_s := self._rest_until_s - time.monotonic()) > 0:
                self._waker.wait([], min(rest_s, until_s - time.monotonic()))
                if time.monotonic() < self._rest_until_s:
                    return False
            try:
                if self._stepped(topics, owned, until_s):
                    return True
            except NotYet:
                return False
            except errors.KafkalogError as problem:
                if isinstance(problem, errors.WakeUp):
                    raise
                self._again(problem)

    def _stepped(
        self, topics: Iterable[str], owned: Sequence[TopicPartition], until_s: float
    ) -> bool:
        """One step; whether it is in now.  Raises: NotYet; what goes wrong."""
        if self.state == OUT:
            self._ask(topics, owned, until_s)
        if self.state != SHARING:
            self._await_answer(until_s)
        if self._out_of_it():
            return False
        if self.state == JOINING:
            self._joined()
        elif self.state == SYNCING:
            self._synced()
        if self.state == SHARING:
            self._share_out(until_s)
        return self.state == IN

    def _out_of_it(self) -> bool:
        """Whether it ceased to be a member during the wait for others; it then starts over."""
        ended = self.ended()
        if ended is not None:
            self.rejoin()
            self.lose(ended)
        return ended is not None

    def _ask(self, topics: Iterable[str], owned: Sequence[TopicPartition], until_s: float) -> None:
        """Send a JoinGroup; the coordinator answers when all have."""
        options, member = self.options, self.metadata
        protocols = [
            {"name": assignor.name, "metadata": self._subscription(assignor, topics, owned)}
            for assignor in options.assignors
        ]
        body = {
            "group_id": member.group,
            "session_timeout_ms": options.session_timeout_ms,
            "rebalance_timeout_ms": options.rebalance_timeout_ms,
            "member_id": member.member_id,
            "group_instance_id": options.instance_id,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        self._send(apis.JOIN_GROUP, body, until_s)
        self.state = JOINING
        self._keeper.joins(reads_on=bool(owned))

    def _subscription(
        self, assignor: Assignor, topics: Iterable[str], owned: Sequence[TopicPartition]
    ) -> bytes:
        share, generation = self._told
        return CONSUMER_PROTOCOL.encode_subscription(
            SUBSCRIPTION_VERSION,
            {
                "topics": sorted(set(topics)),
                "user_data": assignor.user_data(share, generation),
                "owned_partitions": _rows(owned),
                "generation_id": generation,
                "rack_id": self.options.rack,
            },
        )

    def _send(self, api: Any, body: dict[str, Any], until_s: float) -> None:
        if self._connection is None or not self._connection.usable():
            with self.cluster.patience.errand_of("coordinator", until_s):
                node = self.cluster.coordinator(self.metadata.group)
                # Of its own: a join waits long.
                self._connection = self.cluster.another(node)
        self._sent_s = self._keeper.clock.monotonic_s()
        self._connection.post(api, body, self._connection.version_of(api))
        self._due_s = time.monotonic() + (self.options.rebalance_timeout_ms + GRACE_MS) / 1000

    def _await_answer(self, until_s: float) -> None:
        """Raises: NotYet: it has not come by then."""
        assert self._connection is not None
        wait_s = min(until_s, self._due_s) - time.monotonic()
        with self._keeper.waited_for():
            there = self._waker.wait([self._connection], wait_s)
        if not there:
            if time.monotonic() < self._due_s:
                raise NotYet(f"group {self.metadata.group!r}: no answer to {self.state} yet")
            raise errors.Timeout(f"group {self.metadata.group!r}: no answer to {self.state}")
        with self.cluster.patience.within(max(until_s - time.monotonic(), 0.0)):
            self._answer = self._connection.receive()

    def _joined(self) -> None:
        answer = self._answer
        member = self.metadata
        self.state = OUT
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.metadata = member._replace(member_id=answer.member_id)
            return
        check_code(answer.error_code, f"group {member.group!r}")
        self.metadata = member._replace(member_id=answer.member_id, generation=answer.generation_id)
        # The coordinator's patience begins with its answer: to share out may take long.
        assert self._connection is not None
        self._keeper.beat_as(self.metadata, place=self._connection.address)
        self.counts = None
        self.state = SHARING

    def _share_out(self, until_s: float) -> None:
        """Raises: NotYet; what goes wrong."""
        answer = self._answer
        leads = answer.leader == answer.member_id
        shares = self._shares(answer, until_s) if leads else []
        body = {
            "group_id": self.metadata.group,
            "generation_id": answer.generation_id,
            "member_id": answer.member_id,
            "group_instance_id": self.options.instance_id,
            "protocol_type": "consumer",
            "protocol_name": answer.protocol_name,
            "assignments": [] if getattr(answer, "skip_assignment", False) else shares,
        }
        self._send(apis.SYNC_GROUP, body, until_s)
        self.state = SYNCING

    def _synced(self) -> None:
        self.state = OUT
        check_code(self._answer.error_code, f"group {self.metadata.group!r}")
        self.state = IN
        self.rebalances += 1
        self.share = _share(self._answer.assignment)
        self._told = self.share, self.metadata.generation
        self.latest = self.metadata
        self._pause_s = 0.0
        assert self._connection is not None
        self._keeper.beat_as(self.metadata, self._sent_s, self._connection.address)

    def _shares(self, answer: Any, until_s: float) -> list[dict[str, Any]]:
        """The leader's work: partitions for everybody."""
        assignor = next(a for a in self.options.assignors if a.name == answer.protocol_name)
        members = [_subscriber(member) for member in answer.members]
        self.topics = {topic for member in members for topic in member.topics}
        with self.cluster.patience.errand_of("share out", until_s):
            self.counts = self.partition_counts(self.topics)
        shares = assignor.assign(members, self.counts)
        return [
            {
                "member_id": member_id,
                "assignment": CONSUMER_PROTOCOL.encode_assignment(
                    ASSIGNMENT_VERSION, {"assigned_partitions": _rows(share), "user_data": None}
                ),
            }
            for member_id, share in shares.items()
        ]

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions topics have now; those that do not exist are left out."""
        topics = set(topics)
        self.cluster.refresh(topics)
        known = self.cluster.topics
        return {name: len(known[name].partitions) for name in sorted(topics) if name in known}

    # ---- what goes wrong ---------------------------------------------------------------

    def _again(self, problem: errors.KafkalogError) -> None:
        """After a failure: it goes on after a pause.  Raises it when it lasts."""
        before, self.state = self.state, OUT
        if problem.code in LOST:
            self.lose(problem)
        elif problem.code != ErrorCode.REBALANCE_IN_PROGRESS:
            if problem.code == ErrorCode.FENCED_INSTANCE_ID:
                self.lose(problem)
            if not passing(problem) or not self.cluster.reached:
                raise problem
            _logger.info("group %s: %s", self.metadata.group, problem)
            if before == SHARING:  # the others wait for what it shares out
                self.state = SHARING
                self.cluster.forget()
            else:
                self._drop_connection()
        options = self.cluster.options
        low, high = options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000
        self._pause_s = min(max(low, self._pause_s * 2), high)
        self._rest_until_s = time.monotonic() + self._pause_s

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.give_up()
            self._connection = None
        self.cluster.forget_coordinator(self.metadata.group)

    def look(self) -> errors.KafkalogError | None:
        """What has happened since it is in; it joins at the next step if that is not None, unless
        it is `fenced`.

        Raises: whatever else the coordinator says that lasts.
        """
        if self.state != IN:
            return None
        problem = ended = self.ended()
        if ended is None:
            problem = self._keeper.problem()
        if problem is None:
            return None
        if ended is None and problem.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
            return problem
        self.lose(problem)
        if ended is None and self.fenced is None:
            raise problem
        return problem

    def ended(self) -> errors.KafkalogError | None:
        """Why what it reads may be others' by now; None: it may not.  It loses it then."""
        keeper, why = self._keeper, ""
        if self.fenced is not None:
            return self.fenced
        if keeper.left:
            ms = self.options.rebalance_timeout_ms
            why = (
                f"poll was not called in max_poll_interval_ms ({ms} ms): the partitions were given "
                "up"
            )
        elif keeper.lapsed:
            ms = self.options.session_timeout_ms
            why = (
                f"no heartbeat was answered in session_timeout_ms ({ms} ms): the partitions may be "
                "others' by now"
            )
        if why:
            return errors.Timeout(f"group {self.metadata.group!r}: {why}")
        problem = keeper.problem()
        return problem if problem is not None and problem.code in LOST else None

    def rejoin(self) -> None:
        """Join again at the next step, as the member that it is."""
        if self.connection is not None:  # an answer is due there, to what is not wanted any more
            self.connection.close()
        self.state = OUT

    def mind_fencing(self, committer: GroupMetadata, problem: errors.KafkalogError) -> None:
        """A commit failed: where another member has this one's instance id, it is out for good."""
        fenced = problem.code == ErrorCode.FENCED_INSTANCE_ID
        if fenced and committer.member_id == self.metadata.member_id:  # else as another member
            self.lose(problem)

    def lose(self, problem: errors.KafkalogError | None) -> None:
        """It is in no generation now, or (None; it left; it is unknown) in no group at all.

        Its id stays in the first case: a static member that was replaced is told so again, and does
        not take the other's place.
        """
        if problem is not None and problem.code == ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = problem
        unknown = problem is None or problem.code == ErrorCode.UNKNOWN_MEMBER_ID
        gone = unknown or self._keeper.left
        self._keeper.rest()
        self.metadata = self.metadata._replace(
            generation=NO_GENERATION, member_id="" if gone else self.metadata.member_id
        )
        self.state = OUT
        self._told = [], NO_GENERATION

    # ---- the end -----------------------------------------------------------------------

    def leave(self, reason: str) -> None:
        """Say goodbye.  A static member stays: it is expected back.  A coordinator that cannot be
        reached finds out by itself.
        """
        self._keeper.rest()
        if self.metadata.member_id and self.options.instance_id is None:
            try:
                leave_group(self.cluster, self.metadata, reason)
            except errors.KafkalogError as problem:
                if problem.code in COORDINATOR_MOVED:
                    self.cluster.forget_coordinator(self.metadata.group)
        self.lose(None)
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# ---- what members send each other -------------------------------------------------------------


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


def _share(data: bytes) -> list[TopicPartition]:
    if not data:
        return []
    _, found = CONSUMER_PROTOCOL.decode_assignment(data)
    return sorted(_partitions(found.assigned_partitions))


def _partitions(rows: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(row.topic, p) for row in rows for p in row.partitions]


def _rows(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return [{"topic": topic, "partitions": some} for topic, some in topics.items()]
