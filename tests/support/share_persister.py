"""A persister of share partitions' states in this process, for tests of their leaders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from kafkalog.coordinator.share_state.persister import (
    UNINITIALIZED_OFFSET,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateBatch,
    StateChanged,
    StateRead,
    SummaryRead,
    WriteState,
)
from kafkalog.server.shares import shares_of
from kafkalog.wire.error_codes import ErrorCode

Where = tuple[str, UUID, int]


class Kept:
    """The state of a share partition, offset by offset."""

    def __init__(self, state_epoch: int = 0, start: int = UNINITIALIZED_OFFSET) -> None:
        self.state_epoch, self.start = state_epoch, start
        self.leader_epoch = -1
        self.offsets: dict[int, tuple[int, int]] = {}

    def batches(self) -> list[StateBatch]:
        """All that is kept, as ranges."""
        found: list[StateBatch] = []
        for offset in sorted(one for one in self.offsets if one >= self.start):
            value = self.offsets[offset]
            if found and found[-1].last_offset + 1 == offset and found[-1][2:] == value:
                found[-1] = found[-1]._replace(last_offset=offset)
            else:
                found.append(StateBatch(offset, offset, *value))
        return found


class MemoryPersister:
    """Keeps states in memory; answers at once, or when `hold` is released."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.kept: dict[Where, Kept] = {}
        self.error = ErrorCode.NONE
        """The result of all that follows."""
        self.held: list[Callable[[], None]] | None = None
        """Writes whose results wait; None: they do not."""
        self.writes: list[WriteState] = []

    def initialize(
        self, group_id: str, states: Sequence[InitializeState], done: Callable[[Any], None]
    ) -> None:
        for one in states:
            where = group_id, one.topic_id, one.partition
            self.kept[where] = Kept(one.state_epoch, one.start_offset)
        done([StateChanged(one.topic_id, one.partition, self.error) for one in states])

    def read(self, group_id: str, states: Sequence[ReadState], done: Callable[[Any], None]) -> None:
        found = []
        for one in states:
            kept = self.kept.setdefault((group_id, one.topic_id, one.partition), Kept())
            kept.leader_epoch = max(kept.leader_epoch, one.leader_epoch)
            found.append(StateRead(one.topic_id, one.partition, self.error, None,
                                   kept.state_epoch, kept.start, kept.batches()))  # fmt: skip
        done(found)

    def write(
        self, group_id: str, states: Sequence[WriteState], done: Callable[[Any], None]
    ) -> None:
        with self._lock:
            held = self.held
            if held is not None:
                held.append(lambda: self._write(group_id, states, done))
        if held is None:
            self._write(group_id, states, done)

    def _write(
        self, group_id: str, states: Sequence[WriteState], done: Callable[[Any], None]
    ) -> None:
        error = self.error
        for one in states if error is ErrorCode.NONE else ():
            kept = self.kept[group_id, one.topic_id, one.partition]
            if one.leader_epoch < kept.leader_epoch:
                error = ErrorCode.FENCED_LEADER_EPOCH
                continue
            self.writes.append(one)
            kept.start = max(kept.start, one.start_offset)
            for row in one.state_batches:
                for offset in range(row.first_offset, row.last_offset + 1):
                    kept.offsets[offset] = int(row.delivery_state), row.delivery_count
        done([StateChanged(one.topic_id, one.partition, error) for one in states])

    def release(self) -> None:
        """Carry out the writes that wait, and let none wait any more."""
        with self._lock:
            held, self.held = self.held, None
        for one in held or ():
            one()

    def delete(
        self, group_id: str, states: Sequence[DeleteState], done: Callable[[Any], None]
    ) -> None:
        for one in states:
            self.kept.pop((group_id, *one), None)
        done([StateChanged(one.topic_id, one.partition, self.error) for one in states])

    def read_summary(
        self, group_id: str, states: Sequence[ReadSummary], done: Callable[[Any], None]
    ) -> None:
        done([SummaryRead(one.topic_id, one.partition, self.error) for one in states])


def kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> MemoryPersister:
    """Keeps the states of the broker that is made next."""
    found = MemoryPersister()

    def with_it(config: Any, metadata: Any, partitions: Any, _persister: Any, *more: Any) -> Any:
        return shares_of(config, metadata, partitions, found, *more)

    monkeypatch.setattr("kafkalog.server.shares.shares_of", with_it)
    return found
