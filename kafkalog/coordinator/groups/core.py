"""All groups of this broker, without a thread: finds the group for each request, and does what all
groups of a kind have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from kafkalog.config.group import GroupConfig
from kafkalog.coordinator.consumer_groups.describe import not_described
from kafkalog.coordinator.consumer_groups.mixed import ClassicRequests
from kafkalog.coordinator.consumer_groups.patterns import Found, Lookup
from kafkalog.coordinator.consumer_groups.service import TIMERS, ConsumerGroups
from kafkalog.coordinator.consumer_groups.sessions import NewerGroups, OwnSettings
from kafkalog.coordinator.consumer_groups.topics import NO_TOPICS, Topics
from kafkalog.coordinator.consumer_groups.turns import Turn
from kafkalog.coordinator.core import UNSETTLED_BYTES_MAX, CoordinatorState
from kafkalog.coordinator.groups import admin, groups, loader, offsets, rebalance, transactional
from kafkalog.coordinator.groups.group import State
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.journal import JournalBatch
from kafkalog.coordinator.listings import FEW, Listing
from kafkalog.coordinator.share_groups import offsets as share_offsets
from kafkalog.coordinator.share_groups.service import SHARE_SESSION, ShareGroups
from kafkalog.coordinator.step import Body, Call, Producer, Step
from kafkalog.coordinator.streams_groups.service import STREAMS_TIMERS, StreamsGroups
from kafkalog.coordinator.timers import Key
from kafkalog.coordinator.weight import Weight
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.values import ZERO_UUID

__all__ = ["ANY_PARTITION", "SERVED", "GroupCoordinatorState"]

SERVED = frozenset(
    {
        apis.JOIN_GROUP,
        apis.SYNC_GROUP,
        apis.HEARTBEAT,
        apis.LEAVE_GROUP,
        apis.OFFSET_COMMIT,
        apis.OFFSET_FETCH,
        apis.OFFSET_DELETE,
        apis.DESCRIBE_GROUPS,
        apis.LIST_GROUPS,
        apis.DELETE_GROUPS,
        apis.CONSUMER_GROUP_HEARTBEAT,
        apis.CONSUMER_GROUP_DESCRIBE,
        apis.SHARE_GROUP_HEARTBEAT,
        apis.SHARE_GROUP_DESCRIBE,
        apis.DESCRIBE_SHARE_GROUP_OFFSETS,
        apis.ALTER_SHARE_GROUP_OFFSETS,
        apis.DELETE_SHARE_GROUP_OFFSETS,
        apis.STREAMS_GROUP_HEARTBEAT,
        apis.STREAMS_GROUP_DESCRIBE,
    }
)
"""The APIs that `request` takes."""
EMPTY_GROUP_ALLOWED = {
    apis.OFFSET_COMMIT, apis.OFFSET_FETCH, apis.CONSUMER_GROUP_HEARTBEAT,
    apis.SHARE_GROUP_HEARTBEAT, apis.STREAMS_GROUP_HEARTBEAT,
}  # fmt: skip
"""APIs that accept the empty group id, under which old consumers committed, or refuse it in their
own way."""
_WRITTEN = frozenset(
    {
        apis.OFFSET_COMMIT,
        apis.TXN_OFFSET_COMMIT,
        apis.JOIN_GROUP,
        apis.CONSUMER_GROUP_HEARTBEAT,
        apis.SHARE_GROUP_HEARTBEAT,
        apis.STREAMS_GROUP_HEARTBEAT,
        apis.ALTER_SHARE_GROUP_OFFSETS,
        apis.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""APIs whose requests become records, any number of them: refused above UNSETTLED_BYTES_MAX."""


_OF_CLASSIC = {
    apis.JOIN_GROUP: groups.join,
    apis.SYNC_GROUP: groups.sync,
    apis.HEARTBEAT: groups.heartbeat,
    apis.LEAVE_GROUP: groups.leave,
}
ANY_PARTITION = 1 << 31
"""As a partition count: every named partition exists."""
ANY_TOPIC = offsets.Known(lambda _name: ANY_PARTITION, lambda _name: ZERO_UUID, lambda _id: None)
GROUPS_VERSION = 8
"""From this version on, OffsetFetch asks for several groups."""


