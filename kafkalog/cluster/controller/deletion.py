"""Topics that are to go: first from the brokers, then from the tree.

Decisions, as kafkalog.cluster.controller.partitions has them; the rules are those of Kafka's
controller on ZooKeeper.  A topic waits while one of its brokers is away, lest that one bring it
back, and while a partition of it is moved.  What fails is tried again by the time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kafkalog.cluster.controller.context import Context, TopicPartition
from kafkalog.cluster.controller.partitions import Deciding
from kafkalog.cluster.controller.requests import Gathered
from kafkalog.cluster.controller.topics import topic_gone
from kafkalog.metadata.zookeeper import tree
from kafkalog.metadata.zookeeper.entities import config_path
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["delete_again", "delete_topics", "replicas_dropped", "topics_to_delete"]

_logger = logging.getLogger(__name__)


def topics_to_delete(context: Context, told: Gathered, topics: Iterable[str]) -> Deciding[None]:
    """Somebody wants these topics deleted (/admin/delete_topics): clients are told of them no
    more, from now on; a name that is no topic's is only taken out of the tree."""
    wanted = set(topics)
    context.deleted |= wanted
    keys = [key for key in context.partitions if key[0] in wanted]
    if keys:
        told.know(keys)
    yield from delete_topics(context, told)


def delete_topics(context: Context, told: Gathered) -> Deciding[None]:
    """Go on with what is to be deleted, as far as it can go now: each broker is told to drop what
    it has, and what all have dropped goes out of the tree."""
    context.failed.clear()
    for topic in sorted(context.deleted):
        left = _left(context, topic)
        for number, broker in sorted(left or ()):
            told.stop(broker, (topic, number), delete=True)
        if left is not None and not left:
            yield from _remove(context, topic)


def delete_again(context: Context, told: Gathered) -> Deciding[None]:
    """What failed is tried again, and nothing else: who has not answered is not asked twice."""
    failed, context.failed = context.failed, {}
    for topic, those in sorted(failed.items()):
        left = _left(context, topic)
        for number, broker in sorted(those & (left or set())):
            told.stop(broker, (topic, number), delete=True)
        if left is not None and not left:
            yield from _remove(context, topic)


def replicas_dropped(
    context: Context, told: Gathered, broker: int, answers: Mapping[TopicPartition, ErrorCode]
) -> Deciding[None]:
    """A broker answered a StopReplica that deletes, partition by partition."""
    done = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for (topic, number), error in answers.items():
        if topic in context.deleted:
            kept = context.dropped if error in done else context.failed
            kept.setdefault(topic, set()).add((number, broker))
            if error not in done:
                _logger.warning("%s-%d: broker %d cannot drop it now: %s",
                                topic, number, broker, error.name)  # fmt: skip
    for topic in sorted({topic for topic, _ in answers} & context.deleted):
        left = _left(context, topic)
        if left is not None and not left:
            yield from _remove(context, topic)


def _left(context: Context, topic: str) -> set[tuple[int, int]] | None:
    """(partition, broker) of what is not dropped yet; None: the topic cannot be deleted now."""
    found = set()
    for key, one in context.partitions.items():
        if key[0] != topic:
            continue
        if one.adding_replicas or one.removing_replicas or context.offline_replicas(key):
            return None
        found |= {(key[1], broker) for broker in one.replicas}
    return found - context.dropped.get(topic, set())


def _remove(context: Context, topic: str) -> Deciding[None]:
    """Out of the tree; that it was wanted goes last, so that a next controller goes on."""
    states = [tree.partition_path(*key) for key in sorted(context.partitions) if key[0] == topic]
    removals = context.removals([
        *(path for state in states for path in (state, state.removesuffix("/state"))),
        tree.partitions_path(topic), tree.topic_path(topic), config_path(("topics", topic)),
    ])  # fmt: skip
    outcomes = yield removals
    kept = [(one.path, outcome.why) for one, outcome in zip(removals, outcomes, strict=True)
            if not outcome.done and outcome.why != "NoNode"]  # fmt: skip
    if not kept:
        yield context.removals([f"{tree.DELETE_TOPICS}/{topic}"])
        topic_gone(context, topic)
    else:
        context.failed.setdefault(topic, set())
        _logger.warning("topic %s cannot be deleted now: %s: %s", topic, *kept[0])
