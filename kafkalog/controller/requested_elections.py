"""Elections on request, and those that balance leaderships among brokers.

Decisions, as defined in kafkalog.controller.partitions; the rules are those of Kafka's
controller on ZooKeeper (3.9): ElectLeaders, /admin/preferred_replica_election, auto balance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

from kafkalog.controller import leader_election
from kafkalog.controller.context import NEVER_LED, Context, leadership
from kafkalog.controller.leader_election import Leadership
from kafkalog.controller.partitions import Deciding, guarded, write
from kafkalog.controller.reassign import moving
from kafkalog.controller.records import TopicPartition
from kafkalog.controller.requests import RequestBatch
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["elect_leaders", "unbalanced"]


def elect_leaders(
    context: Context, batch: RequestBatch, keys: Iterable[TopicPartition], *, unclean: bool
) -> Deciding[dict[TopicPartition, ErrorCode]]:
    """Have partitions led by their first replica; `unclean`: those without a leader by any live
    replica, at the cost of records that only others had.

    Returns the answer for each.
    """
    answers: dict[TopicPartition, ErrorCode] = {}
    wanted: dict[TopicPartition, Leadership] = {}
    for key in dict.fromkeys(keys):
        decide = partial(_wanted, context, key, unclean=unclean)
        found = guarded(context, key, ErrorCode.UNKNOWN_SERVER_ERROR, decide)
        if isinstance(found, Leadership):
            wanted[key] = found
        else:
            answers[key] = found
    done = yield from write(context, batch, wanted)
    for key in wanted:  # a stale one's state is not as assumed; the caller may retry
        answers[key] = ErrorCode.NONE if key in done else ErrorCode.UNKNOWN_SERVER_ERROR
    return answers


def _wanted(context: Context, key: TopicPartition, *, unclean: bool) -> Leadership | ErrorCode:
    one = context.partitions.get(key)
    if one is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if key[0] in context.deleted:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    now, electable = leadership(one), context.electable(key)
    if unclean:
        if one.leader in context.holding(key):
            return ErrorCode.ELECTION_NOT_NEEDED
        found = None
        if one.leader_epoch != NEVER_LED:
            found = leader_election.elect_for_offline(now, one.replicas, electable, unclean=True)
        return found or ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if one.leader == one.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    found = leader_election.elect_preferred(now, one.replicas, electable)
    return found or ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def unbalanced(context: Context, percentage: int) -> list[TopicPartition]:
    """The partitions that should return to their first replica, for `elect_leaders`: those of
    each broker that leads too few of the partitions in which it is the first replica.

    `percentage`: of these that others may lead (leader.imbalance.per.broker.percentage).  None is
    moved while any partition is reassigned: that moves leaders by itself.
    """
    if any(moving(one) for key, one in context.partitions.items() if key[0] not in context.deleted):
        return []
    first: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for key, one in context.partitions.items():
        if key[0] not in context.deleted:
            first[one.replicas[0]].append(key)
    found = []
    for broker, keys in sorted(first.items()):
        others = [key for key in keys if context.partitions[key].leader != broker]
        if len(others) * 100 > percentage * len(keys):
            found += [key for key in others
                      if isinstance(_wanted(context, key, unclean=False), Leadership)]  # fmt: skip
    return found
