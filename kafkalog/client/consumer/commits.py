"""Commits in the background: their order, what becomes of each.  It decides and does nothing else:
no clock, no socket, no thread.  The Committer does it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.calls.groups import CommittedOffset, GroupMetadata, Ids
from kafkalog.types import TopicPartition

__all__ = ["Callback", "Commits", "Committing", "Offsets"]

Offsets = Mapping[TopicPartition, CommittedOffset]
Callback = Callable[[Offsets, "errors.KafkalogError | None"], object]


class Committing(NamedTuple):
    """Offsets that are committed in the background, and then how that went."""

    offsets: Offsets
    member: GroupMetadata
    callback: Callback | None
    until_s: float
    """By the clock: it is not tried for longer, however long those before it take."""
    problem: errors.KafkalogError | None = None
    ids: Ids = MappingProxyType({})
    """Of the topics that were read, as far as they are known."""

    def left_ms(self, now_s: float, patience_ms: float) -> int:
        """How long it may be tried yet, of `patience_ms` that it was given.

        Raises: Timeout: those before it took all of its time.
        """
        left_ms = round((self.until_s - now_s) * 1000)
        if left_ms <= 0:
            raise errors.Timeout(
                f"group {self.member.group!r}: its turn to commit did not come in {patience_ms:g} "
                "ms"
            )
        return left_ms


class Commits:
    """Those of one consumer: one is under way at a time."""

    def __init__(self) -> None:
        self.now: Committing | None = None
        """What is under way."""
        self._waiting: deque[Committing] = deque()
        self._done: deque[Committing] = deque()

    def __len__(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    @property
    def quiet(self) -> bool:
        """Whether none is under way, or waits."""
        return not self._waiting and self.now is None

    def add(self, committing: Committing) -> None:
        """One more, behind the others.

        What waits and nobody asked about goes with the next: a commit a record is not kept.
        """
        last = self._waiting[-1] if self._waiting else committing
        unasked = last.callback is None and committing.callback is None
        same = all(committing.ids.get(name, one) == one for name, one in last.ids.items())
        if self._waiting and unasked and same and last.member == committing.member:
            self._waiting.pop()
            committing = committing._replace(
                offsets={**last.offsets, **committing.offsets}, ids={**last.ids, **committing.ids}
            )
        self._waiting.append(committing)

    def next(self) -> Committing | None:
        """The one whose turn it is, under way from now on; None: there is none."""
        if self._waiting:
            self.now = self._waiting.popleft()
            return self.now
        return None

    def ended(self, given: Committing, problem: errors.KafkalogError | None) -> None:
        """This one is over; `problem`: None for a yes.  One that was given up is over already."""
        if self.now is given:
            self.now = None
            self._done.append(given._replace(problem=problem))

    def give_up(self, problem: errors.KafkalogError) -> None:
        """Whatever has not ended has failed so."""
        left = [*([] if self.now is None else [self.now]), *self._waiting]
        self.now = None
        self._waiting.clear()
        self._done += [one._replace(problem=problem) for one in left]

    def finished(self) -> Committing | None:
        """The oldest that has ended and was not told of; None: there is none."""
        return self._done.popleft() if self._done else None
