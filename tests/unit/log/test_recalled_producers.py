"""A snapshot keeps each producer's last batch; an open finds the four before it in the log.

A client that sent five batches and got no answer sends them all again to the node that returns.
"""

import random
from collections import defaultdict
from typing import NamedTuple

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.log.compaction import Limits
from tests.support import batches
from tests.support.batches import Row

REMEMBERED = 5
"""KL_PRODUCER_BATCHES of producers.h."""

SEGMENTS = 6
"""How many segments are searched: SEGMENTS_MAX of recall.c."""


class Sent(NamedTuple):
    """A batch whose producer got no answer."""

    data: bytes
    offset: int


def make(sequence: int, producer: int = 1, epoch: int = 0, size: int = 1, records: int = 1,
         transactional: bool = False, key: bytes | None = None) -> bytes:  # fmt: skip
    rows = [Row(b"v" * size, key, timestamp_ms=5)] * records
    return batches.batch(rows, producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
                         transactional=transactional)  # fmt: skip


def send(log: kafkalog.Log, data: bytes) -> Sent:
    return Sent(data, log.append_batches(data).base_offset)


def answered(log: kafkalog.Log, sent: list[Sent]) -> None:
    """Check that each is answered as a duplicate, and nothing is stored."""
    end = log.end_offset
    assert [log.append_batches(one.data).base_offset for one in sent] == [s.offset for s in sent]
    assert log.end_offset == end


def refused(log: kafkalog.Log, sent: Sent) -> None:
    with pytest.raises(kafkalog.errors.OutOfOrderSequenceNumber):
        log.append_batches(sent.data)


def test_all_five_are_known_after_a_restart(log_dir):
    with kafkalog.Log(log_dir) as log:
        sent = [send(log, make(i)) for i in range(7)]
        known = log.producers
    with kafkalog.Log(log_dir) as log:
        assert log.producers == known
        refused(log, sent[1])
        answered(log, sent[2:])
        refused(log, Sent(make(8), 8))
        sent.append(send(log, make(7)))
        answered(log, sent[3:])
        refused(log, sent[2])


def test_producers_that_take_turns(log_dir):
    sent = defaultdict(list)
    with kafkalog.Log(log_dir) as log:
        for i in range(6):
            for producer in (1, 2):
                sent[producer].append(send(log, make(3 * i, producer, records=3)))
            log.append(b"of nobody")
    with kafkalog.Log(log_dir) as log:
        for producer, mine in sent.items():
            answered(log, mine[1:])
            refused(log, mine[0])
            send(log, make(18, producer, records=3))


@pytest.mark.parametrize("size", [1, 700, 20_000])
def test_many_producers_with_distant_batches(log_dir, size):
    sent = defaultdict(list)
    with kafkalog.Log(log_dir) as log:
        for _ in range(100):
            log.append(b"v" * size)
        for i in range(6):
            for producer in range(40):
                sent[producer].append(send(log, make(i, producer, size=size)))
    with kafkalog.Log(log_dir) as log:
        for mine in sent.values():
            answered(log, mine[1:])


@pytest.mark.parametrize("between", [0, 2, 5])
def test_a_roll_between_them_and_the_close(log_dir, between):
    with kafkalog.Log(log_dir) as log:
        sent = [send(log, make(i)) for i in range(between)]
        log.roll()
        sent += [send(log, make(i)) for i in range(between, 5)]
    for _ in range(2):
        with kafkalog.Log(log_dir) as log:
            answered(log, sent)


def test_each_in_a_segment_of_its_own(log_dir):
    with kafkalog.Log(log_dir, config={"segment.bytes": 4096}) as log:
        sent = [send(log, make(i, size=3000)) for i in range(6)]
        log.roll()
        assert len(log.segments) == 7
    with kafkalog.Log(log_dir) as log:
        answered(log, sent[1:])


def test_after_a_cut(log_dir):
    """As on a follower: the last roll's snapshot, and batches found before and after it."""
    with kafkalog.Log(log_dir) as log:
        sent = [send(log, make(i)) for i in range(4)]
        log.roll()
        sent += [send(log, make(i)) for i in range(4, 9)]
        log.truncate(6)
        answered(log, sent[1:6])
        refused(log, sent[0])
        log.truncate(4)
        answered(log, sent[:4])
        log.truncate(3)
        answered(log, sent[:3])
    with kafkalog.Log(log_dir) as log:
        answered(log, sent[:3])
        assert send(log, make(3)).offset == 3


def test_in_a_transaction_and_behind_its_end(log_dir):
    with kafkalog.Log(log_dir) as log:
        sent = [send(log, make(i, transactional=True)) for i in range(2)]
        log.append_marker(1, 0, commit=True)
        sent += [send(log, make(i, transactional=True)) for i in range(2, 4)]
        other = [send(log, make(i, 2, transactional=True)) for i in range(3)]
        log.append_marker(2, 0, commit=False)
        stable = log.last_stable_offset
    with kafkalog.Log(log_dir) as log:
        answered(log, sent)
        answered(log, other)
        assert log.last_stable_offset == stable == 3
        log.append_marker(1, 0, commit=True)
        assert log.last_stable_offset == log.end_offset


