"""What a node of a cluster has its controller do for clients, in threads that may wait for it: the
I/O threads go on where it is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkalogError, Timeout
from kafkalog.server.codes import code_of
from kafkalog.server.threads.bulk import Bulk
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.metadata.plan import Result
    from kafkalog.metadata.requests import NewTopics
    from kafkalog.replication.membership import Membership

__all__ = ["Ask", "Errands", "codes"]

PATIENCE_S = 1.0
"""How long a request that needs a topic waits for its creation."""
WAITING_MAX = 1_000
"""What clients ask of a controller that does not answer, until they are told to come again; their
requests' bytes count among queued.max.request.bytes besides."""
NAMES_MAX = 10_000
"""Topics that are being made because somebody used them."""
Ask = Callable[[Api, Any, int | None], Any]
UNDER_WAY = ErrorCode.REQUEST_TIMED_OUT


def codes(results: Iterable[Result]) -> dict[str, ErrorCode]:
    """Of CreateTopics, by topic."""
    return {result["name"]: ErrorCode(result["error_code"]) for result in results}


class Errands:
    """Two threads and a line to the controller each: what clients ask of it waits for what they
    asked before, and for nothing of this node's own."""

    def __init__(self, member: Membership, name: str) -> None:
        self._member = member
        self._line = member.line()
        self._forwards = Bulk(f"{name} forwards")
        self._own = Bulk(f"{name} errands")
        self._lock = threading.Lock()  # guards what follows
        self._under_way: set[str] = set()

    def stop(self) -> None:
        """End; what the controller has not answered is given up."""
        self._line.close()
        self._member.ask_no_more()
        self._forwards.stop()
        self._own.stop()

    def forward(self, work: Callable[[Ask], None]) -> None:
        """Have `work` ask the controller, when its turn comes; it answers for its failures.

        Raises: Timeout: too many wait.
        """
        if self._forwards.waiting >= WAITING_MAX:
            raise Timeout(f"the controller does not answer: {WAITING_MAX} requests wait for it")
        self._forwards.submit(lambda: work(self._line.ask))

    def later(self, work: Callable[[], None]) -> None:
        """Run what asks the controller something of this node's own."""
        self._own.submit(work)

    def create_topics(self, wanted: NewTopics) -> dict[str, ErrorCode]:
        """How it went, by topic; REQUEST_TIMED_OUT: it is under way, or too many are.

        One caller at most waits, and not for long: clients that want a topic come again.
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
                found.update(codes(self._member.create_topics(wanted._replace(topics=mine))))
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
