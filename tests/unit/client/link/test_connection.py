"""One connection: versions, order, timeouts, and peers that do not speak Kafka."""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.link.connection import PIECES_MAX, Connection, answering
from kafkalog.client.link.transport import Address, Options, Tcp, parse_servers
from kafkalog.wire import apis
from kafkalog.wire.message import LARGE_BYTES
from tests.support.scripted import CLOSE, SILENCE, STALL, Body, Peer, Raw, Torn
from tests.support.waiting import LIMIT_S, wait_for

PATIENT = Options()
SHORT = Options(request_timeout_ms=200)
"""Only for peers that never answer: a busy machine may be slower than this."""


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as made:
        yield made


def connect(peer: Peer, options: Options = PATIENT) -> Connection:
    return Connection(Address("127.0.0.1", peer.port), options)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("broker", [("broker", 9092)]),
        ("[::1]:19092", [("::1", 19092)]),
        ("PLAINTEXT://a:1,plaintext://[::1]:2", [("a", 1), ("::1", 2)]),
        ("[fe80::1%eth0]", [("fe80::1%eth0", 9092)]),
    ],
)
def test_servers(text: str, found: list[tuple[str, int]]) -> None:
    assert parse_servers(text) == found


@pytest.mark.parametrize(
    "text",
    ["", " , ", "a:b", "a:0", "a:65536", "::1", "a:1:2", "[::1", "a b", "INSIDE://a:1", "://a:1"],
)
def test_servers_that_are_none(text: str) -> None:
    with pytest.raises(errors.ArgumentError, match="wanted host:port"):
        parse_servers(text)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "sasl_ssl", "SASL_PLAINTEXT"])
def test_a_listener_with_another_protocol_is_refused_with_the_reason(protocol: str) -> None:
    """Not as an address that is mistyped."""
    wanted = f"'{protocol}://h:9093': found {protocol}, but security.protocol is PLAINTEXT"
    with pytest.raises(errors.ArgumentError, match=wanted):
        parse_servers(f"a:1,{protocol}://h:9093")
    for kind in (kafkalog.Producer, kafkalog.Admin):
        with pytest.raises(errors.ArgumentError, match=wanted):
            kind(f"{protocol}://h:9093")
    with pytest.raises(errors.ArgumentError, match=wanted):
        kafkalog.Consumer(f"{protocol}://h:9093", "orders")


def test_an_address_is_shown_as_it_is_typed() -> None:
    assert [str(a) for a in parse_servers("[::1]:1,h:2")] == ["[::1]:1", "h:2"]


# ---- versions ------------------------------------------------------------------------------


def test_the_highest_version_of_both_is_used(peer: Peer) -> None:
    peer.versions = {apis.METADATA: (1, 5), apis.FETCH: (4, 99)}
    connection = connect(peer)
    assert connection.version_of(apis.METADATA) == 5
    assert connection.version_of(apis.FETCH) == apis.FETCH.versions.stop - 1
    assert connection.version_of(apis.FETCH, at_most=12) == 12
    connection.call(apis.METADATA, {"topics": None})
    assert peer.requests[-1][:2] == ("Metadata", 5)


def test_no_common_version_is_told_with_both_ranges(peer: Peer) -> None:
    peer.versions = {apis.PRODUCE: (0, 2), apis.LIST_GROUPS: (0, -1), apis.FETCH: (60, 70)}
    connection = connect(peer)
    with pytest.raises(errors.UnsupportedVersion, match="Produce: the broker offers 0 to 2"):
        connection.version_of(apis.PRODUCE)
    with pytest.raises(errors.UnsupportedVersion, match="ListGroups: the broker offers none"):
        connection.call(apis.LIST_GROUPS, {})
    assert not connection.knows(apis.FETCH)
    assert connection.knows(apis.METADATA)


