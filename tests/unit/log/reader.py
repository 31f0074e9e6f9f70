"""A process that reads a log while another writes it, and checks every byte that it gets.

`python -m tests.unit.log.reader PATH SEED`: reads at random until its input closes and both reads
and scans happened often enough, then prints as JSON how often each outcome happened.
"""

import collections
import json
import random
import select
import sys

import kafkalog
from tests.damage.crash.ledger import number_of

ENOUGH = 10
PER_OFFSET = 1000  # record numbers that share an offset, one per truncation
# A log that changes under its reader may raise these; any other error ends this process.
EXPECTED = (kafkalog.OffsetOutOfRange, kafkalog.errors.StaleLog)


def check(records, start, stop):
    """Check that records are intact, at their own offsets, without a gap from `start` on."""
    expected = start
    for record in records:
        found = record.offset
        assert found == expected < stop, f"{found} for {expected} of {start}..{stop}"
        assert number_of(record.key, record.value) // PER_OFFSET == record.offset
        expected += 1
    return expected


def look(log, rng, counts):
    """Do one random kind of read, and count its outcome."""
    log.refresh()
    start = rng.randint(log.start_offset, max(log.start_offset, log.end_offset - 1))
    stop = start + rng.randint(1, 200)
    kind = rng.choice(("read", "scan", "time", "aborted"))
    try:
        if kind == "read":
            check(log.read(start, stop), start, stop)
        elif kind == "scan":
            columns = log.scan(start, stop, columns=["offset", "value", "key"]).to_numpy()
            rows = zip(columns["offset"], columns["key"], columns["value"], strict=True)
            for i, (offset, key, value) in enumerate(rows):
                assert offset == start + i
                assert number_of(key, value) // PER_OFFSET == offset
        elif kind == "time":
            found = log.offset_at(start)
            assert found is None or found >= start
        else:
            assert list(log.aborted(start, stop)) == []
    except EXPECTED as failure:
        kind = type(failure).__name__
    counts[kind] += 1


def main(path, seed):
    rng = random.Random(int(seed))
    counts = collections.Counter()
    while min(counts["read"], counts["scan"]) <= ENOUGH or not select.select(
        [sys.stdin], [], [], 0
    )[0]:  # fmt: skip
        try:
            with kafkalog.Log(path, mode="r") as log:
                for _ in range(rng.randint(1, 30)):
                    look(log, rng, counts)
                    counts["looks"] += 1
        except EXPECTED as failure:
            counts[f"open {type(failure).__name__}"] += 1
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
