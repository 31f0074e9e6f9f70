"""Detects rows older than their topic's retention, which deletes them soon.

A record's age is its timestamp's.  A backfill that passes on the time of an event as the column
`timestamp` writes records that are older than the retention of seven days when they arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from .staging import Part

if TYPE_CHECKING:
    from kafkalog import Admin

_log = logging.getLogger("pyspark_kafkalog")

NAMES = ("cleanup.policy", "retention.ms", "message.timestamp.type")
YOUNG_MS = 3_600_000
"""Newer rows are not checked: a topic with a shorter retention expects them."""
TOLD_MAX = 1000
"""Topics that are remembered, so that each is checked once."""
_asked: dict[tuple[str, str], float] = {}
"""The age of a row (ms) above which a topic is checked again."""


def old_topics(target: str, parts: Iterable[Part], now_ms: int) -> dict[str, int]:
    """The largest age of a row (ms) for each topic to be checked."""
    ages: dict[str, int] = {}
    for part in parts:
        age_ms = now_ms - part.oldest_ms
        if age_ms > _asked.get((target, part.topic), YOUNG_MS):
            ages[part.topic] = max(age_ms, ages.get(part.topic, 0))
    return ages


def tell_ageing(admin: Admin, target: str, ages_ms: dict[str, int]) -> None:
    """Warn about each topic whose retention will delete the rows.

    Raises: KafkalogError.
    """
    for topic in ages_ms:  # first: one that cannot be asked for is not asked for each time
        _asked[target, topic] = inf
        if len(_asked) > TOLD_MAX:
            del _asked[next(iter(_asked))]
    asked = admin.describe_configs([("topic", topic) for topic in ages_ms], names=NAMES)
    for (_, topic), entries in asked.items():
        policy, keeps, kind = (entries[name].value or "" for name in NAMES)
        keeps_ms, age_ms = int(keeps), ages_ms[topic]
        if "delete" not in policy or keeps_ms < 0 or kind != "CreateTime":
            continue
        if age_ms <= keeps_ms:
            _asked[target, topic] = keeps_ms
            continue
        _log.warning(
            "%s: topic %s: the column timestamp has times %.1f days old, and retention.ms "
            "(%d, %.1f days) applies to them: a segment is deleted once all of it is that old. Set "
            "retention.ms of the topic to -1 or to more, or pass the time in another column",
            target, topic, age_ms / 86_400_000, keeps_ms, keeps_ms / 86_400_000,
        )  # fmt: skip
