"""Frames received in any pieces and with any content."""

from __future__ import annotations

import random
import struct

import pytest

from tests.support.effort import SEED
from tests.support.waiting import wait_for
from tests.unit.net import network
from tests.unit.net.network import Client, Server, framed, header, request


@pytest.fixture(scope="module")
def server():
    with Server(socket_request_max_bytes=8 << 20) as running:
        yield running


@pytest.fixture
def client(server):
    with server.client() as connected:
        yield connected


def test_a_request_that_comes_byte_by_byte_is_answered(client):
    data = request(7, b"some body")
    for at in range(len(data)):
        client.send(data[at : at + 1])
    assert client.response() == (7, b"some body")


SMALL = 4096 - 16
"""The largest frame in the smallest buffer, including its size field."""


@pytest.mark.parametrize("size", [SMALL - 1, SMALL, SMALL + 1, 65_536, 1_000_000, 4 << 20])
def test_a_frame_of_any_size_comes_whole(client, size):
    body = random.Random(SEED).randbytes(size - len(request(0)))
    assert client.ask(1, body) == body
    assert client.ask(2, b"and the next") == b"and the next"


def test_requests_that_come_in_any_pieces_are_answered_in_order(client):
    draw = random.Random(SEED)
    bodies = [draw.randbytes(draw.choice([0, 3, 100, 4000, 4070, 4090, 9000, 70_000]))
              for _ in range(60)]  # fmt: skip
    stream = b"".join(request(number, body) for number, body in enumerate(bodies))
    cuts = sorted(draw.randrange(len(stream)) for _ in range(200))
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        client.send(stream[begin:end])
    for number, body in enumerate(bodies):
        assert client.response() == (number, body)


def test_requests_that_are_sent_at_once_are_answered_in_order(client):
    client.send(b"".join(request(number, b"%d" % number) for number in range(500)))
    for number in range(500):
        assert client.response() == (number, b"%d" % number)


# ---- headers -----------------------------------------------------------------------------------


def seen(frame: bytes, **settings: object) -> network.RawRequest:
    """The request that Python receives for one frame."""
    with Server(workers=0, **settings) as server, server.client() as client:
        client.send(framed(frame))
        return server.take()


def test_a_taken_request_has_header_and_peer():
    found = seen(header(network.METADATA, 4, -5, b"caf\xc3\xa9") + b"body")
    assert (found.api_key, found.api_version, found.correlation_id) == (3, 4, -5)
    assert (found.client_id, bytes(found.body), found.listener) == ("café", b"body", 0)
    assert found.peer.startswith("127.0.0.1:")


def test_a_client_id_may_be_null_empty_or_no_text():
    assert seen(header(3, 1, 1, None)).client_id is None
    assert seen(header(3, 1, 1, b"")).client_id == ""
    assert seen(header(3, 1, 1, b"\xff\xfe")).client_id == "��"


@pytest.mark.parametrize(
    "tags", [b"\0", b"\1\0\0", b"\2\5\3abc\x87\1\0", b"\1\0\x80\1" + bytes(128)]
)
def test_tagged_fields_of_a_flexible_header_are_skipped(tags):
    found = seen(header(network.METADATA, 9, 1) + tags + b"body")
    assert bytes(found.body) == b"body"


def test_an_unknown_version_of_a_flexible_api_has_a_flexible_header():
    """ApiVersions of a newer client must be answered (KIP-511)."""
    found = seen(header(network.API_VERSIONS, 99, 1) + b"\0body")
    assert bytes(found.body) == b"body"


def test_version_0_of_controlled_shutdown_has_no_client_id():
    found = seen(struct.pack(">hhi", network.CONTROLLED_SHUTDOWN, 0, 9) + b"body")
    assert (found.client_id, bytes(found.body)) == (None, b"body")


@pytest.mark.parametrize("key", [95, 999, -1, 32767, -32768])
def test_an_unknown_api_key_comes_up_with_a_plain_header(key):
    found = seen(header(key, 0, 1) + b"body")
    assert (found.api_key, bytes(found.body)) == (key, b"body")


# ---- garbage -----------------------------------------------------------------------------------

GARBAGE = {
    "negative length": struct.pack(">i", -1),
    "most negative length": struct.pack(">i", -(2**31)),
    "largest length": struct.pack(">i", 2**31 - 1),
    "one above the limit": struct.pack(">i", (8 << 20) + 1),
    "no length": struct.pack(">i", 0) + bytes(8),
    "half a header": framed(bytes(7)),
    "a header without client id": framed(bytes(8)),
    "a client id that ends the frame": framed(struct.pack(">hhih", 3, 1, 1, 5) + b"four"),
    "a negative client id": framed(struct.pack(">hhih", 3, 1, 1, -2)),
    "no tagged fields": framed(header(3, 9, 1)),
    "too many tagged fields": framed(header(3, 9, 1) + b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "a tagged field beyond the frame": framed(header(3, 9, 1) + b"\1\0\5four"),
    "an endless varint": framed(header(3, 9, 1) + b"\x80" * 20),
    "a varint of 33 bits": framed(header(3, 9, 1) + b"\x80\x80\x80\x80\x10" + bytes(20)),
    "TLS": bytes.fromhex("16030100c8010000c40303"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_closes_its_connection_and_no_other(server, client, garbage):
    before = server.reactor.stats().closed_garbage
    with server.client() as other:
        assert other.ask(1, b"before") == b"before"
        client.send(garbage)
        assert client.is_closed()
        assert other.ask(2, b"after") == b"after"
    assert server.reactor.stats().closed_garbage == before + 1


def test_requests_before_garbage_are_answered_first(client):
    client.send(request(1, b"asked") + GARBAGE["HTTP"])
    assert client.response() == (1, b"asked")
    assert client.is_closed()


def test_random_bytes_do_no_harm(server):
    """Any bytes: each connection is closed or waits for more, and others are served."""
    draw = random.Random(SEED)
    with server.client() as other:
        for number in range(200):
            with server.client() as client:
                data = bytearray(draw.randbytes(draw.randrange(1, 300)))
                if draw.random() < 0.7:  # a plausible length
                    data[:4] = struct.pack(">i", draw.randrange(len(data) + 5))
                client.send(data)
            assert other.ask(number, b"still here") == b"still here"


def test_a_length_alone_takes_no_memory(server):
    """Each of 100 connections announces 8 MiB and sends none of it: no page is touched."""
    clients = [Client(server.address) for _ in range(100)]
    before = resident_bytes()
    for client in clients:
        client.send(struct.pack(">i", 8 << 20))
    wait_for(lambda: server.reactor.stats().buffer_bytes > 100 * (8 << 20), "all were read")
    if not network.SANITIZED:
        assert resident_bytes() - before < 20 << 20
    for client in clients:
        client.close()
    server.connected(0)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
