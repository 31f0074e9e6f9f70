"""The partitions that this cluster node leads: their ISRs, here and in the data plane."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import NotFound
from kafkalog.log.log import handle_of
from kafkalog.replication.isr import Isr, followers, told
from kafkalog.server.partitions import has_failed

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.metadata.image import Partition
    from kafkalog.server.network.reactor import Reactor
    from kafkalog.types import TopicPartition

__all__ = ["LedPartitions"]


class _Led(NamedTuple):
    """A partition that is led here."""

    isr: Isr
    end: int | None = None
    """Where its log ended when the data plane began to refuse acks=1; None: it takes acks=1."""


class LedPartitions:
    """The ISRs of the partitions that this node leads.  Safe to use from many threads: each method
    takes the lock of the partitions, which callers may hold."""

    def __init__(
        self, lock: threading.RLock, open_logs: Mapping[TopicPartition, Log], reactor: Reactor,
        broker_epochs: Callable[[], dict[int, int]],
    ) -> None:  # fmt: skip
        """`open_logs`: guarded by `lock`; `broker_epochs`: of the live brokers."""
        self._lock, self._open_logs, self._reactor = lock, open_logs, reactor
        self._broker_epochs = broker_epochs
        self._led: dict[TopicPartition, _Led] = {}
        self._due: set[TopicPartition] = set()  # with a proposal to be sent
        self.news = threading.Event()
        """Set when there is a proposal to be sent."""
        self.hands_over = False
        """True if partitions with another replica in sync refuse acks=1."""

    # ---- what is led ---------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """The partitions led here."""
        with self._lock:
            return list(self._led)

    def isr(self, tp: TopicPartition) -> Isr | None:
        """The ISR; None if the partition is not led here."""
        with self._lock:
            found = self._led.get(tp)
            return None if found is None else found.isr

    def due(self) -> dict[TopicPartition, Isr]:
        """The ISRs whose proposals are to be sent to the controller."""
        with self._lock:
            return {tp: self._led[tp].isr for tp in self._due}

    def commanded(self, tp: TopicPartition, state: Partition) -> Isr:
        """The ISR after the controller has named this node the leader: the one that is known here
        unless the controller's is newer.  Nothing changes yet."""
        now = Isr(
            state.leader, state.leader_epoch, state.partition_epoch, state.replicas, state.isr,
            bool(state.leader_recovery_state),
        )  # fmt: skip
        known = self.isr(tp)
        return now if known is None or told(known, now) else known

    # ---- changes -------------------------------------------------------------------------------

    def lead(self, tp: TopicPartition, isr: Isr) -> None:
        """The partition is led here from now on; the data plane gets its ISR.

        Raises: NotFound: the data plane does not have the partition.
        """
        with self._lock:
            self._put(tp, _Led(isr))
            self._publish(tp)

    def lead_published(self, tp: TopicPartition, isr: Isr) -> None:
        """As `lead`, when the data plane has the ISR already."""
        with self._lock:
            self._put(tp, _Led(isr))
            self.note_end(tp)

    def remove(self, tp: TopicPartition) -> None:
        """The partition is not led here any more."""
        with self._lock:
            self._led.pop(tp, None)
            self._due.discard(tp)

    def change(self, tp: TopicPartition, step: Callable[[Isr], Isr]) -> Isr | None:
        """The new state of the ISR; None if it is unchanged or no longer led here.

        Raises: NotFound: the data plane does not have the partition any more.
        """
        with self._lock:
            led = self._led.get(tp)
            after = None if led is None else step(led.isr)
            if led is None or after is None or after == led.isr:
                return None
            self._put(tp, led._replace(isr=after))
            self._publish(tp)
            return after

    def _put(self, tp: TopicPartition, led: _Led) -> None:
        self._led[tp] = led
        if led.isr.due:
            self._due.add(tp)
            self.news.set()
        else:
            self._due.discard(tp)

    def publish_all(self) -> None:
        """Let the data plane report again which followers have caught up."""
        for tp in self.partitions():
            with self._lock, suppress(NotFound):
                if tp in self._led:
                    self._publish(tp)

    def _publish(self, tp: TopicPartition) -> None:
        self._reactor.set_followers(*tp, followers(self._led[tp].isr, self._broker_epochs()))
        self.note_end(tp)

    # ---- handing over --------------------------------------------------------------------------

    def note_end(self, tp: TopicPartition) -> None:
        """Call it after the ISR or the role was passed to the data plane: while leaderships are
        handed over, this is when the partition begins or ceases to refuse acks=1."""
        with self._lock:
            led = self._led[tp]
            if not self.hands_over:
                return
            if len(led.isr.maximal) <= 1:
                self._led[tp] = led._replace(end=None)
            elif led.end is None:
                end = handle_of(self._open_logs[tp]).state().log_end_offset
                self._led[tp] = led._replace(end=end)

    def end(self, tp: TopicPartition) -> int:
        """The offset below which records may have been taken with acks=1, while the leadership is
        handed over; else 0."""
        with self._lock:
            found = self._led.get(tp)
            return 0 if found is None else found.end or 0

    def not_caught_up(self) -> list[TopicPartition]:
        """The partitions being handed over whose replicas in sync do not have all records yet."""
        with self._lock:
            return [
                tp
                for tp, led in self._led.items()
                if led.end is not None
                and (log := self._open_logs.get(tp)) is not None
                and not has_failed(log)
                and handle_of(log).high_watermark < led.end
            ]
