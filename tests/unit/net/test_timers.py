"""Timeouts of parked requests, half frames and silent connections, on a clock that tests set."""

from __future__ import annotations

import random

import pytest

from kafkalog.replication.followers import Follower
from tests.support.effort import SEED
from tests.support.waiting import wait_for
from tests.unit.net.kafka_requests import fetch, fetched
from tests.unit.net.network import API_VERSIONS, SANITIZED, Server, framed, header, request
from tests.unit.net.test_frames import resident_bytes

HALF_FRAME_MS, IDLE_MS = 10_000, 100_000


@pytest.fixture
def server():
    with Server(
        workers=0,
        manual_clock=True,
        num_network_threads=1,
        kafkalog_half_frame_max_ms=HALF_FRAME_MS,
        connections_max_idle_ms=IDLE_MS,
    ) as running:
        yield running


def at(server: Server, now_ms: int) -> None:
    """Set the clock, and wait until the network thread has seen it."""
    server.reactor.set_time(now_ms)
    with server.client() as probe:
        probe.send(request(999))
        taken = server.take()
        assert taken.correlation_id == 999
        taken.answer(b"", 0)
        probe.response()


def read_all(server: Server, size: int) -> None:
    """Wait until the server has read `size` bytes."""
    wait_for(lambda: server.reactor.stats().bytes_in == size, f"{size} bytes read")


# ---- half frames -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 4, 5, 20])
def test_half_a_frame_is_waited_for_so_long_and_no_longer(server, size):
    with server.client() as client:
        client.send(request(1, bytes(100))[:size])
        read_all(server, size)
        at(server, HALF_FRAME_MS - 1)
        assert server.reactor.stats().closed_half_frame == 0
        at(server, HALF_FRAME_MS)
        assert client.is_closed()
        assert server.reactor.stats().closed_half_frame == 1


def test_a_byte_now_and_then_does_not_help(server):
    with server.client() as client:
        data = request(1, bytes(100))
        for step in range(10):
            before = server.reactor.stats().bytes_in
            client.send(data[step : step + 1])
            read_all(server, before + 1)
            at(server, step * 1000)
        at(server, HALF_FRAME_MS)
        assert client.is_closed()


def test_a_large_frame_may_take_long_when_it_goes_on(server):
    body = random.Random(SEED).randbytes(10 * (64 << 10))
    data = request(1, body)
    with server.client() as client:
        for step, begin in enumerate(range(0, len(data), 64 << 10)):
            before = server.reactor.stats().bytes_in
            piece = data[begin : begin + (64 << 10)]
            client.send(piece)
            if begin + len(piece) < len(data):
                read_all(server, before + len(piece))
                at(server, (step + 1) * (HALF_FRAME_MS - 1))
        taken = server.take()
        assert bytes(taken.body) == body
        taken.answer(b"", 0)
        assert client.response() == (1, b"")


def test_half_a_frame_behind_a_request_that_is_answered_late_is_not_blamed(server):
    """While Python has a request, the connection is not read: its client cannot help that."""
    with server.client() as client:
        client.send(request(1) + request(2, b"body")[:9])
        taken = server.take()
        at(server, HALF_FRAME_MS * 3)
        taken.answer(b"", 0)
        assert client.response() == (1, b"")
        at(server, HALF_FRAME_MS * 4 - 1)
        assert server.reactor.stats().closed_half_frame == 0
        client.send(request(2, b"body")[9:])
        assert server.take().correlation_id == 2


# ---- silent connections ----------------------------------------------------------------------


def test_a_silent_connection_is_closed(server):
    with server.client() as client, server.client() as never:
        server.connected(2)
        client.send(request(1))
        server.take().answer(b"", 0)
        client.response()
        at(server, IDLE_MS - 1)
        assert server.reactor.stats().closed_idle == 0
        at(server, IDLE_MS)
        assert client.is_closed()
        assert never.is_closed()
        assert server.reactor.stats().closed_idle == 2


def test_a_connection_that_speaks_is_kept(server):
    with server.client() as client:
        for step in range(5):
            server.reactor.set_time(step * (IDLE_MS - 1))
            client.send(request(step))
            server.take().answer(b"", 0)
            assert client.response() == (step, b"")
        assert server.reactor.stats().closed_idle == 0


def test_a_connection_waiting_for_its_answer_is_not_idle(server):
    with server.client() as client:
        client.send(request(1))
        taken = server.take()
        at(server, IDLE_MS * 3)
        taken.answer(b"late", 0)
        assert client.response() == (1, b"late")


def test_a_connection_that_does_not_read_its_answer_is_idle(server):
    with server.client(receive_buffer=4096) as client:
        client.send(request(1))
        server.take().answer(bytes(32 << 20), 0)
        wait_for(lambda: server.reactor.stats().bytes_out > 0, "a part went out")
        at(server, IDLE_MS - 1)
        at(server, IDLE_MS * 2)
        wait_for(lambda: server.reactor.stats().closed_idle == 1, "it is closed")


