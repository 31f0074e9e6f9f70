"""Which of a topic's settings its copy has, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.client.calls.configs import ConfigEntry

__all__ = ["LEFT_OUT", "Changes", "changes"]

LEFT_OUT = frozenset(
    {
        # Of the cluster that it is in.
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        # A copy keeps the times that its records have, however old they are by now.
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
    }
)
"""These are the target's own."""
SIZE = "max.message.bytes"
"""Followed wherever the source has it from, but never made smaller."""


class Changes(NamedTuple):
    """What is to be done to the copy's settings."""

    wanted: dict[str, str | None]
    """None: back to the default."""
    unknown: list[str]
    """Those that the target does not know."""


def changes(source: Mapping[str, ConfigEntry], target: Mapping[str, ConfigEntry]) -> Changes:
    """What lets the target's topic be as the source's; settings that only the target knows stay."""
    wanted: dict[str, str | None] = {}
    unknown = []
    for name, entry in source.items():
        if name in LEFT_OUT or entry.sensitive or entry.value is None or name == SIZE:
            continue
        own, there = entry.source == "topic", target.get(name)
        if there is None:
            if own:
                unknown.append(name)
        elif own and (there.value != entry.value or there.source != "topic"):
            wanted[name] = entry.value
        elif not own and there.source == "topic":
            wanted[name] = None
    size, room = source.get(SIZE), target.get(SIZE)
    if size and room and int(size.value or 0) > int(room.value or 0):
        wanted[SIZE] = size.value
    return Changes(wanted, unknown)
