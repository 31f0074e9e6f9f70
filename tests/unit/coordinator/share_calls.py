"""The share coordinator on a bench: each request in one line."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from kafkalog.config.share_state import ShareStateConfig
from kafkalog.coordinator.share_state.core import Prune, ShareStateCoordinator
from kafkalog.coordinator.share_state.persister import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateBatch,
    WriteState,
)
from kafkalog.coordinator.share_state.records import change_of, key_of
from kafkalog.coordinator.share_state.requests import Request, Result
from kafkalog.coordinator.share_state.state import Change
from kafkalog.coordinator.step import Step
from tests.unit.coordinator.virtual_core import Bench, MemoryJournal

TOPIC, OTHER = UUID(int=7), UUID(int=8)
GROUP = "g"


def settings(**given: int) -> ShareStateConfig:
    """The settings, by the ends of their names."""
    return ShareStateConfig(
        {f"share.coordinator.{name.replace('_', '.')}": value for name, value in given.items()}
    )


class ShareBench(Bench[ShareStateCoordinator]):
    """One share coordinator, its journal and its clock."""

    def __init__(
        self, config: ShareStateConfig | None = None, journal: MemoryJournal | None = None,
        partitions: int = 1,
    ) -> None:  # fmt: skip
        self.config = config or settings()
        self.topics = {TOPIC: 8, OTHER: 8}
        """The partitions of each topic."""
        self.prunes: list[Prune] = []
        super().__init__(journal, partitions)

    def new_core(self) -> ShareStateCoordinator:
        return ShareStateCoordinator(
            self.config, lambda topic_id, number: number < self.topics.get(topic_id, 0)
        )

    def effect(self, effect: Prune) -> None:
        """Delete the records below an offset, as the log does."""
        self.prunes.append(effect)
        batches = self.journal.batches[effect.partition]
        self.journal.batches[effect.partition] = [
            one._replace(records=[r for r in one.records if r.offset >= effect.offset])
            for one in batches
        ]

    def ask(self, *asked: Request, group: str = GROUP) -> list[Sequence[Result]]:
        """Send requests; the list has their results as soon as there are some."""
        found: list[Sequence[Result]] = []
        self.step(
            lambda step: self.core.take(step, group, asked, lambda _s, rows: found.append(rows))
        )
        return found

    def one(self, asked: Request, group: str = GROUP) -> Any:
        """Send a request, which is answered immediately."""
        ((result,),) = self.ask(asked, group=group)
        return result

    def initialize(self, epoch: int = 0, start: int = 0, partition: int = 0) -> Any:
        return self.one(InitializeState(TOPIC, partition, epoch, start))

    def read(self, leader_epoch: int, partition: int = 0) -> Any:
        return self.one(ReadState(TOPIC, partition, leader_epoch))

    def write(
        self, *batches: StateBatch, epoch: int = 0, leader_epoch: int = 0, start: int = -1,
        count: int = -1, partition: int = 0,
    ) -> Any:  # fmt: skip
        return self.one(WriteState(TOPIC, partition, epoch, leader_epoch, start, count, batches))

    def delete(self, partition: int = 0) -> Any:
        return self.one(DeleteState(TOPIC, partition))

    def summary(self, partition: int = 0) -> Any:
        return self.one(ReadSummary(TOPIC, partition, -1))

    def drop(self, *topic_ids: UUID) -> None:
        """Topics are deleted."""
        for one in topic_ids:
            del self.topics[one]

        def event(step: Step) -> None:
            self.core.drop_topics(frozenset(topic_ids), step)

        self.step(event)

    def changes(self, partition: int = 0) -> list[Change]:
        """The records of a partition of the journal."""
        found: list[Change] = []
        for batch in self.journal.batches[partition]:
            for record in batch.records:
                assert record.key is not None
                where = key_of(record.key)
                assert where is not None
                found.append(change_of(where[1], record.value))
        return found


def states(batches: Iterable[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """The state of each offset: the highest delivery count, and then delivery state, holds."""
    found: dict[int, tuple[int, int]] = {}
    for first, last, kind, count in batches:
        for offset in range(max(first, start), last + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (count, kind))
    return found


def drawn(rng: random.Random, at_most: int = 6) -> list[StateBatch]:
    found = []
    for _ in range(rng.randrange(at_most)):
        first = rng.randrange(30)
        kind = rng.choice((AVAILABLE, ACKNOWLEDGED, ARCHIVED))
        found.append(StateBatch(first, first + rng.randrange(9), kind, rng.randrange(1, 4)))
    return found
