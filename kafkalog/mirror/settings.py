"""Which of a topic's settings its copy gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafkalog.client.calls.configs import ConfigEntry

__all__ = ["LEFT_OUT", "POLICY", "Changes", "changes"]

POLICY = "cleanup.policy"

LEFT_OUT = frozenset(
    {
        # Settings about the topic's own cluster.
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        # A copy keeps its records' timestamps, however old they are by now.
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
    }
)
"""Settings that stay the target's own."""
SIZE = "max.message.bytes"
"""Settings that follow the source's, but are never decreased."""


class Changes(NamedTuple):
    """Changes to the copy's settings."""

    wanted: dict[str, str | None]
    """None: reset to the default."""
    unknown: list[str]
    """Settings that the target does not know."""


def changes(source: Mapping[str, ConfigEntry], target: Mapping[str, ConfigEntry]) -> Changes:
    """Changes that make the target's topic like the source's; settings only known to the target
    stay."""
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
