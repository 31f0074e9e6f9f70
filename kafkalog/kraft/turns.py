"""Changes from several threads at the same time share one sync."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafkalog.errors import KafkalogError, for_clients
from kafkalog.kraft.plan import Plan, Record
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import MetadataImage
from kafkalog.metadata.requests import Result
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["Turn", "Turns", "failed"]

_logger = limited(__name__)


class Turn:
    """A change with a waiting caller: planned, appended, and, after the sync, settled."""

    def __init__(
        self,
        plan_of: Callable[[MetadataImage], Plan],
        settle: Callable[[list[Result]], None] | None = None,
    ) -> None:
        """`settle` gets the results once the change is visible."""
        self._plan_of = plan_of
        self._settle = settle
        self._results: list[Result] = []
        self._failure: BaseException | None = None
        self._wrote = False
        self.done = False

    def begin(
        self, image: MetadataImage, append: Callable[[Sequence[Record]], None], where: str
    ) -> None:
        """Append the change on top of `image`; on disk after the next sync."""
        try:
            plan = self._plan_of(image)
        except Exception as error:
            self.fail(error)
            return
        self._results, self._wrote = plan.results, bool(plan.records)
        try:
            append(plan.records)
        except KafkalogError as error:
            self.lose(error, where)

    def lose(self, error: KafkalogError, where: str) -> None:
        """The records did not reach the disk."""
        if self._wrote and not self.done:
            self._wrote = False
            _logger.error("%s: %s", where, error)
            for result in self._results:
                if not result["error_code"]:
                    result.update(failed(error))

    def end(self) -> None:
        """The change is visible."""
        if self._settle is not None and not self.done:
            self._settle(self._results)
        self.done = True

    def fail(self, error: BaseException) -> None:
        """Let `results` raise."""
        if not self.done:
            self._failure, self.done = error, True

    def results(self) -> list[Result]:
        """One result per requested item.

        Raises: the error of planning the change.
        """
        if self._failure is not None:
            raise self._failure
        return self._results


class Turns:
    """The waiting threads.  Safe to use from many threads."""

    def __init__(self) -> None:
        self._waiting: deque[Turn] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, turn: Turn) -> None:
        """Wait to become the thread that takes the next ones."""
        self._waiting.append(turn)

    @contextmanager
    def taken(self) -> Iterator[list[Turn]]:
        """All waiting turns; at the end each has its results or an error."""
        found = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            yield found
        except KafkalogError as error:
            for turn in found:
                turn.fail(error)
        except BaseException:
            for turn in found:  # the thread that carried them out already has the error
                turn.fail(RuntimeError("the change of another thread failed, and this one with it"))
            raise


def failed(error: KafkalogError) -> dict[str, Any]:
    """The result for a change that could not be made."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR if error.code is None else error.code
    return {"error_code": int(code), "error_message": for_clients(error)}
