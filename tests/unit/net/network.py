"""A server of the C network side with threads that answer, and clients that send bytes."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from kafkalog.config.server import ServerConfig
from kafkalog.server.network.raw_request import RawRequest
from kafkalog.server.network.reactor import Reactor
from tests.support.waiting import LIMIT_S, wait_for

SANITIZED = "san.so" in os.environ.get("LD_PRELOAD", "")
"""The sanitizers' run-time needs its own memory for everything."""
METADATA, OFFSET_COMMIT, CONTROLLED_SHUTDOWN, API_VERSIONS = 3, 8, 7, 18
PRODUCE, FETCH = 0, 1


def header(key: int, version: int, correlation: int, client_id: bytes | None = b"me") -> bytes:
    """A request header of version 1."""
    fixed = struct.pack(">hhi", key, version, correlation)
    if client_id is None:
        return fixed + struct.pack(">h", -1)
    return fixed + struct.pack(">h", len(client_id)) + client_id


def framed(data: bytes) -> bytes:
    """The data with its size in front."""
    return struct.pack(">i", len(data)) + data


def request(correlation: int, body: bytes = b"", key: int = METADATA, version: int = 1) -> bytes:
    """A frame with a request whose header has version 1."""
    return framed(header(key, version, correlation) + body)


class Client:
    """A connection that sends and receives bytes."""

    def __init__(self, address: Any, receive_buffer: int = 0, send_buffer: int = 0) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else None
        if family is None:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(LIMIT_S)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if send_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.socket.connect(address)
        if family != socket.AF_UNIX:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(min(size - len(data), 1 << 20))
            if not more:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += more
        return bytes(data)

    def response(self) -> tuple[int, bytes]:
        """The correlation id and the bytes after it."""
        (size,) = struct.unpack(">i", self.receive(4))
        data = self.receive(size)
        return int.from_bytes(data[:4], "big"), data[4:]

    def ask(self, correlation: int, body: bytes = b"", **how: int) -> bytes:
        """The answer to a request."""
        self.send(request(correlation, body, **how))
        found, answer = self.response()
        assert found == correlation
        return answer

    def is_closed(self) -> bool:
        """True if the other end has closed the connection; waits for that, or for bytes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class Server:
    """A running reactor, and threads that take and answer requests.

    Settings have Kafka's names with underscores.
    """

    def __init__(
        self,
        answer: Callable[[RawRequest], None] | None = None,
        *,
        workers: int = 2,
        host: str = "127.0.0.1",
        manual_clock: bool = False,
        control_listener: int = -1,
        **settings: object,
    ) -> None:
        named: dict[str, object] = {
            name.replace("_", "."): value for name, value in settings.items()
        }
        self.reactor = Reactor(
            ServerConfig(named), manual_clock=manual_clock, control_listener=control_listener
        )
        self.answer = answer or echo
        self.host = host
        self.port = self.reactor.listen(host, 0, 0)
        self.reactor.start()
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self.work(workers)

    @property
    def address(self) -> Any:
        if self.host.startswith("unix:"):
            return self.host.removeprefix("unix:")
        return (self.host or "127.0.0.1", self.port)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None:
            assert not self.failures

    def work(self, threads: int) -> None:
        """Start threads that take and answer requests."""
        for _ in range(threads):
            thread = threading.Thread(target=self._work, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _work(self) -> None:
        try:
            while not self.reactor.stopped:
                taken = self.reactor.take(500)
                if taken is not None:
                    self.answer(taken)
        except BaseException as problem:
            self.failures.append(problem)
            raise

    def take(self) -> RawRequest:
        """Take a request in this thread."""
        taken = self.reactor.take(int(LIMIT_S * 1000))
        assert taken is not None
        return taken

    def client(self, **how: Any) -> Client:
        return Client(self.address, **how)

    def connected(self, count: int) -> None:
        """Wait until there are `count` connections."""
        wait_for(lambda: self.reactor.stats().connections == count, f"{count} connections")

    def gone(self, made: int) -> None:
        """Wait until `made` connections have been accepted since the start, and all are gone.

        A count of zero is not enough: a busy machine may not have accepted the last ones.
        """
        wait_for(
            lambda: (stats := self.reactor.stats()).accepted == made and not stats.connections,
            f"{made} connections have come and gone",
        )

    def close(self) -> None:
        self.reactor.close()
        for thread in self._threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def echo(taken: RawRequest) -> None:
    """Answer with the request's body."""
    taken.answer(taken.body, 0)