def test_an_idle_limit_of_zero_spares_waiting_connections(io):
    """And its network thread continues: Kafka allows connections.max.idle.ms=0."""
    with Server(workers=0, num_network_threads=1, connections_max_idle_ms=0) as server:
        io.kl_io_hold(b"accept4", 1)  # so that the request is there when the connection is accepted
        with server.client() as client:
            client.send(request(1))
            io.kl_io_hold(b"accept4", 0)
            taken = server.take()
            with server.client() as other:
                assert other.is_closed()
            taken.answer(b"late", 0)
            assert client.response() == (1, b"late")
            assert client.is_closed()


# ---- parked requests -------------------------------------------------------------------------


def test_a_fetch_is_answered_when_its_time_has_come(server, served):
    served(server)
    with server.client() as client:
        client.send(fetch(1, max_wait_ms=500))
        wait_for(lambda: server.reactor.stats().parked == 1, "it waits")
        at(server, 499)
        assert server.reactor.stats().parked == 1
        at(server, 500)
        assert fetched(client, 1).records == b""
        assert server.reactor.stats().parked == 0


def test_timers_run_in_the_order_of_time(server, served):
    """Many, started in any order; each step ends those that are due and no other."""
    served(server)
    draw = random.Random(SEED)
    waits = [draw.randrange(1, 50_000) for _ in range(120)]
    clients = [server.client() for _ in waits]
    for wait_ms, client in zip(waits, clients, strict=True):
        client.send(fetch(1, max_wait_ms=wait_ms))
    wait_for(lambda: server.reactor.stats().parked == len(waits), "all wait")
    for gone in draw.sample(range(len(waits)), 40):
        clients[gone].reset()
        waits[gone] = -1
    wait_for(lambda: server.reactor.stats().parked == 80, "some went")
    for now_ms in range(5_000, 50_001, 5_000):
        at(server, now_ms)
        assert server.reactor.stats().parked == sum(wait_ms > now_ms for wait_ms in waits)
    for wait_ms, client in zip(waits, clients, strict=True):
        if wait_ms >= 0:
            assert fetched(client, 1).records == b""
        client.close()


def test_a_fetch_of_a_half_closed_connection_is_answered_at_once(server, served):
    served(server)
    with server.client() as client:
        client.send(fetch(1, max_wait_ms=60_000))
        wait_for(lambda: server.reactor.stats().parked == 1, "it waits")
        client.socket.shutdown(1)
        assert fetched(client, 1).records == b""
        assert client.is_closed()


@pytest.mark.parametrize("together", [False, True])
def test_a_followers_next_request_ends_the_wait_of_its_fetch(server, served, together):
    """It has more partitions to fetch; its leader answers both at once, in order."""
    served(server)
    server.reactor.set_followers("orders", 0, [Follower(2, False, False)])
    with server.client() as client:
        first, second = fetch(1, max_wait_ms=60_000, replica=2), request(2, key=API_VERSIONS)
        client.send(first + second if together else first)
        if not together:
            wait_for(lambda: server.reactor.stats().parked == 1, "it waits")
            client.send(second)
        found = fetched(client, 1)
        assert (found.error_code, found.records) == (0, b"")
        server.take().answer(b"versions", 0)
        assert client.response() == (2, b"versions")


def test_a_consumers_fetch_waits_for_records_whatever_comes_behind_it(server, served):
    served(server)
    with server.client() as client:
        client.send(fetch(1, max_wait_ms=20_000) + request(2, key=API_VERSIONS))
        wait_for(lambda: server.reactor.stats().parked == 1, "it waits")
        at(server, 19_999)
        assert server.reactor.stats().parked == 1
        server.reactor.set_time(20_000)
        assert fetched(client, 1).records == b""
        server.take().answer(b"versions", 0)
        assert client.response() == (2, b"versions")


def test_memory_that_was_not_used_for_a_while_is_given_back(server):
    with server.client() as client:
        client.send(framed(header(3, 1, 1) + bytes(4 << 20)))
        server.take().answer(b"", 0)
        client.response()
        assert server.reactor.stats().buffer_bytes > 4 << 20
        for now_ms in range(5_000, 60_000, 5_000):
            at(server, now_ms)
        assert server.reactor.stats().buffer_bytes < 64 << 10


def test_a_burst_of_large_requests_leaves_no_memory_behind(server):
    """More at once than a thread keeps; nothing of it is resident after some idle seconds."""
    count, body = 48, bytes(1_000_000)
    before = resident_bytes()
    for burst in range(3):
        clients = [server.client() for _ in range(count)]
        for number, client in enumerate(clients):
            client.send(request(number, body))
        taken = [server.take() for _ in clients]
        assert server.reactor.stats().buffer_bytes > count * len(body)
        for one in taken:
            one.answer(b"", 0)
        for client in clients:
            client.response()
            client.close()
        del taken, one
        for now_ms in range(burst * 60_000 + 5_000, (burst + 1) * 60_000, 5_000):
            at(server, now_ms)
        assert server.reactor.stats().buffer_bytes < 64 << 10
    if not SANITIZED:
        assert resident_bytes() - before < 16 << 20
