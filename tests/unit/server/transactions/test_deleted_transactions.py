"""DeleteRecords and retention below an open transaction: as in Apache Kafka only the high watermark
limits them, the transaction stays open, and the stable part begins where the log does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.clock import ManualClock
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.raw import Raw
from tests.unit.server.conftest import MakeBroker
from tests.unit.server.transactions.test_transactions import ONE_PARTITION, Client, ends

Wait = Callable[..., None]
OK = ErrorCode.NONE


def deleted(raw: Raw, offset: int) -> int:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]
    (found,) = raw.call(apis.DELETE_RECORDS, topics=topics, timeout_ms=1_000).topics[0].partitions
    assert found.error_code == OK
    return int(found.low_watermark)


def opened(raw: Raw) -> int:
    """The first offset of the only open transaction."""
    asked = [{"name": "t", "partition_indexes": [0]}]
    (found,) = raw.call(apis.DESCRIBE_PRODUCERS, topics=asked).topics[0].partitions
    (one,) = found.active_producers
    return int(one.current_txn_start_offset)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("offset", [2, -1])
def test_records_of_an_open_transaction_may_be_deleted(
    make_broker: MakeBroker, wait_until: Wait, commit: bool, offset: int
) -> None:
    with make_broker(**ONE_PARTITION) as broker, Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 1)
        client = Client(raw)
        client.add("t", 0)
        client.write("t", b"a", b"b", b"c")
        start = 3 if offset < 0 else offset
        assert deleted(raw, offset) == start
        assert ends(raw) == (start, 3)
        assert opened(raw) == 0
        assert client.write("t", b"d").error_code == OK
        assert ends(raw) == (start, 4)
        assert client.end(commit).error_code == OK
        wait_until(lambda: ends(raw) == (5, 5), "the marker")
        found = raw.fetch("t", start, isolation_level=1)
        told = [(one.producer_id, one.first_offset) for one in found.aborted_transactions]
        assert told == ([] if commit else [(client.producer_id, 0)])
        path = Path(broker.path) / "t-0"
    with kafkalog.Log(path, mode="r") as log:
        assert log.verify().clean
        shown = [record.value for record in log.read(start, isolation="read_committed")]
    assert shown == ([b"a", b"b", b"c", b"d"][start:] if commit else [])


def test_a_restart_continues_a_transaction_that_began_below_it(
    make_broker: MakeBroker, wait_until: Wait
) -> None:
    with make_broker(**ONE_PARTITION) as broker, Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 1)
        client = Client(raw)
        client.add("t", 0)
        client.write("t", b"a", b"b")
        assert deleted(raw, -1) == 2
    with make_broker(**ONE_PARTITION) as broker, Raw(broker.bootstrap_servers) as raw:
        client.raw = raw
        assert ends(raw) == (2, 2)
        wait_until(lambda: client.state() == "Ongoing", "loaded")
        assert client.write("t", b"c").error_code == OK
        assert client.end(False).error_code == OK
        wait_until(lambda: ends(raw) == (4, 4), "the marker")
        (one,) = raw.fetch("t", 2, isolation_level=1).aborted_transactions
        assert (one.producer_id, one.first_offset) == (client.producer_id, 0)


def test_retention_takes_segments_of_an_open_transaction(
    make_broker: MakeBroker, wait_until: Wait
) -> None:
    clock = ManualClock()
    broker = make_broker(clock, **ONE_PARTITION)
    with Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 1, retention_ms="1000")
        client = Client(raw, timeout_ms=900_000)
        client.add("t", 0)
        client.write("t", b"a", b"b")
        clock.advance(400_000)
        wait_until(lambda: raw.offsets("t", -2).offset == 2, "the old segment goes")
        assert (ends(raw), opened(raw)) == ((2, 2), 0)
        assert client.write("t", b"c").error_code == OK
        assert ends(raw) == (2, 3)
        assert client.end().error_code == OK
        wait_until(lambda: ends(raw) == (4, 4), "the marker")
