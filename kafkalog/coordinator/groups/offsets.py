"""OffsetCommit, OffsetFetch, OffsetDelete, and the expiry of committed offsets.

Source: Kafka's OffsetMetadataManager; KIP-211 (expiry), KIP-447 (require stable), KIP-496
(OffsetDelete), KIP-709 (several groups in one OffsetFetch).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from kafkalog.config.declare import FOREVER
from kafkalog.coordinator.consumer_groups.commits import Committer, check_commit, check_fetch
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup
from kafkalog.coordinator.core import append_error
from kafkalog.coordinator.groups import records
from kafkalog.coordinator.groups.group import (
    CONSUMER,
    Commit,
    CommittedOffset,
    Group,
    State,
    offset_bytes,
)
from kafkalog.coordinator.groups.groups import validate_member
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Body, Call, JournalRecord, Producer, Step
from kafkalog.coordinator.streams_groups.commits import check_streams_commit, check_streams_fetch
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = [
    "IDS_VERSION",
    "TXN_IDS_VERSION",
    "Known",
    "check_member",
    "commit",
    "commit_failed",
    "delete",
    "delete_failed",
    "delete_group",
    "drop_topics",
    "expire",
    "fetch",
    "fetch_failed",
    "limited",
    "take",
    "write_commit",
]

MINUTE_MS = 60_000
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ABSENT_VERSION = 9
"""From this version of OffsetCommit on, a missing group has its own error."""
IDS_VERSION, TXN_IDS_VERSION = 10, 6
"""From these versions of OffsetCommit, OffsetFetch and TxnOffsetCommit on, topics have ids
instead of names (KIP-848, KIP-1319)."""
MEMBER_VERSION = 9
"""From this version on OffsetFetch names the member that asks."""
GROUP_ERROR_VERSION = 2
"""From this version on, OffsetFetch has an error for the whole group."""
RECORD_BYTES_MIN = 30
"""Bytes that a committed offset takes at least in its batch: its key and its value."""

Taken = dict[TopicPartition, CommittedOffset]
"""The offsets to commit."""


class Known(NamedTuple):
    """Looks up topics."""

    partition_count: Callable[[str], int]
    """How many partitions a topic has; 0 if the name is unknown."""
    id_of: Callable[[str], UUID]
    """A topic's id; ZERO_UUID if the name is unknown."""
    name_of: Callable[[UUID], str | None]
    """The name of the topic with an id."""
    batch_bytes_max: Callable[[], int] = lambda: FOREVER
    """Limit for a batch of __consumer_offsets."""


class _Topic(NamedTuple):
    """A topic that a request names, and what is known about it."""

    name: str
    id: UUID
    partition_count: int
    absent: ErrorCode
    """The error for a partition that it does not have."""
    by_id: bool = False
    """True if the answer names it by id."""


def _topic(topic: Any, known: Known, by_id: bool) -> _Topic:
    """Resolve a request's topic; `by_id`: it has an id and no name."""
    if not by_id:
        return _Topic(
            topic.name, known.id_of(topic.name), known.partition_count(topic.name), UNKNOWN
        )
    name = known.name_of(topic.topic_id)
    if name is None:
        return _Topic("", topic.topic_id, 0, ErrorCode.UNKNOWN_TOPIC_ID, by_id)
    return _Topic(name, topic.topic_id, known.partition_count(name), UNKNOWN, by_id)


def _commits_by_id(request: Call) -> bool:
    """True if an OffsetCommit or TxnOffsetCommit names topics by id."""
    transactional = hasattr(request.body, "transactional_id")
    return request.version >= (TXN_IDS_VERSION if transactional else IDS_VERSION)


# ---- OffsetCommit --------------------------------------------------------------------------


