"""Ends of transactions: they are answered once they are decided, and their markers follow."""

from __future__ import annotations

from typing import Any

import kafkalog
from kafkalog.types import TopicPartition
from tests.support.waiting import wait_for

LEVELS = "read_committed", "read_uncommitted"


def stable_ends(where: Any, topic: str) -> dict[TopicPartition, int]:
    """The ends of a topic once no transaction is open in it; tests call it before they look for
    committed records."""

    def ends() -> dict[TopicPartition, int] | None:
        committed, all_there_is = (_ends(where, topic, level) for level in LEVELS)
        return committed if committed == all_there_is else None

    found: dict[TopicPartition, int] = wait_for(ends, f"the last marker in {topic}", pause_s=0.02)
    return found


def _ends(where: Any, topic: str, isolation: str) -> dict[TopicPartition, int]:
    with kafkalog.Consumer(where, isolation=isolation) as consumer:
        return consumer.end_offsets(consumer.partitions(topic))
