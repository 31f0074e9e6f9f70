"""TLS on a client's connections, through Python's `ssl`.  Only its users import this."""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from kafkalog import errors
from kafkalog.config.ssl import SslSettings
from kafkalog.security.keystores import KeyMaterial, load_key, load_trust
from kafkalog.system import private_file

__all__ = ["TlsSocket", "begin_tls", "context_of"]

RECORD_BYTES = 1 << 14
"""The most that one TLS record carries: more is not encrypted at once."""
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NEWEST = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
"""The suites of TLS 1.3 that OpenSSL uses."""
_LOST = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The connection ended; these do not say that the other end refused anything."""


class TlsSocket(ssl.SSLSocket):
    """A socket over TLS that a Connection can use as it uses a plain one.

    Calls that would wait raise BlockingIOError.  What was decrypted and not read yet is not shown
    by poll: see `pending`.
    """

    place = ""
    """The broker, for messages."""
    heard = False
    """True once the broker has sent anything: from then on it has accepted our certificate."""

    def recv(self, size: int = 1024, flags: int = 0) -> bytes:
        try:
            data = super().recv(size, flags)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except _LOST:
            return b""
        except ssl.SSLError as problem:
            # With TLS 1.3 a broker judges the client's certificate after the handshake.
            if self.heard:
                raise
            raise errors.SslAuthenticationFailed(f"{self.place}: TLS: {_reason(problem)}") from None
        self.heard = self.heard or bool(data)
        return data

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]
        """Send some of the first buffers: small ones in one record.  Nothing else can be sent.

        OpenSSL wants the bytes of a call that would have waited again, with more after them at
        most: the same buffers give the same bytes.
        """
        some: list[Any] = []
        left = RECORD_BYTES
        for one in buffers:
            some.append(one[:left])
            left -= len(some[-1])
            if not left:
                break
        return self._sent(some[0] if len(some) == 1 else b"".join(some))

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Within the time-out in all, as a plain socket does."""
        patience_s = self.gettimeout()
        until_s = None if patience_s is None else time.monotonic() + patience_s
        self.setblocking(False)
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[self._sent(view) :]
                except BlockingIOError:
                    left_s = None if until_s is None else until_s - time.monotonic()
                    if left_s is not None and left_s <= 0:
                        raise TimeoutError from None
                    poll = select.poll()
                    poll.register(self.fileno(), select.POLLOUT)
                    poll.poll(None if left_s is None else left_s * 1000)
        finally:
            self.settimeout(patience_s)

    def _sent(self, data: Any) -> int:
        try:
            return super().send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except OSError:
            if not self.heard:  # the broker may have said why before it closed the connection
                with suppress(OSError):
                    self.recv(1)
            raise

    def shutdown(self, how: int) -> None:
        """End the connection; a thread that reads from it keeps the TLS state that it uses."""
        socket.socket.shutdown(self, how)


def context_of(config: SslSettings) -> ssl.SSLContext:
    """The versions, suites, certificates and checks that the settings name.

    Raises: InvalidSetting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = TlsSocket
    context.options |= ssl.OP_NO_RENEGOTIATION
    versions = [_VERSIONS[name] for name in config.tls_versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if config.ssl_cipher_suites:
        _choose_suites(context, config.ssl_cipher_suites)
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    trust = load_trust(config)
    if trust is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=trust.decode("ascii", "replace"))
        except ssl.SSLError as problem:
            raise errors.InvalidSetting(
                f"trusted certificates (ssl.truststore): {_reason(problem)}"
            ) from None
    if (own := load_key(config)) is not None:
        _show(context, own)
    return context


def _choose_suites(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Use these cipher suites only.

    Python's `ssl` has no choice among those of TLS 1.3: all or none.  Raises: InvalidSetting.
    """
    setting = "ssl.cipher.suites"
    newest = [name for name in names if "_WITH_" not in name]
    if newest and set(newest) != _NEWEST:
        raise errors.InvalidSetting(
            f"{setting}: found {', '.join(newest)} of TLS 1.3, wanted all or none of "
            f"{', '.join(sorted(_NEWEST))}"
        )
    older = [_openssl_name(name) for name in names if name not in newest]
    for name in older:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise errors.InvalidSetting(f"{setting}: OpenSSL knows no {name}") from None
    if older:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if context.minimum_version > context.maximum_version:
        raise errors.InvalidSetting(f"{setting}: found none for an enabled version of TLS")


def _openssl_name(name: str) -> str:
    """OpenSSL's name of a suite before TLS 1.3: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is
    ECDHE-RSA-AES128-GCM-SHA256."""
    keys, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"(AES|CAMELLIA)_(\d+)", r"\1\2", cipher).replace("_CBC_", "_")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return (cipher if keys == "RSA" else f"{keys}_{cipher}").replace("_", "-")


def _show(context: ssl.SSLContext, own: KeyMaterial) -> None:
    """Show this certificate to brokers that ask for one.

    Python's `ssl` reads keys from files only.
    """
    try:
        with private_file(own.key + own.chain) as path:
            context.load_cert_chain(path, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as problem:
        raise errors.InvalidSetting(
            f"own key and certificate (ssl.keystore): {_reason(problem)}"
        ) from None


def begin_tls(
    made: socket.socket, context: ssl.SSLContext, host: str, place: str, left_s: float
) -> TlsSocket:
    """TLS over a connected socket, which it takes.  `host`: whom the certificate must be for;
    `place`: the broker, for messages.

    Raises: SslAuthenticationFailed; TimeoutError; OSError: the connection ended.
    """
    name = host.partition("%")[0]  # without the zone of an IPv6 address
    found = context.wrap_socket(made, server_hostname=name, do_handshake_on_connect=False)
    assert isinstance(found, TlsSocket)
    try:
        found.place = place
        found.settimeout(max(left_s, 0.001))
        found.do_handshake()
    except BaseException as problem:
        found.close()
        if isinstance(problem, ssl.SSLError) and not isinstance(problem, (*_LOST, TimeoutError)):
            raise errors.SslAuthenticationFailed(f"{place}: TLS: {_reason(problem)}") from None
        raise
    return found


def _reason(problem: Exception) -> str:
    """OpenSSL's words, without the line of its source."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not accepted: {problem.verify_message.rstrip('.')}"
    reason = getattr(problem, "reason", None)
    return str(reason or getattr(problem, "strerror", None) or problem).replace("_", " ").lower()
