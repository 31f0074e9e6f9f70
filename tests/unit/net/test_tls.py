"""TLS connections: the same frames as without, in every order of bytes and events."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import threading
from datetime import datetime, timedelta, timezone

import pytest
import trustme

from kafkalog.config.server import ServerConfig
from kafkalog.errors import InvalidSetting, NotFound
from kafkalog.server.network.tls import TlsContext
from tests.support import batches
from tests.support.certificates import Certificates, client_context
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.net.kafka_requests import fetch, fetched, produce, produced
from tests.unit.net.network import SANITIZED, Client, Server, request
from tests.unit.net.test_frames import resident_bytes

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
VERSIONS = pytest.mark.parametrize("version", [V12, V13], ids=["1.2", "1.3"])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls_of(certificates, kernel=-1, **settings):
    return TlsContext(ServerConfig(certificates.settings(**settings)), kernel=kernel)


class TlsServer(Server):
    """A server with a TLS listener, number 1, as well."""

    def __init__(self, tls, *args, **settings):
        super().__init__(*args, **settings)
        self.plain_port = self.port
        self.port = self.reactor.listen(self.host, 0, 1, tls)

    def failure(self):
        found = self.reactor.handshake_failure(int(LIMIT_S * 1000))
        assert found is not None
        return found


class TlsClient(Client):
    """A connection that is encrypted."""

    def __init__(self, server, context, **how):
        super().__init__(server.address, **how)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        except BaseException:
            self.socket.close()
            raise


@VERSIONS
def test_requests_and_answers_of_every_size(certificates, version):
    """From one byte to more than many records, one after the other and together."""
    context = client_context(certificates.trust, version)
    sizes = [0, 1, 100, 4096, 16383, 16384, 16385, 70_000, 1_000_000, 5_000_000]
    with TlsServer(tls_of(certificates)) as server, TlsClient(server, context) as client:
        assert client.socket.version() == f"TLSv{'1.2' if version == V12 else '1.3'}"
        for number, size in enumerate(sizes):
            body = os.urandom(size)
            assert client.ask(number, body) == body
        for number in range(300):
            client.send(request(number, bytes([number % 256]) * (number * 7)))
        for number in range(300):
            assert client.response() == (number, bytes([number % 256]) * (number * 7))
        assert server.reactor.stats().handshakes == 1


@VERSIONS
def test_bytes_that_come_while_decrypted_ones_wait_are_read(certificates, version):
    """A request waits in Python; OpenSSL holds the rest of the next one; a third one arrives, and
    nothing follows it."""
    go_on = threading.Event()

    def answer(raw):
        if raw.correlation_id == 1:
            assert go_on.wait(LIMIT_S)
        raw.answer(bytes(raw.body), 0)

    context = client_context(certificates.trust, version)
    with (
        TlsServer(tls_of(certificates), answer, num_network_threads=1) as server,
        TlsClient(server, context) as client,
        TlsClient(server, context) as other,
    ):
        client.send(request(1) + request(2, bytes(6000)))
        assert other.ask(8) == b""  # the thread has read
        client.send(request(3))
        assert other.ask(9) == b""  # and knows of the third one
        go_on.set()
        assert [client.response()[0] for _ in range(3)] == [1, 2, 3]


@VERSIONS
def test_a_frame_byte_by_byte(certificates, version):
    """Each byte in a record of its own."""
    context = client_context(certificates.trust, version)
    with TlsServer(tls_of(certificates)) as server, TlsClient(server, context) as client:
        for byte in request(7, b"slowly"):
            client.send(bytes([byte]))
        assert client.response() == (7, b"slowly")


@VERSIONS
def test_a_slow_reader_gets_everything(certificates, version):
    """Small buffers: each record waits for space several times."""
    context = client_context(certificates.trust, version)
    body = os.urandom(3_000_000)
    server = TlsServer(
        tls_of(certificates), socket_send_buffer_bytes=4096, socket_receive_buffer_bytes=4096
    )
    with server, TlsClient(server, context, receive_buffer=4096) as client:
        client.send(request(1, body))
        for number in range(2, 30):
            client.send(request(number, b"x" * number))
        assert client.response() == (1, body)
        for number in range(2, 30):
            assert client.response() == (number, b"x" * number)


@pytest.mark.parametrize("kernel", [0, 1], ids=["library", "kernel"])
def test_records_from_files(certificates, served, kernel):
    """A fetch of several megabytes goes from the log's file through TLS.

    `kernel`: it is asked to encrypt, and where it cannot, OpenSSL does.
    """
    context = client_context(certificates.trust)
    tls = tls_of(certificates, kernel=kernel)
    with TlsServer(tls) as server, TlsClient(server, context) as client:
        served(server)
        values = [os.urandom(90_000) for _ in range(40)]
        for number, value in enumerate(values):
            client.send(produce(number, 1, batches.batch([batches.Row(value)])))
            assert produced(client, number).error_code == 0
        client.send(fetch(100))
        records = bytes(fetched(client, 100).records)
        assert len(records) > 40 * 90_000
        assert all(value in records for value in values)
        assert server.reactor.stats().fast > 0


def test_nothing_is_allocated_once_it_is_warm(certificates, served):
    """Our own memory; OpenSSL has its own."""
    context = client_context(certificates.trust)
    with (
        TlsServer(tls_of(certificates), num_network_threads=1) as server,
        TlsClient(server, context) as client,
    ):
        served(server)

        def some(first):
            for number in range(first, first + 20):
                client.send(produce(number, 1) + fetch(number, offset=number))
                produced(client, number)
                fetched(client, number)

        some(0)
        before = server.reactor.stats().allocations
        for first in range(20, 100, 20):
            some(first)
        assert server.reactor.stats().allocations == before


@VERSIONS
def test_the_end_of_a_stream(certificates, version):
    """An end with and without close_notify is an end; the server's own end is announced."""
    context = client_context(certificates.trust, version)
    with TlsServer(tls_of(certificates)) as server:
        with TlsClient(server, context) as client:
            assert client.ask(1, b"a") == b"a"
            client.socket.unwrap().close()  # sends close_notify, and waits for the server's
        server.gone(1)
        with TlsClient(server, context) as client:
            client.ask(1)
            client.send(request(2, b"x" * 100)[:50])
        server.gone(2)
        client = TlsClient(server, context)
        client.ask(1)
        threading.Thread(target=server.reactor.stop, args=(1000,)).start()
        assert client.socket.recv(1) == b""  # without close_notify, Python raises SSLEOFError
        client.close()


