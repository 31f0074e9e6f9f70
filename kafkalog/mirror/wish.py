"""The configuration of a mirror, and its counters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalog.client.link.transport import Where
from kafkalog.client.login.tokens import TokenSource
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.mirror.state import PREFIX

__all__ = ["Counts", "Side", "Tell", "Wish"]

KAFKAS = frozenset((*INTERNAL_TOPICS, "__cluster_metadata", "__remote_log_metadata"))
"""Kafka's own topics, whether or not the brokers mark them so."""
MIRROR_MAKERS = re.compile(
    r"mm2-(configs|offsets|status|offset-syncs)\..*\.internal|.*\.checkpoints\.internal"
)
"""MirrorMaker's own topics."""
SEPARATOR = "."
"""Separator in MirrorMaker's names: ALIAS.TOPIC."""


class Side(NamedTuple):
    """One of the two clusters, and how clients reach it."""

    where: Where
    config: Mapping[str, object]
    """A client's settings, such as security.protocol; not for messages."""
    token: TokenSource | None
    """Gives OAUTHBEARER's tokens."""

    def __repr__(self) -> str:
        return f"Side({self.where!r})"


class Wish(NamedTuple):
    """The topics and groups to copy, and how."""

    source: Side
    target: Side
    name: str | None
    topics: re.Pattern[str]
    exclude: re.Pattern[str] | None
    target_alias: str | None
    groups: re.Pattern[str] | None
    rename: str
    accept_loss: re.Pattern[str] | None
    replication_factor: int
    compression: str
    transaction_bytes: int
    refresh_s: float

    def renamed(self, topic: str) -> str:
        """A topic's name in the target."""
        return self.rename.replace("{}", topic)

    def names(self, topics: Iterable[str]) -> list[str]:
        """The topics to copy; never those of Kafka, of mirrors and of MirrorMaker."""
        return [name for name in topics if self._matches(name)]

    def _matches(self, name: str) -> bool:
        if not self.topics.fullmatch(name) or (self.exclude and self.exclude.fullmatch(name)):
            return False
        own = name.startswith(PREFIX) or name in KAFKAS or MIRROR_MAKERS.fullmatch(name)
        # As MirrorMaker's DefaultReplicationPolicy finds cycles: in each prefix.
        return not own and self.target_alias not in name.split(SEPARATOR)[:-1]

    def accepts(self, topic: str) -> bool:
        """True if a loss of this topic of the source is accepted."""
        return self.accept_loss is not None and bool(self.accept_loss.fullmatch(topic))


@dataclass
class Counts:
    """The totals of all lives."""

    topics: int = 0
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    groups: int = 0
    lag: int = 0
    reached: bool = False
    """True if both clusters were reached once: from then on they are waited for."""
    aside: dict[str, str] = field(default_factory=dict)
    returned: dict[str, str] = field(default_factory=dict)


class Tell(NamedTuple):
    """Called with warnings and progress."""

    warning: Callable[[str], object]
    progress: Callable[[], object]
    """Called after each round, several times a second."""
