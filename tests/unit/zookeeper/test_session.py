"""A session's requests are in flight together: kazoo's real client, and a server that answers once
it has the requests that it waits for."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from kafkalog.errors import ZooKeeperAway
from kafkalog.zookeeper.session import (
    READS_AT_ONCE,
    WRITES_AT_ONCE,
    Check,
    Committed,
    Session,
    Timeouts,
)
from tests.support.scripted import exactly
from tests.support.waiting import LIMIT_S

pytest.importorskip("kazoo")

PING, MULTI, GET_DATA, CHECK, ERROR, CLOSE = 11, 14, 4, 13, -1, -11
BAD_VERSION = -103
STAT = bytes(68)
SESSION = 7


class Asked(NamedTuple):
    """A request without an answer yet."""

    xid: int
    kind: int
    path: str


class Server:
    """ZooKeeper's protocol, as far as a session's Check and GetData need it.  It answers the first
    `waits_for[0]` requests, in order, once all of them have arrived; then likewise the next."""

    def __init__(self, *waits_for: int, refused: str = "", error: int = 0) -> None:
        """`refused`: the path whose Check finds another version; `error`: in every answer."""
        self.in_flight: list[int] = []
        """How many requests had arrived each time before the first of them was answered."""
        self._waits_for, self._refused, self._error = list(waits_for), refused, error
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LIMIT_S)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        _framed(connection)
        timeout_ms = int(LIMIT_S * 1000)
        _send(connection, struct.pack(">iiqi16s?", 0, timeout_ms, SESSION, 16, bytes(16), False))
        waiting: list[Asked] = []
        while (frame := _framed(connection)) is not None:
            xid, kind = struct.unpack_from(">ii", frame)
            if kind in (PING, CLOSE):
                _send(connection, struct.pack(">iqi", xid, 0, 0))
                continue
            at = 8 + 9 if kind == MULTI else 8
            (size,) = struct.unpack_from(">i", frame, at)
            waiting.append(Asked(xid, kind, frame[at + 4 : at + 4 + size].decode()))
            if self._waits_for and len(waiting) == self._waits_for[0]:
                self.in_flight.append(self._waits_for.pop(0))
                for one in waiting:
                    head = struct.pack(">iqi", one.xid, 1, self._error)
                    _send(connection, head if self._error else head + self._answer(one))
                waiting = []

    def _answer(self, one: Asked) -> bytes:
        if one.kind == GET_DATA:
            return struct.pack(">i", len(one.path)) + one.path.encode() + STAT
        found = struct.pack(">i?i", CHECK, False, 0)
        if one.path == self._refused:
            found = struct.pack(">i?ii", ERROR, False, BAD_VERSION, BAD_VERSION)
        return found + struct.pack(">i?i", -1, True, -1)


def _framed(connection: socket.socket) -> bytes | None:
    head = exactly(connection, 4)
    return None if head is None else exactly(connection, struct.unpack(">i", head)[0])


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(struct.pack(">i", len(data)) + data)


@contextlib.contextmanager
def asked(server: Server) -> Iterator[Session]:
    """A session with the server."""
    limit_ms = int(LIMIT_S * 1000)
    try:
        with Session(server.hosts, lambda _: None, Timeouts(limit_ms, limit_ms)) as session:
            yield session
    finally:
        server.close()


def test_commits_are_on_their_way_together() -> None:
    """The allowed number is sent before the first is answered; one by one each would take a
    round trip."""
    server = Server(WRITES_AT_ONCE, 20)
    with asked(server) as session:
        count = WRITES_AT_ONCE + 20
        found = session.commits([[Check(f"/{number}", 0)] for number in range(count)])
    assert found == [Committed(True)] * count
    assert server.in_flight == [WRITES_AT_ONCE, 20]


def test_reads_are_on_their_way_together() -> None:
    server = Server(READS_AT_ONCE, 20)
    with asked(server) as session:
        paths = [f"/{number}" for number in range(READS_AT_ONCE + 20)]
        found = session.look([(path, False, False) for path in paths])
    assert [getattr(one, "data", None) for one in found] == [path.encode() for path in paths]
    assert server.in_flight == [READS_AT_ONCE, 20]


def test_a_commit_behind_a_refused_one_has_its_own_outcome() -> None:
    with asked(Server(3, refused="/1")) as session:
        found = session.commits([[Check(f"/{number}", 0)] for number in range(3)])
    assert found == [Committed(True), Committed(False, 0, "BadVersion"), Committed(True)]


LOST = {"ConnectionLoss": -4, "OperationTimeout": -7, "SessionExpired": -112, "SessionMoved": -118}


@pytest.mark.parametrize("error", LOST.values(), ids=LOST.keys())
def test_temporary_failures_are_zookeeper_away(error: int) -> None:
    """Also if the session moved to another server, as when an old request arrives late."""
    with asked(Server(1, error=error)) as session, pytest.raises(ZooKeeperAway):
        session.commit([Check("/a", 0)])
