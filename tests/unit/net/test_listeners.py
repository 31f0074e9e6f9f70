"""Where the server listens, and how many connections it accepts."""

from __future__ import annotations

import errno
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkalog.config.server import ServerConfig
from kafkalog.errors import ArgumentError, Closed, IoFailed, KafkalogError, NotFound
from kafkalog.server.network.reactor import Reactor
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.net.network import Client, Server, request

ROOT = Path(__file__).resolve().parents[3]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


def peer_of(server: Server, address: object) -> str:
    with Client(address) as client:
        client.send(request(1))
        taken = server.take()
        taken.answer(b"", 0)
        assert client.response() == (1, b"")
        return taken.peer


def test_a_free_port_is_taken():
    with Server(workers=0) as server:
        assert 1024 <= server.port <= 65535
        peer = peer_of(server, ("127.0.0.1", server.port))
        assert peer.startswith("127.0.0.1:")


@ipv6
def test_ipv6():
    with Server(workers=0, host="::1") as server:
        assert peer_of(server, ("::1", server.port)).startswith("[::1]:")


def test_a_name_is_its_first_ipv4_address():
    with Server(workers=0, host="localhost") as server:
        assert peer_of(server, ("127.0.0.1", server.port)).startswith("127.0.0.1:")


@ipv6
def test_no_host_is_all_addresses_of_both_kinds():
    with Server(workers=0, host="") as server:
        assert peer_of(server, ("127.0.0.1", server.port)).startswith("127.0.0.1:")
        assert peer_of(server, ("::1", server.port)).startswith("[::1]:")


def test_requests_carry_the_number_of_their_listener(tmp_path):
    with Server(workers=0) as server:
        second = server.reactor.listen("127.0.0.1", 0, 7)
        server.reactor.listen(f"unix:{tmp_path}/socket", 0, 9)
        for address, number in (
            (server.address, 0),
            (("127.0.0.1", second), 7),
            (f"{tmp_path}/socket", 9),
        ):
            with Client(address) as client:
                client.send(request(1))
                taken = server.take()
                assert taken.listener == number
                taken.answer(b"", 0)
                client.response()


def test_a_port_that_is_taken_is_an_error_that_says_so():
    taken = pytest.raises(IoFailed, match=r"127\.0\.0\.1.*in use")
    with Server(workers=0) as server, Server(workers=0) as other, taken:
        other.reactor.listen("127.0.0.1", server.port, 1)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port):
    with Server(workers=0) as server, pytest.raises(ArgumentError, match="port"):
        server.reactor.listen("127.0.0.1", port, 1)


def test_a_host_that_is_none_is_refused():
    with Server(workers=0) as server, pytest.raises(NotFound, match="no-such-host"):
        server.reactor.listen("no-such-host.invalid", 0, 1)


def test_listeners_are_bounded():
    with Server(workers=0) as server, pytest.raises(ArgumentError, match="64"):
        for number in range(1, 70):
            server.reactor.listen("127.0.0.1", 0, number)


# ---- unix sockets ----------------------------------------------------------------------------


def test_a_unix_socket_is_its_owners_and_goes_with_the_server(tmp_path):
    path = tmp_path / "socket"
    with Server(workers=0, host=f"unix:{path}") as server:
        assert server.port == 0
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert peer_of(server, str(path)) == "unix"
    assert not path.exists()


