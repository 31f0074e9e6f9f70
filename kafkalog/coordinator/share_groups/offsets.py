"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: where the share
partitions of a group begin.

Source: KIP-932, KIP-1226 (lag), Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.topics import Topic, Topics
from kafkalog.coordinator.consumer_groups.turns import Turn
from kafkalog.coordinator.groups.group import Group
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.share_groups import states
from kafkalog.coordinator.share_groups.changes import ShareChanges
from kafkalog.coordinator.share_groups.outside import Ends, ReadSummaries
from kafkalog.coordinator.share_groups.service import ShareGroups, first_error
from kafkalog.coordinator.share_groups.state import NO_STATES, Kept, States
from kafkalog.coordinator.share_state.persister import (
    NO_EPOCH,
    UNINITIALIZED_COUNT,
    UNINITIALIZED_OFFSET,
    InitializeState,
    ReadSummary,
    StateChanged,
    SummaryRead,
)
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = ["alter", "delete", "describe", "described_error", "partitions_in"]

UNKNOWN_TOPIC = "This server does not host this topic-partition."
NOT_EMPTY = "The group is not empty."
NOTHING_TO_DELETE = "There is no offset information to delete."
FULL = "The groups' memory is used up."
LAG_SINCE = 1
"""From this version on, DescribeShareGroupOffsets has the lag."""
Row = dict[str, Any]


# ---- DescribeShareGroupOffsets ---------------------------------------------------------------


def partitions_in(asked: Any) -> dict[str, list[int]]:
    """The partitions of a group in a request, each once, by topic."""
    found: dict[str, dict[int, None]] = {}
    for topic in asked.topics:
        found.setdefault(topic.topic_name, {}).update(dict.fromkeys(topic.partitions))
    return {name: list(numbers) for name, numbers in found.items()}


def described_error(group_id: str, code: ErrorCode, message: str | None = None) -> Row:
    """A group whose offsets cannot be described."""
    return {"group_id": group_id, "error_code": code, "error_message": message}


def describe(
    groups: ShareGroups, shard: GroupShard, step: Step, asked: Any, version: int,
    told: Callable[[Step, Row], None],
) -> None:  # fmt: skip
    """Find where the share partitions of a group begin; `told` gets the group's row.  Partitions
    that are named need not belong to the group: they then begin nowhere."""
    group = shard.groups.get(asked.group_id)
    if asked.topics is not None:
        wanted = partitions_in(asked)
    else:
        share = None if group is None else group.share
        kept = (None if share is None else share.states) or NO_STATES
        wanted = {
            name: sorted(one.partitions) for topic, one in kept.initialized.items()
            if (name := groups.topics.name_of(topic)) is not None
        }  # fmt: skip
    known = {name: groups.topics.topic(name) for name in wanted}
    states_wanted = [
        ReadSummary(topic.id, number, NO_EPOCH)
        for name, topic in known.items() if topic is not None
        for number in wanted[name] if 0 <= number < topic.partition_count
    ]  # fmt: skip
    wanted_results = groups.outside(
        shard, lambda step, code: told(step, described_error(asked.group_id, code))
    )

    def done(results: Sequence[SummaryRead], ends: Ends, step: Step) -> None:
        if wanted_results():
            rows = _summaries(wanted, known, results, ends if version >= LAG_SINCE else None)
            told(step, {"group_id": asked.group_id, "topics": rows})

    if states_wanted:
        lag = version >= LAG_SINCE
        step.effects.append(ReadSummaries(asked.group_id, states_wanted, lag, done))
    else:
        done((), {}, step)


def _summaries(
    wanted: Mapping[str, Sequence[int]], known: Mapping[str, Topic | None],
    results: Sequence[SummaryRead], ends: Ends | None,
) -> list[Row]:  # fmt: skip
    found = {(one.topic_id, one.partition): one for one in results}
    rows = []
    for name, numbers in wanted.items():
        topic = known[name]
        topic_id = ZERO_UUID if topic is None else topic.id
        parts = []
        for number in numbers:
            end = None if ends is None else ends.get(TopicPartition(name, number), -1)
            parts.append(_summary(number, found.get((topic_id, number)), end))
        rows.append({"topic_name": name, "topic_id": topic_id, "partitions": parts})
    return rows


