"""Decides if a node may join a cluster, and warns its operator.  Pure.

Severity is decided by what Apache Kafka 3.9 does once such a node is registered: if the cluster
would suffer as a whole, or somebody would believe in a protection that this node does not have,
the node is refused; everything else is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kafkalog.client.link.failures import few
from kafkalog.cluster.node.defaults import differences
from kafkalog.cluster.node.facts import (
    AUTHORIZER,
    CONTROL,
    INNER,
    PLAINTEXT,
    REFUSE,
    WARN,
    Candidate,
    Facts,
    Finding,
    Peer,
    brokers,
    is_old,
    version,
)
from kafkalog.config.authorizer import ACL_AUTHORIZER
from kafkalog.metadata.image import TOPIC

__all__ = ["findings", "protection", "refusal"]

PROTOCOL_VERSION, MIGRATION = "inter.broker.protocol.version", "zookeeper.metadata.migration.enable"
FORMAT, BROKER_FORMAT = "message.format.version", "log.message.format.version"
TIERED = "remote.storage.enable"
SPOKEN, TESTED = (2, 8), (3, 9)
"""The first inter.broker.protocol.version whose requests this node understands, and the one that
is tested."""


def findings(facts: Facts, mine: Candidate) -> list[Finding]:
    """All findings, refusals first."""
    found = [one for check in CHECKS for one in check(facts, mine)]
    return sorted(found, key=lambda one: one.severity != REFUSE)


def protection(facts: Facts, mine: Candidate) -> list[Finding]:
    """Those about access rules, credentials and tokens."""
    return [*_rules(facts, mine), *_credentials(facts, mine)]


def refusal(found: Iterable[Finding]) -> str:
    """The refusals in one text; empty: the node may join."""
    return " ".join(str(one) for one in found if one.severity == REFUSE)


# ---- listeners -----------------------------------------------------------------------------------


def _missing_listeners(facts: Facts, mine: Candidate) -> Iterator[Finding]:
    """Those by which others would reach this node."""
    for setting, name_of in ((INNER, _inner), (CONTROL, _control)):
        for name, peers in _grouped(facts.peers, name_of).items():
            if name in mine.listeners:
                continue
            spoken = (one.endpoints.get(name) for one in peers.values())
            protocol = next(filter(None, spoken), PLAINTEXT)
            yield Finding(
                REFUSE,
                f"listener {name}",
                f"{brokers(peers)} reach{'es' * (len(peers) == 1)} other brokers by it, and this "
                f"node only has {few(list(mine.listeners)) or 'none'}; once a broker without it is "
                "registered, a controller of Kafka elects no more leaders, for any partition of "
                "the cluster.",
                f"Give this node that listener: {_connections(name, protocol, setting, mine)}.",
            )


def _connections(name: str, protocol: str, setting: str, mine: Candidate) -> str:
    """The settings that give the node a listener; the controller's is one more."""
    place = mine.listeners.get(mine.config.inner_listener, "HOST:PORT")
    listener = f"{name}://{place}" if setting == INNER else f"...,{name}://HOST:PORT"
    more = "" if setting == INNER else "...,"
    return (
        f"listeners={listener}, listener.security.protocol.map={more}{name}:{protocol} and "
        f"{setting}={name}"
    )


def _other_protocols(facts: Facts, mine: Candidate) -> Iterator[Finding]:
    """Listeners between brokers that speak one protocol here, and another elsewhere."""
    between = [each for one in facts.peers for each in (one.inner, one.control)]
    own = (mine.config.inner_listener, mine.config.control_listener)
    for name in dict.fromkeys([*between, *own]):
        here = mine.protocols.get(name or "")
        those = {one.node: protocol for one in facts.peers
                 if (protocol := one.endpoints.get(name or "", here)) != here}  # fmt: skip
        if here is not None and those:
            spoken = (
                few(sorted(filter(None, {*those.values()}))) or "a protocol that this node lacks"
            )
            yield Finding(
                REFUSE,
                f"listener {name}",
                f"{brokers(those)} and other brokers reach each other by it, and speak {spoken} "
                f"there, but this node {here}: neither could reach the other.",
                f"Give {name} the same protocol on all brokers (listener.security.protocol.map); "
                "to change it in a running cluster, add a second listener.",
            )


