"""Commits in the background: their order and outcomes.  It only decides: no clock, no socket, no
thread.  The Committer carries it out."""

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
    """Offsets to commit in the background, later with the outcome."""

    offsets: Offsets
    member: GroupMetadata
    callback: Callback | None
    until_s: float
    """The time limit, by the clock, with the wait for earlier commits."""
    problem: errors.KafkalogError | None = None
    ids: Ids = MappingProxyType({})
    """Known ids of the topics that were read."""

    def left_ms(self, now_s: float, patience_ms: float) -> int:
        """How much is left of the `patience_ms` that it was given.

        Raises: Timeout: earlier commits took all of its time.
        """
        left_ms = round((self.until_s - now_s) * 1000)
        if left_ms <= 0:
            raise errors.Timeout(
                f"group {self.member.group!r}: earlier commits took {patience_ms:g} ms: this one "
                "was not sent"
            )
        return left_ms


class Commits:
    """The commits of one consumer: one is in flight at a time."""

    def __init__(self) -> None:
        self.now: Committing | None = None
        """The commit in flight."""
        self._waiting: deque[Committing] = deque()
        self._done: deque[Committing] = deque()

    def __len__(self) -> int:
        """The number of commits that wait."""
        return len(self._waiting)

    @property
    def quiet(self) -> bool:
        """True if none is in flight or waits."""
        return not self._waiting and self.now is None

    def add(self, committing: Committing) -> None:
        """Append a commit.

        Waiting commits without a callback are merged: a commit per record does not pile up.
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
        """The next commit, in flight from now on; None: there is none."""
        if self._waiting:
            self.now = self._waiting.popleft()
            return self.now
        return None

    def ended(self, given: Committing, problem: errors.KafkalogError | None) -> None:
        """A commit has ended; `problem`: None: it succeeded.  One that was given up has ended."""
        if self.now is given:
            self.now = None
            self._done.append(given._replace(problem=problem))

    def give_up(self, problem: errors.KafkalogError) -> None:
        """End every unfinished commit with this failure."""
        left = [*([] if self.now is None else [self.now]), *self._waiting]
        self.now = None
        self._waiting.clear()
        self._done += [one._replace(problem=problem) for one in left]

    def finished(self) -> Committing | None:
        """The oldest commit that has ended, each once; None: there is none."""
        return self._done.popleft() if self._done else None