def test_a_unix_socket_that_was_left_behind_is_replaced(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with Server(workers=0, host=f"unix:{path}") as server:
        assert peer_of(server, str(path)) == "unix"


def test_a_unix_socket_that_is_served_is_left_alone(tmp_path):
    path = tmp_path / "socket"
    with Server(workers=0, host=f"unix:{path}") as server:
        with pytest.raises(IoFailed, match="in use"), Server(host=f"unix:{path}"):
            pass
        assert peer_of(server, str(path)) == "unix"


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(IoFailed, match="in use"), Server(host=f"unix:{path}"):
        pass
    assert path.read_text() == "mine"


def test_another_socket_of_the_same_name_is_not_removed(tmp_path):
    path = tmp_path / "socket"
    with Server(workers=0, host=f"unix:{path}"):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
    assert path.exists()


@pytest.mark.parametrize("name", ["unix:", "unix:/" + "long" * 40])
def test_a_path_that_cannot_be_a_unix_socket_is_refused(name):
    with Server(workers=0) as server, pytest.raises(ArgumentError, match="1 to 107"):
        server.reactor.listen(name, 0, 1)


# ---- limits ----------------------------------------------------------------------------------


def test_connections_of_one_address_are_limited(tmp_path):
    with Server(max_connections_per_ip=3) as server:
        server.reactor.listen(f"unix:{tmp_path}/socket", 0, 1)
        clients = [server.client() for _ in range(3)]
        assert [c.ask(1, b"x") for c in clients] == [b"x"] * 3
        with server.client() as fourth:
            assert fourth.is_closed()
        assert server.reactor.stats().refused_per_ip == 1
        with Client(f"{tmp_path}/socket") as local:  # it has no IP address
            assert local.ask(1, b"x") == b"x"
        clients.pop().close()
        server.connected(2)
        with server.client() as again:
            assert again.ask(1, b"x") == b"x"


def test_other_addresses_are_counted_for_themselves():
    with Server(host="", max_connections_per_ip=1) as server, socket.socket() as second:
        first = Client(("127.0.0.1", server.port))
        first.ask(1)
        second.bind(("127.0.0.2", 0))
        second.settimeout(LIMIT_S)
        second.connect(("127.0.0.1", server.port))
        second.sendall(request(2))
        assert second.recv(100)
        first.close()


def test_no_more_connections_are_accepted_than_allowed():
    """A later connection waits until one ends, and is served then."""
    with Server(max_connections=2) as server:
        first, second = server.client(), server.client()
        assert first.ask(1, b"x") == second.ask(1, b"x") == b"x"
        third = server.client()  # in the backlog
        third.send(request(3, b"waited"))
        assert second.ask(2, b"x") == b"x"
        assert server.reactor.stats().connections == 2
        first.close()
        assert third.response() == (3, b"waited")
        second.close()
        third.close()


WITHOUT_DESCRIPTORS = """
import os, resource
from tests.support.waiting import wait_for
from tests.unit.net.network import Server
from tests.unit.net.test_listeners import is_served

with Server() as server:
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, highest + 20))
    clients = []
    try:
        while True:
            clients.append(server.client())
    except OSError:
        clients.pop().close()
    for client in clients[:-1]:
        client.close()
    # Pending connections may take the free descriptors until the server sees that they are closed.
    wait_for(lambda: is_served(server), "a client that is served")
"""


def test_without_descriptors_it_waits_for_some():
    """In its own process, which lacks descriptors as a whole.  Not in a fork, which would copy the
    test runner's locks in any state."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS], cwd=ROOT, capture_output=True, text=True,
        timeout=LIMIT_S * 3,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_empty_table_of_files_delays_those_that_wait_once(io):
    """After one ENFILE all that wait are accepted together, not one per pause."""
    with Server(num_network_threads=1) as server, ExitStack() as stack:
        io.kl_io_fail(b"accept4", 1, errno.ENFILE, 0, 0)
        io.kl_io_hold(b"accept4", 1)
        clients = [stack.enter_context(server.client()) for _ in range(12)]
        wait_for(lambda: io.kl_io_waiting(b"accept4") == 1, "the first is being accepted")
        io.kl_io_hold(b"accept4", 0)
        for number, client in enumerate(clients):
            assert client.ask(number, b"x") == b"x"
        assert server.reactor.stats().accept_pauses == 1


def is_served(server: Server) -> bool:
    try:
        with server.client() as late:
            return late.ask(1, b"x") == b"x"
    except (OSError, EOFError):
        return False


@pytest.mark.parametrize(
    ("name", "value"), [("num.network.threads", 257), ("num.network.threads", 100_000)]
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ArgumentError, match=r"num\.network\.threads"):
        Reactor(ServerConfig({name: value}))


def test_a_server_that_was_stopped_listens_no_more():
    server = Server()
    server.close()
    with pytest.raises(Closed):
        server.reactor.listen("127.0.0.1", 0, 1)
    with pytest.raises(KafkalogError):
        server.reactor.start()


def test_a_peer_that_shuts_its_side_is_answered_first():
    with Server() as server, server.client() as client:
        client.send(request(1, b"one") + request(2, b"two"))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.response() == (1, b"one")
        assert client.response() == (2, b"two")
        assert client.is_closed()
        server.connected(0)


def test_a_client_that_sends_and_leaves_is_read_to_the_end(tmp_path):
    """For example a producer with acks=0."""
    got: list[int] = []

    def note(taken: object) -> None:
        got.append(taken.correlation_id)  # type: ignore[attr-defined]
        taken.answer(b"", -1)  # type: ignore[attr-defined]

    with Server(note) as server:
        server.reactor.listen(f"unix:{tmp_path}/socket", 0, 1)
        for address in (server.address, f"{tmp_path}/socket"):
            got.clear()
            with Client(address) as client:
                client.send(b"".join(request(number, bytes(1000)) for number in range(50)))
            wait_for(lambda: len(got) == 50, "all were read")
            assert got == list(range(50))
