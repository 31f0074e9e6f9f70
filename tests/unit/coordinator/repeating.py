"""The network side in front of a coordinator, in virtual time: it repeats answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Network", "RepeatedAnswer"]


class RepeatedAnswer:
    """An answer that is repeated until it is ended."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.body: dict[str, Any] | None = None
        self.ended = False
        self.heard_ms: int | None = None
        self._now = now

    @property
    def silence_ms(self) -> int | None:
        """How long ago it was last repeated."""
        return None if self.heard_ms is None else self._now() - self.heard_ms

    def end(self) -> None:
        """The next request reaches the coordinator."""
        self.ended = True


class Network:
    """The connections, each with its last repeated answer."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._kept: dict[str, tuple[bytes, RepeatedAnswer]] = {}
        self.count = 0
        """Requests that did not reach the coordinator."""

    def clear(self) -> None:
        """All connections are closed."""
        self._kept.clear()

    def answered(self, connection: str, request: bytes) -> dict[str, Any] | None:
        """The answer to a request that does not reach the coordinator; None: it does."""
        before, answer = self._kept.get(connection, (b"", RepeatedAnswer(self._now)))
        if before != request or answer.ended or answer.body is None:
            return None
        self.count += 1
        answer.heard_ms = self._now()
        return answer.body

    def passing(
        self, connection: str, request: bytes, answer: Callable[[dict[str, Any]], None]
    ) -> tuple[Callable[[dict[str, Any]], None], Callable[[], RepeatedAnswer]]:
        """A request reaches the coordinator: how it is answered, and how that is repeated."""
        made: list[RepeatedAnswer] = []

        def repeat() -> RepeatedAnswer:
            made.append(RepeatedAnswer(self._now))
            return made[-1]

        def told(body: dict[str, Any]) -> None:
            for one in made:
                one.body = body
                self._kept[connection] = request, one
            answer(body)

        return told, repeat
