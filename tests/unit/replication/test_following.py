"""A follower's actions: with each answer, and in histories of changing leaders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.log.log import Log, handle_of
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.following import (
    BEYOND_US,
    NOTHING_KNOWN,
    Action,
    Append,
    Await,
    Copied,
    Cut,
    EpochEnd,
    Place,
    Rest,
    Restart,
    cut_to,
    failed,
    fetched,
    placed,
    rest_s,
)
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import simulated
from tests.support.copies import batches_in, open_copy
from tests.support.effort import SEED, rounds
from tests.support.simulated import simulation

COPY = Copied(log_start=5, log_end=30, high_watermark=20, last_epoch=4)


def row(**values: Any) -> Any:
    """A partition's row, as in the newest Fetch response."""
    topics = [{"partitions": [{"partition_index": 0, "high_watermark": -1, **values}]}]
    data = apis.FETCH.encode_response(17, {"responses": topics})
    return apis.FETCH.decode_response(17, data).responses[0].partitions[0]


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (row(high_watermark=7, log_start_offset=3), Append(None, 7, 3)),
        (row(error_code=ErrorCode.OFFSET_OUT_OF_RANGE), Place()),
        (row(error_code=ErrorCode.FENCED_LEADER_EPOCH), Await(ErrorCode.FENCED_LEADER_EPOCH)),
        (row(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH), Rest(ErrorCode.UNKNOWN_LEADER_EPOCH)),
        (row(error_code=ErrorCode.KAFKA_STORAGE_ERROR), Rest(ErrorCode.KAFKA_STORAGE_ERROR)),
        (row(diverging_epoch={"epoch": 3, "end_offset": 12}), EpochEnd(3, 12)),
    ],
)
def test_an_answer(answer: Any, action: Action | EpochEnd) -> None:
    assert fetched(answer) == action


def test_records_are_taken() -> None:
    found = fetched(row(records=b"batches", high_watermark=7, log_start_offset=3))
    assert isinstance(found, Append) and bytes(found.records) == b"batches"


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, *BEYOND_US])
def test_a_leader_that_cannot_be_followed_is_not_asked_again(code: int) -> None:
    assert isinstance(failed(code), Await)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID])
def test_retriable_errors_are_retried(code: int) -> None:
    assert failed(code) == Rest(code)


@pytest.mark.parametrize(
    ("theirs", "ours", "action"),
    [
        ((4, 25), (4, 30), Cut(25)),  # the same epoch, theirs is shorter
        ((4, 40), (4, 30), Cut(30)),  # theirs is longer
        ((3, 18), (3, 22), Cut(18)),
        ((3, 22), (3, 18), Cut(18)),  # the same epoch, ours is shorter
        ((3, 22), (2, 15), Cut(15)),  # we lack their epoch: our later ones are cut
        ((2, 9), NOTHING_KNOWN, Cut(9)),  # we only have later epochs
        (NOTHING_KNOWN, NOTHING_KNOWN, Cut(20)),  # it knows no epoch: committed records stay
    ],
)
def test_where_to_cut(theirs: tuple[int, int], ours: tuple[int, int], action: Cut) -> None:
    assert cut_to(EpochEnd(*theirs), EpochEnd(*ours), COPY) == action


@pytest.mark.parametrize(
    ("start", "end", "action"),
    [
        (0, 25, Cut(25)),  # an unclean election
        (0, 4, Restart(0)),  # the leader lacks even our first records
        (40, 50, Restart(40)),  # the next records were deleted there
        (7, 50, Rest(ErrorCode.OFFSET_OUT_OF_RANGE)),  # the offset exists by now
    ],
)
def test_where_to_go_on(start: int, end: int, action: Action) -> None:
    assert placed(start, end, COPY) == action


# ---- histories -----------------------------------------------------------------------------------


class Node:
    """A replica, and its state as leader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.copy = FollowerLog(open_copy(folder, {"segment.bytes": 1024}))
        self.fetched: dict[Node, int] = {}
        """By follower: the offset below which it has all records of this leader's epoch."""
        self.parted = True

    @property
    def log(self) -> Log:
        return self.copy.log


