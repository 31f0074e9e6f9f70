"""All transactional ids of this broker, without a thread: finds the transactional id for each
request, completes the ends of transactions, and applies timeouts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import count
from typing import Any

from kafkalog.config.transaction import TransactionConfig
from kafkalog.coordinator.core import CoordinatorState
from kafkalog.coordinator.journal import JournalBatch
from kafkalog.coordinator.listings import FEW, Listing
from kafkalog.coordinator.step import Body, Call, Step, all_of
from kafkalog.coordinator.timers import Key
from kafkalog.coordinator.transactions import loader, requests
from kafkalog.coordinator.transactions.admin import (
    Descriptions,
    TransactionListing,
    described_error,
)
from kafkalog.coordinator.transactions.outcomes import Outcome, outcome_of
from kafkalog.coordinator.transactions.requests import ProducerAnswer, ProducerClaim
from kafkalog.coordinator.transactions.shard import Marker, Outside, TransactionShard
from kafkalog.coordinator.transactions.transaction import NONE, State, Transaction, completed
from kafkalog.coordinator.weight import Weight
from kafkalog.logs.limit import limited
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["SERVED", "TransactionCoordinatorState"]

LOG = limited(__name__)

SERVED = frozenset(
    {
        apis.INIT_PRODUCER_ID,
        apis.ADD_PARTITIONS_TO_TXN,
        apis.ADD_OFFSETS_TO_TXN,
        apis.END_TXN,
        apis.DESCRIBE_TRANSACTIONS,
        apis.LIST_TRANSACTIONS,
    }
)
"""The APIs that `request` takes."""

APPEND_MS = 30_000
"""How long writing a change to the journal may take: Kafka's request.timeout.ms."""
RETRY_MS = 100
"""How long before a marker, or the record of a completed end, is retried."""
FENCED_MS = 10_000
"""The same if a partition knows a newer coordinator, or an administrator ended the transaction: the
end waits until our epoch is as new.  Kafka's coordinator stops writing such markers, too."""
BATCHED_VERSION = 4
"""From this version on, AddPartitionsToTxn has several transactional ids, and is for brokers."""
FENCED_SINCE = {
    apis.INIT_PRODUCER_ID: 4, apis.ADD_PARTITIONS_TO_TXN: 2, apis.ADD_OFFSETS_TO_TXN: 2,
    apis.END_TXN: 2,
}  # fmt: skip
"""The first version whose clients know PRODUCER_FENCED (KIP-588)."""
RAISING_SINCE = 5
"""The first version of EndTxn in which each end raises the epoch: transaction version 2."""
Results = dict[TopicPartition, ErrorCode]


def _code_for(api: Api, version: int, error: ErrorCode) -> ErrorCode:
    """An error in the form that a client of this version knows."""
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE[api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _asked_partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def _by_topic(topics: Iterable[Any], results: Callable[[TopicPartition], ErrorCode]) -> list[Body]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": number,
                    "partition_error_code": results(TopicPartition(topic.name, number)),
                }
                for number in topic.partitions
            ],
        }
        for topic in topics
    ]


