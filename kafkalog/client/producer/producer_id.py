"""A producer's id as its state: which one it is, whether it serves, when another one is needed.

It decides and does nothing: whoever holds it asks the brokers (see identity.py).
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog import errors
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["NEVER_S", "ProducerId"]

NEVER_S = 3600.0
"""From now on: nothing is due; something else wakes whoever waits."""
_FORGOTTEN = (
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""A broker's words for an id, or a sequence of it, that it does not know."""


class ProducerId:
    """Id and epoch, and what is known of them."""

    def __init__(self, wanted: bool) -> None:
        """`wanted`: an id, where the brokers give any."""
        self.transactional_id = ""
        self.producer_id, self.epoch = -1, -1
        self.ready = not wanted
        """Whether records may be sent."""
        self.fatal: errors.KafkalogError | None = None
        """The producer is of no use any more: why."""
        self.error: errors.KafkalogError | None = None
        """What waits cannot be sent any more: why."""
        self.changed: Callable[[], None] = lambda: None
        """Called when there is another id or epoch."""
        self.refusals = 0
        """How often no id was given."""
        self._wanted = wanted
        self._renew = False
        self._next_s = 0.0

    @property
    def pair(self) -> tuple[int, int]:
        """Id and epoch; -1: none."""
        return self.producer_id, self.epoch

    @property
    def renewing(self) -> bool:
        """Whether another id is wanted: what waits gets new sequences."""
        return self._renew

    def due_s(self, now_s: float, quiet: Callable[[], bool]) -> float:
        """When an id is to be asked for; `now_s`: now.  `quiet`: whether nothing is on its way."""
        if self.ready or not self._wanted:
            return now_s + NEVER_S
        if now_s < self._next_s:
            return self._next_s
        # The answers wake us.
        return now_s + NEVER_S if self._renew and not quiet() else now_s

    def take(self, producer_id: int, epoch: int) -> None:
        """The id and epoch from now on."""
        self.producer_id, self.epoch = producer_id, epoch
        self.changed()

    def serve(self) -> None:
        """It was asked for and may be used; where brokers give none there is none."""
        self._renew = False
        self.ready = True

    def refused(self, next_s: float) -> None:
        """No broker gave one; `next_s`: when to ask again."""
        self.refusals += 1
        self._next_s = next_s

    def renew(self) -> None:
        """The sequences are lost: get another id as soon as nothing is on its way."""
        if self._wanted:
            self._renew = True
            self.ready = False

    def doom(self, problem: errors.KafkalogError) -> None:
        """The producer is of no use any more."""
        problem.fatal, problem.abortable = True, False
        self.fatal = self.fatal or problem

    def failed(self, problem: errors.KafkalogError, sent: bool) -> None:
        """A batch was given up; `sent`: its sequence is used up."""
        if sent and self.producer_id >= 0:
            self.renew()

    def forgotten(self, pair: tuple[int, int], code: int) -> bool:
        """Whether a batch with this id was not taken for its id's sake: another one may help."""
        if self.transactional_id:
            return False
        if pair != self.pair:  # of before; what was behind it was given up
            return code in _FORGOTTEN
        if code != ErrorCode.UNKNOWN_PRODUCER_ID:
            return False
        self.renew()
        return True