def _unknown_listeners(facts: Facts, mine: Candidate) -> Iterator[Finding]:
    """Those by which this node would reach others."""
    for name in dict.fromkeys((mine.config.inner_listener, mine.config.control_listener)):
        lacking = [one for one in facts.peers if name not in one.endpoints and
                   (one.inner is None or one.inner in mine.listeners)]  # fmt: skip
        if lacking:
            names = {each for one in lacking for each in one.endpoints}
            setting = INNER if name == mine.config.inner_listener else CONTROL
            yield Finding(
                REFUSE,
                f"listener {name}",
                f"this node would reach other brokers by it, and {brokers(_numbers(lacking))} only "
                f"{_has(lacking)} {few(sorted(names)) or 'none'}: it could neither replicate from "
                "there nor send requests there as the controller.",
                f"Set {setting} to the listener that all brokers use between them.",
            )


def _client_listeners(facts: Facts, mine: Candidate) -> Iterator[Finding]:
    """Those that clients may use."""
    names = {name for one in facts.peers for name in one.endpoints} - {*mine.listeners}
    between = {name for one in facts.peers for name in (one.inner, one.control) if name}
    for name in sorted(names - between):
        having = [one for one in facts.peers if name in one.endpoints]
        yield Finding(
            WARN, f"listener {name}",
            f"{brokers(_numbers(having))} {_has(having)} it, and this node does not: clients that "
            "use it find no leader for the partitions that this node leads.",
            "Add it to listeners here, unless no client uses it.",
        )  # fmt: skip


def _inner(one: Peer) -> str:
    return one.inner or ""


def _control(one: Peer) -> str:
    return one.control


def _grouped(peers: Iterable[Peer], name_of: Callable[[Peer], str]) -> dict[str, dict[int, Peer]]:
    """Peers by the name of a listener, and by number; without those that have none."""
    found: dict[str, dict[int, Peer]] = {}
    for one in peers:
        if name := name_of(one):
            found.setdefault(name, {})[one.node] = one
    return found


# ---- racks ---------------------------------------------------------------------------------------


def _racks(facts: Facts, mine: Candidate) -> Iterator[Finding]:
    """All have one, or none has: Kafka creates no topics otherwise."""
    racked = [one for one in facts.peers if one.rack]
    others = [one for one in facts.peers if not one.rack]
    rack = mine.config.broker_rack
    stops = "brokers of Kafka create no topics while some brokers have a rack and others have none."
    kafkas = not all(one.is_ours for one in facts.peers)
    if racked and others:
        yield Finding(
            WARN, "broker.rack", f"{brokers(_numbers(others))} {_has(others)} none; {stops}",
            "Give every broker a rack, or none.",
        )  # fmt: skip
    elif racked and not rack:
        names = few(sorted({one.rack or "" for one in racked}))
        yield Finding(
            REFUSE if kafkas else WARN,
            "broker.rack",
            f"this node has none, and the others have ({names}); {stops}",
            "Set broker.rack to the place of this node.",
        )
    elif others and rack:
        yield Finding(
            REFUSE if kafkas and not mine.known else WARN,
            "broker.rack",
            f"this node has {rack}, and the others have none; {stops}",
            "Set it on the others, one after another, and create no topics until all have one."
            if mine.known
            else "Leave it out, or first set it on the others.",
        )


# ---- versions ------------------------------------------------------------------------------------


def _protocol_versions(facts: Facts, _: Candidate) -> Iterator[Finding]:
    """Protocol versions between Kafka's brokers."""
    old = {one.node: text for one in facts.peers
           if (text := (one.settings or {}).get(PROTOCOL_VERSION, ""))
           and version(text) < TESTED}  # fmt: skip
    if not old:
        return
    unspoken = [node for node, text in old.items() if version(text) < SPOKEN]
    those = unspoken or list(old)
    yield Finding(
        REFUSE if unspoken else WARN, PROTOCOL_VERSION,
        f"{brokers(those)} {_has(those)} {few(sorted({old[node] for node in those}))}, "
        + ("in which a controller sends requests that this node does not understand: it would "
           "never get a replica, and its partitions would hang." if unspoken else
           "and kafkalog is tested with 3.9."),
        "Upgrade all brokers to 3.9, then set it to 3.9 on each, or leave it out.",
    )  # fmt: skip


