"""The patterns by which members of consumer groups subscribe.

They are looked up outside the coordinator, as every topic is compared with every pattern of the
group.  Source: Kafka's TopicRegexResolver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup, Resolved
from kafkalog.coordinator.consumer_groups.topics import Topics, group_hash
from kafkalog.errors import ArgumentError
from kafkalog.logs.limit import limited
from kafkalog.pattern import NODES_MAX, PART_WORK, Pattern
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "LOOKUP_WORK_MAX",
    "MATCHED_MAX",
    "PATTERNS_MAX",
    "REFRESH_MIN_MS",
    "WORK_A_MS",
    "Found",
    "Lookup",
    "Lookups",
    "checked_pattern",
    "look_up",
    "matched",
    "to_look_up",
]

LOG = limited(__name__)

PATTERNS_MAX = 100
"""Patterns of one group."""
REFRESH_MIN_MS = 10_000
"""Time between two lookups of a group's patterns, at least."""
LOOKUP_WORK_MAX = 1_000_000
"""Steps of one lookup, for all patterns of the group together: about half a second.  The patterns
behind the one that exceeds it match nothing."""
WORK_A_MS = 200
"""Steps of all groups' lookups in a millisecond: about a tenth of a core.  After a lookup the next
one waits."""
MATCHED_MAX = 200_000
"""Topics that a group's patterns match, in all; the next pattern matches nothing."""

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


class Lookups:
    """The order of all groups' lookups: one at a time, the group that has waited longest first."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, str], Lookup] = {}
        self._runs = False
        self._rests_until_ms = 0

    def add(self, lookup: Lookup) -> None:
        """A group needs one."""
        self._waiting.setdefault((lookup.partition, lookup.group_id), lookup)

    def begin(self, now_ms: int) -> Lookup | None:
        """The lookup to carry out now, if there is one; `done` is to follow."""
        if self._runs or now_ms < self._rests_until_ms or not self._waiting:
            return None
        self._runs = True
        return self._waiting.pop(next(iter(self._waiting)))

    def done(self, work: int, now_ms: int) -> None:
        """It was carried out, with so many steps."""
        self._runs = False
        self._rests_until_ms = now_ms + work // WORK_A_MS


class Found(NamedTuple):
    """The outcome of a lookup."""

    topics: Mapping[str, frozenset[str]]
    """By pattern."""
    version: int
    """The metadata's offset at the lookup."""
    work: int = 0
    """Steps that it took."""


def look_up(lookup: Lookup, names: Iterable[str], version: int) -> Found:
    """Find the topics of each pattern, within LOOKUP_WORK_MAX and MATCHED_MAX."""
    texts, group_id = list(names), lookup.group_id
    found: dict[str, set[str]] = {}
    work = matched_count = beyond = 0
    for text in lookup.patterns:
        some, cost = _matching(text, texts, LOOKUP_WORK_MAX - work)
        work += cost
        if work > LOOKUP_WORK_MAX or matched_count + len(some) > MATCHED_MAX:
            some = set()
            beyond += 1
        found[text] = some
        matched_count += len(some)
    if beyond:
        LOG.warning(
            "group %s: %d of %d patterns match nothing: found %d steps, and %d topics of the "
            "others, wanted at most %d and %d", group_id, beyond, len(found), work, matched_count,
            LOOKUP_WORK_MAX, MATCHED_MAX,
        )  # fmt: skip
    every = {name for some in found.values() for name in some}
    try:
        visible = set(lookup.visible(sorted(every))) if every else every
    except Exception:  # else the group gets no answer to its lookup
        LOG.exception("group %s: the topics of its patterns", group_id)
        return Found({}, version, work)
    return Found({text: frozenset(some & visible) for text, some in found.items()}, version, work)


def _matching(text: str, names: Iterable[str], work_max: int) -> tuple[set[str], int]:
    """The names that a pattern matches, and the steps that it took; without any left, none."""
    if work_max <= 0:
        return set(), 1
    try:
        pattern = Pattern(text, work_max)
    except ArgumentError:  # of another broker, which knows more of them
        return set(), PART_WORK * NODES_MAX
    try:
        return {name for name in names if pattern.matches(name)}, pattern.cost
    except ArgumentError:
        return set(), pattern.cost


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
