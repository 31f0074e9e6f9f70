"""The fetchers of this node's replicas: one for each node that leads some of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kafkalog.client.link.transport import Address
from kafkalog.errors import KafkalogError, StorageOffline
from kafkalog.logs.limit import limited
from kafkalog.replication.fetcher import Fetcher, Follow, Replica
from kafkalog.replication.follower_log import FollowerLog
from kafkalog.replication.throttle import throttled
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log.log import Log
    from kafkalog.metadata.image import Topic
    from kafkalog.replication.membership import Membership
    from kafkalog.replication.options import FetcherOptions
    from kafkalog.replication.roles import Held

__all__ = ["ReplicaFetchers"]

_logger = limited(__name__)

UNREADABLE: Mapping[int, str] = {
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "its oldest records are in tiered storage",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "it has messages of format 0 or 1",
}
"""Kinds of records that kafkalog cannot copy, by error."""


class ReplicaFetchers:
    """Which replica of this node follows whom.  Callers hold the membership's lock."""

    def __init__(
        self, member: Membership, options: FetcherOptions, went_offline: Callable[[], None]
    ) -> None:
        """Nothing is followed.  `went_offline` is called, in a fetcher's thread, for a log that had
        failed before following began."""
        self._member, self._options, self._went_offline = member, options, went_offline
        self._by_leader: dict[Address, Fetcher] = {}
        self._by_partition: dict[TopicPartition, Fetcher] = {}
        self._counting = threading.Lock()  # guards the next; held for a moment
        self._bytes = 0

    @property
    def bytes_in(self) -> int:
        """Bytes of records from leaders since the start."""
        with self._counting:
            return self._bytes

    def _count(self, more: int) -> None:
        with self._counting:
            self._bytes += more

    def close(self) -> None:
        """Stop following; needs no lock."""
        for fetcher in self._by_leader.values():
            fetcher.close()

    def follow(
        self, replicas: Iterable[tuple[TopicPartition, Held, Log]]
    ) -> dict[TopicPartition, KafkalogError]:
        """Follow the leaders; returns the replicas that follow nobody because this node stops.

        A replica whose leader is unknown or cannot be reached follows nobody either: the controller
        will name another leader.
        """
        commands: dict[Address, dict[TopicPartition, Follow]] = {}
        for tp, held, log in replicas:
            if leader := self._leader(held):
                command = Follow(
                    held.topic_id, held.state.leader_epoch, FollowerLog(log, self._count)
                )
                commands.setdefault(leader, {})[tp] = command
        failed: dict[TopicPartition, KafkalogError] = {}
        for leader, those in commands.items():
            try:
                fetcher = self._fetcher(leader)
                self._by_partition.update(dict.fromkeys(those, fetcher))
                fetcher.follow(those)
            except KafkalogError as problem:
                failed.update(dict.fromkeys(those, problem))
        return failed

    def unfollow(self, partitions: Iterable[TopicPartition]) -> None:
        """On return nothing is written to these replicas any more."""
        found: dict[Fetcher, list[TopicPartition]] = {}
        for tp in partitions:
            if fetcher := self._by_partition.pop(tp, None):
                found.setdefault(fetcher, []).append(tp)
        for fetcher, those in found.items():
            fetcher.drop(those)

    def set_epoch(self, epoch: int) -> None:
        """Fetch in this epoch of the broker from now on."""
        for fetcher in self._by_leader.values():
            fetcher.replica = Replica(self._member.node, epoch)

    def set_rate(self, rate: int) -> None:
        """Replace the rate at which throttled replicas are copied, in bytes per second."""
        if self._options.throttle is not None:
            self._options.throttle.quota.set_rate(rate)

    def set_throttled(self, topic: str, names: Sequence[str]) -> None:
        """Replace the throttled replicas of a topic, as its setting names them."""
        if self._options.throttle is not None:
            self._options.throttle.put(topic, throttled(names, self._member.node))

    def settle(self, topic: Topic) -> None:
        """The topic's settings changed: if it is durable now, earlier appends are synced, too."""
        for tp in (TopicPartition(topic.name, number) for number in topic.partitions):
            if fetcher := self._by_partition.get(tp):
                fetcher.settle([tp])

    def _leader(self, held: Held) -> Address | None:
        leader = held.state.leader
        return None if leader == self._member.node else self._member.place(leader)

    def _fetcher(self, leader: Address) -> Fetcher:
        found = self._by_leader.get(leader)
        if found is None:
            replica = Replica(self._member.node, self._member.epoch)
            connecting = self._member.connecting()
            found = Fetcher(replica, leader, self._report, self._options, connecting)
            self._by_leader[leader] = found
        return found

    def _report(self, tp: TopicPartition, problem: KafkalogError) -> None:
        """In a fetcher's thread, without the lock."""
        if why := UNREADABLE.get(problem.code or 0):
            _logger.error("%s-%d: is not replicated here: %s, which kafkalog does not read (%s); "
                          "move this replica to one of the brokers of Kafka",
                          *tp, why, problem)  # fmt: skip
        else:
            _logger.info("%s-%d: is not followed now: %s", *tp, problem)
        if isinstance(problem, StorageOffline):
            self._went_offline()