def _migration(facts: Facts, _: Candidate) -> Iterator[Finding]:
    """From ZooKeeper to KRaft."""
    migrating = [
        one.node for one in facts.peers if (one.settings or {}).get(MIGRATION, "").lower() == "true"
    ]
    if facts.kraft or migrating:
        who = f"{brokers(migrating)} {_has(migrating)} it" if migrating else "the controller is one"
        yield Finding(
            REFUSE,
            MIGRATION if migrating else "KRaft",
            f"{who}{'' if migrating else ' of KRaft'}: the cluster is being migrated to KRaft, "
            "which this node could not follow, and which could not end while it is registered.",
            "Give the migration up (kafkalog replaces brokers on ZooKeeper), or let it end without "
            "this node.",
        )


def _formats(facts: Facts, _: Candidate) -> Iterator[Finding]:
    """Topics whose segments may have messages of format 0 or 1."""
    old = [name for name, said in _topics(facts) if is_old(said.get(FORMAT, ""))]
    if old:
        yield Finding(
            WARN,
            FORMAT,
            f"topics {few(old)} had an old one, so their segments may have messages of format 0 or "
            "1, which kafkalog does not read: this node would never be in sync with a partition "
            "that has such messages.",
            "Copy these topics into new ones, or leave their replicas on brokers of Kafka until "
            "retention has deleted the old segments.",
        )
    peers = [one for one in facts.peers if is_old((one.settings or {}).get(BROKER_FORMAT, ""))]
    if peers:
        yield Finding(
            WARN,
            BROKER_FORMAT,
            f"{brokers(_numbers(peers))} {_has(peers)} an old one, so any topic may have messages "
            "of format 0 or 1, which kafkalog does not read: this node would never be in sync with "
            "a partition that has such messages.",
            "Give such topics no replica here until retention has deleted their old segments.",
        )


def _tiers(facts: Facts, mine: Candidate) -> Iterator[Finding]:
    """Topics with segments in tiered storage."""
    tiered = [name for name, said in _topics(facts) if said.get(TIERED, "").lower() == "true"]
    held = [name for name in tiered if _holds(facts, name, mine.node)]
    if held:
        yield Finding(
            REFUSE,
            TIERED,
            f"this node has replicas of {few(held)}, and kafkalog has no tiered storage: if it "
            "led them, records in that storage could not be read.",
            "Move these replicas to brokers of Kafka first.",
        )
    elif tiered:
        yield Finding(
            WARN,
            TIERED,
            f"topics {few(tiered)} use it, and kafkalog has no tiered storage: this node would "
            "never be in sync with their partitions.",
            "Leave their replicas on brokers of Kafka.",
        )


def _topics(facts: Facts) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Topics with settings of their own."""
    for (kind, name), said in sorted(facts.image.configs.items()):
        if kind == TOPIC:
            yield name, said


def _holds(facts: Facts, topic: str, node: int) -> bool:
    found = facts.image.topics.get(topic)
    return found is not None and any(node in one.replicas for one in found.partitions.values())


# ---- protection ----------------------------------------------------------------------------------


def _rules(facts: Facts, mine: Candidate) -> Iterator[Finding]:
    """Access rules: those in ZooKeeper, and those of brokers that have an authorizer."""
    enforcing = [one.node for one in facts.peers if one.authorizes]
    if mine.config.authorizer_class_name:
        yield from _authorizers(facts)
        return
    what = f"the cluster has access rules ({few(list(facts.rules))})"
    if enforcing:
        yield Finding(
            REFUSE,
            "ACLs",
            f"{brokers(enforcing)} {_has(enforcing)} an authorizer, and this node has none: "
            "clients that are kept out there would get in here.",
            f"Set {AUTHORIZER}={ACL_AUTHORIZER} and super.users here, as on the others.",
        )
    elif not facts.rules:
        return
    elif any(one.authorizes is False for one in facts.peers):
        yield Finding(
            WARN,
            "ACLs",
            f"{what}, but no broker that could be asked has an authorizer: nobody enforces them, "
            "and neither does this node.",
            f"Set {AUTHORIZER} on all brokers, or remove them (kafka-acls --remove), so that "
            "nobody relies on them.",
        )
    else:
        yield _unproven("ACLs", f"{what}, which this node does not enforce", mine,
                        f"Set {AUTHORIZER} here, or remove them (kafka-acls --remove)")  # fmt: skip


def _authorizers(facts: Facts) -> Iterator[Finding]:
    """Brokers whose authorizer is another than this node's, which has one."""
    found = {one.node: one.settings[AUTHORIZER] for one in facts.peers
             if one.settings and one.settings.get(AUTHORIZER)}  # fmt: skip
    others = [node for node, name in found.items() if name != ACL_AUTHORIZER]
    if others:
        names = few(sorted({found[node] for node in others}))
        yield Finding(
            REFUSE,
            AUTHORIZER,
            f"{brokers(others)} {_has(others)} {names}, whose rules this node does not know: it "
            "would decide by the ACLs in ZooKeeper, and let clients in that are kept out there.",
            f"Set {AUTHORIZER}={ACL_AUTHORIZER} on all brokers.",
        )
    lacking = [one.node for one in facts.peers if one.authorizes is False]
    if lacking:
        yield Finding(
            WARN,
            "ACLs",
            f"{brokers(lacking)} {_has(lacking)} no authorizer: clients that are kept out here get "
            "in there.",
            f"Set {AUTHORIZER}={ACL_AUTHORIZER} on all brokers.",
        )


