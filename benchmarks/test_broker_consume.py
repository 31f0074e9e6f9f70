"""Consume, from the page cache: a C program on librdkafka, Kafka's own tool, a bare socket.

Each broker has the same records, 1,000 B each in batches of the producer's; every consumer
reads all of them.  "A socket that looks at nothing" fetches like a consumer, 1 MiB per partition,
sends the next request before it reads the last response, and discards the bytes; bare sendfile is
what the kernel can do: the same file, 1 MiB per call, no broker.  ConsumerPerformance is a new JVM
in each round, for both brokers.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker import programs
from benchmarks.broker.brokers import KAFKA, OURS, Served, brokers
from benchmarks.broker.wire import Connection, frame
from benchmarks.measure import Part, Want, scaled
from benchmarks.memory import made_ready

SIZE = 1000
TOTAL = {1: 800_000_000, 4: 250_000_000, 16: 60_000_000}
"""Bytes of values that each consumer reads in a round, by the number of consumers."""
STORED = TOTAL[1]
PIECE = 1 << 20
BARE = "bare sendfile"
AT_EASE = 2.0
"""CPU time: at most half of Kafka's."""


@pytest.fixture(scope="module")
def filled(module_folder: Path) -> Iterator[dict[str, tuple[Served, str]]]:
    """Each broker and its topic, written into memory that was touched before."""
    try:
        programs.program("load")
    except programs.Missing as reason:
        pytest.skip(str(reason))
    with brokers(module_folder, [OURS, KAFKA]) as running:
        made = {}
        for name, broker in running.items():
            topic = broker.new_topic()
            count = scaled(STORED // SIZE, 1000)
            made_ready(count * SIZE)
            programs.load("produce", broker.bootstrap, topic, count, SIZE, 1, 1, acks=1)
            made[name] = (broker, topic)
        os.sync()
        yield made


def side(
    broker: Served, key: str, size: int, run: Callable[[], float]
) -> Callable[[], dict[str, float]]:
    """`run`, which reads `size` bytes from the broker: bytes a second, CPU seconds per GB."""

    def once() -> dict[str, float]:
        before_s = broker.cpu_s()
        taken_s = run()
        cpu_s = broker.cpu_s() - before_s
        return {key: size / taken_s, f"{key}-cpu": cpu_s / (size / 1e9)}

    return once


def parts(key: str, work: str, wants: list[Want]) -> list[Part]:
    return [
        Part(key, f"{work}, bytes of values", "B/s", wants),
        Part(
            f"{key}-cpu", f"{work}, the broker's CPU time", "s/GB",
            [Want(OURS, than=KAFKA, factor=AT_EASE)],
        ),
    ]  # fmt: skip


@pytest.mark.parametrize("consumers", TOTAL)
def test_consume(
    measure_together: Any, filled: dict[str, tuple[Served, str]], consumers: int
) -> None:
    count, key = scaled(TOTAL[consumers] // SIZE, 1000), f"consume-{consumers}"

    def run(broker: Served, topic: str) -> Callable[[], float]:
        return lambda: programs.load("consume", broker.bootstrap, topic, count, 1, consumers)[
            "seconds"
        ]

    sides = {
        name: side(broker, key, count * consumers * SIZE, run(broker, topic))
        for name, (broker, topic) in filled.items()
    }
    work = f"Consume {SIZE} B, {consumers} consumer(s) of the same data"
    measure_together(parts(key, work, [Want(OURS, than=KAFKA, factor=1)]), sides, jvm=True)


def test_java(measure_together: Any, filled: dict[str, tuple[Served, str]]) -> None:
    if KAFKA not in filled:
        pytest.skip("no Apache Kafka: its tools are missing")
    count, key = scaled(STORED // SIZE, 1000), "consume-java"

    def run(broker: Served, topic: str) -> Callable[[], float]:
        return lambda: programs.consumer_performance(broker.bootstrap, topic, count, SIZE)

    sides = {
        name: side(broker, key, count * SIZE, run(broker, topic))
        for name, (broker, topic) in filled.items()
    }
    work = f"Consume {SIZE} B, Kafka's ConsumerPerformance"
    wants = [Want(OURS, than=KAFKA, factor=1)]
    measure_together(parts(key, work, wants), sides, rounds=3, jvm=True)


def swallow(bootstrap: str, topic: str, step: int, end: int) -> tuple[int, float]:
    """Bytes and seconds of responses from each `step`-th offset before `end`, discarded."""
    partition = {"partition": 0, "partition_max_bytes": PIECE, "fetch_offset": 0}
    asked = {
        "max_wait_ms": 500, "min_bytes": 1, "max_bytes": PIECE, "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }  # fmt: skip
    requests = []
    for offset in range(0, end, step):
        partition["fetch_offset"] = offset
        requests.append(frame("FETCH", 4, asked))
    buffer, taken = bytearray(PIECE + (1 << 16)), 0
    with Connection(bootstrap) as connection:
        start_s = time.perf_counter()
        connection.socket.sendall(b"".join(requests[:2]))
        for number in range(len(requests)):
            taken += take(connection.socket, buffer)
            if number + 2 < len(requests):
                connection.socket.sendall(requests[number + 2])
        return taken, time.perf_counter() - start_s


def take(connection: socket.socket, buffer: bytearray) -> int:
    """Discard one response; returns its bytes."""
    view = memoryview(buffer)
    have = 0
    while have < 4:
        have += connection.recv_into(view[have:4])
    size = left = int.from_bytes(view[:4], "big")
    while left:
        left -= connection.recv_into(view[: min(left, len(buffer))])
    return size


def records_of_a_piece(bootstrap: str, topic: str) -> int:
    """The number of records in the batches of one response of 1 MiB."""
    partition = {"partition": 0, "partition_max_bytes": PIECE, "fetch_offset": 0}
    asked = {
        "max_wait_ms": 500, "min_bytes": 1, "max_bytes": PIECE, "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }  # fmt: skip
    with Connection(bootstrap) as connection:
        (found,) = connection.ask("FETCH", 4, asked).responses
        data = bytes(found.partitions[0].records)
    pos = count = 0
    while pos + 61 <= len(data):
        size = 12 + int.from_bytes(data[pos + 8 : pos + 12], "big")
        if pos + size > len(data):
            break
        count += int.from_bytes(data[pos + 57 : pos + 61], "big")
        pos += size
    return count


def discarding(broker: Served, topic: str, key: str) -> Callable[[], dict[str, float]]:
    step = records_of_a_piece(broker.bootstrap, topic)
    end = scaled(STORED // SIZE, 1000)

    def once() -> dict[str, float]:
        before_s = broker.cpu_s()
        size, taken_s = swallow(broker.bootstrap, topic, step, end)
        cpu_s = broker.cpu_s() - before_s
        return {key: size / taken_s, f"{key}-cpu": cpu_s / (size / 1e9)}

    return once


def bare_sendfile(file: Path, size: int) -> float:
    """Seconds to send `size` bytes of a file to a socket whose other end reads them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            try:
                with socket.create_connection(server.getsockname()) as connection:
                    buffer, left = bytearray(PIECE), size
                    while left:
                        left -= connection.recv_into(buffer)
                    connection.send(b"x")
            finally:
                os._exit(0)
        peer, _ = server.accept()
    with peer, file.open("rb") as source:
        start_s = time.perf_counter()
        pos = 0
        while pos < size:
            pos += os.sendfile(peer.fileno(), source.fileno(), pos, min(PIECE, size - pos))
        peer.recv(1)
        taken_s = time.perf_counter() - start_s
    os.waitpid(child, 0)
    return taken_s


def test_a_socket_that_looks_at_nothing(
    measure_together: Any, filled: dict[str, tuple[Served, str]], folder: Path
) -> None:
    key = "consume-discard"
    plain = folder / "plain"
    size = scaled(STORED, 2 * PIECE)
    with plain.open("wb") as file:
        for _ in range(size // PIECE):
            file.write(os.urandom(PIECE))
    size -= size % PIECE
    sides: dict[str, Callable[[], dict[str, float]]] = {}
    for name, (broker, topic) in filled.items():
        sides[name] = discarding(broker, topic, key)
    sides[BARE] = lambda: {key: size / bare_sendfile(plain, size)}
    wants = [Want(OURS, than=BARE, factor=0.8)]
    work = "Fetch into a socket that looks at nothing"
    measure_together(parts(key, work, wants), sides, jvm=True)
