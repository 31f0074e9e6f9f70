"""Members of groups by bare sockets, one connection each, all in one thread: the same for every
broker, and cheap next to it."""

from __future__ import annotations

import heapq
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from benchmarks.broker.wire import Connection, frame
from kafkalog.wire import apis, headers

__all__ = ["Member", "Members", "Workers", "configure", "find_coordinator"]

UNKNOWN_MEMBER_ID = 25
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ACCEPT = 1
GROUP_RESOURCE, SET = 32, 0
JOIN, LEAVE = 0, -1
"""Epochs of a heartbeat."""
BEAT_S = 0.1
"""A member that waits for something new asks again after so long."""
LIMIT_S = 60.0


def find_coordinator(connection: Connection, group: str) -> None:
    """Wait for a group's coordinator: its first use creates __consumer_offsets."""
    while True:
        found = connection.ask("FIND_COORDINATOR", 2, {"key": group, "key_type": 0})
        look = connection.ask("HEARTBEAT", 3, {"group_id": group, "member_id": "x"})
        if not found.error_code and look.error_code == UNKNOWN_MEMBER_ID:
            return


def configure(bootstrap: str, group: str, settings: Mapping[str, str]) -> None:
    """Give a group settings of its own."""
    configs = [{"name": k, "config_operation": SET, "value": v} for k, v in settings.items()]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": configs}
    with Connection(bootstrap) as connection:
        asked = {"resources": [resource], "validate_only": False}
        (done,) = connection.ask("INCREMENTAL_ALTER_CONFIGS", 1, asked).responses
        if done.error_code:
            raise RuntimeError(f"{group} has no settings of its own: {done.error_message}")


class Member:
    """One member of a group whose members heartbeat: its connection, and what it has."""

    def __init__(self, bootstrap: str, api: str, group: str, topic: str, name: str) -> None:
        """`api`: CONSUMER_GROUP_HEARTBEAT or SHARE_GROUP_HEARTBEAT, version 1 of both."""
        self.connection = Connection(bootstrap)
        self.group, self.name = group, name
        self.assigned: dict[UUID, list[int]] = {}
        self._api, self._table, self._topic = api, getattr(apis, api), topic
        self._epoch = JOIN
        self._idle: bytes | None = None
        self._sent_s = 0.0

    @property
    def count(self) -> int:
        """How many partitions it has."""
        return sum(map(len, self.assigned.values()))

    def _frame(self, epoch: int, said: Mapping[str, Any]) -> bytes:
        asked = {"group_id": self.group, "member_id": self.name, "member_epoch": epoch, **said}
        return frame(self._api, 1, asked)

    def join(self) -> None:
        """Send the heartbeat with which it joins."""
        said: dict[str, Any] = {"subscribed_topic_names": [self._topic]}
        if self._api == "CONSUMER_GROUP_HEARTBEAT":
            said.update(rebalance_timeout_ms=60_000, topic_partitions=[])
        self._epoch, self.assigned, self._idle = JOIN, {}, None
        self._send(self._frame(JOIN, said))

    def leave(self) -> None:
        """Send the heartbeat with which it leaves."""
        self._send(self._frame(LEAVE, {}))

    def beat(self, news: bool = False) -> None:
        """Send a heartbeat; `news`: with the partitions that it has now."""
        if self._epoch == JOIN:
            self.join()
        elif news and self._api == "CONSUMER_GROUP_HEARTBEAT":
            owned = [{"topic_id": one, "partitions": n} for one, n in self.assigned.items()]
            self._send(self._frame(self._epoch, {"topic_partitions": owned}))
        else:
            if self._idle is None:
                self._idle = self._frame(self._epoch, {})
            self._send(self._idle)

    def _send(self, data: bytes) -> None:
        self._sent_s = time.perf_counter()
        self.connection.socket.sendall(data)

    def take(self) -> tuple[bool, float]:
        """Read an answer: True if its assignment is another one, and the seconds it took."""
        data = self.connection.read()
        taken_s = time.perf_counter() - self._sent_s
        _, position = headers.decode_response_header(self._table, 1, data)
        found = self._table.decode_response(1, data, position)
        if found.error_code in (LOADING, NOT_AVAILABLE, NOT_COORDINATOR):
            return False, taken_s
        if found.error_code:
            raise RuntimeError(f"{self.name}: {found.error_code} {found.error_message}")
        if found.member_epoch != self._epoch:
            self._epoch, self._idle = found.member_epoch, None
        if found.assignment is None:
            return False, taken_s
        before = self.assigned
        parts = found.assignment.topic_partitions
        self.assigned = {one.topic_id: list(one.partitions) for one in parts}
        return self.assigned != before, taken_s