def _credentials(facts: Facts, mine: Candidate) -> Iterator[Finding]:
    """SCRAM credentials and delegation tokens: what clients log in with."""
    authenticates = mine.authenticates
    users = () if authenticates else facts.users
    those = [f"SCRAM credentials ({few(list(users))})"] if users else []
    tokens = 0 if mine.config.get("delegation.token.secret.key") else facts.tokens
    those += [f"{tokens} delegation tokens"] if tokens else []
    if not those:
        return
    subject = "SCRAM" if users else "delegation tokens"
    what = f"the cluster has {' and '.join(those)}"
    remove = "Remove them (kafka-configs --delete-config, kafka-delegation-tokens --expire)"
    sasl = sorted({name for one in facts.peers for name, protocol in one.endpoints.items()
                   if protocol.startswith("SASL")})  # fmt: skip
    if sasl and authenticates:
        yield Finding(
            WARN,
            subject,
            f"{what}, with which clients log in at {few(sasl)}; this node does not know them.",
            "Let these clients log in with a password, or leave their topics on brokers of Kafka.",
        )
    elif sasl:
        yield Finding(
            REFUSE,
            subject,
            f"{what}, with which clients log in at {few(sasl)}; this node has no listener where "
            "they could, and lets everyone in.",
            f"{remove}, and join a cluster that is open to all.",
        )
    elif facts.peers:
        yield Finding(
            WARN,
            subject,
            f"{what}, but no living broker has a listener where clients log in: nobody checks "
            "them, and neither does this node.",
            f"{remove}, so that nobody relies on them.",
        )
    elif not authenticates:
        yield _unproven(subject, f"{what}, which this node does not check", mine, remove)


def _unproven(subject: str, what: str, mine: Candidate, remove: str) -> Finding:
    """No broker tells whether a protection is in force: a node of the cluster is not locked out of
    it, a new one is not let in."""
    return Finding(
        WARN if mine.known else REFUSE, subject,
        f"{what}; no other broker says whether any does.",
        f"{remove}, unless you need them, and then serve them with brokers of Kafka."
        if mine.known else
        f"{remove}, or start a broker that can be asked; a new node joins a cluster that is open "
        "to all.",
    )  # fmt: skip


# ---- what could not be checked -------------------------------------------------------------------


def _unasked(facts: Facts, _: Candidate) -> Iterator[Finding]:
    """Brokers that could not be asked for their settings."""
    silent = [one for one in facts.peers if one.settings is None]
    if silent:
        unchecked = [PROTOCOL_VERSION, "authorizers", "settings that differ"]
        unchecked += [] if all(one.inner for one in silent) else [INNER]
        yield Finding(
            WARN,
            "settings of other brokers",
            f"{brokers(_numbers(silent))} did not tell theirs ({silent[0].why}); not checked: "
            f"{', '.join(unchecked)}.",
            "Compare their server.properties with this node's settings.",
        )


def _differences(facts: Facts, mine: Candidate) -> Iterable[Finding]:
    return differences(facts.peers, mine.config)


def _numbers(peers: Iterable[Peer]) -> list[int]:
    return [one.node for one in peers]


def _has(those: Sequence[Peer] | Sequence[int]) -> str:
    return "has" if len(those) == 1 else "have"


Check = Callable[[Facts, Candidate], Iterable[Finding]]
CHECKS: tuple[Check, ...] = (
    _other_protocols, _missing_listeners, _unknown_listeners, _client_listeners, _racks,
    _protocol_versions, _migration, _formats, _tiers, _rules, _credentials, _differences, _unasked,
)  # fmt: skip
