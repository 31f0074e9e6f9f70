"""Random requests to the share coordinator, failures and restarts, next to a model; mistakes that
are planted are found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from kafkalog.coordinator.core import append_error
from kafkalog.coordinator.share_state import core, requests, shard, state
from kafkalog.coordinator.share_state.persister import StateBatch, WriteState
from kafkalog.coordinator.share_state.requests import Decision
from kafkalog.coordinator.share_state.state import Snapshot, Update
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.share_calls import TOPIC, ShareBench, drawn, settings, states

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


class Modelled:
    """A share partition as its users have to see it."""

    def __init__(self, epoch: int, start: int) -> None:
        self.epoch, self.start, self.leader = epoch, start, 0
        self.states: dict[int, tuple[int, int]] = {}

    def write(self, start: int, batches: Iterable[StateBatch]) -> None:
        self.start = max(self.start, start)
        rows = [StateBatch(o, o, kind, count) for o, (count, kind) in self.states.items()]
        self.states = states([*rows, *batches], self.start)


class Life:
    """Random requests, restarts and failures; the answers and the states are as modelled."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.bench = ShareBench(settings(
            snapshot_update_records_per_snapshot=self.rng.randrange(4),
            state_topic_prune_interval_ms=1_000, cold_partition_snapshot_interval_ms=3_000,
        ))  # fmt: skip
        self.model: dict[int, Modelled] = {}

    def run(self, turns: int) -> None:
        for _ in range(turns):
            deeds = [self.initialize, self.read, self.write, self.overlap, self.delete, self.fails,
                     self.restart, self.wait]  # fmt: skip
            self.rng.choices(deeds, [2, 3, 8, 4, 1, 1, 1, 2])[0]()
            self.check()

    def check(self) -> None:
        for number in range(2):
            one, found = self.model.get(number), self.bench.summary(number)
            assert found.error is NONE
            if one is None:
                assert (found.start_offset, found.state_epoch) == (-1, 0)
            else:
                assert (found.start_offset, found.state_epoch) == (one.start, one.epoch)

    def drawn(self) -> tuple[int, Modelled | None, int]:
        """A partition, what is known of it, and a leader epoch near the one that it has."""
        number = self.rng.randrange(2)
        one = self.model.get(number)
        leader = 0 if one is None else max(0, one.leader + self.rng.choice((-1, 0, 0, 0, 1)))
        return number, one, leader

    def initialize(self) -> None:
        number, one, _ = self.drawn()
        epoch, start = self.rng.randrange(3), self.rng.randrange(10)
        found = self.bench.initialize(epoch, start, number)
        if one is not None and one.epoch > epoch:
            assert found.error is ErrorCode.FENCED_STATE_EPOCH
            return
        assert found.error is NONE
        # As in Kafka the snapshot has leader epoch 0: once the records before it are gone, only the
        # next leader's read fences others.
        leader = 0 if one is None else one.leader + 1
        self.model[number] = Modelled(epoch, start)
        self.bench.read(leader, number)
        self.model[number].leader = leader

    def read(self) -> None:
        number, one, leader = self.drawn()
        found = self.bench.read(leader, number)
        if one is None:
            assert found.error is INVALID
        elif leader < one.leader:
            assert found.error is ErrorCode.FENCED_LEADER_EPOCH
        else:
            one.leader = leader
            assert states(found.state_batches, -1) == one.states
            assert (found.start_offset, found.state_epoch) == (one.start, one.epoch)

    def write(self, error: ErrorCode = NONE) -> None:
        number, one, leader = self.drawn()
        epoch = 0 if one is None else max(0, one.epoch + self.rng.choice((-1, 0, 0, 0)))
        batches, start = drawn(self.rng, 4), self.rng.choice((-1, -1, self.rng.randrange(30)))
        found = self.bench.write(*batches, epoch=epoch, leader_epoch=leader, start=start,
                                 partition=number)  # fmt: skip
        if one is None:
            assert found.error is INVALID
        elif leader < one.leader:
            assert found.error is ErrorCode.FENCED_LEADER_EPOCH
        elif epoch < one.epoch:
            assert found.error is ErrorCode.FENCED_STATE_EPOCH
        elif error:
            assert found.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            assert found.error is NONE
            one.write(start, batches)

    def fails(self) -> None:
        self.bench.errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
        self.write(ErrorCode.NOT_ENOUGH_REPLICAS)
        self.bench.errors = []

    def overlap(self) -> None:
        """Writes come while another one is written, which may fail."""
        number, one, _ = self.drawn()
        if one is None:
            return
        self.bench.held = []
        asked = [drawn(self.rng, 4) for _ in range(3)]
        found = [
            self.bench.ask(WriteState(TOPIC, number, one.epoch, one.leader, -1, -1, tuple(batches)))
            for batches in asked
        ]
        assert not any(found)
        error = self.rng.choice((NONE, ErrorCode.NOT_ENOUGH_REPLICAS))
        self.bench.release(error)
        codes = [rows[0][0].error for rows in found]
        assert codes == [append_error(error), NONE, NONE]
        for batches, code in zip(asked, codes, strict=True):
            if code is NONE:
                one.write(-1, batches)

    def delete(self) -> None:
        number = self.rng.randrange(2)
        assert self.bench.delete(number).error is NONE
        self.model.pop(number, None)

    def restart(self) -> None:
        self.bench.restart()

    def wait(self) -> None:
        self.bench.wait(self.rng.randrange(1, 4) * 1_000)


