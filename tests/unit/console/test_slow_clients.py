"""Clients of the console that are slow: in a handshake of TLS, and to read."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from kafkalog.console import server as server_module
from kafkalog.console.person import Place
from kafkalog.console.server import ConsoleServer, tls_of
from kafkalog.metrics.endpoint import Page
from tests.support.certificates import Certificates, client_context
from tests.support.console import Browser, console
from tests.support.waiting import LIMIT_S, wait_for

PLACE = Place(lambda: "127.0.0.1:1")
"""No broker is needed."""


class Deaf:
    """A client that asks for page after page and reads no answer."""

    def __init__(self, server: ConsoleServer) -> None:
        server._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.settimeout(LIMIT_S)
        self._socket.connect((server.host, server.port))
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._socket.send(b"GET /static/app.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)

    def close(self) -> None:
        self._socket.close()


def paused(server: ConsoleServer) -> int:
    """Connections whose answers wait to be read."""
    return sum(one.flow.write_paused for one in [*server._server.server_state.connections])


def test_clients_that_read_nothing_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "ANSWER_S", 0.2)
    with console(PLACE) as server:
        monkeypatch.setattr(server_module, "QUIET_S", 0.1)
        with contextlib.closing(Deaf(server)):
            wait_for(lambda: paused(server), "its answers wait")
            wait_for(lambda: not server._server.server_state.connections, "it is closed")


def test_clients_that_read_nothing_leave_room_for_others() -> None:
    health = {"/health/live": lambda _: Page(200, "text/plain", b"ok")}
    with (
        console(PLACE, pages=health) as server,
        contextlib.ExitStack() as crowd,
    ):
        for _ in range(server_module.CONNECTIONS_MAX):
            crowd.enter_context(contextlib.closing(Deaf(server)))
        wait_for(lambda: paused(server) == server_module.CONNECTIONS_MAX, "all answers wait")
        for _ in range(3):
            assert Browser(server.url).ask("/health/live").body == b"ok"


def test_handshakes_that_do_not_end_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted, end in time, and are not kept by a forked child."""
    made = Certificates(tmp_path)
    with (
        console(PLACE, tls=tls_of(str(made.keystore), "tls")) as server,
        contextlib.ExitStack() as crowd,
    ):
        inside = server._listening.guests
        for _ in range(200):
            crowd.enter_context(socket.create_connection((server.host, server.port), LIMIT_S))
        assert Browser(server.url, client_context(made.trust)).ask("/").status == 200
        assert len(inside()) <= server_module.CONNECTIONS_MAX + 1  # that one leaves
        child = os.fork()
        if child == 0:
            os._exit(len(inside()))
        assert os.waitpid(child, 0)[1] == 0
        monkeypatch.setattr(server_module, "QUIET_S", 0.1)
        crowd.enter_context(socket.create_connection((server.host, server.port), LIMIT_S))
        late = crowd.enter_context(socket.create_connection((server.host, server.port), LIMIT_S))
        with contextlib.suppress(ConnectionResetError):
            assert late.recv(1) == b""
