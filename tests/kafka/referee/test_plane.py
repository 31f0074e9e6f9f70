"""The same requests to Apache Kafka and to us have the same answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalog.wire import apis
from tests.support import batches
from tests.support.batches import Row, batch
from tests.unit.plane.peer import ALL, LEADER, Peer, Served, one
from tests.unit.plane.test_produce import REFUSED, ROWS, idempotent

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "fetched": {},
    "sequences": {},
    "compacted": {"cleanup.policy": "compact"},
    "windowed": {"message.timestamp.before.max.ms": "1000"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "small": {"segment.bytes": "1048576", "max.message.bytes": "1500000"},
}
LED = ("plain", "fetched")
NOW_MS = int(time.time() * 1000)


def create(peer: Peer) -> None:
    """Create the topics on Kafka's broker."""
    topics = [
        {
            "name": name, "num_partitions": 2, "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in config.items()],
        }
        for name, config in TOPICS.items()
    ]  # fmt: skip
    made = peer.ask(apis.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 20_000})
    assert [topic.error_code for topic in made.topics] == [0] * len(TOPICS)
    peer.topic_ids.update({topic.name: topic.topic_id for topic in made.topics})


@pytest.fixture(scope="module")
def both(tmp_path_factory, apache_kafka, wait_until) -> Iterator[Callable[[], tuple[Peer, Peer]]]:
    """New connections to Kafka and to us."""
    port = int(apache_kafka.rpartition(":")[2])
    served = Served(tmp_path_factory.mktemp("ours"))
    for name, config in TOPICS.items():
        served.put(name, 2, config=config)
    found: list[Peer] = []

    def answers() -> bool:
        try:
            found.append(Peer(("127.0.0.1", port)))
            create(found[-1])
        except (OSError, AssertionError):
            return False
        return True

    wait_until(answers, "Kafka has the topics")
    ids = found[-1].topic_ids

    def connect() -> tuple[Peer, Peer]:
        theirs = Peer(("127.0.0.1", port))
        theirs.topic_ids = ids
        return theirs, served.connect()

    # Wait until a produce is accepted, which needs leaders; the same on our side.
    for name in LED:
        served.reactor.append(name, 1, one())
    wait_until(
        lambda: all(not found[-1].produce_one(one(), (name, 1)).error_code for name in LED),
        "Kafka leads",
        60,
    )
    yield connect
    served.close()


def same(both: Any, ask: Callable[[Peer], Any]) -> Any:
    theirs, ours = both()
    wanted, found = ask(theirs), ask(ours)
    assert found == wanted
    theirs.close()
    return found


def outline(found: Any) -> tuple[Any, ...]:
    """The fields of a Produce's answer on which both must agree."""
    faults = [error.batch_index for error in found.record_errors]
    # With some errors Kafka returns the log start, with others -1: it is not compared.
    start = -1 if found.error_code else found.log_start_offset
    return found.error_code, found.base_offset >= 0, start, faults


# Kafka has no error for these: an unknown codec and null records are its own failure (-1), the
# time type is removed, and for a transaction it asks its coordinator.
NOT_ASKED = {"codec 5", "null", "time type", "transaction"}


@pytest.mark.parametrize("version", [3, 8, 11])
@pytest.mark.parametrize("name", sorted(REFUSED.keys() - NOT_ASKED))
def test_refused_batches(both, name, version):
    data, _ = REFUSED[name]
    same(both, lambda peer: outline(peer.produce_one(data, ("plain", 0), version=version)))


@pytest.mark.parametrize("acks", [2, -2])
def test_acks(both, acks):
    same(both, lambda peer: outline(peer.produce_one(one(), ("plain", 0), acks=acks)))


def test_sequences(both):
    def ask(peer: Peer) -> list[Any]:
        sent = [(0, 0), (0, 0), (1, 0), (3, 0), (0, 1), (2, 0), (5, 2), (1, 1), (0, 0)]
        found = []
        for sequence, epoch in sent:
            answer = peer.produce_one(idempotent(sequence, epoch=epoch), ("sequences", 0), acks=ALL)
            found.append((answer.error_code, answer.base_offset))
        return found

    same(both, ask)


def test_records_without_keys(both):
    rows = [Row(b"a", b"k", NOW_MS), Row(b"b", None, NOW_MS), Row(b"c", None, NOW_MS)]
    same(both, lambda peer: outline(peer.produce_one(batch(rows), ("compacted", 0), version=8)))


def test_records_out_of_time(both):
    rows = [Row(b"a", None, 1000), Row(b"b", None, NOW_MS + 10**6), Row(b"c", None, 5000)]
    same(both, lambda peer: outline(peer.produce_one(batch(rows), ("windowed", 0), version=11)))


@pytest.mark.parametrize("version", [3, 6])
def test_zstd(both, version):
    data = batch(ROWS, codec="zstd")
    same(both, lambda peer: outline(peer.produce_one(data, ("plain", 0), version=version)))


