"""Waits for something unavailable: a broker that restarts, a directory that is in use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

T = TypeVar("T")
_log = logging.getLogger("pyspark_kafkalog")


class Patience(NamedTuple):
    """How long to retry a step, and the pauses between attempts, in milliseconds."""

    wait_ms: int
    backoff_ms: int = 100
    backoff_max_ms: int = 1_000


def patiently(step: Callable[[], T], patience: Patience, what: str) -> T:
    """The result of `step`, retried while it fails with a temporary error.

    `what`: the broker or directory that `step` needs, for the log.  Our client does not wait for
    brokers that have never answered it, and every plan and every delivery has its own client:
    without this, a query would end when a broker restarts.

    Raises: the last failure.
    """
    from kafkalog import KafkalogError
    from kafkalog.client.link.cluster import Backoff
    from kafkalog.client.link.failures import passing
    from kafkalog.client.link.transport import Options
    from kafkalog.clock import SystemClock

    options = Options(
        retry_backoff_ms=patience.backoff_ms, retry_backoff_max_ms=patience.backoff_max_ms
    )
    backoff = Backoff(options, SystemClock(), patience.wait_ms)
    warned = False
    while True:
        try:
            return step()
        except KafkalogError as error:
            if not passing(error) or backoff.over():
                raise
            if not warned:
                warned = True
                found = f"{type(error).__name__}: {error}"
                wait_s = patience.wait_ms / 1000
                _log.warning("%s: %s; retrying for up to %g s", what, found, wait_s)
        backoff.wait()
