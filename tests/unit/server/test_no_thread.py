"""A thread that cannot start because the system has no more of them causes a retriable error."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalog.coordinator import core
from kafkalog.errors import Timeout
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.transactions.test_transactions import ONE_PARTITION, Client

Wait = Callable[..., None]


@contextmanager
def no_thread(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[list[str]]:
    """Stop threads whose names end like this from starting; yields those that tried."""
    tried: list[str] = []
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if not thread.name.endswith(name):
            return start(thread)
        tried.append(thread.name)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        yield tried


def test_waits_for_the_disk_are_answered_without_a_thread(
    make_broker: MakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    native_test: tuple[Any, Any],
    wait_until: Wait,
) -> None:
    """Exactly once, with a timeout as from a slow disk; neither by an exception, nor again once a
    thread has started."""
    _, lib = native_test
    broker = make_broker()
    acknowledger = broker._node.acknowledger
    told: queue.Queue[Exception | None] = queue.Queue()
    with Raw(broker.bootstrap_servers) as raw, Raw(broker.bootstrap_servers) as other:
        raw.create("t", compression_type="gzip")
        assert raw.produce("t", b"v", acks=1).error_code == ErrorCode.NONE
        assert acknowledger._thread.ident is None
        lib.kl_io_reset()
        lib.kl_io_hold(b"fdatasync", 1)
        try:
            with no_thread(monkeypatch, "acks") as tried:
                found = raw.produce("t", b"v")
                assert len(tried) == 1
                wait_until(lambda: lib.kl_io_waiting(b"fdatasync") == 1, "it is written")
                acknowledger.wait("t", 0, 2, 60_000, told.put)
                assert len(tried) == 2
                assert isinstance(told.get_nowait(), Timeout)
        finally:
            lib.kl_io_reset()
        assert found.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert other.produce("t", b"v").base_offset == 2
    broker.close()
    assert told.empty()


def test_a_journal_that_no_thread_can_read_is_read_later(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, wait_until: Wait
) -> None:
    """The coordinator must not answer "loading" forever."""
    monkeypatch.setattr(core, "LOAD_AGAIN_MS", 1)
    broker = make_broker(**ONE_PARTITION)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        with no_thread(monkeypatch, "-loader") as tried:
            raw.call(apis.FIND_COORDINATOR, key_type=1, coordinator_keys=["t"])  # creates it
            wait_until(lambda: len(tried) > 2, "it is tried again")
        client = Client(raw)
        assert client.write("t", b"a", version=12).error_code == ErrorCode.NONE
        assert client.end(version=5).error_code == ErrorCode.NONE
