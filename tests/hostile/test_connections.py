"""Abused connections: bytes that are no requests, unknown requests, answers that are never read,
far too many connections.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from kafkalog.wire import apis
from kafkalog.wire.runtime import uvarint_bytes
from tests.hostile.attack import blocked, flood
from tests.hostile.victim import MIB, Victim
from tests.support.effort import LONG, SEED
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.net.network import framed, header

LITTLE = 8 * MIB
"""Memory that bytes on a connection may cost if they never become a request."""
PRODUCE, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 2, 3, 18
ALL_TOPICS = b"\0\0\0\0\0"
"""Body of Metadata 9: no tagged fields of the header; null topics; three flags."""


def metadata(correlation: int, tags: bytes = b"\0", version: int = 9) -> bytes:
    """Metadata of no topic; `tags` of the request's header."""
    return framed(header(METADATA, version, correlation) + tags + b"\1\0\0\0\0")


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """With a smaller memory limit for large requests than Kafka's default."""
    made = Victim(
        tmp_path_factory.mktemp("victim"),
        queued_max_request_bytes=64 * MIB,
        socket_request_max_bytes=64 * MIB,
    )
    yield made
    made.close()


# ---- bytes that are no requests ----------------------------------------------------------------

CLOSING = {
    "a TLS ClientHello": bytes.fromhex("16030100c8010000c40303") + bytes(300),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a length of 0": struct.pack(">i", 0) + bytes(9),
    "a negative length": struct.pack(">i", -1),
    "a length of 2**31 - 1": struct.pack(">i", 2**31 - 1),
    "one byte too many": struct.pack(">i", 104_857_601),
    "an API that nobody knows": framed(header(999, 0, 1)),
    "a negative API": framed(header(-1, 0, 1)),
    "an API of brokers": framed(header(4, 7, 1) + bytes(99)),
    "a version that nobody knows": framed(header(METADATA, 99, 1) + b"\0" + ALL_TOPICS),
    "a negative version": framed(header(METADATA, -1, 1) + ALL_TOPICS),
    "a Produce that nobody knows": framed(header(PRODUCE, 99, 1) + b"\0" + bytes(50)),
    "a plain header where a flexible one belongs": framed(header(METADATA, 9, 1) + b"\2\2a"),
    "a flexible header where a plain one belongs": framed(
        header(METADATA, 5, 1) + b"\1\0\1a" + struct.pack(">i", 0) + b"\0"
    ),
    "a negative count": framed(header(LIST_OFFSETS, 1, 1) + struct.pack(">ii", -1, -2)),
    "a count of 2**31 - 1": framed(header(METADATA, 5, 1) + struct.pack(">i", 2**31 - 1)),
    "a string beyond the end": framed(header(METADATA, 5, 1) + struct.pack(">ih", 1, 99) + b"a"),
    "a negative string": framed(header(METADATA, 5, 1) + struct.pack(">ih", 1, -5) + b"\0"),
    "a compact count of 6 bytes": framed(header(METADATA, 9, 1) + b"\0" + b"\xff" * 6),
    "a compact count of 33 bits": framed(header(METADATA, 9, 1) + b"\0\xff\xff\xff\xff\x1f"),
    "a tagged field beyond the end": metadata(1, b"\1\0\xff\xff\x03"),
    "a million tagged fields": metadata(1, uvarint_bytes(1_000_000)),
    "nothing behind the header": framed(header(METADATA, 9, 1) + b"\0"),
}


@pytest.mark.parametrize("name", CLOSING)
def test_invalid_requests_close_their_connection(victim: Victim, name: str) -> None:
    with victim.attacked(name, LITTLE), victim.client() as client:
        client.send(CLOSING[name])
        assert client.is_closed()


ANSWERED = {
    "a tag twice": b"\2\0\1a\0\1b",
    "tags in any order": b"\3\7\0\5\0\6\0",
    "a tagged field of 1 MiB": b"\1\0" + uvarint_bytes(1 << 20) + bytes(1 << 20),
    "100,000 tagged fields": uvarint_bytes(100_000) + b"\1\0" * 100_000,
    "a tag in five bytes": b"\1\x81\x80\x80\x80\0\0",
    "a count in three bytes": b"\x80\x80\0",
}
"""Tagged fields of a header, which Kafka skips, too."""


@pytest.mark.parametrize("name", ANSWERED)
def test_tagged_fields_are_skipped_whatever_they_are(victim: Victim, name: str) -> None:
    with victim.attacked(name, LITTLE), victim.client() as client:
        client.send(metadata(7, ANSWERED[name]))
        assert client.response()[0] == 7


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(victim: Victim) -> None:
    with victim.attacked("ApiVersions 99", LITTLE), victim.client() as client:
        client.send(framed(header(API_VERSIONS, 99, 5) + b"\0junk"))
        correlation, body = client.response()
        assert (correlation, struct.unpack_from(">h", body)) == (5, (35,))


def test_correlation_ids_are_the_clients_own(victim: Victim) -> None:
    """The same id repeatedly, and negative ids: each answer has its request's, in their order."""
    ids = [1, 1, 1, -1, -(2**31), 2**31 - 1, 1, 0]
    with victim.attacked("correlation ids", LITTLE), victim.client() as client:
        client.send(b"".join(metadata(i) for i in ids))
        found = [client.response()[0] for _ in ids]
    assert found == [i % 2**32 for i in ids]


