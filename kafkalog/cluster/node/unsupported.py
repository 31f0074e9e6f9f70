"""Changes of a cluster, while a node runs, that this node does not enforce or support.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from kafkalog.cluster.node.facts import REFUSE, WARN, Finding, is_old
from kafkalog.metadata.image import Broker
from kafkalog.zookeeper.entities import Entity
from kafkalog.zookeeper.loading import PROTOCOLS

__all__ = ["TOKENS", "News", "unsupported"]

TOKENS = "delegation tokens"
"""A subject of findings."""
RACKS = "broker.rack"


class News(NamedTuple):
    """The parts of the cluster's state that were read while the node runs; the others are empty."""

    tokens: Collection[str] = ()
    """The ids of delegation tokens."""
    settings: Mapping[Entity, Mapping[str, str]] = {}
    """Settings of topics."""
    brokers: Mapping[int, Broker] = {}
    """All that are alive."""
    node: int = -1
    listeners: Mapping[str, int] = {}
    """Those by which this node reaches other brokers and the controller, with Kafka's numbers of
    their protocols."""


def unsupported(news: News) -> list[Finding]:
    """Everything in `news` that this node does not enforce or support."""
    return [*_tokens(news), *_topics(news), *_brokers(news)]


def _tokens(news: News) -> Iterator[Finding]:
    if news.tokens:
        yield Finding(
            WARN,
            TOKENS,
            f"the cluster now has {TOKENS}, which this node does not check: here nobody needs one.",
            "Give this node the cluster's delegation.token.secret.key, or expire them "
            "(kafka-delegation-tokens --expire).",
        )


def _topics(news: News) -> Iterator[Finding]:
    for entity, said in news.settings.items():
        if entity[0] == "topics":
            yield from _topic(entity[1], said)


def _topic(name: str, said: Mapping[str, str]) -> Iterator[Finding]:
    if said.get("remote.storage.enable", "").strip().lower() == "true":
        yield Finding(
            REFUSE,
            f"topic {name}: remote.storage.enable",
            "this node has no tiered storage: it cannot serve the records that are only there, and "
            "as a follower it stays out of sync where it lacks them.",
            "Move the topic's replicas to brokers of Kafka (kafkalog cluster reassign).",
        )
    if is_old(version := said.get("message.format.version", "")):
        yield Finding(
            WARN,
            f"topic {name}: message.format.version",
            f"it is {version}, and kafkalog does not read messages of the formats before 0.11: as "
            "a follower this node stays out of sync where the topic has such messages.",
            "Remove the setting; if brokers of Kafka obey it, keep the topic's replicas on them.",
        )


def _brokers(news: News) -> Iterator[Finding]:
    others = {number: one for number, one in news.brokers.items() if number != news.node}
    for number, one in sorted(others.items()):
        protocols = {name: protocol for name, _, _, protocol in one.endpoints}
        for name, number_here in news.listeners.items():
            if protocols.get(name) == number_here:
                continue
            spoken = next(text for text, number in PROTOCOLS.items() if number == number_here)
            lacks = f"does not speak {spoken} there" if name in protocols else "does not have it"
            yield Finding(
                REFUSE,
                f"broker {number}: listener {name}",
                f"this node reaches others by it, and this one {lacks}: this node can neither "
                "follow it nor, as the controller, command it.",
                f"Give it that listener with {spoken} (listeners, "
                "listener.security.protocol.map), and start it again.",
            )
    lacking = [str(number) for number, one in sorted(news.brokers.items()) if not one.rack]
    if lacking and len(lacking) < len(news.brokers):
        shown = ", ".join(lacking[:5]) + ", ..." * (len(lacking) > 5)
        yield Finding(
            WARN,
            RACKS,
            f"brokers {shown} have none, and others have one: a controller of Kafka creates no "
            "topics then, and one of kafkalog's places replicas without regard to racks.",
            "Set broker.rack on every broker, or on none.",
        )
