"""The calls of `kafkalog.Admin` about share groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kafkalog import arguments
from kafkalog.arguments import INT64_MAX, whole_number
from kafkalog.client.calls import share_groups
from kafkalog.client.calls.results import Results
from kafkalog.client.link.locked_cluster import Locked
from kafkalog.types import TopicPartition

__all__ = ["AdminShareGroups"]

Tp = TypeVar("Tp", bound=tuple[str, int])


class AdminShareGroups(Locked):
    """A part of Admin."""

    def list_share_group_offsets(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, share_groups.ShareOffset]:
        """Where partitions begin for a share group, with the lag; `partitions` None: all that it
        reads.  A partition that begins nowhere yet is left out.

        Raises: what the broker answers.
        """
        wanted = None if partitions is None else arguments.partitions("partitions", partitions)
        name = arguments.text("group", group)
        return self._ask(share_groups.describe_offsets, name, wanted, timeout_ms=timeout_ms)

    def alter_share_group_offsets(
        self,
        group: str,
        offsets: Mapping[Tp, int],
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, None]:
        """Let partitions begin elsewhere for a share group that has no members, or that is new.

        Failures: NonEmptyGroup, UnknownTopicOrPartition, ...
        """
        wanted = {
            arguments.partition("offsets", tp): whole_number("offsets", one, 0, INT64_MAX)
            for tp, one in arguments.mapping("offsets", offsets).items()
        }
        name = arguments.text("group", group)
        return self._ask(share_groups.alter_offsets, name, wanted, timeout_ms=timeout_ms)

    def delete_share_group_offsets(
        self, group: str, topics: Iterable[str], timeout_ms: int | None = None
    ) -> Results[str, None]:
        """Forget where topics begin for a share group that has no members.

        Failures: GroupIdNotFound, NonEmptyGroup, UnknownTopicOrPartition, ...
        """
        return self._ask(
            share_groups.delete_offsets,
            arguments.text("group", group),
            arguments.texts("topics", topics),
            timeout_ms=timeout_ms,
        )
