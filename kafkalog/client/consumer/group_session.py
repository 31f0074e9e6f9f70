"""A member's conversation with a group of KIP-848: which heartbeat is due, what its answer means.

It only decides: no clock, no socket, no thread.  The GroupHeartbeats thread carries it out.
Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog import errors
from kafkalog.client.calls.groups import GroupMetadata
from kafkalog.client.consumer.session import COORDINATOR_MOVED, Heard
from kafkalog.client.link.failures import passing
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["FENCED", "Assigned", "Change", "GroupBeat", "GroupOptions", "GroupSession"]

Assigned = Mapping[UUID, frozenset[int]]
"""Partitions by topic id."""
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
"""The group has removed the member, which joins again."""
JOINING, LEFT, LEFT_STATIC = 0, -1, -2
NO_EPOCH = -1


class GroupOptions(NamedTuple):
    """Settings of a member; times in milliseconds."""

    group: str
    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    poll_interval_ms: int = 300_000
    assignor: str | None = None
    """The coordinator's assignor; None: its default."""
    pauses_s: tuple[float, float] = (0.1, 1.0)
    """The shortest and longest backoff."""


class GroupBeat(NamedTuple):
    """A heartbeat is due."""

    body: dict[str, Any]
    joins: int
    wanted: tuple[tuple[str, ...], str | None]
    owned: Assigned

    @property
    def leaves(self) -> bool:
        """True if it is the last one."""
        return bool(self.body["member_epoch"] < JOINING)