def commit(shard: GroupShard, step: Step, request: Call, known: Known) -> None:
    """Answer an OffsetCommit once its offsets are in the journal."""
    body = request.body
    group = shard.groups.get(body.group_id)
    error = _check_commit(group, request, known)
    if error is not ErrorCode.NONE:
        commit_failed(step, request, error, known)
        return
    if group is None:
        group = shard.new_group(body.group_id, step.wall_ms)
    elif group.is_classic and group.state in (State.STABLE, State.PREPARING):
        shard.keep_session(group, group.members[body.member_id], step.now_ms)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    results = take(shard, step, request, known, offsets)
    offsets = limited(shard, known, results, offsets, more_bytes(group, offsets))
    if not offsets:
        if group.unused:
            shard.forget(group)
        step.answer(request.answer, topics=results)
        return
    write_commit(shard, step, group, request, (offsets, results))


def more_bytes(group: Group, offsets: dict[TopicPartition, CommittedOffset]) -> int:
    """The memory a commit adds beyond what it replaces; at least 0."""
    more = sum(offset_bytes(offset.metadata) for offset in offsets.values())
    before = filter(None, (group.offset(*where) for where in offsets))
    return max(more - sum(offset_bytes(offset.metadata) for offset in before), 0)


def limited(
    shard: GroupShard, known: Known, results: list[Body], offsets: Taken, more: int
) -> Taken:
    """The offsets to commit: all, or none if they take too much; then `results` say why.

    `more`: the memory that they add.
    """
    if offsets and len(offsets) * RECORD_BYTES_MIN > known.batch_bytes_max():
        # The journal would refuse them, after a long time for their encoding.
        refused = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    elif offsets and not shard.has_room(more):
        refused = ErrorCode.GROUP_MAX_SIZE_REACHED
    else:
        return offsets
    for topic in results:
        for partition in topic["partitions"]:
            if partition["error_code"] is ErrorCode.NONE:
                partition["error_code"] = refused
    return {}


def commit_failed(step: Step, request: Call, error: ErrorCode, known: Known) -> None:
    """Answer an OffsetCommit with an error for every partition."""
    topics: list[Body] = []
    for requested in request.body.topics:
        topic = _topic(requested, known, _commits_by_id(request))
        results = [
            _result(p, error if _exists(p, topic.partition_count) else topic.absent)
            for p in requested.partitions
        ]
        topics.append(_answered(topic, results))
    step.answer(request.answer, topics=topics)


def _answered(topic: _Topic, partitions: list[Body]) -> Body:
    """A topic's entry in the answer."""
    named = {"topic_id": topic.id} if topic.by_id else {"name": topic.name}
    return {**named, "partitions": partitions}


def _exists(partition: Any, count: int) -> bool:
    return bool(0 <= partition.partition_index < count)


def _result(partition: Any, error: ErrorCode) -> Body:
    return {"partition_index": partition.partition_index, "error_code": error}


