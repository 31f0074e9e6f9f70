"""One connection to a broker: frames out and in, versions agreed, answers bounded.

Blocking, one thread at a time.  Several requests may be in flight; answers come in their order.
After any failure the connection is closed: requests in flight get no answer, and it is not known
whether the broker carried them out.
"""

from __future__ import annotations

import math
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kafkalog import errors
from kafkalog.client.link.authentication import log_in, protected
from kafkalog.client.link.failures import check_code
from kafkalog.client.link.patience import Errand, NotYet, Patience
from kafkalog.client.link.software import software
from kafkalog.client.link.transport import Address, Options, Tcp, Transport
from kafkalog.client.metrics import Tally
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.headers import decode_response_header, encode_request_header

__all__ = ["Connection", "answering"]

SIZE = struct.Struct(">i")
ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER: nothing is sent after a close."""
CHUNK_BYTES = 1 << 20
PARTS_MAX = 256
"""Pieces of an answer before they are joined: a small piece costs more than its bytes."""
PIECES_MAX = 1024
"""The most pieces that the system takes in one call (IOV_MAX)."""
JOINED_BYTES = 1 << 16
"""Up to this size a copy costs less than a second packet."""
ASKING = {
    api.key for api in (apis.METADATA, apis.FIND_COORDINATOR, apis.OFFSET_FETCH, apis.LIST_OFFSETS,
                        apis.GET_TELEMETRY_SUBSCRIPTIONS)
}  # fmt: skip
"""Requests that change nothing: an answer that is no longer wanted does no harm."""
LEFT_MAX = 16
"""How many unwanted answers are read and dropped; with more the connection is given up."""


class _Sent(NamedTuple):
    """A request in flight."""

    api: Any
    version: int
    correlation_id: int


class _Left(NamedTuple):
    """A request whose answer is not waited for now: an errand that repeats it gets the answer."""

    what: tuple[int, int, bytes]
    errand: Errand
    due_s: float


def answering(connections: Iterable[Connection], wait_s: float) -> list[Connection]:
    """The connections where an answer, or the end, has begun to arrive; none after `wait_s`."""
    poll = select.poll()  # not select, which knows only the first 1024 descriptors
    by_number = {connection.fileno(): connection for connection in connections}
    found = [connection for connection in by_number.values() if connection.decrypted]
    for number, connection in by_number.items():
        if connection not in found:
            poll.register(number, select.POLLIN)
    wait_s = 0 if found else max(wait_s, 0)
    return found + [by_number[number] for number, _ in poll.poll(wait_s * 1000)]


def _ready(connections: Iterable[Connection], wait_s: float) -> None:
    """Wait until bytes arrive or can be sent, at most `wait_s`."""
    poll = select.poll()
    for one in connections:
        poll.register(one.fileno(), select.POLLIN | (select.POLLOUT if one.unsent else 0))
    poll.poll(wait_s * 1000)


def _patient(where: socket.socket, wait_s: float) -> None:
    """Set how long calls of a socket wait."""
    if where.gettimeout() != wait_s:
        where.settimeout(wait_s)


_forks = 0
"""The number of forks from the first process to this one."""


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Connection:
    """A socket to one broker, and the versions that both sides support.  One thread at a time.

    A forked child has the socket, too, but only its parent may use it: two would read each
    other's answers.
    """

    def __init__(
        self,
        address: Address,
        options: Options = Options(),  # noqa: B008
        transport: Transport | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Connect, over `transport` (None: TCP), and agree on versions.  `patience`: that of the
        connecting thread.

        Raises: PeerGone, Timeout, BadAnswer, UnsupportedVersion, AuthenticationFailed; Closed (the
        transport).
        """
        self.address = address
        self.options = options
        self.ranges: dict[int, tuple[int, int]] = {}
        """By API key: the lowest and highest version that the broker supports."""
        self.features: dict[str, int] = {}
        """Finalized features of the cluster, by name."""
        self.patience = Patience() if patience is None else patience
        """How long its user waits; a thread that takes it over from another one sets its own."""
        self.answer_ms = Tally()
        """The times from a request to its answer, of `call`."""
        self._sent: deque[_Sent] = deque()
        self._left: dict[int, _Left] = {}
        self._correlation_id = 0
        self._size: int | None = None  # of the answer that is arriving
        self._parts: list[bytes] = []
        self._before = bytearray()
        self._came = 0
        self._unsent: list[memoryview] = []
        self._forks = _forks
        self._used_s = time.monotonic()
        """When a request was last sent, or an answer arrived."""
        self._renew_s = math.inf
        """When it must log in again."""
        until_s = self._used_s + options.connect_timeout_ms / 1000
        way = Tcp([address]) if transport is None else transport
        self._socket: socket.socket | None = way.connect(address, options)
        try:
            if options.security is not None:
                self._socket = protected(self._socket, options.security, address, until_s)
            self._negotiate()
            self._log_in(until_s)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Connection({self.address})"

    @property
    def closed(self) -> bool:
        """True if it was closed, by this client or after a failure."""
        return self._socket is None

    @property
    def waiting(self) -> int:
        """Requests whose answer is waited for."""
        return len(self._sent) - len(self._left)

    @property
    def unsent(self) -> bool:
        """True if posted bytes wait for `pump`."""
        return bool(self._unsent)

    @property
    def decrypted(self) -> bool:
        """True if bytes have arrived that poll does not show: TLS has decrypted them already."""
        pending = getattr(self._socket, "pending", None)
        return pending is not None and pending() > 0

    @property
    def ages(self) -> bool:
        """True if it logs in again as soon as nothing is in flight (KIP-368)."""
        return time.monotonic() >= self._renew_s

    def usable(self) -> bool:
        """True if it can take a request.  Closes one that is idle for connections.max.idle.ms, or
        that the broker has closed in the meantime."""
        self.close_idle(time.monotonic())
        if self._socket is not None and self._quiet and answering([self], 0):
            _patient(self._socket, 0)
            try:  # with no answer due, it can only be the end, or a message of TLS itself
                self._socket.recv(1)
            except BlockingIOError:
                return True
            except OSError:
                pass
            self.close()
        return self._socket is not None

    def close_idle(self, now_s: float) -> None:
        """Close it if nothing is due and it is idle for connections.max.idle.ms."""
        idle_ms = self.options.idle_ms
        if self._quiet and 0 <= idle_ms <= (now_s - self._used_s) * 1000:
            self.close()

    @property
    def _quiet(self) -> bool:
        """True if nothing is in flight; False in a child, which does not touch its parent's."""
        return not (self._sent or self._unsent) and self._forks == _forks

    def fileno(self) -> int:
        """For select: readable means that an answer, or the end, has arrived."""
        return -1 if self._socket is None else self._socket.fileno()

    def close(self) -> None:
        """Close the socket; requests in flight are forgotten, and may still arrive.  A child only
        closes its own descriptor."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._sent.clear()
        self._left.clear()
        self._unsent.clear()
        self._begin_answer(None)

    def give_up(self) -> None:
        """Close the socket, and drop requests in flight if this client still can.  Otherwise the
        kernel goes on sending them: after a network partition an EndTxn could arrive when the next
        transaction is open, or an OffsetCommit after a later one."""
        if self._socket is not None and self._forks == _forks:
            with suppress(OSError):  # closed by the other end
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        self.close()

    def interrupt(self) -> None:
        """Make a wait here fail with PeerGone, as if the broker had gone.  From any thread."""
        found = self._socket
        if found is not None and self._forks == _forks:
            with suppress(OSError):  # it has ended
                found.shutdown(socket.SHUT_RDWR)

    # ---- versions ----------------------------------------------------------------------

    def knows(self, api: Any) -> bool:
        """True if the broker supports a version of `api` that this client has."""
        low, high = self.ranges.get(api.key, (0, -1))
        return bool(max(low, api.versions.start) < min(high + 1, api.versions.stop))

    def version_of(self, api: Any, at_most: int | None = None) -> int:
        """The highest version of `api` that both sides support, and `at_most` allows.

        Raises: UnsupportedVersion.
        """
        low, high = self.ranges.get(api.key, (0, -1))
        ours: int = api.versions.stop - 1
        ours = ours if at_most is None else min(ours, at_most)
        version = min(high, ours)
        if version < max(low, api.versions.start):
            offered = f"{low} to {high}" if high >= low else "none"
            raise errors.UnsupportedVersion(
                f"{self.address}: {api.name}: the broker offers {offered}, "
                f"wanted one of {api.versions.start} to {ours}"
            )
        return version

    def _negotiate(self) -> None:
        api = apis.API_VERSIONS
        body = software()
        version: int = api.max_version
        answer = self._ask_versions(version, body)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and version:
            # A broker that does not support our version answers in version 0, with its range.
            offered = [k.max_version for k in answer.api_keys if k.api_key == api.key]
            version = min(version - 1, max(0, *offered)) if offered else 0
            answer = self._ask_versions(version, body)
        check_code(answer.error_code, f"{self.address}: ApiVersions")
        self.ranges = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
        if not self.ranges:
            raise errors.BadAnswer(f"{self.address}: ApiVersions: it offers no API")
        if version >= 3:
            self.features = {f.name: f.max_version_level for f in answer.finalized_features}

    def _ask_versions(self, version: int, body: dict[str, Any]) -> Any:
        api = apis.API_VERSIONS
        self._send(api, version, api.encode_request(version, body), True)
        patience_ms = self.options.connect_timeout_ms
        frame, pos, _ = self._receive(time.monotonic() + patience_ms / 1000, patience_ms)
        try:
            answer = api.decode_response(version, frame, pos)
        except errors.InvalidRequest as problem:
            try:
                # The error in version 0, which answers a request of any version.
                answer = api.decode_response(0, frame, pos)
            except errors.InvalidRequest:
                answer = None
            if answer is None or answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
                raise self._bad(f"{problem}; is this Kafka's port?") from None
        return answer

    def _log_in(self, until_s: float) -> None:
        security = self.options.security
        if security is not None and security.mechanism:
            self._renew_s = math.inf  # the login's own requests come next
            self._renew_s = log_in(self, security, until_s)

    def _renew(self) -> None:
        """Log in again if it is time, and no answer is due that would come first.

        Raises: as at the beginning; the connection is then closed.
        """
        if self.ages and self._quiet:
            patience_s = self.options.connect_timeout_ms / 1000
            try:
                with self.patience.whole(patience_s):
                    self._log_in(time.monotonic() + patience_s)
            except BaseException:
                self.close()
                raise

    # ---- requests ----------------------------------------------------------------------

    def call(
        self, api: Any, body: Any, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send a request and wait for its answer.  No other request may be in flight.

        Raises: as `send` and `receive`.
        """
        if self.waiting:
            raise errors.ArgumentError(f"{self.address}: {self.waiting} answers are due first")
        version = self.version_of(api) if version is None else version
        data = api.encode_request(version, body)
        if self.patience.errand is not None and api.key in ASKING:
            return self._again(api, version, data)
        try:
            with self.answer_ms.timed():
                self._send(api, version, data, True)
                return self.receive(timeout_ms)
        except NotYet as problem:  # a request that changes something must not take effect later
            self.give_up()
            raise errors.Timeout(str(problem)) from None
        except errors.WakeUp:  # the answer is not wanted any more
            self.give_up()
            raise
        except Exception:
            raise
        except BaseException:  # Ctrl-C: nothing will read the answer
            self.give_up()
            raise

    def _again(self, api: Any, version: int, data: bytes) -> Any:
        """As `call`, for an errand: it does not repeat a request that was answered, and a request
        has its full time however short the errand's calls are."""
        errand, what = self.patience.errand, (api.key, version, data)
        assert errand is not None
        if (answer := errand.known((self.address, *what))) is not None:
            return answer
        patience_ms = self.options.request_timeout_ms
        # Not the answer to another errand's request: it may be out of date.
        mine = (n for n, one in self._left.items() if one.what == what and one.errand is errand)
        number = next(mine, None)
        if number is None:
            if len(self._left) >= LEFT_MAX:
                self.give_up()
                raise errors.Timeout(f"{self.address}: {LEFT_MAX} requests were not answered")
            due_s = time.monotonic() + patience_ms / 1000
            number = self._post(api, version, [data])
        else:
            due_s = self._left.pop(number).due_s
        try:
            answer = self._decoded(*self._receive(due_s, patience_ms))
        except (NotYet, errors.WakeUp):
            self._left[number] = _Left(what, errand, due_s)
            self.patience.due.append(self)
            raise
        errand.log.append(((self.address, *what), answer))
        return answer

    def send(self, api: Any, body: Any, version: int | None = None, answered: bool = True) -> int:
        """Send a request; returns its correlation id.  `answered` False: Produce with acks=0.

        Raises: PeerGone, Timeout, UnsupportedVersion; Closed.
        """
        version = self.version_of(api) if version is None else version
        return self._send(api, version, api.encode_request(version, body), answered)

    def post(self, api: Any, body: Any, version: int) -> None:
        """As `send`, but without waiting: `pump` sends what the broker does not accept now, before
        anything else.  Large parts of `body` must not change until then.

        Raises: PeerGone; Closed.
        """
        self._open()
        self._post(api, version, api.encode_request_parts(version, body))

    def _post(self, api: Any, version: int, encoded: Sequence[bytes | memoryview]) -> int:
        self._renew()
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        self._used_s = time.monotonic()
        header = encode_request_header(api, version, self._correlation_id, self.options.client_id)
        head = SIZE.pack(len(header) + sum(map(len, encoded))) + header
        self._unsent += map(memoryview, (head, *encoded))
        self._sent.append(_Sent(api, version, self._correlation_id))
        self.pump()
        return self._correlation_id

    def pump(self) -> None:
        """Send as many of the posted bytes as the broker accepts now.

        Raises: PeerGone; the connection is then closed.
        """
        where = self._open()
        _patient(where, 0)
        try:
            while self._unsent:
                count = where.sendmsg(self._unsent[:PIECES_MAX])
                while self._unsent and count >= len(self._unsent[0]):
                    count -= len(self._unsent.pop(0))
                if count:
                    self._unsent[0] = self._unsent[0][count:]
        except BlockingIOError:
            return
        except OSError as problem:
            name = self._sent[-1].api.name if self._sent else "a request"
            self.give_up()
            raise errors.PeerGone(
                f"{self.address}: {name}: {problem.strerror or problem}"
            ) from None

    def receive(self, timeout_ms: int | None = None) -> Any:
        """The answer to the oldest request; `timeout_ms` None: the request timeout.

        Raises: PeerGone, Timeout, BadAnswer; the connection is then closed.  NotYet: the call's
        patience is over; what has arrived of the answer is kept for the next call.
        """
        patience_ms = self.options.request_timeout_ms if timeout_ms is None else timeout_ms
        return self._decoded(*self._receive(time.monotonic() + patience_ms / 1000, patience_ms))

    def _decoded(self, frame: bytes, pos: int, sent: _Sent) -> Any:
        try:
            return sent.api.decode_response(sent.version, frame, pos)
        except errors.InvalidRequest as problem:
            raise self._bad(str(problem)) from None

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise errors.Closed(f"{self.address}: the connection is closed")
        if self._forks != _forks:
            raise errors.ForkedHandle(f"{self.address}: the connection is the parent process's")
        return self._socket

    def _send(self, api: Any, version: int, body: bytes, answered: bool) -> int:
        where = self._open()
        self._renew()
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        self._used_s = time.monotonic()
        header = encode_request_header(api, version, self._correlation_id, self.options.client_id)
        patience_s = min(self.options.request_timeout_ms / 1000, self.patience.left_s())
        _patient(where, patience_s)
        try:
            head = SIZE.pack(len(header) + len(body)) + header
            if self._unsent:
                head = b"".join([*self._unsent, head])
                self._unsent.clear()
            if len(body) <= JOINED_BYTES:
                where.sendall(head + body)
            else:
                where.sendall(head)
                where.sendall(body)
        except (TimeoutError, BlockingIOError):
            self._fail()
            raise errors.Timeout(
                f"{self.address}: {api.name}: not taken in {patience_s * 1000:.0f} ms"
            ) from None
        except OSError as problem:
            self._fail()
            raise errors.PeerGone(
                f"{self.address}: {api.name}: {problem.strerror or problem}"
            ) from None
        if answered:
            self._sent.append(_Sent(api, version, self._correlation_id))
        return self._correlation_id

    def _fail(self) -> None:
        """It accepts no more; requests without an answer (Produce with acks=0) may still arrive."""
        if self._sent:
            self.give_up()
        else:
            self.close()

    def _receive(self, due_s: float, timeout_ms: int) -> tuple[bytes, int, _Sent]:
        """The next answer that is waited for: (frame, where its body begins, its request)."""
        if not self.waiting:
            raise errors.ArgumentError(f"{self.address}: no answer is due")
        while True:
            frame = self._frame(due_s, timeout_ms)
            sent = self._sent.popleft()
            pos = self._body_pos(frame, sent)
            if (left := self._left.pop(sent.correlation_id, None)) is None:
                return frame, pos, sent
            # Its errand would send it again, and so drop the answer that is waited for here.
            left.errand.keep((self.address, *left.what), self._decoded(frame, pos, sent))

    def _frame(self, due_s: float, timeout_ms: int) -> bytes:
        """The next frame."""
        begun_s, until_s = time.monotonic(), min(due_s, self.patience.until_s)
        try:
            if self._size is None:
                (size,) = SIZE.unpack(self._exactly(4, until_s))
                if not 4 <= size <= self.options.response_bytes_max:
                    raise self._bad(
                        f"a frame of {size} bytes, wanted 4 to {self.options.response_bytes_max}"
                        "; is this Kafka's port?"
                    )
                self._begin_answer(size)
            assert self._size is not None
            frame = self._exactly(self._size, until_s)
        except errors.KafkalogError:
            raise
        except TimeoutError:
            api = self._sent[0].api
            if until_s < due_s:
                timeout_ms = max(0, round((until_s - begun_s) * 1000))
                if self.patience.wait is not None:
                    raise NotYet(f"{self.address}: {api.name}: no answer yet") from None
            self.give_up()
            raise errors.Timeout(
                f"{self.address}: {api.name}: no answer in {timeout_ms} ms"
            ) from None
        except OSError as problem:
            self.give_up()
            raise errors.PeerGone(f"{self.address}: {problem.strerror or problem}") from None
        except BaseException:  # Ctrl-C: nothing will read the rest
            self.give_up()
            raise
        self._begin_answer(None)
        self._used_s = time.monotonic()
        return frame

    def _begin_answer(self, size: int | None) -> None:
        self._size, self._came = size, 0
        self._parts, self._before = [], bytearray()

    def _body_pos(self, frame: bytes, sent: _Sent) -> int:
        try:
            found, pos = decode_response_header(sent.api, sent.version, frame)
        except errors.InvalidRequest as problem:
            raise self._bad(str(problem)) from None
        if found != sent.correlation_id:
            raise self._bad(f"the answer to {found}, wanted the one to {sent.correlation_id}")
        return pos

    def _exactly(self, size: int, until_s: float) -> bytes:
        """`size` bytes, with those that arrived earlier; memory grows with the bytes that arrive,
        not with the announced size.

        Raises: TimeoutError: the bytes are kept; OSError.
        """
        while self._came < size:
            part = self._some(min(size - self._came, CHUNK_BYTES), until_s)
            if not part:
                raise OSError(f"it closed the connection after {self._came} of {size} bytes")
            self._parts.append(part)
            self._came += len(part)
            if self._came < size and time.monotonic() >= until_s:
                raise TimeoutError
            if len(self._parts) == PARTS_MAX:
                self._before += b"".join(self._parts)
                self._parts.clear()
        parts, before = self._parts, self._before
        return parts[0] if len(parts) == 1 and not before else b"".join([before, *parts])

    def _some(self, size: int, until_s: float) -> bytes:
        """Up to `size` bytes that have arrived.  Raises: TimeoutError; OSError."""
        where, wait = self._open(), self.patience.wait or _ready
        _patient(where, 0)  # otherwise each call of it is three system calls
        while True:
            if self._unsent:
                self.pump()
            try:
                return where.recv(size)
            except BlockingIOError:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError from None
                wait([self], left_s)

    def _bad(self, what: str) -> errors.BadAnswer:
        """The failure of an answer that breaks the protocol; the connection is closed."""
        name = self._sent[0].api.name if self._sent else "an answer"
        self.give_up()
        return errors.BadAnswer(f"{self.address}: {name}: {what}")
