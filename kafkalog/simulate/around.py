"""A cluster's settings, and how the parts of a node see that node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from kafkalog.cluster.node.state import MemberState
from kafkalog.config.topic import TopicConfig
from kafkalog.log.handle import Handle
from kafkalog.log.log import Log
from kafkalog.replication.isr import Isr
from kafkalog.simulate.ensemble import Link
from kafkalog.simulate.rules import Rules
from kafkalog.simulate.world import World
from kafkalog.types import TopicPartition

__all__ = ["Around", "Copied", "Judge", "Setup"]


class Setup(NamedTuple):
    """The settings of a run's cluster."""

    nodes: int = 3
    partitions: int = 2
    replicas: int = 3
    min_isr: int = 1
    durable: bool = True
    unclean: bool = False
    lag_ms: int = 500
    session_ms: float = 600.0
    answer_ms: float = 400.0
    """The longest wait for an answer."""
    balance_ms: float = 5_000.0
    disk_ms: float = 1.0
    topic_config: TopicConfig = TopicConfig.of({"segment.bytes": 4096})


class Copied(Protocol):
    """A replica of a partition, as the checks see it."""

    tp: TopicPartition
    topic_id: UUID
    log: Log
    handle: Handle
    leader_epoch: int

    @property
    def where(self) -> int:
        """The node's number."""


class Judge(Protocol):
    """Gets the events from which the invariants are checked."""

    def elected(self, node: int, epoch: int) -> None:
        """A controller was elected."""

    def leads(self, replica: Copied, now: Isr) -> None:
        """A node becomes a leader."""

    def shown(self, replica: Copied, before: tuple[int, int], high_watermark: int) -> None:
        """A leader shows more than before; `before`: its epoch and high watermark until then."""

    def handed_over(self, replica: Copied, taken: Sequence[tuple[int, int]]) -> None:
        """A leader that shuts down in order no longer leads, or ends; `taken`: the offsets and
        checksums of what it acknowledged with acks=1."""

    def follows(self, replica: Copied, before: int) -> None:
        """A follower shows more than before; `before`: its high watermark until then."""


class Around(Protocol):
    """A node."""

    number: int
    world: World
    setup: Setup
    rules: Rules
    standing: MemberState
    link: Link
    checks: Judge
    stopping: bool
    """It shuts down in order."""
    on_disk: dict[TopicPartition, int]

    def now_ms(self) -> float:
        """The clock of its timers."""

    def wall_ms(self) -> float:
        """Its wall clock, in ms since 1970."""

    def after(self, ms: float, call: Callable[[], None]) -> None:
        """Call it after that time, if this life of the node lasts until then."""

    def after_disk(self, call: Callable[[], None]) -> None:
        """Call it once the disk gets to it."""

    def note(self, *words: object) -> None:
        """Note what happened."""

    def ask(
        self,
        place: int,
        request: Any,
        answered: Callable[[Any], None],
        failed: Callable[[], None],
        limit_ms: float,
        channel: Any,
    ) -> None:
        """Send a request to another place; the requests of a channel share one connection."""

    def epochs(self) -> dict[int, int]:
        """Epochs of registered brokers, as this node knows them."""

    def propose(self) -> None:
        """Ask the controller for the ISRs that are due."""
