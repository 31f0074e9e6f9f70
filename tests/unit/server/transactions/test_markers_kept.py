"""The memory that clients' markers take in a broker is bounded."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections import Counter
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from kafkalog.server.transactions import markers
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.support.waiting import LIMIT_S, wait_for
from tests.unit.server.conftest import MakeBroker

OK, FENCED = ErrorCode.NONE, ErrorCode.TRANSACTION_COORDINATOR_FENCED


def mark(raw: Raw, topic: str, *coordinator_epochs: int) -> list[ErrorCode]:
    """The outcomes of a marker in partition 0 for each coordinator epoch."""
    asked = [{"name": topic, "partition_indexes": [0]}]
    fields: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "transaction_result": False,
                              "topics": asked}  # fmt: skip
    sent = [{**fields, "coordinator_epoch": epoch} for epoch in coordinator_epochs]
    found = raw.call(apis.WRITE_TXN_MARKERS, markers=sent).markers
    return [ErrorCode(one.topics[0].partitions[0].error_code) for one in found]


def test_failures_of_so_many_partitions_are_remembered(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics are created, and deleted while one of their markers fails."""
    monkeypatch.setattr(markers, "FAILING_MAX", 3, raising=False)
    with make_broker() as broker, Raw(broker.bootstrap_servers) as raw:
        for number in range(5):
            name = f"t{number}"
            raw.create(name, 1)
            assert mark(raw, name, 7) == [OK]
            assert mark(raw, name, 6) == [FENCED]
            wanted = [{"name": name}]
            raw.call(apis.DELETE_TOPICS, topics=wanted, timeout_ms=30_000)
        assert [where.topic for where in broker._node.markers._failing] == ["t2", "t3", "t4"]


def test_so_many_markers_of_clients_wait(
    broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any beyond that are to be sent again."""
    monkeypatch.setattr(markers, "CLIENT_MARKERS_MAX", 3, raising=False)
    raw.create("marked", 1)
    assert mark(raw, "marked", 0) == [OK]
    guards = broker._node.guards
    held, found = guards.begin(TopicPartition("marked", 0), 5, 0), list[ErrorCode]()

    def ask() -> None:
        with Raw(broker.bootstrap_servers) as other:
            found.extend(mark(other, "marked", *[0] * 8))

    asking = threading.Thread(target=ask)
    with guards.writing(held):  # until then no marker is written
        asking.start()
        wait_for(lambda: broker._node.markers._client_markers == 3, "three wait")
    asking.join(LIMIT_S)
    guards.end(held)
    assert Counter(found) == {OK: 3, ErrorCode.NOT_LEADER_OR_FOLLOWER: 5}
    assert mark(raw, "marked", 0, 0, 0) == [OK] * 3


def test_markers_are_written_while_the_interpreter_ends(
    broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors cannot even be imported then."""

    def ending(*_args: Any) -> None:
        raise RuntimeError("can't register atexit after shutdown")

    raw.create("t", 1)
    monkeypatch.setattr(threading, "_register_atexit", ending)
    monkeypatch.delitem(sys.modules, "concurrent.futures.thread", raising=False)
    monkeypatch.delitem(vars(concurrent.futures), "ThreadPoolExecutor", raising=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        __import__("concurrent.futures.thread")
    assert mark(raw, "t", 0, 0) == [OK, OK]
    assert broker._node.markers._openers is None
