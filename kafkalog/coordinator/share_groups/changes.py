"""Changes of a share group."""

from __future__ import annotations

from functools import partial

from kafkalog.coordinator.consumer_groups.changes import GroupChanges
from kafkalog.coordinator.share_groups import records
from kafkalog.coordinator.share_groups.state import ShareGroup, States

__all__ = ["ShareChanges"]


class ShareChanges(GroupChanges[ShareGroup]):
    """Changes of a share group that are written together."""

    def __init__(self, group_id: str, group: ShareGroup, keys: dict[bytes, int]) -> None:
        """`keys`: those of the group's live records, with their kinds."""
        super().__init__(group_id, group, keys, records.LAYOUT)

    def states(self, states: States) -> None:
        """The share partitions of the group."""
        before = self.group.states
        self.group.put_states(states)
        self._undo.append(partial(self.group.put_states, before))
        self._note(records.STATES)
