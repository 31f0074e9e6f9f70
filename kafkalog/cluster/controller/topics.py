"""Decides what follows when topics are created, enlarged, reconfigured or deleted.

Decisions, as defined in kafkalog.cluster.controller.partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog.cluster.controller.context import NEVER_LED, Context
from kafkalog.cluster.controller.partitions import Deciding, settle, unled
from kafkalog.cluster.controller.requests import Gathered
from kafkalog.metadata.image import NO_LEADER, Partition
from kafkalog.metadata.zookeeper.tree import TopicNode

__all__ = ["topic_gone", "topic_is", "topics_are", "unclean_is"]


def topic_is(context: Context, told: Gathered, topic: str, node: TopicNode) -> Deciding[None]:
    """As topics_are, for one topic."""
    yield from topics_are(context, told, {topic: node})


def topics_are(context: Context, told: Gathered, nodes: Mapping[str, TopicNode]) -> Deciding[None]:
    """Topics are new, or have more partitions than before: these get leaders.

    A known partition keeps the brokers that it has here, whatever the znode says: moving it is
    another decision.
    """
    new = []
    for topic, node in nodes.items():
        context.ids[topic] = node.topic_id
        for number in sorted(node.replicas):
            key = (topic, number)
            if key in context.partitions:
                continue
            context.partitions[key] = Partition(
                number, node.replicas[number], (), NO_LEADER, NEVER_LED, -1,
                removing_replicas=node.removing.get(number, ()),
                adding_replicas=node.adding.get(number, ()),
            )  # fmt: skip
            new.append(key)
    yield from settle(context, told, new)


def topic_gone(context: Context, topic: str) -> None:
    """A topic's znode is gone: forget the topic.  Copies that moves left behind must still be
    dropped."""
    for broker, lost in context.lost_directories.items():
        context.lost_directories[broker] = frozenset(key for key in lost if key[0] != topic)
    context.ids.pop(topic, None)
    context.assigned_at.pop(topic, None)
    for key in [key for key in context.partitions if key[0] == topic]:
        del context.partitions[key]
        context.written_by.pop(key, None)
        context.stale.discard(key)
        context.unread.discard(key)
        context.broken.pop(key, None)
        context.shifted.discard(key)
    context.deleted.discard(topic)
    context.dropped.pop(topic, None)
    context.failed.pop(topic, None)
    context.again = {one for one in context.again if one[0] != topic}
    context.says_unclean(topic, None)


def unclean_is(context: Context, told: Gathered, topic: str, said: bool | None) -> Deciding[None]:
    """A topic's unclean.leader.election.enable; None: the topic no longer sets it."""
    context.says_unclean(topic, said)
    yield from settle(context, told, [key for key in unled(context) if key[0] == topic])
