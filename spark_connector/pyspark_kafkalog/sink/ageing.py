"""Rows whose own time is older than what their topic keeps: retention deletes them soon.

A record's age is its timestamp's.  A backfill that hands on the time of an event as the column
`timestamp` writes records that are past the retention of seven days when they arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .staging import Part

if TYPE_CHECKING:
    from kafkalog import Admin

_log = logging.getLogger("pyspark_kafkalog")

NAMES = ("cleanup.policy", "retention.ms", "message.timestamp.type")
YOUNG_MS = 3_600_000
"""Rows that are no older are not asked about: a topic of a shorter retention expects it."""
TOLD_MAX = 1000
"""Topics that are remembered, so that each is asked for once."""
_told: dict[tuple[str, str], None] = {}


def old_topics(target: str, parts: Iterable[Part], now_ms: int) -> dict[str, int]:
    """The largest age of a row (ms) of each topic that was not asked for in this process."""
    ages: dict[str, int] = {}
    for part in parts:
        age_ms = now_ms - part.oldest_ms
        if age_ms > YOUNG_MS and (target, part.topic) not in _told:
            ages[part.topic] = max(age_ms, ages.get(part.topic, 0))
    return ages


def tell_ageing(admin: Admin, target: str, ages_ms: dict[str, int]) -> None:
    """Warn of each topic that retention will take the rows from.

    Raises: KafkalogError.
    """
    asked = admin.describe_configs([("topic", topic) for topic in ages_ms], names=NAMES)
    for (_, topic), entries in asked.items():
        _told[target, topic] = None
        if len(_told) > TOLD_MAX:
            del _told[next(iter(_told))]
        policy, keeps, kind = (entries[name].value or "" for name in NAMES)
        keeps_ms, age_ms = int(keeps), ages_ms[topic]
        if "delete" in policy and 0 <= keeps_ms < age_ms and kind == "CreateTime":
            _log.warning(
                "%s: topic %s: the column timestamp has times %.1f days old, and retention.ms "
                "(%d, %.1f days) goes by them: these rows are deleted soon. Set retention.ms of "
                "the topic to -1 or to more, or hand the time on in another column",
                target, topic, age_ms / 86_400_000, keeps_ms, keeps_ms / 86_400_000,
            )  # fmt: skip
