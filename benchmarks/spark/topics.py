"""The same topic three times: a directory of ours, Apache Kafka's, a folder of parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import kafkalog
from kafkalog.client.calls.topics import create_topic
from kafkalog.client.link.cluster import Cluster

__all__ = ["TOPIC", "fill_broker", "fill_directory"]

TOPIC = "bench"
PIECE = 100_000
BATCH_BYTES = 64 << 10


def rows_of(count: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keys of 16 B and values of 100 B, in pieces."""
    for at in range(0, count, PIECE):
        rows = range(at, min(at + PIECE, count))
        yield [b"%016d" % i for i in rows], [b"%0100d" % i for i in rows]


def fill_directory(
    directory: Path, counts: Sequence[int], compression: str | None = None, topic: str = TOPIC
) -> None:
    """For each of `counts` a partition with so many records, in batches of 64 KiB."""
    for number, count in enumerate(counts):
        with kafkalog.Log(directory / f"{topic}-{number}") as log:
            for keys, values in rows_of(count):
                log.append_many(values, keys=keys, batch_bytes=BATCH_BYTES, compression=compression)


def fill_broker(
    bootstrap: str, counts: Sequence[int], compression: str | None = None, topic: str = TOPIC
) -> None:
    """The same in a broker, as a new topic."""
    with Cluster(bootstrap) as cluster:
        create_topic(cluster, topic, len(counts))
    config = {"batch.size": BATCH_BYTES, "compression.type": compression or "none"}
    with kafkalog.Producer(bootstrap, config=config) as producer:
        for number, count in enumerate(counts):
            for keys, values in rows_of(count):
                producer.send_many(topic, values, keys, partition=number)
        producer.flush()
