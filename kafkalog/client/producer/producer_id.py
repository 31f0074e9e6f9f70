"""A producer's id as state: which one it is, whether it can be used, when another one is needed.

It only decides: its owner asks the brokers (see identity.py).
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog import errors
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["NEVER_S", "ProducerId"]

NEVER_S = 3600.0
"""From now: nothing is due; something else wakes the thread."""
_FORGOTTEN = (
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""Codes by which a broker refuses an id, or a sequence of it, that it does not know."""


class ProducerId:
    """Id and epoch, and what is known about them."""

    def __init__(self, wanted: bool) -> None:
        """`wanted`: whether to get an id, if the brokers assign any."""
        self.transactional_id = ""
        self.producer_id, self.epoch = -1, -1
        self.ready = not wanted
        """True if records may be sent."""
        self.fatal: errors.KafkalogError | None = None
        """Why the producer can no longer be used."""
        self.error: errors.KafkalogError | None = None
        """Why the records that wait cannot be sent."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the id or epoch has changed."""
        self.refusals = 0
        """How often no broker gave an id."""
        self._wanted = wanted
        self._renew = False
        self._next_s = 0.0

    @property
    def pair(self) -> tuple[int, int]:
        """Id and epoch; -1: none."""
        return self.producer_id, self.epoch

    @property
    def renewing(self) -> bool:
        """True if another id is wanted: waiting records get new sequences."""
        return self._renew

    def due_s(self, now_s: float, quiet: Callable[[], bool]) -> float:
        """When an id must be asked for; `now_s`: now.  `quiet`: whether nothing is in flight."""
        if self.ready or not self._wanted:
            return now_s + NEVER_S
        if now_s < self._next_s:
            return self._next_s
        # With requests in flight, their answers wake the sender.
        return now_s + NEVER_S if self._renew and not quiet() else now_s

    def take(self, producer_id: int, epoch: int) -> None:
        """Use this id and epoch from now on."""
        self.producer_id, self.epoch = producer_id, epoch
        self.changed()

    def serve(self) -> None:
        """Sending may begin, without an id if the brokers assign none."""
        self._renew = False
        self.ready = True

    def refused(self, next_s: float) -> None:
        """No broker gave an id; `next_s`: when to ask again."""
        self.refusals += 1
        self._next_s = next_s

    def renew(self) -> None:
        """The sequences are lost: get another id as soon as nothing is in flight."""
        if self._wanted:
            self._renew = True
            self.ready = False

    def doom(self, problem: errors.KafkalogError) -> None:
        """The producer can no longer be used."""
        problem.fatal, problem.abortable = True, False
        self.fatal = self.fatal or problem

    def failed(self, problem: errors.KafkalogError, sent: bool) -> None:
        """A batch was given up; `sent`: its sequence is used up."""
        if sent and self.producer_id >= 0:
            self.renew()

    def forgotten(self, pair: tuple[int, int], code: int) -> bool:
        """True if a batch was refused because of its id: another one may help."""
        if self.transactional_id:
            return False
        if pair != self.pair:  # an earlier id; the batches after it were given up
            return code in _FORGOTTEN
        if code != ErrorCode.UNKNOWN_PRODUCER_ID:
            return False
        self.renew()
        return True