def old_broker(request: Any, version: int) -> Any:
    """A broker that knows ApiVersions only up to 2: it answers a newer one in version 0."""
    keys = [{"api_key": 18, "min_version": 0, "max_version": 2}]
    if version <= 2:
        return {"api_keys": [*keys, {"api_key": 3, "min_version": 0, "max_version": 7}]}
    return Body(apis.API_VERSIONS.encode_response(0, {"error_code": 35, "api_keys": keys}))


def test_an_old_broker_is_asked_again_in_its_own_version(peer: Peer) -> None:
    peer.on(apis.API_VERSIONS, old_broker)
    connection = connect(peer)
    assert [version for _, version, _ in peer.requests] == [apis.API_VERSIONS.max_version, 2]
    assert connection.ranges == {18: (0, 2), 3: (0, 7)}


def test_a_broker_that_offers_nothing_is_refused(peer: Peer) -> None:
    peer.on(apis.API_VERSIONS, {"api_keys": []})
    with pytest.raises(errors.BadAnswer, match="offers no API"):
        connect(peer)


def test_the_client_names_itself_as_kafka_demands(peer: Peer) -> None:
    connect(peer, PATIENT._replace(client_id="me"))
    _, _, request = peer.requests[0]
    assert request.client_software_name == "kafkalog"
    assert request.client_software_version


# ---- answers -------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_the_requests(peer: Peer) -> None:
    """With several in flight, each request gets its own answer."""
    connection = connect(peer)
    peer.on(apis.METADATA, *(peer.metadata({name: 1}) for name in "abc"))
    for _ in range(3):
        connection.send(apis.METADATA, {"topics": None})
    assert connection.waiting == 3
    with pytest.raises(errors.ArgumentError, match="3 answers are due first"):
        connection.call(apis.METADATA, {"topics": None})
    answers = [connection.receive() for _ in range(3)]
    assert [answer.topics[0].name for answer in answers] == ["a", "b", "c"]
    with pytest.raises(errors.ArgumentError, match="no answer is due"):
        connection.receive()


def test_answering_names_those_that_have_something_to_read(peer: Peer) -> None:
    one, two = connect(peer), connect(peer)
    assert answering([one, two], 0) == []
    two.send(apis.METADATA, {"topics": None})
    assert answering([one, two], 10) == [two]


def test_unknown_tagged_fields_of_the_header_are_skipped(peer: Peer) -> None:
    def tagged(request: Any, version: int) -> Any:
        body = apis.METADATA.encode_response(version, peer.metadata({"t": 1}))
        out = struct.pack(">i", 2) + b"\x02\x00\x03abc\x07\x00" + body
        return Raw(struct.pack(">i", len(out)) + out)

    connection = connect(peer)
    peer.on(apis.METADATA, tagged)
    assert connection.call(apis.METADATA, {"topics": None}).topics[0].name == "t"


FRAME = struct.Struct(">ii")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "is this Kafka's port"),
        (Raw(b"\x15\x03\x01\x00\x02\x02\x28"), "is this Kafka's port"),  # a TLS alert
        (Raw(struct.pack(">i", -1)), "a frame of -1 bytes"),
        (Raw(struct.pack(">i", 3) + b"abc"), "a frame of 3 bytes"),
        (Raw(struct.pack(">i", 0x7FFFFFFF)), "a frame of 2147483647 bytes"),
        (Raw(FRAME.pack(5, 77) + b"\0"), "the answer to 77, wanted the one to 2"),
        (Raw(FRAME.pack(5, 2) + b"\xff"), "header: tagged fields: found no bytes"),
        (Raw(FRAME.pack(8, 2) + b"\x01\x00\x7fx"), "header: tagged fields: found length 127"),
        (Body(b""), "Metadata"),
        (Body(b"\0\0\0\0\xff\xff\xff\xff\x0f"), "Metadata"),
    ],
)
def test_an_answer_that_breaks_the_protocol(peer: Peer, answer: bytes, message: str) -> None:
    """The error says what was found, and nothing more is read from the connection."""
    connection = connect(peer, PATIENT._replace(response_bytes_max=1 << 20))
    peer.on(apis.METADATA, answer)
    with pytest.raises(errors.BadAnswer, match=message):
        connection.call(apis.METADATA, {"topics": None})
    assert connection.closed
    with pytest.raises(errors.Closed):
        connection.call(apis.METADATA, {"topics": None})


