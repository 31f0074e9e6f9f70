"""A consumer notices that a log was truncated below its position (KIP-320)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.client.fetch.epochs import STALE_MAX, Epochs, FetchPosition, Leader
from kafkalog.client.fetch.fetched import FetchOptions
from kafkalog.client.fetch.fetcher import Fetcher
from kafkalog.client.link.cluster import Cluster
from kafkalog.log.log import Log, handle_of
from kafkalog.testing.cluster import TestCluster
from kafkalog.types import Record, TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import Peer
from tests.support.waiting import wait_for
from tests.unit.client.conftest import QUICK

TP = TopicPartition("t", 0)
ID, OTHER = UUID(int=77), UUID(int=78)
FENCED, UNKNOWN = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH


# ---- three nodes ---------------------------------------------------------------------------

UNCLEAN = {"unclean.leader.election.enable": True, "min.insync.replicas": 1}


def poll_until(consumer: kafkalog.Consumer, count: int) -> list[bytes | None]:
    found: list[Record] = []
    wait_for(lambda: found.extend(consumer.poll(100)) or len(found) >= count, f"{count} records")
    return [record.value for record in found]


def fill_leader(cluster: TestCluster, number: int) -> None:
    """Write records 10 to 19, which reach only the leader's disk."""
    leader = cluster.leader("t", number)
    cut = [
        cluster.nodes[leader].disconnect("Fetch", times=None, client_id=str(follower))
        for follower in {1, 2, 3} - {leader}
    ]
    cluster.wait_until(lambda: all(fault.hits for fault in cut), "neither waits for an answer")
    cluster.fill("t", [f"lost {n}" for n in range(10)], partition=number)
    cluster.wait_until(lambda: cluster.in_sync("t", number) == [leader], "the others lag")


def elect_who_lags(cluster: TestCluster, number: int) -> None:
    """Elect a leader that lacks those records, but has five others."""
    leader = cluster.leader("t", number)
    cluster.kill(leader)
    cluster.wait_until(lambda: cluster.leader("t", number) not in (leader, -1), "another leads")
    cluster.fill("t", [f"new {n}" for n in range(5)], partition=number)


