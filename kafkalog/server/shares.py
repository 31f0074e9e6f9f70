"""The share groups' records of the partitions that a broker leads, with its parts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.config import share_records
from kafkalog.metadata.image import GROUP
from kafkalog.metadata.levels import LETTERS_SINCE, SHARE_VERSION
from kafkalog.server.coordinators import share_coordinator
from kafkalog.server.dead_letters import DeadLetters
from kafkalog.server.dynamic import in_effect
from kafkalog.server.journal import SHARE_STATE_TOPIC
from kafkalog.server.share_effects import PartitionEnds, carry_out
from kafkalog.server.share_persister import SharePersister
from kafkalog.server.topics import dead_letter_topic, internal_topic
from kafkalog.shares.connections import Connections
from kafkalog.shares.leader import Shares
from kafkalog.shares.partition import Limits
from kafkalog.shares.requests import GroupShare

if TYPE_CHECKING:
    from kafkalog.clock import Clock
    from kafkalog.config.server import ServerConfig
    from kafkalog.coordinator.share_groups.outside import ShareEffect
    from kafkalog.coordinator.share_state.core import ShareStateCoordinator
    from kafkalog.coordinator.share_state.persister import Persister
    from kafkalog.coordinator.thread import Coordinator, Event
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.metadata.source import Metadata
    from kafkalog.server.appends import Appends
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.server.node import Node
    from kafkalog.server.partitions import Partitions
    from kafkalog.server.transactions.inter_broker_client import InterBrokerClient
    from kafkalog.types import TopicPartition

__all__ = ["ShareParts", "share_parts"]

SETTINGS_KEPT = 100
"""Groups whose settings are remembered, and different settings of groups."""


class ShareParts(NamedTuple):
    """The parts of a broker that share groups need besides their coordinator."""

    states: Coordinator[ShareStateCoordinator]
    """Not started; ended by `close`."""
    persister: SharePersister
    """Ended by `stop`."""
    letters: DeadLetters
    """Ended by `stop`."""
    records: Shares
    """Not started; ended by `stop`."""
    carry_out: Callable[[ShareEffect, Callable[[Event], None]], None]
    """Carries out the effects of the coordinator of groups."""


def share_parts(
    config: ServerConfig, metadata: Metadata, partitions: Partitions, appends: Appends,
    reactor: Reactor, clock: Clock, name: str, submit: Callable[[Callable[[], None]], None],
    peers: InterBrokerClient | None, node: Callable[[], Node],
) -> ShareParts:  # fmt: skip
    """`submit`: runs what takes long in another thread; `node`: once all is built."""
    states = share_coordinator(config, partitions, appends, clock, submit)
    create = lambda: internal_topic(node(), SHARE_STATE_TOPIC)  # noqa: E731
    persister = SharePersister(states, metadata, peers, create, name)
    letters = DeadLetters(
        metadata, partitions, appends, peers, clock, lambda: in_effect(config, metadata.image),
        lambda topic: dead_letter_topic(node(), topic), config.kafkalog_metrics_max_groups, name,
    )  # fmt: skip
    records = shares_of(config, metadata, partitions, persister, letters, reactor, clock, name)
    act = partial(carry_out, persister, PartitionEnds(partitions, peers))
    return ShareParts(states, persister, letters, records, act)


def shares_of(
    config: ServerConfig, metadata: Metadata, partitions: Partitions, persister: Persister,
    letters: DeadLetters, reactor: Reactor, clock: Clock, name: str,
) -> Shares:  # fmt: skip
    """Not started; ended by `stop`."""

    known: tuple[MetadataImage | None, dict[str, GroupShare]] = (None, {})

    def settings(group: str) -> GroupShare:
        nonlocal known
        image, found = known
        if image is not metadata.image or len(found) > SETTINGS_KEPT:
            image, found = known = (metadata.image, {})
        assert image is not None
        if (one := found.get(group)) is None:
            letters_supported = image.features.get(SHARE_VERSION, 0) >= LETTERS_SINCE
            own = tuple(image.config(GROUP, group).items())
            one = found[group] = of(own, letters_supported)
        return one

    @lru_cache(maxsize=SETTINGS_KEPT)
    def of(own: tuple[tuple[str, str], ...], supported: bool) -> GroupShare:
        found = share_records.in_effect(dict(own), config)
        limits = Limits(
            found["share.record.lock.duration.ms"], found["share.delivery.count.limit"],
            found["share.partition.max.record.locks"], found["share.renew.acknowledge.enable"],
            supported and bool(found[share_records.LETTER_TOPIC]),
        )  # fmt: skip
        committed = found["share.isolation.level"] == "read_committed"
        return GroupShare(limits, committed, found["share.auto.offset.reset"])

    shares = Shares(
        persister, clock, settings, Connections(reactor.connected, reactor.departures),
        config.group_share_max_share_sessions, config.kafkalog_share_records_max_bytes,
        letters.bury, name,
    )  # fmt: skip
    before = partitions.on_resignation

    def resigned(gone: Collection[TopicPartition]) -> None:
        before(gone)
        shares.resigned(gone)

    partitions.on_resignation = resigned
    return shares
