"""Decides what follows when topics are created, enlarged, reconfigured or deleted.

Decisions, as defined in kafkalog.controller.partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog.controller.context import NEVER_LED, Context
from kafkalog.controller.partitions import Deciding, settle, unled
from kafkalog.controller.requests import Gathered
from kafkalog.metadata.image import NO_LEADER, Partition, Topic

__all__ = ["never_led", "topic_gone", "topics_are", "unclean_is"]


def never_led(
    number: int, replicas: tuple[int, ...], adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> Partition:  # fmt: skip
    """A partition that has no state yet."""
    return Partition(
        number, replicas, (), NO_LEADER, NEVER_LED, -1, removing_replicas=removing,
        adding_replicas=adding,
    )  # fmt: skip


def topics_are(context: Context, told: Gathered, topics: Iterable[Topic]) -> Deciding[None]:
    """Topics are new, or have more partitions than before: these get leaders.

    `topics`: their partitions as `never_led`.  A known partition keeps the brokers that it has
    here: moving it is another decision.
    """
    new = []
    for topic in topics:
        context.ids[topic.name] = topic.id
        for number, one in sorted(topic.partitions.items()):
            key = (topic.name, number)
            if key not in context.partitions:
                context.partitions[key] = one
                new.append(key)
    yield from settle(context, told, new)


def topic_gone(context: Context, topic: str) -> None:
    """A topic is gone: forget it.  Copies that moves left behind must still be
    dropped."""
    for broker, lost in context.lost_directories.items():
        context.lost_directories[broker] = frozenset(key for key in lost if key[0] != topic)
    context.ids.pop(topic, None)
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