def test_memory_grows_with_received_bytes_only(peer: Peer) -> None:
    import tracemalloc

    connection = connect(peer, SHORT)
    peer.on(apis.METADATA, Raw(struct.pack(">i", 200 << 20) + b"x" * 1000))
    tracemalloc.start()
    try:
        with pytest.raises(errors.Timeout):
            connection.call(apis.METADATA, {"topics": None})
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_large_answer_is_read_whole(peer: Peer) -> None:
    connection = connect(peer)
    names = {f"topic-{i:06d}" * 10: 1 for i in range(30_000)}
    peer.on(apis.METADATA, peer.metadata(names))
    answer = connection.call(apis.METADATA, {"topics": None})
    assert [topic.name for topic in answer.topics] == list(names)


def test_a_peer_that_hangs_up(peer: Peer) -> None:
    connection = connect(peer)
    peer.on(apis.METADATA, CLOSE)
    with pytest.raises(errors.PeerGone, match="closed the connection after 0 of 4 bytes"):
        connection.call(apis.METADATA, {"topics": None})
    assert connection.closed


def test_a_peer_that_hangs_up_within_its_first_words(peer: Peer) -> None:
    peer.on(apis.API_VERSIONS, CLOSE)
    with pytest.raises(errors.PeerGone):
        connect(peer)


@pytest.mark.parametrize("answer", [STALL, Raw(b"\0\0"), Raw(struct.pack(">i", 100) + b"half")])
def test_a_peer_that_stalls(peer: Peer, answer: Any) -> None:
    """With no answer, or half of one, the request times out and the connection is closed."""
    connection = connect(peer, SHORT)
    peer.on(apis.METADATA, answer)
    with pytest.raises(errors.Timeout, match="Metadata: no answer in 200 ms"):
        connection.call(apis.METADATA, {"topics": None})
    assert connection.closed


def test_a_peer_that_does_not_read(peer: Peer) -> None:
    """Sending the request times out."""
    connection = connect(peer, SHORT)
    peer.on(apis.METADATA, STALL)
    topics = [{"name": "t" * 200} for _ in range(100_000)]
    with pytest.raises(errors.Timeout, match="not taken in 200 ms"):
        for _ in range(100):
            connection.send(apis.METADATA, {"topics": topics})


def test_a_request_of_more_pieces_than_the_system_takes_at_once(peer: Peer) -> None:
    rows = [{"index": i, "records": b"%0*d" % (LARGE_BYTES, i)} for i in range(PIECES_MAX)]
    connection = connect(peer)
    peer.on(apis.PRODUCE, {})
    connection.post(apis.PRODUCE, {"topic_data": [{"name": "t", "partition_data": rows}]}, 9)
    until_s = time.monotonic() + LIMIT_S
    while connection.unsent and time.monotonic() < until_s:
        connection.pump()
    wait_for(lambda: peer.count(apis.PRODUCE) == 1, "it comes", LIMIT_S)
    ((topic,),) = (request.topic_data for request in peer.sent(apis.PRODUCE))
    assert [bytes(row.records) for row in topic.partition_data] == [one["records"] for one in rows]


def test_half_an_answer_while_more_is_to_be_sent(peer: Peer) -> None:
    """The rest of the answer is waited for; it must not be overdue immediately."""
    torn = Torn({}, threading.Event(), threading.Event())
    peer.on(apis.PRODUCE, torn, {})
    connection = connect(peer)
    connection.post(apis.PRODUCE, {}, 9)
    assert torn.begun.wait(LIMIT_S)
    rows = [{"records": bytes(32 << 20)}]  # more than sockets hold
    connection.post(apis.PRODUCE, {"topic_data": [{"name": "t", "partition_data": rows}]}, 9)
    assert connection.unsent
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(connection.receive)
        wait_for(lambda: connection._came > 0 or answer.done(), "half of it is read", LIMIT_S)
        torn.let.set()
        assert answer.result(LIMIT_S).responses == []
    assert connection.receive().responses == []


END = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "committed": True}


class Roomy(Tcp):
    """A transport with a large send buffer, which takes more than the peer does."""

    def connect(self, address: Address, options: Options) -> socket.socket:
        made = super().connect(address, options)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        return made


def test_abandoned_requests_do_not_arrive_later() -> None:
    """The kernel holds it while the network is down: an EndTxn that arrived during the next
    transaction would end that one."""
    gone = threading.Event()

    def look(request: Any, version: int) -> Any:
        gone.wait(LIMIT_S)
        return SILENCE

    with Peer(window_bytes=4096) as peer:
        address = Address("127.0.0.1", peer.port)
        connection = Connection(address, PATIENT, Roomy([address]))
        peer.on(apis.METADATA, look)
        peer.on(apis.END_TXN, SILENCE)
        for _ in range(8):  # more than the window holds
            connection.send(apis.METADATA, {"topics": [{"name": "t" * 200}] * 100})
        connection.send(apis.END_TXN, END)
        with pytest.raises(errors.Timeout):
            connection.receive(timeout_ms=50)
        gone.set()
        wait_for(lambda: peer.open == 0, "it has read all that came")
        assert peer.count(apis.METADATA) > 0
        assert peer.count(apis.END_TXN) == 0


def test_requests_sent_before_a_close_arrive() -> None:
    """Produce with acks=0, or a last request, whose answer nobody waits for."""
    gone = threading.Event()

    def look(request: Any, version: int) -> Any:
        gone.wait(LIMIT_S)
        return SILENCE

    with Peer(window_bytes=4096) as peer:
        address = Address("127.0.0.1", peer.port)
        connection = Connection(address, PATIENT, Roomy([address]))
        peer.on(apis.METADATA, look)
        peer.on(apis.END_TXN, SILENCE)
        for _ in range(8):
            names = {"topics": [{"name": "t" * 200}] * 100}
            connection.send(apis.METADATA, names)
        connection.send(apis.END_TXN, END)
        connection.close()
        gone.set()
        wait_for(lambda: peer.open == 0, "it has read all that came")
        assert peer.count(apis.END_TXN) == 1


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(errors.PeerGone, match=f"127.0.0.1:{port}: Connection refused"):
        Connection(Address("127.0.0.1", port), PATIENT)


def test_a_host_that_has_no_address() -> None:
    with pytest.raises(errors.PeerGone, match=r"^none\.invalid:1: "):
        Connection(Address("none.invalid", 1), PATIENT)


def test_random_bytes_never_do_more_than_fail(peer: Peer, rng: Any) -> None:
    """Any bytes lead to one of three failures, and to no other."""
    whole = apis.METADATA.encode_response(
        apis.METADATA.versions.stop - 1, peer.metadata({"topic": 3, "other": 1})
    )
    for _ in range(300):
        body = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        peer.on(apis.METADATA, Body(body[: rng.randrange(len(body) + 1)]))
        connection = connect(peer)
        try:
            connection.call(apis.METADATA, {"topics": None})
        except (errors.BadAnswer, errors.PeerGone, errors.Timeout):
            assert connection.closed
        connection.close()


def test_ctrl_c_leaves_no_connection_half_read(peer: Peer) -> None:
    """The rest of the answer would belong to no request: the connection is closed."""
    connection = connect(peer)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(request: Any, version: int) -> Any:
        signal.pthread_kill(main, signal.SIGINT)
        return STALL

    peer.on(apis.METADATA, interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            connection.call(apis.METADATA, {"topics": None})
    finally:
        signal.signal(signal.SIGINT, before)
    assert connection.closed
