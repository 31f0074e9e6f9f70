"""The results of a call about many things, and the loop that asks until each has one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from kafkalog import errors
from kafkalog.client.link.chunks import portions
from kafkalog.client.link.cluster import Backoff, Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import failure, passing
from kafkalog.client.link.patience import NotYet
from kafkalog.types import TopicPartition
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["ANY", "Ask", "NodeOf", "Results", "broker_ms", "each", "only", "values_of"]

K = TypeVar("K")
V = TypeVar("V")

ANY = -1
"""Instead of a node: any that answers."""

NodeOf: TypeAlias = Callable[[K], int]
"""The node to ask about a thing now; -1: any."""
Ask: TypeAlias = (
    "Callable[[Connection, list[K], int], Iterable[tuple[K, V | errors.KafkalogError]]]"
)
"""(broker, things, how many milliseconds to wait) -> its answer for each."""


class Results(Mapping[K, V], Generic[K, V]):
    """Maps each thing, or any tuple equal to it, to its result; looking up a thing that failed
    raises its failure.

    `errors` has the failures, `done` all results.  `check()` raises the first failure, for
    callers that want all or nothing; otherwise a failure is only raised when looked up.
    """

    def __init__(self, done: Mapping[K, V], failed: Mapping[K, errors.KafkalogError]) -> None:
        """`done` and `failed` have no thing in common."""
        self.done: dict[K, V] = dict(done)
        self.errors: dict[K, errors.KafkalogError] = dict(failed)

    def __getitem__(self, key: Any) -> V:
        """The result.  Raises: its failure; KeyError for what was not asked for."""
        if key in self.errors:
            raise self.errors[key]
        return self.done[key]

    def __contains__(self, key: object) -> bool:
        return key in self.done or key in self.errors

    def __iter__(self) -> Iterator[K]:
        yield from self.done
        yield from self.errors

    def __len__(self) -> int:
        return len(self.done) + len(self.errors)

    def __repr__(self) -> str:
        return f"Results({self.done!r}, errors={self.errors!r})"

    def check(self) -> dict[K, V]:
        """All results.  Raises: the first failure, if there is any; a permanent one before a
        transient one.
        """
        for problem in sorted(self.errors.values(), key=lambda one: one.retriable):
            raise problem
        return self.done


def each(
    cluster: Cluster,
    things: Iterable[K],
    place: NodeOf[K],
    ask: Ask[K, V],
    timeout_ms: int | None = None,
    answers: Collection[int] = (),
) -> Results[K, V]:
    """Ask the right node about every thing, and retry those with transient failures.

    `timeout_ms`: how long in total; None: the API timeout.  A thing that still fails then, or whose
    broker cannot be reached, has a failure as its result.  `answers`: error codes that are not
    retried, though Kafka calls them retriable.

    Raises: the failure to reach any broker, if none was ever reached.
    """
    with cluster.within(timeout_ms):
        return _each(cluster, list(dict.fromkeys(things)), place, ask, timeout_ms, answers)


def _each(
    cluster: Cluster, left: list[K], place: NodeOf[K], ask: Ask[K, V], timeout_ms: int | None,
    answers: Collection[int],
) -> Results[K, V]:  # fmt: skip
    order = {thing: i for i, thing in enumerate(left)}
    done: dict[K, V] = {}
    failed: dict[K, errors.KafkalogError] = {}
    backoff = cluster.backoff(timeout_ms)
    while left:
        found = _round(cluster, left, place, ask, backoff)
        left, late = [], backoff.over()
        spent_ms = backoff.patience_ms - backoff.left_ms()
        full = late or spent_ms >= cluster.options.storage_timeout_ms
        for thing, value in found.items():
            if isinstance(value, NotYet):
                raise value
            if not isinstance(value, errors.KafkalogError):
                done[thing] = value
            elif not cluster.reached:
                raise value
            elif (
                passing(value)
                and value.code not in answers
                and not (full if value.code == ErrorCode.KAFKA_STORAGE_ERROR else late)
            ):
                left.append(thing)
            else:
                failed[thing] = value
        if left:
            cluster.forget()
            cluster.forget_coordinators()
            cluster.controller_id = ANY
            backoff.wait()
            if backoff.over():  # too late to ask again: the last failure counts
                failed.update({thing: value for thing, value in found.items() if thing in left
                               and isinstance(value, errors.KafkalogError)})  # fmt: skip
                left = []
    by_order = order.__getitem__
    return Results(
        {thing: done[thing] for thing in sorted(done, key=by_order)},
        {thing: failed[thing] for thing in sorted(failed, key=by_order)},
    )


def _round(
    cluster: Cluster, things: list[K], place: NodeOf[K], ask: Ask[K, V], backoff: Backoff
) -> dict[K, V | errors.KafkalogError]:
    """The answer for each thing now."""
    found: dict[K, V | errors.KafkalogError] = {}
    by_node: dict[int, list[K]] = {}
    for thing in things:
        try:
            by_node.setdefault(place(thing), []).append(thing)
        except errors.WakeUp:
            raise
        except errors.KafkalogError as problem:
            found[thing] = problem
    for node, some in ((node, part) for node, all_ in by_node.items() for part in portions(all_)):
        wait_ms = min(backoff.left_ms(), cluster.options.request_timeout_ms)
        try:
            connection = cluster.any() if node == ANY else cluster.connect(node)
            answers = dict(ask(connection, list(some), wait_ms))
        except errors.WakeUp:
            raise
        except errors.KafkalogError as problem:
            found.update(dict.fromkeys(some, problem))
            continue
        for thing in some:
            if thing in answers:
                found[thing] = answers[thing]
            else:
                found[thing] = errors.BadAnswer(
                    f"{connection.address}: no answer for {_named(thing)}"
                )
    return found


def values_of(
    answer: Any,
    api: Api,
    subject: str,
    value: Callable[[Any], V],
    topic: str = "name",
    partition: str = "partition_index",
) -> Iterator[tuple[TopicPartition, V | errors.KafkalogError]]:
    """The value that an answer has for each partition, or its error about that partition's
    `subject`.  `topic`, `partition`: the fields with their names."""
    for one in answer.topics:
        for row in one.partitions:
            tp = TopicPartition(getattr(one, topic), getattr(row, partition))
            if row.error_code:
                about = f"{subject} of {tp.topic}-{tp.partition}"
                detail = getattr(row, "error_message", None)
                yield tp, failure(row.error_code, about, detail, api)
            else:
                yield tp, value(row)


def _named(thing: object) -> str:
    return "-".join(map(str, thing)) if isinstance(thing, tuple) else repr(thing)


def broker_ms(wait_ms: int) -> int:
    """A time limit for the broker when we wait `wait_ms`: its answer that the time is over, or that
    all is done after all, must still reach us."""
    return max(1, wait_ms * 9 // 10)


def only(results: Results[K, V]) -> V:
    """The result of the only thing that was asked for.  Raises: its failure."""
    (key,) = results
    return results[key]