def test_random_requests_of_every_api(victim: Victim) -> None:
    """Correct headers, random bodies: an answer or a closed connection."""
    draw = random.Random(SEED)
    ended = 0
    with victim.attacked("random bodies", 64 * MIB):
        for key, versions in sorted(apis.SERVED.items()):
            for version in {versions.start, versions.stop - 1}:
                with victim.client() as client:
                    body = draw.randbytes(draw.randrange(200))
                    client.send(framed(header(key, version, 1) + b"\0" + body))
                    client.socket.shutdown(socket.SHUT_WR)
                    while client.socket.recv(1 << 16):
                        pass
                    ended += 1
    assert ended >= len(apis.SERVED)


# ---- answers that are never read ---------------------------------------------------------------


def test_requests_without_end_and_no_answer_read(victim: Victim) -> None:
    """The broker stops reading when its answers are not read: the socket fills, and it waits."""
    data = b"".join(metadata(i) for i in range(10_000))
    with victim.attacked("pipelined requests", 16 * MIB), victim.client() as client:
        assert blocked(client.socket, data, 256 * MIB)


def test_half_closed_connections_are_answered_and_closed(victim: Victim) -> None:
    with victim.attacked("half-closed", LITTLE):
        for _ in range(20):
            with victim.client() as client:
                client.send(metadata(1) + metadata(2) + metadata(3)[:-5])
                client.socket.shutdown(socket.SHUT_WR)
                assert [client.response()[0], client.response()[0]] == [1, 2]
                assert client.is_closed()


def test_a_client_leaves_before_its_answer(victim: Victim) -> None:
    with victim.attacked("gone before the answer", 24 * MIB):
        for _ in range(300):
            client = victim.client()
            client.send(b"".join(metadata(i) for i in range(20)))
            client.reset()


# ---- too much at once --------------------------------------------------------------------------


def test_large_requests_that_never_end(victim: Victim) -> None:
    """40 connections begin 60 MiB each.  queued.max.request.bytes (here 64 MiB) of them are
    read.  An unfinished frame that gets no more bytes gives way to a real client.
    """
    begin = struct.pack(">i", 60 * MIB) + header(PRODUCE, 9, 1) + b"\0"
    some = bytes(1 << 18)
    clients = []
    # Each of three network threads may exceed its share by one read of a socket's buffer.
    with victim.attacked("40 x 60 MiB", (64 + 3 * 8 + 48) * MIB):
        before = victim.resident_bytes()
        for _ in range(40):
            clients.append(victim.client())
            clients[-1].send(begin)
        flood(clients, some, lambda _closed: victim.resident_bytes() - before > 50 * MIB)
        with contextlib.closing(victim.peer()) as peer:
            topics = [{"name": f"{i:05d}" + "x" * 200} for i in range(20_000)]
            found = peer.ask(apis.METADATA, 8, {"topics": topics})
            assert len(found.topics) == len(topics)
        flood(clients, some, lambda closed: closed > 5)
        for client in clients:
            client.close()


def test_connects_one_after_another(victim: Victim) -> None:
    count = 20_000 if LONG else 1_500
    with victim.attacked(f"{count} connects", 16 * MIB):
        for _ in range(count):
            socket.create_connection(victim.address).close()


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 11_000 if LONG else 3_000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_idle_connections(victim: Victim, many_files: None) -> None:
    """Each is a descriptor and less than 2 KiB (long: 10,000 of them)."""
    count = 10_000 if LONG else 1_000
    with victim.attacked(f"{count} idle connections", LITTLE + count * 2_048):
        clients = [socket.create_connection(victim.address) for _ in range(count)]
        wait_for(lambda: victim.descriptors() > count, "all are accepted")
        victim.witness.serves()
        for client in clients:
            client.close()


def test_slowloris(tmp_path_factory: pytest.TempPathFactory, many_files: None) -> None:
    """Half frames, and a byte now and then: closed after kafkalog.half.frame.max.ms."""
    count = 2_000 if LONG else 100
    victim = Victim(tmp_path_factory.mktemp("slow"), kafkalog_half_frame_max_ms=300)
    with contextlib.closing(victim), victim.attacked(f"{count} slow", LITTLE + count * 8_192):
        clients = [victim.client() for _ in range(count)]
        for client in clients:
            client.send(struct.pack(">i", 100_000) + b"slow")
        left = list(clients)
        pause = time.monotonic() + LIMIT_S
        while left and time.monotonic() < pause:
            for client in list(left):
                try:
                    client.socket.send(b".")
                except OSError:
                    client.close()
                    left.remove(client)
            victim.witness.serves()
        assert not left


@pytest.mark.skipif(not LONG, reason="KAFKALOG_LONG=1 compares times")
def test_others_are_as_quick_as_before(victim: Victim) -> None:
    """p99 of other clients' Produce and Fetch with and without abuse, in turn: printed, and checked
    for what two processors allow, less than ten times as much."""

    def p99_ms(seconds: float) -> float:
        begin_s = time.monotonic()
        wait_for(lambda: time.monotonic() - begin_s > seconds, "time goes by")
        took = sorted(
            one.end_s - one.begin_s
            for one in victim.witness.answers
            if one.kind == "fast" and one.begin_s > begin_s
        )
        return took[int(len(took) * 0.99)] * 1000

    quiet = p99_ms(5)
    clients = [victim.client() for _ in range(50)]
    for client in clients:
        client.socket.settimeout(0.1)
        with contextlib.suppress(TimeoutError):
            client.send(b"".join(metadata(i) for i in range(10_000)))
    abused = p99_ms(5)
    for client in clients:
        client.close()
    print(f"p99 of others: {quiet:.2f} ms, with the abuse {abused:.2f} ms")
    assert abused < 10 * quiet + 10
