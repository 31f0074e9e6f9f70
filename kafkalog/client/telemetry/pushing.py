"""The metrics of a client that has no thread for them: it starts one once a broker wants them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kafkalog import errors
from kafkalog.client.link.background import Background
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.telemetry.payload import Reading
from kafkalog.client.telemetry.reporter import Reporter

__all__ = ["Pushing"]

_logger = logging.getLogger(__name__)


class Pushing(Background):
    """A reporter and its thread, which has connections of its own."""

    def __init__(self, cluster: Cluster, kind: str, reading: Reading) -> None:
        """`cluster`: the client's; as Reporter."""
        super().__init__(
            Cluster(cluster, cluster.options, cluster.clock), "kafkalog-metrics", lambda: None
        )
        self.reporter = Reporter(cluster, kind, reading)
        self._wanted = False

    def look(self, cluster: Cluster) -> None:
        """In the turns of the client: find out if a broker wants metrics; from then on the thread
        sends them.  It asks over a connection that is open and waits for nothing: a later turn
        takes the answer.  Raises: WakeUp."""
        if self._wanted or not self.reporter.wanted(cluster):
            return
        with self._condition:
            self._wanted = True
            try:
                self._wake()
            except RuntimeError as problem:  # no thread can be started now
                _logger.debug("metrics are not sent yet: %s", problem)
                self._wanted = False

    def end(self, cluster: Cluster) -> None:
        """Send the last metrics, as Reporter.end, and end the thread."""
        self.reporter.end(cluster)
        self.stop()

    # ---- the thread --------------------------------------------------------------------

    def _due(self) -> Callable[[], None] | float | None:
        due_s = self.reporter.due_s
        if due_s > self.clock.monotonic_s():
            return due_s
        return partial(self.reporter.run, self.cluster)

    def _failed(self, problem: errors.KafkalogError) -> None:
        self._wanted = False
