"""Threads that may wait fetch records that are only on disk; network threads do not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import kafkalog
from kafkalog._native import lib
from tests.support.certificates import Certificates, client_context
from tests.support.waiting import wait_for
from tests.unit.net.kafka_requests import fetch, fetched
from tests.unit.net.network import Server
from tests.unit.net.test_tls import TlsClient, TlsServer, tls_of

BYTES = 300_000
ROUNDS = 60


@contextmanager
def on_disk_only(io: Any) -> Iterator[None]:
    """The next piece of a file is not in memory, and reading it waits until the end."""
    io.kl_io_fail(b"cached", 1, 1, 0, 0)
    io.kl_io_hold(b"pread", 1)
    try:
        yield
    finally:
        io.kl_io_hold(b"pread", 0)


def waits(io: Any) -> None:
    wait_for(lambda: io.kl_io_waiting(b"pread") == 1, "it is read from disk")


def get(server: Server, offset: int) -> bytes:
    with server.client() as client:
        client.send(fetch(1, offset))
        return bytes(fetched(client, 1).records)


def fill(server: Server, log: kafkalog.Log) -> bytes:
    """The records that a fetch from offset 1 returns.  The fetch of offset 0 ended there, so its
    position is known, and only its records are read."""
    log.append(bytes(BYTES))
    get(server, 0)
    log.append(bytes(BYTES))
    return get(server, 1)


def test_others_are_served_while_the_disk_is_waited_for(served, io):
    with Server(num_network_threads=1) as server, server.client() as client:
        stored = fill(server, served(server))
        with on_disk_only(io):
            client.send(fetch(1, 1) + fetch(2, 1))
            waits(io)
            with server.client() as other:
                assert other.ask(7, b"at once") == b"at once"
        assert fetched(client, 1).records == stored
        assert fetched(client, 2).records == stored
        assert server.reactor.stats().cold == 1


def test_others_are_served_over_tls_while_the_disk_is_waited_for(served, io, tmp_path):
    """The pieces that TLS reads are brought into memory first, as those of sendfile are."""
    certificates = Certificates(tmp_path)
    context = client_context(certificates.trust)
    with (
        TlsServer(tls_of(certificates), num_network_threads=1) as server,
        TlsClient(server, context) as client,
        TlsClient(server, context) as other,
    ):
        log = served(server)
        for offset in (0, 1):  # the position of the second one is known from the first
            log.append(os.urandom(BYTES))
            client.send(fetch(1, offset))
            stored = bytes(fetched(client, 1).records)
        assert len(stored) > BYTES
        with on_disk_only(io):
            client.send(fetch(2, 1) + fetch(3, 1))
            waits(io)
            assert other.ask(7, b"at once") == b"at once"
        assert fetched(client, 2).records == stored
        assert fetched(client, 3).records == stored
        assert server.reactor.stats().cold == 1


def test_a_connection_that_ends_while_the_disk_is_waited_for(served, io):
    with Server(num_network_threads=1) as server:
        stored = fill(server, served(server))
        with on_disk_only(io):
            with server.client() as client:
                client.send(fetch(1, 1))
                waits(io)
            server.connected(0)
        assert get(server, 1) == stored


def test_connections_end_just_when_their_reads_do(served, io):
    """In either order, neither touches what the other has freed, and everything is released.  Until
    then the piece stays open, and counts as pinned."""
    with Server(num_network_threads=2) as server:
        stored = fill(server, served(server))
        for number in range(ROUNDS):
            get(server, 0)  # then the position of the next one is known
            client, meet = server.client(), threading.Barrier(2)
            end = client.reset if number % 2 else client.close
            leaving = threading.Thread(target=lambda meet=meet, end=end: (meet.wait(), end()))
            with on_disk_only(io):
                client.send(fetch(1, 1))
                waits(io)
                assert server.reactor.stats().pinned == 1
                leaving.start()
                meet.wait()
            leaving.join()
            wait_for(lambda: server.reactor.stats().pinned == 0, "the piece is given back")
        assert get(server, 1) == stored
        assert server.reactor.stats().cold == ROUNDS


def test_a_log_that_is_cut_while_the_disk_is_waited_for(served, io):
    """A response that has begun is complete, or its connection is closed."""
    with Server(num_network_threads=1) as server, server.client() as client:
        log = served(server)
        stored = fill(server, log)
        with on_disk_only(io):
            client.send(fetch(1, 1))
            waits(io)
            cut = threading.Thread(target=log.truncate, args=(0,))
            cut.start()
        cut.join()
        with suppress(EOFError):
            assert fetched(client, 1).records == stored
        assert log.end_offset == 0


def test_a_server_stops_while_the_disk_is_waited_for(served, io):
    with Server(num_network_threads=1) as server:
        fill(server, served(server))
        with server.client() as client, on_disk_only(io):
            client.send(fetch(1, 1))
            waits(io)
            stop = threading.Thread(target=server.reactor.close)
            stop.start()
            with pytest.raises(EOFError):
                client.response()
        stop.join()


def test_a_disk_that_fails_closes_the_connection(served, io):
    with Server(num_network_threads=1) as server, server.client() as client:
        fill(server, served(server))
        io.kl_io_fail(b"cached", 1, 1, 0, 0)
        io.kl_io_fail(b"pread", 1, 5, 1, 0)
        io.kl_io_fail(b"sendfile", 1, 5, 0, 0)
        client.send(fetch(1, 1))
        with pytest.raises(EOFError):
            client.response()


def test_pages_that_were_dropped_are_missed(served, io):
    """The system really drops them; no fault is injected."""
    with Server(num_network_threads=1) as server, server.client() as client:
        log = served(server)
        stored = fill(server, log)
        log.flush()
        assert server.reactor.stats().cold == 0
        fd = os.open(os.path.join(log.path, f"{0:020d}.log"), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        read_before = lib.kl_io_calls(b"pread")
        client.send(fetch(1, 1))
        assert fetched(client, 1).records == stored
        if server.reactor.stats().cold == 0:
            pytest.skip("this file system keeps its pages")
        assert lib.kl_io_calls(b"pread") > read_before + 3
