"""Changes of a cluster's metadata, as requests to its controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalog.metadata.requests import NewTopics, Result
from kafkalog.wire import apis
from kafkalog.wire.api import Api

__all__ = ["create_topics"]

VERSION_MAX = 7
TIMEOUT_MS = 15_000
Ask = Callable[[Api, Mapping[str, Any], int], Any]


def create_topics(ask: Ask, asked: NewTopics) -> list[Result]:
    """CreateTopics; one result per topic."""
    rows: Sequence[dict[str, Any]] = [
        {
            "name": topic.name,
            "num_partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
            "assignments": [
                {"partition_index": one.partition, "broker_ids": list(one.brokers)}
                for one in topic.assignments
            ],
            "configs": [{"name": one.name, "value": one.value} for one in topic.configs],
        }
        for topic in asked.topics
    ]
    body = {"topics": rows, "timeout_ms": TIMEOUT_MS, "validate_only": asked.validate_only}
    answer = ask(apis.CREATE_TOPICS, body, VERSION_MAX)
    return [{"name": row.name, "error_code": row.error_code, "error_message": row.error_message}
            for row in answer.topics]  # fmt: skip