def _summary(number: int, one: SummaryRead | None, end: int | None) -> Row:
    """`end`: of the partition; -1 if it is not known, None if nobody asked for the lag."""
    row: Row = {"partition_index": number, "start_offset": UNINITIALIZED_OFFSET}
    if one is None or one.error is not ErrorCode.NONE:
        return row
    row |= {"start_offset": one.start_offset, "leader_epoch": one.leader_epoch}
    counted = one.delivery_complete_count != UNINITIALIZED_COUNT
    if end is not None and counted and one.start_offset != UNINITIALIZED_OFFSET:
        if end < 0:
            return {
                "partition_index": number,
                "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
                "error_message": "The end of the partition could not be learned.",
            }
        row["lag"] = end - one.start_offset - one.delivery_complete_count
    return row


# ---- AlterShareGroupOffsets ------------------------------------------------------------------


def alter(groups: ShareGroups, shard: GroupShard, step: Step, request: Call) -> None:
    """Let the share partitions of an empty group, which may be new, begin elsewhere."""
    body = request.body
    try:
        group = groups.wanted(shard, step, body.group_id, begins=True)
    except Refusal as refusal:
        step.answer(request.answer, error_code=refusal.code, error_message=refusal.message)
        return
    rows, offsets = _to_alter(body.topics, groups.topics)
    new: list[InitializeState] = []

    def work(changes: ShareChanges, step: Step) -> Body:
        if changes.group.members:
            raise Refusal(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
        before = group.weight.bytes
        kept = {
            topic: Kept(groups.topics.name_of(topic) or states.UNKNOWN, frozenset(some))
            for topic, some in offsets.items()
        }
        if kept:
            changes.states(states.initializing(changes.group.states, kept, step.wall_ms))
        if group.weight.bytes > before and not shard.has_room(1):
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, FULL)
        epoch = changes.group.epoch
        new[:] = [
            InitializeState(topic, number, epoch, offset)
            for topic, some in offsets.items() for number, offset in some.items()
        ]  # fmt: skip
        return {}

    def told(step: Step, code: ErrorCode, message: str | None, _body: Body) -> None:
        if code is not ErrorCode.NONE:
            step.answer(request.answer, error_code=code, error_message=message)
        elif not new:
            step.answer(request.answer, responses=rows)
        else:
            groups.initialize(shard, step, group.group_id, new, altered, strict=False)

    def altered(step: Step, code: ErrorCode, results: Sequence[StateChanged]) -> None:
        _tell_results(rows, code, results)
        step.answer(request.answer, responses=rows)

    groups.take_turn(shard, step, group, Turn(work, told, keeps=(body, rows, offsets)))


def _to_alter(asked: Iterable[Any], topics: Topics) -> tuple[list[Row], dict[UUID, dict[int, int]]]:
    """The rows of the answer, and the offsets of the partitions that exist."""
    rows: list[Row] = []
    offsets: dict[UUID, dict[int, int]] = {}
    for one in asked:
        topic = topics.topic(one.topic_name)
        parts: list[Row] = []
        for part in one.partitions:
            row: Row = {"partition_index": part.partition_index, "error_code": ErrorCode.NONE}
            if topic is not None and 0 <= part.partition_index < topic.partition_count:
                offsets.setdefault(topic.id, {})[part.partition_index] = part.start_offset
            else:
                row |= {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        "error_message": UNKNOWN_TOPIC}  # fmt: skip
            parts.append(row)
        topic_id = ZERO_UUID if topic is None else topic.id
        rows.append({"topic_name": one.topic_name, "topic_id": topic_id, "partitions": parts})
    return rows, offsets


def _tell_results(rows: Iterable[Row], code: ErrorCode, results: Sequence[StateChanged]) -> None:
    """Write results into the rows of partitions that were asked for."""
    found = {(one.topic_id, one.partition): one for one in results}
    for row in rows:
        for part in row["partitions"]:
            if part["error_code"] is not ErrorCode.NONE:
                continue
            one = found.get((row["topic_id"], part["partition_index"]))
            if code is not ErrorCode.NONE:
                part["error_code"] = code
            elif one is not None and one.error is not ErrorCode.NONE:
                part |= {"error_code": one.error, "error_message": one.message}


