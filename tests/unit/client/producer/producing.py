"""A producer for a scripted broker, and the batches that reached the broker."""

from __future__ import annotations

from typing import Any

from kafkalog._native import lib
from kafkalog.batch.decode import batch_records
from kafkalog.batch.walk import whole_batches
from kafkalog.client.producer.producer import Producer
from kafkalog.types import Record
from kafkalog.wire import apis
from tests.support.scripted import Peer

PRODUCER_ID = {"producer_id": 4000, "producer_epoch": 3}


class Batch:
    """The batch for one partition of a request."""

    def __init__(self, partition: int, data: bytes) -> None:
        self.partition = partition
        ((header, whole),) = whole_batches(data)
        self.records: list[Record] = batch_records(header, whole, "t", partition)
        self.producer = header.producer_id, header.producer_epoch
        self.sequence = header.base_sequence
        self.codec = header.attributes & lib.KL_CODEC_MASK

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


def batches(peer: Peer) -> list[Batch]:
    """Every batch that arrived, in order."""
    return [
        Batch(row.index, bytes(row.records))
        for request in peer.sent(apis.PRODUCE)
        for topic in request.topic_data
        for row in topic.partition_data
    ]


PATIENCE = {
    "retry.backoff.ms": 1, "retry.backoff.max.ms": 5, "max.block.ms": 60_000,
    "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 5,
}  # fmt: skip


def make(peer: Peer, config: dict[str, object] | None = None, **options: Any) -> Producer:
    """A producer that sends immediately, and retries soon.

    A test whose broker never answers sets its own timeouts: a busy machine is not a silent broker.
    """
    settings = {"request_timeout_ms": 20_000, "linger_ms": 0, **options}
    return Producer(peer.servers, config={**PATIENCE, **(config or {})}, **settings)


def hurried(producer: Producer, block_s: float = 0.05) -> Producer:
    """Load topic t's metadata, then make the producer wait no longer than `block_s`."""
    producer.partitions("t")
    producer._block_s = block_s
    return producer


def single(peer: Peer, **options: Any) -> Producer:
    """A producer whose batches hold one of `wide`'s values each."""
    return make(peer, batch_bytes=131, **options)


def wide(number: int) -> bytes:
    return b"%030d" % number
