"""The console's HTTP server: uvicorn in a thread of its own, with bounds on connections.

It needs no thread for a connection.  Those of clients that are slow, in a handshake of TLS, to ask
or to read, end in time, and earlier if others need room: the number of sockets is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from kafkalog.errors import InvalidSetting, MissingPackage
from kafkalog.logs.limit import limited
from kafkalog.metrics.endpoint import bound

if TYPE_CHECKING:
    from kafkalog.console.web import Web

__all__ = ["ConsoleServer", "tls_of"]

_logger = limited(__name__)

CONNECTIONS_MAX = 64
"""Also those in a handshake of TLS."""
HEAD_BYTES_MAX = 16_384
"""The longest request without its body."""
QUIET_S, ANSWER_S = 10.0, 30.0
"""How long a client may take to ask, and to read an answer, to which comes up to a QUIET_S more."""
ENDING_S, LOOK_S = 1.0, 0.02
"""How long requests may take when the console closes: by themselves, then without clients that are
slow, then cancelled."""

_SILENT = logging.Logger("uvicorn", logging.CRITICAL + 1)
"""uvicorn's lines of a connection: its clients cause them, and `Web` logs what fails."""

_open: weakref.WeakSet[ConsoleServer] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child has not the thread, and must not keep the port."""
    for one in list(_open):
        one._forget()


os.register_at_fork(after_in_child=_close_in_child)


def tls_of(path: str, name: str) -> ssl.SSLContext:
    """TLS with the private key and the certificates of a PEM file; `name`: the setting's.

    Raises: InvalidSetting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(path, password=lambda: "")
    except (OSError, ValueError) as problem:
        raise InvalidSetting(
            f"{name}: {path}: {problem}; wanted a PEM file with an unencrypted private key and its "
            "certificates"
        ) from None
    return context


class ConsoleServer:
    """Serves the console at a port until it is closed."""

    def __init__(
        self, host: str, port: int, name: str, web: Web, tls: ssl.SSLContext | None = None,
        setting: str = "kafkalog.http.listen",
    ) -> None:  # fmt: skip
        """Bind and serve.  `port` 0: any free one.  The threads' names begin with `name`.
        `setting`: what names the address.

        Raises: IoFailed: the address cannot be bound; MissingPackage.
        """
        self._web = web
        self._tls = tls
        self._closed = False
        self._listening = _Door(bound(host, port, setting))
        self.host = host
        self.port: int = self._listening.getsockname()[1]
        """The bound port."""
        try:
            self._server = _server_of(web, tls, self._listening)
        except ImportError:
            self._listening.close()
            raise MissingPackage(
                "the console needs uvicorn, which is not installed: pip install 'kafkalog[console]'"
            ) from None
        _open.add(self)
        self._thread = threading.Thread(target=self._run, name=f"{name} console", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"{'http' if self._tls is None else 'https'}://{self.address}/"

    def close(self) -> None:
        """Close the port, its connections, and the sessions' clients.  Idempotent."""
        if self._closed:
            return
        self._closed = True
        _open.discard(self)
        self._server.should_exit = True
        self._web.interrupt()  # requests in progress end early
        self._thread.join()
        self._listening.close()
        self._web.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._listening]))
        except Exception:
            _logger.exception("console: the server failed")

    def _forget(self) -> None:
        self._closed = True
        self._listening.close()
        for one in self._listening.guests():
            with contextlib.suppress(OSError):
                one.socket.close()


class _Guest:
    """A connection that was accepted."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.protocol: Any = None
        """None: it is not made yet, as its handshake is in progress."""
        self.used_s = time.monotonic()
        """When something last came from the client."""
        self.leaves = False

    @property
    def waits(self) -> bool:
        """True if it waits for its client."""
        return self.protocol is None or self.protocol.waits_s is not None

    def leave(self) -> None:
        """End it, in one of the event loop's next turns."""
        self.leaves = True
        if self.protocol is not None:
            self.protocol.transport.abort()
            return
        with contextlib.suppress(OSError):  # the handshake finds the end
            self.socket.shutdown(socket.SHUT_RDWR)


