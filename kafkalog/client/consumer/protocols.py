"""The parts of a consumer that its group's protocol decides: heartbeats, membership, state."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from kafkalog import errors
from kafkalog.client.consumer.assignors import find_assignors
from kafkalog.client.consumer.core import ConsumerState
from kafkalog.client.consumer.group_heartbeats import GroupHeartbeats
from kafkalog.client.consumer.group_membership import GroupMembership
from kafkalog.client.consumer.group_session import GroupOptions
from kafkalog.client.consumer.heartbeat import HeartbeatThread
from kafkalog.client.consumer.member import MemberOptions
from kafkalog.client.consumer.membership import Membership
from kafkalog.client.consumer.reconciling import GroupState
from kafkalog.client.consumer.session import Tempo
from kafkalog.client.consumer.settings import heartbeat_options
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.wakeup import Waker
from kafkalog.clock import Clock
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.disk.layout import uuid_text

__all__ = ["Protocol", "protocol_of", "state_of"]

Protocol = tuple[HeartbeatThread | GroupHeartbeats, Membership | GroupMembership | None]


def protocol_of(
    cluster: Cluster, made: ConsumerConfig, assignor: Any, waker: Waker, clock: Clock | None
) -> Protocol:
    """A consumer's heartbeats, and its membership (None without a group).

    Raises: ArgumentError: `assignor`, which only members with the classic protocol have.
    """
    own = Cluster(cluster, heartbeat_options(made), clock)
    if made.group_protocol == "consumer":
        if assignor:
            raise errors.ArgumentError(
                f"assignor: found {assignor!r} with group.protocol=consumer: the coordinator "
                "assigns; wanted group.remote.assignor"
            )
        retry = cluster.options
        options = GroupOptions(
            made.group_id, uuid_text(uuid4()), made.group_instance_id or None,
            made.client_rack or None, made.max_poll_interval_ms,
            made.group_remote_assignor or None,
            (retry.retry_backoff_ms / 1000, retry.retry_backoff_max_ms / 1000),
        )  # fmt: skip
        beats = GroupHeartbeats(own, options, waker.nudge)
        return beats, GroupMembership(cluster, beats, waker) if made.group_id else None
    member = MemberOptions(
        find_assignors(assignor or made.partition_assignment_strategy),
        made.session_timeout_ms, made.max_poll_interval_ms,
        made.group_instance_id or None, made.client_rack or None,
    )  # fmt: skip
    tempo = Tempo(made.heartbeat_interval_ms, made.session_timeout_ms, made.max_poll_interval_ms)
    heartbeats = HeartbeatThread(own, tempo, waker.nudge)
    if not made.group_id:
        return heartbeats, None
    return heartbeats, Membership(cluster, made.group_id, member, heartbeats, waker)


def state_of(
    membership: Membership | GroupMembership | None, made: ConsumerConfig
) -> ConsumerState:
    """The state of a consumer, which reads nothing at first."""
    commits = made.enable_auto_commit
    times_s = made.auto_commit_interval_ms / 1000, made.metadata_max_age_ms / 1000
    if isinstance(membership, GroupMembership):
        return GroupState(membership.member, commits, *times_s)
    return ConsumerState(None if membership is None else membership.member, commits, *times_s)
