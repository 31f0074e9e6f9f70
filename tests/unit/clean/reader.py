"""A process that reads a whole log repeatedly while another process compacts it.

`python -m tests.unit.clean.reader PATH KEYS`: each pass must find every key, at increasing
offsets, with values that are never older than in the previous pass. When its input closes, the
process prints how many passes it made.
"""

import select
import sys
import time

import kafkalog


def look(log, keys, newest):
    """One pass, up to an end that did not move during it. Returns the newest number of each key.

    A record appended during a pass may replace one before the pass's old end, so a pass is
    complete only once it includes all records appended in the meantime.
    """
    found = {}
    start = log.start_offset
    last = -1
    while start < log.end_offset:
        scan = log.scan(start)
        for record in scan.records():
            assert record.offset > last, (record.offset, last)
            last = record.offset
            number = int(record.value)
            assert number == record.offset, record  # the writer writes no other value
            found[record.key] = number
        start = scan.end_offset
        log.refresh()
    assert len(found) == keys, f"{len(found)} of {keys} keys up to offset {last}"
    for key, number in newest.items():
        assert found[key] >= number, (key, found[key], number)
    return found


def main(path, keys):
    passes = stale = 0
    newest = {}
    while not select.select([sys.stdin], [], [], 0)[0]:
        with kafkalog.Log(path, mode="r") as log:
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                try:
                    newest = look(log, int(keys), newest)
                    passes += 1
                    if passes == 1:
                        print("reading", flush=True)
                except kafkalog.errors.StaleLog:
                    stale += 1
    print(passes, stale)


if __name__ == "__main__":
    main(*sys.argv[1:])
