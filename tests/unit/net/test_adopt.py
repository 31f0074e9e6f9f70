"""A socket that is handed to the server instead of being accepted by it."""

from __future__ import annotations

import os
import socket

import pytest

from kafkalog._native import check, lib
from kafkalog.config.server import ServerConfig
from kafkalog.errors import ArgumentError, Closed, IoFailed, Timeout
from kafkalog.server.network.reactor import Reactor
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.net.network import Client, Server, request


class Inner(Client):
    """A client on one end of a socket pair, whose other end a server has adopted."""

    def __init__(self, server: Server, listener: int = 5) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(LIMIT_S)
        try:
            server.reactor.adopt(theirs, listener)
        except BaseException:
            self.socket.close()
            theirs.close()
            raise


def test_it_is_served_as_an_accepted_one():
    with Server(workers=0) as server, Inner(server) as client:
        client.send(request(1))
        taken = server.take()
        assert (taken.listener, taken.peer) == (5, "inside")
        taken.answer(b"fine", 0)
        assert client.response() == (1, b"fine")
        stats = server.reactor.stats()
        assert (stats.connections, stats.accepted) == (1, 1)


def test_its_end_is_noticed():
    with Server() as server:
        Inner(server).close()
        wait_for(lambda: server.reactor.stats().connections == 0, "it is gone")


def test_the_descriptor_is_the_servers_and_goes_with_it():
    with Server() as server:
        ours, theirs = socket.socketpair()
        with ours:
            os.set_blocking(theirs.fileno(), True)
            os.set_inheritable(theirs.fileno(), True)
            number = theirs.fileno()
            server.reactor.adopt(theirs, 5)
            assert theirs.fileno() == -1
            assert not os.get_blocking(number)
            assert not os.get_inheritable(number)
            ours.settimeout(LIMIT_S)
            server.reactor.stop(0)
            assert ours.recv(1) == b""


def test_limits_apply_and_the_caller_keeps_a_refused_socket():
    with Server(max_connections=1) as server, Inner(server) as first:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with pytest.raises(Timeout, match="1 connections are there already"):
                server.reactor.adopt(theirs, 5)
            assert theirs.fileno() >= 0
            theirs.send(b"x")
            assert ours.recv(1) == b"x"
            first.close()
            wait_for(lambda: server.reactor.stats().connections == 0, "the first is gone")
            server.reactor.adopt(theirs, 5)


def test_an_adopted_connection_counts_towards_the_limit():
    with Server(max_connections=1) as server, Inner(server) as inner, \
            Client(server.address) as other:  # fmt: skip
        other.send(request(1))
        inner.send(request(2))
        assert inner.response()[0] == 2
        assert server.reactor.stats().accepted == 1
        inner.close()
        assert other.response()[0] == 1


def test_before_the_start_and_after_the_end():
    reactor = Reactor(ServerConfig())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(ArgumentError, match="does not run"):
            reactor.adopt(theirs, 5)
        reactor.stop(0)
        with pytest.raises(Closed):
            reactor.adopt(theirs, 5)
        assert theirs.fileno() >= 0
    reactor.close()


def test_other_descriptors_are_refused(tmp_path):
    """epoll rejects regular files; a number that is no descriptor fails earlier."""
    with Server() as server, (tmp_path / "file").open("wb") as file:
        for number in (file.fileno(), -1):
            with pytest.raises(IoFailed):
                check(lib.kl_server_adopt(server.reactor._c, number, 5))
        assert server.reactor.stats().connections == 0
        with Inner(server) as client:
            assert client.ask(1) is not None