@pytest.mark.parametrize(
    "nonsense",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(100), request(1, b"x"), bytes(64),
     b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"],
    ids=["http", "long record", "plaintext", "zeros", "short hello"],
)  # fmt: skip
def test_nonsense_instead_of_a_handshake(certificates, nonsense):
    """It is closed and reported, and others go on."""
    context = client_context(certificates.trust)
    with TlsServer(tls_of(certificates)) as server, TlsClient(server, context) as other:
        with server.client() as client:
            client.send(nonsense)
            with contextlib.suppress(ConnectionResetError):
                client.socket.shutdown(socket.SHUT_WR)
                while client.socket.recv(1000):
                    pass
        found = server.failure()
        assert found.listener == 1 and found.peer.startswith("127.0.0.1:") and found.reason
        assert other.ask(1, b"on") == b"on"
        assert server.reactor.stats().handshakes_failed == 1


def test_tls_to_a_plaintext_port(certificates):
    """A ClientHello is no request: the size is nonsense."""
    with TlsServer(tls_of(certificates)) as server:
        server.port = server.plain_port
        with pytest.raises((ssl.SSLError, OSError)):
            TlsClient(server, client_context(certificates.trust))
        wait_for(lambda: server.reactor.stats().closed_garbage == 1, "it was closed")