# ---- DeleteShareGroupOffsets -----------------------------------------------------------------


def delete(groups: ShareGroups, shard: GroupShard, step: Step, request: Call) -> None:
    """Have the share coordinator forget the share partitions of topics, for an empty group."""
    body = request.body
    try:
        group = groups.existing(shard, body.group_id)
    except Refusal as refusal:
        step.answer(request.answer, error_code=refusal.code, error_message=refusal.message)
        return
    names = list(dict.fromkeys(one.topic_name for one in body.topics))
    errors: list[Row] = []
    gone: dict[UUID, Sequence[int]] = {}

    def work(changes: ShareChanges, step: Step) -> Body:
        if changes.group.members:
            raise Refusal(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)
        errors.clear()
        gone.clear()
        before = changes.group.states
        if before is not None:
            _to_delete(before, names, groups.topics, gone, errors)
        if before is not None and gone:
            left = {t: one for t, one in before.initialized.items() if t not in gone}
            deleting = {**before.deleting, **{t: groups.topics.name_of(t) or "" for t in gone}}
            changes.states(before._replace(initialized=left, deleting=deleting, at_ms=step.wall_ms))
        return {}

    def told(step: Step, code: ErrorCode, message: str | None, _body: Body) -> None:
        if code is not ErrorCode.NONE:
            step.answer(request.answer, error_code=code, error_message=message)
        elif not gone:
            step.answer(request.answer, responses=errors)
        else:
            groups.forget(shard, step, group.group_id, gone, forgotten)

    def forgotten(step: Step, code: ErrorCode, results: Sequence[StateChanged]) -> None:
        if code is not ErrorCode.NONE:
            step.answer(request.answer, error_code=code)
        else:
            _forgotten(groups, shard, step, (request, group), results, errors)

    groups.take_turn(shard, step, group, Turn(work, told, keeps=(body, names)))


def _to_delete(
    before: States, names: Iterable[str], topics: Topics,
    gone: dict[UUID, Sequence[int]], errors: list[Row],
) -> None:  # fmt: skip
    for name in names:
        topic = topics.topic(name)
        if topic is not None and topic.id in before.initialized:
            gone[topic.id] = sorted(before.initialized[topic.id].partitions)
        elif topic is not None and topic.id in before.deleting:
            gone[topic.id] = range(topic.partition_count)  # an earlier attempt failed
        else:
            why = UNKNOWN_TOPIC if topic is None else NOTHING_TO_DELETE
            errors.append(_deleted(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why))


def _deleted(
    name: str | None, topic_id: UUID, code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> Row:
    return {"topic_name": name or "", "topic_id": topic_id, "error_code": code,
            "error_message": message}  # fmt: skip


def _forgotten(
    groups: ShareGroups, shard: GroupShard, step: Step, asked: tuple[Call, Group],
    results: Sequence[StateChanged], errors: Sequence[Row],
) -> None:  # fmt: skip
    """The share coordinator forgot topics, or could not: record it, and answer."""
    request, group = asked
    by_topic: dict[UUID, list[StateChanged]] = {}
    for one in results:
        by_topic.setdefault(one.topic_id, []).append(one)
    failed, done = [], []
    for topic, some in by_topic.items():
        code, name = first_error(some), groups.topics.name_of(topic)
        if code is ErrorCode.NONE:
            done.append(_deleted(name, topic))
        else:
            why = next((one.message for one in some if one.error is code), None)
            failed.append(_deleted(name, topic, code, why))
    rows = [*done, *errors, *failed]

    def work(changes: ShareChanges, step: Step) -> Body:
        before = changes.group.states
        if before is not None and done:
            topics = [row["topic_id"] for row in done]
            changes.states(states.forgotten(before, topics, step.wall_ms))
        return {}

    def told(step: Step, code: ErrorCode, message: str | None, _body: Body) -> None:
        if code is ErrorCode.NONE:
            step.answer(request.answer, responses=rows)
        else:
            step.answer(request.answer, error_code=code, error_message=message)

    if shard.groups.get(group.group_id) is group and done:
        groups.take_turn(shard, step, group, Turn(work, told, keeps=(request.body, rows)))
    else:
        step.answer(request.answer, responses=rows)
