"""A group with members changes its protocol: to the newer one with the first member that
heartbeats, back to the classic one when the last of these is gone.

All records of a change are one write, which the journal has whole or not at all; if it fails, the
group is as before, with the requests that wait.  Source: KIP-848, Kafka's ConsumerGroup and
ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from uuid import UUID

from kafkalog.coordinator.consumer_groups import records as consumer_records
from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.classic import encoded, subscription, with_ids
from kafkalog.coordinator.consumer_groups.member import ClassicMetadata, Member
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.consumer_groups.topics import Topics, group_hash
from kafkalog.coordinator.groups import rebalance, records
from kafkalog.coordinator.groups.group import CONSUMER, Group, State
from kafkalog.coordinator.groups.group import Member as ClassicMember
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Step
from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL

__all__ = ["DOWNGRADES", "UPGRADES", "downgrade", "leaves_classic", "replaces_last", "upgrade"]

LOG = limited(__name__)
UPGRADES = frozenset({"upgrade", "bidirectional"})
DOWNGRADES = frozenset({"downgrade", "bidirectional"})
"""Values of group.consumer.migration.policy."""


# ---- to the newer protocol -----------------------------------------------------------------


def upgrade(changes: Changes, shard: GroupShard, step: Step, group: Group, topics: Topics) -> None:
    """Make a classic group a consumer group, whose members keep their partitions and their
    generation as their epoch.  Raises: Refusal."""
    _check_upgrade(shard, group)
    members = [_upgraded(group, one, topics) for one in group.members.values()]
    sessions = [*group.members, *group.pending]
    consumer, generation = changes.group, group.generation
    part = group.take_classic(step.wall_ms)
    changes.undo(partial(group.put_classic, part))
    changes.replace_classic(records.group_key(group.group_id))
    for member in members:
        changes.subscription(member)
    changes.epoch(group_hash(consumer.topics, topics), generation)
    for member in members:
        target = {topic: frozenset(numbers) for topic, numbers in member.assigned.items()}
        changes.target(member.member_id, target)
    changes.assignment(generation, 0)
    for member in members:
        changes.current(member)

    def written(step: Step) -> None:
        for name in sessions:
            shard.cancel_timer("session", group, name)
        shard.cancel_timer("join", group)
        shard.cancel_timer("sync", group)
        waiting = Group(group.group_id, step.wall_ms)
        waiting.put_classic(part)
        rebalance.fail_waiting(step, waiting, ErrorCode.REBALANCE_IN_PROGRESS)
        LOG.info("group %s: generation %d: its members may heartbeat (KIP-848) from now on",
                 group.group_id, generation)  # fmt: skip

    changes.then(written, partial(_not_upgraded, shard, group))


def _check_upgrade(shard: GroupShard, group: Group) -> None:
    config, why = shard.config, None
    policy = config.group_consumer_migration_policy
    if policy not in UPGRADES:
        why = f"group.consumer.migration.policy is {policy}"
    elif group.protocol_type != CONSUMER:
        why = f"its members are of type {group.protocol_type!r}, not {CONSUMER!r}"
    elif len(group.members) > config.group_consumer_max_size:
        why = f"it has {len(group.members)} members, group.consumer.max.size allows fewer"
    if why is not None:
        raise _refused(group, why)
    if group.writing or group.protocol is None:
        # The outcome decides what its members have; the first generation is not complete.
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _refused(group: Group, why: str) -> Refusal:
    message = f"Classic group {group.group_id} cannot take members that heartbeat: {why}."
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _upgraded(group: Group, one: ClassicMember, topics: Topics) -> Member:
    """A member of the classic group, as one of the consumer group."""
    assigned: Mapping[UUID, Collection[int]] = {}
    try:
        said = subscription(one.metadata(group.protocol or ""))
        if one.assignment:
            told = CONSUMER_PROTOCOL.decode_assignment(one.assignment)[1]
            if told.user_data:
                raise _refused(group, "its assignor keeps data of its own with assignments")
            assigned = with_ids(told.assigned_partitions, topics)
    except KafkalogError as error:
        raise _refused(group, f"what member {one.member_id} says cannot be read: {error}") from None
    generation = group.generation
    return Member(
        one.member_id, generation, generation, instance_id=one.instance_id,
        rack_id=said.rack_id or None, rebalance_timeout_ms=one.rebalance_timeout_ms,
        client_id=one.client_id, client_host=one.client_host, topics=frozenset(said.topics),
        assigned={t: dict.fromkeys(numbers, generation) for t, numbers in assigned.items()},
        classic=ClassicMetadata(one.session_timeout_ms, one.protocols),
    )  # fmt: skip


def _not_upgraded(shard: GroupShard, group: Group, step: Step, certain: bool) -> None:
    """The write failed: the classic group goes on.  If the journal may have it, the group's record
    is written again; one that is rebalancing writes its next generation anyway."""
    if group.consumer is not None:
        group.consumer.unsure.pop(records.group_key(group.group_id), None)
    if shard.closed:
        return
    rebalance.keep_time(shard, step, group)
    if group.state is State.STABLE and not certain:
        assignments = {one.member_id: one.assignment for one in group.members.values()}
        rebalance.write_group(shard, step, group, assignments, lambda _step, _error: None)


# ---- and back ------------------------------------------------------------------------------


def leaves_classic(shard: GroupShard, group: ConsumerGroup, gone: Collection[Member]) -> bool:
    """True if the group becomes a classic one when these members are gone."""
    left = len(group.members) - len(gone)
    classic = group.classic_count - sum(one.classic is not None for one in gone)
    return 0 < left == classic and _may_downgrade(shard, left)


def replaces_last(shard: GroupShard, group: ConsumerGroup, instance_id: str | None) -> bool:
    """True if the group becomes a classic one when its member with this instance id does."""
    replaced = group.static_member(instance_id)
    if replaced is None or replaced.classic is not None:
        return False
    count = len(group.members)
    return group.classic_count == count - 1 and _may_downgrade(shard, count)


def _may_downgrade(shard: GroupShard, count: int) -> bool:
    allowed = shard.config.group_consumer_migration_policy in DOWNGRADES
    return allowed and count <= shard.config.group_max_size


def downgrade(
    changes: Changes, shard: GroupShard, step: Step, group: Group,
    gone: Collection[Member], topics: Topics, joined: tuple[int, bool] | None = None,
) -> None:  # fmt: skip
    """Make the group a classic one, without the members that are `gone`, once that is in the
    journal.  `joined`: if a member of the classic protocol took the place of the last of the
    others, the group epoch before it joined, and whether its part of a later one is missing."""
    consumer = changes.group
    generation, rebalances = joined or (consumer.epoch, True)
    if not rebalances:
        epoch = consumer.assignment_epoch
        rebalances = not all(one.reconciled(epoch) for one in consumer.members.values())
    left = {one.member_id for one in gone}
    made = Group(group.group_id, step.wall_ms)
    for member in consumer.members.values():
        if member.member_id not in left:
            made.add(_downgraded(member), CONSUMER)
    made.generation, made.state = generation, State.STABLE
    if rebalances:  # also if another coordinator has to begin it
        made.state_ms = records.REBALANCE_FOLLOWS
    made.protocol = made.choose_protocol()
    made.subscribe(records.subscribed_topics(made))
    for one in made.members.values():
        has, metadata = _has(consumer.members[one.member_id]), one.metadata(made.protocol or "")
        made.assign(one, encoded(has, metadata, topics))
    assignments = {one.member_id: one.assignment for one in made.members.values()}
    old = consumer_records.key_of(group.group_id, consumer_records.OLD_METADATA, "")
    foreign = {**group.foreign, old: consumer_records.OLD_METADATA}
    changes.end(records.foreign_tombstones(foreign))
    changes.replace_classic(*records.group_record(made, assignments))

    def written(step: Step) -> None:
        consumer.clear()
        group.foreign.clear()
        group.put_classic(made.take_classic(step.wall_ms))
        group.recorded = True
        LOG.info("group %s: generation %d: its members are all of the classic protocol",
                 group.group_id, generation)  # fmt: skip
        rebalance.keep_time(shard, step, group)
        if rebalances:
            rebalance.begin(shard, step, group)

    changes.then(written, lambda _step, _certain: None)


def _has(member: Member) -> Mapping[UUID, Collection[int]]:
    """The partitions that a member may have now.  Kafka writes its target: then two members may
    have a partition if one joins before the rebalance that follows has ended."""
    topics = {*member.assigned, *member.revoking}
    return {
        topic: {*member.assigned.get(topic, {}), *member.revoking.get(topic, {})}
        for topic in topics
    }


def _downgraded(member: Member) -> ClassicMember:
    classic = member.classic
    assert classic is not None, member.member_id
    found = ClassicMember(member.member_id, member.instance_id, member.client_id,
                          member.client_host)  # fmt: skip
    found.rebalance_timeout_ms = member.rebalance_timeout_ms
    found.session_timeout_ms = classic.session_timeout_ms
    found.protocols = classic.protocols
    return found
