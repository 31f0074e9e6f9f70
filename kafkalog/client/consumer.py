"""A member of a consumer group: joins, shares partitions out, beats, commits.

Blocking, without a thread of its own: `poll` also keeps the membership alive, and has to be
called at least once a session timeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.assignors import Subscriber, range_assignment
from kafkalog.client.cluster import Cluster, passing
from kafkalog.client.connection import Connection
from kafkalog.client.failures import check_code, failure_class
from kafkalog.client.fetcher import Fetched, Fetcher, FetchOptions
from kafkalog.client.groups import Committed, commit_offsets, committed_offsets
from kafkalog.client.offsets import EARLIEST, LATEST, list_offsets
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL

__all__ = ["GroupConsumer", "GroupOptions", "Membership"]

NO_GENERATION = -1
REJOIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
COORDINATOR_MOVED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
GRACE_MS = 5_000


class GroupOptions(NamedTuple):
    """How a member behaves; times in milliseconds."""

    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    heartbeat_ms: int = 3_000
    commit_ms: int = 5_000
    """How often `poll` commits; 0: never."""
    metadata_ms: int = 60_000
    """How often the leader looks whether a topic has grown."""
    instance_id: str | None = None
    reset: str = "earliest"
    """earliest or latest: where to begin without a committed offset; error: not at all."""


class Membership:
    """One member: its id, its generation, its partitions.  One thread at a time."""

    def __init__(
        self, cluster: Cluster, group: str, topics: Sequence[str], options: GroupOptions
    ) -> None:
        """Nothing is sent yet."""
        self.cluster = cluster
        self.group = group
        self.topics = sorted(set(topics))
        self.options = options
        self.member_id = ""
        self.generation = NO_GENERATION
        self.leading = False
        self.assignment: list[TopicPartition] = []
        self._connection: Connection | None = None
        self._next_beat_s = 0.0
        self._next_look_s = 0.0
        self._counts: dict[str, int] = {}

    @property
    def joined(self) -> bool:
        """Whether it belongs to a generation, as far as it knows."""
        return self.generation != NO_GENERATION

    def _coordinator(self) -> Connection:
        """A connection of its own: a join waits long."""
        if self._connection is None or self._connection.closed:
            node = self.cluster.coordinator(self.group)
            self._connection = self.cluster.another(node)
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.cluster.forget_coordinator(self.group)

    def _call(self, api: Any, body: dict[str, Any], patience_ms: int | None = None) -> Any:
        try:
            return self._coordinator().call(api, body, timeout_ms=patience_ms)
        except errors.KafkalogError as problem:
            if passing(problem):
                self._drop_connection()
            raise

    # ---- joining -----------------------------------------------------------------------

    def join(self) -> None:
        """Become a member of the next generation; waits for the others.

        Raises: what the coordinator answers and lasts; the last failure when none helps in
        the API timeout.
        """
        backoff = self.cluster.backoff(
            self.options.rebalance_timeout_ms + self.cluster.options.api_timeout_ms
        )
        while True:
            try:
                if self._try_join():
                    return
            except errors.KafkalogError as problem:
                if backoff.over() or not (passing(problem) or problem.code in REJOIN):
                    raise
                self._after(problem)
                backoff.wait()

    def _after(self, problem: errors.KafkalogError) -> None:
        """What a failure means for the membership."""
        self.generation = NO_GENERATION
        if problem.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if problem.code in COORDINATOR_MOVED:
            self._drop_connection()

    def _try_join(self) -> bool:
        """One join and sync; False: once more, with the id that the coordinator gave."""
        metadata = CONSUMER_PROTOCOL.encode_subscription(0, {"topics": self.topics})
        answer = self._call(
            apis.JOIN_GROUP,
            {
                "group_id": self.group,
                "session_timeout_ms": self.options.session_timeout_ms,
                "rebalance_timeout_ms": self.options.rebalance_timeout_ms,
                "member_id": self.member_id,
                "group_instance_id": self.options.instance_id,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": metadata}],
            },
            self.options.rebalance_timeout_ms + GRACE_MS,
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return False
        check_code(answer.error_code, f"group {self.group!r}")
        self.member_id = answer.member_id
        self.leading = answer.leader == answer.member_id
        shares = self._shares(answer.members) if self.leading else []
        synced = self._call(
            apis.SYNC_GROUP,
            {
                "group_id": self.group,
                "generation_id": answer.generation_id,
                "member_id": self.member_id,
                "group_instance_id": self.options.instance_id,
                "protocol_type": "consumer",
                "protocol_name": answer.protocol_name,
                "assignments": shares,
            },
            self.options.rebalance_timeout_ms + GRACE_MS,
        )
        check_code(synced.error_code, f"group {self.group!r}")
        self.generation = answer.generation_id
        self.assignment = _assigned(synced.assignment)
        now_s = self.cluster.clock.monotonic_s()
        self._next_beat_s = now_s + self.options.heartbeat_ms / 1000
        self._next_look_s = now_s + self.options.metadata_ms / 1000
        return True

    def _shares(self, members: Sequence[Any]) -> list[dict[str, Any]]:
        """The leader's work: partitions for everybody."""
        subscribers = []
        for member in members:
            _, subscription = CONSUMER_PROTOCOL.decode_subscription(member.metadata)
            subscribers.append(
                Subscriber(member.member_id, member.group_instance_id, tuple(subscription.topics))
            )
        self._counts = self._partition_counts({t for s in subscribers for t in s.topics})
        shares = range_assignment(subscribers, self._counts)
        return [
            {
                "member_id": member_id,
                "assignment": CONSUMER_PROTOCOL.encode_assignment(0, _by_topic(partitions)),
            }
            for member_id, partitions in shares.items()
        ]

    def _partition_counts(self, topics: set[str]) -> dict[str, int]:
        self.cluster.refresh(topics)
        known = self.cluster.topics
        return {name: len(known[name].partitions) for name in sorted(topics) if name in known}

    # ---- staying -----------------------------------------------------------------------

    def beat(self) -> None:
        """Send a heartbeat when it is time; afterwards `joined` tells whether to join again.

        Raises: what the coordinator answers and lasts (FencedInstanceId).
        """
        now_s = self.cluster.clock.monotonic_s()
        if self.leading and now_s >= self._next_look_s:
            self._next_look_s = now_s + self.options.metadata_ms / 1000
            if self._partition_counts(set(self._counts)) != self._counts:
                self.generation = NO_GENERATION
                return
        if now_s < self._next_beat_s:
            return
        self._next_beat_s = now_s + self.options.heartbeat_ms / 1000
        try:
            answer = self._call(
                apis.HEARTBEAT,
                {
                    "group_id": self.group,
                    "generation_id": self.generation,
                    "member_id": self.member_id,
                    "group_instance_id": self.options.instance_id,
                },
            )
            check_code(answer.error_code, f"group {self.group!r}")
        except errors.KafkalogError as problem:
            if problem.code in COORDINATOR_MOVED or passing(problem):
                # The same generation may go on with the new coordinator.
                self._drop_connection()
                self._next_beat_s = now_s + self.cluster.options.retry_backoff_max_ms / 1000
            elif problem.code in REJOIN:
                self._after(problem)
            else:
                raise

    def leave(self) -> None:
        """Say goodbye, so that the others need not wait for the session to end.

        A static member stays: it is expected back.  A coordinator that cannot be reached
        finds out by itself.
        """
        if self.member_id and self.options.instance_id is None:
            try:
                self._call(
                    apis.LEAVE_GROUP,
                    {
                        "group_id": self.group,
                        "member_id": self.member_id,
                        "members": [{"member_id": self.member_id, "reason": "closed"}],
                    },
                )
            except errors.KafkalogError:
                self.generation = NO_GENERATION
        self.generation, self.member_id = NO_GENERATION, ""
        if self._connection is not None:
            self._connection.close()


