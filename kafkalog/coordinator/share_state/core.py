"""All share partitions whose state this broker coordinates, without a thread: finds the share
partition of each request, and has old records replaced and deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kafkalog.config.share_state import ShareStateConfig
from kafkalog.coordinator.core import (
    UNSETTLED_BYTES_MAX,
    Append,
    CoordinatorState,
    append_error,
)
from kafkalog.coordinator.journal import JournalBatch
from kafkalog.coordinator.share_state import loader
from kafkalog.coordinator.share_state.messages import SERVED, answer, asked_in
from kafkalog.coordinator.share_state.persister import (
    InitializeState,
    StateChanged,
    WriteState,
)
from kafkalog.coordinator.share_state.records import key_of
from kafkalog.coordinator.share_state.requests import (
    Decision,
    Given,
    Request,
    Result,
    cold,
    decide,
    failed,
)
from kafkalog.coordinator.share_state.shard import (
    BATCH_BYTES,
    ENTRY_BYTES,
    ShareStateShard,
    Work,
)
from kafkalog.coordinator.share_state.state import Kept, SharePartition, applied
from kafkalog.coordinator.step import Call, Step
from kafkalog.coordinator.timers import Key
from kafkalog.coordinator.weight import Weight
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["SERVED", "Prune", "ShareStateCoordinator"]

COLD_MAX = 1_000
"""Snapshots of states that do not change, in one step; requests have their turn in between."""
COLD_PAUSE_MS = 100
"""How long before the next ones, if there are more."""
_SNAPSHOT_KIND = b"\0\0"
"""A snapshot's key begins with it."""
_NOTHING = StateChanged(UUID(int=0), 0, ErrorCode.NONE)
"""The result of a change that no request waits for."""
_PRUNE: Key = ("prune", -1, "", "")
_COLD: Key = ("cold", -1, "", "")
Done = Callable[[Step, Sequence[Result]], None]


class Prune(NamedTuple):
    """An effect of a step: delete the records of a partition below an offset, all of which are
    committed and replaced; `not_pruned` if that fails."""

    partition: int
    offset: int


def _batches(kept: Kept) -> int:
    return len(kept.state.state_batches)


