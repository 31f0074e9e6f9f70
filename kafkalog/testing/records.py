"""Records that tests write, and offsets that groups committed: over a client without faults."""

import os
from collections.abc import Iterable, Iterator

from kafkalog.client.calls.groups import committed_offsets
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.producer import Producer
from kafkalog.errors import ArgumentError
from kafkalog.server.faults import HELPER
from kafkalog.types import TopicPartition

__all__ = ["Row", "committed", "send"]

Text = str | bytes | None
Row = Text | tuple[Text, Text]
"""A value, or a key and a value."""


def send(
    cluster: Cluster, topic: str, what: "Iterable[Row] | os.PathLike[str]", partition: int | None
) -> int:
    """Write rows, or the lines of a file, to a topic, and wait for them; returns their number.

    Raises: ArgumentError; a producer's errors.
    """
    cluster.topic(topic, create=True)
    now_ms = cluster.clock.now_ms()
    with Producer(cluster.transport, client_id=HELPER) as producer:
        futures = [
            producer.send(topic, value, key, partition=partition, timestamp_ms=now_ms)
            for key, value in _rows(what)
        ]
    for future in futures:
        future.result()
    return len(futures)


def committed(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """The offsets that a group has committed in all partitions."""
    return {tp: one.offset for tp, one in committed_offsets(cluster, group).items()}


def _rows(what: "Iterable[Row] | os.PathLike[str]") -> Iterator[tuple[bytes | None, bytes | None]]:
    if isinstance(what, os.PathLike):
        with open(what, "rb") as file:
            yield from ((None, line.rstrip(b"\r\n")) for line in file)
        return
    if isinstance(what, (str, bytes)):
        raise ArgumentError(f"found {what!r}, wanted several records, or a file's pathlib.Path")
    for row in what:
        key, value = row if isinstance(row, tuple) else (None, row)
        yield _bytes(key), _bytes(value)


def _bytes(text: object) -> bytes | None:
    if text is None or isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode()
    raise ArgumentError(f"a record: found {type(text).__name__}, wanted text, bytes or None")
