"""The thread that keeps a member in its group: what both protocols of groups have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from kafkalog.client.consumer.session import Heard
from kafkalog.client.link.background import Background
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.connection import Connection
from kafkalog.client.metrics import Tally

__all__ = ["MemberThread"]


class _Polled(Protocol):
    polled_s: float
    """When the owner polled last; infinite: it is waiting for the group."""


S = TypeVar("S", bound=_Polled)


class MemberThread(Background, Generic[S]):
    """Sends heartbeats, one at a time, over a connection of their own; `session` decides."""

    def __init__(
        self, cluster: Cluster, nudge: Callable[[], None], session: Callable[[float], S]
    ) -> None:
        """`cluster`: its own, with the timeouts of a heartbeat; it closes it.  `session`: makes the
        session at a time (the clock's monotonic_s)."""
        super().__init__(cluster, "kafkalog-member", nudge)
        self.session = session(self.clock.monotonic_s())
        """Changed with the condition held; it may be read without."""
        self._connection: Connection | None = None
        self.beat_ms = Tally()
        """The latency of each heartbeat that was answered."""

    def polled(self) -> None:
        """The owner has polled."""
        self.session.polled_s = self.clock.monotonic_s()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Within, the owner waits for the group: this does not count as a pause between polls."""
        self.session.polled_s = math.inf
        try:
            yield
        finally:
            self.polled()

    def _react(self, heard: Heard, group: str) -> None:
        """Act on what a heartbeat has shown."""
        if heard.moved:
            self.cluster.forget_coordinator(group)
            self._drop_connection()
        if heard.news:
            self._nudge()

    def _connected(self, group: str) -> Connection:
        """The connection to the coordinator, only for heartbeats.  Raises: as Cluster.another."""
        if self._connection is None or not self._connection.usable():
            self._connection = self._opened(group)
        return self._connection

    def _opened(self, group: str) -> Connection:
        return self.cluster.another(self.cluster.coordinator(group))

    def _hang_up(self) -> None:
        self._drop_connection()
        super()._hang_up()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
