"""Transactions from outside: transactional ids, producers of partitions, hanging transactions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.calls.results import Results, each, values_of
from kafkalog.client.link.chunks import topic_rows
from kafkalog.client.link.cluster import TRANSACTION, Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import check_code, failure
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "FencedProducer",
    "HangingTransaction",
    "ProducerInfo",
    "TransactionInfo",
    "TransactionListing",
    "abort_transaction",
    "describe_producers",
    "describe_transactions",
    "fence_producers",
    "find_hanging",
    "list_transactions",
]

PATTERN_SINCE = 2
"""The first version of ListTransactions with a pattern."""
PARTITIONS_AT_ONCE = 1_000
"""The most partitions in one request for producers."""


class TransactionListing(NamedTuple):
    """A transactional id in a list."""

    name: str
    coordinator: int
    """A node."""
    producer_id: int
    state: str


class TransactionInfo(NamedTuple):
    """A transactional id, as its coordinator knows it."""

    name: str
    coordinator: int
    """A node."""
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """When the transaction began, in ms since 1970; negative: none is open."""
    partitions: tuple[TopicPartition, ...]
    """The partitions in which it is open."""


class ProducerInfo(NamedTuple):
    """A producer that a partition remembers."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    """-1: none of its transactions has ended here."""
    start_offset: int
    """First offset of its open transaction; -1: it has none."""


class FencedProducer(NamedTuple):
    """A transactional id with a new epoch."""

    name: str
    producer_id: int
    epoch: int


class HangingTransaction(NamedTuple):
    """A transaction that is open in a partition and unknown to its coordinator."""

    partition: TopicPartition
    producer: ProducerInfo
    age_ms: int
    """Since its last write."""


def list_transactions(
    cluster: Cluster,
    producer_ids: Collection[int] = (),
    longer_ms: int = -1,
    pattern: str | None = None,
    states: Collection[str] = (),
) -> list[TransactionListing]:
    """The transactional ids of every coordinator, sorted by name.

    `producer_ids`, `states`: only those with one of these; empty: all.  `longer_ms`: only those
    whose transaction, ended or not, began longer ago, and those that never had one; -1: all.
    `pattern`: only those whose whole name matches this regular expression.

    Raises: UnsupportedVersion: `longer_ms` for a broker before 3.8, `pattern` before 4.1; what a
    broker answers.
    """
    body = {
        "state_filters": list(states),
        "producer_id_filters": sorted(producer_ids),
        "duration_filter": longer_ms,
    }

    def step() -> list[TransactionListing]:
        cluster.refresh([])
        found = []
        for node in sorted(cluster.nodes):
            connection = cluster.connect(node)
            version = connection.version_of(apis.LIST_TRANSACTIONS)
            if longer_ms >= 0 and version < 1:
                raise errors.UnsupportedVersion(
                    f"{connection.address}: ListTransactions: version {version}, wanted 1 to "
                    "filter by duration"
                )
            if pattern is not None and version < PATTERN_SINCE:
                raise errors.UnsupportedVersion(
                    f"{connection.address}: ListTransactions: version {version}, wanted "
                    f"{PATTERN_SINCE} to filter by a pattern"
                )
            filtered = body if pattern is None else {**body, "transactional_id_pattern": pattern}
            answer = connection.call(apis.LIST_TRANSACTIONS, filtered, version)
            check_code(answer.error_code, f"transactions of node {node}")
            found += [
                TransactionListing(
                    one.transactional_id, node, one.producer_id, one.transaction_state
                )
                for one in answer.transaction_states
            ]
        return sorted(found)

    return cluster.retrying(step)


def describe_transactions(
    cluster: Cluster, names: Iterable[str], timeout_ms: int | None = None
) -> Results[str, TransactionInfo]:
    """Transactional ids by name.

    Failures: TransactionalIdNotFound; what a broker answers.  Raises: as `each`.
    """

    def place(name: str) -> int:
        return cluster.coordinator(name, TRANSACTION)

    def ask(
        connection: Connection, some: list[str], wait_ms: int
    ) -> Iterable[tuple[str, TransactionInfo | errors.KafkalogError]]:
        body = {"transactional_ids": some}
        answer = connection.call(apis.DESCRIBE_TRANSACTIONS, body, timeout_ms=wait_ms)
        return [
            (one.transactional_id, _transaction(one, place(one.transactional_id)))
            for one in answer.transaction_states
        ]

    return each(cluster, names, place, ask, timeout_ms)


def _transaction(one: Any, node: int) -> TransactionInfo | errors.KafkalogError:
    if one.error_code:
        return failure(one.error_code, f"transactional id {one.transactional_id!r}")
    return TransactionInfo(
        one.transactional_id, node, one.producer_id, one.producer_epoch, one.transaction_state,
        one.transaction_timeout_ms, one.transaction_start_time_ms,
        tuple(sorted(TopicPartition(t.topic, p) for t in one.topics for p in t.partitions)),
    )  # fmt: skip


def fence_producers(
    cluster: Cluster, names: Iterable[str], timeout_ms: int | None = None
) -> Results[str, FencedProducer]:
    """Begin a new epoch of transactional ids: fence their producers, and abort their open
    transactions.

    Failures: what a broker answers.  Raises: as `each`.
    """

    def ask(
        connection: Connection, some: list[str], wait_ms: int
    ) -> Iterable[tuple[str, FencedProducer | errors.KafkalogError]]:
        found: list[tuple[str, FencedProducer | errors.KafkalogError]] = []
        for name in some:
            # As in Kafka's own admin client: the timeout of a transaction that never begins.
            body = {"transactional_id": name, "transaction_timeout_ms": wait_ms}
            version = connection.version_of(apis.INIT_PRODUCER_ID, at_most=5)
            try:
                one = connection.call(apis.INIT_PRODUCER_ID, body, version, wait_ms)
            except errors.WakeUp:
                raise
            except errors.KafkalogError as problem:  # also the result of the rest
                return [*found, *((name, problem) for name in some[len(found) :])]
            code, what = one.error_code, f"transactional id {name!r}"
            fenced = FencedProducer(name, one.producer_id, one.producer_epoch)
            found.append((name, failure(code, what) if code else fenced))
        return found

    def place(name: str) -> int:
        return cluster.coordinator(name, TRANSACTION)

    return each(cluster, names, place, ask, timeout_ms)


def describe_producers(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    node: int | None = None,
    timeout_ms: int | None = None,
) -> Results[TopicPartition, list[ProducerInfo]]:
    """The producers that partitions remember; `node`: ask this one, None: their leaders.

    Failures: UnknownTopicOrPartition; what a broker answers.  Raises: as `each`.
    """

    def place(tp: TopicPartition) -> int:
        return cluster.leader(tp) if node is None else node

    def ask(
        connection: Connection, some: list[TopicPartition], wait_ms: int
    ) -> Iterable[tuple[TopicPartition, list[ProducerInfo] | errors.KafkalogError]]:
        found: list[tuple[TopicPartition, list[ProducerInfo] | errors.KafkalogError]] = []
        for at in range(0, len(some), PARTITIONS_AT_ONCE):
            rows = topic_rows(some[at : at + PARTITIONS_AT_ONCE], rows="partition_indexes")
            answer = connection.call(apis.DESCRIBE_PRODUCERS, {"topics": rows}, timeout_ms=wait_ms)
            found += values_of(answer, apis.DESCRIBE_PRODUCERS, "producers", _producers)
        return found

    return each(cluster, partitions, place, ask, timeout_ms)


def _producers(row: Any) -> list[ProducerInfo]:
    return [
        ProducerInfo(
            one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp,
            one.coordinator_epoch, one.current_txn_start_offset,
        )
        for one in row.active_producers
    ]  # fmt: skip


def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], age_ms: int, node: int | None = None
) -> list[HangingTransaction]:
    """Transactions that are open in a partition, last wrote at least `age_ms` ago, and that no
    coordinator has open there.  Sorted by partition and offset.

    `node`: look at this node's replicas of the partitions; None: at their leaders.

    Raises: UnknownTopicOrPartition; what a broker answers.
    """
    late = _late(cluster, partitions, age_ms, node)
    if not late:
        return []
    listed = list_transactions(cluster, {one.producer.producer_id for one in late})
    known = describe_transactions(cluster, [one.name for one in listed])
    for problem in known.errors.values():  # one that has expired in the meantime is no failure
        if problem.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise problem
    open_in = {(one.producer_id, tp) for one in known.done.values() for tp in one.partitions}
    unknown = [one for one in late if (one.producer.producer_id, one.partition) not in open_in]
    # One that has ended in the meantime is unknown to its coordinator, and its marker is written.
    again = _late(cluster, {one.partition for one in unknown}, age_ms, node)
    still = {(one.partition, one.producer.producer_id, one.producer.start_offset) for one in again}
    return [
        one
        for one in unknown
        if (one.partition, one.producer.producer_id, one.producer.start_offset) in still
    ]


def _late(
    cluster: Cluster, partitions: Iterable[TopicPartition], age_ms: int, node: int | None
) -> list[HangingTransaction]:
    """The open transactions whose last write was at least `age_ms` ago."""
    producers = describe_producers(cluster, partitions, node).check()
    now_ms = cluster.clock.now_ms()
    found = [
        HangingTransaction(tp, one, now_ms - one.last_timestamp_ms)
        for tp, each in producers.items()
        for one in each
        if one.start_offset >= 0 and now_ms - one.last_timestamp_ms >= age_ms
    ]
    return sorted(found, key=lambda one: (one.partition, one.producer.start_offset))


def abort_transaction(
    cluster: Cluster, tp: TopicPartition, producer_id: int, epoch: int, coordinator_epoch: int
) -> None:
    """Abort a transaction in one partition, whatever its coordinator knows of it.

    Raises: UnknownTopicOrPartition, InvalidProducerEpoch and TransactionCoordinatorFenced: the
    partition knows a later epoch; what a broker answers.
    """
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": False,
        "topics": [{"name": tp.topic, "partition_indexes": [tp.partition]}],
        "coordinator_epoch": max(coordinator_epoch, 0),  # -1: none of its transactions has ended
    }

    def step() -> None:
        connection = cluster.connect(cluster.leader(tp))
        version = connection.version_of(apis.WRITE_TXN_MARKERS, at_most=1)
        answer = connection.call(apis.WRITE_TXN_MARKERS, {"markers": [marker]}, version)
        codes = [
            row.error_code
            for one in answer.markers
            for topic in one.topics
            for row in topic.partitions
        ]
        if len(codes) != 1:
            raise errors.BadAnswer(f"WriteTxnMarkers: found {len(codes)} results, wanted 1")
        check_code(codes[0], f"{tp.topic}-{tp.partition}: abort of producer {producer_id}")

    cluster.retrying(step)
