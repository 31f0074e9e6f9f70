"""The streaming reader with real logs, called as Spark calls it, without a JVM."""

from __future__ import annotations

import json
import logging
import random
import shutil
from pathlib import Path

import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.columns import NAMES, schema_of
from pyspark_kafkalog.errors import BadOption, DataLoss
from pyspark_kafkalog.stream.watch import LIST_S

import kafkalog
from kafkalog.clock import ManualClock
from kafkalog.disk.holds import read_holds
from kafkalog.log.segments import Segment
from tests.spark.engine import Checkpoint, Killed, Query, Row
from tests.support.waiting import wait_for

EARLIEST = {"startingOffsets": "earliest"}
STEPS = ("latestOffset", "walCommit", "read", "sink")


def append(store: kafkalog.Store, topic: str, partition: int, *values: str) -> None:
    store[topic][partition].append_many([value.encode() for value in values])


def values(rows: list[Row]) -> list[str]:
    return [value.decode() for *_, value in rows]


def rows_of(store: kafkalog.Store, topic: str) -> set[Row]:
    return {
        (topic, number, record.offset, record.value or b"")
        for number, log in enumerate(store[topic])
        for record in log.read(isolation="read_committed")
    }


@pytest.fixture
def store(tmp_path):
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", 2)
        yield store


class Clock(ManualClock):
    """A clock that the test moves."""

    def later(self) -> None:
        """Advance until folders are listed again."""
        self.advance(round(1000 * LIST_S))


# ---- each record once


@pytest.mark.parametrize("seed", range(12))
def test_no_kill_loses_or_repeats_a_record(tmp_path, seed):
    """With appends, new partitions, limits, and drivers that die at every step of a batch."""
    draw = random.Random(seed)
    checkpoint, clock, count = Checkpoint(), Clock(), 0
    limits = [
        {},
        {"maxOffsetsPerTrigger": "7"},
        {"maxBytesPerTrigger": "300"},
        {"minPartitions": "3"},
    ]
    with kafkalog.Store(tmp_path / "data") as store:
        store.create_topic("t", 1)
        for _ in range(12):
            options = EARLIEST | draw.choice(limits)
            query = Query(tmp_path / "data", checkpoint, clock, subscribe="t", **options)
            query.kill_at = draw.choice((*STEPS, None))
            for _ in range(draw.randrange(4)):
                if draw.random() < 0.2:
                    store.admin.create_partitions({"t": len(store["t"]) + 1})
                partition = draw.randrange(len(store["t"]))
                texts = [f"{count + i}" * draw.randrange(1, 9) for i in range(draw.randrange(30))]
                count += len(texts)
                if texts:
                    append(store, "t", partition, *texts)
                clock.later()
                try:
                    query.trigger()
                except Killed:
                    break
        clock.later()
        Query(tmp_path / "data", checkpoint, clock, subscribe="t", **EARLIEST).drain()
        assert len(checkpoint.rows) == len(set(checkpoint.rows))
        assert set(checkpoint.rows) == rows_of(store, "t")


def test_batches_are_limited_by_offsets_and_by_bytes(store, tmp_path):
    for _ in range(20):
        append(store, "t", 0, *["x" * 100] * 5)
    store["t"][0].append_many([b"y" * 20_000] * 3)
    for options in ({"maxOffsetsPerTrigger": "10"}, {"maxBytesPerTrigger": "8k"}):
        checkpoint = Checkpoint()
        query = Query(store.path, checkpoint, subscribe="t", **EARLIEST, **options)
        assert query.drain() > 2
        assert len(checkpoint.rows) == 103
        if "maxOffsetsPerTrigger" in options:
            assert max(len(rows) for rows in checkpoint.sink.values()) <= 10