class GroupSession:
    """The state of one member.  Two threads change it, one at a time: GroupHeartbeats locks it."""

    def __init__(self, options: GroupOptions, now_s: float) -> None:
        self.options = options
        self.polled_s = now_s
        """When the owner polled last; infinite: it is waiting for the group."""
        self.epoch = NO_EPOCH
        """0: it joins; negative: it is not a member."""
        self.first_epoch = NO_EPOCH
        """The epoch in which it became a member."""
        self.latest_epoch = NO_EPOCH
        """The last epoch that it was in."""
        self.joins = 0
        """How often it has begun to join."""
        self.target: Assigned | None = None
        """The partitions that it should have; None: not known since it joined."""
        self.lost: errors.KafkalogError | None = None
        """Why it is no longer a member, until its owner has given up its partitions."""
        self.refused: errors.KafkalogError | None = None
        """A refusal that leaves it a member, until its owner has seen it."""
        self.leaving = False
        """True until the coordinator knows that it leaves, or cannot be reached."""
        self._wanted: tuple[tuple[str, ...], str | None] = ((), None)
        self._owned: Assigned = {}
        self._sent: tuple[tuple[str, ...], str | None] | None = None
        self._sent_owned: Assigned = {}
        self._had_pattern = False
        self._full = True
        self._next_beat_s = 0.0
        self._pause_s = 0.0

    # ---- for the owner -------------------------------------------------------------------

    # Each returns True if a heartbeat may be due earlier than before.

    def subscribe(self, topics: Iterable[str], pattern: str | None) -> bool:
        """Be a member that wants these."""
        wanted = tuple(sorted(set(topics))), pattern
        changed = wanted != self._wanted
        if changed:
            self._wanted, self._next_beat_s = wanted, 0.0
        if self.epoch < JOINING and self.lost is None and not self.leaving:
            self.epoch = JOINING
            self.joins += 1
            self.target, self._owned, self._full = None, {}, True
            self.first_epoch, self._next_beat_s = NO_EPOCH, 0.0
            changed = True
        return changed

    def acknowledge(self, joins: int, owned: Assigned) -> bool:
        """It has exactly these, and has given up the others.  Without effect if it has joined
        again since."""
        changed = joins == self.joins and owned != self._owned
        if changed:
            self._owned, self._next_beat_s = owned, 0.0
        return changed

    def gave_up(self) -> bool:
        """Its owner has given up what a lost member had."""
        self.lost = self.target = None
        return False

    def leave(self) -> bool:
        """Leave the group, with the next heartbeat."""
        self.leaving = self.epoch >= JOINING
        self.gave_up()
        return self.leaving

    # ---- heartbeats ----------------------------------------------------------------------

    def due(self, now_s: float) -> GroupBeat | float | None:
        """The heartbeat that is due, or the time of the next; None: nothing until `subscribe`."""
        if self.epoch < JOINING:
            return None
        late_s = self.polled_s + self.options.poll_interval_ms / 1000
        if self.leaving or now_s >= late_s:
            if not self.leaving:  # before it is answered: others may get its partitions
                ms, self.leaving = self.options.poll_interval_ms, True
                self._lose(
                    errors.Timeout(
                        f"group {self.options.group!r}: poll was not called in "
                        f"max_poll_interval_ms ({ms} ms): the partitions were given up"
                    )
                )
            self.epoch = NO_EPOCH
            static = self.options.instance_id is not None
            return self._beat(self._body(LEFT_STATIC if static else LEFT))
        if now_s >= self._next_beat_s:
            return self._beat(self._said())
        return min(late_s, self._next_beat_s)

    def _beat(self, body: dict[str, Any]) -> GroupBeat:
        return GroupBeat(body, self.joins, self._wanted, self._owned)

    def _body(self, epoch: int) -> dict[str, Any]:
        options = self.options
        return {
            "group_id": options.group, "member_id": options.member_id, "member_epoch": epoch,
            "instance_id": options.instance_id, "rack_id": None, "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None, "subscribed_topic_regex": None,
            "server_assignor": None, "topic_partitions": None,
        }  # fmt: skip

    def _said(self) -> dict[str, Any]:
        """Everything, when it joins or the last heartbeat failed; otherwise only changes."""
        options, body = self.options, self._body(self.epoch)
        if self._full or self._wanted != self._sent:
            names, pattern = self._wanted
            self._had_pattern |= pattern is not None
            body["subscribed_topic_names"] = list(names)
            # An empty pattern ends an earlier one; null leaves it.
            body["subscribed_topic_regex"] = pattern or ("" if self._had_pattern else None)
        if self._full:
            body |= {
                "rack_id": options.rack, "rebalance_timeout_ms": options.poll_interval_ms,
                "server_assignor": options.assignor,
            }  # fmt: skip
        if self._full or self._owned != self._sent_owned:
            body["topic_partitions"] = [
                {"topic_id": topic, "partitions": sorted(some)}
                for topic, some in sorted(self._owned.items())
            ]
        return body

    def answered(self, beat: GroupBeat, answer: Any, now_s: float) -> Heard:
        """A heartbeat has succeeded."""
        if beat.leaves:
            self.leaving = False
            return Heard(moved=False, news=True)
        if beat.joins != self.joins or self.epoch < JOINING:
            return Heard(moved=False, news=False)
        self.epoch = self.latest_epoch = answer.member_epoch
        if self.first_epoch < JOINING:
            self.first_epoch = self.epoch
        self._sent, self._sent_owned, self._full, self._pause_s = beat.wanted, beat.owned, False, 0
        changed = self._wanted != beat.wanted or self._owned != beat.owned
        self._next_beat_s = 0.0 if changed else now_s + answer.heartbeat_interval_ms / 1000
        given = answer.assignment
        if given is None:
            return Heard(moved=False, news=False)
        # A topic without partitions could not be acknowledged: the member has none of it.
        rows = (one for one in given.topic_partitions if one.partitions)
        target = {one.topic_id: frozenset(one.partitions) for one in rows}
        before, self.target = self.target, target
        return Heard(moved=False, news=before != target)

    def failed(self, beat: GroupBeat, problem: errors.KafkalogError, now_s: float) -> Heard:
        """A heartbeat has failed, or its answer is missing."""
        moved = problem.code in COORDINATOR_MOVED or passing(problem)
        if beat.leaves:  # the coordinator notices by itself
            self.leaving = False
            return Heard(moved, news=True)
        if beat.joins != self.joins or self.epoch < JOINING:
            return Heard(moved, news=False)
        if self.leaving and not moved and problem.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.leaving, self.epoch = False, NO_EPOCH  # the group has removed it already
            return Heard(moved=False, news=True)
        self._full = True
        low_s, high_s = self.options.pauses_s
        self._pause_s = min(max(low_s, self._pause_s * 2), high_s)
        self._next_beat_s = now_s + self._pause_s
        if moved:
            return Heard(moved=True, news=False)
        if problem.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.refused = problem
        else:
            self._lose(problem)
        return Heard(moved=False, news=True)

    def _lose(self, problem: errors.KafkalogError) -> None:
        self.lost, self.epoch = problem, NO_EPOCH

    # ---- who it is -------------------------------------------------------------------------

    def identity(self, epoch: int) -> GroupMetadata:
        """The member, in an epoch."""
        options = self.options
        return GroupMetadata(
            options.group, epoch if epoch > 0 else NO_EPOCH, options.member_id, options.instance_id
        )

    def current(self, earlier: GroupMetadata) -> GroupMetadata | None:
        """The member in its current epoch; None: it has lost its partitions since the earlier
        one."""
        kept = JOINING < self.first_epoch <= earlier.generation and self.epoch > JOINING
        return self.identity(self.epoch) if kept else None


Change = Callable[[GroupSession], bool]
"""Changes a session; True: a heartbeat may be due earlier than before."""
