"""Moves partitions to other brokers (KIP-455).

Decisions, as defined in kafkalog.controller.partitions; the rules are those of Kafka's
controller on ZooKeeper (3.9).  Old and new brokers keep a partition while it is moved, until all
of the new are in sync.  Then the new ones keep it alone, one of them leads it, and the others drop
their copies.  Another reassignment, or a cancellation, replaces one that is under way.

A move ends in two writes, as with Kafka's controller.  By the first, one of the new brokers leads
and they alone are in sync.  Then the removed replicas are stopped.  By the second, the move has
ended.  A controller that is elected in between finds that the end is due, and stops the removed
replicas again: no other would.

Kafka's controller writes a partition's replicas and its leader one after the other.  Here they are
one write, so that no controller that is elected in between finds half of it.  The replica with the
last in-sync copy is not removed: Kafka's later controllers (KRaft) refuse that, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalog.controller.context import NEVER_LED, Context, leadership
from kafkalog.controller.leader_election import Leadership, elect_for_reassignment
from kafkalog.controller.partitions import Deciding, guarded, update_leadership
from kafkalog.controller.records import PartitionChange, RequestedMoves, TopicPartition
from kafkalog.controller.requests import RequestBatch
from kafkalog.metadata.image import NO_LEADER, Partition
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "Refusal",
    "alter_reassignments",
    "cancel_requested",
    "list_reassignments",
    "moving",
    "reassign",
    "reassign_requested",
    "resume",
    "target",
]

AT_ONCE = 500
"""Partitions of a topic in one record, whose size stores limit."""


class Refusal(NamedTuple):
    """Why a partition is not moved."""

    error: ErrorCode
    message: str


FAILED = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller's log says why.")


def moving(one: Partition) -> bool:
    """True if a reassignment is under way."""
    return bool(one.adding_replicas or one.removing_replicas)


def target(one: Partition) -> tuple[int, ...]:
    """The nodes that keep a partition after its move."""
    return _without(one.replicas, one.removing_replicas)


def _origin(one: Partition) -> tuple[int, ...]:
    """The nodes that kept it before its move."""
    return _without(one.replicas, one.adding_replicas)


def _without(those: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(one for one in those if one not in others)


def _moved(one: Partition, wanted: Sequence[int]) -> Partition:
    """The partition moving to `wanted`: these come first, for one of them leads once it may."""
    origin = _origin(one)
    if one.leader_epoch == NEVER_LED:
        origin = ()  # there are no records yet to copy
    replicas = tuple(dict.fromkeys([*wanted, *origin]))
    adding = _without(replicas, origin) if origin else ()
    return one._replace(
        replicas=replicas, adding_replicas=adding, removing_replicas=_without(replicas, wanted)
    )


def _ended(one: Partition) -> Partition:
    return one._replace(replicas=target(one), adding_replicas=(), removing_replicas=())


def _complete(one: Partition) -> bool:
    return not moving(one) or {*target(one)} <= {*one.isr}


# ---- what is asked -------------------------------------------------------------------------


Targets = Mapping[TopicPartition, "tuple[int, ...] | None"]
"""The nodes that must keep each partition; None: cancel its move."""


def reassign(
    context: Context, batch: RequestBatch, targets: Targets
) -> Deciding[dict[TopicPartition, Refusal | None]]:
    """Begin to move partitions; returns why each is refused, None if it is not."""
    return (yield from _reassign(context, batch, targets, live=True))


def _reassign(
    context: Context, batch: RequestBatch, targets: Targets, live: bool
) -> Deciding[dict[TopicPartition, Refusal | None]]:
    answers: dict[TopicPartition, Refusal | None] = {}
    wanted: dict[TopicPartition, Partition] = {}
    for key, replicas in targets.items():
        found = guarded(context, key, FAILED, partial(_judged, context, key, replicas, live))
        if isinstance(found, Partition):
            wanted[key] = found
        else:
            answers[key] = found
    done = yield from _go_on(context, batch, wanted)
    for key in wanted:
        answers[key] = None if key in done else Refusal(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "the partition's state in ZooKeeper has changed since: try again",
        )  # fmt: skip
    if live and context.requested_moves.keys() & done:
        yield from _write_requested(context, done)  # the latest takes precedence
    return answers


def _judged(
    context: Context, key: TopicPartition, replicas: tuple[int, ...] | None, live: bool
) -> Partition | Refusal:
    """The partition as it moves, or why it is refused; `live`: new brokers must be live."""
    one = context.partitions.get(key)
    if replicas is not None:
        origin = () if one is None else _origin(one)
        problem = _wrong(replicas)
        away = [each for each in replicas if each not in origin and each not in context.brokers]
        if problem is None and live and away:
            problem = f"brokers {away} are not live; those that are: {sorted(context.brokers)}"
        if problem is not None:
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    elif one is None or not moving(one):
        return Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment is in progress.")
    if one is None or key[0] in context.deleted:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    found = _moved(one, _origin(one) if replicas is None else replicas)
    if one.isr and not {*one.isr} & {*found.replicas}:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of {list(found.replicas)} is in sync: what {list(one.isr)} have would be lost",
        )
    return found


def _wrong(replicas: Sequence[int]) -> str | None:
    if not replicas:
        return "Empty replica list specified in partition reassignment."
    if len({*replicas}) < len(replicas):
        return f"Duplicate replica ids in partition reassignment replica list: {list(replicas)}"
    if min(replicas) < 0:
        return f"Invalid broker id in replica list: {list(replicas)}"
    return None


def reassign_requested(
    context: Context, batch: RequestBatch, asked: Mapping[TopicPartition, tuple[int, ...]]
) -> Deciding[dict[TopicPartition, Refusal]]:
    """The store requests these moves, as tools older than KIP-455 wrote them; returns why
    partitions are not moved.

    Moves that have ended are removed from the request.
    """
    context.requested_moves = dict(asked)
    answers = yield from _reassign(context, batch, asked, live=False)
    refused = {key: answer for key, answer in answers.items() if answer is not None}
    left = context.requested_moves
    over = {key for key in left if key in refused or not moving(context.partitions[key])}
    if over or not asked:
        yield from _write_requested(context, over)
    return refused


def cancel_requested(context: Context, topics: Collection[str]) -> Deciding[None]:
    """These topics are being deleted, and their moves end with them: remove those that the store
    requested."""
    over = [key for key in context.requested_moves if key[0] in topics]
    if over:
        yield from _write_requested(context, over)


def _write_requested(context: Context, over: Iterable[TopicPartition]) -> Deciding[None]:
    for key in over:
        context.requested_moves.pop(key, None)
    yield [RequestedMoves(dict(context.requested_moves))]


# ---- how a move continues ------------------------------------------------------------------


def resume(
    context: Context, batch: RequestBatch, keys: Iterable[TopicPartition] | None = None
) -> Deciding[None]:
    """End the moves whose new replicas are in sync by now.

    `keys`: None: all partitions.  A topic that is being deleted has no moves.
    """
    partitions = context.partitions
    wanted = {
        key: partitions[key]
        for key in (list(partitions) if keys is None else dict.fromkeys(keys))
        if key in partitions and moving(partitions[key]) and _complete(partitions[key])
        and key[0] not in context.deleted
    }  # fmt: skip
    context.moves_to_check.difference_update(wanted)
    yield from _go_on(context, batch, wanted)


def _go_on(
    context: Context, batch: RequestBatch, wanted: Mapping[TopicPartition, Partition]
) -> Deciding[set[TopicPartition]]:
    """Write the replicas and leaders of partitions; returns those that were written."""
    if not wanted:
        return set()
    done: set[TopicPartition] = set()
    passed = [
        key
        for key, one in wanted.items()
        if key not in context.stale
        and guarded(context, key, False, partial(_writable, context, key, one))
    ]
    for portion in _portions(passed):
        changes = [
            PartitionChange(
                topic,
                {key: context.led(key, *_next(context, key, wanted[key])) for key in keys},
                replicas=True,
            )
            for topic, keys in portion.items()
        ]
        outcomes = yield changes
        ending: dict[TopicPartition, Partition] = {}
        for one, outcome in zip(changes, outcomes, strict=True):
            context.stale |= outcome.stale
            if outcome.done:
                before = {key: context.partitions[key] for key in one.after}
                context.written(one)
                for key in one.after:
                    after = context.partitions[key]
                    if moving(after) and _complete(after):
                        ending[key] = after
                        context.partitions[key] = _ended(after)  # sent first, then written
                    _tell(context, batch, key, before[key])
                done |= before.keys()
        yield from _write_ends(context, batch, ending)
    yield from _end(context, batch, done)
    return done


def _write_ends(
    context: Context, batch: RequestBatch, ending: Mapping[TopicPartition, Partition]
) -> Deciding[None]:
    """End these moves, once all brokers have been informed.  If the topic has been changed since,
    its moves stay as they were, and end another time."""
    if not ending:
        return
    batch.expedite()
    topics = dict.fromkeys(topic for topic, _ in ending)
    changes = [
        PartitionChange(
            topic,
            {key: context.partitions[key] for key in ending if key[0] == topic},
            replicas=True,
        )
        for topic in topics
    ]
    outcomes = yield changes
    for one, outcome in zip(changes, outcomes, strict=True):
        if not outcome.done:
            context.partitions.update((key, ending[key]) for key in one.after)
            batch.update_metadata(one.after)


def _portions(keys: Iterable[TopicPartition]) -> Iterator[dict[str, list[TopicPartition]]]:
    """By topic, at most AT_ONCE of each at a time: a write of a topic builds on the one before."""
    topics: dict[str, list[TopicPartition]] = {}
    for key in keys:
        topics.setdefault(key[0], []).append(key)
    while topics:
        yield {topic: those[:AT_ONCE] for topic, those in topics.items()}
        topics = {topic: those[AT_ONCE:] for topic, those in topics.items() if those[AT_ONCE:]}


def _next(
    context: Context, key: TopicPartition, one: Partition
) -> tuple[Partition, Leadership | None]:
    """A partition once this is written, and its leadership; None: it never had one.

    The leader epoch rises even if nothing else changes: all brokers must ask again.
    """
    if one.leader_epoch == NEVER_LED:
        return one, None
    staying = target(one) if _complete(one) else one.replicas
    now, live = leadership(one), context.electable(key)
    kept = tuple(each for each in now.isr if each in staying)
    leader = now.leader
    if leader not in staying or leader not in context.holding(key):
        within = now._replace(isr=kept)
        elected = elect_for_reassignment(within, target(one), live) or elect_for_reassignment(
            within, staying, live
        )
        leader = NO_LEADER if elected is None else elected.leader
    return one, Leadership(leader, now.leader_epoch + 1, kept or now.isr, now.recovering)


def _writable(context: Context, key: TopicPartition, one: Partition) -> bool:
    """True.  Raises if the next write of a partition cannot be made."""
    context.led(key, *_next(context, key, one))
    return True


def _tell(context: Context, batch: RequestBatch, key: TopicPartition, was: Partition) -> None:
    one, holding = context.partitions[key], set(context.holding(key))
    batch.update_metadata([key])
    if one.leader_epoch != NEVER_LED:
        for each in one.replicas:
            if each in holding:
                batch.leader_and_isr([each], key, new=each in one.adding_replicas)
    for each in _without(was.replicas, one.replicas):
        batch.stop_replica(each, key, delete=True)
        context.moved_off(each, key)


def _end(context: Context, batch: RequestBatch, done: Iterable[TopicPartition]) -> Deciding[None]:
    """Do what waited for these."""
    over = [key for key in done if not moving(context.partitions[key])]
    yield from update_leadership(
        context, batch, [key for key in over if context.partitions[key].leader_epoch == NEVER_LED]
    )
    if context.requested_moves.keys() & {*over}:
        yield from _write_requested(context, over)


# ---- on the wire ---------------------------------------------------------------------------


def alter_reassignments(
    context: Context, batch: RequestBatch, request: Any
) -> Deciding[dict[str, Any]]:
    """AlterPartitionReassignments; returns the fields of its response."""
    asked = {
        (topic.name, row.partition_index): None if row.replicas is None else tuple(row.replicas)
        for topic in request.topics
        for row in topic.partitions
    }
    answers = yield from reassign(context, batch, asked)
    responses = []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            found = answers[topic.name, row.partition_index]
            error, message = (ErrorCode.NONE, None) if found is None else found
            rows.append({"partition_index": row.partition_index, "error_code": error,
                         "error_message": message})  # fmt: skip
        responses.append({"name": topic.name, "partitions": rows})
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": responses}


def list_reassignments(context: Context, request: Any) -> dict[str, Any]:
    """ListPartitionReassignments; returns the fields of its response."""
    keys: Iterable[TopicPartition] = context.partitions
    if request.topics is not None:
        keys = [(one.name, number) for one in request.topics for number in one.partition_indexes]
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, number in dict.fromkeys(keys):
        one = context.partitions.get((topic, number))
        if one is not None and moving(one) and topic not in context.deleted:
            topics.setdefault(topic, []).append(
                {
                    "partition_index": number,
                    "replicas": list(one.replicas),
                    "adding_replicas": list(one.adding_replicas),
                    "removing_replicas": list(one.removing_replicas),
                }
            )
    rows = [{"name": name, "partitions": found} for name, found in topics.items()]
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": rows}