def test_once_reads_all_whatever_the_limits_say(store):
    append(store, "t", 0, *"abcdef")
    checkpoint = Checkpoint()
    query = Query(
        store.path, checkpoint, once=True, subscribe="t", **EARLIEST, maxOffsetsPerTrigger="2",
        minOffsetsPerTrigger="2",
    )  # fmt: skip
    query.trigger()
    assert values(checkpoint.rows) == list("abcdef")


def test_a_minimum_waits_for_its_time(store):
    checkpoint, clock = Checkpoint(), Clock()
    query = Query(
        store.path, checkpoint, clock, subscribe="t", **EARLIEST, minOffsetsPerTrigger="3",
        maxTriggerDelay="1m",
    )  # fmt: skip
    query.trigger()
    append(store, "t", 0, "a", "b")
    assert not query.trigger()
    append(store, "t", 1, "c")
    assert query.trigger()
    append(store, "t", 1, "d")
    assert not query.trigger()
    clock.advance(60_000)
    assert query.trigger()
    assert sorted(values(checkpoint.rows)) == list("abcd")


# ---- where it starts


def test_latest_stays_at_the_start_of_the_first_run(store):
    """With records between two queries of the end, and after a batch 0 that was not recorded."""
    append(store, "t", 0, "old")
    checkpoint = Checkpoint()
    query = Query(store.path, checkpoint, subscribe="t")
    first = query.reader.initialOffset()
    append(store, "t", 0, "a")
    assert query.reader.initialOffset() == first
    query.trigger()  # records where it began
    assert values(checkpoint.rows) == []
    append(store, "t", 0, "b")
    query.kill_at = "walCommit"
    with pytest.raises(Killed):
        query.trigger()
    Query(store.path, checkpoint, subscribe="t").drain()
    assert values(checkpoint.rows) == ["a", "b"]


def test_a_batch_0_that_is_done_again_loses_nothing(store):
    checkpoint = Checkpoint()
    query = Query(store.path, checkpoint, subscribe="t")
    query.kill_at = "read"
    with pytest.raises(Killed):
        query.trigger()
    append(store, "t", 0, "a")
    Query(store.path, checkpoint, subscribe="t").drain()
    assert values(checkpoint.rows) == ["a"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsets": '{"t":{"0":1,"1":-1}}'}, ["b", "c"]),
        ({"startingOffsets": '{"t":{"0":-2,"1":-1}}'}, ["a", "b", "c"]),
        ({"startingTimestamp": "2000"}, ["b", "c", "y"]),
        ({"startingOffsetsByTimestamp": '{"t":{"0":3000,"1":0}}'}, ["c", "x", "y"]),
        ({"startingTimestamp": "9000", "startingOffsetsByTimestampStrategy": "latest"}, []),
    ],
)
def test_starts_by_offset_and_by_time(store, options, wanted):
    store["t"][0].append_many([b"a", b"b", b"c"], timestamps_ms=[1000, 2000, 3000])
    store["t"][1].append_many([b"x", b"y"], timestamps_ms=[1000, 2000])
    checkpoint = Checkpoint()
    Query(store.path, checkpoint, subscribe="t", **options).drain()
    assert sorted(values(checkpoint.rows)) == wanted


def test_missing_topics_are_reported_at_the_start(store, tmp_path):
    for options, told in (
        ({"subscribe": "nope"}, "no topic 'nope' here"),
        ({"assign": '{"t":[0,7]}'}, "no partition 7 of 't'"),
        ({"subscribe": "t", "startingOffsets": '{"t":{"0":1}}'}, "leaves out t-1"),
        ({"subscribe": "t", "startingTimestamp": "5"}, "no record at or after 5"),
    ):
        with pytest.raises(BadOption, match=told):
            Query(store.path, Checkpoint(), **options).trigger()


