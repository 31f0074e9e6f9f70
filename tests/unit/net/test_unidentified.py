"""Connections that must authenticate: what they may send, how long, how many, how long it lasts."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from kafkalog.errors import ArgumentError, NotFound
from kafkalog.server.network.raw_request import RawRequest
from kafkalog.server.network.reactor import (
    ANONYMOUS,
    REAUTHENTICATES,
    TOKEN,
    UNIDENTIFIED,
    UNIDENTIFIED_RAW,
)
from tests.support.waiting import wait_for
from tests.unit.net.network import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    Client,
    Server,
    framed,
    header,
    request,
)

HANDSHAKE, AUTHENTICATE = 17, 36
LATE_MS, FRAME_BYTES, MANY = 30_000, 200, 3
SOMEBODY = 7


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(
        workers=0,
        manual_clock=True,
        num_network_threads=1,
        sasl_server_max_receive_size=FRAME_BYTES,
        kafkalog_authentication_max_ms=LATE_MS,
        kafkalog_unauthenticated_connections_max=MANY,
    ) as running:
        running.reactor.authenticate(0)
        yield running


def taken(server: Server, client: Client, data: bytes) -> RawRequest:
    client.send(data)
    return server.take()


def identified(
    server: Server, client: Client, expires_ms: int = -1, before: int = UNIDENTIFIED
) -> None:
    one = taken(server, client, request(1, key=AUTHENTICATE))
    assert one.principal == before
    server.reactor.set_principal(one.id, SOMEBODY, expires_ms)
    one.answer(b"", 0)
    client.response()


@pytest.mark.parametrize("key", [PRODUCE, FETCH, METADATA, API_VERSIONS, HANDSHAKE, AUTHENTICATE])
def test_every_request_goes_up(server: Server, key: int) -> None:
    """Produce and Fetch, too: C answers identified clients only."""
    with server.client() as client:
        one = taken(server, client, request(1, key=key, version=0))
        assert (one.api_key, one.principal, one.subject) == (key, UNIDENTIFIED, None)
        one.again()
        assert client.is_closed()


def test_one_request_goes_up_at_a_time(server: Server) -> None:
    """The next request is not even parsed: it has the principal that the first one brings."""
    with server.client() as client:
        first = taken(server, client, request(1, key=AUTHENTICATE) + request(2) + request(3))
        assert server.reactor.take(0) is None
        server.reactor.set_principal(first.id, SOMEBODY)
        assert server.reactor.take(0) is None
        first.answer(b"", 0)
        second = server.take()
        assert (second.correlation_id, second.principal) == (2, SOMEBODY)
        second.drop()


def test_a_produce_of_a_client_that_is_now_known_is_answered(server: Server) -> None:
    """As with a client's certificate: its first request may be any."""
    server.reactor.set_permit(SOMEBODY, 0)
    produce = struct.pack(">hhii", -1, 1, 1000, 0)  # no transaction, acks, timeout, topics
    with server.client() as client:
        one = taken(server, client, request(1, produce, PRODUCE, 3))
        server.reactor.set_principal(one.id, SOMEBODY)
        one.again()
        assert client.response()[0] == 1
        client.send(request(2, produce, PRODUCE, 3))
        assert client.response()[0] == 2
    assert server.reactor.stats().fast == 1
    assert server.reactor.usage(SOMEBODY).produce_requests == 2


def test_frames_are_small_until_a_client_is_known(server: Server) -> None:
    fits = framed(header(METADATA, 1, 5).ljust(FRAME_BYTES, b"x"))
    with server.client() as client:
        taken(server, client, fits).answer(b"", 0)
        client.response()
        identified(server, client)
        taken(server, client, request(9, bytes(FRAME_BYTES))).answer(b"", 0)
        client.response()
    with server.client() as client:
        client.send(struct.pack(">i", FRAME_BYTES + 1))
        assert client.is_closed()
    assert server.reactor.stats().closed_garbage == 1


