"""The effect of a marker's outcome on its transaction.

Pure.  As in Kafka, a leader's word is not enough to leave a partition without the marker: one that
has just started may not know its partitions yet.  Only the coordinator's own metadata say that a
partition was deleted.

Source: Kafka's TransactionMarkerRequestCompletionHandler, with two exceptions: Kafka's coordinator
stops writing markers when a partition knows a newer coordinator, and after errors that it does not
expect.  Ours retries, because the transaction is still open there.
"""

from __future__ import annotations

from enum import Enum

from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Outcome", "outcome_of"]


class Outcome(Enum):
    """The next action for a partition of a decided transaction."""

    DONE = "the transaction is over in the partition"
    GONE = "the partition was deleted"
    UNSUPPORTED = "the partition never held records of a transaction"
    AGAIN = "the marker is sent again"
    FENCED = "the marker is sent again, much later"

    @property
    def final(self) -> bool:
        """True if the partition needs no marker any more."""
        return self not in (Outcome.AGAIN, Outcome.FENCED)


_ALWAYS = {
    ErrorCode.NONE: Outcome.DONE,
    # The log has a newer epoch of the producer, which begins once the transaction is over.
    ErrorCode.INVALID_PRODUCER_EPOCH: Outcome.DONE,
    # Records before message format 2, in Kafka up to 3.9.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Outcome.UNSUPPORTED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Outcome.FENCED,
}


def outcome_of(error: ErrorCode, exists: bool) -> Outcome:
    """The meaning of a marker's error code, from this node's log or another leader's answer.

    `exists`: whether this coordinator's metadata have the partition.
    """
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not exists:
        return Outcome.GONE
    return _ALWAYS.get(error, Outcome.AGAIN)
