"""A process that reads a log whole, again and again, while another compacts it.

`python -m tests.unit.clean.reader PATH KEYS`: each pass must find every key, at growing
offsets, with values that are never older than in the pass before.  Until its input closes;
then it prints how many passes there were.
"""

import select
import sys
import time

import kafkalog


def look(log, keys, newest):
    """One pass, up to an end that did not move during it; the newest number of each key.

    What is appended during a pass may replace what lies before its end: only with that is a
    pass whole.
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
            assert number == record.offset, record  # the writer's only values
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