def _requested(request: Call) -> list[Any]:
    """The groups of an OffsetFetch, each with group_id and topics."""
    body = request.body
    if request.version < GROUPS_VERSION:
        return [body]
    # Each group is answered once: otherwise a few bytes could ask for any number of offsets.
    whole = {group.group_id: group for group in body.groups if group.topics is None}
    return [g for g in body.groups if g.topics is not None or g is whole[g.group_id]]


def _fetched(step: Step, request: Call, found: Any) -> None:
    """Answer an OffsetFetch; `found`: of each group."""
    if request.version < GROUPS_VERSION:
        only = found[0]
        step.answer(request.answer, topics=only["topics"], error_code=only["error_code"])
    else:
        step.answer(request.answer, groups=found)


class _Fetches(Listing):
    """An OffsetFetch request, under way: the offsets of one group are of one moment."""

    def __init__(self, request: Call, where: admin.Where, known: offsets.Known) -> None:
        field = "groups" if request.version >= GROUPS_VERSION else None
        super().__init__(request, _requested(request), field)
        self._where, self._known = where, known

    def row(self, one: Any, step: Step) -> Body:
        """The row of a group."""
        shard, error = self._where(one.group_id)
        version = self.request.version
        if shard is None:
            row = offsets.fetch_failed(one, version, error)
        else:
            by_id, stable = version >= offsets.IDS_VERSION, self.request.body.require_stable
            row = offsets.fetch(shard, one, stable, self._known, by_id)
        self.work += admin.ROW_WORK * (1 + sum(len(each["partitions"]) for each in row["topics"]))
        return row

    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found."""
        _fetched(step, self.request, self.found)


Describe = Callable[[GroupShard, str, Call], Body]
"""Describes a group whose members heartbeat, for a request."""


class _NewerDescriptions(Listing):
    """A ConsumerGroupDescribe, ShareGroupDescribe or StreamsGroupDescribe request, under way."""

    def __init__(self, request: Call, where: admin.Where, describe: Describe) -> None:
        super().__init__(request, admin.distinct(request.body.group_ids), "groups")
        self._where, self._describe = where, describe

    def row(self, one: str, step: Step) -> Body:
        """The row of a group."""
        self.work += admin.ROW_WORK
        if not one:
            return not_described(one, ErrorCode.INVALID_GROUP_ID)
        shard, error = self._where(one)
        if shard is None:
            return not_described(one, error)
        row = self._describe(shard, one, self.request)
        self.work += 4 * admin.ROW_WORK * len(row.get("members", ()))
        if self.request.body.include_authorized_operations and "members" in row:
            row["authorized_operations"] = admin.OPERATIONS
        return row

    def answer(self, step: Step, code: ErrorCode) -> None:
        """Answer with what was found."""
        step.answer(self.request.answer, groups=self.found)


class GroupCoordinatorState(CoordinatorState[GroupShard]):
    """All groups.  Only for the coordinator's thread."""

    def __init__(
        self,
        config: GroupConfig,
        new_id: Callable[[], str],
        known: offsets.Known = ANY_TOPIC,
        topics: Topics = NO_TOPICS,
        own: OwnSettings = lambda _group: {},
    ) -> None:
        """`new_id` makes the unique part of member ids; `known` and `topics` say which topics
        exist; `own`: a group's own settings."""
        super().__init__(config.offsets_commit_timeout_ms)
        self.config = config
        self.weight = Weight()
        """Approximate memory of all groups."""
        self._new_id = new_id
        self._known = known
        self.consumers = ConsumerGroups(config, topics, new_id, own)
        self._mixed = ClassicRequests(self.consumers, new_id, self._again)
        self.shares = ShareGroups(config, topics, own)
        self.streams = StreamsGroups(config, topics, own)
        self._handlers: dict[Api, Callable[[GroupShard, Step, Call], None]] = {
            apis.JOIN_GROUP: partial(self._of_classic, apis.JOIN_GROUP),
            apis.SYNC_GROUP: partial(self._of_classic, apis.SYNC_GROUP),
            apis.HEARTBEAT: partial(self._of_classic, apis.HEARTBEAT),
            apis.LEAVE_GROUP: self._leave,
            apis.OFFSET_COMMIT: self._commit,
            apis.OFFSET_DELETE: self._offset_delete,
            apis.TXN_OFFSET_COMMIT: self._txn_commit,
            apis.CONSUMER_GROUP_HEARTBEAT: self.consumers.heartbeat,
            apis.SHARE_GROUP_HEARTBEAT: self.shares.heartbeat,
            apis.STREAMS_GROUP_HEARTBEAT: self.streams.heartbeat,
            apis.ALTER_SHARE_GROUP_OFFSETS: partial(share_offsets.alter, self.shares),
            apis.DELETE_SHARE_GROUP_OFFSETS: partial(share_offsets.delete, self.shares),
        }
        self._newer: Sequence[NewerGroups[Any]] = (self.consumers, self.shares, self.streams)
        self._describes: dict[Api, Describe] = {
            apis.CONSUMER_GROUP_DESCRIBE: self.consumers.describe,
            apis.SHARE_GROUP_DESCRIBE: self.shares.describe,
            apis.STREAMS_GROUP_DESCRIBE: self.streams.describe,
        }
        self._several: dict[Api, Callable[[Step, Call], None]] = {
            apis.OFFSET_FETCH: self._offset_fetch,
            apis.DESCRIBE_GROUPS: self._describe,
            **{api: partial(self._describe_newer, api) for api in self._describes},
            apis.DESCRIBE_SHARE_GROUP_OFFSETS: self._describe_share_offsets,
            apis.LIST_GROUPS: self._list,
            apis.DELETE_GROUPS: self._delete,
        }

    # ---- partitions ------------------------------------------------------------------------

    def new_shard(self, partition: int, epoch: int) -> GroupShard:
        """An empty shard of a partition, to be filled by `load`."""
        return GroupShard(partition, epoch, self.config, self.timers, self._new_id)

    def load(self, shard: GroupShard, batches: Iterable[JournalBatch], wall_ms: int) -> None:
        """Fill an empty shard from its journal; in any thread, touches no timer."""
        loader.load(shard, batches, wall_ms)

    def _resume(self, shard: GroupShard, step: Step) -> None:
        shard.weight.move(self.weight)
        loader.resume(shard, step)
        for group in shard.groups.values():
            for newer in self._newer:
                newer.resume(shard, step, group)
        self._look_for_expired(shard.partition, step)

    def _resigned(self, shard: GroupShard, step: Step) -> None:
        shard.weight.move(None)
        for group in shard.groups.values():
            rebalance.fail_waiting(step, group, ErrorCode.NOT_COORDINATOR)
            for newer in self._newer:
                newer.resigned(step, group)
        self.shares.left(shard, step)

    # ---- requests --------------------------------------------------------------------------

    def request(self, api: Api, request: Call, step: Step) -> None:
        """Take a request; it is answered in this step or a later one."""
        several = self._several.get(api)
        if several is not None:
            several(step, request)
            return
        group_id = request.body.group_id
        if not group_id and api not in EMPTY_GROUP_ALLOWED:
            self.refuse(api, request, step, ErrorCode.INVALID_GROUP_ID)
            return
        shard, error = self.where(group_id)
        full = api in _WRITTEN and self.unsettled_bytes > UNSETTLED_BYTES_MAX
        if shard is None or full:
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.refuse(api, request, step, unavailable if full else error)
        else:
            self._handlers[api](shard, step, request)

    def refuse(self, api: Api, request: Call, step: Step, error: ErrorCode) -> None:
        """Answer with an error that does not depend on the group's state."""
        body = request.body
        answer = request.answer
        loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if api in (apis.OFFSET_COMMIT, apis.TXN_OFFSET_COMMIT):
            offsets.commit_failed(step, request, error, self._known)
        elif api is apis.OFFSET_DELETE:
            offsets.delete_failed(step, request, error)
        elif api is apis.JOIN_GROUP:
            name = None if request.version >= groups.NULL_NAME_VERSION else ""
            refused = rebalance.refused_join(error, body.member_id)
            step.answer(answer, **{**refused, "protocol_name": name})
        elif api is apis.HEARTBEAT and loading:
            step.answer(answer, error_code=ErrorCode.NONE)  # it may be a member
        elif api is apis.SYNC_GROUP and loading:
            # The rebalance that it belongs to is lost: the member rejoins here.
            step.answer(answer, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        elif api is apis.OFFSET_FETCH:
            requested = _requested(request)
            failed = [offsets.fetch_failed(each, request.version, error) for each in requested]
            _fetched(step, request, failed)
        elif api is apis.DESCRIBE_GROUPS:
            step.answer(answer, groups=[admin.described_error(g, error) for g in body.groups])
        elif api in self._describes:
            rows = [not_described(name, error) for name in admin.distinct(body.group_ids)]
            step.answer(answer, groups=rows)
        elif api is apis.DESCRIBE_SHARE_GROUP_OFFSETS:
            rows = [share_offsets.described_error(one.group_id, error) for one in body.groups]
            step.answer(answer, groups=rows)
        elif api is apis.DELETE_GROUPS:
            names = admin.distinct(body.groups_names)
            step.answer(answer, results=[admin.result_of(name, error) for name in names])
        else:
            step.answer(answer, error_code=error)

    def _commit(self, shard: GroupShard, step: Step, request: Call) -> None:
        offsets.commit(shard, step, request, self._known)

    def _txn_commit(self, shard: GroupShard, step: Step, request: Call) -> None:
        transactional.commit(shard, step, request, self._known)

    def end_transaction(
        self, partition: int, producer: Producer, close: Callable[[], None],
        done: Callable[[ErrorCode], None], step: Step,
    ) -> None:  # fmt: skip
        """End a producer's transaction in a partition of the journal.  `close` is called first:
        commits that it was allowed but has not made are no longer allowed."""
        shard = self.shards.get(partition)
        if shard is not None:
            close()
            transactional.end(shard, step, producer, done)
        elif partition in self.loading:
            done(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            here = partition < self.partition_count
            done(ErrorCode.NOT_COORDINATOR if here else gone)

    def _of_classic(self, api: Api, shard: GroupShard, step: Step, request: Call) -> None:
        """A request of a member of the classic protocol."""
        group = shard.groups.get(request.body.group_id)
        if group is None or not group.takes_consumers:
            _OF_CLASSIC[api](shard, step, request)
        else:
            self._mixed.take(api, shard, step, request, group)

    def _again(self, api: Api, shard: GroupShard, step: Step, request: Call) -> None:
        """A request whose turn found a classic group.  A journal may leave such a group with
        members that heartbeat, too, so it gets no second turn."""
        group = shard.groups.get(request.body.group_id)
        if group is not None and group.is_classic:
            _OF_CLASSIC[api](shard, step, request)
        else:
            self._handlers[api](shard, step, request)

    def _leave(self, shard: GroupShard, step: Step, request: Call) -> None:
        group = shard.groups.get(request.body.group_id)
        if group is None or not group.takes_consumers:
            groups.leave(shard, step, request)
            return

        def told(step: Step, rows: list[Body]) -> None:
            groups.answer_leave(step, request, rows)

        def again(step: Step) -> None:
            self._again(apis.LEAVE_GROUP, shard, step, request)

        self.consumers.remove(shard, step, group, groups.leaving_in(request), told, again,
                              keeps=request.body)  # fmt: skip

    def _offset_delete(self, shard: GroupShard, step: Step, request: Call) -> None:
        offsets.delete(shard, step, request, self._known)

    def _offset_fetch(self, step: Step, request: Call) -> None:
        def begin(request: Call) -> Listing:
            return _Fetches(request, self.where, self._known)

        few = request.version < GROUPS_VERSION or len(request.body.groups) <= FEW
        self._begin_listing(step, apis.OFFSET_FETCH, request, begin, few=few)

    def _list(self, step: Step, request: Call) -> None:
        def begin(request: Call) -> Listing:
            return admin.GroupListing(request, self.shards.values())

        self._begin_listing(step, apis.LIST_GROUPS, request, begin)

    def _describe(self, step: Step, request: Call) -> None:
        def begin(request: Call) -> Listing:
            return admin.Descriptions(request, self.where)

        few = len(request.body.groups) <= FEW
        self._begin_listing(step, apis.DESCRIBE_GROUPS, request, begin, few=few)

    def _describe_newer(self, api: Api, step: Step, request: Call) -> None:
        def begin(request: Call) -> Listing:
            return _NewerDescriptions(request, self.where, self._describes[api])

        few = len(request.body.group_ids) <= FEW
        self._begin_listing(step, api, request, begin, few=few)

    def _describe_share_offsets(self, step: Step, request: Call) -> None:
        """Each group has its own look at the share coordinator; the response is sent when all are
        done."""
        # Each group is answered once: a few bytes may ask for any number of offsets.
        groups = {one.group_id: one for one in request.body.groups}
        rows: dict[str, Body] = {}

        def told(group_id: str, step: Step, row: Body) -> None:
            rows[group_id] = row
            if len(rows) == len(groups):
                step.answer(request.answer, groups=[rows[one] for one in groups])

        if not groups:
            step.answer(request.answer, groups=[])
        for group_id, one in groups.items():
            shard, error = self.where(group_id)
            if shard is None:
                told(group_id, step, share_offsets.described_error(group_id, error))
            else:
                share_offsets.describe(
                    self.shares, shard, step, one, request.version, partial(told, group_id)
                )

    def _delete(self, step: Step, request: Call) -> None:
        def begin(request: Call) -> Listing:
            return admin.Deletions(request, self.where, self._delete_one)

        few = len(request.body.groups_names) <= FEW
        self._begin_listing(step, apis.DELETE_GROUPS, request, begin, few=few)

    def _delete_one(
        self, shard: GroupShard, step: Step, group_id: str,
        ended: Callable[[Step, ErrorCode], None],
    ) -> None:  # fmt: skip
        """Delete a group, once nothing about its members is being written.  The share coordinator
        first forgets what it keeps for a share group."""
        group = shard.groups.get(group_id)
        if group is None or group.share is None or group.state is State.DEAD:
            self._delete_written(shard, step, group_id, ended)
            return

        def forgotten(step: Step, code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._delete_written(shard, step, group_id, ended)
            else:
                ended(step, code)

        self.shares.forget_all(shard, step, group, forgotten)

    def _delete_written(
        self, shard: GroupShard, step: Step, group_id: str,
        ended: Callable[[Step, ErrorCode], None],
    ) -> None:  # fmt: skip
        delete = partial(admin.delete, shard, group_id=group_id, settle=ended)
        group = shard.groups.get(group_id)
        if group is None or group.newer is None or not group.newer.writing:
            delete(step)
            return

        def told(step: Step, code: ErrorCode, _message: str | None, _body: Body) -> None:
            ended(step, code)

        turn = Turn(lambda _changes, _step: {}, told, delete)
        newer = next(one for one in self._newer if one.state_of(group) is not None)
        newer.take_turn(shard, step, group, turn)

    def topics_changed(self, names: Collection[str], step: Step) -> None:
        """Topics were created, changed or deleted."""
        for shard in self.shards.values():
            for newer in self._newer:
                newer.topics_changed(shard, names)

    def looked_up(self, lookup: Lookup, found: Found, step: Step) -> None:
        """The topics of a group's patterns were looked up."""
        shard = self.shards.get(lookup.partition)
        self.consumers.looked_up(shard, step, lookup.group_id, found)

    def drop_topics(self, names: Collection[str], step: Step) -> None:
        """Topics were deleted."""
        for shard in self.shards.values():
            offsets.drop_topics(shard, step, names)
            self.shares.topics_gone(shard, step)

    # ---- time ------------------------------------------------------------------------------

    def _expire(self, key: Key, step: Step) -> None:
        kind, partition, group_id, member_id = key
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
        if kind in TIMERS:
            self.consumers.expire(shard, step, group, (kind, member_id))
        elif kind == SHARE_SESSION:
            self.shares.expire(shard, step, group, (kind, member_id))
        elif kind in STREAMS_TIMERS:
            self.streams.expire(shard, step, group, (kind, member_id))
        elif kind == "session":
            rebalance.expire_session(shard, step, group, member_id)
        elif kind == "join":
            rebalance.expire_join(shard, step, group)
        else:
            rebalance.expire_sync(shard, step, group)

    def _look_for_expired(self, partition: int, step: Step) -> None:
        interval_ms = self.config.offsets_retention_check_interval_ms
        self.timers.set(("retention", partition, "", ""), step.now_ms + interval_ms)
