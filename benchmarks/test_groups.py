"""Groups: members that join and leave, heartbeats, share groups' records, the classic protocol.

Both brokers have the same driver: one thread with a bare socket for each member.  A member of the
newer protocols that waits for partitions asks again after 0.1 s.  The groups have the default
settings: Kafka assigns a group at most once a second, we twice for what an assignment of its size
costs (docs/decisions.md); where a member leaves, both do so immediately.  A share group reads one
partition, in batches of 100 records, one batch a worker at a time; each worker acknowledges its
records in a request of their own before it asks for others.  Broker and driver share the
processors, so compare the CPU time, too.
"""

from __future__ import annotations

import resource
import selectors
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.broker.brokers import KAFKA, OURS, Served, brokers
from benchmarks.broker.members import Members, Workers, configure, find_coordinator
from benchmarks.broker.wire import Connection, frame
from benchmarks.measure import Part, Side, Want, scaled
from kafkalog.wire import apis
from tests.support.batches import Row, batch

MEMBERS = scaled(500, 10)
LEAVING = scaled(100, 5)
IDLE_GROUPS, IDLE_SIZE = scaled(50, 2), scaled(100, 5)
BEAT_S = 5.0
"""Kafka's group.consumer.heartbeat.interval.ms."""
WORKERS, RECORD_BYTES, TOGETHER = 8, 1_000, 100
RECORDS = scaled(100_000, 2_000)
COMMITS, IN_FLIGHT = scaled(1_000, 100), 16
WARM_S = 15.0
"""These rows warm each other's code, too."""
AT_ONCE = {"consumer.assignment.interval.ms": "0"}


@pytest.fixture(scope="module")
def running(module_folder: Path) -> Iterator[dict[str, Served]]:
    """A JVM stays warm from one row to the next.  Each idle member has a connection to each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with brokers(module_folder, [OURS, KAFKA]) as made:
        yield made


# ---- members that heartbeat (KIP-848) ------------------------------------------------------------


def test_members_join(measure_together: Any, running: dict[str, Served]) -> None:
    number = iter(range(1_000))

    def side(broker: Served) -> Callable[[], dict[str, float]]:
        topic = broker.new_topic(MEMBERS)

        def once() -> dict[str, float]:
            group = f"joining-{next(number)}"
            with Members(broker.bootstrap, [group], topic, MEMBERS, MEMBERS) as members:
                before_s = broker.cpu_s()
                taken_s = members.join()
                return {"group-members": taken_s, "group-members-cpu": broker.cpu_s() - before_s}

        return once

    work = f"{MEMBERS} members join a group (KIP-848) and are assigned a partition each"
    parts = [
        Part("group-members", work, "s", [Want(OURS, than=KAFKA, factor=2)]),
        Part("group-members-cpu", f"{work}: the broker's CPU time", "s", [Want(OURS, than=KAFKA)]),
    ]
    sides = {name: side(broker) for name, broker in running.items()}
    measure_together(parts, sides, rounds=3, jvm=True, warm_s=WARM_S)


def test_a_member_leaves(measure_together: Any, running: dict[str, Served]) -> None:
    number = iter(range(1_000))

    def side(broker: Served) -> Callable[[], dict[str, float]]:
        topic = broker.new_topic(LEAVING)

        def once() -> dict[str, float]:
            group = f"leaving-{next(number)}"
            configure(broker.bootstrap, group, AT_ONCE)
            with Members(broker.bootstrap, [group], topic, LEAVING, LEAVING) as members:
                members.join()
                until_s, longest_s = members.one_leaves()
                return {"group-leave": until_s, "group-leave-others": longest_s}

        return once

    work = f"One of {LEAVING} members leaves"
    parts = [
        Part("group-leave", f"{work}: until another has its partition", "s",
             [Want(OURS, than=KAFKA)]),
        Part("group-leave-others", f"{work}: the longest answer to another in that time", "s",
             [Want(OURS, than=KAFKA)]),
    ]  # fmt: skip
    sides = {name: side(broker) for name, broker in running.items()}
    measure_together(parts, sides, rounds=5, jvm=True, warm_s=WARM_S)


def test_idle_members(measure_together: Any, running: dict[str, Served]) -> None:
    """Each member's heartbeat comes once in BEAT_S, one after the other."""
    count = IDLE_GROUPS * IDLE_SIZE
    groups = [f"idle-{number}" for number in range(IDLE_GROUPS)]
    joined: dict[str, Members] = {}

    def side(name: str, broker: Served) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            if name not in joined:
                topic = broker.new_topic(IDLE_SIZE)
                joined[name] = Members(broker.bootstrap, groups, topic, IDLE_SIZE, IDLE_SIZE)
                joined[name].join()
            before_s, begun_s = broker.cpu_s(), time.perf_counter()
            joined[name].idle(BEAT_S)
            share = (broker.cpu_s() - before_s) / (time.perf_counter() - begun_s)
            return {"group-idle": share}

        return once

    work = f"A second of {count:,} idle members, a heartbeat each in {BEAT_S:g} s: CPU time"
    parts = [Part("group-idle", work, "s", [Want(OURS, figure=0.10), Want(OURS, than=KAFKA)])]
    sides = {name: side(name, broker) for name, broker in running.items()}
    try:
        measure_together(parts, sides, rounds=3, jvm=True, warm_s=WARM_S)
    finally:
        for members in joined.values():
            members.__exit__()


