"""A fetch session looks only at partitions that may have news, not at all that it has."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkalog.log.log import handle_of
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.batches import Row, batch
from tests.unit.plane.peer import Peer, Served, one, topic_id
from tests.unit.plane.test_sessions import again, begin, stats, told

NOW_MS = 1_700_000_000_000


def looks(served: Served) -> int:
    """The number of times that sessions have looked at a partition."""
    return int(stats(served).session_looks)


@pytest.fixture
def parked(served, wait_until):
    return lambda count=1: wait_until(lambda: served.parked() == count, f"{count} parked")


@pytest.mark.parametrize("count", [10, 300, 10_000])
def test_a_wake_looks_at_changed_partitions(served, peer, parked, count):
    served.put(partitions=10)
    for partition in range(10, count):
        served.reactor.put_empty("t", partition, leader_epoch=0, durable=False)
    session = begin(peer, {("t", p): 0 for p in range(count)}).session_id
    begun = looks(served)
    assert begun == count
    data, other = one(), served.connect()
    for epoch, partition in enumerate((3, 7, 3), start=1):
        offset = served.logs["t", partition].end_offset
        peer.send_fetch({}, session_id=session, session_epoch=2 * epoch - 1, max_wait_ms=60_000)
        parked()
        other.produce_one(data, ("t", partition))
        assert told(peer.receive()) == [(partition, len(data))]
        # The reader confirms the offset: the session looks at the partition, which is no news.
        assert told(again(peer, session, 2 * epoch, {("t", partition): offset + 1})) == []
        assert looks(served) - begun == 2 * epoch


def test_changes_between_fetches_are_answered_in_order(served, peer):
    served.put(partitions=20)
    session = begin(peer, {("t", p): 0 for p in range(20)}).session_id
    begun, data = looks(served), one()
    for partition in (9, 2, 9, 17):
        served.connect().produce_one(data, ("t", partition))
    served.logs["t", 4].append(b"v")
    served.logs["t", 4].delete_before(1)
    news = told(again(peer, session, 1))
    assert [p for p, _ in news] == [9, 2, 17, 4]
    assert [size for _, size in news[:3]] == [2 * len(data), len(data), len(data)]
    assert looks(served) - begun == 4


def test_unread_partitions_stay_due(served, peer):
    """Even if the client does not mention it: the request is the same again."""
    served.put(partitions=9)
    peer.produce_one(one(), ("t", 5))
    session = begin(peer, {("t", p): 0 for p in range(9)}).session_id
    for epoch in (1, 2):
        assert told(again(peer, session, epoch)) == [(5, len(one()))]
    assert looks(served) == 9 + 2
    assert told(again(peer, session, 3, {("t", 5): 1})) == []
    assert told(again(peer, session, 4)) == []
    assert looks(served) == 9 + 3


@pytest.mark.parametrize("epoch", [1, -1], ids=["a session", "none"])
def test_every_byte_counts_that_a_partition_gets(served, peer, parked, epoch):
    """While a fetch waits for many bytes, a partition may grow more than once."""
    served.put(partitions=2)
    wanted = {("t", 0): 0, ("t", 1): 0}
    session = begin(peer, wanted).session_id if epoch > 0 else 0
    size = len(one())
    peer.send_fetch(
        {} if epoch > 0 else wanted, session_id=session, session_epoch=epoch,
        max_wait_ms=60_000, min_bytes=4 * size,
    )  # fmt: skip
    parked()
    other = served.connect()
    for partition in (0, 0, 1):
        other.produce_one(one(), ("t", partition))
    assert served.parked() == 1
    other.produce_one(one(), ("t", 0))
    assert told(peer.receive()) == [(0, 3 * size), (1, size)]


@pytest.mark.parametrize("epoch", [1, -1], ids=["a session", "none"])
def test_a_new_leader_epoch_ends_waiting_fetches(served, peer, parked, epoch):
    """Its reader uses an old epoch, and learns that immediately, without any record."""
    log = served.put()
    wanted = {("t", 0): {"fetch_offset": 0, "current_leader_epoch": 0}}
    session = begin(peer, wanted).session_id if epoch > 0 else 0
    peer.send_fetch(
        {} if epoch > 0 else wanted, session_id=session, session_epoch=epoch, max_wait_ms=60_000
    )
    parked()
    served.reactor.put_partition(handle_of(log), leader_epoch=3, durable=False)
    found = peer.receive().responses[0].partitions[0]
    assert found.error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", [9, 11, 13])
def test_changes_of_a_topic_are_seen(served, peer, version):
    """A new codec, or a new id."""
    served.put()
    session = begin(peer, {("t", 0): 0}, version).session_id
    other = topic_id("other") if version == 13 else topic_id("t")
    served.reactor.put_topic("t", other, zstd=True)
    news = again(peer, session, 1, version=version)
    wanted = {9: [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE], 11: [], 13: [ErrorCode.UNKNOWN_TOPIC_ID]}
    assert [p.error_code for t in news.responses for p in t.partitions] == wanted[version]


def test_another_isolation_looks_at_all(served, peer):
    """A read_uncommitted consumer reads what a transaction holds back."""
    log = served.put(partitions=2)
    rows = [Row(b"t", None, NOW_MS)]
    log.append_batches(
        batch(rows, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )
    session = begin(peer, {("t", 0): 0, ("t", 1): 0}, isolation_level=1).session_id
    assert told(again(peer, session, 1, isolation_level=1)) == []
    assert [p for p, size in told(again(peer, session, 2)) if size] == [0]
    assert told(again(peer, session, 3, isolation_level=1)) == []
    log.append_marker(7, 0, True, timestamp_ms=NOW_MS)
    assert [p for p, size in told(again(peer, session, 4, isolation_level=1)) if size] == [0]


def test_partitions_removed_between_fetches(served, peer):
    served.put()
    served.put("u", 3)
    session = begin(peer, {("t", 0): 0, **{("u", p): 0 for p in range(3)}}).session_id
    served.remove("u")
    assert told(again(peer, session, 1)) == [(p, 0) for p in range(3)]
    served.put("u", 3)
    assert told(again(peer, session, 2)) == [(p, 0) for p in range(3)]  # available again, and empty
    served.connect().produce_one(one(), ("u", 2))
    assert told(again(peer, session, 3)) == [(2, len(one()))]


def test_a_session_that_is_closed_while_partitions_move(served):
    """No news goes to a closed session."""
    log = served.put(partitions=3)
    for turn in range(30):
        peer = served.connect()
        session = begin(peer, {("t", p): 0 for p in range(3)}).session_id
        again(peer, session, 1, {("t", 0): log.end_offset})
        log.append(b"v")
        if turn % 2:
            again(peer, session, 2, forgotten={"t": [0, 1]})
            log.append(b"v")
        peer.fetch({}, session_id=session, session_epoch=-1)
        log.append(b"v")
        peer.close()
    assert stats(served).sessions == 0 and stats(served).session_partitions == 0


# ---- compared with a full look -------------------------------------------------------------------


class Reader:
    """A consumer with a session, and what it knows about each partition."""

    def __init__(self, peer: Peer, offsets: dict[tuple[str, int], int], epoch: int) -> None:
        self.peer, self.leader_epoch = peer, epoch
        self.offsets = dict(offsets)
        self.known: dict[tuple[str, int], tuple[int, int]] = {}
        self.changed: set[tuple[str, int]] = set()
        self.epoch = 0
        self.session = 0

    def wanted(self, places: Any) -> dict[tuple[str, int], dict[str, int]]:
        known = {"current_leader_epoch": self.leader_epoch}
        return {place: {"fetch_offset": self.offsets[place], **known} for place in sorted(places)}

    def ask(self, **more: Any) -> Any:
        asked = self.wanted(self.offsets if not self.session else self.changed)
        self.changed.clear()
        response = self.peer.fetch(asked, session_id=self.session, session_epoch=self.epoch, **more)
        self.session = response.session_id
        self.epoch += 1
        return response

    def news(self, response: Any) -> dict[tuple[str, int], tuple[int, ...]]:
        """The part of a full answer that is new to this reader."""
        found = {}
        for place, part in parts(response).items():
            ends = (part.high_watermark, part.log_start_offset)
            if part.error_code or part.records or self.known.get(place) != ends:
                found[place] = (part.error_code, *ends, len(part.records))
        return found

    def take(self, response: Any, served: Served) -> None:
        for place, part in parts(response).items():
            self.known[place] = (part.high_watermark, part.log_start_offset)
            headers = list(batches.headers(part.records))
            if headers:
                self.offsets[place] = headers[-1].base_offset + headers[-1].last_offset_delta + 1
            elif part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.offsets[place] = served.logs[place].start_offset
            else:
                continue
            self.changed.add(place)


def parts(response: Any) -> dict[tuple[str, int], Any]:
    return {(t.topic, p.partition_index): p for t in response.responses for p in t.partitions}


def test_a_session_answers_like_a_full_fetch(served, peer):
    """Partitions change at random; each answer is compared with one without a session."""
    draw = random.Random(11)
    served.put("t", 3)
    served.put("u", 2)
    places = sorted(served.logs)
    # The second uses an old version: it loses partitions whose topic's codec is zstd.
    readers = [Reader(served.connect(), dict.fromkeys(places, 0), epoch) for epoch in (-1, 0)]
    producers = iter(range(1, 10_000))
    open_ones: dict[tuple[str, int], int] = {}
    epochs = dict.fromkeys(places, 0)

    def transact(place: tuple[str, int]) -> None:
        if place in open_ones:
            served.logs[place].append_marker(
                open_ones.pop(place), 0, draw.random() < 0.5, timestamp_ms=NOW_MS
            )
        else:
            open_ones[place] = next(producers)
            served.logs[place].append_batches(
                batch([Row(b"t", None, NOW_MS)], producer_id=open_ones[place], producer_epoch=0,
                      base_sequence=0, transactional=True)
            )  # fmt: skip

    def elect(place: tuple[str, int]) -> None:
        epochs[place] += draw.randint(0, 1)
        served.reactor.put_partition(
            handle_of(served.logs[place]), leader_epoch=epochs[place], durable=False
        )

    actions = [
        lambda place: peer.produce_one(one(), place),
        lambda place: peer.produce_one(one(), place),
        transact,
        elect,
        lambda place: served.logs[place].delete_before(
            draw.randint(served.logs[place].start_offset, served.logs[place].end_offset)
        ),
        lambda place: served.reactor.put_topic(place[0], None, zstd=draw.random() < 0.5),
    ]
    seen = set()
    for step in range(300):
        for _ in range(draw.randint(0, 3)):
            draw.choice(actions)(draw.choice(places))
        reader = readers[draw.randrange(2)]
        more = {"version": 9 if reader is readers[1] else 11,
                "isolation_level": int(draw.random() < 0.3)}  # fmt: skip
        truth = peer.fetch(reader.wanted(places), session_id=0, session_epoch=-1, **more)
        expected = reader.news(truth) if reader.session else None
        got = reader.ask(**more)
        told_now = {place: (p.error_code, p.high_watermark, p.log_start_offset, len(p.records))
                    for place, p in parts(got).items()}  # fmt: skip
        if expected is not None:
            assert told_now == expected, step
        seen |= {p.error_code for p in parts(got).values()}
        reader.take(got, served)
    assert {0, int(ErrorCode.FENCED_LEADER_EPOCH), int(ErrorCode.OFFSET_OUT_OF_RANGE),
            int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)} <= seen  # fmt: skip
