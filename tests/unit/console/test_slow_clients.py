"""Clients of the console that are slow: in a handshake of TLS, and to read."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
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


def test_a_console_that_closes_ends_its_requests_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """Clients read nothing, send half a request, or wait for a page that takes long."""
    ends = threading.Event()
    asked = threading.Event()

    def slow(_: str) -> Page:
        asked.set()
        ends.wait(LIMIT_S)
        return Page(200, "text/plain", b"ok")

    half = (b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{")  # fmt: skip
    with console(PLACE, pages={"/slow": slow}) as server, contextlib.ExitStack() as crowd:
        crowd.callback(ends.set)
        crowd.enter_context(contextlib.closing(Deaf(server)))
        for sent in (half, b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            one = crowd.enter_context(socket.create_connection((server.host, server.port)))
            one.sendall(sent)
        tasks = server._server.server_state.tasks
        wait_for(lambda: paused(server) and asked.is_set() and len(tasks) == 3, "all are served")
        other = crowd.enter_context(ThreadPoolExecutor(1))
        closing = other.submit(server.close)
        wait_for(lambda: not tasks, "they end")
        ends.set()
        closing.result(LIMIT_S)
        assert not server._server.server_state.connections
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_an_answer_in_progress_is_sent_before_a_console_closes() -> None:
    """Also a large one, to a client that reads at last."""
    waits, goes_on = threading.Event(), threading.Event()
    data = bytes(8 << 20)

    def large(_: str) -> Page:
        waits.set()
        goes_on.wait(LIMIT_S)
        return Page(200, "text/plain", data)

    with console(PLACE, pages={"/large": large}) as server, ThreadPoolExecutor(2) as others:
        asking = others.submit(Browser(server.url).ask, "/large")
        assert waits.wait(LIMIT_S)
        closing = others.submit(server.close)
        wait_for(lambda: server._closed, "it closes")
        goes_on.set()
        assert asking.result(LIMIT_S).body == data
        closing.result(LIMIT_S)
