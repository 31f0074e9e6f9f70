"""Deletes topics, first from the brokers, then from the store, and copies that moves left behind.

Decisions, as defined in kafkalog.controller.partitions; the rules are those of Kafka's
controller on ZooKeeper.  A topic waits while one of its brokers is offline, because that one could
bring it back.  Failures are retried after a delay.

Unlike Kafka's: a deletion ends the moves of the topic's partitions instead of waiting for them, and
old and new brokers drop their copies.  A move could not end by itself: brokers no longer serve a
topic that is being deleted, so no new replica could copy the rest.

Beyond Kafka's: a broker that no longer keeps a partition is asked to drop its copy until it has,
also after it comes back; if its disk failed, only then.  No topic waits for that, and it continues
after the topic is deleted, until another controller is elected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kafkalog.controller.context import Context, Copies
from kafkalog.controller.partitions import Deciding
from kafkalog.controller.reassign import cancel_requested
from kafkalog.controller.records import Confirmation, TopicPartition, TopicRemoval
from kafkalog.controller.requests import RequestBatch
from kafkalog.controller.topics import topic_removed
from kafkalog.logs.limit import limited
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "delete_again",
    "delete_stray_replicas",
    "delete_topics",
    "replicas_dropped",
    "topics_to_delete",
]

_logger = limited(__name__)


def topics_to_delete(
    context: Context, batch: RequestBatch, topics: Iterable[str]
) -> Deciding[None]:
    """Delete these topics: clients no longer see them.  Of a name without a topic only the request
    is removed."""
    wanted = set(topics)
    context.deleted |= wanted
    keys = [key for key in context.partitions if key[0] in wanted]
    if keys:
        batch.update_metadata(keys)
    yield from cancel_requested(context, wanted)
    yield from delete_topics(context, batch)


def delete_topics(context: Context, batch: RequestBatch) -> Deciding[None]:
    """Continue the deletions as far as possible now: have each broker drop its copies, and remove
    the topics that all brokers have dropped from the store."""
    stops: Copies = {}
    gone = []
    for topic in sorted(context.deleted):
        failed = context.failed.pop(topic, set())
        left = _left(context, topic)
        stops[topic] = (left or set()) | failed & _stray_replicas(context, topic)
        if left is not None and not left:
            gone.append(topic)
    yield from _stop(context, batch, stops)
    for topic in gone:
        yield from _remove(context, topic)


def delete_again(context: Context, batch: RequestBatch) -> Deciding[None]:
    """Retry what failed, and nothing else: a broker that has not answered is not asked twice."""
    failed, context.failed = context.failed, {}
    stops: Copies = {}
    gone = []
    for topic, those in sorted(failed.items()):
        left = _left(context, topic) if topic in context.deleted else None
        stops[topic] = those & ((left or set()) | _stray_replicas(context, topic))
        if left is not None and not left:
            gone.append(topic)
    context.retrying |= {(topic, copy) for topic, copies in stops.items() for copy in copies
                      if copy[1] in context.brokers}  # fmt: skip
    context.retrying |= {(topic, None) for topic in gone}
    yield from _stop(context, batch, stops)
    for topic in gone:
        yield from _remove(context, topic)


def delete_stray_replicas(
    context: Context, batch: RequestBatch, brokers: Collection[int] | None = None
) -> Deciding[None]:
    """Have brokers drop the copies that moves left behind; `brokers`: None: all of them."""
    yield from _stop(context, batch, {
        topic: {copy for copy in _stray_replicas(context, topic)
                if brokers is None or copy[1] in brokers}
        for topic in sorted(context.stray_replicas)
    })  # fmt: skip


def _stop(context: Context, batch: RequestBatch, stops: Copies) -> Deciding[None]:
    """Have live brokers drop copies, once the store has confirmed that this controller is active.

    There may be no other write to confirm it, and a copy that a deposed controller wants dropped
    may be in use again by the next one's decision.
    """
    living = [
        (broker, (topic, number))
        for topic, copies in stops.items()
        for number, broker in sorted(copies)
        if broker in context.brokers
    ]
    if living:
        yield [Confirmation()]
    for broker, key in living:
        batch.stop_replica(broker, key, delete=True)


def replicas_dropped(
    context: Context, batch: RequestBatch, broker: int, answers: Mapping[TopicPartition, ErrorCode]
) -> Deciding[None]:
    """A broker answered a StopReplica that deletes, partition by partition.

    A copy that a move left behind on a failed disk waits until its broker starts again: Kafka's
    brokers answer nothing else before, and ours retry themselves.
    """
    done = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refused: dict[ErrorCode, list[TopicPartition]] = {}
    for (topic, number), error in answers.items():
        copy, stray_replicas = (number, broker), context.stray_replicas.get(topic, set())
        deleted = topic in context.deleted
        context.retrying.discard((topic, copy))
        if error in done:
            stray_replicas.discard(copy)
            if deleted:
                context.dropped.setdefault(topic, set()).add(copy)
        elif deleted or copy in stray_replicas:
            refused.setdefault(error, []).append((topic, number))
            if copy not in stray_replicas or error != ErrorCode.KAFKA_STORAGE_ERROR:
                context.failed.setdefault(topic, set()).add(copy)
    for error, keys in refused.items():
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        _logger.warning("broker %d cannot drop %s-%d%s now: %s", broker, *keys[0], more, error.name)
    context.stray_replicas = {
        topic: those for topic, those in context.stray_replicas.items() if those
    }
    for topic in sorted({topic for topic, _ in answers} & context.deleted):
        left = _left(context, topic)
        if left is not None and not left:
            yield from _remove(context, topic)


def _stray_replicas(context: Context, topic: str) -> set[tuple[int, int]]:
    """Copies that moves left behind, without those that their broker must keep again."""
    found = {
        (number, broker)
        for number, broker in context.stray_replicas.get(topic, ())
        if (one := context.partitions.get((topic, number))) is None or broker not in one.replicas
    }
    context.stray_replicas.pop(topic, None)
    if found:
        context.stray_replicas[topic] = found
    return found


def _left(context: Context, topic: str) -> set[tuple[int, int]] | None:
    """(partition, broker) of copies not dropped yet; None: the topic cannot be deleted now."""
    found = set()
    for key, one in context.partitions.items():
        if key[0] != topic:
            continue
        if context.offline_replicas(key):
            return None
        found |= {(key[1], broker) for broker in one.replicas}
    return found - context.dropped.get(topic, set())


def _remove(context: Context, topic: str) -> Deciding[None]:
    """Remove it from the store."""
    (outcome,) = yield [TopicRemoval(topic)]
    if outcome.done:
        topic_removed(context, topic)
    else:
        context.failed.setdefault(topic, set())
        context.retrying.discard((topic, None))
        _logger.warning("topic %s cannot be deleted now: %s", topic, outcome.why)
