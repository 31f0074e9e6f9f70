"""Sessions of brokers with the active controller, and what a heartbeat changes.  Pure.

Only the active controller has sessions, so each one gives every broker that is not fenced a whole
session when it begins.  A broker that may stop has none: its next life may begin at once.

The rules are those of Apache Kafka's BrokerHeartbeatManager (KIP-631), where a broker that may stop
keeps its session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from kafkalog.metadata.image import Broker, MetadataImage

__all__ = ["Committed", "Heartbeat", "Sessions", "State", "next_state", "state_of"]


class State(Enum):
    """A broker's state, by its registration and its last heartbeat."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "may stop now"


class Heartbeat(NamedTuple):
    """The wishes of a broker, and what the controller knows about it, if it is asked."""

    caught_up: bool
    """It has read the record of its registration."""
    wants_fence: bool
    wants_shutdown: bool
    leads: Callable[[], bool]
    """True if it leads a partition."""
    handed_over: Callable[[], bool]
    """True if every active broker knows that others lead what it led."""


def state_of(broker: Broker) -> State:
    """The state by the registration alone."""
    if broker.fenced:
        return State.FENCED
    return State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else State.UNFENCED


def next_state(now: State, heard: Heartbeat) -> State:
    """The state after a heartbeat."""
    if now is State.FENCED:
        if heard.wants_shutdown:
            return State.SHUTDOWN_NOW
        return State.UNFENCED if heard.caught_up and not heard.wants_fence else now
    if now is State.UNFENCED:
        if heard.wants_fence:
            return State.SHUTDOWN_NOW if heard.wants_shutdown else State.FENCED
        if heard.wants_shutdown:
            return State.CONTROLLED_SHUTDOWN if heard.leads() else State.SHUTDOWN_NOW
        return now
    return now if heard.leads() or not heard.handed_over() else State.SHUTDOWN_NOW


class Sessions:
    """The sessions of one active controller.  Times are in ms, of any one clock."""

    def __init__(self, timeout_ms: int, image: MetadataImage, now_ms: int) -> None:
        """`timeout_ms`: broker.session.timeout.ms.  Every broker in `image` that is not
        fenced has a session; others have one from their next heartbeat on."""
        self._timeout_ms = timeout_ms
        self._ends_ms: dict[int, tuple[int, int]] = {}  # by broker, with its epoch
        self._offsets: dict[int, int] = {}  # the last one that each has read
        self._shutdowns: dict[int, int] = {}  # the offset that the others must have read
        for number, one in image.brokers.items():
            if not one.fenced:
                self.heard(number, one.epoch, -1, now_ms)

    def heard(self, broker: int, epoch: int, offset: int, now_ms: int) -> None:
        """A broker sent a heartbeat, or registered; `offset`: the last one that it has read of the
        metadata log."""
        self._ends_ms[broker] = epoch, now_ms + self._timeout_ms
        self._offsets[broker] = offset

    def ended(self, broker: int) -> None:
        """A broker is fenced or gone."""
        for each in (self._ends_ms, self._offsets, self._shutdowns):
            each.pop(broker, None)

    def is_valid(self, broker: int, epoch: int, now_ms: int) -> bool:
        """True while a broker with this epoch has a session."""
        found = self._ends_ms.get(broker)
        return found is not None and found[0] == epoch and now_ms < found[1]

    def expired(self, brokers: Mapping[int, Broker], now_ms: int) -> list[int]:
        """The brokers that are not fenced, and have no session any more."""
        return [number for number, one in sorted(brokers.items())
                if not one.fenced and not self.is_valid(number, one.epoch, now_ms)]  # fmt: skip

    def next_ms(self, brokers: Mapping[int, Broker]) -> int | None:
        """When the next session of a broker that is not fenced may end; None: there is none."""
        ends = [end for number, (_, end) in self._ends_ms.items()
                if number in brokers and not brokers[number].fenced]  # fmt: skip
        return min(ends, default=None)

    def shuts_down(self, broker: int, offset: int) -> None:
        """A broker began its controlled shutdown; what it led was handed over up to `offset`."""
        self._shutdowns.setdefault(broker, offset)

    def handed_over(self, broker: int, brokers: Mapping[int, Broker]) -> bool:
        """True if every active broker has read that others lead what this one led."""
        offset = self._shutdowns.get(broker)
        return offset is None or all(
            self._offsets.get(number, -1) >= offset for number, one in brokers.items()
            if state_of(one) is State.UNFENCED
        )  # fmt: skip


class Committed:
    """An active controller's knowledge of its cluster."""

    def __init__(
        self, image: MetadataImage, sessions: Sessions, wall_ms: Callable[[int], int]
    ) -> None:
        self.image = image
        """All metadata that is committed."""
        self.sessions = sessions
        """Those of brokers with this controller."""
        self.wall_ms = wall_ms
        """The time of day, from the controller's."""
