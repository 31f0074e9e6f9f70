"""Decides what follows when topics are created, enlarged, reconfigured or deleted.

Decisions, as defined in kafkalog.controller.partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog.controller.context import NEVER_LED, Context
from kafkalog.controller.partitions import Deciding, leaderless, update_leadership
from kafkalog.controller.requests import RequestBatch
from kafkalog.metadata.image import NO_LEADER, Partition, Topic

__all__ = ["never_led", "topic_removed", "topics_changed", "unclean_changed"]


def never_led(
    number: int, replicas: tuple[int, ...], adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> Partition:  # fmt: skip
    """A partition that has no state yet."""
    return Partition(
        number, replicas, (), NO_LEADER, NEVER_LED, -1, removing_replicas=removing,
        adding_replicas=adding,
    )  # fmt: skip


def topics_changed(
    context: Context, batch: RequestBatch, topics: Iterable[Topic]
) -> Deciding[None]:
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
    yield from update_leadership(context, batch, new)


def topic_removed(context: Context, topic: str) -> None:
    """A topic is gone: forget it.  Copies that moves left behind must still be
    dropped."""
    for broker, lost in context.offline_log_dirs.items():
        context.offline_log_dirs[broker] = frozenset(key for key in lost if key[0] != topic)
    context.ids.pop(topic, None)
    for key in [key for key in context.partitions if key[0] == topic]:
        del context.partitions[key]
        context.written_by.pop(key, None)
        context.stale.discard(key)
        context.unreadable.discard(key)
        context.undecidable.pop(key, None)
        context.moves_to_check.discard(key)
    context.deleted.discard(topic)
    context.dropped.pop(topic, None)
    context.failed.pop(topic, None)
    context.retrying = {one for one in context.retrying if one[0] != topic}
    context.set_unclean(topic, None)


def unclean_changed(
    context: Context, batch: RequestBatch, topic: str, said: bool | None
) -> Deciding[None]:
    """A topic's unclean.leader.election.enable; None: the topic no longer sets it."""
    context.set_unclean(topic, said)
    yield from update_leadership(
        context, batch, [key for key in leaderless(context) if key[0] == topic]
    )
