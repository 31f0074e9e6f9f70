"""DescribeGroups, ListGroups, DeleteGroups.

Source: Kafka's GroupMetadataManager; KIP-518 (states), KIP-848 (types).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from kafkalog.coordinator.core import append_error
from kafkalog.coordinator.groups import offsets
from kafkalog.coordinator.groups.group import Group, State
from kafkalog.coordinator.groups.records import newer_type
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.listings import Listing, each_of
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "OPERATIONS", "ROW_WORK", "Deletions", "Descriptions", "GroupListing", "Where", "delete",
    "described_error", "distinct", "result_of",
]  # fmt: skip

CLASSIC = "classic"
ROW_WORK = 8
"""Work of a listing per group or member, in the unit of Listing.work."""
OPERATIONS_WORK = 40
"""The same for the allowed operations."""
ABSENT_VERSION = 6
"""From this version of DescribeGroups on, a missing group is an error."""


OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Operations allowed on a group when nothing is forbidden, as bits of Kafka's AclOperation: READ,
DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS."""
NOT_ASKED = -(1 << 31)
Where = Callable[[str], tuple[GroupShard | None, ErrorCode]]
"""The shard of a group, or the error if there is none."""
Delete = Callable[[GroupShard, Step, str, Callable[[Step, ErrorCode], None]], None]
"""Deletes a group, and calls with the outcome."""


def describe(shard: GroupShard, group_id: str, version: int, operations: bool) -> Body:
    """One group of a DescribeGroups response; `operations`: include the allowed operations."""
    group = shard.groups.get(group_id)
    allowed = OPERATIONS if operations else NOT_ASKED
    other = group is not None and newer_type(group) is not None and not group.is_classic
    if group is None or group.state is State.DEAD or other:
        body: Body = {"group_id": group_id, "group_state": State.DEAD.value}
        if version < ABSENT_VERSION:
            return {**body, "authorized_operations": allowed}
        why = "is not a classic group" if other else "not found"
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}."
        return {**body, "error_code": error, "error_message": message}
    # Members' metadata is shown once the group has agreed on it, their latest assignment always.
    protocol = group.protocol if group.state is State.STABLE else None
    members = []
    for member in group.members.values():
        known: Body = {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_assignment": member.assignment,
        }
        if protocol is not None:
            known["member_metadata"] = member.metadata(protocol)
        members.append(known)
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": _protocol_type(group),
        "protocol_data": protocol or "",
        "members": members,
        "authorized_operations": allowed,
    }


def described_error(group_id: str, error: ErrorCode) -> Body:
    """A group of a DescribeGroups response that cannot be described."""
    return {"group_id": group_id, "error_code": error}


def _protocol_type(group: Group) -> str:
    newer = None if group.is_classic else newer_type(group)
    return newer or group.protocol_type or ""


class Descriptions(Listing):
    """A DescribeGroups request, under way."""

    def __init__(self, request: Call, where: Where) -> None:
        super().__init__(request, distinct(request.body.groups), "groups")
        self._where = where

    def row(self, one: str, step: Step) -> Body:
        """The row of a group."""
        shard, error = self._where(one)
        operations = self.request.body.include_authorized_operations
        self.work += ROW_WORK + (OPERATIONS_WORK if operations else 0)
        if shard is None:
            return described_error(one, error)
        row = describe(shard, one, self.request.version, operations)
        self.work += ROW_WORK * len(row.get("members", ()))
        return row

    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found."""
        step.answer(self.request.answer, groups=self.found)


class GroupListing(Listing):
    """A ListGroups request, under way; an empty filter matches all."""

    def __init__(self, request: Call, shards: Collection[GroupShard]) -> None:
        super().__init__(request, each_of(shards), "groups")
        self._states = {state.strip().lower() for state in request.body.states_filter}
        self._types = {kind.strip().lower() for kind in request.body.types_filter}

    def row(self, one: Group, step: Step) -> Body | None:
        """The row of a group; None if it is not wanted, or gone by now."""
        self.work += ROW_WORK
        kind = CLASSIC if one.is_classic else newer_type(one) or CLASSIC
        state = one.state.value
        if one.newer is not None and not one.is_classic:
            self.work += len(one.newer.members)
            state = one.newer.state.value
        wrong_state = self._states and state.lower() not in self._states
        if one.state is State.DEAD or wrong_state or (self._types and kind not in self._types):
            return None
        return {
            "group_id": one.group_id,
            "protocol_type": _protocol_type(one),
            "group_state": state,
            "group_type": kind,
        }

    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found.  `code`: NONE if that is all that there is."""
        step.answer(self.request.answer, error_code=code, groups=self.found)


class Deletions(Listing):
    """A DeleteGroups request, under way.  Each group has its own write; the answer is sent when all
    are done."""

    def __init__(self, request: Call, where: Where, begin: Delete) -> None:
        """`begin`: deletes one group, and says when that is done."""
        self._names = distinct(request.body.groups_names)
        super().__init__(request, self._names, None)
        self._where, self._begin = where, begin
        self._results: dict[str, ErrorCode] = {}
        self._all_begun = False

    def row(self, one: str, step: Step) -> Body | None:
        """Begin to delete a group."""
        shard, error = self._where(one)
        self.work += ROW_WORK
        if shard is None:
            self._ended(one, step, error)
            return None
        group = shard.groups.get(one)
        if group is not None:
            self.work += ROW_WORK * sum(map(len, group.offsets.values()))
        self._begin(shard, step, one, partial(self._ended, one))
        return None

    def answer(self, step: Step, code: ErrorCode) -> None:
        """All deletions have begun."""
        self._all_begun = True
        self._answer_once_all_ended(step)

    def _ended(self, group_id: str, step: Step, error: ErrorCode) -> None:
        self._results[group_id] = error
        self._answer_once_all_ended(step)

    def _answer_once_all_ended(self, step: Step) -> None:
        if self._all_begun and len(self._results) == len(self._names):
            rows = [result_of(name, self._results[name]) for name in self._names]
            step.answer(self.request.answer, results=rows)


def delete(
    shard: GroupShard, step: Step, group_id: str, settle: Callable[[Step, ErrorCode], None]
) -> None:
    """Delete one group; `settle` gets the result for the response."""
    group = shard.groups.get(group_id)
    if group is None or group.state is State.DEAD:
        settle(step, ErrorCode.GROUP_ID_NOT_FOUND)
    elif not group.is_empty:
        settle(step, ErrorCode.NON_EMPTY_GROUP)
    else:
        offsets.delete_group(shard, step, group, lambda s, error: settle(s, append_error(error)))


def result_of(group_id: str, error: ErrorCode) -> Body:
    """One group of a DeleteGroups response."""
    return {"group_id": group_id, "error_code": error}


def distinct(group_ids: Collection[str]) -> list[str]:
    """The ids of a request, each once: a repeated group has one result."""
    return list(dict.fromkeys(group_ids))
