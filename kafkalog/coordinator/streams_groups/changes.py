"""Changes of a streams group."""

from __future__ import annotations

from functools import partial

from kafkalog.coordinator.consumer_groups.changes import GroupChanges
from kafkalog.coordinator.streams_groups import records
from kafkalog.coordinator.streams_groups.configured import Configured
from kafkalog.coordinator.streams_groups.state import NO_OFFSETS, Offsets, StreamsGroup
from kafkalog.coordinator.streams_groups.topology import Topology

__all__ = ["StreamsChanges"]


class StreamsChanges(GroupChanges[StreamsGroup]):
    """Changes of a streams group that are written together."""

    def __init__(self, group_id: str, group: StreamsGroup, keys: dict[bytes, int]) -> None:
        """`keys`: those of the group's live records, with their kinds."""
        super().__init__(group_id, group, keys, records.LAYOUT)

    def topology(self, topology: Topology) -> None:
        """The group's topology."""
        before = self.group.topology
        self.group.put_topology(topology)
        self._undo.append(partial(self.group.put_topology, before))
        self._note(records.TOPOLOGY)

    def configured(self, found: Configured) -> None:
        """The topology as far as its topics exist, which is not stored."""
        self._set(configured=found)

    def shutdown(self, member_id: str | None) -> None:
        """The member that wants the whole application to end, which is not stored; None: nobody."""
        self._set(shutdown=member_id)

    def endpoint_epoch(self, epoch: int) -> None:
        """The epoch of what is behind endpoints, which is not stored."""
        self._set(endpoint_epoch=epoch)

    def next_epoch(
        self, metadata_hash: int, validated_epoch: int, configs: tuple[tuple[str, str], ...]
    ) -> None:
        """A group epoch, for these topics and these settings of the assignment."""
        self._set(validated_epoch=validated_epoch, configs=configs)
        self.epoch(metadata_hash)

    def remove(self, member_id: str) -> None:
        """A member, and all that it had and reported."""
        self.offsets(member_id, NO_OFFSETS)
        super().remove(member_id)

    def offsets(self, member_id: str, offsets: Offsets) -> None:
        """A member's report of its copies of state, which is not stored."""
        before = self.group.offsets.get(member_id, NO_OFFSETS)
        self.group.put_offsets(member_id, offsets)
        self._undo.append(partial(self.group.put_offsets, member_id, before))
