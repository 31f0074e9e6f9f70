"""A well-behaved client: a process that produces, fetches, asks for metadata and is a member of a
group on its own connections, and records how long each answer took.

`python -m tests.hostile.witness HOST PORT TOPIC`: one line a request, `kind begin end` in ns of
CLOCK_MONOTONIC, which all processes share; `kind` is fast (answered in C), slow (in Python) or
group (by the coordinator).  It ends with its standard input.
"""

from __future__ import annotations

import select
import sys
import time
from typing import Any

from kafkalog.wire import apis
from tests.hostile.attack import join_fields
from tests.unit.plane.peer import Peer, one

PAUSE_S = 0.002
"""Between two rounds: the witness must not be a load itself."""
GROUP, SESSION_MS = "calm", 300_000


def main(host: str, port: str, topic: str) -> None:
    """Send requests until the standard input ends."""
    fast, slow = Peer((host, int(port))), Peer((host, int(port)))
    coordinator = Peer((host, int(port)))
    member = _joined(coordinator)
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
        assert coordinator.ask(apis.HEARTBEAT, 3, member).error_code == 0
        beaten = time.monotonic_ns()
        print(
            f"fast {begin} {between}\nfast {between} {end}\nslow {end} {last}\n"
            f"group {last} {beaten}",
            flush=True,
        )


def _joined(peer: Peer) -> dict[str, Any]:
    """The fields of a heartbeat of the only member of a group."""
    fields = join_fields(GROUP, session_timeout_ms=SESSION_MS)
    fields["member_id"] = peer.ask(apis.JOIN_GROUP, 5, fields).member_id
    joined = peer.ask(apis.JOIN_GROUP, 5, fields)
    member = {"group_id": GROUP, "generation_id": joined.generation_id,
              "member_id": joined.member_id}  # fmt: skip
    given = [{"member_id": joined.member_id, "assignment": b""}]
    assert peer.ask(apis.SYNC_GROUP, 3, {**member, "assignments": given}).error_code == 0
    return member


if __name__ == "__main__":
    main(*sys.argv[1:])
