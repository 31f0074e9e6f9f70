"""TLS in front of a server without it: real handshakes and records, and misbehaviour on command."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from pathlib import Path

from tests.support.waiting import LIMIT_S

__all__ = ["TlsFront"]


class TlsFront:
    """Takes TLS connections on a free port of 127.0.0.1 and relays their bytes to `target`, a port.

    A context manager.
    """

    def __init__(self, certificate: Path, authority: Path | None = None) -> None:
        """`certificate`: with its key; `authority`: clients must show a certificate of it."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        if authority is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(authority)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = 0
        self.taken = 0
        """Connections that have come."""
        self.mute = threading.Event()
        """While it is set, no handshake is answered."""
        self.hold = threading.Event()
        """While it is set, answers are kept; then all are sent in one record."""
        self.held = 0
        """Bytes that are kept."""
        self.tear = threading.Event()
        """Once it is set, each connection ends in the middle of the next record."""
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> TlsFront:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def _start(self, target: object, *words: object) -> None:
        thread = threading.Thread(target=target, args=words, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                made, _ = self._listener.accept()
                self.taken += 1
                self._start(self._serve, made)

    def _serve(self, raw: socket.socket) -> None:
        with raw:
            while self.mute.is_set() and not self._over.is_set():
                self._over.wait(0.01)
            with contextlib.suppress(OSError):
                tls = self._context.wrap_socket(raw, server_side=True)
                with tls, socket.create_connection(("127.0.0.1", self.target)) as plain:
                    self._relay(tls, plain)

    def _relay(self, tls: ssl.SSLSocket, plain: socket.socket) -> None:
        poll, kept = select.poll(), b""
        poll.register(tls.fileno(), select.POLLIN)
        poll.register(plain.fileno(), select.POLLIN)
        while not self._over.is_set():
            if kept and not self.hold.is_set():
                tls.sendall(kept)
                kept, self.held = b"", 0
            ready = {number for number, _ in poll.poll(0 if tls.pending() else 10)}
            if tls.pending() or tls.fileno() in ready:
                if not (data := tls.recv(1 << 16)):
                    return
                plain.sendall(data)
            if plain.fileno() in ready:
                if not (data := plain.recv(1 << 16)):
                    return
                if self.tear.is_set():
                    _half(tls, data)
                    return
                if self.hold.is_set():
                    kept += data
                    self.held = len(kept)
                else:
                    tls.sendall(data)


def _half(tls: ssl.SSLSocket, data: bytes) -> None:
    """Send the beginning of a record, and end the connection."""
    number = tls.detach()
    with socket.socket(fileno=number) as raw:
        raw.sendall(b"\x17\x03\x03" + len(data).to_bytes(2, "big") + data[: len(data) // 2])
