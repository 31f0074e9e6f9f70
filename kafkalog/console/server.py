"""The console's HTTP server: uvicorn in a thread of its own, with bounds on connections.

It needs no thread for a connection, so that clients that are slow to ask or to read hold nothing
but their socket; the number of sockets is bounded, and idle ones make room for new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
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
HEAD_BYTES_MAX = 16_384
"""The longest request without its body."""
QUIET_S = 10.0
"""A connection without a request in progress is closed after one to two of these."""
ENDING_S = 2

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
        self._listening = bound(host, port, setting)
        self.host = host
        self.port: int = self._listening.getsockname()[1]
        """The bound port."""
        try:
            self._server = _server_of(web, tls)
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
        for one in list(self._server.server_state.connections):
            if one.transport is not None:
                made = getattr(one.transport.get_extra_info("socket"), "_sock", None)
                with contextlib.suppress(OSError):
                    if isinstance(made, socket.socket):
                        made.close()


def _server_of(web: Web, tls: ssl.SSLContext | None) -> Any:
    """Raises: ImportError."""
    import uvicorn

    config = uvicorn.Config(
        web, http=_protocol(), ws="none", lifespan="on", interface="asgi3", loop="asyncio",
        log_config=None, log_level="error", access_log=False, proxy_headers=False,
        server_header=False, timeout_graceful_shutdown=ENDING_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )  # fmt: skip
    config.load()
    config.ssl = tls
    return uvicorn.Server(config)


def _protocol() -> Any:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Bounded(H11Protocol):
        """Connections, of which there are only so many."""

        _looked = False
        _last: Any = None  # the request that was the last one at that time

        @property
        def _waits(self) -> bool:
            """True if no request is in progress."""
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > CONNECTIONS_MAX:
                others: list[Any] = [one for one in self.connections if one is not self]
                next((one for one in others if one._waits), self).transport.abort()
            self.loop.call_later(QUIET_S, self._look)

        def _look(self) -> None:
            """Close it if nothing was requested since the last look."""
            if self.transport.is_closing():
                return
            if self._waits and self._looked and self.cycle is self._last:
                self.transport.abort()
                return
            self._looked, self._last = True, self.cycle
            self.loop.call_later(QUIET_S, self._look)

    return Bounded
