"""The bounded queue to Python, and answers that are late, repeated or missing."""

from __future__ import annotations

import random
import threading

import pytest

from kafkalog.errors import NotFound
from tests.support.effort import SEED
from tests.support.waiting import wait_for
from tests.unit.net.kafka_requests import produce
from tests.unit.net.network import Client, Server, request


def test_a_full_queue_stops_reading_and_goes_on(served):
    with Server(workers=0, queued_max_requests=2) as server:
        clients = [server.client() for _ in range(10)]
        for number, client in enumerate(clients):
            client.send(request(number, b"first") + request(100 + number, b"second"))
        wait_for(lambda: server.reactor.stats().queue_full >= 8, "eight found no room")
        stats = server.reactor.stats()
        assert (stats.queued, stats.requests) == (2, {3: 10})
        server.work(2)
        for number, client in enumerate(clients):
            assert client.response() == (number, b"first")
            assert client.response() == (100 + number, b"second")
            client.close()


def test_stalled_requests_are_served_before_later_ones():
    """Clients that send again as soon as they are answered do not keep the others out."""
    with Server(workers=0, queued_max_requests=4) as server:
        clients = [server.client() for _ in range(5)]
        for number in range(4):
            clients[number].send(request(number))
            wait_for(lambda n=number: server.reactor.stats().queued == n + 1, "it is queued")
        clients[4].send(request(4))
        wait_for(lambda: server.reactor.stats().queue_full == 1, "the last has no room")
        served = []
        for _ in range(12):
            taken = server.take()
            number = taken.correlation_id
            served.append(number)
            taken.answer(b"", 0)
            assert clients[number].response() == (number, b"")
            before = server.reactor.stats().requests[3]
            clients[number].send(request(number))
            wait_for(lambda b=before: server.reactor.stats().requests[3] > b, "it asked again")
        assert 4 in served
        for client in clients:
            client.close()


def test_stalled_connections_are_not_read(served):
    """TCP stops its sender; memory does not grow."""
    with Server(workers=0, queued_max_requests=1, socket_receive_buffer_bytes=8192) as server:
        first, second = server.client(), server.client()
        first.send(request(1))
        wait_for(lambda: server.reactor.stats().queued == 1, "one is queued")
        second.send(request(2))
        wait_for(lambda: server.reactor.stats().queue_full == 1, "one has no room")
        second.socket.setblocking(False)
        more, sent = request(3, bytes(100_000)), 0
        with pytest.raises(BlockingIOError):
            while True:
                sent += second.socket.send(more)
        read = server.reactor.stats().bytes_in
        assert read < 8192 + len(request(1)) + len(request(2)) < sent
        assert server.reactor.stats().buffer_bytes < 64 << 10
        first.close()
        second.close()


@pytest.mark.parametrize("gone", ["queued", "stalled", "both"])
def test_a_connection_that_ends_makes_room(gone):
    with Server(workers=0, queued_max_requests=1) as server:
        queued, stalled, other = (server.client() for _ in range(3))
        queued.send(request(1))
        wait_for(lambda: server.reactor.stats().queued == 1, "one is queued")
        stalled.send(request(2))
        wait_for(lambda: server.reactor.stats().queue_full == 1, "one has no room")
        left = 3
        for client, name in ((queued, "queued"), (stalled, "stalled")):
            if gone in (name, "both"):
                client.reset()
                left -= 1
        server.connected(left)
        server.work(1)
        assert other.ask(3, b"served") == b"served"
        if gone != "queued":
            assert gone == "both" or queued.response() == (1, b"")
        if gone == "queued":
            assert stalled.response() == (2, b"")


def test_an_answer_for_a_connection_that_went_is_dropped():
    with Server(workers=0) as server:
        client = server.client()
        client.send(request(1, b"body"))
        taken = server.take()
        client.reset()
        server.connected(0)
        assert bytes(taken.body) == b"body"
        taken.answer(b"late", 0)
        with server.client() as other:
            other.send(request(2))
            server.take().answer(b"", 0)
            assert other.response() == (2, b"")