def test_clients_refuse_a_wrong_certificate(certificates, tmp_path):
    """Another authority, and an expired certificate; the server reports the client's alert."""
    other = tmp_path / "other.pem"
    other.write_bytes(trustme.CA().cert_pem.bytes())
    with TlsServer(tls_of(certificates)) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            TlsClient(server, client_context(other))
        assert "unknown ca" in server.failure().reason


def test_a_port_that_is_only_tried_is_not_reported(certificates):
    """A load balancer connects and closes; that is no line in the log."""
    with TlsServer(tls_of(certificates)) as server:
        for _ in range(5):
            server.client().close()
        server.gone(5)
        assert server.reactor.stats().handshakes_failed == 5
        assert server.reactor.handshake_failure(0) is None


@VERSIONS
@pytest.mark.parametrize("auth", ["none", "requested", "required"])
def test_client_certificates(certificates, tmp_path, auth, version):
    """The subject reaches Python; required: without one the connection ends; requested: a wrong
    one is refused, too."""
    subjects = []

    def answer(taken):
        subjects.append(taken.subject)
        taken.answer(taken.body, 0)

    stranger = tmp_path / "stranger.pem"
    wrong = trustme.CA().issue_cert(common_name="mallory")
    stranger.write_bytes(wrong.private_key_pem.bytes() + wrong.cert_chain_pems[0].bytes())
    with TlsServer(tls_of(certificates, client_auth=auth), answer) as server:
        if auth != "none":
            server.reactor.authenticate(1)

        def served_with(own):
            try:
                with TlsClient(server, client_context(certificates.trust, version, own)) as client:
                    return client.ask(1, b"x") == b"x"
            except (OSError, EOFError):
                return False

        assert served_with(certificates.client("alice"))
        assert (subjects[0] is not None) == (auth != "none")
        assert b"alice" in (subjects[0] or b"alice")
        assert served_with(None) == (auth != "required")
        assert auth == "required" or subjects[1] is None
        assert served_with(stranger) == (auth == "none")
        if auth != "none":
            assert "peer did not return a certificate" in (server.failure().reason) or auth == (
                "requested"
            )


