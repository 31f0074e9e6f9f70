"""`kafkalog transactions` with our broker: real producers, and one that hangs on purpose."""

from __future__ import annotations

import io
import os
import pty
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.log.log import Log
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support.batches import Row, batch
from tests.support.raw import Raw
from tests.support.scripted import Peer
from tests.support.waiting import LIMIT_S
from tests.unit.cli.conftest import Command, Ran

CONFIG = {
    "transaction.state.log.num.partitions": 2,
    "offsets.topic.num.partitions": 2,
    "log.initial.task.delay.ms": 0,
}
WAIT_S = LIMIT_S
HOUR_MS = 3_600_000
HANGS = 7_007
"""A producer id that no coordinator assigned."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Place:
    """A broker with the topic `t` of two partitions, and its directory."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.servers, self._directory = broker.bootstrap_servers, directory

    def write(self, partition: int, age_ms: int, producer_id: int = HANGS) -> None:
        """Append two records in a transaction that no coordinator knows."""
        at_ms = now_ms() - age_ms
        rows = [Row(value, b"k", at_ms) for value in (b"a", b"b")]
        data = batch(
            rows, producer_id=producer_id, producer_epoch=3, base_sequence=0, transactional=True
        )
        with Log(self._directory / f"t-{partition}", topic="t", partition=partition) as log:
            log.append_batches(data)

    def ends(self, partition: int) -> tuple[int, int]:
        """The last stable offset and the high watermark."""
        with Raw(self.servers) as raw:
            stable = raw.offsets("t", -1, partition, isolation_level=1).offset
            return stable, raw.offsets("t", -1, partition).offset


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Broker(tmp_path / "data", config=CONFIG) as broker:
        with Raw(broker.bootstrap_servers) as raw:
            raw.create("t", 2)
        yield Place(broker, tmp_path / "data")


@pytest.fixture
def at(kafkalog: Command, place: Place) -> Command:
    """Run `kafkalog transactions WORDS` with the broker."""

    def run(*words: object) -> Ran:
        return kafkalog("transactions", *words, "--bootstrap-server", place.servers)

    return run


@pytest.fixture
def producer(place: Place) -> Any:
    """A real producer with transactional id `pay`, whose transaction in t-0 has an old record."""
    from confluent_kafka import Producer

    quiet = {"log_level": 0}  # it ends after its broker
    made = Producer({"bootstrap.servers": place.servers, "transactional.id": "pay", **quiet})
    made.init_transactions(WAIT_S)
    made.begin_transaction()
    made.produce("t", b"v", partition=0, timestamp=now_ms() - HOUR_MS)
    made.flush(WAIT_S)
    return made


def test_a_transaction_is_listed_and_described(at: Command, producer: Any) -> None:
    (row,) = at("list", "--json").rows()
    assert (row["transactional_id"], row["coordinator"], row["state"]) == ("pay", 1, "Ongoing")
    assert at().out.splitlines()[1].split() == ["pay", "1", str(row["producer_id"]), "Ongoing"]
    assert at("--list", "--duration-filter", HOUR_MS).out == "no transactional id\n"
    assert at("list", "--transactional-id-pattern", "pa").out == "no transactional id\n"
    assert "pay" in at("list", "--transactional-id-pattern", "p.*").out
    assert "INVALID_REGULAR_EXPRESSION" in at("list", "--transactional-id-pattern", "(").err
    (told,) = at("describe", "pay", "--json").rows()
    assert told["producer_id"] == row["producer_id"]
    assert (told["state"], told["partitions"]) == ("Ongoing", ["t-0"])
    assert 0 <= told["open_ms"] < HOUR_MS
    assert "t-0" in at("--describe", "--transactional-id", "pay").out
    producer.abort_transaction(WAIT_S)
    (told,) = at("describe", "pay", "--json").rows()
    assert told["state"] in ("PrepareAbort", "CompleteAbort")


def test_an_open_transaction_of_a_coordinator_does_not_hang(
    at: Command, place: Place, producer: Any
) -> None:
    """Its coordinator knows of it and will end it, however old its last record is. In a partition
    that the transaction has not joined, it hangs."""
    (row,) = at("list", "--json").rows()
    words = ["find-hanging", "--topic", "t", "--max-transaction-timeout", 1]
    with Raw(place.servers) as raw:
        here = [{"name": "t", "partition_indexes": [0]}]
        (found,) = raw.call(apis.DESCRIBE_PRODUCERS, topics=here).topics[0].partitions
    (one,) = found.active_producers
    assert one.current_txn_start_offset == 0
    assert one.last_timestamp < now_ms() - 60_000  # old enough
    ran = at(*words)
    assert (ran.status, ran.out) == (0, "no hanging transaction\n")
    place.write(1, age_ms=HOUR_MS, producer_id=row["producer_id"])
    (found,) = at(*words, "--json").rows()
    assert (found["partition"], found["producer_id"]) == (1, row["producer_id"])
    producer.abort_transaction(WAIT_S)


