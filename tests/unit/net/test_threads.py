"""The number of network threads changes while connections live; none is lost."""

from __future__ import annotations

import os
import random
import threading

import pytest

from kafkalog.errors import ArgumentError, Closed
from tests.support.effort import SEED
from tests.support.waiting import wait_for
from tests.unit.net.kafka_requests import STORED, fetch, fetched, produce, produced
from tests.unit.net.network import Server, request


def run(server: Server, count: int) -> None:
    """Wait until `count` threads run."""
    wait_for(
        lambda: server.reactor.stats().network_threads == count,
        f"{count} threads run, not {server.reactor.stats().network_threads}",
    )


def named() -> int:
    """Network threads of this process, as the system counts them."""
    found = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as name:
                found += name.read().strip() == "kafkalog-net"
        except FileNotFoundError:  # it has ended
            continue
    return found


def test_threads_come_and_go_during_requests():
    before = named()
    with Server(num_network_threads=2) as server:
        clients = [server.client() for _ in range(10)]
        for turn, count in enumerate((4, 1, 2, 3, 1, 6)):
            for client in clients:
                assert client.ask(turn, b"%d" % turn) == b"%d" % turn
            server.reactor.set_threads(count)
            run(server, count)
            # For a moment the system still counts a thread that has ended.
            wait_for(lambda count=count: named() == before + count, f"{count} threads are left")
        for client in clients:
            assert client.ask(9, b"still there") == b"still there"
            client.close()
        server.connected(0)


def test_half_a_frame_goes_along():
    """Small frames, and large ones that were partly received."""
    with Server(num_network_threads=6) as server:
        bodies = [b"x" * size for size in (10, 3000, 300_000, 2_000_000)] * 4
        clients = [server.client() for _ in bodies]
        frames = [request(7, body) for body in bodies]
        for client, frame in zip(clients, frames, strict=True):
            client.send(request(1, b"whole") + frame[: len(frame) // 2])
            assert client.response() == (1, b"whole")
        read = sum(len(frame) // 2 for frame in frames)
        wait_for(lambda: server.reactor.stats().bytes_in >= read, "the halves were read")
        for count in (1, 5, 1):
            server.reactor.set_threads(count)
            run(server, count)
        for client, frame, body in zip(clients, frames, bodies, strict=True):
            client.send(frame[len(frame) // 2 :])
            assert client.response() == (7, body)
            assert client.ask(8, b"next") == b"next"
            client.close()
        server.connected(0)


def test_a_request_in_progress_ends_on_its_thread():
    """Python has a request; afterwards its connection moves, with what it had already sent."""
    with Server(workers=0, num_network_threads=4) as server:
        clients = [server.client() for _ in range(8)]
        for client in clients:
            client.send(request(1) + request(2, b"two") + request(3, b"three"))
        taken = [server.take() for _ in clients]
        server.reactor.set_threads(1)
        for one in taken:
            one.answer(b"", 0)
        run(server, 1)
        server.work(2)
        for client in clients:
            assert [client.response() for _ in range(3)] == [(1, b""), (2, b"two"), (3, b"three")]


def test_a_fetch_that_waits_is_answered(served):
    """With what there is; its client retries, and a remaining thread serves it."""
    with Server(num_network_threads=4) as server:
        served(server)
        clients = [server.client() for _ in range(8)]
        for client in clients:
            client.send(fetch(1, 0, max_wait_ms=60_000))
        wait_for(lambda: server.reactor.stats().parked == 8, "all wait")
        server.reactor.set_threads(1)
        run(server, 1)
        assert server.reactor.stats().parked == 2  # those of the remaining thread
        with server.client() as producer:
            producer.send(produce(1, -1))
            assert produced(producer, 1).error_code == 0
        got = [bytes(fetched(client, 1).records or b"") for client in clients]
        assert sorted(got) == [b""] * 6 + [STORED] * 2
        for client in clients:
            client.send(fetch(2, 0))
            assert fetched(client, 2).records == STORED


def test_a_connection_that_closes_while_python_has_its_request():
    """The answer is for a thread that has ended; its slot is used again."""
    with Server(workers=0, num_network_threads=4) as server:
        clients = [server.client() for _ in range(8)]
        for client in clients:
            client.send(request(1))
        taken = [server.take() for _ in clients]
        for client in clients:
            client.reset()
        server.connected(0)
        server.reactor.set_threads(1)
        run(server, 1)
        for one in taken:
            one.answer(b"late", 0)
        server.reactor.set_threads(4)
        run(server, 4)
        server.work(1)
        for _ in range(8):
            with server.client() as client:
                assert client.ask(1, b"x") == b"x"


def test_the_control_listener_keeps_its_thread():
    with Server(num_network_threads=2, control_listener=1) as server:
        port = server.reactor.listen("127.0.0.1", 0, 1)
        run(server, 3)
        data, server.port = server.client(), port
        with data, server.client() as control:
            for count in (1, 4, 1):
                server.reactor.set_threads(count)
                run(server, count + 1)
                assert control.ask(1, b"c") == b"c"
                assert data.ask(1, b"d") == b"d"


def test_before_it_runs_and_when_it_has_stopped():
    server = Server(num_network_threads=2)
    for wrong in (0, -1, 257):
        with pytest.raises(ArgumentError, match="network_threads: found"):
            server.reactor.set_threads(wrong)
    server.close()
    with pytest.raises(Closed):
        server.reactor.set_threads(3)


def test_requests_of_many_while_threads_come_and_go(served):
    """Nothing is lost, duplicated or out of order."""
    draw = random.Random(SEED)
    rounds = 150
    failures: list[BaseException] = []

    with Server(num_network_threads=3) as server:
        log = served(server)

        def ask(number: int) -> None:
            mine = random.Random(SEED + number)
            try:
                client = server.client()
                for turn in range(rounds):
                    if turn % 40 == 39:
                        client.close()
                        client = server.client()
                    kind = mine.randrange(3)
                    if kind == 0:
                        body = b"x" * mine.choice((1, 5000, 200_000))
                        client.send(request(turn, body) + request(turn + 1, b"behind"))
                        assert client.response() == (turn, body)
                        assert client.response() == (turn + 1, b"behind")
                    elif kind == 1:
                        client.send(produce(turn, -1))
                        assert produced(client, turn).error_code == 0
                    else:
                        client.send(fetch(turn, log.end_offset, max_wait_ms=20))
                        fetched(client, turn)
                client.close()
            except BaseException as problem:
                failures.append(problem)
                raise

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            server.reactor.set_threads(draw.randint(1, 6))
            threads[draw.randrange(len(threads))].join(0.01)
        assert not failures
        server.reactor.set_threads(1)
        server.connected(0)
        run(server, 1)
        assert server.reactor.stats().parked == 0
