"""A program knows by positions, not by records, that it has read everything."""

from __future__ import annotations

from pathlib import Path

from kafkalog import Broker, Consumer, Producer, TopicPartition
from tests.support.stable import stable_ends

HEADERS = (("a", b"1"), ("b", None), ("a", b"1"), ("a", None), ("", b""))


def test_a_position_reaches_the_end_behind_markers(tmp_path: Path) -> None:
    """Also if only an aborted transaction's marker follows; headers are as sent."""
    tp = TopicPartition("t", 0)
    with Broker(tmp_path / "data", listeners="127.0.0.1:0") as broker:
        broker.store.create_topic("t")
        with Producer(broker, transactional_id="x") as producer:
            for committed in (True, False):
                producer.begin_transaction()
                producer.send("t", b"v", headers=list(HEADERS)).result()
                (producer.commit_transaction if committed else producer.abort_transaction)()
        stable_ends(broker, "t")  # a transaction's end is answered before its marker is written
        options = {"isolation": "read_committed", "auto_offset_reset": "earliest"}
        with Consumer(broker, **options) as consumer:
            consumer.assign([tp])
            ends = consumer.end_offsets(consumer.assignment)
            found = []
            while any(consumer.position(one) < end for one, end in ends.items()):
                found += consumer.poll()
            assert ends == {tp: 4} and consumer.position(tp) == 4
            assert [(r.offset, r.headers) for r in found] == [(0, HEADERS)]
