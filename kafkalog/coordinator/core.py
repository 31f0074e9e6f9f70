"""The coordinator without its thread: requests, outcomes and time go in, answers and appends
come out.

What stands here is common to all APIs: which partition a group belongs to, whether this
broker coordinates it, how writes of one round become one append, and how long they may take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, NamedTuple

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator import loader
from kafkalog.coordinator.groups import admin, groups, offsets, rebalance
from kafkalog.coordinator.partitions import partition_for
from kafkalog.coordinator.shard import Shard
from kafkalog.coordinator.step import Body, JournalRecord, Request, Step, Write
from kafkalog.coordinator.timers import Key, Timers
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["ANY_PARTITION", "Append", "Core"]

APPEND_BYTES = 262_144
"""Writes are put together up to this size: far below max.message.bytes, so that one which is
too large spoils no other."""
EMPTY_GROUP_ALLOWED = {apis.OFFSET_COMMIT, apis.OFFSET_FETCH}
"""Those that take the empty group id: consumers of old committed under it."""


ANY_PARTITION = 1 << 31
"""As a number of partitions: whatever is named exists."""
GROUPS_VERSION = 8
"""From this version on OffsetFetch asks for several groups."""


def _asked(request: Request) -> list[Any]:
    """What an OffsetFetch asks for, group by group: each with group_id and topics."""
    body = request.body
    if request.version < GROUPS_VERSION:
        return [body]
    # All of a group is told once: a few bytes may not ask for any number of offsets.
    whole = {group.group_id: group for group in body.groups if group.topics is None}
    return [g for g in body.groups if g.topics is not None or g is whole[g.group_id]]


class Append(NamedTuple):
    """Records of one or more writes, for one batch of the journal."""

    number: int
    partition: int
    records: list[JournalRecord]
    writes: list[Write]


class Core:
    """All groups of this broker.  One thread only: the coordinator's."""

    def __init__(
        self,
        config: GroupConfig,
        new_id: Callable[[], str],
        topic_partitions: offsets.Known = lambda _name: ANY_PARTITION,
    ) -> None:
        """`new_id` makes the unique part of member ids; `topic_partitions` tells how many
        partitions a topic has, 0: there is none of the name."""
        self.config = config
        self.timers = Timers()
        self.partition_count = 0
        """Of __consumer_offsets; 0: there is none yet."""
        self.shards: dict[int, Shard] = {}
        """The partitions whose groups are here."""
        self.loading: set[int] = set()
        """Those whose groups are being read."""
        self.stopped = False
        self._new_id = new_id
        self._known = topic_partitions
        self._waiting: dict[int, Append] = {}
        self._timed_out: set[int] = set()
        self._next_append = 0
        self._handlers: dict[Api, Callable[[Shard, Step, Request], None]] = {
            apis.JOIN_GROUP: groups.join,
            apis.SYNC_GROUP: groups.sync,
            apis.HEARTBEAT: groups.heartbeat,
            apis.LEAVE_GROUP: groups.leave,
            apis.OFFSET_COMMIT: self._commit,
            apis.OFFSET_DELETE: self._offset_delete,
        }
        self._several: dict[Api, Callable[[Step, Request], None]] = {
            apis.OFFSET_FETCH: self._offset_fetch,
            apis.DESCRIBE_GROUPS: self._describe,
            apis.LIST_GROUPS: self._list,
            apis.DELETE_GROUPS: self._delete,
        }

    # ---- partitions ------------------------------------------------------------------------

    def new_shard(self, partition: int) -> Shard:
        """An empty shard of a partition, to be filled by loader.load."""
        return Shard(partition, self.config, self.timers, self._new_id)

    def begin_load(self, partition: int, partition_count: int) -> None:
        """This broker coordinates a partition, whose groups are now being read."""
        self.partition_count = partition_count
        self.loading.add(partition)

    def end_load(self, shard: Shard, step: Step) -> None:
        """The groups of a partition were read."""
        if shard.partition not in self.loading:
            return  # given up meanwhile
        self.loading.discard(shard.partition)
        self.shards[shard.partition] = shard
        loader.resume(shard, step)
        self._look_for_expired(shard.partition, step)

    def resign(self, partition: int, step: Step) -> None:
        """This broker no longer coordinates a partition: what waits is told so."""
        self.loading.discard(partition)
        shard = self.shards.pop(partition, None)
        if shard is None:
            return
        shard.closed = True
        gone = ErrorCode.NOT_COORDINATOR
        for append in [a for a in self._waiting.values() if a.partition == partition]:
            self.settled(append.number, gone, step)
        for group in shard.groups.values():
            rebalance.fail_waiting(step, group, gone)

    def _where(self, group_id: str) -> tuple[Shard | None, ErrorCode]:
        """The shard of a group, or why there is none."""
        if self.stopped:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self.partition_count:
            return None, ErrorCode.NOT_COORDINATOR
        partition = partition_for(group_id, self.partition_count)
        shard = self.shards.get(partition)
        if shard is not None:
            return shard, ErrorCode.NONE
        loading = partition in self.loading
        found = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR
        return None, found

    # ---- requests --------------------------------------------------------------------------

    def request(self, api: Api, request: Request, step: Step) -> None:
        """Take a request; it is answered in this step or a later one."""
        several = self._several.get(api)
        if several is not None:
            several(step, request)
            return
        group_id = request.body.group_id
        if not group_id and api not in EMPTY_GROUP_ALLOWED:
            self.refuse(api, request, step, ErrorCode.INVALID_GROUP_ID)
            return
        shard, error = self._where(group_id)
        if shard is None:
            self.refuse(api, request, step, error)
        else:
            self._handlers[api](shard, step, request)

    def refuse(self, api: Api, request: Request, step: Step, error: ErrorCode) -> None:
        """Answer with an error that has nothing to do with the group's state."""
        body = request.body
        answer = request.answer
        loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if api is apis.OFFSET_COMMIT:
            offsets.commit_failed(step, request, error, self._known)
        elif api is apis.OFFSET_DELETE:
            offsets.delete_failed(step, request, error)
        elif api is apis.JOIN_GROUP:
            name = None if request.version >= groups.NULL_NAME_VERSION else ""
            refused = rebalance.refused_join(error, body.member_id)
            step.answer(answer, **{**refused, "protocol_name": name})
        elif api is apis.HEARTBEAT and loading:
            step.answer(answer, error_code=ErrorCode.NONE)  # it may well be a member
        elif api is apis.SYNC_GROUP and loading:
            # The rebalance that it belongs to is lost: it joins again, here.
            step.answer(answer, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        elif api is apis.OFFSET_FETCH:
            asked = _asked(request)
            self._fetched(
                step,
                request,
                [offsets.fetch_failed(each, request.version, error) for each in asked],
            )
        elif api is apis.DESCRIBE_GROUPS:
            step.answer(answer, groups=[admin.described_error(g, error) for g in body.groups])
        elif api is apis.DELETE_GROUPS:
            names = admin.distinct(body.groups_names)
            step.answer(answer, results=[admin.result_of(name, error) for name in names])
        else:
            step.answer(answer, error_code=error)

    def _commit(self, shard: Shard, step: Step, request: Request) -> None:
        offsets.commit(shard, step, request, self._known)

    def _offset_delete(self, shard: Shard, step: Step, request: Request) -> None:
        offsets.delete(shard, step, request, self._known)

    def _offset_fetch(self, step: Step, request: Request) -> None:
        found: list[Body] = []
        for asked in _asked(request):
            shard, error = self._where(asked.group_id)
            if shard is None:
                found.append(offsets.fetch_failed(asked, request.version, error))
            else:
                found.append(offsets.fetch(shard, asked, request.body.require_stable))
        self._fetched(step, request, found)

    @staticmethod
    def _fetched(step: Step, request: Request, found: list[Body]) -> None:
        if request.version < GROUPS_VERSION:
            only = found[0]
            step.answer(request.answer, topics=only["topics"], error_code=only["error_code"])
        else:
            step.answer(request.answer, groups=found)

    def _describe(self, step: Step, request: Request) -> None:
        found = []
        operations = request.body.include_authorized_operations
        for group_id in admin.distinct(request.body.groups):
            shard, error = self._where(group_id)
            if shard is None:
                found.append(admin.described_error(group_id, error))
            else:
                found.append(admin.describe(shard, group_id, request.version, operations))
        step.answer(request.answer, groups=found)

    def _list(self, step: Step, request: Request) -> None:
        body = request.body
        error = ErrorCode.NONE
        if self.stopped:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif self.loading:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        found: list[Body] = []
        for shard in self.shards.values():
            found += admin.listed(shard, body.states_filter, body.types_filter)
        step.answer(request.answer, error_code=error, groups=found)

    def _delete(self, step: Step, request: Request) -> None:
        """Each group has a write of its own; the response goes when all have ended."""
        names = admin.distinct(request.body.groups_names)
        results: dict[str, ErrorCode] = {}

        def ended(group_id: str, step: Step, error: ErrorCode) -> None:
            results[group_id] = error
            if len(results) == len(names):
                told = [admin.result_of(name, results[name]) for name in names]
                step.answer(request.answer, results=told)

        if not names:
            step.answer(request.answer, results=[])
        for group_id in names:
            shard, error = self._where(group_id)
            if shard is None:
                ended(group_id, step, error)
            else:
                admin.delete(shard, step, group_id, partial(ended, group_id))

    def drop_topics(self, names: Collection[str], step: Step) -> None:
        """Topics were deleted."""
        for shard in self.shards.values():
            offsets.drop_topics(shard, step, names)

    # ---- time ------------------------------------------------------------------------------

    def tick(self, step: Step) -> None:
        """Run the timers whose time has come."""
        # Those that are set meanwhile have their turn in the next step, so that this ends.
        due = []
        while (key := self.timers.due(step.now_ms)) is not None:
            due.append(key)
        failure: Exception | None = None
        for key in due:
            try:
                self._expire(key, step)
            except Exception as problem:  # the others' time has come all the same
                failure = failure or problem
        if failure is not None:
            raise failure

    def _expire(self, key: Key, step: Step) -> None:
        kind, partition, group_id, member_id = key
        if kind == "append":
            self._time_out(partition, step)
            return
        shard = self.shards.get(partition)
        if shard is None:
            return
        if kind == "retention":
            self._look_for_expired(partition, step)  # first: it looks again if this one fails
            offsets.expire(shard, step)
            return
        group = shard.groups.get(group_id)
        if group is None:
            return
        if kind == "session":
            rebalance.expire_session(shard, step, group, member_id)
        elif kind == "join":
            rebalance.expire_join(shard, step, group)
        else:
            rebalance.expire_sync(shard, step, group)

    def _look_for_expired(self, partition: int, step: Step) -> None:
        interval_ms = self.config.offsets_retention_check_interval_ms
        self.timers.set(("retention", partition, "", ""), step.now_ms + interval_ms)

    # ---- the journal -----------------------------------------------------------------------

    def appends(self, step: Step) -> Iterable[Append]:
        """What the step has to be written, put together by partitions.

        Each is to be appended, in this order, and its outcome given to `settled`.
        """
        made: dict[int, Append] = {}
        sizes: dict[int, int] = {}
        found: list[Append] = []
        writes = deque(step.writes)
        step.writes = []
        while writes:
            write = writes.popleft()
            if write.partition not in self.shards:
                write.settle(step, ErrorCode.NOT_COORDINATOR)
                writes.extend(step.writes)
                step.writes = []
                continue
            size = sum(len(key) + len(value or b"") + 20 for key, value in write.records)
            append = made.get(write.partition)
            if append is None or sizes[write.partition] + size > APPEND_BYTES:
                append = Append(self._next_append, write.partition, [], [])
                self._next_append += 1
                self._waiting[append.number] = append
                made[write.partition], sizes[write.partition] = append, 0
                limit_ms = step.now_ms + self.config.offsets_commit_timeout_ms
                self.timers.set(("append", append.number, "", ""), limit_ms)
                found.append(append)
            append.records.extend(write.records)
            append.writes.append(write)
            sizes[write.partition] += size
        return found

    def settled(self, number: int, error: ErrorCode, step: Step) -> None:
        """The outcome of an append."""
        append = self._waiting.pop(number, None)
        if append is None:
            return  # this broker resigned meanwhile
        self.timers.cancel(("append", number, "", ""))
        late = number in self._timed_out
        self._timed_out.discard(number)
        for write in append.writes:
            if not late:
                write.settle(step, error)
            elif write.late is not None:
                write.late(step, error)

    def _time_out(self, number: int, step: Step) -> None:
        append = self._waiting[number]
        self._timed_out.add(number)
        for write in append.writes:
            write.settle(step, ErrorCode.REQUEST_TIMED_OUT)
