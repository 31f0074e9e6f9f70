"""A small HTTP server for pages that are made when they are asked for.

It has a few threads of its own; each serves one connection, which has one request.  Everything that
a client sends is bounded, in bytes and time, and so is how long it may take to read the answer.
Neither clients that send nothing nor pages that take long keep all threads: pages that wait for
nothing are served at any time.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kafkalog.errors import IoFailed
from kafkalog.logs.limit import limited

__all__ = ["OK", "TEXT", "UNAVAILABLE", "Endpoint", "Page", "bound"]

_logger = limited(__name__)

PAGES = 4
"""Pages that may take long and are made or sent at the same time; another one is refused."""
THREADS = PAGES + 2
"""Connections that are served at the same time: when all threads have one, the oldest that has not
sent its request is closed, so that a thread can accept the next."""
BACKLOG = 16
REQUEST_BYTES_MAX = 8_192
REQUEST_S, ANSWER_S = 5.0, 30.0
"""How long a request may take to arrive, and its answer to be read."""
TEXT = "text/plain; charset=utf-8"
OK, UNAVAILABLE = 200, 503
_BAD, _NOT_FOUND, _NOT_ALLOWED, _LATE, _TOO_LARGE = 400, 404, 405, 408, 431
_PHRASES = {
    OK: "OK", _BAD: "Bad Request", _NOT_FOUND: "Not Found", _NOT_ALLOWED: "Method Not Allowed",
    _LATE: "Request Timeout", _TOO_LARGE: "Request Header Fields Too Large",
    UNAVAILABLE: "Service Unavailable",
}  # fmt: skip
"""The module http has them, too, but its import takes longer than that of all of this."""


class Page(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes


class _Refused(Exception):
    """A request that gets an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.page = Page(status, TEXT, f"{reason}\n".encode())


class _Asked(NamedTuple):
    method: str
    path: str
    accept: str


_open: weakref.WeakSet[Endpoint] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child has none of the threads, and must not keep the port."""
    for one in list(_open):
        one._forget()


os.register_at_fork(after_in_child=_close_in_child)


class Endpoint:
    """Serves pages at a port until it is closed."""

    def __init__(
        self, host: str, port: int, name: str, pages: Mapping[str, Callable[[str], Page]],
        at_once: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Bind and serve.  `port` 0: any free one.  `pages`: by path; each is given the request's
        Accept header, in any of the threads, whose names begin with `name`.  `at_once`: paths of
        those that wait for nothing, and are small.

        Raises: IoFailed: the address cannot be bound.
        """
        self._pages = pages
        self._at_once = frozenset(at_once)
        self._slots = threading.BoundedSemaphore(PAGES)
        self._lock = threading.Lock()  # guards the next three
        self._serving: set[socket.socket] = set()
        self._reading: dict[socket.socket, None] = {}  # those without a request, the oldest first
        self._closed = False
        self._listening = bound(host, port)
        self.host = host
        self.port: int = self._listening.getsockname()[1]
        """The bound port."""
        _open.add(self)
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name} http", daemon=True)
            for _ in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> str:
        """host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Where browsers find it."""
        return f"http://{self.address}/"

    def close(self) -> None:
        """Close the port and its connections; on return no page is being made.  Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            serving = [*self._serving]
        _open.discard(self)
        for one in (self._listening, *serving):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for it
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _forget(self) -> None:
        self._closed = True
        for one in (self._listening, *self._serving):
            one.close()

    # ---- one connection ----------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listening.accept()
            except OSError as problem:
                if not self._closed:  # no descriptor is left, for now
                    _logger.warning("http: %s", problem)
                    time.sleep(0.1)
                continue
            self._admit(connection)
            try:
                self._one(connection)
            except OSError:
                pass  # its client has gone, or takes too long
            except Exception:
                _logger.exception("http: a request failed")
            finally:
                with self._lock:
                    self._serving.discard(connection)
                    self._reading.pop(connection, None)
                connection.close()

    def _admit(self, connection: socket.socket) -> None:
        """Serve a connection; if no thread is left, the oldest one without a request ends."""
        with self._lock:
            if self._closed:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                return
            self._serving.add(connection)
            if len(self._serving) == THREADS and self._reading:
                oldest = next(iter(self._reading))
                del self._reading[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RD)  # wakes its thread
            self._reading[connection] = None

    def _one(self, connection: socket.socket) -> None:
        head = False
        with contextlib.ExitStack() as held:
            try:
                asked = _read(connection)
                with self._lock:
                    self._reading.pop(connection, None)
                head = asked.method == "HEAD"
                page = self._page(asked, held)
            except _Refused as problem:
                page = problem.page
            _send(connection, page, head)

    def _page(self, asked: _Asked, held: contextlib.ExitStack) -> Page:
        """The page; `held` keeps its place among those that may take long until it is sent."""
        made = self._pages.get(asked.path)
        if made is None:
            known = ", ".join(self._pages)
            raise _Refused(_NOT_FOUND, f"found another path, wanted one of {known}")
        if asked.method not in ("GET", "HEAD"):
            raise _Refused(_NOT_ALLOWED, "found another method, wanted GET")
        if asked.path not in self._at_once:
            if not self._slots.acquire(blocking=False):
                raise _Refused(UNAVAILABLE, f"found {PAGES} requests in progress, wanted fewer")
            held.callback(self._slots.release)
        return made(asked.accept)


def bound(host: str, port: int, setting: str = "kafkalog.http.listen") -> socket.socket:
    """A listening socket.  `setting`: what names the address.  Raises: IoFailed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as problem:
        listening.close()
        raise IoFailed(f"{setting}: {host}:{port}: {problem}") from None
    return listening


def _read(connection: socket.socket) -> _Asked:
    """The request; its body, if it has one, is left unread."""
    until_s = time.monotonic() + REQUEST_S
    data = b""
    while b"\r\n\r\n" not in data:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise _Refused(_LATE, f"found no request in {REQUEST_S:g} s")
        if len(data) >= REQUEST_BYTES_MAX:
            raise _Refused(
                _TOO_LARGE,
                f"found a longer request, wanted at most {REQUEST_BYTES_MAX} bytes",
            )
        connection.settimeout(left_s)
        try:
            more = connection.recv(REQUEST_BYTES_MAX - len(data))
        except TimeoutError:
            continue
        if not more:
            raise ConnectionAbortedError
        data += more
    return _parsed(data.partition(b"\r\n\r\n")[0])


def _parsed(head: bytes) -> _Asked:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Refused(_BAD, "found no request of HTTP/1.1")
    accept = ""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() == "accept":
            accept = value.strip()
    return _Asked(words[0], words[1].partition("?")[0], accept)


def _send(connection: socket.socket, page: Page, head: bool) -> None:
    lines = [
        f"HTTP/1.1 {page.status} {_PHRASES[page.status]}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(["Allow: GET, HEAD"] if page.status == _NOT_ALLOWED else []),
    ]
    data = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if head else page.body)
    connection.settimeout(ANSWER_S)
    connection.sendall(data)  # the time limit is for all of it
    connection.shutdown(socket.SHUT_WR)
