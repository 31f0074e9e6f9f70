"""Requests of the classic protocol to a consumer group: each takes its turn in the group, and goes
on to the classic group if that is what it finds then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkalog.coordinator.consumer_groups import classic, convert
from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.classic import Joining
from kafkalog.coordinator.consumer_groups.member import ClassicMetadata
from kafkalog.coordinator.consumer_groups.refusal import Refusal
from kafkalog.coordinator.consumer_groups.service import REJOIN, RESYNC, ConsumerGroups
from kafkalog.coordinator.consumer_groups.turns import Turn
from kafkalog.coordinator.groups import groups, rebalance
from kafkalog.coordinator.groups.group import Group
from kafkalog.coordinator.groups.shard import GroupShard
from kafkalog.coordinator.step import Body, Call, Step
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["ClassicRequests"]

DISABLED = "disabled"
"""The value of group.consumer.migration.policy with which no classic member joins the others."""


class _Plan(NamedTuple):
    """A request in its turn, and its answer."""

    work: Callable[[Changes, Step], Body]
    """Raises: Refusal."""
    answer: Callable[[Step, ErrorCode, Body], None]
    said: Joining | None = None


class ClassicRequests:
    """JoinGroup, SyncGroup and Heartbeat for consumer groups."""

    def __init__(
        self, consumers: ConsumerGroups, new_id: Callable[[], str],
        again: Callable[[Api, GroupShard, Step, Call], None],
    ) -> None:  # fmt: skip
        """`again`: takes a request whose group is a classic one by now."""
        self._consumers = consumers
        self._new_id = new_id
        self._again = again

    def take(self, api: Api, shard: GroupShard, step: Step, request: Call, group: Group) -> None:
        """Answer a request once what follows from it is in the journal."""
        body, moved = request.body, False
        if api is apis.JOIN_GROUP:
            error = groups.check_join(shard.config, request)
            if error is not ErrorCode.NONE:
                answer = groups.answered(request).answer
                step.answer(answer, **rebalance.refused_join(error, body.member_id))
                return
            plan = self._join(shard, group, groups.answered(request))
        else:
            plan = (self._sync if api is apis.SYNC_GROUP else self._heartbeat)(
                shard, group, request
            )
        self._keep_alive(shard, step, group, body)

        def work(changes: Changes, step: Step) -> Body:
            nonlocal moved
            moved = group.is_classic or not changes.group.members
            if moved:
                raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return plan.work(changes, step)

        def told(step: Step, code: ErrorCode, _message: str | None, answer: Body) -> None:
            if moved and not shard.closed:
                self._again(api, shard, step, request)
            else:
                plan.answer(step, ErrorCode.NOT_COORDINATOR if shard.closed else code, answer)

        self._consumers.take_turn(shard, step, group, Turn(work, told, keeps=(body, plan.said)))

    def _keep_alive(self, shard: GroupShard, step: Step, group: Group, body: Any) -> None:
        """The member lives, also if its request has to wait."""
        member = None if group.consumer is None else group.consumer.members.get(body.member_id)
        if member is None or member.classic is None:
            return
        if getattr(body, "generation_id", member.epoch) == member.epoch:  # a JoinGroup has none
            self._consumers.keep_session(shard, group, body.member_id, step.now_ms)

    # ---- JoinGroup -------------------------------------------------------------------------

    def _join(self, shard: GroupShard, group: Group, request: Call) -> _Plan:
        body = request.body
        has_id, dynamic = bool(body.member_id), body.group_instance_id is None
        said = Joining(
            body.member_id or self._new_id(), has_id, body.group_instance_id, body.protocol_type,
            ClassicMetadata(body.session_timeout_ms, groups.protocols_in(request)),
            groups.rebalance_ms(request), request.client_id, request.client_host,
            dynamic and not has_id and request.version >= groups.KNOWN_ID_VERSION,
        )  # fmt: skip

        def work(changes: Changes, step: Step) -> Body:
            if shard.config.group_consumer_migration_policy == DISABLED:
                raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return self._consumers.within_memory(
                shard, group, said.member_id, changes,
                lambda: self._joined(shard, group, changes, step, said),
            )  # fmt: skip

        def answer(step: Step, code: ErrorCode, answer: Body) -> None:
            if code is not ErrorCode.NONE:
                member_id = said.member_id if code is ErrorCode.MEMBER_ID_REQUIRED else ""
                answer = rebalance.refused_join(code, member_id)
            elif not group.is_classic:
                shard.cancel_timer(REJOIN, group, said.member_id)
                at_ms = step.now_ms + max(said.rebalance_timeout_ms, 0)
                shard.set_timer(RESYNC, group, at_ms, said.member_id)
                self._consumers.keep_session(shard, group, said.member_id, step.now_ms)
            step.answer(request.answer, **answer)

        return _Plan(work, answer, said)

    def _joined(
        self, shard: GroupShard, group: Group, changes: Changes, step: Step, said: Joining
    ) -> Body:
        """A JoinGroup's turn; returns the answer."""
        consumer = changes.group
        replaces_last = convert.replaces_last(shard, consumer, said.instance_id)
        epoch = consumer.epoch
        now = self._consumers.now(group, step)
        member, behind = classic.join(changes, said, now, replaces_last)
        if replaces_last:
            convert.downgrade(
                changes, shard, step, group, (), self._consumers.topics, (epoch, behind)
            )
        return {
            "error_code": ErrorCode.NONE,
            "member_id": member.member_id,
            "generation_id": member.epoch,
            "protocol_type": classic.CONSUMER,
            "protocol_name": said.classic.protocols[0][0],
        }

    # ---- SyncGroup and Heartbeat -----------------------------------------------------------

    def _sync(self, shard: GroupShard, group: Group, request: Call) -> _Plan:
        body = request.body

        def work(changes: Changes, _step: Step) -> Body:
            named = body.protocol_type is not None and body.protocol_name is not None
            if request.version >= groups.NAMES_IN_SYNC_VERSION and not named:
                raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            member = classic.sender(changes, body)
            return classic.synced(changes.group, member, body, self._consumers.topics)

        def answer(step: Step, code: ErrorCode, answer: Body) -> None:
            if code is ErrorCode.NONE:
                shard.cancel_timer(RESYNC, group, body.member_id)
            self._watch(shard, step, group, body.member_id, code)
            step.answer(request.answer, **{**answer, "error_code": code})

        return _Plan(work, answer)

    def _heartbeat(self, shard: GroupShard, group: Group, request: Call) -> _Plan:
        body = request.body

        def work(changes: Changes, step: Step) -> Body:
            member = classic.sender(changes, body)
            classic.keep_up(changes, self._consumers.now(group, step))
            rejoins = classic.must_rejoin(changes.group, member)
            return {"error_code": ErrorCode.REBALANCE_IN_PROGRESS} if rejoins else {}

        def answer(step: Step, code: ErrorCode, answer: Body) -> None:
            code = answer.get("error_code", code)
            self._watch(shard, step, group, body.member_id, code)
            step.answer(request.answer, error_code=code)

        return _Plan(work, answer)

    def _watch(
        self, shard: GroupShard, step: Step, group: Group, member_id: str, code: ErrorCode
    ) -> None:
        """A member that is to rejoin has its rebalance timeout for it."""
        member = None if group.consumer is None else group.consumer.members.get(member_id)
        if member is None or member.classic is None or code is not ErrorCode.REBALANCE_IN_PROGRESS:
            return
        if not shard.has_timer(REJOIN, group, member_id):
            shard.set_timer(REJOIN, group, step.now_ms + member.rebalance_timeout_ms, member_id)