def test_a_load_takes_options_of_streams(store):
    """Spark asks for the schema without saying what it is for."""
    for options in ({"startingoffsets": "latest"}, {"maxbytespertrigger": "5m"}):
        DefaultSource({"path": str(store.path), "subscribe": "t", **options}).schema()
    with pytest.raises(BadOption, match="no topic 'nope'"):
        given = {"path": str(store.path), "subscribe": "nope", "startingoffsets": "latest"}
        DefaultSource(given).schema()


# ---- available now


def test_available_now_ends_at_the_records_present_at_its_start(store):
    append(store, "t", 0, *"abcdef")
    checkpoint, clock = Checkpoint(), Clock()
    query = Query(
        store.path, checkpoint, clock, available_now=True, subscribe="t", **EARLIEST,
        maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2",
    )  # fmt: skip
    query.trigger()
    append(store, "t", 0, "later")
    store.admin.create_partitions({"t": 3})
    append(store, "t", 2, "new")
    clock.later()
    assert query.drain() == 2
    assert values(checkpoint.rows) == list("abcdef")
    Query(store.path, checkpoint, clock, available_now=True, subscribe="t").drain()
    assert values(checkpoint.rows) == [*"abcdef", "later", "new"]


def test_available_now_ends_despite_a_recreated_topic(store):
    append(store, "t", 0, *"abcdef")
    checkpoint, clock = Checkpoint(), Clock()
    query = Query(
        store.path, checkpoint, clock, available_now=True, subscribe="t", **EARLIEST,
        maxOffsetsPerTrigger="2",
    )  # fmt: skip
    query.trigger()
    remake(store, clock, "x")
    assert query.drain() == 0


# ---- lost data


def remake(store: kafkalog.Store, clock: Clock, *new: str) -> None:
    store.delete_topic("t")
    store.create_topic("t", 2)
    if new:
        append(store, "t", 0, *new)
    clock.later()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_recreated_topic(store, restarted, caplog):
    """Also over a restart, and when its offsets continue those of the old one."""
    append(store, "t", 0, *"abc")
    checkpoint, clock = Checkpoint(), Clock()
    loose = {"subscribe": "t", "failOnDataLoss": "false"} | EARLIEST
    strict, query = (Query(store.path, Checkpoint(), clock, subscribe="t", **EARLIEST),
                     Query(store.path, checkpoint, clock, **loose))  # fmt: skip
    strict.drain()
    query.drain()
    remake(store, clock, *"uvwxyz")
    if restarted:
        query = Query(store.path, checkpoint, clock, **loose)
        strict = Query(store.path, strict.checkpoint, clock, subscribe="t")
    with pytest.raises(DataLoss, match=r"deleted and recreated .*set failOnDataLoss to false"):
        strict.drain()
    query.drain()
    assert values(checkpoint.rows) == list("abcuvwxyz")
    assert caplog.text.count("t-0: the topic was deleted and recreated") == 1


@pytest.mark.parametrize("whole", [True, False], ids=["the folder", "its files"])
def test_a_recreated_folder_without_an_id(tmp_path, whole):
    """Detected while the query runs."""
    checkpoint, clock = Checkpoint(), Clock()
    with kafkalog.Log(tmp_path / "t-0") as log:
        log.append_many([b"a", b"b"])
    options = {"subscribe": "t"} | EARLIEST
    query = Query(tmp_path, checkpoint, clock, **options, failOnDataLoss="false")
    strict = Query(tmp_path, Checkpoint(), clock, **options)
    query.drain()
    strict.drain()
    for file in (tmp_path / "t-0").iterdir():
        file.unlink()
    if whole:  # the next one may get its inode's number at once
        (tmp_path / "t-0").rmdir()
    with kafkalog.Log(tmp_path / "t-0") as log:
        log.append_many([b"x", b"y", b"z"])
    clock.later()
    with pytest.raises(DataLoss, match="t-0: the folder was deleted and recreated"):
        strict.drain()
    query.drain()
    assert values(checkpoint.rows) == ["a", "b", "x", "y", "z"]


