"""Topics and settings through each client's own admin calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tests.clients.agent import Agent

TOPIC_ALREADY_EXISTS = 36
TRIES = {"kafkalog": 1, "kafka": 10}
"""Apache Kafka may show a setting as it was for a moment after it said that it is changed."""
_numbers = itertools.count()


def test_a_tour_of_topics(
    client: Agent, side: str, admin: Any, wait_until: Callable[..., None]
) -> None:
    wanted = {
        "partitions": 3, "retention": "3600000", "again": TOPIC_ALREADY_EXISTS, "grown": 5,
        "altered": "7200000",
    }  # fmt: skip
    for _ in range(TRIES[side]):
        topic = f"tour-{next(_numbers)}"
        said = client.ask("tour", topic=topic)
        if said == wanted:
            break
    assert said == wanted
    wait_until(lambda: topic not in admin.client.list_topics(timeout=10).topics, "it is gone")
