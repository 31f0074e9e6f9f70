"""A producer's permission to write in its transaction: asked of a coordinator, kept by guards.

Pure but for the guards.  The broker and the simulation of transactions over several nodes go
through it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafkalog.server.transactions.write_guards import Guard, Guards
from kafkalog.types import TopicPartition
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Permission"]


class Permission:
    """One question to a coordinator: may this producer write to these partitions?"""

    def __init__(
        self, guards: Guards, partitions: Collection[TopicPartition], producer_id: int, epoch: int,
        *, remote: bool,
    ) -> None:  # fmt: skip
        """Make it before the question is sent.

        `remote`: the coordinator is on another node, so that its marker may overtake its answer,
        and the guards begin now.  Otherwise they begin in the step that allows the write: no marker
        of the transaction was sent yet, and all those of the transaction before are written.
        """
        self.partitions = tuple(dict.fromkeys(partitions))  # a request may name one twice
        self._guards = guards
        self._producer = producer_id, epoch
        self._begun: dict[TopicPartition, Guard] = {}
        if remote:
            for where in self.partitions:
                self._begun[where] = guards.begin(where, producer_id, epoch)

    def answered(
        self, results: Mapping[TopicPartition, ErrorCode]
    ) -> dict[TopicPartition, Guard | None]:
        """Take the answer, which has an error or NONE for each partition.  Returns the guard under
        which each may be written; None: it may not.  The caller ends the guards."""
        return {where: self._guard(where, results[where]) for where in self.partitions}

    def _guard(self, where: TopicPartition, error: ErrorCode) -> Guard | None:
        guard = self._begun.get(where)
        if error is ErrorCode.NONE:
            return guard or self._guards.begin(where, *self._producer)
        if guard is not None:
            self._guards.end(guard)
        return None
