"""Lookups made during polls: each poll does as much as was answered, and later ones continue."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkalog import errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import passing
from kafkalog.client.link.handling import Troubles
from kafkalog.client.link.patience import NotYet

__all__ = ["Lookups"]

_logger = logging.getLogger(__name__)


class Lookups:
    """Lookups by name, independent of each other: one that waits or fails holds up no other."""

    def __init__(self, cluster: Cluster) -> None:
        self.behind = False
        """True if one has waited for an answer since this was last set to False."""
        self._cluster = cluster
        self._pauses: dict[str, tuple[float, float]] = {}
        """Failed requests: when each is retried, by the clock, and the backoff in ms."""
        self._troubles = Troubles[str]()

    def run(self, name: str, until_s: float, ask: Callable[[], None]) -> bool:
        """Make a lookup; returns whether it is done.  A later call continues what is not answered
        by `until_s` (time.monotonic), and retries transient failures.

        Raises: a permanent failure; why no broker was ever reached; WakeUp.
        """
        cluster, options = self._cluster, self._cluster.options
        again_s, pause_ms = self._pauses.get(name, (0.0, 0.0))
        if again_s > cluster.clock.monotonic_s():
            return False
        try:
            with cluster.patience.errand_of(name, until_s):
                ask()
        except NotYet:
            self.behind = True
            return False
        except errors.KafkalogError as problem:
            now_s = cluster.clock.monotonic_s()
            pause_ms = min(
                max(options.retry_backoff_ms, pause_ms * 2), options.retry_backoff_max_ms
            )
            if problem.code is not None:  # else no broker has refused it
                self._pauses[name] = now_s + pause_ms / 1000, pause_ms
            if not passing(problem) or not cluster.reached:
                raise
            self._pauses[name] = now_s + pause_ms / 1000, pause_ms
            if self._troubles.failed(name, problem, now_s):
                _logger.warning("looking for %s, trying again: %s", name, problem)
            cluster.forget()
            cluster.forget_coordinators()
            return False
        self._pauses.pop(name, None)
        self._troubles.ended(name)
        return True

    def waits(self, name: str) -> bool:
        """True if it continues by itself, after an answer or a backoff."""
        return self.behind or name in self._pauses

    def pauses_s(self) -> list[float]:
        """The backoffs that still last, in seconds."""
        now_s = self._cluster.clock.monotonic_s()
        return [again_s - now_s for again_s, _ in self._pauses.values() if again_s > now_s]
