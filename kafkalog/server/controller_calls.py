"""Requests that a cluster node sends to its controller for clients, in threads of their own: the
I/O threads continue if the controller is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkalogError, Timeout
from kafkalog.server.failures import code_of
from kafkalog.server.threads.bulk import Bulk
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.image import Change
    from kafkalog.metadata.requests import NewTopics, Result
    from kafkalog.replication.membership import Membership

__all__ = ["Ask", "Errands", "codes"]

PATIENCE_S = 1.0
"""How long a request that needs a topic waits for its creation."""
LEADERS_S = 0.2
"""How long it then waits for the new topic's leaders."""
WAITING_MAX = 1_000
WAITING_BYTES_MAX = 67_108_864
"""Clients' requests that may wait for a silent controller, and what they may take, decoded; once
they do, any more get a retriable error."""
NAMES_MAX = 10_000
"""Topics being created because a client used them."""
Ask = Callable[[Api, Any, int | None], Any]
UNDER_WAY = ErrorCode.REQUEST_TIMED_OUT


def codes(results: Iterable[Result]) -> dict[str, ErrorCode]:
    """The outcome of CreateTopics, by topic."""
    return {result["name"]: ErrorCode(result["error_code"]) for result in results}


class Errands:
    """Two threads, each with its own connection to the controller: a client's request waits for
    earlier clients' requests, but never delays this node's own."""

    def __init__(self, member: Membership, name: str) -> None:
        self._member = member
        self._line = member.line()
        self._forwards = Bulk(f"{name} forwards")
        self._own = Bulk(f"{name} errands")
        self._lock = threading.Lock()  # guards what follows
        self._under_way: set[str] = set()
        self._waiting_bytes = 0
        self._news = threading.Condition()
        member.listen(self._changed)
        self._early: set[str] = set()

    def stop(self) -> None:
        """Stop; requests that the controller has not answered are abandoned."""
        self._line.close()
        self._member.ask_no_more()
        self._forwards.stop()
        self._own.stop()

    def is_early(self, topic: str, early: bool) -> bool:
        """Remember whether a topic must wait for more nodes; returns whether that is news."""
        with self._lock:
            news = early and topic not in self._early
            (self._early.add if early else self._early.discard)(topic)
            return news

    @property
    def early(self) -> list[str]:
        """The topics that must wait for more nodes."""
        with self._lock:
            return sorted(self._early)

    def forward(self, work: Callable[[Ask], None], size: int) -> None:
        """Run `work`, which asks the controller, in its turn; `work` handles its own failures.
        `size`: the memory of its request, in bytes.

        Raises: Timeout: too many wait.
        """
        with self._lock:
            waiting, full = self._forwards.waiting, self._waiting_bytes >= WAITING_BYTES_MAX
            if waiting >= WAITING_MAX or full:
                raise Timeout(f"the controller does not answer: {waiting} requests wait for it, of "
                              f"{self._waiting_bytes} bytes")  # fmt: skip
            self._waiting_bytes += size

        def run() -> None:
            try:
                work(self._line.ask)
            finally:
                with self._lock:
                    self._waiting_bytes -= size

        self._forwards.submit(run)

    def later(self, work: Callable[[], None]) -> None:
        """Run a request of this node's own to the controller."""
        self._own.submit(work)

    def create_later(self, wanted: NewTopics) -> None:
        """Create topics for which no client waits; one that wants them asks again."""

        def run() -> None:
            with suppress(KafkalogError):
                self._member.create_topics(wanted)

        self.later(run)

    def create_topics(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        """The outcome by topic; REQUEST_TIMED_OUT if it is in progress, or too many are.

        At most one caller waits, and briefly, until the topics have leaders in this node's
        metadata: clients that want a topic retry.
        """
        with self._lock:
            room = NAMES_MAX - len(self._under_way)
            mine = [one for one in wanted.topics if one.name not in self._under_way][:room]
            alone = not self._under_way
            self._under_way.update(one.name for one in mine)
        found = dict.fromkeys((one.name for one in wanted.topics), UNDER_WAY)
        done = threading.Event()

        def run() -> None:
            try:
                made = codes(self._member.create_topics(wanted._replace(topics=mine)))
                self._await_leaders([name for name, code in made.items() if not code])
                found.update(made)
            except KafkalogError as problem:
                found.update((one.name, code_of(problem)) for one in mine)
            finally:
                with self._lock:
                    self._under_way.difference_update(one.name for one in mine)
                done.set()

        if mine:
            self.later(run)
            if alone and done.wait(PATIENCE_S):
                return found
        return dict.fromkeys(found, UNDER_WAY)

    def _changed(self, _change: Change) -> None:
        with self._news:
            self._news.notify_all()

    def _await_leaders(self, names: list[str]) -> None:
        """Wait a moment for the controller's news of new topics."""

        def led() -> bool:
            topics = [self._member.image.topics.get(name) for name in names]
            return all(
                topic is not None and all(one.leader >= 0 for one in topic.partitions.values())
                for topic in topics
            )

        with self._news:
            self._news.wait_for(led, LEADERS_S)