# ---- share groups (KIP-932) ----------------------------------------------------------------------


def filled(broker: Served) -> str:
    """A topic of one partition with the records."""
    topic = broker.new_topic()
    records = batch([Row(bytes(RECORD_BYTES))] * TOGETHER)
    part = {"index": 0, "records": records}
    asked = {
        "transactional_id": None, "acks": 1, "timeout_ms": 30_000,
        "topic_data": [{"name": topic, "partition_data": [part]}],
    }  # fmt: skip
    with Connection(broker.bootstrap) as connection:
        for _ in range(RECORDS // TOGETHER):
            answer = connection.ask("PRODUCE", 7, asked)
            assert not answer.responses[0].partition_responses[0].error_code, answer
    return topic


def test_share_group(measure_together: Any, running: dict[str, Served]) -> None:
    number = iter(range(1_000))

    def side(broker: Served) -> Callable[[], dict[str, float]]:
        topic = filled(broker)

        def once() -> dict[str, float]:
            group = f"working-{next(number)}"
            configure(broker.bootstrap, group, {"share.auto.offset.reset": "earliest"})
            with Workers(broker.bootstrap, group, topic, WORKERS, TOGETHER) as workers:
                before_s = broker.cpu_s()
                taken_s, waits_s = workers.run(RECORDS)
                return {
                    "group-share": RECORDS / taken_s,
                    "group-share-p99": float(np.percentile(waits_s, 99)),
                    "group-share-cpu": (broker.cpu_s() - before_s) / RECORDS,
                }

        return once

    work = f"A share group, {WORKERS} workers, records of {RECORD_BYTES:,} B, acknowledged"
    parts = [
        Part("group-share", work, "/s", [Want(OURS, than=KAFKA, factor=2)]),
        Part("group-share-p99", f"{work}: from their arrival to the acknowledgement's, p99", "s",
             [Want(OURS, than=KAFKA, factor=2)]),
        Part("group-share-cpu", f"{work}: the broker's CPU time for a record", "s",
             [Want(OURS, than=KAFKA)]),
    ]  # fmt: skip
    sides = {name: side(broker) for name, broker in running.items()}
    measure_together(parts, sides, rounds=5, jvm=True, warm_s=WARM_S)


# ---- the classic protocol ------------------------------------------------------------------------


class Joining:
    """A group's members: bare sockets, one for each, that join and get their assignment."""

    def __init__(self, bootstrap: str, group: str, members: int) -> None:
        self._group = group
        self._selector = selectors.DefaultSelector()
        self._connections = [Connection(bootstrap) for _ in range(members)]
        with Connection(bootstrap) as first:
            find_coordinator(first, group)

    def __enter__(self) -> Joining:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.__exit__()

    def _join(self, member: str) -> bytes:
        asked = {
            "group_id": self._group, "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000, "member_id": member, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": bytes(40)}],
        }  # fmt: skip
        return frame("JOIN_GROUP", 5, asked)

    def _sync(self, joined: Any) -> bytes:
        assigned = [
            {"member_id": member.member_id, "assignment": bytes(30)} for member in joined.members
        ]
        asked = {
            "group_id": self._group, "generation_id": joined.generation_id,
            "member_id": joined.member_id, "assignments": assigned,
        }  # fmt: skip
        return frame("SYNC_GROUP", 3, asked)

    def run(self) -> float:
        """Seconds until every member has its assignment in one generation."""
        start_s = time.perf_counter()
        waiting = {}
        for connection in self._connections:
            connection.socket.sendall(self._join(""))
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            waiting[connection] = "join"
        settled: set[Connection] = set()
        members: dict[Connection, str] = {}
        while len(settled) < len(self._connections):
            for key, _ in self._selector.select(60):
                connection = key.data
                self._step(connection, waiting, settled, members)
        return time.perf_counter() - start_s

    def _step(
        self, connection: Connection, waiting: dict[Connection, str], settled: set[Connection],
        members: dict[Connection, str],
    ) -> None:  # fmt: skip
        data = connection.read()[4:]
        if waiting[connection] == "join":
            joined = apis.JOIN_GROUP.decode_response(5, data)
            members[connection] = joined.member_id
            if joined.error_code:  # it has its id now, and joins with it
                connection.socket.sendall(self._join(joined.member_id))
            else:
                connection.socket.sendall(self._sync(joined))
                waiting[connection] = "sync"
            return
        if apis.SYNC_GROUP.decode_response(3, data).error_code:  # others joined: once more
            settled.clear()
            connection.socket.sendall(self._join(members[connection]))
            waiting[connection] = "join"
        else:
            settled.add(connection)


