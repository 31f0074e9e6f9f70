"""What a poll asks for by the way: done as far as the answers have come, and gone on with later."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafkalog import errors
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.failures import passing
from kafkalog.client.link.patience import NotYet

__all__ = ["Errands"]

_logger = logging.getLogger(__name__)


class Errands:
    """By name, each alone: one that waits or fails holds up no other."""

    def __init__(self, cluster: Cluster) -> None:
        self.behind = False
        """Whether one waits for an answer since this was set to False."""
        self._cluster = cluster
        self._pauses: dict[str, tuple[float, float]] = {}
        """Of those that failed: when they are tried again, by the clock, and the pause in ms."""

    def run(self, name: str, until_s: float, ask: Callable[[], None]) -> bool:
        """Ask for something: whether that is done.  What is not answered by `until_s`
        (time.monotonic), and what fails for a time, is called again later.

        Raises: what lasts; why no broker was ever reached; WakeUp.
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
            if not passing(problem) or not cluster.reached:
                raise
            _logger.info("%s: tried again", problem)
            pause_ms = min(
                max(options.retry_backoff_ms, pause_ms * 2), options.retry_backoff_max_ms
            )
            self._pauses[name] = cluster.clock.monotonic_s() + pause_ms / 1000, pause_ms
            cluster.forget()
            cluster.forget_coordinators()
            return False
        self._pauses.pop(name, None)
        return True

    def waits(self, name: str) -> bool:
        """Whether that one goes on by itself: when it is answered, or its pause is over."""
        return self.behind or name in self._pauses

    def pauses_s(self) -> list[float]:
        """How long the pauses are yet."""
        now_s = self._cluster.clock.monotonic_s()
        return [again_s - now_s for again_s, _ in self._pauses.values() if again_s > now_s]
