"""Batches that may be there: nobody said so.  They are never sent under another producer id."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog import errors
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, Peer, produced
from tests.support.waiting import LIMIT_S
from tests.unit.client.producing import PRODUCER_ID, Batch, make

IDS = [PRODUCER_ID, *({"producer_id": 4001 + i, "producer_epoch": 0} for i in range(9))]
MAY_BE = "may have been stored"


class Leader:
    """Partition 0 of topic t, whose leader judges sequences as Kafka's does."""

    def __init__(self, broker: Peer) -> None:
        self.taken: list[bytes | None] = []
        self.most = 1000
        """Records a batch may have, after the next request."""
        self.script: list[Any] = []
        """What becomes of the next requests: "lost before" it was stored, "lost after" that, or a
        code in its place."""
        self._limit = self.most
        self._known: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        broker.on(apis.PRODUCE, self)
        broker.on(apis.INIT_PRODUCER_ID, *IDS)

    def __call__(self, request: Any, version: int) -> Any:
        ((row,),) = [topic.partition_data for topic in request.topic_data]
        step = self.script.pop(0) if self.script else None
        if step == "lost before":
            self._limit = self.most
            return CLOSE
        if isinstance(step, ErrorCode):
            return produced([step])(request, version)
        code, offset = self._append(Batch(row.index, bytes(row.records)))
        self._limit = self.most
        return CLOSE if step == "lost after" else produced([code], [offset])(request, version)

    def _append(self, batch: Batch) -> tuple[int, int]:
        count = len(batch.records)
        if count > self._limit:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        known = self._known.setdefault(batch.producer, [])
        for sequence, size, offset in known[-5:]:
            if (sequence, size) == (batch.sequence, count):
                return 0, offset
        if batch.sequence != (known[-1][0] + known[-1][1] if known else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        known.append((batch.sequence, count, len(self.taken)))
        self.taken += batch.values()
        return 0, known[-1][2]


@pytest.fixture
def leader(broker: Peer) -> Leader:
    return Leader(broker)


@pytest.mark.parametrize("most", [1, 4, 5, 9])
@pytest.mark.parametrize("lost", ["lost before", "lost after"])
def test_the_parts_of_what_may_be_there_have_no_id_of_their_own(
    broker: Peer, leader: Leader, lost: str, most: int
) -> None:
    """The topic takes smaller batches only, by the time the batch is sent again."""
    values = [b"%02d" % i for i in range(10)]
    with make(broker, linger_ms=1_000_000) as producer:
        first = producer.send("t", b"first", partition=0)
        assert first.result(LIMIT_S).offset == 0
        leader.script, leader.most = [lost], most
        futures = [producer.send("t", value, partition=0) for value in values]
        problems = [future.exception(LIMIT_S) for future in futures]
        if lost == "lost before":
            assert problems == [None] * 10
            assert [f.result().offset for f in futures] == list(range(1, 11))
        else:
            assert all(isinstance(p, errors.OutOfOrderSequenceNumber) for p in problems)
            assert all(MAY_BE in str(p) for p in problems)
            with pytest.raises(errors.OutOfOrderSequenceNumber):
                producer.check()
        assert producer.send("t", b"last", partition=0).result(LIMIT_S).offset == 11
    assert leader.taken == [b"first", *values, b"last"]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
)
def test_a_producer_that_was_forgotten_sends_nothing_twice(
    broker: Peer, leader: Leader, code: ErrorCode
) -> None:
    with make(broker) as producer:
        producer.send("t", b"first", partition=0).result(LIMIT_S)
        leader.script = ["lost after", code]
        with pytest.raises(errors.KafkalogError, match=MAY_BE):
            producer.send("t", b"second", partition=0).result(LIMIT_S)
        with pytest.raises(errors.KafkalogError, match=MAY_BE):
            producer.check()
        producer.send("t", b"third", partition=0).result(LIMIT_S)
    assert leader.taken == [b"first", b"second", b"third"]
