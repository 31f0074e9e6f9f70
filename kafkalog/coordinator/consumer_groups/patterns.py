"""The patterns by which members of consumer groups subscribe.

They are looked up outside the coordinator, as every topic is compared with every pattern of the
group.  Source: Kafka's TopicRegexResolver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup, Resolved
from kafkalog.coordinator.consumer_groups.topics import Topics, group_hash
from kafkalog.coordinator.pattern import Pattern
from kafkalog.errors import ArgumentError
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "PATTERNS_MAX",
    "REFRESH_MIN_MS",
    "Found",
    "Lookup",
    "checked_pattern",
    "look_up",
    "matched",
    "to_look_up",
]

LOG = logging.getLogger(__name__)

PATTERNS_MAX = 100
"""Patterns of one group."""
REFRESH_MIN_MS = 10_000
"""Time between two lookups of a group's patterns, at least."""

Visible = Callable[[Collection[str]], Collection[str]]
"""Those of some topics that the member whose heartbeat led to the lookup may describe."""


class Lookup(NamedTuple):
    """An effect: find the topics of a group's patterns, and report them."""

    partition: int
    group_id: str
    patterns: tuple[str, ...]
    visible: Visible


def checked_pattern(text: str, count: int) -> None:
    """Check a pattern that is new to its group, which then has `count`.  Raises: Refusal."""
    if count > PATTERNS_MAX:
        why = f"The group would have {count} patterns, wanted at most {PATTERNS_MAX}."
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, why)
    try:
        Pattern(text)
    except ArgumentError as problem:
        raise Refusal(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {problem}.",
        ) from None


def to_look_up(group: ConsumerGroup, wall_ms: int, refresh_ms: int, topics: Topics) -> bool:
    """True if the patterns of a group are to be looked up now."""
    if not group.patterns:
        return False
    last = group.last_resolved
    if last is None:
        return True
    if 0 <= wall_ms - last.at_ms <= REFRESH_MIN_MS:
        return False
    missing = group.patterns.keys() != group.regexes.keys()
    newer = last.version < topics.new_topics_version()
    return missing or newer or wall_ms > last.at_ms + refresh_ms


class Found(NamedTuple):
    """The outcome of a lookup."""

    topics: Mapping[str, frozenset[str]]
    """By pattern."""
    version: int
    """The metadata's offset at the lookup."""


def look_up(lookup: Lookup, names: Iterable[str], version: int) -> Found:
    """Find the topics of each pattern.  A pattern that takes too long matches nothing."""
    texts = list(names)
    found: dict[str, set[str]] = {}
    for text in lookup.patterns:
        try:
            pattern = Pattern(text)
            found[text] = {name for name in texts if pattern.matches(name)}
        except ArgumentError:
            found[text] = set()
    every = {name for some in found.values() for name in some}
    try:
        visible = set(lookup.visible(sorted(every))) if every else every
    except Exception:  # else the group gets no answer to its lookup
        LOG.exception("group %s: the topics of its patterns", lookup.group_id)
        return Found({}, version)
    return Found({text: frozenset(some & visible) for text, some in found.items()}, version)


def matched(changes: Changes, found: Found, wall_ms: int, topics: Topics) -> None:
    """Take over the topics of patterns; a new group epoch follows if they are others."""
    group, bump = changes.group, False
    for text, names in found.topics.items():
        if not group.patterns[text]:
            continue  # nobody subscribes by it any more
        before = group.regexes.get(text)
        bump = bump or names != (before.topics if before else frozenset())
        changes.regex(text, Resolved(names, found.version, wall_ms))
    hash_now = group_hash(group.topics, topics)
    if bump or hash_now != group.metadata_hash:
        changes.epoch(hash_now)
