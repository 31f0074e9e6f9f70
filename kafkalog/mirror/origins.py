"""Recognises topics that are themselves copies, by the states of the mirrors that write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.mirror.state import State

__all__ = ["Origin", "origins", "returned"]


class Origin(NamedTuple):
    """Where a copy comes from."""

    via: tuple[str, ...]
    """The ids of the clusters that its records came through, the first one is where they began."""
    copy_id: str
    """The topic id of the copy; empty: not known."""
    state: str
    """The topic that says so."""


def origins(states: Mapping[str, State]) -> dict[str, Origin]:
    """The copies in a cluster by their names; `states`: the mirrors' topics there."""
    return {
        one.copy: Origin(one.via, one.copy_id, topic)
        for topic, state in states.items()
        for one in state.progress.values()
        if one.copy
    }


def returned(origin: Origin | None, topic_id: str, target: str) -> bool:
    """True if a topic with this id came from the cluster `target`: copied there, its records would
    go round in a circle."""
    return bool(
        origin
        and target
        and target in origin.via
        and (not origin.copy_id or not topic_id or origin.copy_id == topic_id)
    )