def test_versions_and_cipher_suites(certificates):
    """Only what is allowed, by standard names; what does not exist is refused by name."""
    with TlsServer(tls_of(certificates, enabled_protocols="TLSv1.3")) as server:
        with pytest.raises(ssl.SSLError):
            TlsClient(server, client_context(certificates.trust, V12))
        assert server.failure().reason == "unsupported protocol"
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    with TlsServer(tls_of(certificates, cipher_suites=suite)) as server:
        with TlsClient(server, client_context(certificates.trust)) as client:
            assert client.socket.cipher()[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
        with pytest.raises(ssl.SSLError):
            TlsClient(server, client_context(certificates.trust, V13))
    newest = tls_of(certificates, cipher_suites="TLS_AES_128_GCM_SHA256")
    with TlsServer(newest) as server, TlsClient(server, client_context(certificates.trust)) as one:
        assert one.socket.cipher()[0] == "TLS_AES_128_GCM_SHA256"
    with pytest.raises(InvalidSetting, match="no cipher suite TLS_NO_SUCH"):
        tls_of(certificates, cipher_suites="TLS_NO_SUCH")
    with pytest.raises(InvalidSetting, match="is for an enabled version"):
        tls_of(certificates, cipher_suites=suite, enabled_protocols="TLSv1.3")


def test_a_key_that_does_not_fit_is_refused(certificates):
    """Nothing of the key is in the message."""
    other = certificates.authority.issue_cert("localhost")
    chain = certificates.server.cert_chain_pems[0].bytes().decode()
    key = other.private_key_pem.bytes().decode()
    for wrong in (key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(InvalidSetting, match="private key") as refused:
            TlsContext(
                ServerConfig({
                    "ssl.keystore.type": "PEM", "ssl.keystore.key": wrong,
                    "ssl.keystore.certificate.chain": chain,
                })
            )  # fmt: skip
        assert wrong.splitlines()[1] not in str(refused.value)


def test_new_keys_are_for_new_connections(certificates, tmp_path):
    """The old connection goes on; the next one sees the new certificate."""
    tls = tls_of(certificates)
    other = Certificates(tmp_path)
    with TlsServer(tls) as server:
        with pytest.raises(ssl.SSLError):
            TlsClient(server, client_context(other.trust))
        with TlsClient(server, client_context(certificates.trust)) as before:
            server.reactor.set_tls(1, tls_of(other))
            with TlsClient(server, client_context(other.trust)) as after:
                assert before.ask(1, b"old") == b"old"
                assert after.ask(1, b"new") == b"new"
        with pytest.raises(NotFound):
            server.reactor.set_tls(0, tls)


@VERSIONS
def test_resumed_sessions(certificates, version):
    """A ticket saves the key exchange, and keeps the client's certificate."""
    subjects = []

    def answer(taken):
        subjects.append(taken.subject)
        taken.answer(taken.body, 0)

    context = client_context(certificates.trust, version, certificates.client("bob"))
    with TlsServer(tls_of(certificates, client_auth="required"), answer) as server:
        server.reactor.authenticate(1)
        with TlsClient(server, context) as client:
            client.ask(1)
            session = client.socket.session
        raw = socket.create_connection(server.address, LIMIT_S)
        with context.wrap_socket(raw, server_hostname="localhost", session=session) as again:
            assert again.session_reused
            again.sendall(request(1))
            again.recv(100)
    assert subjects[0] == subjects[1] is not None


def test_renegotiation_is_refused(certificates):
    """A client of TLS 1.2 that asks for a second handshake goes on with the first one, or ends."""
    with TlsServer(tls_of(certificates)) as server:
        asks = subprocess.Popen(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2",
             "-CAfile", str(certificates.trust)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = asks.communicate(b"R\n", timeout=LIMIT_S)
        assert b"RENEGOTIATING" in out and b"no renegotiation" in out
        assert server.reactor.stats().handshakes == 1


def test_idle_connections_take_at_most_40_kib(certificates):
    """With TLS 1.3 and 1.2, after some requests."""
    count = 100
    with TlsServer(tls_of(certificates)) as server:
        context = client_context(certificates.trust)
        with TlsClient(server, context) as client:
            client.ask(1)
        pairs = [TlsClient(server, context) for _ in range(10)]
        before = resident_bytes()
        clients = [TlsClient(server, context) for _ in range(count)]
        for number, client in enumerate(clients):
            assert client.ask(number, b"x" * 1000) == b"x" * 1000
        # Both ends are in this process.
        if not SANITIZED:
            assert (resident_bytes() - before) / count < 2 * 40 << 10
        for client in (*clients, *pairs):
            client.close()


def hello(certificates):
    """The first bytes of a client."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = client_context(certificates.trust).wrap_bio(into, out, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        end.do_handshake()
    return out.read()


def test_half_open_handshakes_do_not_stop_others(certificates):
    """300 clients that stop after their first bytes, of one thread: others are served."""
    first = hello(certificates)
    context = client_context(certificates.trust)
    with TlsServer(tls_of(certificates), num_network_threads=1) as server:
        with TlsClient(server, context) as before:
            half = [server.client() for _ in range(300)]
            for one in half[:200]:
                one.send(first)
            for one in half[200:250]:
                one.send(first[:3])
            assert before.ask(1, b"x") == b"x"
            with TlsClient(server, context) as after:
                assert after.ask(1, b"y") == b"y"
            for one in half:
                one.close()
        server.gone(302)


def test_the_oldest_of_too_many_half_open_handshakes_is_closed(certificates):
    """1,000 may wait for their clients in a thread; one more ends the one that waited longest."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2500:
        if hard != resource.RLIM_INFINITY and hard < 2500:
            pytest.skip(f"only {hard} open files are allowed, wanted 2500")
        resource.setrlimit(resource.RLIMIT_NOFILE, (2500, hard))
    with TlsServer(
        tls_of(certificates),
        num_network_threads=1,
        socket_listen_backlog_size=2000,
        manual_clock=True,
    ) as server:
        oldest = server.client()
        oldest.send(b"\x16")
        with TlsClient(server, client_context(certificates.trust)) as other:
            assert other.ask(1) == b""  # the thread has taken what came before
        server.connected(1)
        others = [server.client() for _ in range(1000)]
        assert oldest.is_closed()
        assert "1000 others" in server.failure().reason
        server.connected(1000)
        for one in (oldest, *others):
            one.close()


def test_a_handshake_takes_at_most_its_time(certificates):
    """kafkalog.half.frame.max.ms is the limit if it is below ten seconds; a byte now and then
    makes it three times as long."""
    with TlsServer(
        tls_of(certificates), manual_clock=True, kafkalog_half_frame_max_ms=1000,
        num_network_threads=1,
    ) as server:  # fmt: skip
        with server.client() as silent, server.client() as dripping:
            first = hello(certificates)
            server.connected(2)
            dripping.send(first[:1])
            with TlsClient(server, client_context(certificates.trust)) as other:
                assert other.ask(1) == b""  # the thread has taken what came before
            for number in range(1, 7):
                server.reactor.set_time(number * 600)
                with contextlib.suppress(OSError):
                    dripping.send(first[number : number + 1])
                if number == 2:
                    assert silent.is_closed()
            assert dripping.is_closed()
        assert "not complete" in server.failure().reason


def test_a_thread_that_leaves_passes_encrypted_connections(certificates):
    """With requests in OpenSSL's own memory, too."""
    context = client_context(certificates.trust)
    with TlsServer(tls_of(certificates), num_network_threads=4) as server:
        clients = [TlsClient(server, context) for _ in range(12)]
        for threads in (1, 3, 1):
            for number, client in enumerate(clients):
                client.send(request(number, b"x") * 3)
            server.reactor.set_threads(threads)
            for number, client in enumerate(clients):
                for _ in range(3):
                    assert client.response() == (number, b"x")
        for client in clients:
            client.close()


def test_a_forked_child_sends_nothing(certificates):
    """The child closes its copies of the sockets; the parent's connections go on."""
    with (
        TlsServer(tls_of(certificates)) as server,
        TlsClient(server, client_context(certificates.trust)) as client,
    ):
        client.ask(1)
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert client.ask(2, b"on") == b"on"


def test_a_connection_of_this_process_to_a_tls_listener_is_encrypted(certificates):
    """`adopt` obeys the listener."""
    with TlsServer(tls_of(certificates)) as server:
        ours, theirs = socket.socketpair()
        server.reactor.adopt(theirs, 1)
        context = client_context(certificates.trust)
        with context.wrap_socket(ours, server_hostname="localhost") as client:
            client.sendall(request(1, b"x"))
            assert struct.unpack(">i", client.recv(4))[0] == 5


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_an_expired_certificate_of_a_client_is_refused(certificates, auth):
    until = datetime.now(timezone.utc) - timedelta(days=1)
    own = certificates.client(f"late-{auth}", not_after=until)
    with TlsServer(tls_of(certificates, client_auth=auth)) as server:
        with (
            pytest.raises((OSError, EOFError)),
            TlsClient(server, client_context(certificates.trust, own=own)) as client,
        ):
            client.ask(1)
        assert "certificate has expired" in server.failure().reason


def old_hello(version: int) -> bytes:
    """The first bytes of a client that speaks this version of TLS at most."""
    suites = bytes.fromhex("c013c009c014c00a002f0035")
    body = struct.pack(">H32xB", version, 0) + struct.pack(">H", len(suites)) + suites + b"\1\0"
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


@pytest.mark.parametrize("version", [0x0301, 0x0302], ids=["1.0", "1.1"])
def test_old_versions_are_refused(certificates, version):
    """With the alert `protocol_version`."""
    with TlsServer(tls_of(certificates)) as server, server.client() as client:
        client.send(old_hello(version))
        alert = client.receive(7)
        assert (alert[0], alert[5:]) == (21, b"\x02\x46")
        assert client.is_closed()
        assert server.failure().reason