class _Door(socket.socket):
    """A listening socket that accepts only so many connections at a time.

    asyncio tells of a connection when its handshake is over: until then only this knows of it.
    """

    def __init__(self, listening: socket.socket) -> None:
        """`listening` is used up."""
        super().__init__(fileno=listening.detach())
        self._guests: dict[int, _Guest] = {}  # by file descriptor

    def guests(self) -> list[_Guest]:
        """All that are open."""
        return [one for one in [*self._guests.values()] if one.socket.fileno() >= 0]

    def accept(self) -> tuple[socket.socket, Any]:
        """As asyncio calls it.  Raises: BlockingIOError: there is nobody, or no room."""
        inside = self.guests()
        self._guests = {one.socket.fileno(): one for one in inside}
        if len(inside) > CONNECTIONS_MAX:
            raise BlockingIOError  # it is tried again as soon as the one that leaves has left
        connection, address = super().accept()
        if len(inside) == CONNECTIONS_MAX and not _one_leaves(inside):
            connection.close()
            raise BlockingIOError
        guest = self._guests[connection.fileno()] = _Guest(connection)
        asyncio.get_running_loop().call_later(QUIET_S, _end_handshake, guest)
        return connection, address

    def made(self, protocol: Any) -> _Guest:
        """The guest whose connection is made now."""
        guest = self._guests[protocol.transport.get_extra_info("socket").fileno()]
        guest.protocol, guest.used_s = protocol, time.monotonic()
        if guest.leaves:
            guest.leave()
        return guest


def _one_leaves(inside: list[_Guest]) -> bool:
    """Let the one leave that waits for its client longest; False: all are served."""
    if any(one.leaves for one in inside):
        return True
    slow = [one for one in inside if one.waits]
    if slow:
        min(slow, key=lambda one: one.used_s).leave()
    return bool(slow)


def _end_handshake(guest: _Guest) -> None:
    if guest.protocol is None and guest.socket.fileno() >= 0:
        guest.leave()


def _server_of(web: Web, tls: ssl.SSLContext | None, door: _Door) -> Any:
    """Raises: ImportError."""
    import uvicorn

    class Orderly(uvicorn.Server):
        """When it ends, its requests have ended; it would complain of those that have not."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for one in self.servers:
                one.close()  # nobody else comes
            await _end_requests(door, self.server_state.tasks)
            await super().shutdown(sockets)

    config = uvicorn.Config(
        web, http=_protocol(door), ws="none", lifespan="on", interface="asgi3", loop="asyncio",
        log_config=None, log_level="error", access_log=False, proxy_headers=False,
        server_header=False, timeout_graceful_shutdown=max(1, round(ENDING_S)),
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )  # fmt: skip
    config.load()
    config.ssl = tls
    return Orderly(config)


async def _end_requests(door: _Door, tasks: set[asyncio.Task[None]]) -> None:
    """Wait for requests and their answers, at most ENDING_S each time."""

    def leave() -> None:
        for one in door.guests():
            if one.waits:
                one.leave()

    def cancel() -> None:
        for one in [*tasks]:
            one.cancel()

    for act in (None, leave, cancel):
        if act is not None:
            act()
        until_s = time.monotonic() + ENDING_S
        while (tasks or any(map(_sends, door.guests()))) and time.monotonic() < until_s:
            await asyncio.sleep(LOOK_S)
    leave()
    await asyncio.sleep(0)


def _sends(guest: _Guest) -> bool:
    """True if a part of an answer waits for the client."""
    return bool(guest.protocol is not None and guest.protocol.transport.get_write_buffer_size())


def _protocol(door: _Door) -> Any:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Bounded(H11Protocol):
        """Connections that end if their clients are slow."""

        _guest: _Guest
        _looks: asyncio.TimerHandle
        _last: Any = None  # what it waited for at the last look
        _since_s = 0.0

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.logger = _SILENT

        @property
        def waits_s(self) -> float | None:
            """How long it may wait for its client as it does now; None: the client waits."""
            if self.flow.write_paused or self.transport.is_closing():
                return ANSWER_S
            asks = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
            return QUIET_S if asks else None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._guest = door.made(self)
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            self._looks.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._guest.used_s = time.monotonic()
            super().data_received(data)

        def _look(self) -> None:
            """Close it if its client has done nothing for too long."""
            now_s, most_s = time.monotonic(), self.waits_s
            if most_s is None or self._last != (self.cycle, most_s):
                self._last, self._since_s = (self.cycle, most_s), now_s
            elif now_s - self._since_s >= most_s:
                self.transport.abort()
                return
            self._looks = self.loop.call_later(QUIET_S, self._look)

    return Bounded
