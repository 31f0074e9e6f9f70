"""What a cluster may get while a node runs that this node does not enforce or support.  Pure."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from kafkalog.metadata.image import Broker
from kafkalog.metadata.zookeeper.entities import Entity
from kafkalog.metadata.zookeeper.loading import PROTOCOLS

__all__ = ["RULES", "TOKENS", "Facts", "Finding", "findings"]

RULES, TOKENS = "ACLs", "delegation tokens"
"""Subjects of findings."""
SCRAM, QUOTAS, RACKS = "SCRAM credentials", "quotas", "broker.rack"
BATCHES = (0, 11)
"""The first message.format.version with record batches (magic 2)."""


class Finding(NamedTuple):
    """Something that this node does not enforce or support."""

    level: int
    """Of logging: ERROR if a protection is missing or records are out of reach, else WARNING."""
    subject: str
    """A kind of znode, a setting of a topic, a broker."""
    problem: str
    """What is wrong, and its consequence: one sentence."""
    remedy: str
    """What to do about it: one sentence."""

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem} {self.remedy}"


class Facts(NamedTuple):
    """What was read of the cluster; a part that was not read is empty, and there is nothing to find
    in it."""

    rules: Collection[str] = ()
    """Paths of resources with access rules."""
    tokens: Collection[str] = ()
    """The ids of delegation tokens."""
    settings: Mapping[Entity, Mapping[str, str]] = {}
    """Of topics, users, clients and addresses."""
    brokers: Mapping[int, Broker] = {}
    """All that are alive."""
    node: int = -1
    listeners: Collection[str] = ()
    """Those by which brokers reach each other, and the controller."""


def findings(facts: Facts) -> list[Finding]:
    """Everything in `facts` that this node does not enforce or support."""
    return [*_access(facts), *_entities(facts), *_brokers(facts)]


def _access(facts: Facts) -> Iterator[Finding]:
    if facts.rules:
        yield Finding(
            logging.ERROR, RULES,
            f"the cluster now has access rules ({min(facts.rules)}), which this node does not "
            "enforce: clients that other brokers refuse get in here.",
            "Remove the rules (kafka-acls --remove), or stop this node and let brokers of Kafka "
            "serve its partitions.",
        )  # fmt: skip
    if facts.tokens:
        yield Finding(
            logging.WARNING, TOKENS,
            f"the cluster now has {TOKENS}, which this node does not check: here nobody needs one.",
            "Expire them (kafka-delegation-tokens --expire), or stop this node.",
        )  # fmt: skip


def _entities(facts: Facts) -> Iterator[Finding]:
    for entity, said in facts.settings.items():
        if entity[0] == "topics":
            yield from _topic(entity[1], said)
            continue
        name, rates = " ".join(entity), [one for one in said if not one.startswith("SCRAM-")]
        if len(rates) < len(said):
            yield Finding(
                logging.ERROR, SCRAM,
                f"the cluster now has {SCRAM} ({name}), which this node does not check: clients "
                "that cannot log in elsewhere get in here.",
                "Remove them (kafka-configs --delete-config), or stop this node and let brokers of "
                "Kafka serve its partitions.",
            )  # fmt: skip
        if rates:
            yield Finding(
                logging.WARNING, QUOTAS,
                f"the cluster now has {QUOTAS} ({name}: {min(rates)}), which this node does not "
                "apply: clients are not slowed down here.",
                "Plan for that load, or keep leaderships of these clients' topics on brokers of "
                "Kafka (kafkalog cluster reassign).",
            )  # fmt: skip


def _topic(name: str, said: Mapping[str, str]) -> Iterator[Finding]:
    if said.get("remote.storage.enable", "").strip().lower() == "true":
        yield Finding(
            logging.ERROR, f"topic {name}: remote.storage.enable",
            "this node has no tiered storage: it cannot serve the records that are only there, and "
            "as a follower it stays out of sync where it lacks them.",
            "Move the topic's replicas to brokers of Kafka (kafkalog cluster reassign).",
        )  # fmt: skip
    if _is_old(version := said.get("message.format.version", "")):
        yield Finding(
            logging.WARNING, f"topic {name}: message.format.version",
            f"it is {version}, and kafkalog does not read messages of the formats before 0.11: as "
            "a follower this node stays out of sync where the topic has such messages.",
            "Remove the setting; if brokers of Kafka obey it, keep the topic's replicas on them.",
        )  # fmt: skip


def _is_old(version: str) -> bool:
    """Whether it is before record batches; False if it is no version."""
    numbers = version.strip().split("-")[0].split(".")[:2]
    if len(numbers) < 2 or not all(one.isascii() and one.isdecimal() for one in numbers):
        return False
    return tuple(map(int, numbers)) < BATCHES


def _brokers(facts: Facts) -> Iterator[Finding]:
    others = {number: one for number, one in facts.brokers.items() if number != facts.node}
    for number, one in sorted(others.items()):
        protocols = {name: protocol for name, _, _, protocol in one.endpoints}
        for name in dict.fromkeys(facts.listeners):
            plain = protocols.get(name) == PROTOCOLS["PLAINTEXT"]
            if plain:
                continue
            lacks = "does not speak PLAINTEXT there" if name in protocols else "does not have it"
            yield Finding(
                logging.ERROR, f"broker {number}: listener {name}",
                f"brokers reach each other by it, and this one {lacks}: this node can neither "
                "follow it nor, as the controller, command it.",
                "Give it that listener with PLAINTEXT (listeners, "
                "listener.security.protocol.map), and start it again.",
            )  # fmt: skip
    lacking = [str(number) for number, one in sorted(facts.brokers.items()) if not one.rack]
    if lacking and len(lacking) < len(facts.brokers):
        shown = ", ".join(lacking[:5]) + ", ..." * (len(lacking) > 5)
        yield Finding(
            logging.WARNING, RACKS,
            f"brokers {shown} have none, and others have one: a controller of Kafka creates no "
            "topics then, and one of kafkalog's places replicas without regard to racks.",
            "Set broker.rack on every broker, or on none.",
        )  # fmt: skip
