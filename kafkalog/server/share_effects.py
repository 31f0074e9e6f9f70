"""Carries out what share groups need from elsewhere: the states of their partitions, and the ends
of partitions, which their leaders know."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.coordinator.share_groups.outside import (
    Ends,
    InitializeStates,
    ReadSummaries,
    ShareEffect,
)
from kafkalog.coordinator.share_state.persister import (
    UNINITIALIZED_COUNT,
    UNINITIALIZED_OFFSET,
    SummaryRead,
)
from kafkalog.log.log import handle_of
from kafkalog.logs.limit import limited
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.coordinator.share_state.persister import Persister
    from kafkalog.coordinator.thread import Event
    from kafkalog.server.partitions import Partitions
    from kafkalog.server.transactions.inter_broker_client import InterBrokerClient

__all__ = ["PartitionEnds", "carry_out"]

LATEST, NO_EPOCH = -1, -1
NAME_BYTES = 50
"""Approximate memory of a partition in a request, besides the topic's name."""
_logger = limited(__name__)


def carry_out(
    persister: Persister, ends: PartitionEnds, effect: ShareEffect, post: Callable[[Event], None]
) -> None:
    """Carry out an effect; `post` gets the event that takes its results."""
    if isinstance(effect, InitializeStates):
        persister.initialize(
            effect.group_id, effect.states, lambda found: post(partial(effect.done, found))
        )
    elif isinstance(effect, ReadSummaries):
        _summarize(effect, persister, ends, post)
    else:
        persister.delete(
            effect.group_id, effect.states, lambda found: post(partial(effect.done, found))
        )


def _summarize(
    effect: ReadSummaries, persister: Persister, ends: PartitionEnds,
    post: Callable[[Event], None],
) -> None:  # fmt: skip
    def read(results: Sequence[SummaryRead]) -> None:
        wanted = [one for one in results if effect.with_ends and _has_lag(one)]
        ends.latest(
            [(one.topic_id, one.partition) for one in wanted],
            lambda found: post(partial(effect.done, results, found)),
        )

    persister.read_summary(effect.group_id, effect.states, read)


def _has_lag(one: SummaryRead) -> bool:
    known = one.start_offset != UNINITIALIZED_OFFSET
    counted = one.delivery_complete_count != UNINITIALIZED_COUNT
    return one.error is ErrorCode.NONE and known and counted


class PartitionEnds:
    """Learns the ends of partitions, as consumers see them, here and at other brokers.  Safe to
    call from any thread."""

    def __init__(self, partitions: Partitions, peers: InterBrokerClient | None) -> None:
        """`peers`: in a cluster, the requests to other brokers."""
        self._partitions, self._peers = partitions, peers

    def latest(self, wanted: Collection[tuple[Any, int]], done: Callable[[Ends], None]) -> None:
        """Learn the ends of partitions, by id of the topic and number; `done` is called once, from
        any thread, with those that could be learned."""
        here: list[TopicPartition] = []
        places: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic_id, number in wanted:
            name = self._partitions.name_of(topic_id)
            if name is not None:
                where = TopicPartition(name, number)
                broker = None if self._peers is None else self._peers.leader(where)
                (here if broker is None else places[broker]).append(where)
        found = {where: end for where in here if (end := self._here(where)) is not None}
        gathered = _Gathered(len(places), found, done)
        for broker, some in places.items():
            try:
                self._ask(broker, some, gathered)
            except Exception:  # no thread or memory now; the other brokers are asked
                _logger.exception("broker %d is not asked for the ends of partitions", broker)
                gathered.add({})
        if not places:
            done(found)

    def _here(self, where: TopicPartition) -> int | None:
        try:
            if not self._partitions.is_open(*where) and self._partitions.offline(*where):
                return None
            log = self._partitions.existing_log(*where)
            return 0 if log is None else int(handle_of(log).state().high_watermark)
        except Exception as problem:
            _logger.info("%s-%d: its end: %s", *where, problem)
            return None

    def _ask(self, broker: int, some: Sequence[TopicPartition], gathered: _Gathered) -> None:
        topics: dict[str, list[dict[str, int]]] = defaultdict(list)
        for topic, number in some:
            topics[topic].append(
                {"partition_index": number, "current_leader_epoch": NO_EPOCH, "timestamp": LATEST}
            )
        body = {
            "replica_id": -1, "isolation_level": 0, "timeout_ms": 5_000,
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }  # fmt: skip

        def then(answer: Any) -> None:
            gathered.add(
                {
                    TopicPartition(topic.name, one.partition_index): one.offset
                    for topic in (() if answer is None else answer.topics)
                    for one in topic.partitions
                    if not one.error_code
                }
            )

        assert self._peers is not None
        size = sum(NAME_BYTES + len(topic) for topic, _ in some)
        self._peers.ask(broker, apis.LIST_OFFSETS, body, size, then)


class _Gathered:
    """Ends from several brokers."""

    def __init__(self, left: int, found: Ends, done: Callable[[Ends], None]) -> None:
        self._left, self._found, self._done = left, found, done
        self._lock = threading.Lock()  # guards the first two

    def add(self, found: Ends) -> None:
        """Add the ends that one broker knows; the last one ends the wait."""
        with self._lock:
            self._found |= found
            self._left -= 1
            last = not self._left
        if last:
            self._done(self._found)