def test_one_that_ends_while_it_is_looked_for_does_not_hang(kafkalog: Command) -> None:
    """Its coordinator no longer has it open, so the partition is asked again."""
    listed = {"transactional_id": "pay", "producer_id": 9, "transaction_state": "CompleteAbort"}
    one = {"producer_id": 9, "last_timestamp": 1, "current_txn_start_offset": 5,
           "producer_epoch": 0, "coordinator_epoch": 0}  # fmt: skip

    def producers(*active: dict[str, int]) -> dict[str, Any]:
        rows = [{"partition_index": 0, "active_producers": active}]
        return {"topics": [{"name": "t", "partitions": rows}]}

    with Peer() as peer:
        peer.on(apis.METADATA, lambda request, version: peer.metadata({"t": 1}))
        peer.on(apis.DESCRIBE_PRODUCERS, producers(one), producers(one), producers(one),
                producers())  # fmt: skip
        peer.on(apis.LIST_TRANSACTIONS, {"transaction_states": [listed]})
        where = {"key": "pay", "node_id": 1, "host": "127.0.0.1", "port": peer.port}
        peer.on(apis.FIND_COORDINATOR, {"coordinators": [where]})
        peer.on(apis.DESCRIBE_TRANSACTIONS, {"transaction_states": [{**listed, "topics": []}]})
        words = ["transactions", "find-hanging", "--topic", "t", "--json"]
        for hangs in ([5], []):  # it is still open; it has ended
            ran = kafkalog(*words, "--bootstrap-server", peer.servers)
            assert (ran.status, [row["start_offset"] for row in ran.rows()]) == (0, hangs)
        assert peer.count(apis.DESCRIBE_PRODUCERS) == 4
        assert {asked.key_type for asked in peer.sent(apis.FIND_COORDINATOR)} == {1}


def test_one_that_hangs_is_found_and_ended(at: Command, place: Place) -> None:
    """By broker, topic and partition; then the last stable offset moves past it."""
    place.write(0, age_ms=0)  # too young
    place.write(1, age_ms=HOUR_MS)
    assert place.ends(1) == (0, 2)
    for words in (["--broker-id", 1], ["--topic", "t"], ["--topic", "t", "--partition", 1]):
        (row,) = at("find-hanging", *words, "--json").rows()
        assert (row["topic"], row["partition"], row["start_offset"]) == ("t", 1, 0)
        assert (row["producer_id"], row["producer_epoch"]) == (HANGS, 3)
        assert HOUR_MS <= row["age_ms"] < 2 * HOUR_MS
    assert str(HANGS) in at("--find-hanging", "--broker-id", 1).out
    none = at("find-hanging", "--topic", "t", "--max-transaction-timeout", 120)
    assert none.out == "no hanging transaction\n"
    ran = at("abort", "--topic", "t", "--partition", 1, "--start-offset", 0, "--yes")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == f"aborted the transaction of producer {HANGS}, epoch 3, in t-1\n"
    assert place.ends(1) == (3, 3)
    assert at("find-hanging", "--broker-id", 1).out == "no hanging transaction\n"


def test_one_is_ended_by_its_producer(at: Command, place: Place) -> None:
    place.write(0, age_ms=HOUR_MS)
    words = ["abort", "--topic", "t", "--partition", 0, "--producer-id", HANGS, "--yes"]
    ran = at(*words, "--producer-epoch", 2, "--coordinator-epoch", 0)
    assert (ran.status, "INVALID_PRODUCER_EPOCH" in ran.err) == (1, True)
    assert place.ends(0) == (0, 2)
    assert at(*words, "--producer-epoch", 3, "--coordinator-epoch", -1).status == 0
    assert place.ends(0) == (3, 3)


