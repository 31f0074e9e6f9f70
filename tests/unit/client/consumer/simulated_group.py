"""The world of simulated consumers: their group's real coordinator, a network, topics that grow and
are deleted, and the judge of what they do.

The judge keeps its own books of requests, answers, and records handed out.  It asks the coordinator
only for the group's generation and members.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from kafkalog.coordinator.groups.core import GroupCoordinatorState
from kafkalog.coordinator.groups.group import Group
from kafkalog.coordinator.groups.offsets import Known
from kafkalog.coordinator.step import Call, Producer
from kafkalog.simulate.world import Violated
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from kafkalog.wire.values import ZERO_UUID
from tests.unit.coordinator.group_calls import config
from tests.unit.coordinator.simulated_world import First, Patience, World
from tests.unit.coordinator.virtual_core import HOST, Reply

__all__ = ["GROUP", "SESSION_MS", "Away", "GroupWorld", "Judge"]

GROUP = "g"
SESSION_MS = 10_000
PATIENCE = Patience(request_ms=20_000, slow_ms=15_000, append_ms=4_000)
SETTINGS = config(group_initial_rebalance_delay_ms=500, offsets_commit_timeout_ms=5_000)
APPEND_ERRORS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
Answer = Callable[[Any], None]
"""Takes a body; an ErrorCode if another node was asked; None if no answer came in time."""
Away = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_TAKEN = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


class Judge:
    """Records what was said and done, and raises Violated if a promise is broken."""

    def __init__(self, world: GroupWorld) -> None:
        self._world = world
        self._told: dict[int, dict[str, set[TopicPartition]]] = {}
        """The assignments by SyncGroup, by generation and member or instance."""
        self._heard_ms: dict[str, int] = {}
        """By member id: when it sent the last request that counted as a sign of life."""
        self.given: dict[TopicPartition, int] = {}
        """The end of the records that any member was handed."""
        self.offsets: dict[TopicPartition, int] = {}
        """The committed offsets."""
        self._setter: dict[TopicPartition, str] = {}
        """The member of the last commit."""

    def restarted(self) -> None:
        """Commits that were not answered may have succeeded or not."""
        group = self._world.group
        if group is not None:
            for topic, partitions in group.offsets.items():
                for p, one in partitions.items():
                    self.offsets[TopicPartition(topic, p)] = one.offset

    # ---- requests to the coordinator ---------------------------------------------------------

    def arrives(self, api: Api, fields: dict[str, Any], sent_ms: int) -> Callable[[Any], None]:
        """Note a request that the coordinator receives; returns what takes its answer."""
        group = self._world.group
        generation = -1 if group is None else group.generation
        members = set() if group is None else set(group.members)

        def answered(body: Any) -> None:
            if api is apis.SYNC_GROUP and body.error_code == 0:
                self._synced(fields, body)
            if api in (apis.SYNC_GROUP, apis.HEARTBEAT) and body.error_code in _TAKEN:
                one = fields["member_id"]
                self._heard_ms[one] = max(self._heard_ms.get(one, 0), sent_ms)
            if api in (apis.OFFSET_COMMIT, apis.TXN_OFFSET_COMMIT):
                taken = _rows(fields, body)
                claimed = fields["generation_id_or_member_epoch"]
                if taken and members and claimed != generation:
                    raise Violated(
                        f"C2: a commit of generation {claimed} went through in {generation}"
                    )
                if api is apis.OFFSET_COMMIT:
                    self.committed(taken, _who(fields), generation)

        return answered

    def _synced(self, fields: dict[str, Any], body: Any) -> None:
        mine = set[TopicPartition]()
        if body.assignment:
            topics = CONSUMER_PROTOCOL.decode_assignment(body.assignment)[1].assigned_partitions
            mine = {TopicPartition(one.topic, p) for one in topics for p in one.partitions}
        generation, who = fields["generation_id"], _who(fields)
        told = self._told.setdefault(generation, {})
        for other, theirs in told.items():
            if other != who and mine & theirs:
                both = sorted(mine & theirs)
                raise Violated(f"C1: generation {generation}: {both} are {other}'s and {who}'s")
        told[who] = mine

    def committed(self, taken: dict[TopicPartition, int], who: str, generation: int) -> None:
        """Note committed offsets; `generation`: the group's when the commit arrived."""
        for tp, offset in taken.items():
            before = self.offsets.get(tp, 0)
            mine = self._told.get(generation, {}).get(who, set())
            others = any(
                tp in theirs for one, theirs in self._told.get(generation, {}).items() if one != who
            )
            # A late or repeated commit sets nobody back while nobody else owns the partition.
            if offset < before and tp not in mine and (others or self._setter.get(tp) != who):
                raise Violated(f"C3: {who} set {_named(tp)} back from {before} to {offset}")
            if offset > self.given.get(tp, 0):
                raise Violated(
                    f"C4: {_named(tp)}: {offset} is committed, and {self.given.get(tp, 0)} is the "
                    "first that nobody was handed"
                )
            self.offsets[tp] = offset
            self._setter[tp] = who

    # ---- what members do ---------------------------------------------------------------------

    def handed_out(
        self, member_id: str, who: str, generation: int, tp: TopicPartition, first: int, end: int
    ) -> None:
        """Note that a member has handed out records, with what it believes of its membership."""
        world = self._world
        before = self.given.get(tp, 0)
        if first > before:
            raise Violated(f"C4: {who} goes on with {_named(tp)} at {first}: {before} is skipped")
        self.given[tp] = max(before, end)
        group = world.group
        assert group is not None
        told = self._told.get(group.generation, {})
        others = [one for one, theirs in told.items() if one != who and tp in theirs]
        what = f"{who} ({member_id} of {generation}) hands out {_named(tp)}"
        if generation == group.generation and others:
            raise Violated(f"C1: {what}, which is {others[0]}'s in that generation")
        heard_ms = self._heard_ms.get(member_id, -SESSION_MS)
        if (member_id not in group.members or others) and world.now_ms >= heard_ms + SESSION_MS:
            raise Violated(
                f"C5: {what} at {world.now_ms}, and was last counted in for what it sent at "
                f"{heard_ms}"
            )