@pytest.mark.kafkalog(topics={"t": 3}, config=UNCLEAN)
@pytest.mark.parametrize("reset", ["none", "earliest"])
def test_a_leader_that_lags_is_elected(
    kafkalog_cluster: TestCluster, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also noticed by a consumer that starts later, at its group's committed offset."""
    cluster = kafkalog_cluster
    with Cluster(cluster.bootstrap_servers) as client:
        coordinator = client.retrying(lambda: client.coordinator("g"))  # it keeps its data
    number = next(n for n in range(3) if cluster.leader("t", n) != coordinator)
    tp = TopicPartition("t", number)
    cluster.wait_until(lambda: cluster.in_sync("t", number) == [1, 2, 3], "all are in sync")
    cluster.fill("t", [f"kept {n}" for n in range(10)], partition=number)
    new = [b"new %d" % n for n in range(5)]
    options: dict[str, Any] = {"auto_offset_reset": reset, "config": {"fetch.max.wait.ms": 50}}
    servers = cluster.bootstrap_servers
    with (
        kafkalog.Consumer(servers, group="g", **options) as consumer,
        kafkalog.Consumer(servers, group="g", **options) as later,
    ):
        consumer.assign([tp])
        consumer.seek(tp, 0)
        poll_until(consumer, 10)
        fill_leader(cluster, number)
        poll_until(consumer, 10)
        consumer.commit()
        committed = consumer.committed(tp)
        assert committed is not None and committed.offset == 20 and committed.leader_epoch >= 0
        elect_who_lags(cluster, number)
        later.assign([tp])
        for one in (consumer, later):
            if reset == "none":
                for _ in range(2):
                    with pytest.raises(
                        errors.LogTruncation, match=r"t-\d: .* at offset 10"
                    ) as told:
                        wait_for(lambda one=one: one.poll(100), "it is noticed")
                    assert told.value.offset == 10
                    assert one.position(tp) == 20
                one.seek(tp, told.value.offset)
            assert poll_until(one, 5) == new
            assert one.position(tp) == 15
    if reset != "none":
        said = [one for one in caplog.records if "the log was truncated" in one.getMessage()]
        assert len(said) == 2 and {one.levelno for one in said} == {logging.WARNING}


# ---- scripted ------------------------------------------------------------------------------


class Leader1:
    """Node 1 leads t-0, in an epoch that changes; it has ten records of epoch 3."""

    def __init__(self, peer: Peer, folder: Path) -> None:
        with Log(folder / "t-0") as log:
            handle_of(log).lead(3)
            log.append_many([b"x"] * 10)
            self.data = bytes(log.read_batches(0, 1 << 20))
        self.peer = peer
        self.epoch, self.told_epoch, self.topic_id = 3, 3, ID
        self.ends: dict[str, Any] = {"leader_epoch": 3, "end_offset": 10}
        peer.on(apis.METADATA, self.metadata)
        peer.on(apis.FETCH, self.fetch)
        peer.on(apis.OFFSET_FOR_LEADER_EPOCH, self.ask)
        peer.on(apis.LIST_OFFSETS, self.start)

    def lead(self, epoch: int) -> None:
        """Lead in another epoch."""
        self.epoch = self.told_epoch = epoch

    def metadata(self, request: Any, version: int) -> Any:
        found = self.peer.metadata({"t": 1})
        (topic,) = found["topics"]
        topic["topic_id"] = self.topic_id
        topic["partitions"][0]["leader_epoch"] = self.told_epoch
        return found

    def refuses(self, epoch: int) -> int:
        return 0 if epoch in (-1, self.epoch) else FENCED if epoch < self.epoch else UNKNOWN

    def fetch(self, request: Any, version: int) -> Any:
        if any(topic.topic_id != self.topic_id for topic in request.topics):
            return self.failed(request)
        rows = []
        for topic in request.topics:
            for p in topic.partitions:
                row: dict[str, Any] = {"partition_index": 0}
                row["error_code"] = self.refuses(p.current_leader_epoch)
                if not row["error_code"] and p.fetch_offset == 0:
                    row["records"] = self.data
                rows.append(row)
        return {"responses": [{"topic_id": self.topic_id, "partitions": rows}] if rows else []}

    def failed(self, request: Any) -> Any:
        """The answer that the requested topic id is unknown."""
        row = {"partition_index": 0, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}
        topics = [{"topic_id": one.topic_id, "partitions": [row]} for one in request.topics]
        return {"responses": topics}

    def ask(self, request: Any, version: int) -> Any:
        (topic,) = request.topics
        (p,) = topic.partitions
        code = self.refuses(p.current_leader_epoch)
        row = {"partition": 0, "error_code": code, **({} if code else self.ends)}
        return {"topics": [{"topic": "t", "partitions": [row]}]}

    def start(self, request: Any, version: int) -> Any:
        row = {"partition_index": 0, "offset": 2, "leader_epoch": -1}
        return {"topics": [{"name": "t", "partitions": [row]}]}

    def pending(self) -> list[tuple[int, int]]:
        """(current epoch, epoch of the position) in each request."""
        rows = [r.topics[0].partitions[0] for r in self.peer.sent(apis.OFFSET_FOR_LEADER_EPOCH)]
        return [(row.current_leader_epoch, row.leader_epoch) for row in rows]

    def fetched(self) -> list[tuple[int, int]]:
        """(epoch, offset) of each fetch, without repetitions."""
        rows = [
            (p.current_leader_epoch, p.fetch_offset)
            for r in self.peer.sent(apis.FETCH) for t in r.topics for p in t.partitions
        ]  # fmt: skip
        return [row for i, row in enumerate(rows) if i == 0 or row != rows[i - 1]]


@pytest.fixture
def leader(peer: Peer, tmp_path: Path) -> Leader1:
    return Leader1(peer, tmp_path)


def fetcher(cluster: Cluster, reset: str = "error") -> Fetcher:
    return Fetcher(
        cluster, {TP: 0}, FetchOptions(max_wait_ms=5, sessions=False, out_of_range=reset)
    )


def read(fetcher: Fetcher, until: Callable[[], object]) -> list[int]:
    """The end offsets of answers, until a condition holds."""
    found: list[int] = []
    wait_for(
        lambda: found.extend(one.next_offset for one in fetcher.poll(5)) or until(), "it is so"
    )
    return found


@pytest.mark.parametrize("heard", ["by a refusal", "by metadata"])
def test_a_position_is_checked_once_for_each_leader(
    scripted: Cluster, leader: Leader1, heard: str
) -> None:
    made = fetcher(scripted)
    assert read(made, lambda: leader.fetched()[-1:] == [(3, 10)]) == [10]
    assert leader.pending() == []  # the epoch before it is unknown
    leader.lead(4)
    if heard == "by metadata":
        scripted.refresh(["t"])
    read(made, lambda: leader.fetched()[-1:] == [(4, 10)])
    assert leader.pending() == [(4, 3)]
    made.close()


def test_a_new_leader_says_that_it_is_not_there_yet(scripted: Cluster, leader: Leader1) -> None:
    """UNKNOWN_LEADER_EPOCH: metadata is ahead of it; the request is retried until it knows."""
    made = fetcher(scripted)
    read(made, lambda: leader.fetched()[-1:] == [(3, 10)])
    leader.told_epoch = 5
    scripted.refresh(["t"])
    read(made, lambda: len(leader.pending()) > 2)
    assert leader.fetched()[-1] == (3, 10)
    leader.lead(5)
    read(made, lambda: leader.fetched()[-1:] == [(5, 10)])
    assert set(leader.pending()) == {(5, 3)}
    made.close()


@pytest.mark.parametrize(
    ("ends", "goes_on"),
    [
        ({"leader_epoch": 3, "end_offset": 7}, 7),
        ({"leader_epoch": 2, "end_offset": 7}, 0),  # it has nothing of epoch 3
        ({"leader_epoch": 2, "end_offset": 12}, 0),  # though its log is long enough
        ({"leader_epoch": -1, "end_offset": -1}, 2),  # auto.offset.reset's
    ],
    ids=["known", "not one record", "not one record of a long log", "unknown"],
)
@pytest.mark.parametrize("reset", ["error", "earliest"])
def test_a_log_that_was_cut(
    scripted: Cluster, leader: Leader1, reset: str, ends: dict[str, int], goes_on: int,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    made = fetcher(scripted, reset)
    read(made, lambda: leader.fetched()[-1:] == [(3, 10)])
    leader.ends = ends
    leader.lead(4)
    if reset == "error":
        for _ in range(2):
            with pytest.raises(errors.LogTruncation, match="below offset 10 of leader epoch 3"):
                read(made, lambda: False)
        assert made.positions[TP] == 10
        made.seek(TP, goes_on)
    read(made, lambda: (4, goes_on) in leader.fetched())  # there are records from 0 on
    told = [one.getMessage() for one in caplog.records if "was truncated" in one.getMessage()]
    assert len(told) == (reset != "error")
    made.close()


def test_older_metadata_is_not_taken(scripted: Cluster, leader: Leader1) -> None:
    """Except for a topic that was deleted and recreated."""

    def epoch() -> int:
        scripted.forget("t")
        scripted.refresh(["t"])
        return scripted.topics["t"].partitions[0].leader_epoch

    assert epoch() == 3
    leader.lead(2)
    assert epoch() == 3
    leader.lead(4)
    assert epoch() == 4
    leader.lead(0)
    leader.topic_id = OTHER
    assert epoch() == 0


def test_metadata_older_than_the_commit(scripted: Cluster, leader: Leader1) -> None:
    """A former leader would not know that epoch, so it is not asked."""
    made = fetcher(scripted)
    made.seek(TP, 10, 5)
    leader.ends = {"leader_epoch": 5, "end_offset": 10}
    wait_for(lambda: made.poll(5) == [] and leader.peer.count(apis.METADATA) > 2, "it looks again")
    assert leader.pending() == leader.fetched() == []
    leader.lead(5)
    read(made, lambda: leader.fetched()[-1:] == [(5, 10)])
    assert leader.pending() == [(5, 5)]
    made.close()


def test_epochs_that_begin_again_hold_up_nobody(scripted: Cluster, leader: Leader1) -> None:
    made = fetcher(scripted)
    made.seek(TP, 10, 9)
    read(made, lambda: leader.fetched()[-1:] == [(3, 10)])
    assert leader.pending() == []
    assert leader.peer.count(apis.METADATA) > STALE_MAX
    made.close()


def test_a_position_that_was_set_since_is_not_asked_about(
    scripted: Cluster, leader: Leader1
) -> None:
    """No leader knows the end of anything before it."""
    scripted.refresh(None)
    epochs = Epochs()
    epochs.start(TP, FetchPosition(10, 3))
    epochs.look(scripted, {TP: 10})
    assert epochs.unsure == {TP}
    assert epochs.doubts(scripted, 1, [TP], {TP: 0}) == ({}, [])
    assert not epochs.unsure and epochs.current(TP) == 3


def test_a_broker_that_cannot_be_asked_is_read_from(tmp_path: Path) -> None:
    with Peer({apis.OFFSET_FOR_LEADER_EPOCH: (0, 2)}) as peer:
        leader = Leader1(peer, tmp_path)
        with Cluster(peer.servers, QUICK) as cluster:
            made = fetcher(cluster)
            read(made, lambda: leader.fetched()[-1:] == [(3, 10)])
            leader.lead(4)
            read(made, lambda: leader.fetched()[-1:] == [(4, 10)])
            made.close()
        assert leader.pending() == []


# ---- partitions that were away ---------------------------------------------------------------


@contextmanager
def read_again(
    peer: Peer, leader: Leader1, how: str, meanwhile: Callable[[], None]
) -> Iterator[kafkalog.Consumer]:
    """A consumer that has read ten records, then none until the callback has run: it had paused the
    partition, or the cluster lacked it."""
    config = {"retry.backoff.ms": 1, "fetch.max.wait.ms": 5}
    with kafkalog.Consumer(peer.servers, auto_offset_reset="none", config=config) as made:
        made.assign([TP])
        made.seek(TP, 0)
        assert len(poll_until(made, 10)) == 10
        if how == "paused":
            made.pause(TP)
            meanwhile()
            made.resume(TP)
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            peer.on(apis.METADATA, peer.metadata({"t": 1}, error=code))
            peer.on(apis.FETCH, lambda request, _: leader.failed(request))
            with pytest.raises(errors.UnknownTopicOrPartition):
                wait_for(lambda: made.poll(20) and False, "the cluster does not have it")
            meanwhile()
            peer.on(apis.METADATA, leader.metadata)
            peer.on(apis.FETCH, leader.fetch)
        yield made


@pytest.mark.parametrize("how", ["paused", "missing"])
def test_a_log_that_was_cut_while_it_was_not_read(peer: Peer, leader: Leader1, how: str) -> None:
    def meanwhile() -> None:
        leader.lead(4)
        leader.ends = {"leader_epoch": 3, "end_offset": 7}

    with (
        read_again(peer, leader, how, meanwhile) as consumer,
        pytest.raises(errors.LogTruncation, match="at offset 7"),
    ):
        wait_for(lambda: consumer.poll(20) and False, "it is noticed")


@pytest.mark.parametrize("how", ["paused", "missing"])
def test_another_topic_of_that_name_was_not_cut(peer: Peer, leader: Leader1, how: str) -> None:
    """It was created while nobody read: its epochs say nothing about the first one's."""

    def meanwhile() -> None:
        leader.lead(4)
        leader.topic_id = OTHER

    with read_again(peer, leader, how, meanwhile) as consumer:
        wait_for(lambda: consumer.poll(20) or leader.fetched()[-1] == (4, 10), "it goes on")
    assert leader.pending() == []


# ---- what was read -------------------------------------------------------------------------


def test_the_epoch_before_an_offset(tmp_path: Path) -> None:
    """Also with several in one answer."""
    epochs = Epochs()
    epochs.start(TP, FetchPosition(4, 1))
    assert [epochs.before(TP, at) for at in (3, 4, 9)] == [-1, 1, 1]
    with Log(tmp_path / "t-0") as log:
        for epoch in (2, 2, 5, 9):
            handle_of(log).lead(epoch)
            log.append_many([b"x"] * 10)
        data = bytes(log.read_batches(0, 1 << 20))
    epochs.start(TP, FetchPosition(0, -1))
    epochs.read(TP, data, 9)
    assert [epochs.before(TP, at) for at in (0, 1, 20, 21, 30, 31, 40)] == [-1, 2, 2, 5, 5, 9, 9]
    epochs.forget(TP)
    assert epochs.before(TP, 40) == -1
    assert epochs.question({TP: 5}, {TP: Leader(ID, 7)})["topics"][0]["partitions"] == [
        {"partition": 0, "current_leader_epoch": 7, "leader_epoch": -1}
    ]


def test_where_a_log_has_parted(tmp_path: Path) -> None:
    """An epoch unknown to the leader was truncated at its first record, however long the log is."""
    epochs = Epochs()
    with Log(tmp_path / "t-0") as log:
        for epoch in (2, 5):
            handle_of(log).lead(epoch)
            log.append_many([b"x"] * 10)
        data = bytes(log.read_batches(0, 1 << 20))
    epochs.start(TP, FetchPosition(0, -1))
    epochs.read(TP, data, 5)
    divergence = partial(epochs.divergence, TP)
    assert divergence(20, _end(15, 5)) == FetchPosition(15, 5)
    assert divergence(20, _end(20, 5)) is None
    assert divergence(20, _end(30, 4)) == FetchPosition(10, 4)
    assert divergence(20, _end(4, 2)) == FetchPosition(4, 2)
    assert divergence(10, _end(30, 4)) is None
    assert divergence(20, _end(-1, -1)) == FetchPosition(-1, -1)


def test_a_reported_epoch_is_not_the_epoch_of_the_last_record(tmp_path: Path) -> None:
    """A log's end carries its leader's epoch, in which there may be no record."""
    epochs = Epochs()
    epochs.start(TP, FetchPosition(10, 7))
    assert epochs.divergence(TP, 10, _end(10, 5)) is None
    with Log(tmp_path / "t-0") as log:
        handle_of(log).lead(6)
        log.append_many([b"x"] * 10)
        handle_of(log).lead(7)
        log.append_many([b"x"] * 5)
        epochs.read(TP, bytes(log.read_batches(10, 1 << 20)), 7)
    assert epochs.divergence(TP, 15, _end(20, 5)) == FetchPosition(10, 5)


def _end(offset: int, epoch: int) -> Any:
    row = {"partition": 0, "end_offset": offset, "leader_epoch": epoch}
    api = apis.OFFSET_FOR_LEADER_EPOCH
    answer = {"topics": [{"topic": "t", "partitions": [row]}]}
    return api.decode_response(4, api.encode_response(4, answer)).topics[0].partitions[0]