class ShareStateCoordinator(CoordinatorState[ShareStateShard]):
    """The states of share partitions.  Only for the coordinator's thread."""

    def __init__(self, config: ShareStateConfig, exists: Callable[[UUID, int], bool]) -> None:
        """`exists`: whether a topic, by its id, has a partition."""
        super().__init__(config.share_coordinator_write_timeout_ms)
        self.config = config
        self._exists = exists
        self.weight = Weight()
        """Approximate memory of all states."""

    # ---- partitions ------------------------------------------------------------------------

    def new_shard(self, partition: int, epoch: int) -> ShareStateShard:
        """An empty shard of a partition, to be filled by `load`."""
        return ShareStateShard(partition, epoch, self.config, self.timers)

    def load(self, shard: ShareStateShard, batches: Iterable[JournalBatch], wall_ms: int) -> None:
        """Fill an empty shard from its journal; in any thread, touches no timer."""
        loader.load(shard, batches)

    def _resume(self, shard: ShareStateShard, step: Step) -> None:
        shard.weight.move(self.weight)
        config = self.config
        for key, ms in (
            (_PRUNE, config.share_coordinator_state_topic_prune_interval_ms),
            (_COLD, config.share_coordinator_cold_partition_snapshot_interval_ms),
        ):
            if key not in self.timers:
                self.timers.set(key, step.now_ms + ms)

    def _resigned(self, shard: ShareStateShard, step: Step) -> None:
        shard.weight.move(None)
        shard.refuse_waiting(step, ErrorCode.NOT_COORDINATOR)

    # ---- requests --------------------------------------------------------------------------

    def request(self, api: Api, request: Call, step: Step) -> None:
        """Take a request; it is answered in this step or a later one."""
        group_id, asked = asked_in(api, request.body)

        def done(step: Step, results: Sequence[Result]) -> None:
            step.answer(request.answer, **answer(api, request.version, results))

        self.take(step, group_id, asked, done)

    def refuse(self, api: Api, request: Call, step: Step, error: ErrorCode) -> None:
        """Answer with an error that does not depend on a state."""
        _, asked = asked_in(api, request.body)
        results = [failed(one, error) for one in asked]
        step.answer(request.answer, **answer(api, request.version, results))

    def take(self, step: Step, group_id: str, asked: Sequence[Request], done: Done) -> None:
        """Carry out requests about share partitions of a group; `done` gets the results in their
        order, in this step or a later one."""
        results: dict[int, Result] = {}

        def one(number: int, step: Step, error: ErrorCode, result: Result | None) -> None:
            if result is None:
                result = failed(asked[number], append_error(error))
            results[number] = result
            if len(results) == len(asked):
                done(step, [results[i] for i in range(len(asked))])

        if not asked:
            done(step, [])
        for number, each in enumerate(asked):
            where = SharePartition(group_id, each.topic_id, each.partition)
            self._take(step, where, each, partial(one, number))

    def _take(
        self, step: Step, where: SharePartition, asked: Request,
        then: Callable[[Step, ErrorCode, Result | None], None],
    ) -> None:  # fmt: skip
        shard, error = self.where(where.key)
        if shard is None:
            then(step, error, None)
        elif not self._has_room(where, asked, shard):
            then(step, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
        else:
            shard.take(step, where, Work(partial(self._decide, asked), then))

    def _decide(self, asked: Request, step: Step, kept: Kept | None) -> Decision:
        updates = self.config.share_coordinator_snapshot_update_records_per_snapshot
        decision = decide(asked, kept, Given(step.wall_ms, updates, self._exists))
        if isinstance(asked, WriteState) and decision.changes and kept is not None:
            most = self.config.kafkalog_share_states_max_bytes
            if self.weight.bytes + BATCH_BYTES * len(asked.state_batches) > most:
                after = applied(kept, decision.changes[0], updates)
                if after is not None and _batches(after) > _batches(kept):
                    return Decision(failed(asked, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return decision

    def _has_room(self, where: SharePartition, asked: Request, shard: ShareStateShard) -> bool:
        """True if the memory for a new state is there, and for the records of a change."""
        more = 0
        if isinstance(asked, InitializeState) and where not in shard.entries:
            more = ENTRY_BYTES + 4 * len(where.group_id)
        elif not isinstance(asked, InitializeState | WriteState):
            return True
        fits = self.weight.bytes + more <= self.config.kafkalog_share_states_max_bytes
        return (fits or not more) and self.unsettled_bytes <= UNSETTLED_BYTES_MAX

    # ---- topics ----------------------------------------------------------------------------

    def drop_topics(self, topic_ids: Collection[UUID], step: Step) -> None:
        """Topics were deleted: forget the states of their partitions."""
        for shard in self.shards.values():
            self._forget(shard, step, [one for one in shard.live() if one.topic_id in topic_ids])

    def _forget(self, shard: ShareStateShard, step: Step, gone: Collection[SharePartition]) -> None:
        """Write tombstones; `_snapshot_cold` repeats those that fail."""

        def forget(_step: Step, kept: Kept | None) -> Decision:
            return Decision(_NOTHING, () if kept is None else (None,))

        for where in gone:
            self._write(shard, step, where, forget)

    @staticmethod
    def _write(
        shard: ShareStateShard, step: Step, where: SharePartition,
        decide: Callable[[Step, Kept | None], Decision],
    ) -> None:  # fmt: skip
        """Make a change that no request waits for."""
        shard.take(step, where, Work(decide, lambda _step, _error, _result: None))

    # ---- time ------------------------------------------------------------------------------

    def _expire(self, key: Key, step: Step) -> None:
        if key == _PRUNE:
            self._prune(step)
        elif key == _COLD:
            self._snapshot_cold(step)
        elif (shard := self.shards.get(key[1])) is not None:
            where = SharePartition.of(key[2])
            shard.refuse_waiting(step, ErrorCode.COORDINATOR_NOT_AVAILABLE, where)

    def _prune(self, step: Step) -> None:
        """Have the records deleted that later ones replace."""
        if self.shards:
            ms = self.config.share_coordinator_state_topic_prune_interval_ms
            self.timers.set(_PRUNE, step.now_ms + ms)
        for shard in self.shards.values():
            needed = shard.needed
            if needed > shard.pruned:
                shard.pruned = needed
                step.effects.append(Prune(shard.partition, needed))

    def not_pruned(self, effect: Prune, _step: Step) -> None:
        """The records could not be deleted: they are with the next ones."""
        shard = self.shards.get(effect.partition)
        if shard is not None:
            shard.pruned = 0

    def _snapshot_cold(self, step: Step) -> None:
        """Write states again that have not changed for long, and forget those of topics that are
        gone: `drop_topics` misses partitions that are loading, and its records may fail."""
        interval_ms = self.config.share_coordinator_cold_partition_snapshot_interval_ms
        written = 0
        for shard in self.shards.values():
            written += self._snapshot_cold_of(shard, step, interval_ms, COLD_MAX - written)
        if self.shards:
            ms = COLD_PAUSE_MS if written >= COLD_MAX else interval_ms
            self.timers.set(_COLD, step.now_ms + ms)

    def _snapshot_cold_of(
        self, shard: ShareStateShard, step: Step, interval_ms: int, at_most: int
    ) -> int:
        kept = [(where, one.kept) for where, one in shard.entries.items()
                if one.kept is not None and not one.changes]  # fmt: skip
        gone = [where for where, _ in kept if not self._exists(where.topic_id, where.partition)]
        if gone:
            none = frozenset(gone)
            kept = [one for one in kept if one[0] not in none]
        forgotten = gone[:at_most]
        self._forget(shard, step, forgotten)
        at_most -= len(forgotten)
        if all(one.state.created_ms != one.state.written_ms for _, one in kept):
            return len(forgotten)  # the others would only be copies of copies
        due = [where for where, one in kept if step.wall_ms - one.state.written_ms >= interval_ms][
            :at_most
        ]

        def again(step: Step, kept: Kept | None) -> Decision:
            return Decision(_NOTHING, () if kept is None else (cold(kept, step.wall_ms),))

        for where in due:
            self._write(shard, step, where, again)
        return len(forgotten) + len(due)

    # ---- the journal -----------------------------------------------------------------------

    def _placed(self, append: Append, base_offset: int) -> None:
        shard = self.shards.get(append.partition)
        if shard is None or base_offset < 0:
            return
        for number, (key, value) in enumerate(append.records):
            if key[:2] == _SNAPSHOT_KIND:
                found = key_of(key)
                assert found is not None
                shard.placed(found[0], value is None, base_offset + number)
