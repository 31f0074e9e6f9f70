"""Decoded requests that wait have a bound: large ones are refused, and can be retried."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from kafkalog.server import decoded_bytes
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker


def produce(topic: str) -> dict[str, Any]:
    data = batches.batch([batches.Row(b"v" * 100_000, b"k", 0)])
    entry = {"name": topic, "partition_data": [{"index": 0, "records": data}]}
    return {"acks": -1, "timeout_ms": 20_000, "topic_data": [entry]}


def code(raw: Raw) -> ErrorCode:
    return ErrorCode(raw.receive(apis.PRODUCE, 9).responses[0].partition_responses[0].error_code)


def commit(count: int) -> dict[str, Any]:
    partitions = [{"partition_index": n, "committed_offset": 1} for n in range(count)]
    return {"group_id": "g", "topics": [{"name": "t", "partitions": partitions}]}


def test_large_requests_are_refused_while_others_wait(
    make_broker: MakeBroker, native_test: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch,
    wait_until: Any,
) -> None:  # fmt: skip
    """One waits for a disk; small ones are served, and large ones again once it is answered."""
    monkeypatch.setattr(decoded_bytes, "DECODED_BYTES_MAX", 100_000)
    _, lib = native_test
    broker = make_broker()
    with ExitStack() as stack:
        first, second, small = (
            stack.enter_context(Raw(broker.bootstrap_servers)) for _ in range(3)
        )
        for topic in ("slow", "t"):
            first.create(topic, compression_type="gzip")
            assert first.produce(topic, b"v").error_code == 0
        lib.kl_io_reset()
        lib.kl_io_hold(b"fdatasync", 1)
        try:
            first.send(apis.PRODUCE, 9, produce("slow"))
            wait_until(lambda: lib.kl_io_waiting(b"fdatasync") == 1, "it syncs")
            lib.kl_io_hold(b"fdatasync", lib.KL_HOLD_WAITING)
            second.send(apis.PRODUCE, 9, produce("t"))
            assert code(second) is ErrorCode.REQUEST_TIMED_OUT
            refused = second.call(apis.OFFSET_COMMIT, 9, **commit(5_000))
            found = {p.error_code for t in refused.topics for p in t.partitions}
            assert found == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
            assert small.produce("t", b"v").error_code == ErrorCode.NONE
        finally:
            lib.kl_io_reset()
        assert code(first) is ErrorCode.NONE
        second.send(apis.PRODUCE, 9, produce("t"))
        assert code(second) is ErrorCode.NONE
    dispatch = broker._faults._route
    assert dispatch._decoded_bytes._bytes == 0
