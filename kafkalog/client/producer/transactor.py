"""The part of a producer that begins and ends transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from kafkalog.client.link.not_copied import Handle
from kafkalog.client.producer.identity import Identity
from kafkalog.client.producer.transaction_calls import Membership
from kafkalog.client.producer.transaction_gate import Boundaries
from kafkalog.types import TopicPartition

__all__ = ["Transactor"]

Self = TypeVar("Self", bound="Transactor")


class Transactor(Handle):
    """A producer's id and its transactions, one after another."""

    _boundaries: Boundaries
    _identity: Identity
    _closed: bool

    if TYPE_CHECKING:

        def _check(self, transaction: bool = True) -> None:
            """As Producer's."""

    @property
    def producer_id(self) -> int:
        """The id that the brokers gave; -1: none yet."""
        return self._identity.producer_id

    @property
    def in_doubt(self) -> bool:
        """True if a commit was not answered: call `commit_transaction` again, which settles it."""
        return self._boundaries.in_doubt

    def init_transactions(self) -> None:
        """Get the producer's id now, not when the first transaction begins: any other producer with
        this transactional id is fenced, and its open transaction is aborted when this returns.
        Harmless when repeated.

        Raises: InvalidTxnState (one is open), ProducerFenced, Timeout, what the broker answers.
        """
        self._check(transaction=False)
        self._boundaries.initialise()

    def begin_transaction(self) -> None:
        """Begin a transaction; the first one calls init_transactions if that was not done.

        Raises: as init_transactions.
        """
        self._check(transaction=False)
        self._boundaries.begin()

    def commit_transaction(self) -> None:
        """Wait until everything is acknowledged, and commit.  Records that other threads send
        during the commit are refused with InvalidTxnState.

        Raises: the failure that makes a commit impossible: then abort; ProducerFenced: then close;
        Timeout: the outcome is not known: then call this again, which settles it; InvalidTxnState
        after an abort that was not answered.
        """
        self._check(transaction=False)
        self._boundaries.commit()

    def abort_transaction(self) -> None:
        """Give up records that were not sent, and abort.

        Raises: ProducerFenced, Timeout, what the broker answers; InvalidTxnState after a commit
        that was not answered.
        """
        self._check(transaction=False)
        self._boundaries.abort()

    @contextmanager
    def transaction(self: Self) -> Iterator[Self]:
        """A transaction as a block: committed at its end, aborted when it raises.

        Raises: as begin_transaction and commit_transaction; if the commit is impossible, the
        transaction was aborted.  After a commit that was not answered (Timeout) it may be
        committed: call commit_transaction before the next block.
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if not self._closed:
            self._boundaries.roll_back()

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | tuple[int, int, str | None]],
        group: str | Membership,
    ) -> None:
        """Commit a group's offsets with the transaction.

        `offsets`: by partition the next offset to read, or (offset, leader epoch, metadata).
        `group`: a consumer's group_metadata(), or the id of a group without members.

        Raises: what the broker answers; the transaction can then only be aborted.
        """
        self._check(transaction=False)
        self._boundaries.send_offsets(offsets, group)