def test_a_large_group_joins(measure: Any, running: dict[str, Served]) -> None:
    number = iter(range(1_000))

    def side(name: str, broker: Served) -> Side:
        return Side(
            name, 1, lambda group: group.run(),
            setup=lambda: Joining(broker.bootstrap, f"large-{next(number)}", MEMBERS),
            done=lambda group: group.__exit__(),
        )  # fmt: skip

    sides = [side(name, broker) for name, broker in running.items()]
    work = f"{MEMBERS} members join a group, each on its own connection"
    wants = [Want(OURS, than=KAFKA, factor=1)]
    measure("group-join", work, sides, wants, unit="s", jvm=True)


def test_commits(measure: Any, running: dict[str, Served]) -> None:
    def side(name: str, broker: Served) -> Side:
        topic = broker.new_topic()
        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        asked = {
            "group_id": "committing", "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{"name": topic, "partitions": [part]}],
        }  # fmt: skip
        request = frame("OFFSET_COMMIT", 5, asked)
        with Joining(broker.bootstrap, "committing", 0):
            pass  # the coordinator is there

        def run(connection: Connection) -> None:
            sent = 0
            for done in range(COMMITS):
                while sent < min(COMMITS, done + IN_FLIGHT):
                    connection.socket.sendall(request)
                    sent += 1
                data = connection.read()[4:]
            (found,) = apis.OFFSET_COMMIT.decode_response(5, data).topics
            assert not found.partitions[0].error_code, found

        return Side(
            name, COMMITS, run, setup=lambda: Connection(broker.bootstrap),
            done=lambda connection: connection.__exit__(),
        )  # fmt: skip

    sides = [side(name, broker) for name, broker in running.items()]
    work = f"Commits of one group, {IN_FLIGHT} in flight"
    measure("group-commits", work, sides, [Want(OURS, than=KAFKA, factor=1)], jvm=True)
