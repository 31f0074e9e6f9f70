"""TLS of a listener: key, certificates and rules as one object, which connections share."""

import contextlib
from typing import Any

from kafkalog._native import check, ffi, lib
from kafkalog.config.ssl import ServerSslSettings
from kafkalog.errors import ArgumentError, InvalidSetting, NotFound
from kafkalog.security.keystores import load_key, load_trust

__all__ = ["TlsContext"]

_CLIENT_AUTH = {
    "none": lib.KL_CLIENT_AUTH_NONE,
    "requested": lib.KL_CLIENT_AUTH_REQUESTED,
    "required": lib.KL_CLIENT_AUTH_REQUIRED,
}
_VERSIONS = {"TLSv1.2": 12, "TLSv1.3": 13}
BY_KERNEL = -1
"""The kernel encrypts if it can."""


class TlsContext:
    """A kl_tls, immutable.  Listeners keep what they use of it."""

    def __init__(
        self, config: ServerSslSettings, client_auth: str = "", *, kernel: int = BY_KERNEL
    ) -> None:
        """Read what the `ssl.*` settings name.

        `client_auth`: instead of ssl.client.auth; `kernel`: 1: let the kernel encrypt, if it can,
        0: do not.

        Raises: InvalidSetting (a key that is missing or does not fit, unknown cipher suites),
        NotFound (OpenSSL 3 is not installed), NoMemory.
        """
        client_auth = client_auth or config.ssl_client_auth
        key = load_key(config)
        if key is None:
            raise InvalidSetting(
                "ssl.keystore.location: found none, wanted the key and certificate of the listener"
            )
        trust = load_trust(config)
        if trust is None and client_auth != "none":
            raise InvalidSetting(
                f"ssl.truststore.location: found none, wanted the certificates that may sign those "
                f"of clients: ssl.client.auth is {client_auth}"
            )
        with contextlib.suppress(ImportError):
            import ssl  # noqa: F401  # Python's own libssl, in whatever place, is then in memory
        pems = [ffi.from_buffer(data) for data in (key.chain, key.key, trust or b"")]
        suites = ffi.new("char[]", ":".join(config.ssl_cipher_suites).encode())
        versions = [_VERSIONS[name] for name in config.tls_versions]
        chain, own, trusted = [(pem, len(pem)) for pem in pems]
        auth = _CLIENT_AUTH[client_auth]
        settings = (chain, own, trusted, suites, auth, min(versions), max(versions), kernel)
        out = ffi.new("kl_tls **")
        try:
            check(lib.kl_tls_new(ffi.new("kl_tls_config *", settings), out))
        except NotFound:
            raise
        except ArgumentError as problem:
            raise InvalidSetting(f"TLS: {problem}") from None
        self._c = ffi.gc(out[0], lib.kl_tls_free)
        self.certificate = key.chain
        """Its own certificate, and those that signed it, as PEM."""

    @property
    def c(self) -> Any:
        """The kl_tls."""
        return self._c

    @property
    def left_s(self) -> int:
        """Seconds until its own certificate expires; negative: it has expired."""
        return int(lib.kl_tls_left_s(self._c))
