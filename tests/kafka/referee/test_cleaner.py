"""Apache Kafka judges: its log dump reads what we cleaned, and its cleaner, on a copy of the same
folder, leaves the same records."""

import random
import re
import time

import pytest

import kafkalog
from benchmarks.rivals import kafka_cleaner
from tests.support import apache, batches, trees
from tests.unit.clean.history import CONFIG, History, read

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
SEGMENT_BYTES = 1 << 20  # Kafka's minimum
DAY_MS = 86_400_000
"""Kafka's default of delete.retention.ms, which its cleaner uses here."""
HOUR_MS = 3_600_000
OURS = CONFIG | {"segment.bytes": SEGMENT_BYTES, "delete.retention.ms": DAY_MS}


@pytest.fixture(scope="module")
def kafka():
    """Kafka's cleaner in a process."""
    if reason := kafka_cleaner.unavailable():
        pytest.skip(reason)
    with kafka_cleaner.Cleaner(SEGMENT_BYTES) as cleaner:
        yield cleaner


def written(path, seed):
    """Write a history of several segments, all of its transactions ended."""
    # With present timestamps: Kafka forgets producers that were silent for a day.
    first_ms = time.time_ns() // 1_000_000 - HOUR_MS
    history = History(path, random.Random(seed), first_ms)
    for _ in range(150):
        history.step()
    while history.open_transactions:
        history.end_transaction()
    history.log.roll()
    history.log.close()
    return path


def headers(path):
    raw = b"".join(p.read_bytes() for p in sorted(path.glob("*.log")))
    return [
        (h.base_offset, h.last_offset, h.record_count, h.attributes & 0x3F, h.producer_id)
        for h in batches.headers(raw)
    ]


def test_the_same_records_as_kafkas_cleaner(kafka, rng, tmp_path):
    """Records and batches alike: bounds, counts, codecs, kept empty batches."""
    for number in range(3):
        path = written(tmp_path / f"ours-{number}", rng.getrandbits(32))
        copy = trees.copy_tree(path, tmp_path / f"kafkas-{number}")
        kafka.clean(copy)
        with kafkalog.Log(path, config=OURS) as log:
            before = len(read(log))
            log.compact()
            ours = read(log)
        with kafkalog.Log(copy, mode="r") as log:
            assert ours == read(log)
        assert len(ours) < before
        assert headers(path) == headers(copy)


GAP = re.compile(r"Non-consecutive offsets in .*| *\d+ is followed by \d+")
"""The dump's message about any compacted log."""


def test_kafkas_dump_reads_it(kafka_jars, rng, tmp_path):
    """Except time indexes: for entries of batches without records it finds no timestamp, also in
    logs that Kafka cleaned."""
    path = written(tmp_path / "topic-0", rng.getrandbits(32))
    with kafkalog.Log(path, config=OURS) as log:
        log.compact()
        ours = read(log)
        aborted = log.aborted(0, log.end_offset)
    wanted = (".log", ".index", ".txnindex", ".snapshot")
    dumped = apache.dump([p for p in sorted(path.iterdir()) if p.suffix in wanted])
    records, entries = [], 0
    for name, found in dumped.items():
        assert [line for line in found.other if not GAP.fullmatch(line)] == [], name
        assert all(batch.valid for batch in found.batches), name
        control = {b.base_offset for b in found.batches if b.control}
        records += [(r.offset, r.timestamp_ms) for r in found.records if r.offset not in control]
        entries += len(found.entries) * (name.suffix == ".txnindex")
    assert records == [r[:2] for r in ours]
    assert entries == len(aborted)
