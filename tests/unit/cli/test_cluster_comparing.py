"""`kafkalog cluster check` on replicas that were compacted at different times: real logs, and what
is read from them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.batch.control import marker_batch
from kafkalog.batch.walk import whole_batches
from kafkalog.cli.cluster.comparing import Comparing, Copy
from kafkalog.client.calls.copies import CONTROL, Batch
from kafkalog.clock import ManualClock
from kafkalog.types import TopicPartition
from tests.support import batches
from tests.unit.clean.history import RETENTION_MS, History

TP = TopicPartition("t", 0)


def stored(log: kafkalog.Log, start: int = 0) -> list[Batch]:
    """The batches of a log's files that end at or after an offset."""
    found = []
    for path in sorted(Path(log.path).glob("*.log")):
        for batch, data in whole_batches(path.read_bytes()):
            first, control = int(batch.base_offset), bool(batch.attributes & CONTROL)
            last = first + int(batch.last_offset_delta)
            if last >= start:
                found.append(Batch(first, last, int(batch.record_count), control, bytes(data)))
    return found


def compared(
    *replicas: Iterable[Batch], start: int = 0, end: int = 1 << 40, compacted: bool = True,
    most: int = 100, further: Iterable[Batch] = (),
) -> Comparing:  # fmt: skip
    """`further`: batches behind those that are compared."""
    found = Comparing(compacted, most)
    found.compare([Copy(n, TP, iter(some), start, end) for n, some in enumerate(replicas, 1)])
    found.explain_all(TP, further)
    found.finish()
    return found


class Replicas:
    """A random log, and followers that are compacted at times of their own."""

    def __init__(self, home: Path, rng: random.Random, count: int = 2) -> None:
        self.leader = History(home / "leader-0", rng)
        self.clocks = [ManualClock() for _ in range(count)]
        self.followers = [
            kafkalog.Log(home / f"follower{n}-0", config=self.leader.config, clock=clock)
            for n, clock in enumerate(self.clocks)
        ]

    def follow(self) -> None:
        for log in self.followers:
            for batch in stored(self.leader.log, log.end_offset):
                log.append_as_follower(batch.data)

    def close(self) -> None:
        for log in (self.leader.log, *self.followers):
            log.close()


@pytest.mark.parametrize("number", range(3))
def test_no_alarm_while_replicas_are_compacted_in_turn(
    number: int, rng: random.Random, tmp_path: Path
) -> None:
    """Records, tombstones, markers and batches go, and are rewritten, on one replica after another;
    producers, transactions and five codecs; also with a start within a batch."""
    draw = random.Random(rng.getrandbits(32) + number)
    replicas = Replicas(tmp_path, draw)
    history, missing = replicas.leader, 0
    for _ in range(8):
        for _ in range(30):
            history.step()
        replicas.follow()
        for log, clock in zip(replicas.followers, replicas.clocks, strict=True):
            clock.advance(draw.randrange(2 * RETENTION_MS))
            if draw.random() < 0.6:
                log.compact()
        if draw.random() < 0.3:
            history.log.roll()
            history.log.compact()
        logs = (history.log, *replicas.followers)
        start = draw.choice((0, draw.randrange(history.log.end_offset)))
        found = compared(*(stored(log, start) for log in logs), start=start, most=10_000)
        assert (found.different, found.differences, found.unchecked) == (0, [], 0)
        missing += found.missing
    assert missing > 0
    replicas.close()


def test_a_lost_record_is_found_in_a_compacted_topic(rng: random.Random, tmp_path: Path) -> None:
    """The last record of a key, lost on one replica, while both others are compacted."""
    replicas = Replicas(tmp_path, rng)
    history = replicas.leader
    for _ in range(60):
        history.step()
    history.log.append(b"v", key=b"precious", timestamp_ms=5_000)
    for _ in range(60):
        history.step()
    replicas.follow()
    for log in replicas.followers:
        log.roll()
        log.compact()
    others = [stored(log) for log in replicas.followers]
    for some in (stored(history.log), others[0]):
        lost = [one for one in some if b"precious" not in one.data]
        assert len(lost) == len(some) - 1
        found = compared(others[1], lost)
        assert found.different == 1
        (told,) = found.differences
        assert told["nodes"]["1"]["key"] == '"precious"'
        assert told["nodes"]["2"] is None
    replicas.close()


# ---- single batches ---------------------------------------------------------------------------