class TransactionCoordinatorState(CoordinatorState[TransactionShard]):
    """The transactional ids.  Only for the coordinator's thread."""

    def __init__(self, config: TransactionConfig, outside: Outside) -> None:
        super().__init__(APPEND_MS)
        self.config = config
        self._outside = outside
        self.weight = Weight()
        """Approximate memory of all transactional ids."""
        self._lives = count()
        self._handlers: dict[Api, Callable[[Step, Call], None]] = {
            apis.INIT_PRODUCER_ID: self._init_producer,
            apis.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            apis.ADD_OFFSETS_TO_TXN: self._add_offsets,
            apis.END_TXN: self._end,
            apis.DESCRIBE_TRANSACTIONS: self._describe,
            apis.LIST_TRANSACTIONS: self._list,
        }

    # ---- partitions ------------------------------------------------------------------------

    def new_shard(self, partition: int, epoch: int) -> TransactionShard:
        """An empty shard of a partition, to be filled by `load`."""
        return TransactionShard(
            partition, epoch, next(self._lives), self.config, self.timers, self._outside,
            self._has_room,
        )  # fmt: skip

    def _has_room(self, more: int, more_bytes: int) -> bool:
        kept = sum(len(shard.ids) for shard in self.shards.values()) if more else 0
        total = self.weight.bytes + more_bytes
        fits = not more_bytes or total <= self.config.kafkalog_transactions_max_bytes
        return fits and kept + more <= self.config.kafkalog_transactional_ids_max

    def load(self, shard: TransactionShard, batches: Iterable[JournalBatch], wall_ms: int) -> None:
        """Fill an empty shard from its journal; in any thread, touches no timer."""
        loader.load(shard, batches)

    def _resume(self, shard: TransactionShard, step: Step) -> None:
        shard.weight.move(self.weight)
        loader.resume(shard, step)
        # Immediately: a directory may be open for less than the interval of this check.
        self.timers.set(("late", shard.partition, "", ""), step.now_ms)
        self._look_for_expired(shard.partition, step)

    def _resigned(self, shard: TransactionShard, step: Step) -> None:
        shard.weight.move(None)
        for one in list(shard.ids.values()):
            shard.refuse_waiting(step, one, ErrorCode.NOT_COORDINATOR)

    # ---- requests --------------------------------------------------------------------------

    def request(self, api: Api, request: Call, step: Step) -> None:
        """Take a request; it is answered in this step or a later one."""
        self._handlers[api](step, request)

    def refuse(self, api: Api, request: Call, step: Step, error: ErrorCode) -> None:
        """Answer with an error that does not depend on a transaction's state."""
        body = request.body
        if api is apis.ADD_PARTITIONS_TO_TXN and request.version < BATCHED_VERSION:
            topics = _by_topic(body.v3_and_below_topics, lambda _where: error)
            step.answer(request.answer, results_by_topic_v3_and_below=topics)
        elif api is apis.INIT_PRODUCER_ID:
            step.answer(request.answer, error_code=error, producer_epoch=NONE)
        elif api is apis.DESCRIBE_TRANSACTIONS:
            names = dict.fromkeys(body.transactional_ids)
            found = [described_error(name, error) for name in names]
            step.answer(request.answer, transaction_states=found)
        else:
            step.answer(request.answer, error_code=error)

    def _init_producer(self, step: Step, request: Call) -> None:
        body, version = request.body, request.version
        claim = ProducerClaim(body.transactional_id, body.producer_id, body.producer_epoch)

        def then(step: Step, answer: ProducerAnswer) -> None:
            code = _code_for(apis.INIT_PRODUCER_ID, version, answer.error)
            step.answer(request.answer, error_code=code, producer_id=answer.producer_id,
                        producer_epoch=answer.epoch)  # fmt: skip

        if (body.producer_id == NONE) != (body.producer_epoch == NONE):
            then(step, ProducerAnswer(ErrorCode.INVALID_REQUEST))
            return
        shard, error = self.where(claim.transactional_id)
        if shard is None:
            then(step, ProducerAnswer(error))
        else:
            requests.init_producer(shard, step, claim, body.transaction_timeout_ms, then)

    def _end(self, step: Step, request: Call) -> None:
        body = request.body
        claim = ProducerClaim(body.transactional_id, body.producer_id, body.producer_epoch)

        def then(step: Step, answer: ProducerAnswer) -> None:
            code = _code_for(apis.END_TXN, request.version, answer.error)
            step.answer(request.answer, error_code=code, producer_id=answer.producer_id,
                        producer_epoch=answer.epoch)  # fmt: skip

        shard, error = self.where(claim.transactional_id)
        version = 2 if request.version >= RAISING_SINCE else 0
        if shard is None:
            then(step, ProducerAnswer(error))
        else:
            requests.end(shard, step, claim, body.committed, version, then)

    # ---- partitions of transactions --------------------------------------------------------

    def join(
        self, step: Step, claim: ProducerClaim, partitions: Collection[TopicPartition],
        version: int, then: Callable[[Step, Results], None],
    ) -> None:  # fmt: skip
        """Add existing partitions to a transaction of this version."""
        shard, error = self.where(claim.transactional_id)
        if shard is None:
            then(step, dict.fromkeys(partitions, error))
            return
        requests.add_partitions(
            shard, step, claim, partitions, version,
            lambda step, error: then(step, dict.fromkeys(partitions, error)),
        )  # fmt: skip

    def verify(self, claim: ProducerClaim, partitions: Collection[TopicPartition]) -> Results:
        """True if partitions are part of an open transaction."""
        shard, error = self.where(claim.transactional_id)
        if shard is None:
            return dict.fromkeys(partitions, error)
        return requests.verify(shard, claim, partitions)

    def _add_partitions(self, step: Step, request: Call) -> None:
        body, version = request.body, request.version
        if version < BATCHED_VERSION:
            topics = body.v3_and_below_topics
            claim = ProducerClaim(body.v3_and_below_transactional_id, body.v3_and_below_producer_id,
                          body.v3_and_below_producer_epoch)  # fmt: skip

            def only(step: Step, results: Results) -> None:
                def result(where: TopicPartition) -> ErrorCode:
                    return _code_for(apis.ADD_PARTITIONS_TO_TXN, version, results[where])

                found = _by_topic(topics, result)
                step.answer(request.answer, results_by_topic_v3_and_below=found)

            partitions = _asked_partitions(topics)
            if (lost := self._missing(partitions)) is not None:
                only(step, lost)
            else:
                self.join(step, claim, partitions, 0, only)
            return
        asked_for = body.transactions
        done: dict[int, Results] = {}

        def one(number: int, step: Step, results: Results) -> None:
            done[number] = results
            if len(done) == len(asked_for):
                step.answer(request.answer, error_code=ErrorCode.NONE, results_by_transaction=[
                    {"transactional_id": each.transactional_id,
                     "topic_results": _by_topic(each.topics, done[i].__getitem__)}
                    for i, each in enumerate(asked_for)
                ])  # fmt: skip

        if not asked_for:
            step.answer(request.answer, error_code=ErrorCode.NONE, results_by_transaction=[])
        for number, each in enumerate(asked_for):
            claim = ProducerClaim(each.transactional_id, each.producer_id, each.producer_epoch)
            partitions = _asked_partitions(each.topics)
            if (lost := self._missing(partitions)) is not None:
                one(number, step, lost)
            elif each.verify_only:
                one(number, step, self.verify(claim, partitions))
            else:
                self.join(step, claim, partitions, 0, partial(one, number))

    def _missing(self, partitions: list[TopicPartition]) -> Results | None:
        """The answer if this node's metadata lack a partition: its end would not be written."""
        counts = {topic: self._outside.topic_partitions(topic) for topic, _ in partitions}
        missing = {p for p in partitions if not 0 <= p.partition < counts[p.topic]}
        lost, fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        return {p: lost if p in missing else fine for p in partitions} if missing else None

    def _add_offsets(self, step: Step, request: Call) -> None:
        body = request.body
        claim = ProducerClaim(body.transactional_id, body.producer_id, body.producer_epoch)
        where = self._outside.group_partition(body.group_id)

        def then(step: Step, results: Results) -> None:
            (error,) = results.values()
            code = _code_for(apis.ADD_OFFSETS_TO_TXN, request.version, error)
            step.answer(request.answer, error_code=code)

        if where is None:
            step.answer(request.answer, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self.join(step, claim, [where], 0, then)

    # ---- ends ------------------------------------------------------------------------------

    @property
    def unfinished(self) -> bool:
        """True if a transaction's end is decided, and one of its partitions lacks the marker."""
        return any(
            one.status.prepared and one.markers
            for shard in self.shards.values()
            for one in shard.ids.values()
        )

    def marked(self, marker: Marker, error: ErrorCode, step: Step) -> None:
        """The outcome of a Marker.

        The outcome does not count if the shard that sent the marker was given up since: the shard
        that replaced it sends its own marker, which is in flight and must not end the next
        transaction.
        """
        shard = self.shards.get(marker.shard)
        if shard is None or shard.life != marker.life:
            return
        name, where = marker.transactional_id, marker.where
        one = shard.ids.get(name)
        if one is None or not one.status.prepared or one.status.epoch != marker.epoch:
            return  # already done, or another's now
        if where not in one.markers:
            return
        exists = 0 <= where.partition < self._outside.topic_partitions(where.topic)
        outcome = outcome_of(error, exists)
        if not outcome.final:
            key = ("marker", marker.shard, name, f"{where.partition} {where.topic}")
            fenced = outcome is Outcome.FENCED
            self.timers.set(key, step.now_ms + (FENCED_MS if fenced else RETRY_MS))
            return
        if outcome is not Outcome.DONE:
            LOG.warning("transactional id %s: its transaction gets no end in %s-%d: %s",
                        name, *where, outcome.value)  # fmt: skip
        one.markers.discard(where)
        if not one.markers:
            self._complete(shard, step, one)

    def _complete(self, shard: TransactionShard, step: Step, one: Transaction) -> None:
        """All partitions have the marker: write that until it is written."""
        if not one.status.prepared or one.markers:
            return

        def again(step: Step) -> None:
            if not shard.closed:
                key = ("complete", shard.partition, one.transactional_id, "")
                self.timers.set(key, step.now_ms + RETRY_MS)

        def settled(step: Step, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                again(step)

        if one.pending is not None:
            again(step)  # too slow: only this place notices the failure
        else:
            shard.write(step, one, completed(one.status, step.wall_ms), settled)

    # ---- admin -----------------------------------------------------------------------------

    def _describe(self, step: Step, request: Call) -> None:
        def begin(request: Call) -> Listing:
            return Descriptions(request, self.where)

        few = len(request.body.transactional_ids) <= FEW
        self._begin_listing(step, apis.DESCRIBE_TRANSACTIONS, request, begin, few=few)

    def _list(self, step: Step, request: Call) -> None:
        if self.stopped or self.loading:
            step.answer(request.answer, error_code=self.all_told)
            return

        def begin(request: Call) -> Listing:
            return TransactionListing(request, self.shards.values())

        self._begin_listing(step, apis.LIST_TRANSACTIONS, request, begin)

    # ---- time ------------------------------------------------------------------------------

    def _expire(self, key: Key, step: Step) -> None:
        kind, partition, name, detail = key
        shard = self.shards.get(partition)
        if shard is None:
            return
        if kind == "late":
            self._look_for_late(partition, step)
            self._abort_late(shard, step)
        elif kind == "expired":
            self._look_for_expired(partition, step)
            self._forget_expired(shard, step)
        elif (one := shard.ids.get(name)) is None:
            return
        elif kind == "complete":
            self._complete(shard, step, one)
        elif kind == "waiting":
            shard.refuse_waiting(step, one, ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            number, _, topic = detail.partition(" ")
            where = TopicPartition(topic, int(number))
            if one.status.prepared and where in one.markers:
                shard.send(step, one, where)

    def _look_for_late(self, partition: int, step: Step) -> None:
        ms = self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self.timers.set(("late", partition, "", ""), step.now_ms + ms)

    def _look_for_expired(self, partition: int, step: Step) -> None:
        ms = self.config.transaction_remove_expired_transaction_cleanup_interval_ms
        self.timers.set(("expired", partition, "", ""), step.now_ms + ms)

    @staticmethod
    def _abort_late(shard: TransactionShard, step: Step) -> None:
        """Abort transactions that have timed out."""
        late = [
            one for one in shard.ids.values()
            if one.deadline_ms is not None and step.now_ms >= one.deadline_ms
            and one.pending is None and one.status.state is State.ONGOING
        ]  # fmt: skip
        all_of(partial(requests.fence, shard, step, one) for one in late)

    def _forget_expired(self, shard: TransactionShard, step: Step) -> None:
        """Forget transactional ids that have expired."""
        before_ms = step.wall_ms - self.config.transactional_id_expiration_ms
        for one in list(shard.ids.values()):
            status = one.status
            if one.pending is None and status.over and status.updated_ms <= before_ms:
                dead = status._replace(state=State.DEAD)
                shard.write(step, one, dead, lambda _step, _error: None)
