"""TxnOffsetCommit, and what happens to its offsets when their transaction ends.

They are written immediately, and apply when the marker says commit.  Source: Kafka's
OffsetMetadataManager; KIP-98, KIP-447 (a generation fences), KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog.coordinator.consumer_groups.commits import Committer
from kafkalog.coordinator.core import append_error
from kafkalog.coordinator.groups import offsets, records
from kafkalog.coordinator.groups.group import Group, State, offset_bytes
from kafkalog.coordinator.groups.groups import validate_member
from kafkalog.coordinator.groups.offsets import Known
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Call, Producer, Step
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["commit", "end"]


def commit(shard: GroupShard, step: Step, request: Call, known: Known) -> None:
    """Answer a TxnOffsetCommit once its offsets are in the journal."""
    body = request.body
    group = shard.groups.get(body.group_id)
    error = _check(group, request, known)
    if error is ErrorCode.NONE:
        error = append_error(request.allowed())
    if error is not ErrorCode.NONE:
        offsets.commit_failed(step, request, error, known)
        return
    if group is None:
        group = shard.new_group(body.group_id, step.wall_ms)
    taken: offsets.Taken = {}
    results = offsets.take(shard, step, request, known, taken)
    more = _more_bytes(group, body.producer_id, taken)
    taken = offsets.limited(shard, known, results, taken, more)
    if not taken:
        if group.unused:
            shard.forget(group)
        step.answer(request.answer, topics=results)
        return
    offsets.write_commit(
        shard, step, group, request, (taken, results),
        Producer(body.producer_id, body.producer_epoch),
    )  # fmt: skip


def _more_bytes(group: Group, producer_id: int, taken: offsets.Taken) -> int:
    """Keeps offsets apart from the committed ones until the transaction ends."""
    before = group.pending_offsets.get(producer_id, {})
    more = sum(offset_bytes(offset.metadata) for offset in taken.values())
    return more - sum(offset_bytes(before[w].metadata) for w in taken if w in before)


def _check(group: Group | None, request: Call, known: Known) -> ErrorCode:
    """Check that the sender may commit for the group, as KIP-447 requires."""
    body = request.body
    member_id = getattr(body, "member_id", "")
    instance_id = getattr(body, "group_instance_id", None)
    generation = getattr(body, "generation_id_or_member_epoch", -1)
    if group is None:
        late = request.version >= offsets.TXN_IDS_VERSION
        absent = ErrorCode.GROUP_ID_NOT_FOUND if late else ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE if generation < 0 else absent
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if records.is_share(group):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.newer is not None and not group.is_classic:
        sender = Committer(member_id, generation, instance_id, request.version, True)
        error = offsets.check_member(group, sender, request, known)
        stale = error is ErrorCode.STALE_MEMBER_EPOCH and request.version < offsets.TXN_IDS_VERSION
        return ErrorCode.ILLEGAL_GENERATION if stale else error
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if generation >= 0 or member_id or instance_id is not None:
        error = validate_member(group, member_id, instance_id)
        if error is ErrorCode.NONE and generation != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        return error
    return ErrorCode.NONE  # a producer from before KIP-447, which knows no group


def end(
    shard: GroupShard, step: Step, producer: Producer, done: Callable[[ErrorCode], None]
) -> None:
    """Write a transaction's marker; then its offsets apply or are dropped."""

    def settle(step: Step, error: ErrorCode) -> None:
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            late(step, error)
        done(error if error is ErrorCode.NONE else append_error(error))

    def late(_: Step, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            shard.end_transaction(producer.producer_id, bool(producer.commit))

    step.write(shard.partition, [], settle, late, producer)
