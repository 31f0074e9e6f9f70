"""Faults on demand: failures that a broker injects into requests before any handler sees them.

For tests of a broker's clients.  Until the first fault is set, requests take their normal way.
Then this module receives them before Dispatch, and the data plane passes on the requests that it
would otherwise answer itself, for the APIs named by the faults.
"""

import heapq
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any

from kafkalog.errors import ArgumentError, InvalidRequest, KafkalogError, UnsupportedVersion
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.server.failed_answers import failed_answer
from kafkalog.server.failures import answer_failure
from kafkalog.server.handlers.common import node_entries
from kafkalog.server.request import Request
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.server.node import Node
    from kafkalog.wire.api import Api

__all__ = ["FAULTS_MAX", "HELPER", "Does", "Fault", "Faults"]

_logger = limited(__name__)

FAULTS_MAX = 1000
"""How many may be set at the same time."""
HELPER = "kafkalog-test-helper"
"""The client id that no fault hits: tests use it to inspect the broker."""
_OF_SESSIONS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""Errors of a Fetch as a whole; all others are errors of partitions."""
_PLAIN = str.maketrans("", "", "_- ")

Route = Callable[[Request], None]


class Does(Enum):
    """The effect of a fault on a request."""

    FAIL = "fails"
    """It is answered with an error, and not carried out."""
    DELAY = "is delayed"
    """It is carried out later, and so are later requests on its connection."""
    DISCONNECT = "is cut off"
    """Its connection is closed, and it is not carried out."""
    DROP_RESPONSE = "is not answered"
    """It is carried out, and then its connection is closed."""


class Fault:
    """A fault that was set; `hits` says what it has hit."""

    def __init__(
        self, api: "Api | None", does: Does, times: int | None, error: ErrorCode, ms: int,
        client_id: str | None,
    ) -> None:  # fmt: skip
        self.api = api
        """The API whose requests it hits; None: all."""
        self.does = does
        self.times = times
        """How many requests it hits; None: all, until it is removed."""
        self.error = error
        self.ms = ms
        self.client_id = client_id
        """The client id it hits; None: any."""
        self.hits = 0
        """How many requests it has hit."""

    @property
    def spent(self) -> bool:
        """True if it is used up or removed."""
        return self.times is not None and self.hits >= self.times

    def meets(self, request: Request) -> bool:
        """True if it hits this request."""
        client = request.peer.client_id
        if self.api is not None and request.api is not self.api:
            return False
        return self.client_id is None or client == self.client_id

    def __repr__(self) -> str:
        of = "" if self.client_id is None else f" of {self.client_id!r}"
        times = "each" if self.times is None else f"{self.hits} of {self.times}"
        what = f" {self.error.name}" if self.does is Does.FAIL else f" {self.ms} ms" * bool(self.ms)
        name = "all" if self.api is None else self.api.name
        return f"Fault({name}{of} {self.does.value}{what}: {times})"


class Faults:
    """All faults that are set.  Safe to use from many threads."""

    def __init__(self, node: "Node", route: Route, reroute: Callable[[Route], None]) -> None:
        """`route` answers requests that no fault hits; `reroute` sets where requests go from then
        on."""
        self._node = node
        self._route = route
        self._reroute = reroute
        self._lock = threading.Lock()  # guards what follows
        self._faults: list[Fault] = []
        self._up: set[int] = set()  # keys of APIs that the data plane passes on because of us
        self._held = _Held(node, route)

    # ---- setting -----------------------------------------------------------------------------

    def fail(
        self, api: str | int, error: str | int, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Answer the next `times` requests of an API with `error`: for each partition if the
        response has partitions, else wherever it has an error code; without one, close the
        connection.

        `api` and `error`: Kafka's names or numbers; `times` None: until it is removed;
        `client_id`: only clients with this id.

        Raises: ArgumentError.
        """
        code = _error(error)
        if code == ErrorCode.NONE:
            raise ArgumentError("error: NONE is success; name an error")
        return self._set(Fault(_api(api), Does.FAIL, _times(times), code, 0, client_id))

    def delay(
        self, api: str | int, ms: int, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Carry out the next `times` requests `ms` later, by the broker's clock.

        Raises: ArgumentError.
        """
        if not isinstance(ms, int) or ms < 0:
            raise ArgumentError(f"ms: found {ms!r}, wanted 0 or more")
        none = ErrorCode.NONE
        return self._set(Fault(_api(api), Does.DELAY, _times(times), none, ms, client_id))

    def disconnect(
        self, api: str | int, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Close the connections of the next `times` requests instead of carrying them out.

        Raises: ArgumentError.
        """
        none = ErrorCode.NONE
        return self._set(Fault(_api(api), Does.DISCONNECT, _times(times), none, 0, client_id))

    def cut_off(self, client_id: str) -> Fault:
        """Close this client id's connections at its next request, until the fault is removed.

        Raises: ArgumentError.
        """
        return self._set(Fault(None, Does.DISCONNECT, None, ErrorCode.NONE, 0, client_id))

    def drop_response(
        self, api: str | int, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Carry out the next `times` requests, then close their connections without an answer.

        Raises: ArgumentError.
        """
        none = ErrorCode.NONE
        return self._set(Fault(_api(api), Does.DROP_RESPONSE, _times(times), none, 0, client_id))

    def _set(self, fault: Fault) -> Fault:
        with self._lock:
            if len(self._faults) >= FAULTS_MAX:
                raise ArgumentError(
                    f"{len(self._faults)} faults are set, wanted at most {FAULTS_MAX}"
                )
            self._faults.append(fault)
            self._settle()
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault; harmless if it is no longer set."""
        with self._lock:
            self._faults = [one for one in self._faults if one is not fault]
            self._settle()

    def clear(self) -> None:
        """Remove all faults, and carry out delayed requests immediately."""
        with self._lock:
            self._faults = []
            self._settle()
        self._held.release()

    @property
    def all(self) -> tuple[Fault, ...]:
        """The faults that may still hit a request, oldest first."""
        with self._lock:
            return tuple(self._faults)

    def _settle(self) -> None:
        """Let the data plane pass on the APIs that faults name.  The caller holds the lock."""
        wanted = {
            key
            for fault in self._faults
            for key in (apis.BY_KEY if fault.api is None else (fault.api.key,))
        }
        for key in wanted ^ self._up:
            self._node.reactor.intercept(key, key in wanted)
        self._up = wanted
        self._reroute(self if wanted else self._route)

    def stop(self) -> None:
        """Stop: connections of delayed requests are closed."""
        self._held.stop()

    # ---- requests ----------------------------------------------------------------------------

    def __call__(self, request: Request) -> None:
        """Apply the oldest fault that matches a request; without one, let it be answered."""
        fault = self._hit(request)
        if fault is None:
            self._route(request)
            return
        _logger.info("%r: %s", request, fault)
        if fault.does is Does.FAIL:
            self._fail(request, fault)
        elif fault.does is Does.DELAY:
            self._held.put(request, fault.ms)
        elif fault.does is Does.DISCONNECT:
            request.drop()
        else:
            request.unheard()
            self._route(request)

    def _hit(self, request: Request) -> Fault | None:
        if request.peer.client_id == HELPER:
            return None
        with self._lock:
            fault = next((one for one in self._faults if one.meets(request)), None)
            if fault is None:
                return None
            fault.hits += 1
            if fault.spent:
                self._faults.remove(fault)
                self._settle()
            return fault

    def _miss(self, fault: Fault) -> None:
        """That request did not count as a hit: the next one may."""
        with self._lock:
            if fault.spent:
                self._faults.insert(0, fault)
            fault.hits -= 1
            self._settle()

    # ---- errors ------------------------------------------------------------------------------

    def _fail(self, request: Request, fault: Fault) -> None:
        try:
            body = request.body = request.api.decode_request(request.version, request.body)
        except (InvalidRequest, UnsupportedVersion):
            request.drop()
            return
        code, message = fault.error, f"{fault.error.name}, as a test asked for"
        if request.api is apis.METADATA:
            request.answer(self._metadata(request, code))
        elif request.api is apis.FETCH and code not in _OF_SESSIONS:
            if request.version >= 7 and body.session_epoch > 0:
                # It names only changed partitions, so it has no place for errors of partitions.
                # With this error the client asks for all of them, and the answer then has a place.
                self._miss(fault)
                code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                answer_failure(request, code, message)
            else:
                found = failed_answer(request.api, request.version, body, code, message) or {}
                request.answer({**found, "error_code": ErrorCode.NONE})
        else:
            answer_failure(request, code, message)

    def _metadata(self, request: Request, code: ErrorCode) -> dict[str, Any]:
        """Each topic gets the error; the nodes' addresses stay as usual."""
        node, body = self._node, request.body
        every = body.topics is None or (request.version == 0 and not body.topics)
        if every:
            topics = [
                {"name": topic.name, "topic_id": topic.id, "error_code": code,
                 "is_internal": topic.name in INTERNAL_TOPICS}
                for topic in node.image.topics.values()
            ]  # fmt: skip
        else:
            topics = [
                {"name": topic.name, "error_code": code,
                 **({"topic_id": topic.topic_id} if request.version >= 10 else {})}
                for topic in body.topics
            ]  # fmt: skip
        return {
            "brokers": node_entries(node, request.peer.listener),
            "cluster_id": node.image.cluster_id,
            "controller_id": node.metadata.controller,
            "topics": topics,
        }


class _Held:
    """Delayed requests, and the thread that resumes them; it starts with the first one.

    There are at most as many as connections, since each connection has one at a time.
    """

    def __init__(self, node: "Node", route: Route) -> None:
        self._clock = node.clock
        self._route = route
        self._wake = threading.Condition()  # guards what follows
        self._held: list[tuple[float, int, Request]] = []
        self._number = count()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def put(self, request: Request, ms: int) -> None:
        """Resume a request `ms` from now."""
        with self._wake:
            if not self._stopping:
                due_s = self._clock.monotonic_s() + ms / 1000
                heapq.heappush(self._held, (due_s, next(self._number), request))
                if self._thread is None:
                    thread = threading.Thread(
                        target=self._loop, name="kafkalog delays", daemon=True
                    )
                    thread.start()
                    self._thread = thread
                self._wake.notify()
                return
        request.drop()

    def release(self) -> None:
        """Resume all now."""
        with self._wake:
            self._held = [(0.0, number, request) for _, number, request in self._held]
            heapq.heapify(self._held)
            self._wake.notify()

    def stop(self) -> None:
        """Stop the thread; held requests lose their connection.  Idempotent."""
        with self._wake:
            self._stopping = True
            held, self._held = self._held, []
            self._wake.notify()
        for _, _, request in held:
            with suppress(KafkalogError):
                request.drop()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not self._stopping and not self._due():
                    until_s = self._held[0][0] if self._held else None
                    self._clock.wait_until(self._wake, until_s)
                if self._stopping:
                    return
                _, _, request = heapq.heappop(self._held)
            try:
                self._route(request)
            except Exception:
                _logger.exception("%r failed; its connection is closed", request)
                with suppress(KafkalogError):  # it may have been answered before it failed
                    request.drop()

    def _due(self) -> bool:
        return bool(self._held) and self._held[0][0] <= self._clock.monotonic_s()


# ---- names ---------------------------------------------------------------------------------------


def _api(named: str | int) -> "Api":
    """An API by its name, in any spelling (`Produce`, `INIT_PRODUCER_ID`), or its key."""
    if isinstance(named, int) and not isinstance(named, bool):
        found = apis.BY_KEY.get(named)
    else:
        wanted = str(named).translate(_PLAIN).lower()
        found = next((one for one in apis.BY_KEY.values() if one.name.lower() == wanted), None)
    if found is None:
        names = [one.name for one in apis.BY_KEY.values()]
        raise ArgumentError(f"api: found {named!r}, {_near(named, names)}")
    return found


def _error(named: str | int) -> ErrorCode:
    if isinstance(named, str) and named.upper() in ErrorCode.__members__:
        return ErrorCode[named.upper()]
    with suppress(ValueError):
        if isinstance(named, int):
            return ErrorCode(named)
    raise ArgumentError(f"error: found {named!r}, {_near(named, list(ErrorCode.__members__))}")


def _near(named: object, names: list[str]) -> str:
    import difflib

    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(named).lower(), lower, 1)
    return f"wanted {lower[near[0]]}?" if near else "wanted Kafka's name or number of one"


def _times(times: int | None) -> int | None:
    if times is not None and (not isinstance(times, int) or times < 1):
        raise ArgumentError(f"times: found {times!r}, wanted 1 or more, or None for all")
    return times
