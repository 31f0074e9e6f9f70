"""Fetch sessions: what each request repeats; alone, over a broker, and when a session is lost."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from kafkalog.client.calls import topics
from kafkalog.client.fetch import sessions
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.fetch.sessions import EPOCH_MAX, NONE, Ask, Session
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.producer import Producer
from kafkalog.log.log import Log
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer
from tests.support.waiting import wait_for

A, B, C = (TopicPartition("t", p) for p in range(3))
ID, OTHER = UUID(int=7), UUID(int=8)
FAST = FetchOptions(max_wait_ms=20)


def begun(offsets: dict[TopicPartition, int]) -> Session:
    """Session number 5, after its first request with these offsets."""
    pending = sessions.ask(NONE, offsets, {"t": ID}, True)
    assert (pending.session_id, pending.epoch, pending.offsets) == (0, 0, offsets)
    return sessions.answered(pending, 5, len(offsets))


# ---- requests, by themselves ---------------------------------------------------------------


def test_only_changes_are_sent() -> None:
    session = begun({A: 1, B: 2})
    pending = sessions.ask(session, {A: 1, B: 3, C: 0}, {"t": ID}, True)
    assert (pending.session_id, pending.epoch) == (5, 1)
    assert (pending.offsets, pending.forgotten) == ({B: 3, C: 0}, [])
    session = sessions.answered(pending, 5, 0)
    pending = sessions.ask(session, {C: 0}, {"t": ID}, True)
    assert (pending.epoch, pending.offsets) == (2, {})
    assert pending.forgotten == [(A, ID), (B, ID)]


def test_unanswered_changes_are_sent_again() -> None:
    session = begun({A: 1})
    first = sessions.ask(session, {A: 2}, {"t": ID}, True)
    assert sessions.ask(session, {A: 2}, {"t": ID}, True) == first


def test_a_recreated_topic_is_forgotten_by_its_old_id() -> None:
    pending = sessions.ask(begun({A: 1, B: 2}), {A: 1}, {"t": OTHER}, True)
    assert pending.offsets == {A: 1}
    assert sorted(pending.forgotten) == [(A, ID), (B, ID)]


def test_a_topic_that_is_told_by_name_from_now_on_ends_the_session() -> None:
    pending = sessions.ask(begun({A: 1}), {A: 1}, {"t": UUID(int=0)}, False)
    assert (pending.session_id, pending.epoch, pending.offsets) == (5, 0, {A: 1})


def test_a_node_that_keeps_no_session_is_told_everything_each_time() -> None:
    pending = sessions.ask(NONE, {A: 1}, {"t": ID}, True)
    assert sessions.answered(pending, 0, 1) == NONE


@pytest.mark.parametrize(
    ("told", "wanted"), [(0, NONE), (9, NONE._replace(session_id=9))], ids=["ended", "another"]
)
def test_a_node_that_changes_the_session(told: int, wanted: Session) -> None:
    pending = sessions.ask(begun({A: 1}), {A: 1}, {"t": ID}, True)
    assert sessions.answered(pending, told, 0) == wanted


def test_a_first_answer_that_leaves_partitions_out_makes_no_session() -> None:
    pending = sessions.ask(NONE, {A: 1, B: 1}, {"t": ID}, True)
    assert sessions.answered(pending, 5, 1) == NONE._replace(session_id=5)


def test_after_the_last_epoch_comes_the_first() -> None:
    session = begun({A: 1})._replace(epoch=EPOCH_MAX)
    pending = sessions.ask(session, {A: 1}, {"t": ID}, True)
    assert sessions.answered(pending, 5, 0).epoch == 1


def test_a_lost_session_is_closed_if_it_may_exist() -> None:
    session = begun({A: 1})
    assert sessions.lost(session) == NONE._replace(session_id=5)
    assert sessions.lost(session, ErrorCode.FETCH_SESSION_ID_NOT_FOUND) == NONE


def test_the_end_is_told_where_there_is_something_to_end() -> None:
    assert sessions.closing(NONE) is None
    pending = sessions.closing(begun({A: 1}))
    assert pending is not None and (pending.session_id, pending.epoch, pending.offsets) == (
        5,
        -1,
        {},
    )


class Node:
    """A node's side of KIP-227."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[int, dict[tuple[TopicPartition, UUID], int]]] = {}
        self.last = 0

    def takes(self, pending: Ask) -> tuple[int, int, dict[tuple[TopicPartition, UUID], int]]:
        """(error, session, the positions it now reads)."""
        said = {(tp, pending.after.ids[tp.topic]): at for tp, at in pending.offsets.items()}
        if pending.epoch == sessions.NEW_EPOCH:
            self.kept.pop(pending.session_id, None)
            self.last += 1
            self.kept[self.last] = (1, said)
            return 0, self.last, said
        if pending.session_id not in self.kept:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, {}
        epoch, held = self.kept[pending.session_id]
        if epoch != pending.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, {}
        for one in pending.forgotten:
            assert one in held, "only what the node holds is dropped"
            del held[one]
        held |= said
        self.kept[pending.session_id] = (epoch + 1, held)
        return 0, pending.session_id, held