def test_a_topic_that_goes_and_comes_again(store, caplog):
    append(store, "t", 0, *"abc")
    checkpoint, clock = Checkpoint(), Clock()
    query = Query(store.path, checkpoint, clock, subscribe="t", failOnDataLoss="false", **EARLIEST)
    strict = Query(store.path, Checkpoint(), clock, subscribe="t", **EARLIEST)
    query.drain()
    strict.drain()
    store.delete_topic("t")
    clock.later()
    with pytest.raises(DataLoss, match="t-0: was deleted; read up to offset 3"):
        strict.drain()
    query.drain()
    assert checkpoint.offsets[-1] == "{}"
    store.create_topic("t", 1)
    append(store, "t", 0, "x")
    clock.later()
    query.drain()
    assert values(checkpoint.rows) == list("abcx")
    assert "t-0: was deleted; read up to offset 3" in caplog.text


def test_retention_was_quicker(tmp_path, caplog):
    checkpoint, clock = Checkpoint(), Clock()
    config = {"segment.bytes": 1000}
    with kafkalog.Log(tmp_path / "t-0", config=config) as log:
        log.append_many([b"%d" % i for i in range(100)], batch_bytes=200)
        options = {"subscribe": "t", "maxOffsetsPerTrigger": "10"} | EARLIEST
        query = Query(tmp_path, checkpoint, clock, **options, failOnDataLoss="false")
        strict = Query(tmp_path, Checkpoint(), clock, **options)
        query.trigger()
        strict.trigger()
        log.delete_before(50)
        with pytest.raises(DataLoss, match="offset 10 was to be read next, but the log begins"):
            strict.trigger()
        query.drain()
    assert [offset for _, _, offset, _ in checkpoint.rows] == [*range(10), *range(50, 100)]
    assert "t-0: offset 10 was to be read next, but the log begins with 50" in caplog.text


@pytest.mark.parametrize("way", [{}, {"available_now": True}, {"once": True}])
def test_retention_between_a_crash_and_the_same_batch(tmp_path, way):
    """The batch is what is left of it; and the start of batch 0 is known, although Spark does not
    record it."""
    checkpoint = Checkpoint()
    options = {"subscribe": "t", **way} | EARLIEST
    with kafkalog.Log(tmp_path / "t-0", config={"segment.bytes": 1000}) as log:
        log.append_many([b"%d" % i for i in range(100)], batch_bytes=200)
        query = Query(tmp_path, checkpoint, **options)
        query.kill_at = "walCommit"
        with pytest.raises(Killed):
            query.trigger()
        log.delete_before(50)
        with pytest.raises(DataLoss, match="t-0: offsets 0 to 100 were to be read, but the log ha"):
            Query(tmp_path, checkpoint, **options).trigger()
        Query(tmp_path, checkpoint, **options, failOnDataLoss="false").drain()
        assert len(checkpoint.offsets) == 1
    assert [offset for _, _, offset, _ in checkpoint.rows] == list(range(50, 100))


def test_a_log_that_was_cut(tmp_path):
    checkpoint = Checkpoint()
    with kafkalog.Log(tmp_path / "t-0") as log:
        for _ in range(10):
            log.append(b"a")
        query = Query(tmp_path, checkpoint, subscribe="t", failOnDataLoss="false", **EARLIEST)
        strict = Query(tmp_path, Checkpoint(), subscribe="t", **EARLIEST)
        query.drain()
        strict.drain()
        log.truncate(5)
        with pytest.raises(DataLoss, match="offset 10 was to be read next, but the log ends"):
            strict.drain()
        query.drain()
        log.append_many([b"b"] * 2)
        query.drain()
    assert [(o, v) for _, _, o, v in checkpoint.rows[10:]] == [(5, b"b"), (6, b"b")]


# ---- visible records


