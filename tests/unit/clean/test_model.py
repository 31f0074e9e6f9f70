"""Random histories: compaction leaves the records that a short model predicts."""

import random

import pytest

from kafkalog.log.compaction import Limits
from tests.unit.clean.history import LOST, RETENTION_MS, History, read, shown

SEEDS = range(8)


@pytest.mark.parametrize("number", SEEDS)
def test_a_random_history(number, rng, tmp_path):
    """Records, offsets, lookups, producers and transactions, over many compactions."""
    history = History(tmp_path / "topic-0", random.Random(rng.getrandbits(32) + number))
    for _ in range(4):
        for _ in range(40):
            history.step()
        before = history.producers()
        history.reopen(history.rng.choice(LOST))  # so that compaction is the first to use the files
        history.compact(lambda: history.log.compact().end_offset)
        history.check()
        assert history.producers() == before
        history.reopen(history.rng.choice(LOST))
        history.check()
        assert history.producers() == before
    history.log.close()


def test_once_compacted_nothing_changes(rng, tmp_path):
    """A second round over the same records, before any horizon, writes nothing."""
    history = History(tmp_path / "topic-0", rng)
    for _ in range(80):
        history.step()
    while history.open_transactions:
        history.end_transaction()
    history.log.roll()
    history.compact(lambda: history.log.compact().end_offset)
    for _ in range(4):  # segments that became small are merged until no two fit into one
        again = history.log.compact()
        assert again.records_after == again.records_before
    inodes = {p.name: p.stat().st_ino for p in history.path.glob("*.log")}
    history.log.compact()
    assert {p.name: p.stat().st_ino for p in history.path.glob("*.log")} == inodes
    history.check()
    history.log.close()


def test_tombstones_and_markers_go_in_their_time(tmp_path):
    """Kept for delete.retention.ms after the first compaction that saw them."""
    history = History(tmp_path / "topic-0", random.Random(1))
    log = history.log
    log.append(b"1", key=b"a", timestamp_ms=5_000)
    log.append(None, key=b"a", timestamp_ms=5_001)
    log.append(b"2", key=b"b", timestamp_ms=5_002)
    log.roll()
    log.compact()
    assert [r[0] for r in read(log)] == [1, 2]
    history.clock.advance(RETENTION_MS - 1)
    log.compact()
    assert [r[:2] for r in read(log)] == [(1, 5_001), (2, 5_002)]
    history.clock.advance(1)
    log.compact()
    assert [r[0] for r in read(log)] == [2]
    log.close()


@pytest.mark.parametrize("map_bytes", [16 * 24, 40 * 24, 1 << 20])
def test_a_map_that_is_too_small_takes_rounds(map_bytes, rng, tmp_path):
    """The result is the same as of one round; a batch with more keys than the map still fits."""
    history = History(tmp_path / "topic-0", rng)
    history.keys = [b"key-%d" % i for i in range(300)]
    for _ in range(40):
        history.append()
    while history.open_transactions:
        history.end_transaction()
    history.log.roll()

    def act():
        done = history.log.compact(Limits(map_bytes=map_bytes))
        assert (done.rounds > 1) == (map_bytes < 1 << 20)
        assert done.end_offset == history.log.segments[-1].base_offset
        assert done.records_after == len(read(history.log))
        return done.end_offset

    before = len(history.left)
    history.compact(act)
    assert len(history.left) < before
    history.check()
    history.log.close()


def test_records_without_keys_go(tmp_path):
    """They can only be older than the policy: a compacted topic refuses them."""
    path = tmp_path / "topic-0"
    history = History(path, random.Random(1), **{"cleanup.policy": "delete"})
    history.log.append_many([b"1", b"2", b"3"], keys=[b"a", None, b"c"])
    history.log.roll()
    history.log.close()
    history.config["cleanup.policy"] = "compact"
    history.log = history.open()
    history.log.compact()
    assert [(r[0], r[2]) for r in read(history.log)] == [(0, b"a"), (2, b"c")]
    history.log.close()


def test_only_eligible_segments_are_compacted(tmp_path):
    """Not the active segment, not from an open transaction on, not records that are too young."""
    history = History(tmp_path / "topic-0", random.Random(1), **{"min.compaction.lag.ms": 10_000})
    log, clock = history.log, history.clock
    for i in range(10):
        log.append(b"%d" % i, key=b"a", timestamp_ms=clock.now_ms())
        if i % 2:
            log.roll()
        clock.advance(3_000)
    done = log.compact()
    # Segments [0, 2), [2, 4), ... with times 0 and 3 s, 6 and 9 s, ...; it is now 30 s.
    assert done.end_offset == 6
    assert [r[0] for r in read(log)] == [5, 6, 7, 8, 9]
    log.close()


def test_an_uncompacted_history_reads_as_its_model(rng, tmp_path):
    """A test of the judge: a history that was never compacted reads as its model."""
    history = History(tmp_path / "topic-0", rng)
    for _ in range(60):
        history.step()
    assert read(history.log) == shown(history.left)
    history.left.pop(len(history.left) // 2)
    with pytest.raises(AssertionError):
        history.check()
    history.log.close()