@pytest.mark.parametrize("seed", range(20))
def test_the_node_always_reads_the_wanted_partitions(seed: int) -> None:
    """Partitions come and go, topics are recreated, answers are lost, sessions are evicted."""
    chance = random.Random(seed)
    node, session = Node(), NONE
    every = [TopicPartition(t, p) for t in "tu" for p in range(4)]
    ids = {"t": UUID(int=1), "u": UUID(int=2)}
    unheard = 0
    for step in range(200):
        if chance.random() < 0.1:
            ids = ids | {chance.choice("tu"): UUID(int=100 + step)}
        if chance.random() < 0.05:
            node.kept.clear()
        wanted = {tp: chance.randrange(3) for tp in every if chance.random() < 0.6}
        topic_ids = {tp.topic: ids[tp.topic] for tp in wanted}
        pending = sessions.ask(session, wanted, topic_ids, True)
        code, session_id, read = node.takes(pending)
        if not code:
            assert read == {(tp, ids[tp.topic]): at for tp, at in wanted.items()}
        if chance.random() < 0.1:  # the answer was lost
            session = sessions.lost(session)
            unheard += pending.epoch == sessions.NEW_EPOCH
        elif code:
            session = sessions.lost(session, code)
        else:
            session = sessions.answered(pending, session_id, len(read))
        assert len(node.kept) <= 1 + unheard, "one that is lost makes room, if it was heard of"


# ---- over a broker -------------------------------------------------------------------------


def values(fetcher: Fetcher, count: int) -> list[tuple[int, bytes | None]]:
    """(partition, value) of the next `count` records."""
    found: list[tuple[int, bytes | None]] = []
    while len(found) < count:
        for block in fetcher.poll():
            found += [(r.partition, r.value) for r in block.records()]
    return found


def test_a_session_lasts_while_partitions_come_and_go(
    where: Any, cluster: Cluster, topic: str
) -> None:
    a, b, c = (TopicPartition(topic, p) for p in range(3))
    fetcher = Fetcher(cluster, {a: 0, b: 0}, FAST)
    with Producer(where, linger_ms=0) as producer:

        def send(value: bytes, *partitions: int) -> None:
            for partition in partitions:
                producer.send(topic, value, partition=partition).result()

        send(b"1", 0, 1, 2)
        assert sorted(values(fetcher, 2)) == [(0, b"1"), (1, b"1")]
        (node,) = fetcher.core.sessions
        first = fetcher.core.sessions[node]
        assert first.session_id
        send(b"2", 1)
        assert values(fetcher, 1) == [(1, b"2")]
        del fetcher.positions[b]
        fetcher.positions[c] = 0
        assert values(fetcher, 1) == [(2, b"1")]
        send(b"3", 0, 1)
        assert values(fetcher, 1) == [(0, b"3")]
        fetcher.positions[b] = 1  # back to where it was
        assert values(fetcher, 2) == [(1, b"2"), (1, b"3")]
        assert fetcher.ends[b].high_watermark == 3
    last = fetcher.core.sessions[node]
    assert (last.session_id, last.epoch > first.epoch + 3) == (first.session_id, True)
    fetcher.close()