def _check_commit(group: Group | None, request: Call, known: Known) -> ErrorCode:
    """Check that the sender may commit for the group."""
    body = request.body
    generation = body.generation_id_or_member_epoch
    if group is None:
        # Without a generation: a consumer that only stores its offsets here.
        if generation < 0:
            return ErrorCode.NONE
        late = request.version >= ABSENT_VERSION
        return ErrorCode.GROUP_ID_NOT_FOUND if late else ErrorCode.ILLEGAL_GENERATION
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if records.is_share(group):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.newer is not None and not group.is_classic:
        sender = Committer(body.member_id, generation, body.group_instance_id, request.version)
        return check_member(group, sender, request, known)
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    error = validate_member(group, body.member_id, body.group_instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is ErrorCode.NONE and group.state is State.COMPLETING:
        # The sender may have lost the partitions, and does not know it yet.
        error = ErrorCode.REBALANCE_IN_PROGRESS
    return error


def check_member(group: Group, sender: Committer, request: Call, known: Known) -> ErrorCode:
    """Check that a member that heartbeats may make the request's commits."""
    named = (
        (_topic(one, known, _commits_by_id(request)), partition.partition_index)
        for one in request.body.topics for partition in one.partitions
    )  # fmt: skip
    if group.streams is not None:
        partitions = ((topic.name, number) for topic, number in named)
        return check_streams_commit(group.streams, sender, partitions)
    assert group.consumer is not None, group.group_id
    return check_commit(group.consumer, sender, ((topic.id, number) for topic, number in named))


def take(
    shard: GroupShard,
    step: Step,
    request: Call,
    known: Known,
    offsets: dict[TopicPartition, CommittedOffset],
) -> list[Body]:
    """Put valid commits into `offsets`; returns the result of each partition."""
    body = request.body
    limit = shard.config.offset_metadata_max_bytes
    asked_ms = getattr(body, "retention_time_ms", -1)  # a TxnOffsetCommit has none
    expire_ms = -1 if asked_ms < 0 else step.wall_ms + asked_ms
    if expire_ms > FOREVER:  # Kafka's sum overflows: the offset expires at the next check
        expire_ms = step.wall_ms
    topics: list[Body] = []
    for requested in body.topics:
        topic = _topic(requested, known, _commits_by_id(request))
        results = []
        for partition in requested.partitions:
            metadata = partition.committed_metadata or ""
            error = ErrorCode.NONE
            if not _exists(partition, topic.partition_count):
                error = topic.absent
            elif _java_length(metadata) > limit:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                where = TopicPartition(topic.name, partition.partition_index)
                offsets[where] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    metadata,
                    step.wall_ms,
                    expire_ms,
                    -1,
                    topic.id,
                )
            results.append(_result(partition, error))
        topics.append(_answered(topic, results))
    return topics


