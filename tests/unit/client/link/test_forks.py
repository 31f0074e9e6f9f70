"""A forked child that uses its parent's clients sends nothing on the parent's connections."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog import aio, errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import parse_servers
from kafkalog.client.producer import at_exit
from kafkalog.server.endings import _close_all as close_brokers
from kafkalog.testing.broker import TestBroker
from kafkalog.wire import apis
from tests.support.waiting import LIMIT_S


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("forks") / "data") as made:
        made.create_topic("t")
        yield made


def in_child(call: Callable[[], object]) -> int:
    """The exit status of a forked child that makes a call: 0 if it returned, 1 if it was refused
    because the process is a child, 2 otherwise."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            call()
            status = 0
        except errors.ForkedHandle:
            status = 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_connection(served: TestBroker) -> None:
    (address,) = parse_servers(served.bootstrap_servers)
    connection = Connection(address)
    assert in_child(lambda: connection.call(apis.METADATA, {"topics": []})) == 1
    assert in_child(connection.interrupt) == 0
    assert in_child(connection.close) == 0
    assert connection.call(apis.METADATA, {"topics": []}).brokers


def test_an_answer_that_is_due(served: TestBroker) -> None:
    (address,) = parse_servers(served.bootstrap_servers)
    connection = Connection(address)
    connection.send(apis.METADATA, {"topics": []})
    assert in_child(connection.receive) == 1
    assert connection.receive().brokers
    connection.close()


def test_a_cluster(served: TestBroker) -> None:
    with Cluster(served.bootstrap_servers) as cluster:
        cluster.refresh(["t"])
        assert in_child(lambda: cluster.refresh(["t"])) == 1
        assert in_child(cluster.close) == 0
        cluster.refresh(["t"])
        assert list(cluster.topics) == ["t"]


CALLS: dict[str, Callable[[Any], object]] = {
    "producer sends": lambda p: p.send("t", b"x"),
    "producer flushes": lambda p: p.flush(1),
    "consumer polls": lambda c: c.poll(0),
    "consumer commits": lambda c: c.commit(),
    "admin asks": lambda a: a.list_topics(),
}


@contextlib.contextmanager
def client(served: TestBroker, kind: str, unique: str) -> Iterator[Any]:
    """A client that has been used."""
    servers = served.bootstrap_servers
    made: Any
    if kind == "producer":
        served.create_topic(unique)
        with kafkalog.Producer(servers) as made:
            made.send(unique, b"x").result(LIMIT_S)
            yield made
            made.send(unique, b"y").result(LIMIT_S)
        assert [r.value for r in served.records(unique)] == [b"x", b"y"]
    elif kind == "admin":
        with kafkalog.Admin(servers) as made:
            made.list_topics()
            yield made
            assert "t" in made.list_topics()
    else:
        served.create_topic(unique)
        served.fill(unique, ["a"])
        with kafkalog.Consumer(servers, unique, group=unique,
                               auto_offset_reset="earliest") as made:  # fmt: skip
            iterator = iter(made)
            found = [next(iterator).value]
            yield made
            made.commit()
            served.fill(unique, ["b"])
            found.append(next(iterator).value)
            assert found == [b"a", b"b"]
            assert made.assignment


@pytest.mark.parametrize("what", CALLS)
def test_calls_in_a_forked_child_are_refused(served: TestBroker, unique: str, what: str) -> None:
    with client(served, what.split()[0], unique) as made:
        assert in_child(lambda: CALLS[what](made)) == 1


def left(made: Any) -> None:
    with contextlib.suppress(ValueError), made:
        raise ValueError


def dropped(made: Any) -> None:
    vars(made).clear()
    gc.collect()


@pytest.mark.parametrize("end", [lambda made: made.close(), left, dropped],
                         ids=["close", "left", "dropped"])  # fmt: skip
@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_a_childs_end_of_a_client_is_not_the_parents(
    served: TestBroker, unique: str, kind: str, end: Callable[[Any], None]
) -> None:
    with client(served, kind, unique) as made:
        assert in_child(lambda: end(made)) == 0


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_a_child_that_ends_in_order_ends_nothing_of_its_parents(
    served: TestBroker, unique: str, kind: str
) -> None:
    """Runs the exit steps of clients and brokers; the other steps belong to the tests."""

    def ends() -> None:
        gc.collect()
        at_exit._deliver_all()
        close_brokers()
        if kind == "consumer":
            made._heartbeats.stop()
            made._committer.stop()

    with client(served, kind, unique) as made:
        assert in_child(ends) == 0


def test_a_lock_that_was_held_at_the_fork_holds_up_no_childs_end(
    served: TestBroker, unique: str
) -> None:
    """The thread that held it, perhaps one that had just connected, is not in the child."""
    with client(served, "consumer", unique) as made:
        held, let = threading.Event(), threading.Event()

        def hold() -> None:
            with made._waker._lock:
                held.set()
                let.wait(LIMIT_S)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(LIMIT_S)
        try:
            assert in_child(made.close) == 0
        finally:
            let.set()
            thread.join(LIMIT_S)


def test_asyncio(served: TestBroker, unique: str) -> None:
    async def parent() -> None:
        async with aio.Producer(served.bootstrap_servers) as producer:
            await producer.send(unique, b"x")
            assert in_child(producer._below.close) == 0
            await producer.send(unique, b"y")

    served.create_topic(unique)
    asyncio.run(parent())
    assert [r.value for r in served.records(unique)] == [b"x", b"y"]
