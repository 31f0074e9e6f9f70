"""What the parts of a cluster's broker ask of its membership, whatever makes it a member."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkalog.metadata.source import Metadata

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalog.client.link.transport import Address
    from kafkalog.metadata.image import Partition
    from kafkalog.metadata.plan import Result
    from kafkalog.metadata.requests import SettingChanges
    from kafkalog.replication.roles import Effect
    from kafkalog.types import TopicPartition
    from kafkalog.wire.api import Api

__all__ = ["Asking", "Controlling", "Membership"]


class Asking(Protocol):
    """A way to the current controller: one request after another.  Any thread."""

    def ask(self, api: Api, fields: Any, at_most: int | None = None) -> Any:
        """A request, by the names of kafkalog.wire; its response."""

    def close(self) -> None:
        """End all requests and waits, now and later."""


class Membership(Metadata, Protocol):
    """One broker's.  Safe to use from many threads."""

    node: int
    carry_out: Callable[[Sequence[Effect]], Sequence[TopicPartition]]
    """Set by the keeper of the copies: do this, in order; of what others are to lead, since it is
    offline here, and of what could not be deleted."""
    registered: Callable[[int], None]
    """Set likewise: this broker was given another epoch."""

    @property
    def epoch(self) -> int:
        """Of this broker's registration."""

    def held(self, tp: TopicPartition) -> Partition | None:
        """A partition of which this node has a copy."""

    def topic_id(self, topic: str, partition: int) -> UUID | None:
        """The topic's id when this node is to have that partition."""

    def place(self, broker: int) -> Address | None:
        """Where other brokers reach one."""

    def obey(self, api: Api, request: Any) -> Mapping[str, Any]:
        """A request of the controller's; the fields of its response."""

    def fail(self, partitions: Collection[TopicPartition]) -> None:
        """The logs of these went offline."""

    def tell_failed(self) -> None:
        """Let the controller ask what is offline here."""

    def line(self) -> Asking:
        """A way to the controller, for what must not wait for what others ask of it."""

    def ask_no_more(self) -> None:
        """End all waits for the controller, now and later; lines of others stay open."""

    def alter_configs(
        self, asked: SettingChanges,
        plan: Callable[..., tuple[list[tuple[str, Any]], list[dict[str, Any]]]],
    ) -> list[Result]:  # fmt: skip
        """Settings of this broker's own."""


class Controlling(Protocol):
    """A node's place among those that may be the controller."""

    @property
    def reigns(self) -> bool:
        """Whether this node is the controller, as far as it knows."""

    def ask(
        self, api: Api, request: Any, version: int,
        answer: Callable[[Mapping[str, Any] | None], None],
    ) -> None:  # fmt: skip
        """Ask the controller; `answer` is called once, with None where another is."""

    def start(self) -> None:
        """Begin to stand for election."""

    def stop(self) -> None:
        """End."""
