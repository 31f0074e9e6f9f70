"""The keys of TLS listeners: read at the start, read again when their files or settings change.

A thread logs failed handshakes, too.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalog.config.listeners import SecurityProtocol, own_setting
from kafkalog.config.server import ServerConfig
from kafkalog.config.ssl import KEY_SETTINGS
from kafkalog.errors import Closed, InvalidSetting, KafkalogError
from kafkalog.logs.limit import left_out, limited
from kafkalog.security.keystores import Stamp, stamp
from kafkalog.security.principal import ANONYMOUS, Principal
from kafkalog.security.subjects import PrincipalRules, distinguished_name, names_of
from kafkalog.server.network.listeners import Listener
from kafkalog.server.network.reactor import Reactor
from kafkalog.server.network.tls import TlsContext

__all__ = ["ListenerKeys"]

_logger = limited(__name__)

LOOK_MS = 1_000
"""Time between two looks at the files."""
SOON_S = 7 * 24 * 60 * 60
"""A certificate that expires within this time is reported."""
_FAILED = "listener %s: the handshake of %s failed: %s"
CLIENT_AUTH = "ssl.client.auth"


class _Listener(NamedTuple):
    name: str
    config: ServerConfig
    client_auth: str
    rules: PrincipalRules


class ListenerKeys:
    """TLS of each listener that has it, by its number."""

    def __init__(self, config: ServerConfig, listeners: Sequence[Listener], name: str) -> None:
        """Reads all keys.  `name`: the thread's name begins so.

        Raises: InvalidSetting (a key is missing or wrong), NotFound (no OpenSSL).
        """
        self._name = name
        self._places = {n: one for n, one in enumerate(listeners) if one.protocol.encrypts}
        self._lock = threading.Lock()
        """Guards the next four, and their order of changes in the reactor."""
        self._listeners = {n: _of_listener(config, one) for n, one in self._places.items()}
        self._wanted = dict(self._listeners)
        """The newest settings: those in use, in `_listeners`, differ if the keys are wrong."""
        self._stamps = {number: stamp(one.config) for number, one in self._wanted.items()}
        self._now = {number: _context(one) for number, one in self._listeners.items()}
        self.contexts: Mapping[int, TlsContext] = dict(self._now)
        """By listener, as at the start."""
        self._thread: threading.Thread | None = None
        self._reactor: Reactor | None = None
        self._reported = dict.fromkeys(self._listeners, "")  # about the certificate in use

    def identified(self) -> list[int]:
        """The listeners whose clients may show a certificate."""
        return [n for n, one in self._listeners.items() if one.client_auth != "none"]

    def identify(self, listener: int, subject: bytes | None) -> Principal:
        """The principal of a client that showed a certificate with this subject (DER), or none.

        Raises: AuthenticationFailed (no rule matches its name).
        """
        if subject is None or listener not in self._listeners:
            return ANONYMOUS
        name = self._listeners[listener].rules.name(distinguished_name(subject))
        return Principal("User", name)

    # ---- while the broker runs -----------------------------------------------------------------

    def start(self, reactor: Reactor) -> None:
        """Watch the files, and log failures, until `reactor` stops."""
        self._reactor = reactor
        if self._listeners:
            self._thread = threading.Thread(
                target=self._watch, name=f"{self._name} keys", daemon=True
            )
            self._thread.start()

    def join(self) -> None:
        """Wait for the thread, once the reactor has stopped."""
        if self._thread is not None:
            self._thread.join()

    def check(self, config: ServerConfig) -> None:
        """Refuse settings with keys that cannot be used, or are for somebody else.

        Raises: InvalidSetting, NotFound.
        """
        for number, place in self._places.items():
            new = _of_listener(config, place)
            if _differs(new.config, self._listeners[number].config):
                _check_names(new, self._now[number], _context(new))

    def apply(self, config: ServerConfig) -> None:
        """Use the keys of these settings, which `check` has taken, for new connections; if they
        cannot be used, that is logged, and the old ones stay."""
        for number, place in self._places.items():
            new = _of_listener(config, place)
            with self._lock:
                if _differs(new.config, self._wanted[number].config):
                    self._use(number, new, stamp(new.config))

    def _use(self, number: int, one: _Listener, now: Stamp) -> None:
        """`now`: of the files, before they are read: a later change is seen."""
        self._wanted[number], self._stamps[number] = one, now
        try:
            assert self._reactor is not None
            context = _context(one)
            self._reactor.set_tls(number, context)
            self._now[number], self._listeners[number] = context, one
            _logger.info("listener %s: new connections use the changed keys", one.name)
        except Exception as problem:  # files may be half written: the next look sees more
            _logger.error("the old keys stay in use: %s", problem)

    def _watch(self) -> None:
        assert self._reactor is not None
        while True:
            self._look_at_dates()
            try:
                failure = self._reactor.handshake_failure(LOOK_MS)
            except Closed:
                return
            if failure is not None:
                left_out(_logger, _FAILED, failure.lost)
                name = self._listeners[failure.listener].name
                _logger.warning(_FAILED, name, failure.peer, failure.reason)
            self._look()

    def _look(self) -> None:
        """Use files that have changed; wrong ones are reported once, and the old keys stay."""
        for number in self._places:
            with self._lock:
                now: Stamp = stamp(self._wanted[number].config)
                if now != self._stamps[number]:
                    self._use(number, self._wanted[number], now)

    def _look_at_dates(self) -> None:
        """Report certificates that have expired, or will soon, once."""
        for number, context in self._now.items():
            left_s = context.left_s
            found = "has expired" if left_s < 0 else "expires soon" if left_s < SOON_S else ""
            if found and found != self._reported[number]:
                _logger.warning(
                    "listener %s: its certificate %s: clients refuse one that has expired",
                    self._listeners[number].name, found,
                )  # fmt: skip
            self._reported[number] = found


def _of_listener(config: ServerConfig, listener: Listener) -> _Listener:
    found = config.of_listener(listener.name)
    client_auth = found.ssl_client_auth
    own = any(
        (parts := own_setting(name))
        and (parts.listener, parts.name) == (listener.name, CLIENT_AUTH)
        for name in config._explicit()
    )
    if listener.protocol is SecurityProtocol.SASL_SSL and not own:
        client_auth = "none"  # KIP-684: only if it is set for the listener itself
    return _Listener(
        listener.name, found, client_auth, PrincipalRules(found.ssl_principal_mapping_rules)
    )


def _context(one: _Listener) -> TlsContext:
    try:
        return TlsContext(one.config, one.client_auth)
    except KafkalogError as problem:
        problem.args = (f"listener {one.name}: {problem}",)
        raise


def _differs(new: ServerConfig, old: ServerConfig) -> bool:
    """True if the keys' settings differ."""
    return any(new[name] != old[name] for name in KEY_SETTINGS)


def _check_names(one: _Listener, old: TlsContext, new: TlsContext) -> None:
    """Refuse a certificate that stands for another server (KIP-978).

    Raises: InvalidSetting.
    """
    (subject, names), (old_subject, old_names) = map(names_of, (new.certificate, old.certificate))
    if subject != old_subject and not one.config.ssl_allow_dn_changes:
        raise InvalidSetting(
            f"listener {one.name}: ssl.keystore: found the subject {subject}, wanted {old_subject} "
            "as in the present certificate, or ssl.allow.dn.changes=true"
        )
    if not old_names <= names and not one.config.ssl_allow_san_changes:
        raise InvalidSetting(
            f"listener {one.name}: ssl.keystore: found a certificate without all names "
            "(subjectAltName) of the present one, wanted them, or ssl.allow.san.changes=true"
        )
