"""Open transactions of others: they hide every later record from readers of committed records.

The driver owns a directory that it writes to, so the producer of a transaction left open there is
dead, and it is aborted. A broker has other clients, which may be alive: a delivery only says whose
transaction hides its rows, and how to end it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from .options import WriteOptions

if TYPE_CHECKING:
    from kafkalog import Admin, Store, TopicPartition
    from kafkalog.client.buffer.delivery import ManyFuture
    from kafkalog.client.calls.transactions import ProducerInfo, TransactionInfo

_log = logging.getLogger("pyspark_kafkalog")

ONGOING = "Ongoing"
"""The state of a transaction whose end is not decided."""
TOLD = 5
"""How many transactions a message names."""
LOOK_MS = 5_000
"""How long to wait for the broker's list of producers."""
LONG_MS = 10_000
"""A transaction open for longer is worth a warning: its writer may be dead."""


def end_dead(store: Store, topics: Iterable[str]) -> None:
    """Abort the transactions that dead writers left open: this process owns the directory.

    `topics`: also abort those open in these topics that no coordinator knows.

    Raises: KafkalogError.
    """
    admin = store.admin
    left = [one.name for one in admin.list_transactions(states=[ONGOING])]
    if left:
        admin.fence_producers(left).check()
        _log.warning("%s: aborted transactions that dead writers left open: %s",
                     store.path, _some(left))  # fmt: skip
    there = sorted(set(topics) & set(store.topics))
    partitions = [(name, number) for name in there for number in range(len(store[name]))]
    for one in admin.find_hanging_transactions(partitions, age_ms=0):
        who = one.producer
        admin.abort_transaction(one.partition, who.producer_id, who.epoch, who.coordinator_epoch)
        _log.warning("%s: %s-%d: aborted the transaction at offset %d, of producer %d, which no "
                     "coordinator knows", store.path, *one.partition, who.start_offset,
                     who.producer_id)  # fmt: skip


class Placed:
    """The first offset of a delivery in each partition.  Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._first: dict[TopicPartition, int] = {}

    def note(self, sent: ManyFuture) -> None:
        """Count these records once they are acknowledged."""
        sent.add_done_callback(self._known)

    def _known(self, sent: ManyFuture) -> None:
        from kafkalog import KafkalogError, TopicPartition

        try:
            pieces = sent.result(0)
        except KafkalogError:
            return  # the transaction cannot be committed
        with self._lock:
            for one in pieces:
                at = TopicPartition(one.topic, one.partition)
                self._first[at] = min(self._first.get(at, one.first_offset), one.first_offset)

    def first(self) -> dict[TopicPartition, int]:
        """By partition."""
        with self._lock:
            return dict(self._first)


def tell_blocking(options: WriteOptions, what: str, admin: Admin, placed: Placed) -> None:
    """Log which open transactions hide a committed batch from readers of committed records.

    `what`: the batch.  A broker that cannot tell does not fail the delivery.
    """
    from kafkalog import KafkalogError

    first = placed.first()  # a transaction of our own begins here, not below
    try:
        found = admin.describe_producers(list(first), timeout_ms=LOOK_MS).done
        blocking = {
            tp: one
            for tp, some in sorted(found.items())
            for one in some
            if 0 <= one.start_offset < first[tp]
        }
        if blocking:
            _tell(options, what, blocking, _owners(admin, blocking.values()))
    except KafkalogError as error:
        _log.info("%s: cannot tell whether open transactions hide it: %s", what, error)


def _owners(admin: Admin, producers: Iterable[ProducerInfo]) -> dict[int, TransactionInfo]:
    """The transactions of these producers that a coordinator knows, by producer id."""
    listed = admin.list_transactions(producer_ids={one.producer_id for one in producers})
    known = admin.describe_transactions([one.name for one in listed]).done
    return {one.producer_id: one for one in known.values()}


def _tell(
    options: WriteOptions,
    what: str,
    blocking: Mapping[TopicPartition, ProducerInfo],
    owners: Mapping[int, TransactionInfo],
) -> None:
    by_producer: dict[int, list[TopicPartition]] = {}
    for tp, one in blocking.items():
        by_producer.setdefault(one.producer_id, []).append(tp)
    servers = f"--bootstrap-server {options.servers}"
    for producer_id, where in list(by_producer.items())[:TOLD]:
        names = _some([f"{tp.topic}-{tp.partition}" for tp in where])
        owner = owners.get(producer_id)
        if owner is None:
            tp = where[0]
            start = blocking[tp].start_offset
            level = logging.WARNING
            text = (f"producer {producer_id} in {names}, which no coordinator knows; end it in "
                    f"each partition: kafkalog transactions abort --topic {tp.topic} --partition "
                    f"{tp.partition} --start-offset {start} {servers}")  # fmt: skip
        else:
            old = time.time_ns() // 1_000_000 - owner.start_ms >= LONG_MS
            level = logging.WARNING if old else logging.INFO
            ends = _clock(owner.start_ms + owner.timeout_ms)
            text = (f"{owner.name!r} in {names}, open since {_clock(owner.start_ms)}; if its "
                    f"writer is dead, end it: kafkalog transactions force-terminate {owner.name} "
                    f"{servers}; the broker times it out after {ends}")  # fmt: skip
        _log.log(level, "%s: written, but hidden from readers of committed records by the open "
                 "transaction of %s", what, text)  # fmt: skip
    if len(by_producer) > TOLD:
        _log.warning("%s: and of %d more", what, len(by_producer) - TOLD)


def _clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).isoformat(" ", "seconds")


def _some(names: Sequence[str]) -> str:
    more = len(names) - TOLD
    return ", ".join(names[:TOLD]) + (f" and {more} more" if more > 0 else "")
