"""A TCP proxy that passes bytes on, and cuts connections on command."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading

__all__ = ["Proxy"]

PIECE = 1 << 16
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, 0 s: close sends a reset


class Proxy:
    """Connections to its port go to `target`; each is closed by `cut`, or by either end.

    After `lose_replies` each connection loses the answers after a random number of bytes, and is
    then cut: the last request was executed, and the client does not know.
    """

    def __init__(self, target: tuple[str, int], late_s: float = 0) -> None:
        """`late_s`: how much later each piece of an answer comes."""
        self._target = target
        self._late_s = late_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cuts = 0
        self._rng = random.Random(0)
        self._mean_bytes: int | None = None
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def lose_replies(self, mean_bytes: int | None, seed: int = 0) -> None:
        """Cut each connection after about this many bytes of answers; None: stop that."""
        self._rng = random.Random(seed)
        self._mean_bytes = mean_bytes

    def cut(self) -> None:
        """Reset every connection."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            self._reset(pair)

    def _reset(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self.cuts += 1
        for end in pair:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, 5)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            allowed = None
            if self._mean_bytes is not None:
                allowed = int(self._rng.expovariate(1 / self._mean_bytes)) + 200
            for source, target, limit, late_s in (
                (client, server, None, 0), (server, client, allowed, self._late_s),
            ):  # fmt: skip
                threading.Thread(
                    target=self._pump, args=(pair, source, target, limit, late_s), daemon=True
                ).start()

    def _pump(
        self,
        pair: tuple[socket.socket, socket.socket],
        source: socket.socket,
        target: socket.socket,
        allowed: int | None,
        late_s: float,
    ) -> None:
        """Forward until an end closes, or until `allowed` bytes are used up."""
        pause = threading.Event()
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE):
                if allowed is not None:
                    allowed -= len(data)
                    if allowed < 0:
                        break
                pause.wait(late_s)
                target.sendall(data)
        with self._lock:
            mine = pair in self._pairs
            self._pairs.discard(pair)
        if mine:
            self._reset(pair)
