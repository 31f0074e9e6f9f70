"""The requests that wait for a thread, or have one: how many, and which is the next."""

from __future__ import annotations

import asyncio
import threading

from kafkalog.console.asked import Refused
from kafkalog.console.readers import READERS_MAX

__all__ = ["AT_ONCE_MAX", "OF_SESSION_MAX", "SEARCHES_MAX", "THREADS", "WAITING_MAX", "Turn",
           "Turns"]  # fmt: skip

THREADS = 8
"""Requests that ask brokers at the same time."""
AT_ONCE_MAX = 3
"""Those of one session; its others wait, so that none takes all threads."""
SEARCHES_MAX = READERS_MAX
"""Requests that read records at the same time; the threads that are left answer all others."""
WAITING_MAX, OF_SESSION_MAX = 48, 16
"""Requests that wait or are served, together and of one session; another one is refused."""


class Turn:
    """A request."""

    def __init__(self, session: str, searches: bool) -> None:
        self.session = session
        self.searches = searches
        """It reads records."""
        self.comes = asyncio.Event()
        """Set when it may begin."""
        self.gone = threading.Event()
        """Set when nobody waits for its answer any more."""


class Turns:
    """Requests in the order in which they came.  One thread."""

    def __init__(self) -> None:
        """There are none."""
        self._inside: list[Turn] = []

    def __len__(self) -> int:
        """Those that wait or are served."""
        return len(self._inside)

    def enter(self, session: str, searches: bool) -> Turn:
        """A request has come; it ends with `leave`.  Raises: Refused: there are too many."""
        if sum(one.session == session for one in self._inside) >= OF_SESSION_MAX:
            raise Refused(429, f"found {OF_SESSION_MAX} requests of this session, wanted fewer")
        if len(self._inside) >= WAITING_MAX:
            raise Refused(503, f"found {WAITING_MAX} requests in progress, wanted fewer")
        turn = Turn(session, searches)
        self._inside.append(turn)
        self._go_on()
        return turn

    def leave(self, turn: Turn) -> None:
        """It has its answer, or wants none any more: others may begin."""
        self._inside.remove(turn)
        self._go_on()

    def _go_on(self) -> None:
        begun = [one for one in self._inside if one.comes.is_set()]
        for one in self._inside:
            if not one.comes.is_set() and _may_begin(one, begun):
                one.comes.set()
                begun.append(one)


def _may_begin(turn: Turn, begun: list[Turn]) -> bool:
    """A request that waits for its own session's others, or for searches, holds up nothing else."""
    return (
        len(begun) < THREADS
        and sum(one.session == turn.session for one in begun) < AT_ONCE_MAX
        and not (turn.searches and sum(one.searches for one in begun) >= SEARCHES_MAX)
    )
