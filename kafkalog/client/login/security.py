"""The security of a client's connections, made once from its settings."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkalog import arguments, errors
from kafkalog.client.login.mechanisms import Exchange, OAuthBearer, Plain
from kafkalog.config.client import ClientConfig
from kafkalog.security.jaas import LoginModule, parse_jaas

if TYPE_CHECKING:
    import ssl

    from kafkalog.client.login.tokens import Tokens, TokenSource

__all__ = ["Security", "security_of"]

_logger = logging.getLogger(__name__)
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_EXTENSION = "extension_"


class Security:
    """The security of a client's connections.  Its threads share it; it shows no secret."""

    def __init__(self, config: ClientConfig, token: TokenSource | None = None) -> None:
        """Key files are read now.  `token`: gives OAUTHBEARER's tokens.

        Raises: InvalidSetting.
        """
        self.protocol: str = config.security_protocol
        self.mechanism = config.sasl_mechanism if self.protocol.startswith("SASL") else ""
        """The mechanism of SASL; empty: none."""
        self._exchange = _logs_in(config, token) if self.mechanism else None
        self._context = self.context_of(config) if self.protocol.endswith("SSL") else None
        if self._context is not None and not self._context.check_hostname:
            _logger.warning(
                "ssl.endpoint.identification.algorithm is empty: the names of brokers are not "
                "checked, so everyone with a trusted certificate can pose as one"
            )

    @staticmethod
    def context_of(config: ClientConfig) -> ssl.SSLContext:
        """Read the key files.  Raises: InvalidSetting."""
        from kafkalog.client.login.tls import context_of

        return context_of(config)

    def protect(self, made: socket.socket, host: str, place: str, until_s: float) -> socket.socket:
        """The socket, connected to a broker's host, to use instead of this one.  `place`: the
        broker, for messages; `until_s`: in time.monotonic.

        Raises: SslAuthenticationFailed; TimeoutError; OSError; `made` is then closed.
        """
        if self._context is None:
            return made
        from kafkalog.client.login.tls import begin_tls

        return begin_tls(made, self._context, host, place, until_s - time.monotonic())

    def exchange(self, left_s: float) -> Exchange:
        """A new authentication; `left_s`: how long a new token may take.

        Raises: SaslAuthenticationFailed: there is no token.
        """
        assert self._exchange is not None
        return self._exchange(left_s)

    def __repr__(self) -> str:
        return f"Security({self.protocol}{', ' if self.mechanism else ''}{self.mechanism})"

    def __reduce__(self) -> Any:
        raise TypeError("the security of a client cannot be copied or pickled: it has secrets")


def security_of(config: ClientConfig, token: TokenSource | None = None) -> Security | None:
    """The security that the settings ask for; None: they ask for none (PLAINTEXT).

    Raises: InvalidSetting, ArgumentError.
    """
    arguments.called("oauth_token", token)
    if config.security_protocol == "PLAINTEXT":
        return None
    return Security(config, token)


def _logs_in(config: ClientConfig, token: TokenSource | None) -> Callable[[float], Exchange]:
    """Makes authentications by the settings.  Raises: InvalidSetting."""
    mechanism = config.sasl_mechanism
    if mechanism not in _MODULES:
        raise errors.InvalidSetting(
            f"sasl.mechanism: found {mechanism}, wanted one of {', '.join(_MODULES)}"
        )
    text = config.sasl_jaas_config.value
    if not text and mechanism != "OAUTHBEARER":
        raise errors.InvalidSetting(
            f"sasl.jaas.config: found none, wanted a login for {mechanism}, such as "
            f'{_MODULES[mechanism]} required username="…" password="…";'
        )
    login = parse_jaas(text) if text else LoginModule(_MODULES[mechanism], "required", {})
    if login.name != _MODULES[mechanism]:
        raise errors.InvalidSetting(
            f"sasl.jaas.config: found {login.name}, wanted {_MODULES[mechanism]} for {mechanism}"
        )
    if mechanism == "OAUTHBEARER":
        from kafkalog.client.login.tokens import Tokens

        return _bearer(Tokens(config, login.options, token), login)
    for name in ("username", "password"):
        if not login.options.get(name):
            raise errors.InvalidSetting(f"sasl.jaas.config: found no {name}, wanted one")
    user, password = login.options["username"], login.options["password"]
    if mechanism == "PLAIN":
        Plain(user, password)  # refused now, not at the first connection
        return lambda _: Plain(user, password)
    from kafkalog.security.scram import ClientExchange, Mechanism

    by_token = login.options.get("tokenauth", "").lower() == "true"
    extensions = {"tokenauth": "true"} if by_token else {}
    scram = Mechanism.named(mechanism)
    ClientExchange(scram, user, password, extensions=extensions)
    return lambda _: ClientExchange(scram, user, password, extensions=extensions)


def _bearer(tokens: Tokens, login: LoginModule) -> Callable[[float], Exchange]:
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in login.options.items()
        if name.startswith(_EXTENSION)
    }
    OAuthBearer("checked", extensions)
    return lambda left_s: OAuthBearer(tokens.token(left_s), extensions)
