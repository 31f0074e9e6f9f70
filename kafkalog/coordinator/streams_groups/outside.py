"""The internal topics of a streams group's application, which are created outside the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kafkalog.coordinator.step import Step
from kafkalog.coordinator.streams_groups.topology import InternalTopic

__all__ = ["CreateTopics"]


class CreateTopics(NamedTuple):
    """Create topics; `done` is called with why some could not be created, by name."""

    group_id: str
    topics: Mapping[str, InternalTopic]
    done: Callable[[Mapping[str, str], Step], None]
