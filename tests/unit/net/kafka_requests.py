"""Produce and Fetch requests as bytes, and their answers."""

from __future__ import annotations

from typing import Any

from kafkalog.wire import apis
from tests.support import batches
from tests.unit.net.network import Client, framed, header

PRODUCE_VERSION, FETCH_VERSION = 9, 12
BATCH = batches.batch([batches.Row(b"value", b"key", 5)])
STORED = BATCH[:12] + bytes(4) + BATCH[16:]
"""BATCH as the first batch of a log: leader epoch 0."""


def produce(
    correlation: int,
    acks: int,
    records: bytes = BATCH,
    topic: str = "orders",
    timeout_ms: int = 30_000,
) -> bytes:
    """A frame with a Produce request for partition 0."""
    body = {
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    encoded = apis.PRODUCE.encode_request(PRODUCE_VERSION, body)
    return framed(header(apis.PRODUCE.key, PRODUCE_VERSION, correlation) + b"\0" + encoded)


def fetch(
    correlation: int,
    offset: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    topic: str = "orders",
    replica: int = -1,
) -> bytes:
    """A frame with a Fetch request for partition 0, a consumer's or that of a follower."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 50 << 20}
    body = {
        "replica_id": replica,
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": 50 << 20,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    encoded = apis.FETCH.encode_request(FETCH_VERSION, body)
    return framed(header(apis.FETCH.key, FETCH_VERSION, correlation) + b"\0" + encoded)


def produced(client: Client, correlation: int) -> Any:
    """The partition's part of the answer to a Produce."""
    found, data = client.response()
    assert found == correlation
    body = apis.PRODUCE.decode_response(PRODUCE_VERSION, data[1:])
    return body.responses[0].partition_responses[0]


def fetched(client: Client, correlation: int) -> Any:
    """The partition's part of the answer to a Fetch."""
    found, data = client.response()
    assert found == correlation
    body = apis.FETCH.decode_response(FETCH_VERSION, data[1:])
    return body.responses[0].partitions[0]