def batch(
    at: int,
    *rows: tuple[str, str | None],
    producer: int = -1,
    epoch: int = 0,
    leader_epoch: int = 0,
) -> Batch:
    """A batch of keys and values at an offset; in a transaction with a producer."""
    given = producer >= 0
    made = batches.batch(
        [batches.Row(None if v is None else v.encode(), k.encode(), 5_000) for k, v in rows],
        producer_id=producer, producer_epoch=epoch if given else -1,
        base_sequence=at if given else -1, transactional=given,
    )  # fmt: skip
    return _placed(at, made, leader_epoch)


def marker(
    at: int, producer: int, commit: bool, now_ms: int = 5_000, coordinator: int = 0
) -> Batch:
    return _placed(at, marker_batch(producer, 0, commit, coordinator, now_ms), 0)


def _placed(at: int, made: bytes, leader_epoch: int) -> Batch:
    data = batches.seal(made[21:], at, leader_epoch)
    ((one, _),) = whole_batches(data)
    control = bool(one.attributes & CONTROL)
    return Batch(at, at + int(one.last_offset_delta), int(one.record_count), control, data)


A, A2, B = batch(0, ("a", "1")), batch(1, ("a", "2")), batch(2, ("b", "1"))
IN = batch(0, ("a", "1"), producer=7)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([A], [batch(0, ("a", "x"))]),
        ([A], [batch(0, ("b", "1"))]),
        ([A], [batch(0, ("a", None))]),
        ([A], [batch(0, ("a", "1"), leader_epoch=1)]),
        ([A], [IN]),
        ([IN], [batch(0, ("a", "1"), producer=8)]),
        ([IN], [batch(0, ("a", "1"), producer=7, epoch=1)]),
        ([marker(0, 7, True)], [marker(0, 7, False)]),
        ([marker(0, 7, True)], [marker(0, 8, True)]),
        ([marker(0, 7, True)], [marker(0, 7, True, now_ms=5_001)]),
        ([marker(0, 7, True)], [marker(0, 7, True, coordinator=1)]),
        # A record that nothing supersedes.
        ([A], []),
        ([A, B], [B]),
        ([A, A2, B], [A, B]),
        ([IN, marker(1, 7, True)], [marker(1, 7, True)]),
        # The superseding transaction was aborted.
        ([A, batch(1, ("a", "2"), producer=7), marker(2, 7, False)], [marker(2, 7, False)]),
        # Another producer's transaction was aborted; or this one's next.
        ([IN, marker(1, 8, False)], [marker(1, 8, False)]),
        ([IN, marker(1, 7, True), marker(2, 7, False)], [marker(1, 7, True), marker(2, 7, False)]),
    ],
)  # fmt: skip
def test_a_difference_is_found(one: list[Batch], other: list[Batch]) -> None:
    for pair in ((one, other), (other, one)):
        assert compared(*pair).different == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([A, A2], [A2]),
        ([batch(0, ("a", "1"), ("b", "1")), batch(2, ("b", "2"))], [A, batch(2, ("b", "2"))]),
        ([A, batch(1, ("a", None))], []),  # a tombstone, and what it removed
        ([IN, marker(1, 7, False)], []),
        ([IN, marker(1, 7, True), batch(2, ("a", "2"))], [batch(2, ("a", "2"))]),
        ([marker(0, 7, True)], []),
        ([A, batch(1, ("a", "2"), producer=7), marker(2, 7, True)],
         [batch(1, ("a", "2"), producer=7), marker(2, 7, True)]),
        # The record that supersedes it is missing, too, and superseded itself.
        ([A, A2, batch(2, ("a", "3"))], [batch(2, ("a", "3"))]),
    ],
)  # fmt: skip
def test_compacted_records_are_no_difference(one: list[Batch], other: list[Batch]) -> None:
    for pair in ((one, other), (other, one), (one, other, other)):
        found = compared(*pair)
        assert (found.different, found.differences) == (0, [])


def test_without_compaction_every_absence_is_a_difference() -> None:
    assert compared([A, A2], [A2], compacted=False).different == 1


def test_a_record_superseded_behind_the_end() -> None:
    """Records that came while the replicas were read."""
    assert compared([A], [], end=1).different == 1
    assert compared([A], [], end=1, further=[A2]).different == 0
    assert compared([A], [], end=1, further=[B]).different == 1


def test_too_many_absences_are_counted() -> None:
    """And not held against the replica."""
    some = [batch(n, (f"k{n}", "1")) for n in range(5)]
    found = compared(some, [], most=3)
    assert (found.different, found.missing, found.unchecked) == (3, 2, 2)