class History(simulated.World):
    """Successive leaders of one partition.

    Clean: a record is shown once all replicas have it, so that any leader has it.  Otherwise one
    other replica is enough, and a shown record may be lost.  A node of the old kind asks where its
    last epoch ended before it fetches; the others learn that from Fetch.
    """

    def __init__(self, seed: str, folder: Path, clean: bool) -> None:
        super().__init__(seed)
        self.clean = clean
        self.nodes = [Node(folder / f"{n}" / "t-0") for n in range(3)]
        self.old = self.rng.sample(self.nodes, 1)
        self.epoch = -1
        self.shown: list[bytes] = []
        self.elect()

    def elect(self) -> None:
        self.epoch += self.rng.choice((1, 1, 3))
        self.leader = self.rng.choice(self.nodes)
        handle_of(self.leader.log).lead(self.epoch)
        others = [node for node in self.nodes if node is not self.leader]
        self.in_sync = others if self.clean else self.rng.sample(others, 1)
        for node in self.nodes:
            node.parted = True
            node.fetched.clear()
        self.note(self)

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 5)):
            self.leader.log.append(self.rng.randbytes(self.rng.randrange(300)))

    def delete(self) -> None:
        log = self.leader.log
        log.delete_before(self.rng.randint(log.start_offset, log.high_watermark))

    def step(self, node: Node) -> bool:
        """Do one request; returns whether nothing is left to do."""
        if node is self.leader:
            return True
        now = node.copy.now()
        if node in self.old and node.parted and now.last_epoch >= 0:
            told = EpochEnd(*self.leader.log.epoch_end(now.last_epoch))
            node.parted = told.epoch not in (now.last_epoch, -1)
            node.copy.do(told)
            return False
        answer = self.answer(node, now)
        action = node.copy.do(answer, now.log_end)
        if isinstance(action, Place):
            log = self.leader.log
            node.copy.do(placed(log.start_offset, log.end_offset, node.copy.now()))
        return isinstance(action, Append) and action.records is None

    def answer(self, node: Node, asked: Copied) -> Action | EpochEnd:
        """The leader's answer to a Fetch, by Kafka's rules."""
        log = self.leader.log
        if asked.last_epoch >= 0 and node not in self.old:
            epoch, end = log.epoch_end(asked.last_epoch)
            if end < 0:
                return Place()
            if epoch < asked.last_epoch or end < asked.log_end:
                return fetched(row(diverging_epoch={"epoch": epoch, "end_offset": end}))
        if not log.start_offset <= asked.log_end <= log.end_offset:
            return Place()
        self.leader.fetched[node] = asked.log_end
        self.show()
        records = log.read_batches(asked.log_end, self.rng.choice((1, 4096)), "log_end")
        return fetched(
            row(
                records=records,
                high_watermark=log.high_watermark,
                log_start_offset=log.start_offset,
            )
        )

    def show(self) -> None:
        """Show what all in-sync replicas have."""
        fetched_by = self.leader.fetched
        if all(node in fetched_by for node in self.in_sync):
            until = min(fetched_by[node] for node in self.in_sync)
            handle_of(self.leader.log).show_until(until)

    def converge(self) -> None:
        """Step until all have the leader's records and high watermark."""
        log = self.leader.log
        for _ in range(200):
            done = [self.step(node) for node in self.nodes]
            ends = {node.copy.now().high_watermark for node in self.nodes}
            if all(done) and ends == {log.end_offset}:
                return
        raise AssertionError(f"it never ends: {self!r}")

    def __repr__(self) -> str:
        told = [
            f"{'leader' if node is self.leader else 'old' if node in self.old else 'new'}"
            f" {node.copy.now()} {[tuple(e) for e in node.log.epochs]}"
            for node in self.nodes
        ]
        return f"epoch {self.epoch}: " + "; ".join(told)

    def check(self) -> None:
        """Replicas are equal where they overlap; shown records are at their offsets."""
        log = self.leader.log
        start, end = max(node.log.start_offset for node in self.nodes), log.end_offset
        whole = batches_in(self.leader.folder, start)
        for node in self.nodes:
            assert (node.log.end_offset, node.log.high_watermark) == (end, end)
            assert batches_in(node.folder, start) == whole
            assert node.log.verify().clean
        if self.clean:
            kept = self.shown[start:]
            assert [record.value for record in log[start : start + len(kept)]] == kept
        self.shown = [b"" for _ in range(start)] + [one.value for one in log[start:end]]

    def close(self) -> None:
        for node in self.nodes:
            node.log.close()


@pytest.fixture
def histories(tmp_path: Path) -> Iterator[list[History]]:
    made: list[History] = []
    yield made
    for one in made:
        one.close()


def test_a_refused_partition_is_asked_for_soon_and_then_more_and_more_rarely() -> None:
    rests_s = [rest_s(refused, 1.0) for refused in range(1, 10)]
    assert rests_s == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert rest_s(10**9, 1.0) == 1.0
    assert rest_s(1, 0.001) == 0.001


def play(history: History) -> None:
    rng = history.rng
    for _ in range(rng.randrange(4, 30)):
        what = rng.random()
        if what < 0.4:
            history.append()
        elif what < 0.8:
            history.step(rng.choice(history.nodes))
        elif what < 0.9:
            history.delete()
        else:
            history.elect()
            if rng.random() < 0.3:
                history.converge()
                history.check()
    history.converge()
    history.check()


@pytest.mark.explore
@pytest.mark.parametrize("clean", [True, False])
def test_histories(tmp_path: Path, histories: list[History], clean: bool) -> None:
    """In the end all equal the leader, and no shown record is lost as long as only replicas that
    have it are elected."""

    def made(seed: str, folder: Path) -> History:
        histories[:] = [History(seed, folder, clean)]
        return histories[0]

    simulate = simulation(made, play, History.close)
    for number in rounds(30):
        simulate(f"{SEED}-{number}-{clean}", tmp_path / f"{number}")
