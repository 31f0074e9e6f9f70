"""A restart takes from the checkpoint what the checkpoint decided, whatever the topics are now.

Source: Spark's Kafka source, which keeps the start of batch 0 in its checkpoint, and the ends of
all batches: options of a start count only for a new query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.errors import BadOption, DataLoss
from pyspark_kafkalog.stream.watch import LIST_S

import kafkalog
from kafkalog.clock import ManualClock
from tests.spark.conftest import START_MS
from tests.spark.engine import Checkpoint, Killed, Query
from tests.spark.test_both_places import Target
from tests.support.waiting import wait_for

RECORDS = 20
Event = Callable[["Place"], None]


class Place:
    """A directory, by its path or by a broker: topic `t`, 2 partitions of RECORDS."""

    def __init__(self, store: kafkalog.Store, options: dict[str, str]) -> None:
        self.store, self.options, self.clock = store, options, ManualClock()

    def create(self, topic: str, partitions: int, records: int) -> None:
        """Record i is i ms after START_MS."""
        self.store.create_topic(topic, partitions)
        times = [START_MS + i for i in range(records)]
        for log in self.store[topic]:
            log.append_many([b"v"] * records, timestamps_ms=times)

    def query(self, checkpoint: Checkpoint, **options: str) -> Query:
        given = options if "subscribePattern" in options else {"subscribe": "t", **options}
        return Query(self.options, checkpoint, self.clock, **given)

    def interrupted(self, checkpoint: Checkpoint, **options: str) -> None:
        """A query dies when Spark has stored the end of its next batch."""
        query = self.query(checkpoint, **options)
        query.kill_at = "walCommit"
        with pytest.raises(Killed):
            query.trigger()


@pytest.fixture(params=["path", "broker"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    listeners = ["127.0.0.1:0"] if request.param == "broker" else []
    with kafkalog.Broker(tmp_path / "data", listeners=listeners) as broker:
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers} if listeners else {}
        made = Place(broker.store, servers or {"path": str(tmp_path / "data")})
        made.create("t", 2, RECORDS)
        yield made


def nothing(place: Place) -> None:
    pass


def grow(place: Place) -> None:
    place.store.admin.create_partitions({"t": 3}).check()


def drop(place: Place) -> None:
    for log in place.store["t"]:
        log.delete_before(RECORDS)


def delete(place: Place) -> None:
    place.store.delete_topic("t")


def recreate(place: Place) -> None:
    """With as many records, and another number of partitions."""
    delete(place)
    place.create("t", 1, RECORDS)


def add(place: Place) -> None:
    place.create("tt", 1, 5)


OFFSETS = {"startingOffsets": '{"t":{"0":5,"1":15}}'}
TIMES = {"startingOffsetsByTimestamp": f'{{"t":{{"0":{START_MS + 5},"1":{START_MS + 15}}}}}'}
TIME = {"startingTimestamp": str(START_MS + 10)}
LATEST = {"startingOffsets": '{"t":{"0":-1,"1":-1}}'}
EARLIEST = {"startingOffsets": "earliest"}
STARTS = [OFFSETS, TIMES, TIME, LATEST, EARLIEST]
NAMES = ["offsets", "times", "time", "latest", "earliest"]


def rows(checkpoint: Checkpoint, batch: int = 0) -> list[tuple[str, int, int]]:
    return sorted(row[:3] for row in checkpoint.sink[batch])


def undisturbed(place: Place, **options: str) -> list[tuple[str, int, int]]:
    """Batch 0 without an interruption."""
    checkpoint = Checkpoint()
    place.query(checkpoint, **options).trigger()
    return rows(checkpoint)


@pytest.mark.parametrize("start", STARTS, ids=NAMES)
@pytest.mark.parametrize("event", [nothing, grow])
def test_batch_0_repeats_itself(place: Place, event: Event, start: dict[str, str]) -> None:
    """A partition that was added comes in the next batch, from its start."""
    wanted, checkpoint = undisturbed(place, **start), Checkpoint()
    assert len(wanted) == {"latest": 0, "earliest": 40}.get(NAMES[STARTS.index(start)], 20)
    place.interrupted(checkpoint, **start)
    event(place)
    place.query(checkpoint, **start).trigger()
    assert rows(checkpoint) == wanted
    if event is grow:
        place.store["t"][2].append(b"new")
        place.query(checkpoint, **start).drain()
        assert checkpoint.rows[-1][:3] == ("t", 2, 0) and len(checkpoint.rows) == len(wanted) + 1


@pytest.mark.parametrize("start", STARTS, ids=NAMES)
@pytest.mark.parametrize(
    ("event", "told"),
    [(drop, "the log has 20 to 20"), (delete, "was deleted;"), (recreate, "deleted and recreated")],
)
def test_records_of_batch_0_that_are_gone(
    place: Place, event: Event, told: str, start: dict[str, str]
) -> None:
    """The loss is told, and never an option of the start."""
    checkpoint, loose = Checkpoint(), {**start, "failOnDataLoss": "false"}
    place.interrupted(checkpoint, **start)
    event(place)
    if start is LATEST:  # batch 0 is empty
        place.query(checkpoint, **start).trigger()
    else:
        with pytest.raises(DataLoss, match=told):
            place.query(checkpoint, **start).trigger()
        place.query(checkpoint, **loose).trigger()
    assert rows(checkpoint) == []
    query = place.query(checkpoint, **loose)
    query.drain()
    found = [row[1:3] for row in checkpoint.rows]
    assert found == ([(0, i) for i in range(RECORDS)] if event is recreate else [])


@pytest.mark.parametrize("start", [OFFSETS, EARLIEST], ids=["offsets", "earliest"])
def test_a_topic_that_a_pattern_matches_later(place: Place, start: dict[str, str]) -> None:
    wanted, checkpoint = undisturbed(place, **start), Checkpoint()
    place.interrupted(checkpoint, **start, subscribePattern="t+")
    add(place)
    query = place.query(checkpoint, **start, subscribePattern="t+")
    query.trigger()
    assert rows(checkpoint) == wanted
    query = place.query(checkpoint, **start, subscribePattern="t+")
    query.drain()
    assert [row[:3] for row in checkpoint.rows[len(wanted) :]] == [("tt", 0, i) for i in range(5)]


@pytest.mark.parametrize(
    "other",
    [{"maxOffsetsPerTrigger": "2"}, {"minOffsetsPerTrigger": "1000"}, {"maxBytesPerTrigger": "1"},
     TIME, EARLIEST, LATEST, {"startingOffsets": '{"u":{"0":1}}'}],
    ids=lambda one: next(iter(one)),
)  # fmt: skip
@pytest.mark.parametrize("batch", [0, 1])
def test_options_that_changed(place: Place, other: dict[str, str], batch: int) -> None:
    """Limits and starts count for the batches that are planned after it."""
    checkpoint, limit = Checkpoint(), {"maxOffsetsPerTrigger": "10", **OFFSETS}
    query = place.query(checkpoint, **limit)
    for _ in range(2):
        query.trigger()
    wanted = rows(checkpoint, batch)
    assert len(wanted) in (9, 10)
    again = Checkpoint(checkpoint.offsets[: batch + 1], batch)
    place.query(again, **{**OFFSETS, **other}).trigger()
    assert rows(again, batch) == wanted


@pytest.mark.parametrize("event", [grow, drop, delete, recreate, add])
@pytest.mark.parametrize("start", STARTS, ids=NAMES)
def test_a_later_batch_needs_no_start(place: Place, event: Event, start: dict[str, str]) -> None:
    """Everything was read: then no event is a loss of records that were to be read."""
    checkpoint, loose = Checkpoint(), {**start, "failOnDataLoss": "false"}
    place.query(checkpoint, **start).drain()
    before = len(checkpoint.rows)
    event(place)
    place.query(checkpoint, **loose).drain()
    assert len(checkpoint.rows) - before == (RECORDS if event is recreate else 0)


def test_a_topic_recreated_after_an_empty_batch_0(place: Place) -> None:
    """Its records below the first start are read, too."""
    checkpoint = Checkpoint()
    query = place.query(checkpoint, **LATEST, failOnDataLoss="false")
    query.trigger()
    assert rows(checkpoint) == []
    recreate(place)
    place.store["t"][0].append(b"v")
    place.clock.advance(round(1000 * LIST_S))
    query.drain()
    assert [row[1:3] for row in checkpoint.rows] == [(0, i) for i in range(RECORDS + 1)]


def test_a_new_query_obeys_its_options(place: Place) -> None:
    grow(place)
    for start in (OFFSETS, TIMES, LATEST):
        with pytest.raises(BadOption, match="leaves out t-2"):
            place.query(Checkpoint(), **start).trigger()
    for available_now in (False, True):
        query = Query(place.options, Checkpoint(), available_now=available_now, subscribe="u")
        with pytest.raises(BadOption, match="no topic 'u' here"):
            query.trigger()


def test_a_checkpoint_without_a_start(place: Place) -> None:
    """The start of Spark's Kafka source, if its batch 0 was interrupted, is in a file that Spark
    does not pass on.  It is taken from the options, or refused."""
    stored = json.dumps({"t": {"0": 20, "1": 20}})
    checkpoint = Checkpoint([stored])
    place.query(checkpoint, **OFFSETS).trigger()
    assert len(checkpoint.rows) == 20
    grow(place)
    with pytest.raises(BadOption, match="leaves out t-2"):
        place.query(Checkpoint([stored]), **OFFSETS).trigger()


def test_a_load_of_a_topic_that_was_deleted(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Spark asks for the schema before the query has its checkpoint."""
    given = {**place.options, "subscribe": "t,gone"}
    with pytest.raises(BadOption, match="no topic 'gone' here"):
        DefaultSource(given).schema()
    assert DefaultSource({**given, "failondataloss": "false"}).schema().names[0] == "key"
    (told,) = caplog.messages
    assert "no topic 'gone' here" in told and "only a stream with a checkpoint goes on" in told


def test_in_each_place(where: Any, unique: str) -> None:
    """A partition more, and records less."""
    target, checkpoint = Target(where, unique), Checkpoint()
    target.create(2)
    target.write(2, RECORDS)
    given = {
        "subscribe": target.topic, "startingOffsets": target.each(5, 15), "failOnDataLoss": "false",
    }  # fmt: skip
    query = Query(target.options, checkpoint, **given)
    query.kill_at = "walCommit"
    with pytest.raises(Killed):
        query.trigger()
    with kafkalog.Admin(target.where) as admin:
        admin.create_partitions({target.topic: 3}).check()
        wait_for(lambda: 2 in admin.describe_topics([target.topic])[target.topic].partitions, "it")
    target.delete_before(10)
    Query(target.options, checkpoint, **given).trigger()
    assert [row[1:3] for row in checkpoint.rows] == [
        *((0, i) for i in range(10, RECORDS)), *((1, i) for i in range(15, RECORDS)),
    ]  # fmt: skip