def test_log_append_time_of_a_repeated_batch(both):
    def ask(peer: Peer) -> Any:
        data = idempotent(0)
        first = peer.produce_one(data, ("stamped", 0), version=9)
        again = peer.produce_one(data, ("stamped", 0), version=9)
        return first.log_append_time_ms > 0, first.log_append_time_ms == again.log_append_time_ms

    assert same(both, ask) == (True, True)


# ---- fetch ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(both):
    """Both have the same batches in `fetched`."""

    def ask(peer: Peer) -> list[int]:
        sent = [batch([Row(b"v" * 100, b"k", NOW_MS)] * count) for count in (1, 5, 3, 1)]
        return [peer.produce_one(data, ("fetched", 0)).base_offset for data in sent]

    assert same(both, ask) == [0, 1, 6, 9]
    return both


def partition(found: Any, version: int) -> tuple[Any, ...]:
    headers = [(h.base_offset, h.record_count, h.crc) for h in batches.headers(found.records)]
    start = found.log_start_offset if version >= 5 else None
    diverging = (found.diverging_epoch.epoch, found.diverging_epoch.end_offset)
    return (
        found.error_code, found.high_watermark, start, found.aborted_transactions,
        found.preferred_read_replica, diverging, headers,
    )  # fmt: skip


def ask_one(offset: int, version: int, **more: Any) -> Callable[[Peer], Any]:
    def ask(peer: Peer) -> Any:
        found = peer.fetch_one(offset, ("fetched", 0), version=version, **more)
        return partition(found, version)

    return ask


@pytest.mark.parametrize("version", [4, 6, 9, 11, 12, 13, 15, 17])
def test_offsets(filled, version):
    for offset in (-5, -1, 0, 3, 6, 9, 10, 11):
        for isolation in (0, 1):
            same(filled, ask_one(offset, version, isolation_level=isolation))


@pytest.mark.parametrize("version", [9, 12, 17])
def test_epochs(filled, version):
    for epoch in (-1, 0, 1, 5):
        same(filled, ask_one(10, version, current_leader_epoch=epoch))


@pytest.mark.parametrize("version", [12, 17])
def test_diverging_epochs(filled, version):
    for epoch in (-1, 0, 1, 5):
        for offset in (3, 10):
            same(filled, ask_one(offset, version, last_fetched_epoch=epoch))


def told(response: Any) -> Any:
    parts = [
        (p.partition_index, p.error_code, len(p.records))
        for t in response.responses
        for p in t.partitions
    ]
    return response.error_code, response.session_id > 0, sorted(parts)


@pytest.mark.parametrize("version", [7, 11, 12, 13, 16])
def test_sessions(filled, version):
    def ask(peer: Peer) -> list[Any]:
        both = {("fetched", 0): 0, ("fetched", 1): 0}
        first = peer.fetch(both, version=version, session_epoch=0)
        session = first.session_id

        def again(epoch: int, wanted: Any = None, session: int = session, **more: Any) -> Any:
            return told(peer.fetch(
                wanted or {}, version=version, session_id=session, session_epoch=epoch, **more
            ))  # fmt: skip

        return [
            told(first),
            again(2), again(1), again(1), again(2, {("fetched", 0): 10}), again(3),
            again(4, {("fetched", 0): 11}), again(5), again(6, {("fetched", 0): 9}),
            again(7, forgotten={"fetched": [0]}), again(8), again(1, session=77),
            again(9, {("fetched", 0): 0}, forgotten={"fetched": [0, 1]}), again(10),
            again(0, both, session=0), again(-1, both, session=0), again(-1, session=0),
        ]  # fmt: skip

    same(filled, ask)


def test_names_and_ids_do_not_mix(filled):
    def ask(peer: Peer) -> list[Any]:
        found = []
        for first, second in ((12, 13), (13, 12)):
            session = peer.fetch({("fetched", 0): 0}, version=first, session_epoch=0).session_id
            more = peer.fetch({}, version=second, session_id=session, session_epoch=1)
            found += [told(more)]
        return found

    same(filled, ask)


@pytest.mark.parametrize("limit", [0, 1, 200])
def test_limits(filled, limit):
    """Where there is space for more, Kafka cuts inside a batch; we never do."""

    def ask(peer: Peer) -> Any:
        response = peer.fetch({("fetched", 0): 0, ("fetched", 1): 0}, max_bytes=limit)
        parts = response.responses[0].partitions
        return [[h.base_offset for h in batches.headers(part.records)] for part in parts]

    assert same(filled, ask)[0] == [0]


def test_min_bytes(filled):
    same(
        filled,
        lambda peer: partition(peer.fetch_one(0, ("fetched", 0), max_wait_ms=10, min_bytes=1), 11),
    )


def test_leader_acks_are_the_same(filled):
    assert (
        same(filled, lambda peer: outline(peer.produce_one(one(), ("small", 0), acks=LEADER)))[0]
        == 0
    )