def test_a_client_has_limited_time(server: Server) -> None:
    """However busy it is."""
    with server.client() as known, server.client() as late:
        identified(server, known)
        taken(server, late, request(0)).answer(b"", 0)
        late.response()
        server.reactor.set_time(LATE_MS - 1)
        taken(server, late, request(1)).answer(b"", 0)
        late.response()
        server.reactor.set_time(LATE_MS)
        assert late.is_closed()
        taken(server, known, request(1)).answer(b"", 0)
        known.response()
    assert server.reactor.stats().closed_unidentified == 1


def test_the_oldest_of_too_many_is_closed(server: Server) -> None:
    clients = []
    for count in range(1, MANY + 1):
        clients.append(server.client())
        server.connected(count)
    for client in clients:
        taken(server, client, request(1)).answer(b"", 0)
        client.response()
    identified(server, clients[1])
    more = server.client()
    taken(server, more, request(1)).answer(b"", 0)
    more.response()
    assert server.reactor.stats().closed_unidentified == 0
    last = server.client()
    assert clients[0].is_closed()
    for client in (*clients[1:], more, last):
        taken(server, client, request(2)).drop()
        assert client.is_closed()
        client.close()
    assert server.reactor.stats().closed_unidentified == 1


@pytest.mark.parametrize("key", [PRODUCE, FETCH, METADATA, API_VERSIONS, AUTHENTICATE])
def test_an_expired_session_takes_only_a_handshake(server: Server, key: int) -> None:
    with server.client() as client:
        identified(server, client, 1000)
        server.reactor.set_time(999)
        taken(server, client, request(1)).answer(b"", 0)
        client.response()
        server.reactor.set_time(1000)
        one = taken(server, client, request(2, key=HANDSHAKE))
        server.reactor.set_principal(one.id, UNIDENTIFIED)
        one.answer(b"", 0)
        client.response()
        identified(server, client, 1000, REAUTHENTICATES)
        server.reactor.set_time(1999)
        taken(server, client, request(1)).answer(b"", 0)
        client.response()
        server.reactor.set_time(2000)
        client.send(request(3, key=key))
        assert client.is_closed()
    assert server.reactor.stats().closed_unidentified == 1


def test_tokens_without_headers(server: Server) -> None:
    """Version 0 of SaslHandshake: whatever follows is a token, until the client is known."""
    with server.client() as client:
        one = taken(server, client, request(1, key=HANDSHAKE, version=0))
        server.reactor.set_principal(one.id, UNIDENTIFIED_RAW)
        one.answer(b"", 0)
        client.response()
        for token in (b"", b"\0me\0secret", bytes(range(200))):
            one = taken(server, client, framed(token))
            assert (one.api_key, one.api_version, bytes(one.body)) == (AUTHENTICATE, -1, token)
            one.answer(b"answer", TOKEN)
            assert client.receive(10) == framed(b"answer")
        one = taken(server, client, framed(b"last"))
        server.reactor.set_principal(one.id, SOMEBODY)
        one.answer(b"", TOKEN)
        assert client.receive(4) == bytes(4)
        one = taken(server, client, request(4))
        assert (one.api_key, one.principal) == (METADATA, SOMEBODY)
        one.drop()


@pytest.mark.parametrize("raw", [False, True])
def test_a_refusal_is_late_and_the_last_answer(server: Server, raw: bool) -> None:
    with server.client() as client, server.client() as other:
        one = taken(server, client, request(1) + request(2))
        server.reactor.refuse(one.id, b"no", TOKEN if raw else 0, 100)
        taken(server, other, request(1)).answer(b"", 0)  # the network thread has seen it
        other.response()
        client.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        client.socket.settimeout(10)
        server.reactor.set_time(100)
        assert client.receive(6 if raw else 10)[-2:] == b"no"
        assert client.is_closed()
        assert server.reactor.take(0) is None
        with pytest.raises(NotFound):
            server.reactor.refuse(one.id, b"no", 0, 100)


