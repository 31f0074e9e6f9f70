"""A client that sends exactly what a test wants, over a real socket, and the server."""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.config.server import ServerConfig
from kafkalog.errors import StorageOffline
from kafkalog.log.log import handle_of
from kafkalog.server.network.reactor import Reactor
from kafkalog.wire import apis
from tests.support.batches import Row, batch
from tests.support.waiting import LIMIT_S

TIMEOUT_S = LIMIT_S
ALL, LEADER, NONE = -1, 1, 0
PRODUCE_VERSIONS = range(3, 12)
FETCH_VERSIONS = range(4, 19)
NO_ID = uuid.UUID(int=0)


def topic_id(name: str) -> uuid.UUID:
    """The topic id that the tests use."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


def one(value: bytes | None = b"value", key: bytes | None = None, **more: Any) -> bytes:
    """A batch of one record."""
    return batch([Row(value, key, 1_700_000_000_000)], **more)


class Peer:
    """One connection.  Requests can be pipelined: send, send, receive, receive."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(address)
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0
        self.topic_ids: dict[str, uuid.UUID] = {}
        """Topics whose id differs from topic_id's."""
        self._expected: list[tuple[int, Any, int]] = []

    def close(self) -> None:
        self.socket.close()

    def send_body(
        self, api: Any, version: int, body: bytes, client_id: str | None = "peer", old: bool = False
    ) -> None:
        """Send a request with any body; `old`: of a version below those that the tables know."""
        self.correlation_id += 1
        flexible = not old and api.request_header_version(version) == 2
        name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id))
        name += (client_id or "").encode()
        head = struct.pack(">hhi", api.key, version, self.correlation_id) + name
        frame = head + (b"\0" if flexible else b"") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        self._expected.append((self.correlation_id, api, version))

    def send(self, api: Any, version: int, fields: Mapping[str, Any], **more: Any) -> None:
        self.send_body(api, version, api.encode_request(version, dict(fields)), **more)

    def expects_nothing(self) -> None:
        """The last request has no response (acks=0)."""
        self._expected.pop()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("closed by the server")
            data += more
        return bytes(data)

    def receive_frame(self) -> bytes:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def receive(self) -> Any:
        """The next response, decoded; it must answer the oldest request."""
        frame = self.receive_frame()
        correlation_id, api, version = self._expected.pop(0)
        assert struct.unpack_from(">i", frame)[0] == correlation_id
        pos = 4 + api.response_header_version(version)
        assert frame[4:pos] in (b"", b"\0")
        return api.decode_response(version, frame, pos)

    def ask(self, api: Any, version: int, fields: Mapping[str, Any], **more: Any) -> Any:
        self.send(api, version, fields, **more)
        return self.receive()

    def is_closed(self) -> bool:
        """True if the server closes the connection without sending another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    # ---- Produce and Fetch ---------------------------------------------------------------------

    def send_produce(
        self,
        batches: Mapping[tuple[str, int], bytes | None],
        *,
        version: int = 9,
        acks: int = LEADER,
        timeout_ms: int = 30_000,
        transactional_id: str | None = None,
        **more: Any,
    ) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), data in batches.items():
            topics.setdefault(topic, []).append({"index": partition, "records": data})
        fields = {
            "transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms,
            "topic_data": [{"name": n, "partition_data": ps} for n, ps in topics.items()],
        }  # fmt: skip
        self.send(apis.PRODUCE, version, fields, **more)

    def produce(self, batches: Mapping[tuple[str, int], bytes | None], **more: Any) -> Any:
        self.send_produce(batches, **more)
        return self.receive()

    def produce_one(
        self, data: bytes | None, place: tuple[str, int] = ("t", 0), **more: Any
    ) -> Any:
        """The response for one partition's batch."""
        response = self.produce({place: data}, **more)
        (topic,) = response.responses
        (found,) = topic.partition_responses
        assert (topic.name, found.index) == place
        return found

    def send_fetch(
        self,
        wanted: Mapping[tuple[str, int], int | Mapping[str, Any]],
        *,
        version: int = 11,
        forgotten: Mapping[str, list[int]] | None = None,
        **more: Any,
    ) -> None:
        """`wanted`: the offset of each partition, or its fields."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), what in wanted.items():
            fields = {"fetch_offset": what} if isinstance(what, int) else dict(what)
            fields.setdefault("partition_max_bytes", 1 << 20)
            topics.setdefault(topic, []).append({"partition": partition, **fields})
        request: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20}
        if version < 15:
            request["replica_id"] = -1
        request["topics"] = [
            {**self.named(t, version), "partitions": ps} for t, ps in topics.items()
        ]
        if forgotten:
            request["forgotten_topics_data"] = [
                {**self.named(t, version), "partitions": ps} for t, ps in forgotten.items()
            ]
        self.send(apis.FETCH, version, {**request, **more})

    def named(self, topic: str, version: int) -> dict[str, Any]:
        """How Fetch names a topic."""
        if version >= 13:
            return {"topic_id": self.topic_ids.get(topic, topic_id(topic))}
        return {"topic": topic}

    def fetch(self, wanted: Mapping[tuple[str, int], Any], **more: Any) -> Any:
        self.send_fetch(wanted, **more)
        return self.receive()

    def fetch_one(self, offset: int, place: tuple[str, int] = ("t", 0), **more: Any) -> Any:
        """One partition's response; fields of the partition may be passed, too."""
        names = ("current_leader_epoch", "last_fetched_epoch", "partition_max_bytes")
        fields = {name: more.pop(name) for name in names if name in more}
        response = self.fetch({place: {"fetch_offset": offset, **fields}}, **more)
        (topic,) = response.responses
        (found,) = topic.partitions
        return found


def named(topic: str, version: int) -> dict[str, Any]:
    """How Fetch names one of our topics."""
    return {"topic_id": topic_id(topic)} if version >= 13 else {"topic": topic}


class Served:
    """A reactor with a stopped clock, its port, and the logs that it serves."""

    def __init__(self, folder: Path, manual_clock: bool = True, **settings: Any) -> None:
        self.folder = folder
        self.now_ms = 0
        self.reactor = Reactor(
            ServerConfig({"num.network.threads": 2, **settings}),
            node_id=1,
            manual_clock=manual_clock,
        )
        self.port = self.reactor.listen("127.0.0.1", 0, 0)
        self.reactor.start()
        self.logs: dict[tuple[str, int], kafkalog.Log] = {}
        self.peers: list[Peer] = []

    def put(
        self,
        topic: str = "t",
        partitions: int = 1,
        *,
        config: Mapping[str, object] | None = None,
        durable: bool = False,
        leader_epoch: int = 0,
        **flags: bool,
    ) -> kafkalog.Log:
        """Open and serve a topic; returns its first partition's log."""
        self.reactor.put_topic(topic, topic_id(topic), **flags)
        for partition in range(partitions):
            log = kafkalog.Log(self.folder / f"{topic}-{partition}", config=dict(config or {}))
            self.logs[topic, partition] = log
            self.reactor.put_partition(handle_of(log), leader_epoch=leader_epoch, durable=durable)
        return self.logs[topic, 0]

    def remove(self, topic: str) -> None:
        self.reactor.remove_topic(topic)
        for key in [key for key in self.logs if key[0] == topic]:
            self.logs.pop(key).close()

    def connect(self) -> Peer:
        peer = Peer(("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.reactor.set_time(self.now_ms)

    def parked(self) -> int:
        return self.reactor.stats().parked

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        self.reactor.close()
        for log in self.logs.values():
            with suppress(StorageOffline):
                log.close()
