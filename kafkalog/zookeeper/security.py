"""The security of sessions with ZooKeeper: TLS, a login by DIGEST-MD5, the ACLs of new znodes.

Source: RFC 2831, as ZooKeeper's DigestLoginModule uses it; Kafka's ZkData.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkalog.config.declare import Password
from kafkalog.config.server import ServerConfig
from kafkalog.config.ssl import SslSettings
from kafkalog.errors import InvalidSetting
from kafkalog.logs.limit import limited
from kafkalog.security.jaas import parse_jaas
from kafkalog.security.keystores import stamp
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.entities import CONFIG

__all__ = ["Login", "ZooKeeperSecurity", "digest_response", "is_open", "is_secret", "security_of"]

_logger = limited(__name__)

JAAS = "kafkalog.zookeeper.sasl.jaas.config"
MODULE = "DigestLoginModule"
REALM = "zk-sasl-md5"
"""ZooKeeper has it in place of a host name, too."""
URI = f"zookeeper/{REALM}"
COUNT = "00000001"
QOP = "auth"
SECRET_ROOTS = (f"{CONFIG}/users", tree.DELEGATION_TOKENS.partition("/tokens")[0])
"""Below them znodes have credentials."""
OPEN_PATH = "/consumers"
"""Old consumers write here, without a login."""
_PAIR = re.compile(r'\s*([a-z\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]+))\s*(?:,|$)')


class Login(NamedTuple):
    """A user of ZooKeeper."""

    name: str
    password: Password


class ZooKeeperSecurity:
    """How a node's sessions are protected.  Safe to use from many threads; it shows no secret."""

    def __init__(self, tls: SslSettings | None, login: Login | None, sets_acls: bool) -> None:
        """Key files are read now, and again for a connection once they have changed.

        Raises: InvalidSetting.
        """
        self.tls, self.login = tls, login
        self.sets_acls = sets_acls
        """Znodes that are created get ACLs."""
        self.problem = ""
        """Why ZooKeeper, or this node, did not accept the other at the last connection."""
        self._lock = threading.Lock()  # guards what follows
        self._stamp = stamp(tls or SslSettings())
        self._context = None if tls is None else _context(tls)

    def __repr__(self) -> str:
        login = "" if self.login is None else f", {self.login.name}"
        return f"ZooKeeperSecurity({'PLAINTEXT' if self.tls is None else 'TLS'}{login})"

    def connect(self, address: tuple[str, int], host: str, timeout_s: float) -> socket.socket:
        """A connection to a server.  `host`: its name, which its certificate must be for.

        Raises: OSError.
        """
        made = socket.create_connection(address, timeout_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self._current()
        if context is None:
            return made
        try:
            found = context.wrap_socket(made, server_hostname=host)
        except BaseException as problem:
            made.close()
            if isinstance(problem, ssl.SSLError):
                said = getattr(problem, "verify_message", "") or problem.reason or "it failed"
                self.problem = f"TLS: {said}".replace("_", " ")
            raise
        self.problem = ""
        return found

    def _current(self) -> ssl.SSLContext | None:
        """The keys as they are now; wrong ones are reported once, and the old ones stay."""
        with self._lock:
            if self.tls is not None and (now := stamp(self.tls)) != self._stamp:
                self._stamp = now
                try:
                    self._context = _context(self.tls)
                except InvalidSetting as problem:
                    _logger.error("ZooKeeper: the old keys stay in use: %s", problem)
            return self._context


def _context(tls: SslSettings) -> ssl.SSLContext:
    from kafkalog.client.login.tls import context_of

    found = context_of(tls)
    found.sslsocket_class = ssl.SSLSocket
    return found


# ---- ACLs --------------------------------------------------------------------------------------


def is_secret(path: str) -> bool:
    """True if only brokers may read a znode: it may have credentials."""
    return path.startswith(SECRET_ROOTS)


def is_open(path: str) -> bool:
    """True if everyone may change a znode."""
    return path == OPEN_PATH


# ---- the login -----------------------------------------------------------------------------------


def digest_response(
    login: Login, challenge: bytes, cnonce: str
) -> tuple[bytes, Callable[[bytes], bool]]:
    """The answer to the server's challenge, and a check of the server's last message: only one that
    knows the password can make it.

    Raises: ValueError: it is no challenge, or asks for what this client does not do.
    """
    said = _pairs(challenge)
    nonce, realm = said.get("nonce", ""), said.get("realm", REALM)
    if not nonce or said.get("algorithm", "md5-sess") != "md5-sess":
        raise ValueError("it is no challenge of DIGEST-MD5")
    if QOP not in said.get("qop", QOP).split(","):
        raise ValueError(f"it offers {said['qop']}, wanted {QOP}")
    user = f"{login.name}:{realm}:{login.password.value}".encode()
    first = hashlib.md5(user).digest() + f":{nonce}:{cnonce}".encode()

    def proof(method: str) -> str:
        second = hashlib.md5(f"{method}:{URI}".encode()).hexdigest()
        middle = f"{nonce}:{COUNT}:{cnonce}:{QOP}"
        whole = f"{hashlib.md5(first).hexdigest()}:{middle}:{second}"
        return hashlib.md5(whole.encode()).hexdigest()

    fields = {
        "charset": "utf-8", "username": _quoted(login.name), "realm": _quoted(realm),
        "nonce": _quoted(nonce), "nc": COUNT, "cnonce": _quoted(cnonce), "digest-uri": _quoted(URI),
        "maxbuf": "65536", "response": proof("AUTHENTICATE"), "qop": QOP,
    }  # fmt: skip
    answer = ",".join(f"{name}={value}" for name, value in fields.items()).encode()
    wanted = proof("")

    def is_right(last: bytes) -> bool:
        return hmac.compare_digest(_pairs(last).get("rspauth", "").encode(), wanted.encode())

    return answer, is_right


def _pairs(message: bytes) -> dict[str, str]:
    """The directives of a message.  Raises: ValueError."""
    text, found, pos = message.decode(), dict[str, str](), 0
    while pos < len(text):
        match = _PAIR.match(text, pos)
        if match is None:
            raise ValueError("it is no message of DIGEST-MD5")
        name, quoted, word = match.groups()
        found[name] = word if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        pos = match.end()
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def log_in(connection: Any, security: ZooKeeperSecurity, _host: str, timeout_s: float) -> None:
    """Log in on one of kazoo's connections, which has just begun: it calls this in place of its own
    function, which needs another package.

    Raises: kazoo's ConnectionDropped: it connects again.
    """
    from kazoo.exceptions import KazooException
    from kazoo.protocol.connection import ConnectionDropped
    from kazoo.protocol.serialization import SASL

    assert security.login is not None

    def exchanged(token: bytes, number: int) -> bytes:
        connection._submit(SASL(token), timeout_s, number)
        header, buffer, offset = connection._read_header(timeout_s)
        if header.xid != number or header.err:
            raise ValueError("it does not accept the user or the password")
        answer: bytes | None
        answer, _ = SASL.deserialize(buffer, offset)
        return answer or b""

    try:
        challenge = exchanged(b"", 1)
        answer, is_right = digest_response(security.login, challenge, secrets.token_urlsafe(24))
        if not is_right(exchanged(answer, 2)):
            raise ValueError("the server does not know the password")
    except ConnectionDropped:  # so a server refuses a login
        security.problem = "login: it closed the connection: wrong user or password?"
        raise
    except (ValueError, KazooException) as problem:
        security.problem = f"login: {problem}"
        raise ConnectionDropped(security.problem) from None
    security.problem = ""


# ---- from the settings ---------------------------------------------------------------------------


def security_of(config: ServerConfig) -> ZooKeeperSecurity | None:
    """The security that the settings ask for; None: they ask for none.  Key files are read.

    Raises: InvalidSetting.
    """
    tls = _tls(config) if config.zookeeper_ssl_client_enable else None
    login = _login(config)
    if config.zookeeper_set_acl and login is None and not (tls and tls.ssl_keystore_location):
        raise InvalidSetting(
            f"zookeeper.set.acl: found true, wanted {JAAS} with it, or zookeeper.ssl.client.enable "
            "and zookeeper.ssl.keystore.location: without one of them ZooKeeper does not know who "
            "may change the znodes"
        )
    if tls is None and login is None:
        return None
    try:
        return ZooKeeperSecurity(tls, login, config.zookeeper_set_acl)
    except InvalidSetting as problem:
        raise InvalidSetting(f"ZooKeeper: {problem}") from None


def _tls(config: ServerConfig) -> SslSettings:
    given: dict[str, object] = {
        "ssl.cipher.suites": config.zookeeper_ssl_cipher_suites,
        "ssl.endpoint.identification.algorithm":
            config.zookeeper_ssl_endpoint_identification_algorithm,
    }  # fmt: skip
    for store in ("keystore", "truststore"):
        if location := config[f"zookeeper.ssl.{store}.location"]:
            kind = config[f"zookeeper.ssl.{store}.type"] or _kind(location)
            secret = config[f"zookeeper.ssl.{store}.password"]
            by_key = kind == "PEM" and store == "keystore"
            given[f"ssl.{store}.location"], given[f"ssl.{store}.type"] = location, kind
            given["ssl.key.password" if by_key else f"ssl.{store}.password"] = secret
    versions = config.zookeeper_ssl_enabled_protocols
    if not versions and config.explicit("zookeeper.ssl.protocol"):
        versions = (config.zookeeper_ssl_protocol,)
    if versions:
        given["ssl.enabled.protocols"] = versions
    return SslSettings.of(given)


def _kind(path: str) -> str:
    """The format of a file, by its name, as ZooKeeper finds it."""
    kinds = {".pem": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12", ".pkcs12": "PKCS12"}
    return kinds.get(os.path.splitext(path)[1].lower(), "JKS")


def _login(config: ServerConfig) -> Login | None:
    text = config.kafkalog_zookeeper_sasl_jaas_config.value
    if not text:
        return None
    found = parse_jaas(text, JAAS)
    if found.short_name != MODULE:
        raise InvalidSetting(f"{JAAS}: found {found.name}, wanted one named {MODULE}")
    for name in ("username", "password"):
        if not found.options.get(name):
            raise InvalidSetting(f"{JAAS}: found no {name}, wanted one")
    return Login(found.options["username"], Password(found.options["password"]))
