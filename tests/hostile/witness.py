"""A well-behaved client: a process that produces, fetches and asks for metadata on its own
connections, and records how long each answer took.

`python -m tests.hostile.witness HOST PORT TOPIC`: one line a request, `kind begin end` in ns of
CLOCK_MONOTONIC, which all processes share; `kind` is fast (answered in C) or slow (in Python).
It ends with its standard input.
"""

from __future__ import annotations

import select
import sys
import time

from kafkalog.wire import apis
from tests.unit.plane.peer import Peer, one

PAUSE_S = 0.002
"""Between two rounds: the witness must not be a load itself."""


def main(host: str, port: str, topic: str) -> None:
    """Send requests until the standard input ends."""
    fast, slow = Peer((host, int(port))), Peer((host, int(port)))
    value = one()
    offset = -1
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        begin = time.monotonic_ns()
        produced = fast.produce_one(value, (topic, 0))
        between = time.monotonic_ns()
        offset = offset if offset >= 0 else produced.base_offset
        assert produced.error_code == 0
        found = fast.fetch_one(produced.base_offset, (topic, 0))
        assert found.error_code == 0
        assert found.records
        end = time.monotonic_ns()
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        answer = slow.ask(apis.METADATA, 9, asked)
        assert [(t.name, t.error_code) for t in answer.topics] == [(topic, 0)]
        last = time.monotonic_ns()
        print(f"fast {begin} {between}\nfast {between} {end}\nslow {end} {last}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
