"""Members of a group read the queue and commit; a watcher queries the group's position."""

from __future__ import annotations

import time
from collections import defaultdict

import kafkalog
from kafkalog.types import TopicPartition
from tests.faults.history import Anomaly, Assigned, Commit, Committed, History, Poll
from tests.faults.judges import groups
from tests.faults.workloads.loops import Loop
from tests.faults.workloads.reading import text, unknown_if_it_fails
from tests.support.waiting import wait_for

GROUP = "readers"
SESSION_MS = 6_000
MEMBERS = 3
SETTLE_S = 300.0


class Member(Loop):
    """Joins, reads, commits what it recorded; `churn` makes it leave and join again."""

    def __init__(self, history: History, bootstrap: str, topic: str, number: int) -> None:
        super().__init__(f"member-{number}")
        self._history, self._servers, self._topic = history, bootstrap, topic
        self._left = False

    def churn(self) -> None:
        self._left = True

    def turn(self) -> None:
        self._left = False
        name = f"{self.name}.{self.lives}"
        with kafkalog.Consumer(
            self._servers, group=GROUP, auto_offset_reset="earliest", auto_commit=False,
            session_timeout_ms=SESSION_MS, heartbeat_ms=500,
        ) as consumer:  # fmt: skip

            def assigned(_: object) -> None:
                operation = self._history.begin(
                    Assigned, name, generation=consumer.group_metadata().generation,
                    partitions=[tp.partition for tp in consumer.assignment],
                )  # fmt: skip
                self._history.end(operation)

            consumer.subscribe(self._topic, on_assigned=assigned)
            while not self.ending and not self._left:
                self._read(consumer, name)

    def _read(self, consumer: kafkalog.Consumer, name: str) -> None:
        start = time.monotonic()
        by_partition = defaultdict(list)
        for record in consumer.poll(300):
            by_partition[record.partition].append((record.offset, text(record.value)))
        for partition, records in by_partition.items():
            poll = self._history.begin(Poll, name, partition=partition, records=records)
            poll.start = start
            self._history.end(poll)
        for partition, records in by_partition.items():
            offset = records[-1][0] + 1
            commit = self._history.begin(Commit, name, partition=partition, offset=offset)
            with unknown_if_it_fails(commit):
                consumer.commit({TopicPartition(self._topic, partition): offset})
            self._history.end(commit)


class Watcher(Loop):
    """Queries the position again and again."""

    def __init__(self, history: History, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("watcher")
        self._history, self._servers = history, bootstrap
        self._places = [TopicPartition(topic, n) for n in range(partitions)]
        self.told: dict[int, int] = {}

    def turn(self) -> None:
        with kafkalog.Admin(self._servers, api_timeout_ms=20_000) as admin:
            while not self.ending:
                self._look(admin)
                self.pause(0.3)

    def _look(self, admin: kafkalog.Admin) -> None:
        operations = {
            tp: self._history.begin(Committed, self.name, partition=tp.partition)
            for tp in self._places
        }
        found = admin.list_group_offsets(GROUP, self._places)
        for tp, operation in operations.items():
            offset = found[tp].offset if tp in found else -1
            self._history.end(operation, offset=offset)
            self.told[tp.partition] = offset


class Groups:
    """The workload, on the queue's topic."""

    topics: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.history = History()
        self.members = [Member(self.history, bootstrap, topic, n) for n in range(MEMBERS)]
        self.watcher = Watcher(self.history, bootstrap, topic, partitions)
        self.records: dict[int, list[int]] = {}
        """The offsets that exist at the end; to be set before `settle`."""
        self.disputed: list[tuple[float, float]] = []
        """The times in which there may have been two coordinators."""

    def begin(self) -> None:
        for one in (*self.members, self.watcher):
            one.start()

    def stop(self) -> None:
        """Does nothing: members go on until they have read everything."""

    def settle(self) -> None:
        def done() -> bool:
            told = self.watcher.told
            return all(told.get(p, -1) > rows[-1] for p, rows in self.records.items() if rows)

        try:
            wait_for(done, "the group has read all", SETTLE_S, 0.1)
        except AssertionError as late:
            wanted = {p: rows[-1] + 1 for p, rows in self.records.items() if rows}
            failures = [dict(one.failures) for one in (*self.members, self.watcher)]
            raise AssertionError(f"{late}: {self.watcher.told} of {wanted}; {failures}") from None
        for one in (*self.members, self.watcher):
            one.end()

    def judge(self) -> list[Anomaly]:
        return groups.check(self.history, records=self.records, disputed=self.disputed)

    def figures(self) -> dict[str, float]:
        return {
            "commits": len(self.history.of(Commit)),
            "rebalances": len({one.generation for one in self.history.of(Assigned)}),
        }