def test_a_request_is_ended_once():
    with Server(workers=0) as server, server.client() as client:
        client.send(request(1))
        taken = server.take()
        taken.answer(b"", 0)
        for again in (lambda: taken.answer(b"", 0), taken.drop, taken.again):
            with pytest.raises(NotFound):
                again()
        assert client.response() == (1, b"")
        client.send(request(2))
        other = server.take()
        assert other.id != taken.id
        with pytest.raises(NotFound):
            taken.answer(b"not mine", 0)
        other.answer(b"", 0)
        assert client.response() == (2, b"")


@pytest.mark.parametrize("nonsense", [0, 1, 1 << 32, (1 << 64) - 1, 999])
def test_an_id_that_nobody_has_is_refused(nonsense):
    with Server(workers=0) as server, pytest.raises(NotFound):
        server.reactor.answer(nonsense, b"", 0)


def test_a_dropped_request_closes_its_connection():
    with Server(lambda taken: taken.drop()) as server, server.client() as client:
        client.send(request(1) + request(2))
        assert client.is_closed()


def test_dropped_requests_leave_no_memory():
    with Server(lambda taken: taken.drop()) as server:
        for number in range(300):
            with server.client() as client:
                client.send(request(number, bytes(10_000)))
                assert client.is_closed()
        server.connected(0)
        assert server.reactor.stats().buffer_bytes < 300 * 10_000 // 4


def test_only_produce_and_fetch_go_back_to_the_fast_path(served):
    with Server(workers=0) as server, server.client() as client:
        client.send(request(1))
        server.take().again()
        assert client.is_closed()


def test_a_produce_for_an_unknown_topic_comes_up_and_may_go_back(served):
    with Server(workers=0) as server, server.client() as client:
        client.send(produce(1, -1, topic="made-later"))
        taken = server.take()
        assert (taken.api_key, taken.api_version) == (0, 9)
        log = served(server, "made-later")
        taken.again()
        assert client.response()[0] == 1
        assert log.end_offset == 1


def test_the_listener_for_control_is_served_first():
    with Server(workers=0, control_listener=1) as server:
        port = server.reactor.listen("127.0.0.1", 0, 1)
        data = [server.client() for _ in range(5)]
        for number, client in enumerate(data):
            client.send(request(number))
        wait_for(lambda: server.reactor.stats().queued == 5, "five are queued")
        with Client(("127.0.0.1", port)) as control:
            control.send(request(99))
            wait_for(lambda: server.reactor.stats().queued == 6, "six are queued")
            taken = server.take()
            assert (taken.correlation_id, taken.listener) == (99, 1)
            taken.answer(b"", 0)
            assert control.response() == (99, b"")


def test_control_has_room_when_the_queue_is_full_and_connections_are_too_many():
    with Server(workers=0, control_listener=1, queued_max_requests=1, max_connections=2) as server:
        port = server.reactor.listen("127.0.0.1", 0, 1)
        data = [server.client() for _ in range(2)]
        for number, client in enumerate(data):
            client.send(request(number))
        wait_for(lambda: server.reactor.stats().queue_full == 1, "the queue is full")
        with Client(("127.0.0.1", port)) as control:
            control.send(request(99))
            wait_for(lambda: server.reactor.stats().queued == 2, "it has room")
            assert server.take().correlation_id == 99


def test_many_clients_and_workers_and_no_answer_goes_astray():
    """Random sizes, random ends of connections, answers from many threads in any order."""
    draw = random.Random(SEED)
    problems: list[BaseException] = []

    def talk(seed: int) -> None:
        mine = random.Random(seed)
        try:
            for _ in range(8):
                with server.client() as client:
                    for number in range(mine.randrange(1, 12)):
                        batch = mine.randrange(1, 5)
                        bodies = [mine.randbytes(mine.choice([1, 50, 5000])) for _ in range(batch)]
                        client.send(b"".join(request(number + i, b) for i, b in enumerate(bodies)))
                        if mine.random() < 0.1:
                            client.reset()
                            break
                        for i, body in enumerate(bodies):
                            assert client.response() == (number + i, body)
        except BaseException as problem:
            problems.append(problem)
            raise

    with Server(workers=4, queued_max_requests=3) as server:
        threads = [threading.Thread(target=talk, args=(draw.random(),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.connected(0)
        assert not problems
        assert server.reactor.stats().queued == 0
