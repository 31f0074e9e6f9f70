"""Keeps the ISRs of partitions led here: lagging followers leave, caught-up ones join.  Also
retries failed role changes, and reports logs that went offline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.errors import (
    Closed,
    KafkalogError,
    NotFound,
    NotLeaderOrFollower,
    StorageOffline,
    UnknownTopicOrPartition,
)
from kafkalog.logs.limit import limited
from kafkalog.replication.isr import Isr, answered, expand, released, shrink
from kafkalog.types import TopicPartition
from kafkalog.wire.tables.internal import ALTER_PARTITION

if TYPE_CHECKING:
    from kafkalog.replication.membership import Membership
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.replica_manager import ReplicaManager

__all__ = ["IsrMaintenance"]

_logger = limited(__name__)

WAIT_MS = 200
"""How long to wait for caught-up followers before looking for lagging ones."""
HELD_MS = 5
"""The same while a follower still has to prove that it has caught up."""
CAUGHT_UP_AT_ONCE = 1000
"""How many followers that caught up it takes before it looks at those that prove it."""
RETRY_S = 0.05
RETRY_FAILED_S = 1.0
"""How long it waits before it retries what a disk refused."""
ASKED_AT_ONCE = 1000
"""Partitions in one request to the controller."""


class IsrMaintenance:
    """Two threads of a broker."""

    def __init__(
        self, replicas: ReplicaManager, member: Membership, reactor: Reactor, lag_ms: int, name: str
    ) -> None:
        """Starts with `start`; ends when the reactor is stopped, or by `stop`."""
        self._replicas, self._member, self._reactor = replicas, member, reactor
        self._line = member.controller_connection()
        self._lag_ms = lag_ms
        self._ended = threading.Event()
        self._live_epochs: Mapping[int, int] = {}  # the live brokers at the last look
        self._last_check_s = time.monotonic()
        self._held_proposals: set[TopicPartition] = set()  # they wait for the joining followers
        self._next_retry_s = 0.0
        self._failures = self._reported_failures = 0  # how often logs went offline
        # A silent controller delays requests to it, but not the search for lagging followers.
        self._threads = [
            threading.Thread(target=self._loop, args=(step,), name=f"{name} {what}", daemon=True)
            for what, step in (("isr", self._look), ("isr proposals", self._propose))
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop; on return it proposes nothing any more."""
        self._ended.set()
        self._replicas.led.news.set()
        self._line.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _loop(self, step: Callable[[], None]) -> None:
        while not self._ended.is_set():
            try:
                step()
            except Closed:
                return
            except KafkalogError as problem:
                _logger.info("the ISRs stay unchanged for now: %s", problem)
                self._ended.wait(RETRY_S)
            except Exception:  # without this thread no follower would ever leave or join
                _logger.exception("the ISRs stay unchanged for now")
                self._ended.wait(RETRY_FAILED_S)

    def _look(self) -> None:
        caught_up = self._reactor.caught_up(HELD_MS if self._held_proposals else WAIT_MS)
        epochs, left = self._epochs(), CAUGHT_UP_AT_ONCE
        while caught_up is not None:
            tp, left = self._replicas.partition_of(caught_up.tag), left - 1
            if self._replicas.led.change(tp, partial(expand, caught_up=caught_up, epochs=epochs)):
                self._held_proposals.add(tp)
            caught_up = self._reactor.caught_up(0) if left else None
        self._held_proposals = {tp for tp in self._held_proposals if not self._release(tp)}
        if epochs != self._live_epochs:
            # A follower that was not known to be alive caught up unnoticed, and is reported only
            # once.
            self._live_epochs = epochs
            self._replicas.led.publish_all()
        if failures := self._replicas.release_failed():
            self._failures += failures
            self._replicas.led.news.set()
        now_s = time.monotonic()
        if now_s >= self._next_retry_s:
            self._next_retry_s = now_s + RETRY_FAILED_S
            self._replicas.retry()
        if now_s - self._last_check_s >= self._lag_ms / 2000:
            self._last_check_s = now_s
            for tp in self._replicas.led.partitions():
                self._check(tp)

    def _check(self, tp: TopicPartition) -> None:
        try:
            states = self._reactor.followers(*tp)
        except NotFound:
            return  # deleted since: the others are still checked
        self._replicas.led.change(tp, lambda isr: shrink(isr, states, self._lag_ms, self._epochs()))

    def _release(self, tp: TopicPartition) -> bool:
        """True if nothing waits any more."""
        try:
            states, needed = self._reactor.followers(*tp), self._replicas.joining_offset(tp)
        except (NotFound, UnknownTopicOrPartition, NotLeaderOrFollower, StorageOffline):
            return True
        self._replicas.led.change(tp, lambda isr: released(isr, states, needed))
        isr = self._replicas.led.isr(tp)
        return isr is None or isr.proposal is None or not isr.proposal.held

    def _epochs(self) -> Mapping[int, int]:
        """The epochs of the brokers that may be in an ISR."""
        living = self._member.image.living.values()
        return {one.id: one.epoch for one in living if not one.in_controlled_shutdown}

    def _propose(self) -> None:
        news = self._replicas.led.news
        news.clear()
        if (failures := self._failures) != self._reported_failures:
            self._member.report_failed()
            self._reported_failures = failures
        due = self._replicas.led.due()
        keys = list(due)[:ASKED_AT_ONCE]
        if not keys:
            if not self._ended.is_set():
                news.wait()
            return
        names = {self._member.topic_id(*tp): tp.topic for tp in keys}
        body = {
            "broker_id": self._member.node,
            "broker_epoch": self._member.epoch,
            "topics": [
                {
                    "topic_id": topic_id,
                    "partitions": [_row(tp, due[tp]) for tp in keys if tp.topic == name],
                }
                for topic_id, name in names.items()
                if topic_id is not None
            ],
        }
        answer = self._line.ask(ALTER_PARTITION, body)
        if answer.error_code:
            _logger.info("AlterPartition: error %d", answer.error_code)
            self._ended.wait(RETRY_S)
            return
        for topic in answer.topics:
            for row in topic.partitions:
                tp = TopicPartition(names.get(topic.topic_id, ""), row.partition_index)
                if tp in due:
                    self._take(tp, due[tp], row)

    def _take(self, tp: TopicPartition, sent: Isr, row: Any) -> None:
        after = self._replicas.led.change(tp, lambda isr: answered(isr, sent, row))
        if after is not None and after.proposal is None:
            _logger.info("%s-%d: in sync: %s", *tp, ", ".join(map(str, after.in_sync)))


def _row(tp: TopicPartition, isr: Isr) -> dict[str, Any]:
    assert isr.proposal is not None
    pairs = zip(isr.proposal.isr, isr.proposal.epochs, strict=True)
    return {
        "partition_index": tp.partition,
        "leader_epoch": isr.leader_epoch,
        "new_isr": list(isr.proposal.isr),
        "new_isr_with_epochs": [{"broker_id": one, "broker_epoch": epoch} for one, epoch in pairs],
        "leader_recovery_state": 0,
        "partition_epoch": isr.partition_epoch,
    }
