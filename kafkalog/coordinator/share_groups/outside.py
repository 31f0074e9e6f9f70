"""The work of the share coordinator for a share group, as effects of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalog.coordinator.share_state.persister import (
    DeleteState,
    InitializeState,
    ReadSummary,
    StateChanged,
    SummaryRead,
)
from kafkalog.coordinator.step import Step
from kafkalog.types import TopicPartition

__all__ = ["DeleteStates", "Ends", "InitializeStates", "ReadSummaries", "ShareEffect"]

Changed = Callable[[Sequence[StateChanged], Step], None]
Ends = dict[TopicPartition, int]
"""The ends of partitions, as consumers see them; one that could not be learned is not in it."""


class InitializeStates(NamedTuple):
    """Have the share coordinator begin to keep states; `done` is called with the results."""

    group_id: str
    states: Sequence[InitializeState]
    done: Changed


class DeleteStates(NamedTuple):
    """Have the share coordinator forget states; `done` is called with the results."""

    group_id: str
    states: Sequence[DeleteState]
    done: Changed


class ReadSummaries(NamedTuple):
    """Read where share partitions begin, and where their partitions end."""

    group_id: str
    states: Sequence[ReadSummary]
    with_ends: bool
    """False: no ends are wanted."""
    done: Callable[[Sequence[SummaryRead], Ends, Step], None]


ShareEffect = InitializeStates | DeleteStates | ReadSummaries
