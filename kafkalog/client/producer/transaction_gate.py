"""Where a producer's transactions begin and end, as application threads call for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from kafkalog import errors
from kafkalog.client.buffer.accumulator import Accumulator
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.producer.identity import Identity
from kafkalog.client.producer.sender import Sender
from kafkalog.client.producer.transaction_calls import Membership, Transactional
from kafkalog.types import TopicPartition

__all__ = ["Boundaries"]


class Boundaries:
    """The transactions of one producer, one after another; without a transactional id all fail."""

    def __init__(
        self,
        identity: Identity,
        sender: Sender,
        waiting: Accumulator,
        block_s: float,
        plain: bool,
    ) -> None:
        """`block_s`: time limit of calls to the coordinator; `plain`: as Accumulator.be_plain."""
        self._identity = identity
        self._sender = sender
        self._waiting = waiting
        self._block_s = block_s
        self._plain = plain

    @property
    def open(self) -> bool:
        """True if a transaction is open."""
        return isinstance(self._identity, Transactional) and self._identity.open

    @property
    def in_doubt(self) -> bool:
        """True if a commit was not answered."""
        return (
            isinstance(self._identity, Transactional)
            and self._identity.open
            and (self._identity.ending is True)
        )

    def check(self) -> None:
        """Raises: InvalidTxnState if records cannot be sent because no transaction is open."""
        if self._identity.transactional_id:
            if not self.open:
                raise errors.InvalidTxnState(
                    "no transaction is open: send within `with producer.transaction():`"
                )
            self._waiting.check_held()

    def whole(self) -> Any:
        """A context in which no other thread can end the transaction."""
        return self._waiting.many if self._identity.transactional_id else nullcontext()

    def _own(self) -> Transactional:
        if not isinstance(self._identity, Transactional):
            raise errors.InvalidTxnState("the producer has no transactional_id")
        if self._identity.fatal is not None:
            raise self._identity.fatal
        return self._identity

    def _opened(self) -> Transactional:
        identity = self._own()
        if not identity.open:
            raise errors.InvalidTxnState("no transaction is open")
        return identity

    def _ask(self, call: Callable[[Cluster], Any], until_s: float) -> Any:
        """Make a call to the coordinator."""
        self._waiting.waitable()
        return self._sender.tasks.ask(call, until_s - time.monotonic(), aside=True)

    def _drop(self, call: Callable[[], Any], until_s: float) -> None:
        """Run a call in the sender's thread, between its turns."""
        self._waiting.waitable()
        self._sender.tasks.ask(lambda _: call(), until_s - time.monotonic())

    def _until_s(self) -> float:
        """When a call that begins now must end."""
        return time.monotonic() + self._block_s

    # ---- begin -------------------------------------------------------------------------

    def initialise(self) -> None:
        """As Producer.init_transactions."""
        identity, until_s = self._own(), self._until_s()
        if identity.open and identity.ending is False:
            self.abort(until_s)  # retry an abort that was not answered
        identity.not_in_doubt()
        if identity.open:
            raise errors.InvalidTxnState("a transaction is open already")
        if not identity.ready:
            self._ask(identity.initialise, until_s)

    def begin(self) -> None:
        """As Producer.begin_transaction."""
        self.initialise()
        self._waiting.take_failure()
        self._own().begin()
        self._waiting.resume(self._plain)

    # ---- end ---------------------------------------------------------------------------

    def commit(self) -> None:
        """As Producer.commit_transaction."""
        turn = self._waiting.turn
        identity, until_s = self._opened(), self._until_s()
        identity.not_given_up()
        self._waiting.waitable()
        doubted, number = self.in_doubt, identity.begun_count

        def end(cluster: Cluster) -> None:  # another thread may have aborted it, and begun the next
            identity.not_given_up(number)
            identity.end(cluster, commit=True)

        with self.whole():  # all of a send_many, or nothing
            self._waiting.hold("the transaction is being committed", turn)
        # A Timeout here decides nothing: the transaction can still be committed.
        self._waiting.drain(self._block_s)
        try:
            self._ask(end, until_s)
        except errors.KafkalogError as problem:
            closed = isinstance(problem, errors.Closed)
            if identity.ending and not closed:
                raise errors.Timeout(
                    f"transactional id {identity.transactional_id!r}: the commit was not answered "
                    f"and may have succeeded: call commit_transaction again ({problem})"
                ) from problem
            # Another thread has ended it: an open one is the next.  A broker's answer about this
            # one is the identity's error.
            other = isinstance(problem, errors.InvalidTxnState) and problem is not identity.error
            if not closed and identity.open and not other:
                identity.spoil(problem)
                if doubted:  # refused in the end: the next transaction aborts this one first
                    identity.ending = False
            raise
        self._waiting.take_failure()

    def abort(self, until_s: float | None = None) -> None:
        """As Producer.abort_transaction; `until_s` None: within max.block.ms."""
        identity = self._opened()
        until_s = self._until_s() if until_s is None else until_s
        self._waiting.waitable()
        identity.decide(commit=False)
        why = errors.TransactionAborted(
            f"transactional id {identity.transactional_id!r}: the transaction was aborted"
        )

        def give_up() -> None:  # in the sender's thread, which sends nothing between the two steps
            self._waiting.hold("the transaction is being aborted")
            self._sender.drop_all(why)

        self._drop(give_up, until_s)
        while self._waiting.pending():  # requests in flight, which may have failed since
            if time.monotonic() >= until_s:
                raise errors.Timeout(
                    f"transactional id {identity.transactional_id!r}: requests sent before the "
                    "abort are not answered: the next transaction aborts this one first"
                )
            with suppress(errors.Timeout):
                self._waiting.drain(0.05)
            self._drop(lambda: self._sender.drop_all(why), until_s)
        self._ask(lambda cluster: identity.end(cluster, commit=False), until_s)
        self._waiting.take_failure()

    def roll_back(self, until_s: float | None = None) -> None:
        """Abort after a failure, which says more than a failure of this; `until_s`: as `abort`."""
        if self.open and self._identity.fatal is None:
            with suppress(errors.KafkalogError):
                self.abort(until_s)

    # ---- offsets -----------------------------------------------------------------------

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | tuple[int, int, str | None]],
        group: str | Membership,
    ) -> None:
        """As Producer.send_offsets."""
        identity = self._opened()
        self._waiting.check_held()
        by = GroupMetadata(group) if isinstance(group, str) else group
        rows: dict[TopicPartition, CommittedOffset] = {}
        for tp, what in offsets.items():
            given = (what,) if isinstance(what, int) else what
            one = CommittedOffset(*given)
            # Without metadata it is null, not empty.
            rows[TopicPartition(*tp)] = one if len(given) > 2 else one._replace(metadata=None)
        if rows:
            try:
                self._ask(lambda cluster: identity.send_offsets(cluster, rows, by), self._until_s())
            except errors.InvalidTxnState:  # another thread has ended it
                raise
            except errors.KafkalogError as problem:
                identity.error = identity.error or problem
                raise
