"""The calls of `kafkalog.Admin` about streams groups."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog import arguments
from kafkalog.client.calls import streams_groups
from kafkalog.client.calls.results import Results
from kafkalog.client.link.locked_cluster import Locked

__all__ = ["AdminStreamsGroups"]


class AdminStreamsGroups(Locked):
    """A part of Admin."""

    def describe_streams_groups(
        self, groups: Iterable[str], timeout_ms: int | None = None
    ) -> Results[str, streams_groups.StreamsGroupInfo]:
        """Streams groups: their topologies, their members and the members' tasks.  Their offsets
        are those of other groups: `list_group_offsets`, `alter_group_offsets`.

        Failures: there is none, or it is of another type, ...
        """
        names = arguments.texts("groups", groups)
        return self._ask(streams_groups.describe_streams_groups, names, timeout_ms=timeout_ms)
