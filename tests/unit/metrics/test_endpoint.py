"""The HTTP server: its answers, its bounds, its end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from kafkalog.errors import IoFailed
from kafkalog.metrics import endpoint
from kafkalog.metrics.endpoint import OK, PAGES, TEXT, THREADS, Endpoint, Page
from tests.support.waiting import LIMIT_S, wait_for


def shown(accept: str) -> Page:
    return Page(OK, TEXT, f"accept {accept}".encode())


def broken(_accept: str) -> Page:
    raise RuntimeError("a page fails")


@pytest.fixture
def served() -> Iterator[Endpoint]:
    one = Endpoint("127.0.0.1", 0, "test", {"/page": shown, "/broken": broken})
    yield one
    one.close()


def asked(one: Endpoint, data: bytes) -> bytes:
    """The whole answer to these bytes."""
    with socket.create_connection((one.host, one.port), LIMIT_S) as client:
        client.sendall(data)
        return client.makefile("rb").read()


def test_a_page(served: Endpoint) -> None:
    client = HTTPConnection(served.host, served.port, timeout=LIMIT_S)
    client.request("GET", "/page?x=1", headers={"Accept": "text/html"})
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (200, b"accept text/html")
    assert answer.headers["Content-Type"] == TEXT
    assert answer.headers["Connection"] == "close"
    client.request("HEAD", "/page")
    answer = client.getresponse()
    assert (answer.status, answer.headers["Content-Length"], answer.read()) == (200, "7", b"")
    client.close()


@pytest.mark.parametrize(("data", "status"), [
    (b"GET /other HTTP/1.1\r\n\r\n", b"404 Not Found"),
    (b"POST /page HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
    (b"hello\r\n\r\n", b"400 Bad Request"),
    (b"GET /page HTTP/2\r\n\r\n", b"400 Bad Request"),
    (b"GET /page HTTP/1.1\r\nX: " + b"x" * endpoint.REQUEST_BYTES_MAX, b"431 Request Header"),
])  # fmt: skip
def test_another_request_is_refused(served: Endpoint, data: bytes, status: bytes) -> None:
    answer = asked(served, data)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert (b"Allow: GET, HEAD" in answer) == (b"405" in status)


def test_a_request_that_does_not_end_is_given_up(
    served: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_S", 0.0)
    assert asked(served, b"GET /page").startswith(b"HTTP/1.1 408 Request Timeout")


def test_clients_that_say_nothing_and_pages_that_fail_end_no_thread(served: Endpoint) -> None:
    for _ in range(2 * THREADS):
        socket.create_connection((served.host, served.port), LIMIT_S).close()
        assert asked(served, b"GET /broken HTTP/1.1\r\n\r\n") == b""
    assert b"accept" in asked(served, b"GET /page HTTP/1.1\r\n\r\n")


def test_silent_connections_give_way(served: Endpoint) -> None:
    silent = []
    for count in range(THREADS):
        wait_for(lambda count=count: len(served._reading) == count, "each thread reads")
        silent.append(socket.create_connection((served.host, served.port), LIMIT_S))
    assert silent[0].recv(1) == b""  # it was the oldest
    assert b"accept" in asked(served, b"GET /page HTTP/1.1\r\n\r\n")
    silent[-1].sendall(b"GET /page HTTP/1.1\r\n\r\n")
    assert b"accept" in silent[-1].makefile("rb").read()
    for one in silent:
        one.close()


def test_slow_pages_leave_threads_to_others() -> None:
    begun: list[str] = []
    goes_on = threading.Event()

    def slow(accept: str) -> Page:
        begun.append(accept)
        goes_on.wait(LIMIT_S)
        return Page(OK, TEXT, b"made")

    one = Endpoint("127.0.0.1", 0, "test", {"/slow": slow, "/live": shown}, at_once=["/live"])
    place = (one.host, one.port)
    clients = [socket.create_connection(place, LIMIT_S) for _ in range(PAGES)]
    for client in clients:
        client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
    wait_for(lambda: len(begun) == PAGES, "they are being made")
    for request, found in ((b"/slow", b"HTTP/1.1 503 "), (b"/live", b"accept")):
        clients.append(socket.create_connection(place, LIMIT_S))  # it says nothing
        wait_for(lambda: len(one._reading) == 1, "it is served")
        assert found in asked(one, b"GET " + request + b" HTTP/1.1\r\n\r\n")
    goes_on.set()
    for client in clients[:PAGES]:
        assert client.makefile("rb").read().endswith(b"made")
    one.close()
    for client in clients:
        client.close()


def test_close_ends_connections_and_frees_the_port(served: Endpoint) -> None:
    with socket.create_connection((served.host, served.port), LIMIT_S) as silent:
        wait_for(lambda: served._serving, "it is served")
        served.close()
        served.close()
        assert silent.recv(1) == b""
    again = Endpoint(served.host, served.port, "test", {})
    with pytest.raises(IoFailed, match=r"kafkalog\.http\.listen: 127\.0\.0\.1:\d+: "):
        Endpoint(served.host, served.port, "test", {})
    again.close()


def test_close_waits_for_a_page_that_is_made() -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow(_accept: str) -> Page:
        begun.set()
        goes_on.wait(LIMIT_S)
        return Page(OK, TEXT, b"")

    one = Endpoint("127.0.0.1", 0, "test", {"/": slow})
    with socket.create_connection((one.host, one.port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        begun.wait(LIMIT_S)
        closing = threading.Thread(target=one.close)
        closing.start()
        wait_for(lambda: one._closed, "it is being closed")
        assert closing.is_alive()
        goes_on.set()
        closing.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_port(served: Endpoint) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reader, 1)
        os._exit(0)
    served.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((served.host, served.port))
    os.write(writer, b"x")
    assert os.waitpid(child, 0)[1] == 0
    os.close(reader)
    os.close(writer)