def test_producers_of_a_partition_are_described(at: Command, place: Place) -> None:
    words = ["describe-producers", "--topic", "t", "--partition", 1]
    assert at(*words).out == "no producer is remembered in t-1\n"
    place.write(1, age_ms=HOUR_MS)
    for more in ([], ["--broker-id", 1]):
        (row,) = at(*words, *more, "--json").rows()
        assert (row["producer_id"], row["producer_epoch"], row["last_sequence"]) == (HANGS, 3, 1)
        assert (row["coordinator_epoch"], row["start_offset"]) == (-1, 0)
    head, line = at(*words).out.splitlines()
    assert head.split()[:2] == ["producer", "epoch"] and line.split()[:2] == [str(HANGS), "3"]
    assert at("abort", *words[1:], "--start-offset", 0, "--yes").status == 0
    (row,) = at(*words, "--json").rows()
    assert (row["coordinator_epoch"], row["start_offset"]) == (0, None)


def test_force_terminate_fences_the_producer_and_aborts(
    at: Command, place: Place, producer: Any
) -> None:
    words = ["force-terminate", "--transactional-id", "pay"]
    ran = at(*words)
    assert (ran.status, "nothing was done; add --yes" in ran.err) == (2, True)
    ran = at(*words, "--yes")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("fenced the producer of the transactional id pay: producer ")
    assert ran.out.endswith(" has epoch 2 now\n")
    (told,) = at("describe", "pay", "--json").rows()
    assert told["state"] == "Empty"
    assert place.ends(0) == (2, 2)  # after its record and the marker
    with pytest.raises(Exception, match="fenced"):
        producer.commit_transaction(WAIT_S)
    ran = at("force-terminate", "of-nobody", "--yes")
    assert (ran.status, "no transactional id 'of-nobody'" in ran.err) == (1, True)
    assert "of-nobody" not in at().out  # and none was created


@pytest.mark.parametrize(("typed", "ended"), [(b"n\n", False), (b"y\n", True), (b"\4", False)])
def test_abort_asks_first(
    at: Command, place: Place, monkeypatch: pytest.MonkeyPatch, typed: bytes, ended: bool
) -> None:
    """It asks on the terminal; without a terminal the answer is no."""
    place.write(0, age_ms=HOUR_MS)
    words = ["abort", "--topic", "t", "--partition", 0, "--start-offset", 0]
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    ran = at(*words)
    assert ran.status == 2
    assert "nothing was written; add --yes" in ran.err and str(HANGS) in ran.err
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        ran = at(*words)
    os.close(ours)
    assert "Go on? [y/N]" in ran.err
    assert ran.status == (0 if ended else 2)
    assert place.ends(0) == ((3, 3) if ended else (0, 2))


ABORT = ["abort", "--topic", "t", "--partition", 0]
MISTAKES: list[tuple[list[object], int, str]] = [
    (["describe"], 2, "describe: which transactional id?"),
    (["describe", "pay"], 1, "no transactional id 'pay'"),
    (["list", "pay"], 2, "list takes no name, not 'pay'"),
    (["force-terminate"], 2, "force-terminate: which transactional id?"),
    (["describe-producers", "--topic", "t"], 2, "give --topic and --partition"),
    (["find-hanging"], 2, "give --broker-id, or --topic"),
    (["find-hanging", "--partition", 0], 2, "of which topic?"),
    (["find-hanging", "--broker-id", 7], 2, "--broker-id: found 7, wanted one of 1"),
    (["find-hanging", "--topic", "u"], 2, "no topic 'u'"),
    (["find-hanging", "--topic", "t", "--partition", 2], 2, "no partition 2: it has 2"),
    (["find-hanging", "--topic", "t", "--yes"], 2, "--yes is an option of abort"),
    (["abort", "--topic", "t"], 2, "give --topic and --partition"),
    (ABORT, 2, "found neither, wanted --start-offset, or --producer-id, --producer-epoch and"),
    ([*ABORT, "--producer-id", 1], 2, "found --producer-id, wanted --start-offset, or"),
    ([*ABORT, "--start-offset", 0, "--producer-id", 1], 2, "--start-offset or --producer-id"),
    ([*ABORT, "--producer-epoch", 40_000], 2, "found 40000, wanted 0 to 32767"),
    ([*ABORT, "--start-offset", 9, "--yes"], 1, "at offset 9: those that are open begin at 0"),
    (["abort", "--topic", "t", "--partition", 1, "--start-offset", 9], 1, "none is open there"),
]  # fmt: skip


def test_mistakes_name_the_found_and_the_wanted_value(at: Command, place: Place) -> None:
    place.write(0, age_ms=0)
    for words, status, told in MISTAKES:
        ran = at(*words)
        assert (ran.status, told in ran.err) == (status, True), (words, ran)
    assert place.ends(0) == (0, 2)
