"""Stop: requests in flight are answered, no new ones accepted, everything is closed; and forks."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kafkalog.errors import Closed, ForkedHandle, Timeout
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.net.kafka_requests import fetch, fetched, produce, produced
from tests.unit.net.network import Server, echo, request

ROOT = Path(__file__).resolve().parents[3]


def stopping(server: Server, timeout_ms: int = 20_000) -> threading.Thread:
    thread = threading.Thread(target=server.reactor.stop, args=(timeout_ms,))
    thread.start()
    return thread


def test_an_idle_server_stops_at_once_and_closes_all():
    server = Server()
    clients = [server.client() for _ in range(5)]
    assert clients[0].ask(1, b"x") == b"x"
    server.reactor.stop(20_000)
    assert all(client.is_closed() for client in clients)
    with pytest.raises(ConnectionRefusedError):
        server.client()
    assert server.reactor.take(20_000) is None
    assert server.reactor.stopped
    server.reactor.stop(0)
    server.close()


def test_requests_in_flight_are_answered():
    with Server(workers=0) as server, server.client() as client, server.client() as queued:
        client.send(request(1, b"in flight"))
        taken = server.take()
        queued.send(request(2, b"queued"))
        wait_for(lambda: server.reactor.stats().queued == 1, "one is queued")
        thread = stopping(server)
        other = server.take()
        assert other.correlation_id == 2
        echo(other)
        assert queued.response() == (2, b"queued")
        assert queued.is_closed()
        client.send(request(3, b"too late"))
        echo(taken)
        assert client.response() == (1, b"in flight")
        assert client.is_closed()
        thread.join(LIMIT_S)
        assert server.reactor.take(0) is None


def test_connections_without_a_timely_answer_are_closed():
    with Server(workers=0) as server, server.client() as client:
        client.send(request(1))
        taken = server.take()
        with pytest.raises(Timeout, match="not answered in 20 ms"):
            server.reactor.stop(20)
        assert client.is_closed()
        echo(taken)  # late, and harmless


def test_a_fetch_that_waits_is_answered_when_the_server_stops(served):
    with Server(workers=0) as server, server.client() as client:
        served(server)
        client.send(fetch(1, max_wait_ms=600_000))
        wait_for(lambda: server.reactor.stats().parked == 1, "it waits")
        server.reactor.stop(20_000)
        assert fetched(client, 1).error_code == 0


def test_a_produce_that_waits_for_the_disk_is_answered_when_it_is_there(served, io):
    with Server(workers=0) as server, server.client() as client:
        served(server, durable=True)
        io.kl_io_hold(b"fdatasync", 1)
        client.send(produce(1, -1) + produce(2, -1))
        wait_for(lambda: server.reactor.stats().parked == 2, "both wait")
        thread = stopping(server)
        io.kl_io_hold(b"fdatasync", 0)
        assert produced(client, 1).error_code == 0
        assert produced(client, 2).error_code == 0
        thread.join(LIMIT_S)


def test_a_log_may_be_closed_when_the_server_has_stopped(served):
    server = Server(workers=0)
    log = served(server)
    server.reactor.stop(0)
    log.close()
    server.close()
    del server
    gc.collect()


def test_stop_under_load():
    """Every answer is complete; a client without an answer sees end of file."""
    server = Server(workers=4, queued_max_requests=10)
    answers = [0] * 12
    problems: list[BaseException] = []

    def talk(place: int) -> None:
        try:
            with server.client() as client:
                while True:
                    body = b"%d" % answers[place]
                    client.send(request(answers[place], body) * 3)
                    for _ in range(3):
                        assert client.response() == (answers[place], body)
                    answers[place] += 1
        except (EOFError, ConnectionError):
            pass
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=talk, args=(place,)) for place in range(len(answers))]
    for thread in threads:
        thread.start()
    wait_for(lambda: min(answers) >= 3, "all are under way")
    server.reactor.stop(20_000)
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    server.close()
    assert not problems


def test_two_stop_at_once():
    server = Server()
    with server.client() as client:
        client.ask(1)
        threads = [stopping(server) for _ in range(4)]
        for thread in threads:
            thread.join(LIMIT_S)
    server.close()


def test_one_that_was_never_started_stops():
    from kafkalog.config.server import ServerConfig
    from kafkalog.server.network.reactor import Reactor

    reactor = Reactor(ServerConfig({}))
    port = reactor.listen("127.0.0.1", 0, 0)
    reactor.close()
    with pytest.raises(Closed):
        reactor.listen("127.0.0.1", port, 0)


UNCLOSED = """
import uuid, kafkalog, sys
from kafkalog.log.log import handle_of
from tests.unit.net.network import Server
from tests.unit.net.kafka_requests import produce, produced
server = Server(workers=1)
log = kafkalog.Log(sys.argv[1] + "/orders-0")
server.reactor.put_topic("orders", uuid.uuid4())
server.reactor.put_partition(handle_of(log), leader_epoch=0, durable=False)
client = server.client()
client.send(produce(1, 1))
assert produced(client, 1).error_code == 0
kept = [log, server, client]; kept.append(kept)
"""


def test_a_program_may_end_without_closing(tmp_path):
    command = [sys.executable, "-c", UNCLOSED, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S * 3)
    assert (done.returncode, done.stderr) == (0, "")


# ---- fork ------------------------------------------------------------------------------------


def test_a_forked_child_is_refused_and_holds_no_socket(tmp_path):
    with Server() as server, server.client() as client:
        assert client.ask(1, b"x") == b"x"
        done_read, done_write = os.pipe()
        wait_read, wait_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(wait_write)
            try:
                server.reactor.take(0)
            except ForkedHandle:
                os.write(done_write, b"y")
            client.close()
            os.read(wait_read, 1)  # until the parent is done
            os._exit(0)
        try:
            assert os.read(done_read, 1) == b"y"
            # The child lives, and has neither the listening socket nor the connections.
            assert client.ask(2, b"x") == b"x"
            server.reactor.stop(1000)
            assert client.is_closed()
            with pytest.raises(ConnectionRefusedError):
                server.client()
        finally:
            for fd in (wait_write, wait_read, done_read, done_write):
                os.close(fd)
            os.waitpid(pid, 0)


def test_forks_under_load_do_no_harm():
    with Server(workers=2) as server:
        stop = threading.Event()
        problems: list[BaseException] = []

        def talk() -> None:
            try:
                while not stop.is_set():
                    with server.client() as client:
                        for number in range(5):
                            assert client.ask(number, b"x") == b"x"
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=talk) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join(LIMIT_S)
        assert not problems
