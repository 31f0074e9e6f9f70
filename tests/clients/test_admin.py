"""Topics and settings through each client's own admin calls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tests.clients.agent import Agent

TOPIC_ALREADY_EXISTS = 36
_numbers = itertools.count()


def test_a_tour_of_topics(client: Agent, admin: Any, wait_until: Callable[..., None]) -> None:
    topic = f"tour-{next(_numbers)}"
    said = client.ask("tour", topic=topic)
    assert said == {
        "partitions": 3, "retention": "3600000", "again": TOPIC_ALREADY_EXISTS, "grown": 5,
        "altered": "7200000",
    }  # fmt: skip
    wait_until(lambda: topic not in admin.client.list_topics(timeout=10).topics, "it is gone")
