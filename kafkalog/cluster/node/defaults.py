"""Settings that all brokers of a cluster should share: what a node takes over from the others.

Pure.  The settings here decide what happens to records, which records are accepted, and which
replicas keep them, on the broker that leads a partition or decides for the cluster.  A node that
was not given one of them takes it over if the others agree on it: with its own default, a topic's
records would be kept for a week under one leader and for good under another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafkalog.cluster.node.facts import WARN, Finding, Peer, brokers
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.served import check_served
from kafkalog.config.server import ServerConfig
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import InvalidSetting

__all__ = ["NAMES", "differences", "taken_over"]

OF_TOPICS = (
    "cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms",
    "min.compaction.lag.ms", "max.compaction.lag.ms", "segment.bytes", "segment.ms",
    "compression.type", "max.message.bytes", "message.timestamp.type",
    "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "flush.messages",
    "flush.ms", "min.insync.replicas", "unclean.leader.election.enable",
)  # fmt: skip
"""Topics' settings whose default a broker's settings give."""
OF_BROKERS = (
    "log.retention.check.interval.ms", "log.initial.task.delay.ms", "num.partitions",
    "default.replication.factor", "auto.create.topics.enable", "delete.topic.enable",
    "auto.leader.rebalance.enable", "replica.lag.time.max.ms", "offsets.topic.num.partitions",
    "offsets.topic.replication.factor", "offsets.retention.minutes",
    "group.min.session.timeout.ms", "group.max.session.timeout.ms",
    "transaction.state.log.num.partitions", "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr", "transaction.max.timeout.ms",
    "transactional.id.expiration.ms",
)  # fmt: skip


def _names_of(topic_setting: str) -> tuple[str, ...]:
    setting = TopicConfig.table[topic_setting]
    return (setting.synonym, *setting.also)


NAMES = frozenset(OF_BROKERS) | {name for each in OF_TOPICS for name in _names_of(each)}
"""The names under which brokers have these settings."""


class _Compared(NamedTuple):
    """One setting here and elsewhere."""

    name: str
    show: Callable[[Any], str]
    mine: Any
    given: bool
    """True if it was given to this node."""
    theirs: Mapping[Any, list[int]]
    """The brokers that have a value, by that value."""


def taken_over(peers: Iterable[Peer], config: ServerConfig) -> dict[str, object]:
    """The settings that this node takes over from the others, by the broker's name."""
    found: dict[str, object] = {}
    for one in _compared(peers, config):
        value, problem = _agreed(one, config)
        if value is not None and not problem:
            config = ServerConfig.of({one.name: value}, config)
            found[one.name] = value
    return found


def differences(peers: Iterable[Peer], config: ServerConfig) -> Iterator[Finding]:
    """The differing settings, and which of them are taken over."""
    for one in _compared(peers, config):
        if set(one.theirs) <= {one.mine}:
            continue
        theirs = "; ".join(
            f"{one.show(value)} on {brokers(those)}" for value, those in one.theirs.items()
        )
        mine = one.show(one.mine) or "empty"
        value, problem = _agreed(one, config)
        set_it = f"Set {one.name} to the same value on all brokers."
        if one.given:
            said = f"it is {mine} here, but {theirs}: what happens depends on the leader."
        elif value is None:
            said = f"it is not set here, and others do not agree: {theirs}; this node uses {mine}."
        elif problem:
            said = f"it is {theirs}, which this node cannot take over ({problem}); it uses {mine}."
        else:
            said = f"it is not set here, so this node takes over {theirs}; its default is {mine}."
            set_it = f"Give this node {one.name}: it can be taken over only from a living broker."
        yield Finding(WARN, one.name, said, set_it)


def _agreed(one: _Compared, config: ServerConfig) -> tuple[Any, str]:
    """The value on which all others agree, if this node was given none and has another one; and
    why it cannot be used here."""
    if one.given or len(one.theirs) != 1 or one.mine in one.theirs:
        return None, ""
    (value,) = one.theirs
    try:
        check_served(ServerConfig.of({one.name: value}, config))
    except InvalidSetting as problem:
        return value, str(problem)
    return value, ""


def _compared(peers: Iterable[Peer], config: ServerConfig) -> Iterator[_Compared]:
    told = [one for one in peers if one.settings is not None]
    for name in OF_TOPICS:
        setting = TopicConfig.table[name]
        topic = config.topic
        yield _Compared(setting.synonym, setting.show, topic[name], topic.explicit(name),
                        _values(told, _names_of(name), name))  # fmt: skip
    for name in OF_BROKERS:
        setting = ServerConfig.table[name]
        given = config.explicit(name)
        yield _Compared(name, setting.show, config[name], given, _values(told, (name,), name))


def _values(peers: Iterable[Peer], names: tuple[str, ...], name: str) -> dict[Any, list[int]]:
    """The brokers with each value of a setting, which has these names; those that have none, or
    one that is unreadable here, are left out."""
    found: dict[Any, list[int]] = {}
    for one in peers:
        said = {key: text for key in names if (text := (one.settings or {}).get(key)) is not None}
        try:
            config = ServerConfig(said) if said else None
        except InvalidSetting:
            continue
        if config is not None:
            value = config[name] if name in OF_BROKERS else _topic(config)[name]
            found.setdefault(value, []).append(one.node)
    return found


def _topic(config: BrokerConfig) -> TopicConfig:
    return config.topic
