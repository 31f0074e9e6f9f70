"""The groups of one partition of __consumer_offsets, and what their handlers need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from kafkalog.coordinator.core import Shard
from kafkalog.coordinator.groups.group import Group, State, offset_bytes
from kafkalog.coordinator.timers import Timers
from kafkalog.coordinator.weight import Weight
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.config.group import GroupConfig
    from kafkalog.coordinator.groups.group import CommittedOffset, Member

__all__ = ["GroupShard"]


class GroupShard(Shard):
    """The groups of one partition.  Only for the coordinator's thread."""

    def __init__(
        self, partition: int, epoch: int, config: GroupConfig, timers: Timers,
        new_id: Callable[[], str],
    ) -> None:  # fmt: skip
        """`new_id` makes the unique part of member ids."""
        super().__init__(partition, epoch)
        self.config = config
        self.weight = Weight()
        """Memory of all its groups; part of the coordinator's sum while this shard is active."""
        self.groups: dict[str, Group] = {}
        self.timers = timers
        """The memory of all shards."""
        self.new_id = new_id
        self.open: dict[int, set[str]] = {}
        """Producer ids with an open transaction, and the groups in which it committed."""
        self.position = 0
        """The number of the next commit, see CommittedOffset."""
        self.numbers = count()

    def live(self) -> Iterator[Group]:
        """The groups that are not being deleted."""
        return (group for group in self.groups.values() if group.state is not State.DEAD)

    def new_group(self, group_id: str, wall_ms: int) -> Group:
        """Begin a group."""
        group = self.groups[group_id] = Group(group_id, wall_ms, self.weight)
        return group

    def forget(self, group: Group) -> None:
        """Remove a group that has ended."""
        if self.groups.pop(group.group_id, None) is not None:
            group.weight.move(None)

    def has_room(self, more_bytes: int) -> bool:
        """True if groups may take this much more memory; existing contents stay in any case."""
        total = self.weight.within or self.weight
        return more_bytes <= 0 or total.bytes + more_bytes <= self.config.kafkalog_groups_max_bytes

    def next_position(self) -> int:
        """The position of the commit that is being applied."""
        self.position += 1
        return self.position - 1

    # ---- timers ----------------------------------------------------------------------------

    def set_timer(self, kind: str, group: Group, at_ms: int, member_id: str = "") -> None:
        """Set a timer of a group or member for `at_ms` of the monotonic clock."""
        self.timers.set((kind, self.partition, group.group_id, member_id), at_ms)

    def cancel_timer(self, kind: str, group: Group, member_id: str = "") -> None:
        """Stop a timer if it runs."""
        self.timers.cancel((kind, self.partition, group.group_id, member_id))

    def has_timer(self, kind: str, group: Group, member_id: str = "") -> bool:
        """True if a timer of a group or member runs."""
        return (kind, self.partition, group.group_id, member_id) in self.timers

    def keep_session(self, group: Group, member: Member, now_ms: int) -> None:
        """Restart a member's session."""
        self.set_timer("session", group, now_ms + member.session_timeout_ms, member.member_id)

    # ---- transactions ----------------------------------------------------------------------

    def put_pending(
        self, producer_id: int, group: Group, where: TopicPartition, offset: CommittedOffset
    ) -> None:
        """Remember an offset committed in a transaction."""
        offsets = group.pending_offsets.setdefault(producer_id, {})
        before = offsets.get(where)
        group.weight.add(
            offset_bytes(offset.metadata) - (offset_bytes(before.metadata) if before else 0)
        )
        offsets[where] = offset
        self.open.setdefault(producer_id, set()).add(group.group_id)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply or drop a transaction's commits.

        An offset that was committed outside it later wins.
        """
        for group_id in self.open.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is None:
                continue
            for where, offset in group.pending_offsets.pop(producer_id, {}).items():
                group.weight.add(-offset_bytes(offset.metadata))
                before = group.offset(*where)
                if committed and (before is None or before.position < offset.position):
                    group.put_offset(where, offset)
