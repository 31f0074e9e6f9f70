"""The part of a broker, and of a controller alone, that shows its metrics."""

from __future__ import annotations

from kafkalog.metrics.metric import Readings
from kafkalog.server.metrics.watch import Watch
from kafkalog.telemetry.pushed import PushedMetrics

__all__ = ["Watched", "readings_of"]


class Watched:
    """A node with metrics."""

    _watch: Watch | None = None
    """It ends before all other parts; None: the node could not even begin."""

    def _check(self) -> None:
        """Raises: Closed, ForkedHandle."""

    def _here(self) -> None:
        """Raises: ForkedHandle."""

    @property
    def _watching(self) -> Watch:
        assert self._watch is not None
        return self._watch

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def metrics(self) -> dict[str, float]:
        """All metrics now, by name and labels (docs/metrics.md): `name`, `name{label="value"}`; of
        a histogram its `_count` and its `_sum`.

        Raises: Closed.
        """
        return readings_of(self).flat()

    def client_metrics(self) -> list[PushedMetrics]:
        """The clients that send metrics (KIP-714) and what each has sent to this broker, by the
        client's instance id; what subscriptions ask for: docs/metrics.md.

        Raises: Closed.
        """
        self._check()
        return self._watching.client_metrics()

    @property
    def http_address(self) -> str:
        """Where it serves /metrics and /health: host:port; empty without kafkalog.http.listen."""
        self._here()
        return self._watching.address

    @property
    def http_url(self) -> str:
        """The same as a URL, at which kafkalog.console.enable puts the console."""
        self._here()
        return self._watching.url


def readings_of(node: Watched) -> Readings:
    """The metrics of a node now, for use inside this project.

    Raises: Closed, ForkedHandle.
    """
    node._check()
    return node._watching.readings()
