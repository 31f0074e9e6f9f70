"""Facts about a cluster before a node joins it, and about the node itself.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafkalog.client.link.failures import few
from kafkalog.config.server import ServerConfig
from kafkalog.metadata.image import MetadataImage

__all__ = [
    "REFUSE",
    "WARN",
    "Candidate",
    "Facts",
    "Finding",
    "Peer",
    "brokers",
    "is_old",
    "version",
]

REFUSE, WARN = "refuse", "warn"
PLAINTEXT = "PLAINTEXT"
AUTHORIZER = "authorizer.class.name"
INNER, INNER_PROTOCOL = "inter.broker.listener.name", "security.inter.broker.protocol"
CONTROL = "control.plane.listener.name"
BATCHES = (0, 11)
"""The first message.format.version with record batches (magic 2)."""
OURS = "kafkalog.durability"
"""A setting that only kafkalog's brokers have."""


class Finding(NamedTuple):
    """A reason why a node must not join, or something that its operator should know."""

    severity: str
    """REFUSE or WARN."""
    subject: str
    """A setting, a listener, a kind of znode."""
    problem: str
    """The problem and its consequence: one sentence."""
    remedy: str
    """The remedy: one sentence."""

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem} {self.remedy}"


class Peer(NamedTuple):
    """Another broker that is alive."""

    node: int
    endpoints: Mapping[str, str]
    """The security protocol of each listener."""
    rack: str | None
    settings: Mapping[str, str] | None
    """Those of its properties file, and defaults, by name; None: it could not be asked."""
    why: str = ""
    """Why it could not be asked."""
    denied: bool = False
    """It may not be asked: it has an authorizer."""

    @property
    def is_ours(self) -> bool:
        """True if it is known to be kafkalog's."""
        return self.settings is not None and OURS in self.settings

    @property
    def authorizes(self) -> bool | None:
        """True if it enforces access rules; None: not known."""
        if self.settings is None:
            return True if self.denied else None
        return bool(self.settings.get(AUTHORIZER))

    @property
    def inner(self) -> str | None:
        """The listener by which it reaches other brokers; None: not known."""
        names = list(self.endpoints)
        if self.settings is None:
            return names[0] if len(names) == 1 else None
        if named := self.settings.get(INNER):
            return named.upper()
        protocol = self.settings.get(INNER_PROTOCOL) or PLAINTEXT
        return protocol if protocol in names or not names else names[0]

    @property
    def control(self) -> str:
        """The listener by which it reaches brokers as the controller, if it is a separate one."""
        return ((self.settings or {}).get(CONTROL) or "").upper()


class Facts(NamedTuple):
    """A cluster as a node finds it."""

    image: MetadataImage
    """Topics with their replicas, settings of topics and brokers, quotas."""
    peers: tuple[Peer, ...]
    """The other living brokers, by number."""
    rules: tuple[str, ...] = ()
    """Resources that have access rules (ACLs), as "Topic/orders"."""
    users: tuple[str, ...] = ()
    """Users that have SCRAM credentials."""
    tokens: int = 0
    """Delegation tokens."""
    kraft: bool = False
    """The controller is one of KRaft: the cluster is being migrated."""


class Candidate(NamedTuple):
    """A node that is about to join."""

    node: int
    config: ServerConfig
    known: bool
    """Its directory already belongs to the cluster: it was a node of it."""

    @property
    def listeners(self) -> dict[str, str]:
        """The address of each listener that other brokers can reach, by name."""
        pairs = (text.partition("://")[::2] for text in self.config.listeners)
        return {name.upper(): at for name, at in pairs if not at.startswith("unix:")}

    @property
    def protocols(self) -> dict[str, str]:
        """The security protocol of each of these."""
        return {name: self.config.protocol_of(name) for name in self.listeners}

    @property
    def authenticates(self) -> bool:
        """True if clients log in at one of its listeners."""
        return any(one.startswith("SASL") for one in self.protocols.values())


def version(text: str) -> tuple[int, int]:
    """(2, 8) for "2.8-IV1"; of something else a high one, as of later versions."""
    match = re.match(r"(\d{1,5})\.(\d{1,5})", text)
    return (int(match[1]), int(match[2])) if match else (99, 0)


def is_old(text: str) -> bool:
    """True if a message.format.version is before record batches."""
    return bool(text) and version(text) < BATCHES


def brokers(numbers: Iterable[int]) -> str:
    """The names of some brokers: "broker 1", "brokers 1, 2"."""
    each = [str(number) for number in sorted(numbers)]
    return f"broker{'s' if len(each) > 1 else ''} {few(each)}"
