"""How followers affect a leader's log: its cleaning, its disk and its end."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.unit.plane.peer import ALL, Peer, Served, one
from tests.unit.plane.test_followers import follow, in_sync, lead

COUNT = 40
COPIED = 17
SMALL = {"segment.bytes": 1_000, "file.delete.delay.ms": 0}


def led(served: Served, **config: object) -> Any:
    """A log with several segments, none of which a follower has copied."""
    log = served.put(config={**SMALL, **config})
    lead(served, in_sync(2))
    for number in range(COUNT):
        log.append(b"%0100d" % number, key=b"k", timestamp_ms=1_000 + number)
    assert (log.high_watermark, len(log.segments) > 5) == (0, True)
    return log


def offsets(log: Any) -> list[int]:
    """The offsets of all batches, visible or not; each holds one record."""
    found: list[int] = []
    at = log.start_offset
    while raw := log.read_batches(at, isolation="log_end"):
        found += [header.base_offset for header in batches.headers(raw)]
        at = found[-1] + 1
    return found


@pytest.mark.parametrize("why", ["retention.ms", "retention.bytes"])
def test_retention_keeps_uncopied_records(served: Served, peer: Peer, why: str) -> None:
    log = led(served, **{why: 1})
    assert (log.apply_retention(), log.start_offset) == (None, 0)
    follow(peer, COPIED)
    log.apply_retention()
    assert 0 < log.start_offset <= COPIED
    assert offsets(log) == list(range(log.start_offset, COUNT))
    assert follow(peer, COPIED).records, "it goes on where it was"
    follow(peer, COUNT)
    log.apply_retention()
    assert log.start_offset > COPIED


def test_compaction_keeps_uncopied_records(served: Served, peer: Peer) -> None:
    """Records that may still be truncated must not replace earlier ones."""
    log = led(served, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
    log.compact()
    assert offsets(log) == list(range(COUNT))
    follow(peer, COPIED)
    log.compact()
    left = offsets(log)
    assert left[0] > 0 and left[-(COUNT - COPIED) :] == list(range(COPIED, COUNT))
    follow(peer, COUNT)
    log.compact()
    assert len(offsets(log)) < len(left)
    assert log.verify().clean


def test_a_full_disk_shows_nothing_that_is_not_there(
    served: Served, peer: Peer, faults: Any, wait_until: Any
) -> None:
    log = served.put()
    lead(served, in_sync(2))
    writer = served.connect()
    writer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: log.end_offset == 1, "it is written")
    faults.kl_io_fail(b"pwrite", 1, 28, 1, 0)
    other = served.connect()
    assert other.produce_one(one(b"no room" * 99), acks=ALL).error_code != 0
    found = follow(peer, 0)
    assert (found.error_code, found.high_watermark, bool(found.records)) == (0, 0, True)
    follow(peer, 1)
    (answer,) = writer.receive().responses[0].partition_responses
    assert (answer.error_code, log.high_watermark, log.end_offset) == (0, 1, 1)
    faults.kl_io_reset()
    other.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: log.end_offset == 2, "there is room again")
    follow(peer, 2)
    (answer,) = other.receive().responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (0, 1)


def test_an_offline_log_answers_producers_and_followers(
    served: Served, peer: Peer, faults: Any, wait_until: Any
) -> None:
    log = served.put()
    lead(served, in_sync(2))
    writer = served.connect()
    writer.send_produce({("t", 0): one()}, acks=ALL)
    wait_until(lambda: log.end_offset == 1, "it is written")
    peer.send_fetch({("t", 0): 1}, version=11, replica_id=2, max_wait_ms=600_000)
    wait_until(lambda: served.parked() == 1, "the follower waits")  # the producer has its answer
    (answer,) = writer.receive().responses[0].partition_responses
    assert answer.error_code == 0
    writer.send_produce({("t", 0): one()}, acks=ALL)
    (found,) = peer.receive().responses[0].partitions
    assert (found.error_code, bool(found.records)) == (0, True)
    faults.kl_io_fail(b"fdatasync", 1, 5, 1, 0)
    with pytest.raises(OSError):
        log.flush()
    (answer,) = writer.receive().responses[0].partition_responses
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert follow(peer, 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
