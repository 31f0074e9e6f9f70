"""Memory: little per connection, none per request, bounded whatever clients do."""

from __future__ import annotations

import resource

import pytest

from kafkalog.server.network.raw_request import RawRequest
from tests.unit.net.kafka_requests import fetch, fetched, produce, produced
from tests.unit.net.network import SANITIZED, Client, Server, request
from tests.unit.net.test_frames import resident_bytes

IDLE = 1000


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * IDLE + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} open files are allowed, wanted {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_connections_take_little_memory(many_files):
    with Server() as server:
        with server.client() as client:
            client.ask(1)
        server.connected(0)
        before = resident_bytes()
        clients = [server.client() for _ in range(IDLE)]
        for number, client in enumerate(clients):
            assert client.ask(number, b"x") == b"x"
        server.connected(IDLE)
        assert server.reactor.stats().buffer_bytes < 64 << 10
        # Most of it is Python's own memory.
        if not SANITIZED:
            assert (resident_bytes() - before) / IDLE < 3000
        for client in clients:
            client.close()
        server.connected(0)


def test_no_request_allocates_once_it_is_warm(served):
    def answer(taken: RawRequest) -> None:
        taken.answer(taken.body[:100], 0)

    with Server(answer, num_network_threads=1) as server, server.client() as client:
        served(server, durable=True)
        big = bytes(300_000)

        def some_requests(first: int) -> None:
            for number in range(first, first + 20):
                assert client.ask(number, b"x" * 100) == b"x" * 100
                client.send(produce(number, 1) + produce(number, -1))
                assert produced(client, number).error_code == 0
                assert produced(client, number).error_code == 0
                client.send(fetch(number, offset=2 * number))
                assert fetched(client, number).error_code == 0
                assert client.ask(number, big) == big[:100]

        some_requests(0)
        before = server.reactor.stats().allocations
        for first in range(20, 200, 20):
            some_requests(first)
        assert server.reactor.stats().allocations == before


def test_requests_without_reading_the_answers_stop_being_read():
    """A few of 10,000 pipelined requests are answered, memory stays bounded, then all are read."""
    count = 10_000
    with (
        Server(socket_send_buffer_bytes=8192, socket_receive_buffer_bytes=8192) as server,
        server.client(receive_buffer=8192, send_buffer=8192) as client,
        server.client() as other,
    ):
        body = bytes(200)
        stream = b"".join(request(number, body) for number in range(count))
        client.socket.setblocking(False)
        sent = 0
        quiet = 0
        while quiet < 50 and sent < len(stream):
            try:
                sent += client.socket.send(stream[sent : sent + 10_000])
                quiet = 0
            except BlockingIOError:
                assert other.ask(1, b"served") == b"served"
                quiet += 1
        assert sent < len(stream)
        assert server.reactor.stats().buffer_bytes < 256 << 10
        client.socket.setblocking(True)
        got = 0
        while got < count:
            while sent < len(stream) and got * len(request(0, body)) + 10_000 > sent:
                sent += client.socket.send(stream[sent : sent + 1000])
            assert client.response() == (got, body)
            got += 1


def test_connections_that_come_and_go_leave_nothing(served):
    with Server() as server:
        served(server)
        before = None
        for number in range(600):
            client = Client(server.address)
            if number % 3 == 0:
                client.send(request(1)[: number % 12])
            elif number % 3 == 1:
                client.send(fetch(1, max_wait_ms=60_000))
            else:
                client.send(request(1, bytes(50_000)))
            client.close() if number % 2 else client.reset()
            # A backlog on a busy machine is no leak; the allocator keeps its largest total.
            if number % 50 == 49:
                server.gone(number + 1)
            if number == 199:
                before = resident_bytes()
        assert server.reactor.stats().parked == 0
        assert before is not None
        if not SANITIZED:
            assert resident_bytes() - before < 8 << 20
