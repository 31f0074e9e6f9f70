"""The share groups' records of the partitions that a broker leads, with its parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kafkalog.config.share_records import in_effect
from kafkalog.metadata.image import GROUP
from kafkalog.shares.leader import Shares
from kafkalog.shares.partition import Limits
from kafkalog.shares.requests import GroupShare

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.config.server import ServerConfig
    from kafkalog.coordinator.share_state.persister import Persister
    from kafkalog.metadata.source import Metadata
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.partitions import Partitions
    from kafkalog.types import TopicPartition

__all__ = ["shares_of"]


def shares_of(
    config: ServerConfig, metadata: Metadata, partitions: Partitions, persister: Persister,
    reactor: Reactor, clock: Clock, name: str,
) -> Shares:  # fmt: skip
    """Not started; ended by `stop`."""

    def settings(group: str) -> GroupShare:
        own = metadata.image.config(GROUP, group)
        return of(own) if own else usual

    def of(own: Mapping[str, str]) -> GroupShare:
        found = in_effect(own, config)
        limits = Limits(
            found["share.record.lock.duration.ms"], found["share.delivery.count.limit"],
            found["share.partition.max.record.locks"],
        )  # fmt: skip
        committed = found["share.isolation.level"] == "read_committed"
        reset, renews = found["share.auto.offset.reset"], found["share.renew.acknowledge.enable"]
        return GroupShare(limits, committed, reset, renews)

    usual = of({})
    shares = Shares(
        persister, clock, settings, reactor.connected, config.group_share_max_share_sessions,
        config.kafkalog_share_records_max_bytes, name,
    )  # fmt: skip
    before = partitions.on_resignation

    def resigned(gone: Collection[TopicPartition]) -> None:
        before(gone)
        shares.resigned(gone)

    partitions.on_resignation = resigned
    return shares
