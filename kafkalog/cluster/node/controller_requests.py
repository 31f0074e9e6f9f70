"""Changes of a cluster's metadata, as requests to its controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalog.client.link.failures import check_code, failure
from kafkalog.errors import KafkalogError
from kafkalog.metadata.requests import NewTopics, Result
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS

__all__ = ["allocate_producer_ids", "create_topics"]

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


def allocate_producer_ids(ask: Ask, node: int, epoch: int) -> range:
    """A block of producer ids, which no broker gets a second time.

    Raises: COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: no controller answers now, and the
    client retries.
    """
    body = {"broker_id": node, "broker_epoch": epoch}
    try:
        answer = ask(ALLOCATE_PRODUCER_IDS, body, VERSION_MAX)
        check_code(answer.error_code, "producer ids")
    except KafkalogError as problem:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        raise failure(code, "producer ids", str(problem)) from problem
    return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