def test_a_refusal_without_delay_or_body(server: Server) -> None:
    with server.client() as client:
        server.reactor.refuse(taken(server, client, request(1)).id, b"", -1, 0)
        assert client.is_closed()


def test_a_client_may_leave_before_its_refusal(server: Server) -> None:
    with server.client() as client:
        server.reactor.refuse(taken(server, client, request(1)).id, b"no", 0, 100)
        client.reset()
    server.connected(0)
    server.reactor.set_time(100)
    with server.client() as client:
        taken(server, client, request(1)).drop()


def test_the_servers_end_waits_for_no_refusal(server: Server) -> None:
    with server.client() as client:
        one = taken(server, client, request(1))
        server.reactor.refuse(one.id, b"no", 0, 1_000_000)
        with server.client() as other:
            taken(server, other, request(1)).answer(b"", 0)
            other.response()
        server.reactor.stop(10_000)
        assert client.response() == (1, b"no")


def test_unidentified_clients_move_between_threads_with_their_time(server: Server) -> None:
    server.reactor.set_threads(2)
    clients = [server.client() for _ in range(2)]
    for client in clients:
        taken(server, client, request(1)).answer(b"", 0)
        client.response()
    server.reactor.set_threads(1)
    wait_for(lambda: server.reactor.stats().network_threads == 1, "one thread")
    server.reactor.set_time(LATE_MS)
    for client in clients:
        assert client.is_closed()
        client.close()


def test_other_listeners_are_as_before(server: Server) -> None:
    port = server.reactor.listen("127.0.0.1", 0, 1)
    with Client(("127.0.0.1", port)) as client:
        one = taken(server, client, request(1))
        assert one.principal == ANONYMOUS
        one.drop()


@pytest.mark.parametrize("number", [-1, 64])
def test_listeners_that_authenticate_have_small_numbers(server: Server, number: int) -> None:
    with pytest.raises(ArgumentError, match="wanted 0 to 63"):
        server.reactor.authenticate(number)


@pytest.mark.parametrize("principal", [-3, 65536])
def test_principals_out_of_range_are_refused(server: Server, principal: int) -> None:
    with server.client() as client:
        one = taken(server, client, request(1))
        with pytest.raises(ArgumentError):
            server.reactor.set_principal(one.id, principal)
        one.drop()
    with pytest.raises(NotFound):
        server.reactor.set_principal(one.id, SOMEBODY)


def test_a_principal_is_held_until_python_has_answered(server: Server) -> None:
    """Also after its connection has ended: until then, its number must not become another's."""
    client = server.client()
    identified(server, client)
    one = taken(server, client, request(2))
    client.reset()
    server.connected(0)
    assert server.reactor.unheld(SOMEBODY, SOMEBODY + 1) == []
    one.answer(b"", 0)
    wait_for(lambda: server.reactor.unheld(SOMEBODY, SOMEBODY + 1) == [SOMEBODY], "it is let go")


@pytest.mark.parametrize("key", [PRODUCE, FETCH, METADATA, HANDSHAKE])
def test_a_client_that_authenticates_again_is_told_from_a_new_one(server: Server, key: int) -> None:
    """And C answers it as little, until it is known."""
    with server.client() as client:
        identified(server, client)
        one = taken(server, client, request(2, key=HANDSHAKE))
        server.reactor.set_principal(one.id, UNIDENTIFIED_RAW if key == HANDSHAKE else UNIDENTIFIED)
        one.answer(b"", 0)
        client.response()
        assert server.reactor.unheld(SOMEBODY, SOMEBODY + 1) == [SOMEBODY]
        one = taken(server, client, request(3, key=key, version=0))
        assert one.principal == REAUTHENTICATES
        one.again()
        assert client.is_closed()