@pytest.mark.parametrize("how", ["evicted", "epoch", "connection", "anew"])
def test_a_lost_session_begins_again(where: Any, cluster: Cluster, topic: str, how: str) -> None:
    tp = TopicPartition(topic, 0)
    fetcher = Fetcher(cluster, {tp: 0}, FAST)
    with Producer(where, linger_ms=0) as producer:
        producer.send(topic, b"1", partition=0).result()
        assert values(fetcher, 1) == [(0, b"1")]
        (node,) = fetcher.core.sessions
        before = fetcher.core.sessions[node]
        if how == "anew":
            topics.delete_topic(cluster, topic)
            topics.create_topic(cluster, topic, 3)
            producer.send(topic, b"another", partition=0).result()
        elif how == "connection":
            fetcher._connections[node].close()
            fetcher.core.pending.clear()
        else:
            pending = fetcher.core.pending[node]
            other = pending.request._replace(epoch=1_000)
            if how == "evicted":
                other = pending.request._replace(
                    after=pending.request.after._replace(session_id=99)
                )
            fetcher.core.pending[node] = pending._replace(request=other)
            while fetcher.core.sessions[node].epoch > 0:
                fetcher.poll()
        producer.send(topic, b"2", partition=0).result()
        assert values(fetcher, 1) == [(0, b"2")]
        assert fetcher.core.sessions[node].session_id not in (0, 99)
        assert before.session_id or how == "anew"
    fetcher.close()


# ---- with a scripted leader ----------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Any) -> bytes:
    with Log(tmp_path / "t-0") as log:
        log.append(b"here")
        return log.read_batches(0, 1 << 20)


@pytest.mark.parametrize("code", sorted(sessions.LOST))
def test_after_an_error_of_the_session_everything_is_said_at_once(
    peer: Peer, scripted: Cluster, data: bytes, code: int
) -> None:
    """No partition pauses and no metadata is requested: nothing is wrong with them."""
    rows = [{"partition_index": p, "error_code": 0} for p in range(2)]
    whole = {"session_id": 5, "responses": [{"topic": "t", "partitions": rows}]}
    late = {"partition_index": 0, "error_code": 0, "records": data}
    peer.on(apis.METADATA, peer.metadata({"t": 2}))
    peer.on(
        apis.FETCH, whole, {"error_code": code},
        {"session_id": 6, "responses": [{"topic": "t", "partitions": [late, rows[1]]}]},
        {"session_id": 6, "responses": []},
    )  # fmt: skip
    fetcher = Fetcher(scripted, {A: 0, B: 0}, FAST)
    while not fetcher.poll(5_000):
        pass
    fetcher.close()
    first, second, third = peer.sent(apis.FETCH)[:3]
    assert [r.session_epoch for r in (first, second, third)] == [0, 1, 0]
    gone = code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert [r.session_id for r in (first, second, third)] == [0, 5, 0 if gone else 5]
    assert [len(r.topics) for r in (first, second, third)] == [1, 0, 1]
    assert peer.count(apis.METADATA) == 1


def test_the_end_of_a_fetcher_ends_its_session(peer: Peer, scripted: Cluster, data: bytes) -> None:
    row = {"partition_index": 0, "error_code": 0, "records": data}
    answer = {"session_id": 5, "responses": [{"topic": "t", "partitions": [row]}]}
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    peer.on(apis.FETCH, answer, {"session_id": 5, "responses": []})
    fetcher = Fetcher(scripted, {A: 0}, FAST)
    while not fetcher.poll(5_000):
        pass
    fetcher.close()
    wait_for(lambda: peer.sent(apis.FETCH)[-1].session_epoch == -1, "the session was closed")
    assert peer.sent(apis.FETCH)[-1].session_id == 5


def test_a_read_of_a_range_leaves_no_session(peer: Peer, scripted: Cluster, data: bytes) -> None:
    row = {"partition_index": 0, "error_code": 0, "records": data}
    peer.on(apis.METADATA, peer.metadata({"t": 1}))
    peer.on(apis.FETCH, {"responses": [{"topic": "t", "partitions": [row]}]})
    fetcher = Fetcher(scripted, {A: 0}, FAST._replace(sessions=False))
    while not fetcher.poll(5_000):
        pass
    fetcher.close()
    assert {(r.session_id, r.session_epoch) for r in peer.sent(apis.FETCH)} == {(0, -1)}
