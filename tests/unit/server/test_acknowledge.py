"""acks=all for appends by Python: a partition is answered once its own disk has the records."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafkalog.errors import Timeout
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.transactions.test_transactions import ONE_PARTITION, Client

Wait = Callable[..., None]


def test_a_disk_call_that_hangs_holds_up_no_other_partition(
    make_broker: MakeBroker, native_test: tuple[Any, Any], wait_until: Wait
) -> None:
    _, lib = native_test
    broker = make_broker()
    with Raw(broker.bootstrap_servers) as raw, Raw(broker.bootstrap_servers) as other:
        for topic in ("slow", "quick"):
            raw.create(topic, compression_type="gzip")
            assert raw.produce(topic, b"v").error_code == 0
        lib.kl_io_reset()
        lib.kl_io_hold(b"fdatasync", 1)
        try:
            data = batches.batch([batches.Row(b"v", b"k", 0)])
            entry = {"name": "slow", "partition_data": [{"index": 0, "records": data}]}
            body = {"acks": -1, "timeout_ms": 20_000, "topic_data": [entry]}
            raw.send(apis.PRODUCE, 9, body)
            wait_until(lambda: lib.kl_io_waiting(b"fdatasync") == 1, "the slow one syncs")
            lib.kl_io_hold(b"fdatasync", lib.KL_HOLD_WAITING)
            found = other.produce("quick", b"v", timeout_ms=10_000)
            assert found.error_code == ErrorCode.NONE
            assert lib.kl_io_waiting(b"fdatasync") == 1, "the slow one still waits"
        finally:
            lib.kl_io_reset()
        slow = raw.receive(apis.PRODUCE, 9).responses[0].partition_responses[0]
        assert slow.error_code == ErrorCode.NONE


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_acknowledgements_of_one_partition_come_in_order(
    make_broker: MakeBroker, codec: str
) -> None:
    with Raw(make_broker().bootstrap_servers) as raw:
        raw.create("t", compression_type=codec)
        data = batches.batch([batches.Row(b"v", b"k", 0)])
        entry = {"name": "t", "partition_data": [{"index": 0, "records": data}]}
        body = {"acks": -1, "timeout_ms": 20_000, "topic_data": [entry]}
        for _ in range(20):
            raw.send(apis.PRODUCE, 9, body)
        found = [raw.receive(apis.PRODUCE, 9) for _ in range(20)]
        offsets = [one.responses[0].partition_responses[0].base_offset for one in found]
        assert offsets == list(range(20))


def test_an_impossible_wait_ends_no_other(make_broker: MakeBroker) -> None:
    """An offset that no log can reach is our own error: it is reported; the thread continues."""
    broker = make_broker()
    told: queue.Queue[Exception | None] = queue.Queue()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", compression_type="gzip")
        assert raw.produce("t", b"v").error_code == ErrorCode.NONE
        broker._node.acknowledger.wait("t", 0, 1 << 70, 1000, told.put)
        assert isinstance(told.get(timeout=LIMIT_S), OverflowError)
        assert raw.produce("t", b"v").error_code == ErrorCode.NONE


def test_a_turn_checks_each_partition_once(
    make_broker: MakeBroker, native_test: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch,
    wait_until: Wait,
) -> None:  # fmt: skip
    """However many appends wait for one disk; each that is late is told so by itself."""
    _, lib = native_test
    broker = make_broker()
    node, checks = broker._node, [0]
    wait = type(node.reactor).wait

    def counted(self: Any, *arguments: Any) -> bool:
        checks[0] += 1
        return wait(self, *arguments)

    monkeypatch.setattr(type(node.reactor), "wait", counted)
    told: queue.Queue[Exception | None] = queue.Queue()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", compression_type="gzip")
        assert raw.produce("t", b"v").error_code == ErrorCode.NONE
        lib.kl_io_reset()
        lib.kl_io_hold(b"fdatasync", 1)
        try:
            raw.send(
                apis.PRODUCE,
                9,
                {
                    "acks": -1,
                    "timeout_ms": 20_000,
                    "topic_data": [
                        {
                            "name": "t",
                            "partition_data": [
                                {"index": 0, "records": batches.batch([batches.Row(b"v", b"k", 0)])}
                            ],
                        }
                    ],
                },
            )
            wait_until(lambda: lib.kl_io_waiting(b"fdatasync") == 1, "it syncs")
            for number in range(300):
                late = number % 3 == 0
                node.acknowledger.wait("t", 0, 2, 0 if late else 60_000, told.put, on_disk=True)
            assert all(isinstance(told.get(timeout=LIMIT_S), Timeout) for _ in range(100))
            turns, before = node.acknowledger._turns, checks[0]
            wait_until(lambda: node.acknowledger._turns >= turns + 10, "ten turns")
            assert checks[0] - before <= 2 * 2 * (node.acknowledger._turns - turns + 1)
        finally:
            lib.kl_io_reset()
        assert [told.get(timeout=LIMIT_S) for _ in range(200)] == [None] * 200
        assert raw.receive(apis.PRODUCE, 9).responses[0].partition_responses[0].error_code == 0


def test_a_transaction_wakes_no_thread_that_it_need_not(
    make_broker: MakeBroker, wait_until: Wait
) -> None:
    """If nothing waits for the disk, the coordinator itself writes the journal and the markers: the
    threads that could do it stay idle."""
    broker = make_broker(kafkalog_durability="os", **ONE_PARTITION)
    node, go_on = broker._node, threading.Event()
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t")
        client = Client(raw)
        assert client.write("t", b"a", version=12).error_code == ErrorCode.NONE
        node.markers._thread.submit(go_on.wait)
        try:
            assert client.end(version=5).error_code == ErrorCode.NONE
            wait_until(lambda: client.state() == "CompleteCommit", "its end")
        finally:
            go_on.set()
        assert node.acknowledger._thread.ident is None