def _assigned(data: bytes) -> list[TopicPartition]:
    if not data:
        return []
    _, assigned = CONSUMER_PROTOCOL.decode_assignment(data)
    return sorted(
        TopicPartition(row.topic, p) for row in assigned.assigned_partitions for p in row.partitions
    )


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return {"assigned_partitions": [{"topic": t, "partitions": p} for t, p in topics.items()]}


class GroupConsumer:
    """Reads the partitions that the group gives it.  One thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        options: GroupOptions = GroupOptions(),  # noqa: B008
        fetch: FetchOptions = FetchOptions(),  # noqa: B008
    ) -> None:
        """Nothing is sent yet."""
        self.cluster = cluster
        self.options = options
        self.membership = Membership(cluster, group, topics, options)
        reset = options.reset if options.reset != "error" else "earliest"
        self.fetcher = Fetcher(cluster, {}, fetch._replace(out_of_range=reset))
        self._done: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._next_commit_s = 0.0

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that it reads now."""
        return self.membership.assignment if self.membership.joined else []

    def poll(self, timeout_ms: int | None = None) -> list[Fetched]:
        """What has come; joins first when it must.

        Call `done` for records that were dealt with: these are committed from time to time.

        Raises: as Membership.join and Fetcher.poll.
        """
        if self.membership.joined:
            self.membership.beat()
        if not self.membership.joined:
            self._rejoin()
        now_s = self.cluster.clock.monotonic_s()
        if self.options.commit_ms and now_s >= self._next_commit_s:
            self.commit()
        if not self.fetcher.positions:
            self.cluster.backoff(min(timeout_ms or 500, self.options.heartbeat_ms)).wait()
            return []
        return self.fetcher.poll(timeout_ms)

    def done(self, tp: TopicPartition, next_offset: int) -> None:
        """The records of a partition before `next_offset` were dealt with."""
        if tp in self.fetcher.positions:
            self._done[tp] = next_offset

    def _rejoin(self) -> None:
        """Give back what it had, join, and begin where the group has left off."""
        if self.membership.member_id:
            self._commit_quietly()
        self.fetcher.close()
        self.fetcher.positions.clear()
        self._done.clear()
        self.membership.join()
        partitions = self.membership.assignment
        found = committed_offsets(self.cluster, self.membership.group, partitions)
        self._committed = {tp: c.offset for tp, c in found.items()}
        missing = [tp for tp in partitions if tp not in found]
        if missing and self.options.reset == "error":
            raise errors.OffsetOutOfRange(
                f"group {self.membership.group!r} has committed nothing for "
                f"{missing[0].topic}-{missing[0].partition}"
            )
        where = EARLIEST if self.options.reset == "earliest" else LATEST
        starts = list_offsets(self.cluster, dict.fromkeys(missing, where)) if missing else {}
        self.fetcher.positions.update({tp: c.offset for tp, c in found.items()})
        self.fetcher.positions.update({tp: s.offset for tp, s in starts.items()})
        # Also where nothing was read yet: else `latest` would be another place next time.
        self._done.update(self.fetcher.positions)
        self._next_commit_s = self.cluster.clock.monotonic_s() + self.options.commit_ms / 1000

    def commit(self) -> None:
        """Commit what is done.

        A generation that has ended has others reading its partitions: then nothing is
        committed, and the next poll joins again.

        Raises: what the coordinator answers and lasts.
        """
        self._next_commit_s = self.cluster.clock.monotonic_s() + self.options.commit_ms / 1000
        fresh = {tp: at for tp, at in self._done.items() if self._committed.get(tp) != at}
        if not fresh or not self.membership.member_id:
            return
        member = self.membership
        try:
            commit_offsets(
                self.cluster,
                member.group,
                {tp: Committed(offset) for tp, offset in fresh.items()},
                member.generation,
                member.member_id,
                member.options.instance_id,
            )
        except errors.KafkalogError as problem:
            if problem.code not in REJOIN:
                raise
            if problem.code != ErrorCode.REBALANCE_IN_PROGRESS:
                member._after(problem)
            return
        self._committed.update(fresh)

    def _commit_quietly(self) -> None:
        """Before partitions are given back: what fails is read again by somebody."""
        try:
            self.commit()
        except errors.KafkalogError as problem:
            if isinstance(problem, failure_class(ErrorCode.FENCED_INSTANCE_ID)):
                raise

    def close(self) -> None:
        """Commit what is done, leave the group, close the connections."""
        try:
            if self.membership.joined and self.options.commit_ms:
                self._commit_quietly()
            self.membership.leave()
        finally:
            self.fetcher.close()
