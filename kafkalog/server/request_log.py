"""The log of requests: API, principal, and the time of each phase.

As Kafka's: the logger `kafka.request.logger` writes every request at DEBUG, and is at WARN by
default.  At WARN it writes those slower than kafkalog.slow.request.ms.  C keeps requests for the
thread here; those for which there is no room are counted.
"""

import logging
import threading
from collections.abc import Sequence

from kafkalog.config.server import ServerConfig
from kafkalog.errors import Closed
from kafkalog.logs import levels
from kafkalog.logs.limit import left_out, limited
from kafkalog.server.admission import Admission
from kafkalog.server.denials import UNKNOWN
from kafkalog.server.network.listeners import INSIDE
from kafkalog.server.network.outcomes import Finished
from kafkalog.server.network.reactor import Reactor
from kafkalog.server.request import KNOWN

__all__ = ["RequestLog"]

_logger = limited(levels.logger_of(levels.REQUEST_LOGGER).name)
if _logger.level == logging.NOTSET:
    _logger.setLevel(logging.WARNING)

LOOK_MS = 60_000
_COMPLETED = (
    "%s v%s of %s, %s at %s, listener %s, correlation id %s: "
    "%s ms: queue %s, local %s, remote %s, response queue %s, send %s, throttle %s"
)
_SLOW = (
    "slow: %s v%s of %s, %s at %s, listener %s, correlation id "
    "%s: %s ms: queue %s, local %s, remote %s, response queue %s, send %s, throttle %s"
)


class RequestLog:
    """The log of a reactor's requests."""

    def __init__(
        self, reactor: Reactor, admission: Admission, listeners: Sequence[str], name: str
    ) -> None:
        """`admission`: knows the principals; `listeners`: their names, by number; `name`: the
        thread's name begins so."""
        self._reactor, self._admission, self._listeners = reactor, admission, listeners
        self._name = f"{name} requests"
        self._lock = threading.Lock()  # guards what follows
        self._slow_ns: int | None = None
        self._thread: threading.Thread | None = None

    def apply(self, config: ServerConfig) -> None:
        """Obey kafkalog.slow.request.ms, and from the first time on the logger's level."""
        with self._lock:
            first = self._slow_ns is None
            self._slow_ns = config.kafkalog_slow_request_ms * 1_000_000
        if first:
            levels.follow(self._look)
        self._look()

    def join(self) -> None:
        """Wait for the thread, once the reactor has stopped."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _look(self) -> None:
        """Ask for the requests that are to be logged."""
        with self._lock:
            least_ns = None
            if _logger.isEnabledFor(logging.DEBUG):
                least_ns = 0
            elif self._slow_ns and _logger.isEnabledFor(logging.WARNING):
                least_ns = self._slow_ns
            if least_ns is not None and self._thread is None and not self._reactor.stopped:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._reactor.report_finished(least_ns)

    def _run(self) -> None:
        while True:
            try:
                found = self._reactor.finished(LOOK_MS)
            except Closed:
                return
            if found is None:
                continue
            try:
                self._log(found)
            except Exception:  # the next ones are logged
                _logger.exception("a request was not logged")

    def _log(self, found: Finished) -> None:
        slow_ns = self._slow_ns
        slow = bool(slow_ns) and found.own_ns >= (slow_ns or 0)
        left_out(_logger, _SLOW if slow else _COMPLETED, found.lost)
        api = KNOWN.get(found.api_key)
        queue, local, remote, response, send, total = (round(ns / 1e6, 3) for ns in found.spent_ns)
        values = (
            found.api_key if api is None else api.name, found.api_version, found.client_id,
            self._principal(found.principal, found.tenure), found.peer,
            self._listener(found.listener), found.correlation_id, total, queue, local, remote,
            response, send, found.throttle_ms,
        )  # fmt: skip
        if slow:
            _logger.warning(_SLOW, *values)
        else:
            _logger.debug(_COMPLETED, *values)

    def _principal(self, number: int, tenure: int) -> str | None:
        """None: the client had not authenticated yet."""
        if number < 0:
            return None
        holder = self._admission.reported(number, tenure)
        return UNKNOWN if holder is None else str(holder[0])

    def _listener(self, number: int) -> str:
        return "INSIDE" if number == INSIDE else self._listeners[number]
