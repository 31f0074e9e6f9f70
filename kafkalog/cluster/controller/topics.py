"""What follows when topics come, grow, change their minds about elections, or go.

Decisions, as kafkalog.cluster.controller.partitions has them.
"""

from __future__ import annotations

from kafkalog.cluster.controller.context import NEVER_LED, Context
from kafkalog.cluster.controller.partitions import Deciding, settle, unled
from kafkalog.cluster.controller.requests import Gathered
from kafkalog.metadata.image import NO_LEADER, Partition
from kafkalog.metadata.zookeeper.tree import TopicNode

__all__ = ["topic_gone", "topic_is", "unclean_is"]


def topic_is(context: Context, told: Gathered, topic: str, node: TopicNode) -> Deciding[None]:
    """A topic is new, or has more partitions than before: those are led from now on.

    A partition that is known keeps the brokers that it has here, whatever the znode says: to move
    it is another decision.
    """
    context.ids[topic] = node.topic_id
    new = [(topic, number) for number in sorted(node.replicas)
           if (topic, number) not in context.partitions]  # fmt: skip
    for key in new:
        context.partitions[key] = Partition(
            key[1], node.replicas[key[1]], (), NO_LEADER, NEVER_LED, -1,
            removing_replicas=node.removing.get(key[1], ()),
            adding_replicas=node.adding.get(key[1], ()),
        )  # fmt: skip
    yield from settle(context, told, new)


def topic_gone(context: Context, topic: str) -> None:
    """A topic's znode is no more: nothing of it is decided again."""
    context.ids.pop(topic, None)
    for key in [key for key in context.partitions if key[0] == topic]:
        del context.partitions[key]
        context.written_by.pop(key, None)
        context.stale.discard(key)
    context.deleted.discard(topic)
    context.dropped.pop(topic, None)
    context.says_unclean(topic, None)


def unclean_is(context: Context, told: Gathered, topic: str, said: bool | None) -> Deciding[None]:
    """A topic says whether who is out of sync may lead it; None: it says nothing any more."""
    context.says_unclean(topic, said)
    yield from settle(context, told, [key for key in unled(context) if key[0] == topic])