LIVES, TURNS = 12, 120


def live() -> None:
    for seed in range(LIVES):
        try:
            Life(seed).run(TURNS)
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}") from failure


def test_states_are_as_modelled_whatever_happens() -> None:
    live()


def keeps_the_last_one(patch: pytest.MonkeyPatch) -> None:
    """The last state of an offset holds, whatever its delivery count."""

    def last(before: Any, more: Sequence[StateBatch], start: int) -> tuple[StateBatch, ...]:
        rows: dict[int, StateBatch] = {}
        for first, end, kind, count in (*before, *more):
            for offset in range(max(first, start), end + 1):
                rows[offset] = StateBatch(offset, offset, kind, count)
        return tuple(rows[one] for one in sorted(rows))

    patch.setattr(state, "combined", last)
    patch.setattr(requests, "combined", last)


def forgets_leaders(patch: pytest.MonkeyPatch) -> None:
    """A read does not write the epoch of its leader."""
    read = requests._read
    patch.setattr(requests, "_read", lambda *given: Decision(read(*given).result))


def forgets_states_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    cold = core.cold

    def empty(kept: Any, wall_ms: int) -> Snapshot:
        return Snapshot(cold(kept, wall_ms).state._replace(state_batches=()))

    patch.setattr(core, "cold", empty)


def prunes_too_much(patch: pytest.MonkeyPatch) -> None:
    """The newest snapshot is taken for all that is needed."""
    needed = property(lambda self: max(self.snapshots.values(), default=0))
    patch.setattr(shard.ShareStateShard, "needed", needed)


def believes_in_failed_writes(patch: pytest.MonkeyPatch) -> None:
    settled = shard.ShareStateShard._settled

    def hopeful(self: Any, step: Any, where: Any, entry: Any, change: Any, _error: Any) -> None:
        settled(self, step, where, entry, change, NONE)

    patch.setattr(shard.ShareStateShard, "_settled", hopeful)


def builds_on_what_may_fail(patch: pytest.MonkeyPatch) -> None:
    """A request does not wait for a change in progress."""
    take = shard.ShareStateShard.take

    def hasty(self: Any, step: Any, where: Any, work: Any) -> None:
        if (entry := self.entries.get(where)) is not None:
            entry.step = step
        take(self, step, where, work)

    patch.setattr(shard.ShareStateShard, "take", hasty)


def lowers_start_offsets(patch: pytest.MonkeyPatch) -> None:
    changed = requests._changed

    def lowered(asked: WriteState, kept: Any, given: Any, leader: int) -> Any:
        one = changed(asked, kept, given, leader)
        if isinstance(one, Update) and asked.start_offset >= 0:
            return one._replace(start_offset=asked.start_offset)
        return one

    patch.setattr(requests, "_changed", lowered)


def fences_nobody(patch: pytest.MonkeyPatch) -> None:
    def equal(kept: Any, change: Any, updates_max: int) -> Any:
        found = state.applied(kept, change, updates_max)
        return found and found._replace(leader_epoch=found.state.leader_epoch, state_epoch=0)

    patch.setattr(shard, "applied", equal)


@pytest.mark.parametrize(
    "plant",
    [keeps_the_last_one, forgets_leaders, forgets_states_in_snapshots, prunes_too_much,
     believes_in_failed_writes, builds_on_what_may_fail, lowers_start_offsets, fences_nobody],
    ids=lambda plant: plant.__name__,
)  # fmt: skip
def test_planted_mistakes_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        live()