def _java_length(text: str) -> int:
    """Java's String.length: the count of UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def write_commit(
    shard: GroupShard,
    step: Step,
    group: Group,
    request: Call,
    taken: tuple[Taken, list[Body]],
    producer: Producer | None = None,
) -> None:
    """Write offsets; `taken`: these and the results so far.  `producer`: in its transaction."""
    offsets, results = taken
    written = records.offset_records(group.group_id, offsets)  # may fail: nothing is changed yet
    number = next(shard.numbers)
    group.commits[number] = Commit(offsets, producer is not None)
    group.recorded = True

    def settle(step: Step, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            shown = append_error(error, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            for topic in results:
                for partition in topic["partitions"]:
                    if partition["error_code"] is ErrorCode.NONE:
                        partition["error_code"] = shown
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            late(step, error)
        step.answer(request.answer, topics=results)

    def late(step: Step, error: ErrorCode) -> None:
        del group.commits[number]
        if error is ErrorCode.NONE:
            for where, offset in offsets.items():
                placed = offset._replace(position=shard.next_position())
                if producer is None:
                    group.put_offset(where, placed)
                else:
                    shard.put_pending(producer.producer_id, group, where, placed)

    step.write(shard.partition, written, settle, late, producer)


# ---- OffsetFetch ---------------------------------------------------------------------------


def fetch(shard: GroupShard, requested: Any, stable: bool, known: Known, by_id: bool) -> Body:
    """The committed offsets of one group; `stable`: not while a transaction may change them.

    `requested`: with group_id, and topics (None: all) with name and partition_indexes.  `by_id`:
    topics have ids; an offset for an earlier topic of the same name does not count.
    """
    group = shard.groups.get(requested.group_id)
    if group is not None and group.state is State.DEAD:
        group = None
    error = ErrorCode.NONE if group is None else _check_fetch(group, requested)
    if error is not ErrorCode.NONE:
        return fetch_failed(requested, MEMBER_VERSION, error)
    topics: list[Body] = []
    for topic, partitions in _wanted(group, requested, known, by_id):
        found = []
        for partition in partitions:
            where = TopicPartition(topic.name, partition)
            if topic.absent is ErrorCode.UNKNOWN_TOPIC_ID:
                found.append(_found(partition, None, topic.absent))
            elif group is None:
                found.append(_found(partition, None))
            elif stable and group.unstable(where):
                found.append(_found(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                offset = group.offset(*where)
                other = by_id and offset is not None and offset.of_other(topic.id)
                found.append(_found(partition, None if other else offset))
        topics.append(_answered(topic, found))
    return {"group_id": requested.group_id, "topics": topics, "error_code": ErrorCode.NONE}


def _check_fetch(group: Group, requested: Any) -> ErrorCode:
    """Check that the member that asks is one of the group's.  Kafka checks this for groups whose
    members heartbeat."""
    if records.newer_type(group) is None or records.is_share(group) or group.is_classic:
        return ErrorCode.NONE
    member_id, epoch = getattr(requested, "member_id", None), getattr(requested, "member_epoch", -1)
    if group.streams is not None:
        return check_streams_fetch(group.streams, member_id, epoch)
    return check_fetch(group.consumer or ConsumerGroup(), member_id, epoch)


def _wanted(
    group: Group | None, requested: Any, known: Known, by_id: bool
) -> Iterator[tuple[_Topic, Iterable[int]]]:
    if requested.topics is not None:
        for topic in requested.topics:
            yield _topic(topic, known, by_id), topic.partition_indexes
    elif group is not None:
        for name, partitions in group.offsets.items():
            topic_id = known.id_of(name)
            if topic_id != ZERO_UUID or not by_id:
                yield _Topic(name, topic_id, 0, UNKNOWN, by_id), partitions


def _found(
    partition: int, offset: CommittedOffset | None, error: ErrorCode = ErrorCode.NONE
) -> Body:
    return {
        "partition_index": partition,
        "committed_offset": -1 if offset is None else offset.offset,
        "committed_leader_epoch": -1 if offset is None else offset.leader_epoch,
        "metadata": "" if offset is None else offset.metadata,
        "error_code": error,
    }


def fetch_failed(requested: Any, version: int, error: ErrorCode) -> Body:
    """The answer for a group whose offsets are unknown."""
    topics: list[Body] = []
    if version < GROUP_ERROR_VERSION:
        for topic in requested.topics or ():
            partitions = [_found(p, None, error) for p in topic.partition_indexes]
            topics.append({"name": topic.name, "partitions": partitions})
    return {"group_id": requested.group_id, "topics": topics, "error_code": error}


# ---- OffsetDelete --------------------------------------------------------------------------


def delete(shard: GroupShard, step: Step, request: Call, known: Known) -> None:
    """Answer an OffsetDelete once its tombstones are in the journal."""
    body = request.body
    group = shard.groups.get(body.group_id)
    error = _check_delete(group)
    if group is None or error is not ErrorCode.NONE:
        delete_failed(step, request, error)
        return
    gone: dict[TopicPartition, None] = {}
    topics: list[Body] = []
    existing = set(group.known_offsets())
    for topic in body.topics:
        count = known.partition_count(topic.name)
        used = group.subscribes(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used else ErrorCode.NONE
        requested = [TopicPartition(topic.name, p.partition_index) for p in topic.partitions]
        gone.update(dict.fromkeys(w for w in requested if w in existing and not used))
        results = [_result(p, error if _exists(p, count) else UNKNOWN) for p in topic.partitions]
        topics.append({"name": topic.name, "partitions": results})

    def settle(step: Step, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            step.answer(request.answer, topics=topics)
        else:
            delete_failed(step, request, append_error(error))

    _write_tombstones(shard, step, group, gone, settle)


def delete_failed(step: Step, request: Call, error: ErrorCode) -> None:
    """Answer an OffsetDelete with an error for the whole."""
    step.answer(request.answer, error_code=error, topics=[])


def _check_delete(group: Group | None) -> ErrorCode:
    if group is None or group.state is State.DEAD or records.is_share(group):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.is_classic and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _write_tombstones(
    shard: GroupShard,
    step: Step,
    group: Group,
    gone: Collection[TopicPartition],
    settle: Callable[[Step, ErrorCode], None],
) -> None:
    """Delete offsets, then settle; immediately if there are none."""
    if not gone:
        settle(step, ErrorCode.NONE)
        return
    written = tombstones(group, gone)  # before anything is changed, as in write_commit
    number = next(shard.numbers)
    # Until this is done, neither the group nor its offsets expire.
    group.commits[number] = Commit({})

    def settled(step: Step, error: ErrorCode) -> None:
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            late(step, error)
        settle(step, error)

    def late(_: Step, error: ErrorCode) -> None:
        del group.commits[number]
        if error is ErrorCode.NONE:
            for where in gone:
                group.drop_offset(where)

    step.write(shard.partition, written, settled, late)


def tombstones(group: Group, gone: Iterable[TopicPartition]) -> list[JournalRecord]:
    """The records that delete these offsets of a group."""
    return [(records.offset_key(group.group_id, where), None) for where in gone]


# ---- the end of offsets --------------------------------------------------------------------


def expired(group: Group, wall_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The offsets of a group that have expired."""
    since_ms: int | None = None
    if group.newer is not None and not group.is_classic:
        pass  # some time after the commit, unless a member subscribes to the topic
    elif group.protocol_type is not None and group.state is State.EMPTY and group.state_ms >= 0:
        since_ms = group.state_ms  # all of them, some time after the last member left
    elif group.protocol_type is not None and group.state is not State.EMPTY:
        readable = group.protocol_type == CONSUMER and group.topics is not None
        if group.state is not State.STABLE or not readable:
            return []
    found = []
    for topic, partitions in group.offsets.items():
        if group.subscribes(topic):
            continue
        for partition, offset in partitions.items():
            if offset.expire_ms >= 0:
                over = wall_ms >= offset.expire_ms
            else:
                begin_ms = offset.commit_ms if since_ms is None else since_ms
                over = wall_ms - begin_ms >= retention_ms
            where = TopicPartition(topic, partition)
            if over and not group.unstable(where):
                found.append(where)
    return found