class Members:
    """The members of one or more groups of the same size over the same topic."""

    def __init__(
        self, bootstrap: str, groups: Sequence[str], topic: str, partitions: int, size: int,
        api: str = "CONSUMER_GROUP_HEARTBEAT",
    ) -> None:  # fmt: skip
        """`size`: members of each group."""
        with Connection(bootstrap) as first:
            for group in groups:
                find_coordinator(first, group)
        self.members = [
            Member(bootstrap, api, group, topic, f"member-{number:05}")
            for group in groups for number in range(size)
        ]  # fmt: skip
        self._wanted = partitions * len(groups)
        self._selector = selectors.DefaultSelector()
        for member in self.members:
            self._selector.register(member.connection.socket, selectors.EVENT_READ, member)

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for member in self.members:
            member.connection.__exit__()

    def join(self) -> float:
        """All join; returns the seconds until they have all partitions, none is without one, and
        each has said so."""
        return self._settle(self.members, Member.join)[0]

    def one_leaves(self) -> tuple[float, float]:
        """The last one leaves, and the others go on: the seconds until they have its partitions,
        and the longest wait of one of them for an answer."""
        *others, last = self.members
        begun_s = time.perf_counter()
        last.leave()
        last.take()
        _, longest_s = self._settle(others, Member.beat)
        return time.perf_counter() - begun_s, longest_s

    def _settle(
        self, members: Sequence[Member], begin: Callable[[Member], None]
    ) -> tuple[float, float]:  # fmt: skip
        """All but those of `members` do nothing."""
        begun_s = time.perf_counter()
        asking: set[Member] = set()
        later: list[tuple[float, int, Member]] = []
        longest_s, number = 0.0, 0
        for member in members:
            begin(member)
            asking.add(member)
        owned = sum(one.count for one in members)
        empty = sum(not one.count for one in members)
        telling: set[Member] = set()  # their heartbeats with a new assignment are on their way
        while owned != self._wanted or empty or telling:
            now_s = time.perf_counter()
            if now_s > begun_s + LIMIT_S:
                raise TimeoutError(f"{owned} of {self._wanted} partitions, {empty} without one")
            while later and later[0][0] <= now_s:
                member = heapq.heappop(later)[2]
                member.beat()
                asking.add(member)
            wait_s = later[0][0] - now_s if later else LIMIT_S
            for key, _ in self._selector.select(wait_s):
                member = key.data
                before = member.count
                news, taken_s = member.take()
                longest_s = max(longest_s, taken_s)
                telling.discard(member)
                owned += member.count - before
                empty += (not member.count) - (not before)
                if news:
                    member.beat(news=True)
                    telling.add(member)
                else:
                    asking.discard(member)
                    number += 1
                    heapq.heappush(later, (time.perf_counter() + BEAT_S, number, member))
        ended_s = time.perf_counter()
        for member in asking:
            member.take()
        return ended_s - begun_s, longest_s

    def idle(self, seconds: float) -> None:
        """Each sends one heartbeat, at its own moment of these seconds."""
        begun_s = time.perf_counter()
        waiting = 0
        for place, member in enumerate(self.members):
            at_s = begun_s + seconds * place / len(self.members)
            while (left_s := at_s - time.perf_counter()) > 0:
                waiting -= self._taken(left_s)
            member.beat()
            waiting += 1
        while waiting:
            waiting -= self._taken(LIMIT_S)

    def _taken(self, wait_s: float) -> int:
        ready = self._selector.select(wait_s)
        for key, _ in ready:
            key.data.take()
        return len(ready)