def test_open_transactions_are_waited_for(store):
    checkpoint = Checkpoint()
    query = Query(store.path, checkpoint, subscribe="t", **EARLIEST)
    with kafkalog.Producer(store, transactional_id="p") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"a", partition=0)
            producer.flush()
            query.drain()
            assert values(checkpoint.rows) == []

    def read() -> bool:
        query.drain()
        return bool(checkpoint.rows)

    wait_for(read, "the markers, which are written after the commit")
    assert values(checkpoint.rows) == ["a"]


def test_only_flushed_records(tmp_path):
    checkpoint = Checkpoint()
    with kafkalog.Log(tmp_path / "t-0") as log:
        query = Query(tmp_path, checkpoint, subscribe="t", onlyFlushed="true", **EARLIEST)
        log.append_many([b"a", b"b"])
        query.drain()
        assert values(checkpoint.rows) == []
        log.flush()
        query.drain()
        assert values(checkpoint.rows) == ["a", "b"]
        log.append(b"c")
        assert query.drain() == 0


def test_the_head_is_reported(store):
    append(store, "t", 1, *"abc")
    query = Query(store.path, Checkpoint(), subscribe="t", maxOffsetsPerTrigger="1", **EARLIEST)
    query.trigger()
    assert query.reader.reportLatestOffset()["t"] == {"0": 0, "1": 3}
    assert json.loads(query.checkpoint.offsets[-1])["t"] == {"0": 0, "1": 1}


# ---- a retention hold


