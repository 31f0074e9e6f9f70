"""A broker's membership of a cluster as its other parts use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkalog.metadata.source import Metadata

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalog.client.link.transport import Address, Options
    from kafkalog.metadata.image import Change, MetadataImage, Partition
    from kafkalog.metadata.requests import Result, SettingChanges
    from kafkalog.metadata.source import Planned
    from kafkalog.replication.roles import Effect
    from kafkalog.types import TopicPartition
    from kafkalog.wire.api import Api
    from kafkalog.wire.error_codes import ErrorCode

__all__ = [
    "ControllerConnection",
    "Controlling",
    "Membership",
    "QuorumMembership",
    "QuorumReplica",
    "Standing",
    "ZooKeeperMembership",
]


class ControllerConnection(Protocol):
    """A connection to the current controller: one request after another.  Any thread."""

    def ask(self, api: Api, fields: Any, at_most: int | None = None) -> Any:
        """Send a request, with kafkalog.wire's names; returns its response."""

    def close(self) -> None:
        """Stop all requests and waits, now and later."""


class Membership(Metadata, Protocol):
    """A broker's membership.  Safe to use from many threads."""

    node: int
    carry_out: Callable[[Sequence[Effect]], Mapping[TopicPartition, ErrorCode]]
    """Set by the keeper of replicas: carries out commands in order; returns partitions that others
    should lead, since they are offline here, and those that could not be deleted, with the
    reason."""
    registered: Callable[[int], None]
    """Set likewise: called when this broker gets another epoch."""

    @property
    def epoch(self) -> int:
        """The epoch of this broker's registration."""

    def held(self, tp: TopicPartition) -> Partition | None:
        """A partition with a replica on this node."""

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """The topic's id if this node is to have that partition."""

    def place(self, broker: int) -> Address | None:
        """The address of a broker for other brokers."""

    def connecting(self, *, to_controller: bool = False) -> Options:
        """How this node connects to others, or to the controller: its name, and its login."""

    def obey(self, api: Api, request: Any) -> Mapping[str, Any]:
        """Handle a request of the controller; returns the fields of its response."""

    def fail(self, partitions: Collection[TopicPartition]) -> None:
        """The logs of these went offline."""

    def report_failed(self) -> None:
        """Let the controller ask which replicas are offline here."""

    def controller_connection(self) -> ControllerConnection:
        """A separate connection to the controller, for requests that must not wait for others."""

    def close_controller_connection(self) -> None:
        """Stop all waits for the controller, now and later; others' connections stay open."""

    def alter_configs(
        self,
        asked: SettingChanges,
        plan: Callable[..., tuple[list[tuple[str, Any]], list[dict[str, Any]]]],
    ) -> list[Result]:
        """Change settings of this very broker."""


class Controlling(Protocol):
    """A node's candidacy for controller."""

    @property
    def is_active(self) -> bool:
        """True if this node is the controller, as far as it knows."""

    def ask(
        self, api: Api, request: Any, version: int,
        answer: Callable[[Mapping[str, Any] | Exception | None], None], *, size: int = 0,
        context: Any = None,
    ) -> None:  # fmt: skip
        """Ask the controller; `answer` is called once, with None if another node is the
        controller, with an exception if the request failed.  `size`: the request's memory, in
        bytes; `context`: the caller, whose quota counts.

        Raises: Timeout: requests of too many bytes wait.
        """

    def start(self) -> None:
        """Become a candidate."""

    def stop(self) -> None:
        """Stop."""


class Standing(NamedTuple):
    """The place of a replica of the metadata log in its quorum."""

    leader: int
    """-1: none is known."""
    epoch: int
    high_watermark: int
    log_end: int
    state: str
    """The name of its role in Raft: leader, follower, ..."""


class QuorumReplica(Protocol):
    """A controller's replica of the metadata log: a voter, or an observer.  Safe to use from many
    threads."""

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""

    @property
    def is_active(self) -> bool:
        """True if this is the active controller, as far as it knows."""

    def standing(self) -> Standing | None:
        """Its place in the quorum; None: it takes no part yet."""

    def seen(self) -> tuple[int, Address | None]:
        """The active controller, and its address as far as it is known; -1: there is none."""

    def listen(self, changed: Callable[[Change], None]) -> MetadataImage:
        """Call `changed` after each change of the image, in order; returns the image before the
        first one."""

    def ask(
        self, api: Api, request: Any, version: int,
        answer: Callable[[Mapping[str, Any] | Exception | None], None], *, size: int = 0,
        listener: str = "", context: Any = None,
    ) -> None:  # fmt: skip
        """As Controlling.ask; Raft's requests are answered by any controller.

        `listener`: that of the sender, for the addresses in the answer; `context`: the caller.
        """

    def start(self) -> None:
        """Take part in the quorum."""

    def stop(self) -> None:
        """Resign if it leads, answer waiting requests, and close the metadata log.  Idempotent."""

    def abandon(self) -> None:
        """Stop as in a crash."""


class ZooKeeperMembership(Membership, Protocol):
    """A node's membership of a cluster on ZooKeeper."""

    def alter(self, planned: Callable[[MetadataImage], Planned]) -> list[Result]:
        """Change what protects the cluster, as planned on the image; its results."""


class QuorumMembership(Membership, Protocol):
    """A broker's membership of a cluster whose active controller leads a quorum."""

    def await_controller(self, at_most_s: float) -> bool:
        """Wait until an active controller is known; False: none is, or this is closed."""