def test_of_an_older_epoch_none_is_known(log_dir):
    with kafkalog.Log(log_dir) as log:
        old = [send(log, make(i)) for i in range(3)]
        new = [send(log, make(i, epoch=1)) for i in range(2)]
        marked = [send(log, make(i, 2, transactional=True)) for i in range(2)]
        log.append_marker(2, 1, commit=False)
    with kafkalog.Log(log_dir) as log:
        answered(log, new)
        for one in old + marked:
            with pytest.raises(errors.InvalidProducerEpoch):
                log.append_batches(one.data)


def test_compacted_batches_are_not_known(log_dir):
    with kafkalog.Log(log_dir, config={"cleanup.policy": "compact"}) as log:
        sent = [send(log, make(i, key=b"aaaba"[i : i + 1])) for i in range(5)]
        log.roll()
        log.compact(Limits())
        assert [record.offset for record in log] == [3, 4]
    with kafkalog.Log(log_dir) as log:
        answered(log, sent[3:])
        refused(log, sent[2])
        send(log, make(5, key=b"a"))


def test_deleted_batches_are_not_known(log_dir):
    with kafkalog.Log(log_dir) as log:
        sent = [send(log, make(i)) for i in range(3)]
        log.roll()
        sent += [send(log, make(i)) for i in range(3, 5)]
        log.delete_before(3)
    with kafkalog.Log(log_dir) as log:
        answered(log, sent[3:])
        refused(log, sent[2])
        log.roll()
        log.delete_before(5)
    with kafkalog.Log(log_dir) as log:  # the batch in the snapshot stays
        answered(log, sent[4:])
        refused(log, sent[3])


def test_batches_that_do_not_follow_each_other_are_left_out(log_dir):
    """A log that other software wrote may contain anything."""
    with kafkalog.Log(log_dir) as log:
        send(log, make(0))
        send(log, make(0, 2))
    path = log_dir / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    (first, _) = batches.headers(bytes(data))
    oldest = Sent(bytes(data[: first.batch_bytes]), 0)
    for sequence in (5, 6):
        data += (sequence - 3).to_bytes(8, "big") + make(sequence)[8:]
    path.write_bytes(data)
    for kept in [*log_dir.glob("*.snapshot"), *log_dir.glob("*.index")]:
        kept.unlink()
    with kafkalog.Log(log_dir) as log:
        assert log.end_offset == 4
    with kafkalog.Log(log_dir) as log:
        answered(log, [Sent(make(5), 2), Sent(make(6), 3)])
        refused(log, oldest)


def test_a_damaged_header_leaves_the_last_one(log_dir):
    """The open does not fail; a read at that place reports it."""
    with kafkalog.Log(log_dir) as log:
        sent = [send(log, make(i)) for i in range(5)]
        log.roll()
    path = log_dir / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    (*_, third, _, _) = batches.headers(bytes(data))
    data[third.pos + 8 : third.pos + 12] = b"\x7f\xff\xff\xff"
    path.write_bytes(data)
    with kafkalog.Log(log_dir) as log:
        answered(log, sent[4:])
        refused(log, sent[3])
        send(log, make(5))


def test_a_reader_next_to_a_writer(log_dir):
    with kafkalog.Log(log_dir) as log:
        for i in range(5):
            send(log, make(i))
    with kafkalog.Log(log_dir) as log, kafkalog.Log(log_dir, mode="r") as reader:
        assert reader.producers == log.producers


def wanted(history: list[tuple[int, Sent]], reach: int) -> list[Sent]:
    """The newest five of the last epoch, from offset `reach` on; at least the last one."""
    newest = [sent for epoch, sent in history if epoch == history[-1][0]][-REMEMBERED:]
    return [sent for sent in newest if sent.offset >= reach] or newest[-1:]


@pytest.mark.parametrize("seed", range(6))
def test_producer_state_survives_a_reopen(log_dir, seed):
    chance = random.Random(seed)
    history: dict[int, list[tuple[int, Sent]]] = defaultdict(list)
    sequences: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    log = kafkalog.Log(log_dir)
    for _ in range(150):
        what, producer = chance.random(), chance.randrange(4)
        epoch, sequence = sequences[producer]
        if what < 0.75:
            records = chance.randrange(1, 4)
            data = make(sequence, producer, epoch, chance.choice((1, 900, 9_000)), records)
            history[producer].append((epoch, send(log, data)))
            sequences[producer] = epoch, sequence + records
        elif what < 0.8 and sequence:
            sequences[producer] = epoch + 1, 0
        elif what < 0.82:
            log.roll()
        elif what < 0.9:
            log.append(b"x" * chance.choice((1, 9_000)))
        else:
            known = log.producers
            log.close()
            log = kafkalog.Log(log_dir)
            assert log.producers == known
            for mine in history.values():
                answered(log, wanted(mine, log.segments[-SEGMENTS:][0].base_offset))
    log.close()
