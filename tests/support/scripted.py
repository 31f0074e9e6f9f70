"""A peer on a real socket: it follows the protocol, or breaks it as a test requires."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafkalog.server.request import KNOWN
from kafkalog.wire import apis, headers
from tests.support.waiting import LIMIT_S

Answer = Callable[[Any, int], Any]
"""(request, version) -> the response's fields, or one of the things below."""
CLOSE, STALL, SILENCE = object(), object(), object()
"""Close the connection; stop reading and answering; no answer to this request (acks=0)."""


class Raw(bytes):
    """Bytes to send as they are, instead of a frame."""


class Body(bytes):
    """The bytes of a response after its header."""


class Torn(NamedTuple):
    """Half of an answer's frame first, and the rest when it is released."""

    answer: Any
    begun: threading.Event
    let: threading.Event


METRICS = (apis.GET_TELEMETRY_SUBSCRIPTIONS.key, apis.PUSH_TELEMETRY.key)
"""Announced only by a peer that has answers for them: clients that see them use them."""


class Peer:
    """Listens on a free port; every connection has a thread.  A context manager.

    `on(api, *answers)` sets the answers to an API's requests, one after another; the last one
    repeats.  `requests` lists the requests received: (name, version, request).
    """

    def __init__(
        self, versions: dict[Any, tuple[int, int]] | None = None, window_bytes: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        """`window_bytes`: about how many bytes of a connection it accepts before it reads them;
        `tls`: encrypts them, None: nothing does."""
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        if window_bytes:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        self.port = self._listener.getsockname()[1]
        self.requests: list[tuple[str, int, Any]] = []
        self.connections = 0
        self.versions = dict(versions or {})
        self._answers: dict[int, list[Any]] = {}
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()  # guards the answers
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self.on(apis.API_VERSIONS, self._api_versions)
        self.on(apis.METADATA, lambda request, version: self.metadata({}))
        self._spawn(self._accept)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # otherwise accept would keep waiting
        self._listener.close()
        for sock in list(self._open):
            with contextlib.suppress(OSError):  # the client disconnected first
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LIMIT_S)

    def on(self, api: Any, *answers: Any) -> None:
        with self._lock:
            self._answers[api.key] = list(answers)

    @property
    def open(self) -> int:
        """The number of connections that it reads from."""
        return len(self._open)

    def count(self, api: Any) -> int:
        """The number of an API's requests received."""
        return sum(1 for name, _, _ in self.requests if name == api.name)

    def sent(self, api: Any) -> list[Any]:
        """An API's requests received."""
        return [request for name, _, request in self.requests if name == api.name]

    # ---- answers -----------------------------------------------------------------------

    def _api_versions(self, request: Any, version: int) -> Any:
        ranges = {
            api.key: (api.versions.start, api.versions.stop - 1) for api in apis.BY_KEY.values()
        }
        ranges.update({api.key: span for api, span in self.versions.items()})
        return {
            "api_keys": [
                {"api_key": key, "min_version": low, "max_version": high}
                for key, (low, high) in ranges.items()
                if high >= low and (key not in METRICS or key in self._answers)
            ]
        }

    def metadata(self, topics: dict[str, int], leader: int = 1, error: int = 0) -> dict[str, Any]:
        """One node, this one; topics with these numbers of partitions."""
        return {
            "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port}],
            "cluster_id": "test",
            "controller_id": 1,
            "topics": [
                {
                    "name": name,
                    "error_code": error,
                    "partitions": [
                        {
                            "partition_index": p,
                            "leader_id": leader,
                            "replica_nodes": [1],
                            "isr_nodes": [1],
                        }
                        for p in range(0 if error else count)
                    ],
                }
                for name, count in topics.items()
            ],
        }

    # ---- the socket --------------------------------------------------------------------

    def _spawn(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(sock)
            self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                self._open.discard(sock)
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._open.add(sock)
            while (head := exactly(sock, 4)) is not None:
                frame = exactly(sock, struct.unpack(">i", head)[0])
                if frame is None or not self._one(sock, frame):
                    break
        except OSError:
            return  # the client disconnected, or the test is over
        finally:
            self._open.discard(sock)
            sock.close()

    def _one(self, sock: socket.socket, frame: bytes) -> bool:
        """Answer one request; False: close the connection."""
        header = headers.decode_request_header(frame, KNOWN)
        api = KNOWN[header.key]
        request = api.decode_request(header.version, frame, header.pos)
        with self._lock:
            answers = self._answers[api.key]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            self.requests.append((api.name, header.version, request))
        if callable(answer):
            answer = answer(request, header.version)
        if answer is CLOSE:
            return False
        if answer is STALL:
            self._over.wait()
            return False
        if answer is SILENCE:
            return True
        if isinstance(answer, Raw):
            sock.sendall(answer)
            return True
        torn, answer = (answer, answer.answer) if isinstance(answer, Torn) else (None, answer)
        if not isinstance(answer, Body):
            answer = api.encode_response(header.version, answer)
        out = headers.encode_response_header(api, header.version, header.correlation_id) + answer
        out = struct.pack(">i", len(out)) + out
        if torn is not None:
            sock.sendall(out[: len(out) // 2])
            torn.begun.set()
            torn.let.wait(LIMIT_S)
            out = out[len(out) // 2 :]
        sock.sendall(out)
        return True


def exactly(sock: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def produced(codes: Iterable[int], offsets: Iterable[int] = ()) -> Answer:
    """An answer to Produce that gives each partition of the request the next code."""
    some, bases = list(codes), list(offsets)

    def answer(request: Any, version: int) -> Any:
        return {
            "responses": [
                {
                    "name": topic.name,
                    "partition_responses": [
                        {
                            "index": row.index,
                            "error_code": some.pop(0) if some else 0,
                            "base_offset": bases.pop(0) if bases else 0,
                        }
                        for row in topic.partition_data
                    ],
                }
                for topic in request.topic_data
            ]
        }

    return answer
