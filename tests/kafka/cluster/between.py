"""A port between a node and its ZooKeeper, which can withhold answers from the node."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

MULTI = 14
"""The type of a request whose operations ZooKeeper executes together or not at all."""
MARK = struct.Struct(">iii")
"""The beginning of a request: the length of the rest, its number, its type."""


class Between:
    """Forwards everything; a context manager, which closes all connections at its end."""

    def __init__(self, port: int) -> None:
        """`port`: ZooKeeper's, which may start later, and go and come back."""
        self._there = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._lock = threading.Lock()  # guards what follows
        self._open: set[socket.socket] = set()
        self._wanted: tuple[bytes, threading.Event] | None = None

    def __enter__(self) -> Between:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listening)
        self._listening.close()
        with self._lock:
            connections = [*self._open]
        for one in connections:
            _end(one)

    def hold(self, path: str) -> threading.Event:
        """Forward the next multi that names a znode, and from then on no answer on its connection:
        ZooKeeper executes the request, and the node does not learn of it.

        Returns an event, which is set just before that request is forwarded.
        """
        passes = threading.Event()
        with self._lock:
            self._wanted = path.encode(), passes
        return passes

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the end
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._join, args=[near], daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        """Serve one connection, until either side ends it."""
        try:
            far = socket.create_connection(self._there)
        except OSError:
            near.close()
            return
        both, deaf = (near, far), threading.Event()
        with self._lock:
            self._open.update(both)
        back = threading.Thread(target=self._answers, args=[near, far, deaf], daemon=True)
        back.start()
        with contextlib.suppress(OSError):
            while len(mark := _exactly(near, MARK.size)) == MARK.size:
                length, _, kind = MARK.unpack(mark)
                request = mark + _exactly(near, 4 + length - MARK.size)
                if kind == MULTI and (passes := self._waited_for(request)):
                    deaf.set()
                    passes.set()
                far.sendall(request)
        for one in both:
            _end(one)
        back.join()
        with self._lock:
            self._open.difference_update(both)
        for one in both:
            one.close()

    def _waited_for(self, request: bytes) -> threading.Event | None:
        """The event that `hold` returned, if this is the request; later requests are forwarded."""
        with self._lock:
            if self._wanted is None or self._wanted[0] not in request:
                return None
            _, passes = self._wanted
            self._wanted = None
            return passes

    @staticmethod
    def _answers(near: socket.socket, far: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(1 << 16):
                if not deaf.is_set():
                    near.sendall(data)
        _end(near)


def _exactly(connection: socket.socket, count: int) -> bytes:
    """`count` bytes, or fewer at the end."""
    found = b""
    while len(found) < count and (data := connection.recv(count - len(found))):
        found += data
    return found


def _end(connection: socket.socket) -> None:
    """Wake the thread that waits for the connection; it closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
