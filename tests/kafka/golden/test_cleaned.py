"""Folders that Kafka's cleaner has cleaned: after ours they hold the same records."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.clock import ManualClock
from tests.support import batches, kafka_data, trees
from tests.unit.clean.history import read

CASES = [p for p in kafka_data.readable() if p.case == "compaction"]
CONFIG = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "file.delete.delay.ms": 0}
LONG_MS, SHORT_MS = 10**9, 100
"""delete.retention.ms of c-long and of c-short; nobody waited for the first to pass."""


def retention_ms(partition):
    return SHORT_MS if "short" in partition.topic else LONG_MS


def expected(partition, committed=False):
    rows = kafka_data.expected_records(partition, committed)
    return [(r.offset, r.timestamp_ms, r.key, r.value) for r in rows]


def last_values(rows):
    table = {}
    for offset, _, key, value in rows:
        table[key] = (offset, value)
    return {key: found for key, found in table.items() if found[1] is not None}


@pytest.fixture(params=CASES, ids=kafka_data.ids(CASES))
def partition(request):
    return request.param


def opened(partition, tmp_path, clock):
    """A lone copy without a cleaner checkpoint: all of it is cleaned again."""
    path = trees.copy_tree(partition.path, tmp_path / partition.folder)
    config = {**CONFIG, "delete.retention.ms": retention_ms(partition)}
    return kafkalog.Log(path, config=config, clock=clock)


def test_before_their_horizons_nothing_goes(partition, tmp_path):
    """Kafka left one record a key below the active segment, and so do we; all tombstones and
    markers that it kept are kept."""
    rows = expected(partition)
    clock = ManualClock(min(r[1] for r in rows))
    with opened(partition, tmp_path, clock) as log:
        producers = log.producers
        aborted = log.aborted(0, log.end_offset)
        done = log.compact()
        assert done.end_offset == log.segments[-1].base_offset > 0
        assert read(log) == rows
        assert read(log, isolation="read_committed") == expected(partition, committed=True)
        assert log.producers == producers
        assert {a.last_offset for a in log.aborted(0, log.end_offset)} <= {
            a.last_offset for a in aborted
        }
        report = log.verify(deep=True)
        assert report.clean, report.findings


def test_long_after_them_the_live_records_are_the_same(partition, tmp_path):
    """In the whole log, including the active segment: the last value of each key."""
    rows = expected(partition, committed=True)
    clock = ManualClock(max(r[1] for r in rows) + 10 * LONG_MS)
    with opened(partition, tmp_path, clock) as log:
        log.roll()
        for _ in range(3):
            log.compact()
            clock.advance(2 * LONG_MS)
        left = read(log)
        assert left == read(log, isolation="read_committed")
        assert {k: (o, v) for o, _, k, v in left} == last_values(rows)
        assert len(left) == len(last_values(rows))
        # A transaction is remembered for as long as a batch of it keeps a producer's sequence.
        last = {p.producer_id: p.last_offset for p in log.producers}
        for a in log.aborted(0, log.end_offset):
            assert a.first_offset <= last[a.producer_id] < a.last_offset
        kept = [b for path in sorted(Path(log.path).glob("*.log")) for b in headers(path)]
        empty = [b for b in kept if b.record_count == 0]
        ends = {s.next_offset - 1 for s in log.segments}
        assert all(b.last_offset in {*last.values(), *ends} for b in empty)
        report = log.verify(deep=True)
        assert report.clean, report.findings


def headers(path):
    return list(batches.headers(path.read_bytes()))