def test_a_hold_keeps_unread_records(tmp_path):
    """It follows the stream, is renewed while the stream waits, and ends when it is not renewed."""
    clock, checkpoint = Clock(), Checkpoint()
    hour_ms = 3_600_000
    config = {"segment.bytes": 1000, "retention.ms": 1, "file.delete.delay.ms": 0}
    options = {"subscribe": "t", "maxOffsetsPerTrigger": "10", "retentionHold": "q",
               "retentionHoldMaxAge": "1h"} | EARLIEST  # fmt: skip
    with kafkalog.Log(tmp_path / "t-0", config=config, clock=clock) as log:
        log.append_many([b"x" * 90] * 100, timestamps_ms=[0] * 100, batch_bytes=300)
        query = Query(tmp_path, checkpoint, clock, **options)
        for _ in range(3):
            query.trigger()
        (hold,) = read_holds(str(tmp_path), clock.now_ms())
        assert list(hold.offsets.values()) == [20]  # committed: not yet the third
        log.apply_retention(clock.now_ms())
        assert 0 < log.start_offset <= 20
        clock.advance(hour_ms // 2)
        query.reader.latestOffset(json.loads(checkpoint.offsets[-1]), None)
        (hold,) = read_holds(str(tmp_path), clock.now_ms() + hour_ms - 1)
        assert read_holds(str(tmp_path), clock.now_ms() + hour_ms) == []
        query.drain()
        assert len(checkpoint.rows) == 100
        log.apply_retention(clock.now_ms() + hour_ms)
        assert log.start_offset == 100


def test_a_hold_is_cheap_while_nothing_happens(tmp_path, monkeypatch):
    from kafkalog.disk import holds

    written = []
    real = holds.write_hold
    monkeypatch.setattr(holds, "write_hold", lambda *args: (written.append(args), real(*args)))
    with kafkalog.Log(tmp_path / "t-0") as log:
        log.append(b"a")
        query = Query(tmp_path, Checkpoint(), subscribe="t", retentionHold="q", **EARLIEST)
        query.drain()
        before = len(written)
        for _ in range(100):
            query.trigger()
        assert len(written) == before <= 3


def test_a_hold_of_one_partitions_own_folder(tmp_path):
    with kafkalog.Log(tmp_path / "t-0") as log:
        log.append(b"a")
        Query(tmp_path / "t-0", Checkpoint(), subscribe="t", retentionHold="q").trigger()
    assert [hold.name for hold in read_holds(str(tmp_path), 0)] == ["q"]


# ---- as Spark handles it


def test_a_reader_is_pickled_without_open_logs(store):
    append(store, "t", 0, "a")
    query = Query(store.path, Checkpoint(), subscribe="t", **EARLIEST)
    query.drain()
    again = cloudpickle.loads(cloudpickle.dumps(query.reader))
    assert set(again.__dict__) == {"_options", "_schema"}


def test_a_poll_of_an_idle_stream_lists_no_folder(store, monkeypatch):
    """Spark polls ninety times a second."""
    clock = Clock()
    query = Query(store.path, Checkpoint(), clock, subscribe="t", **EARLIEST)
    query.drain()
    listed = []
    place = query.reader._driver._watch.place
    monkeypatch.setattr(place, "present", lambda: listed.append(1) or [])
    for _ in range(50):
        assert not query.trigger()
    assert not listed


def test_a_small_batch_of_a_large_log_looks_at_its_own_segments(tmp_path, monkeypatch):
    """And a byte limit far below a task's is kept, though the log is large."""
    looked = []
    real = Segment.offset_index.fget
    monkeypatch.setattr(
        Segment, "offset_index", property(lambda one: looked.append(one.base_offset) or real(one))
    )
    with kafkalog.Log(tmp_path / "t-0", config={"segment.bytes": 10_000}) as log:
        log.append_many([b"x" * 100] * 5000, batch_bytes=500)
        assert len(log.segments) > 50
        last = log.segments[-1].base_offset
        query = Query(
            tmp_path, Checkpoint(), subscribe="t", startingOffsets=f'{{"t":{{"0":{last}}}}}'
        )
        query.drain()
        assert set(looked) == {last}
        checkpoint = Checkpoint()
        query = Query(tmp_path, checkpoint, subscribe="t", maxBytesPerTrigger="6k", **EARLIEST)
        query.trigger()
        assert 20 <= len(checkpoint.rows) <= 60


def test_older_sparks_ask_without_a_start(store):
    """4.0 and 4.1: no start, no limit; at a restart the last batch is planned again."""
    append(store, "t", 0, *"abcdef")
    given = {"path": str(store.path), "subscribe": "t", "maxoffsetspertrigger": "2"}
    given["startingoffsets"] = "earliest"

    def reader():
        return DefaultSource(given).streamReader(schema_of(NAMES))

    first = reader()
    start = first.initialOffset()
    one = first.latestOffset()
    assert (start["t"]["0"], one["t"]["0"]) == (0, 2)
    assert len(first.partitions(start, one)) == 1
    two = first.latestOffset()
    assert two["t"]["0"] == 4
    again = reader()
    again.partitions(two, two)
    assert again.latestOffset()["t"]["0"] == 6


def test_a_warning_is_given_once(tmp_path, caplog):
    with kafkalog.Log(tmp_path / "t-0") as log:
        log.append(b"a")
    query = Query(
        tmp_path, Checkpoint(), subscribe="t", failOnDataLoss="false",
        startingOffsets='{"t":{"0":7}}', groupIdPrefix="x",
    )  # fmt: skip
    with caplog.at_level(logging.WARNING):
        query.trigger()
        for _ in range(5):
            query.trigger()
    assert caplog.text.count("offset 7 was to be read next") == 1
    assert caplog.text.count("'groupIdPrefix' has no meaning here") == 1


def test_another_machine_without_the_folder_says_so(store, tmp_path):
    append(store, "t", 0, "a")
    query = Query(store.path, Checkpoint(), subscribe="t", **EARLIEST)
    start = query.reader.initialOffset()
    (task,) = query.reader.partitions(start, query.reader.latestOffset(start, None))
    shutil.move(str(store.path), str(Path(tmp_path, "moved")))
    with pytest.raises(Exception, match="every executor must see the data"):
        list(query.reader.read(task))
    shutil.move(str(Path(tmp_path, "moved")), str(store.path))