def expire(shard: GroupShard, step: Step) -> None:
    """Delete expired offsets, then groups that have become empty."""
    retention_ms = shard.config.offsets_retention_minutes * MINUTE_MS
    for group in list(shard.live()):
        changes = group.newer is not None and group.newer.writing
        if group.commits or changes or records.is_share(group):
            continue  # a tombstone now would follow a newer commit, or depend on the outcome
        gone = expired(group, step.wall_ms, retention_ms)
        left = sum(map(len, group.offsets.values())) - len(gone)
        busy = group.pending or group.pending_offsets or group.writing
        if group.is_empty and not left and not busy:
            delete_group(shard, step, group, lambda _step, _error: None)
        else:
            _write_tombstones(shard, step, group, gone, lambda _step, _error: None)


def delete_group(
    shard: GroupShard, step: Step, group: Group, settle: Callable[[Step, ErrorCode], None]
) -> None:
    """Delete an empty group and its offsets.  It is Dead until that is in the journal."""
    written = tombstones(group, dict.fromkeys(group.known_offsets()))
    written += records.foreign_tombstones(group.newer_keys)
    if group.recorded:
        written.append((records.group_key(group.group_id), None))
    entered_ms = group.state_ms
    group.become(State.DEAD, step.wall_ms)

    def settled(step: Step, error: ErrorCode) -> None:
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            late(step, error)
        settle(step, error)

    def late(step: Step, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            shard.forget(group)
        else:
            group.become(State.EMPTY, entered_ms)

    for member_id in group.pending:
        shard.cancel_timer("session", group, member_id)
    group.expect_nobody()
    if written:
        step.write(shard.partition, written, settled, late)
    else:
        settled(step, ErrorCode.NONE)


def drop_topics(shard: GroupShard, step: Step, names: Collection[str]) -> None:
    """Topics were deleted: delete the offsets committed for them."""
    for group in list(shard.live()):
        gone = dict.fromkeys(w for w in group.known_offsets() if w.topic in names)
        _write_tombstones(shard, step, group, gone, lambda _step, _error: None)
