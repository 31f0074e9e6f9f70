"""Which records of a Fetch answer are copied."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import kafkalog
from kafkalog.batch.walk import whole_batches
from kafkalog.client.fetch.fetched import Fetched, FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.mirror import batches
from kafkalog.mirror.batches import parts
from kafkalog.mirror.spans import Copied
from kafkalog.types import TopicPartition
from tests.support.stable import stable_ends


def fetched(store: kafkalog.Store, offset: int = 0) -> Fetched:
    """The answer to a reader of committed records."""
    tp = TopicPartition("t", 0)
    with Cluster(store) as cluster:
        fetcher = Fetcher(cluster, {tp: offset}, FetchOptions(committed=True))
        try:
            (found,) = fetcher.poll(30_000)
        finally:
            fetcher.close()
    return found


def values(store: kafkalog.Store, one: Fetched) -> list[bytes | None]:
    """The values in the parts, read from a topic to which they are sent."""
    with kafkalog.Producer(store) as producer:
        for part in parts(one.data, one.start, one.aborted):
            for record in part.records() if part.records else ():
                producer.send("copy", record.value)
            if part.records is None:
                producer.send_batches("copy", part.data, partition=0)
    return [record.value for record in store["copy"][0].read()]


def test_neither_markers_nor_aborted_records_are_copied(tmp_path: Path) -> None:
    """Two producers with interleaved transactions."""
    with kafkalog.Store(tmp_path) as store:
        with (
            kafkalog.Producer(store, transactional_id="a") as a,
            kafkalog.Producer(store, transactional_id="b") as b,
        ):
            for turn in range(4):
                a.begin_transaction()
                b.begin_transaction()
                for text in ("x", "y"):
                    a.send("t", b"a%d%s" % (turn, text.encode())).result()
                    b.send("t", b"b%d%s" % (turn, text.encode())).result()
                (a.commit_transaction if turn % 2 else a.abort_transaction)()
                (b.abort_transaction if turn % 2 else b.commit_transaction)()
        with kafkalog.Producer(store) as plain:
            plain.send("t", b"last").result()
        stable_ends(store, "t")
        one = fetched(store)
        assert values(store, one) == [
            b"b0x", b"b0y", b"a1x", b"a1y", b"b2x", b"b2y", b"a3x", b"a3y", b"last",
        ]  # fmt: skip


def test_of_a_batch_that_begins_before_the_rest_is_copied(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path) as store:
        with kafkalog.Producer(store) as producer:
            producer.send_many("t", [b"%d" % i for i in range(5)], partition=0).result()
        one = fetched(store, 3)
        (part,) = parts(one.data, one.start, one.aborted)
        assert part.batches == [Copied(3, 4, 2)]
        assert values(store, one) == [b"3", b"4"]
        assert list(parts(one.data, 5, ())) == []


def test_consecutive_batches_are_remembered_as_one(tmp_path: Path) -> None:
    with kafkalog.Store(tmp_path) as store:
        with kafkalog.Producer(store) as producer:
            for i in range(5):
                producer.send("t", b"%d" % i).result()
        one = fetched(store)
        (part,) = parts(one.data, 0, ())
    assert part.batches == [Copied(0, 4, 5)]
    assert len(part.data) == len(one.data)


def test_parts_of_batches_with_holes_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost where one part ends and the next begins."""
    monkeypatch.setattr(batches, "HOLED_MAX", 2)
    with kafkalog.Store(tmp_path) as store:
        with kafkalog.Producer(store) as producer:
            for i in range(5):
                producer.send("t", b"%d" % i).result()
        one = fetched(store)
    holed = bytearray()
    for batch, whole in whole_batches(one.data):
        moved = bytearray(whole)  # each is followed by an offset that compaction has emptied
        moved[:8] = struct.pack(">q", 2 * batch.base_offset)
        holed += moved
    found = list(parts(bytes(holed), 0, ()))
    assert [[one.first for one in part.batches] for part in found] == [[0, 2], [4, 6], [8]]
    assert b"".join(part.data for part in found) == holed
