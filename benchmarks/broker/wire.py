"""A bare connection that speaks Kafka's protocol with our tables: no client, no retries."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from kafkalog.wire import apis, headers

__all__ = ["Connection", "create_topic", "delete_topic", "frame"]

CLIENT = "bench"
WAIT_MS = 30_000


def frame(name: str, version: int, body: Mapping[str, Any], correlation_id: int = 0) -> bytes:
    """A whole request as it is sent over the wire."""
    api = getattr(apis, name)
    header = headers.encode_request_header(api, version, correlation_id, CLIENT)
    data = header + api.encode_request(version, dict(body))
    return struct.pack(">i", len(data)) + data


class Connection:
    """One connection; a context manager."""

    def __init__(self, bootstrap: str, context: ssl.SSLContext | None = None) -> None:
        """`context`: of TLS, if the listener has it."""
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def read(self) -> bytes:
        """The next response, without its size."""
        size = self._file.read(4)
        if len(size) < 4:
            raise EOFError("the broker closed the connection")
        return self._file.read(struct.unpack(">i", size)[0])

    def ask(self, name: str, version: int, body: Mapping[str, Any]) -> Any:
        """One request and its answer, decoded."""
        self.socket.sendall(frame(name, version, body))
        api = getattr(apis, name)
        data = self.read()
        _, pos = headers.decode_response_header(api, version, data)
        return api.decode_response(version, data, pos)


def create_topic(bootstrap: str, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Create a topic and wait until each partition has its leader."""
    configs = [{"name": name, "value": value} for name, value in settings.items()]
    new = {
        "name": topic, "num_partitions": partitions, "replication_factor": 1,
        "assignments": [], "configs": configs,
    }  # fmt: skip
    with Connection(bootstrap) as connection:
        asked = {"topics": [new], "timeout_ms": WAIT_MS, "validate_only": False}
        (made,) = connection.ask("CREATE_TOPICS", 4, asked).topics
        if made.error_code:
            raise RuntimeError(f"{topic} is not made: error {made.error_code}")
        while not _leads(connection, topic, partitions):
            pass  # each look waits for an answer


def _leads(connection: Connection, topic: str, partitions: int) -> bool:
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    (found,) = connection.ask("METADATA", 5, asked).topics
    leaders = [part.leader_id for part in found.partitions if not part.error_code]
    return len(leaders) == partitions and min(leaders) >= 0


def delete_topic(bootstrap: str, topic: str) -> None:
    with Connection(bootstrap) as connection:
        asked = {"topic_names": [topic], "timeout_ms": WAIT_MS}
        (gone,) = connection.ask("DELETE_TOPICS", 3, asked).responses
        if gone.error_code:
            raise RuntimeError(f"{topic} is not deleted: error {gone.error_code}")