class Workers:
    """Members of a share group: each acquires records, acknowledges them, and acquires others."""

    def __init__(self, bootstrap: str, group: str, topic: str, size: int, records: int) -> None:
        """The topic has one partition; `records`: how many each acquires at once."""
        self._group, self._records = group, records
        self._members = Members(
            bootstrap, [group], topic, size, size, "SHARE_GROUP_HEARTBEAT"
        )  # fmt: skip
        self._members.join()
        self._workers = [
            _Worker(Connection(bootstrap), group, member, records)
            for member in self._members.members
        ]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._members.__exit__()
        for worker in self._workers:
            worker.connection.__exit__()

    def run(self, count: int) -> tuple[float, list[float]]:
        """Acknowledge that many records: the seconds it took, and the seconds of each answer from
        the arrival of records to that of the answer to their acknowledgement."""
        waits_s: list[float] = []
        done = 0
        begun_s = time.perf_counter()
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.connection.socket, selectors.EVENT_READ, worker)
                worker.fetch()
            while done < count:
                ready = selector.select(LIMIT_S)
                if not ready:
                    raise TimeoutError(f"{done} of {count} records are acknowledged")
                for key, _ in ready:
                    done += key.data.go_on(waits_s)
        return time.perf_counter() - begun_s, waits_s


class _Worker:
    """One of them."""

    def __init__(self, connection: Connection, group: str, member: Member, records: int) -> None:
        self.connection = connection
        self._group, self._name, self._records = group, member.name, records
        ((self._topic_id, (self._partition,)),) = member.assigned.items()
        self._epoch = 0
        self._fetch: Any = None
        self._held = 0
        self._came_s = 0.0

    def fetch(self) -> None:
        """Ask for records."""
        part = {"partition_index": self._partition, "acknowledgement_batches": []}
        topics = [{"topic_id": self._topic_id, "partitions": [part]}] if not self._epoch else []
        self._send("SHARE_FETCH", {
            "max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20,
            "max_records": self._records, "batch_size": self._records,
            "forgotten_topics_data": [], "topics": topics,
        })  # fmt: skip

    def _send(self, api: str, said: Mapping[str, Any]) -> None:
        asked = {"group_id": self._group, "member_id": self._name,
                 "share_session_epoch": self._epoch, **said}  # fmt: skip
        self._epoch += 1
        self._table = getattr(apis, api)
        self.connection.socket.sendall(frame(api, 1, asked))

    def go_on(self, waits_s: list[float]) -> int:
        """Read an answer and send the next request; returns how many records are acknowledged."""
        data = self.connection.read()
        now_s = time.perf_counter()
        _, position = headers.decode_response_header(self._table, 1, data)
        found = self._table.decode_response(1, data, position)
        rows = [row for topic in found.responses for row in topic.partitions]
        for row in (found, *rows):
            if row.error_code:
                raise RuntimeError(f"{self._name}: {row.error_code} {row.error_message}")
        if self._table is apis.SHARE_ACKNOWLEDGE:
            waits_s.append(now_s - self._came_s)
            done, self._held = self._held, 0
            self.fetch()
            return done
        acquired = [one for row in rows for one in row.acquired_records]
        if not acquired:
            self.fetch()
            return 0
        self._came_s = now_s
        self._held = sum(one.last_offset - one.first_offset + 1 for one in acquired)
        said = [
            {"first_offset": one.first_offset, "last_offset": one.last_offset,
             "acknowledge_types": [ACCEPT]}
            for one in acquired
        ]  # fmt: skip
        part = {"partition_index": self._partition, "acknowledgement_batches": said}
        topics = [{"topic_id": self._topic_id, "partitions": [part]}]
        self._send("SHARE_ACKNOWLEDGE", {"topics": topics})
        return 0