def _who(fields: dict[str, Any]) -> str:
    return str(fields.get("group_instance_id") or fields["member_id"])


def _named(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _rows(fields: dict[str, Any], body: Any) -> dict[TopicPartition, int]:
    """The offsets of a commit that were accepted."""
    asked = {
        TopicPartition(topic["name"], row["partition_index"]): row["committed_offset"]
        for topic in fields["topics"]
        for row in topic["partitions"]
    }
    return {
        tp: asked[tp]
        for topic in body.topics
        for row in topic.partitions
        if not row.error_code and (tp := TopicPartition(topic.name, row.partition_index)) in asked
    }


class GroupWorld(World[GroupCoordinatorState]):
    """Time, the coordinator, its journal, the network, the topics."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, PATIENCE, APPEND_ERRORS)
        self.topics: dict[str, int] = {"a": self.rng.randint(1, 4), "b": self.rng.randint(1, 3)}
        self.ends: dict[TopicPartition, int] = {}
        """The number of records in each partition."""
        self.judge = Judge(self)
        self.away_until_ms = 0
        """Until then another node coordinates the group, and it is not found."""
        self.silent_until_ms = 0
        """Until then the coordinator handles nothing."""
        self._ids: dict[str, UUID] = {}
        self.restart()

    def new_core(self) -> GroupCoordinatorState:
        rng = self.rng
        known = Known(lambda name: self.topics.get(name, 0), self._id_of, self._name_of)
        return GroupCoordinatorState(SETTINGS, lambda: f"{rng.getrandbits(32):08x}", known)

    def _id_of(self, name: str) -> UUID:
        if name not in self.topics:
            return ZERO_UUID
        return self._ids.setdefault(name, UUID(int=len(self._ids) + 1))

    def _name_of(self, topic_id: UUID) -> str | None:
        return next((name for name, one in self._ids.items() if one == topic_id), None)

    def keeps_unfinished(self) -> bool:
        return False

    def crashed(self) -> None:
        self.judge.restarted()

    def restart(self) -> None:
        super().restart()
        self.judge.restarted()

    @property
    def group(self) -> Group | None:
        return self.core.shards[0].groups.get(GROUP)

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions that exist."""
        return [TopicPartition(name, p) for name, n in self.topics.items() for p in range(n)]

    def has(self, tp: TopicPartition) -> bool:
        """True if the cluster has the partition."""
        return tp.partition < self.topics.get(tp.topic, 0)

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Partition counts, as in the metadata."""
        return {name: self.topics[name] for name in sorted(topics) if name in self.topics}

    # ---- the network -------------------------------------------------------------------------

    def ask(
        self, api: Api, version: int, fields: dict[str, Any], then: Answer, timeout_ms: int,
        allowed: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
    ) -> None:  # fmt: skip
        """Send a request to the node that seems to be the coordinator."""
        self.patience = dataclasses.replace(PATIENCE, request_ms=timeout_ms)
        sent_ms = self.now_ms

        def request(answered: Answer) -> None:
            def handle() -> None:
                self._handle(api, version, fields, sent_ms, answered, allowed)

            self.later(max(self.silent_until_ms - self.now_ms, 0), handle)

        self.post(request, then)

    def _handle(
        self, api: Api, version: int, fields: dict[str, Any], sent_ms: int, answered: Answer,
        allowed: Callable[[], ErrorCode],
    ) -> None:  # fmt: skip
        if self.now_ms < self.away_until_ms:
            answered(self.rng.choice(Away))
            return
        reply, life = Reply(api, version), self.life
        judged = self.judge.arrives(api, fields, sent_ms)

        def answer(body: dict[str, Any]) -> None:
            reply(body)  # at most once
            if life == self.life:
                judged(reply.body)
                answered(reply.body)

        decoded = api.decode_request(version, api.encode_request(version, fields))
        asked = Call(decoded, version, "client", HOST, answer, allowed)
        self.step(lambda step: self.core.request(api, asked, step))

    def end_transaction(self, producer: Producer, ended: Callable[[], None]) -> None:
        """Write the transaction's markers, retrying as often as necessary."""
        life = self.life

        def done(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                ended()
            else:
                self.later(100, lambda: self.end_transaction(producer, ended))

        def lost() -> None:  # the coordinator died first
            if life != self.life and not first.over:
                first.over = True
                self.end_transaction(producer, ended)

        first = First(done)
        self.later(PATIENCE.append_ms * 2, lost)
        self.step(lambda step: self.core.end_transaction(0, producer, lambda: None, first, step))
