"""Batches into a socket: `send_to`, compared with sendfile(2) of the same bytes.

Another process reads them from a TCP connection on loopback and discards them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from benchmarks.measure import Side, Want, scaled
from benchmarks.work import values

OURS, FLOOR = "kafkalog", "bare sendfile"
LOG_BYTES = 64 << 20
TIMES = 4
"""How often the log is sent in a round."""


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """A connection whose other end, a process, reads and discards."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = os.fork()
        if child == 0:
            try:
                swallow(server.getsockname())
            finally:
                os._exit(0)
        accepted, _ = server.accept()
    with accepted:
        yield accepted
    os.waitpid(child, 0)


def swallow(address: Any) -> None:
    with socket.create_connection(address) as connection:
        buffer = bytearray(1 << 20)
        while connection.recv_into(buffer):
            pass


def by_kafkalog(log: kafkalog.Log, peer: socket.socket, size: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(TIMES):
            offset, end = 0, log.end_offset
            while offset < end:
                sent = log.send_to(peer, offset, size)
                assert sent.next_offset > offset
                offset = sent.next_offset

    return run


def by_sendfile(path: Path, peer: socket.socket, size: int) -> Callable[[], None]:
    def run() -> None:
        with path.open("rb") as file:
            end = os.fstat(file.fileno()).st_size
            for _ in range(TIMES):
                pos = 0
                while pos < end:
                    pos += os.sendfile(peer.fileno(), file.fileno(), pos, min(size, end - pos))

    return run


@pytest.mark.parametrize("size", [64 << 10, 1 << 20])
def test_send_to(measure: Any, folder: Path, peer: socket.socket, size: int) -> None:
    with kafkalog.Log(folder / "sent-0") as log:
        log.append_many(values(scaled(LOG_BYTES // 110, 1_000)), batch_bytes=16 << 10)
        count = TIMES * log.size_bytes
        sides = [
            Side(OURS, count, by_kafkalog(log, peer, size)),
            Side(FLOOR, count, by_sendfile(folder / "sent-0" / f"{0:020d}.log", peer, size)),
        ]
        measure(
            f"send-{size >> 10}k", f"send_to of {size >> 10} KiB a call", sides,
            [Want(OURS, than=FLOOR, factor=0.9)], unit="B/s", rounds=9,
        )  # fmt: skip
