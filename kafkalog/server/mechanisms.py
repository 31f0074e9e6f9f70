"""The SASL mechanisms of a listener, made from its settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalog.clock import Clock
from kafkalog.config.declare import Password
from kafkalog.config.sasl import SASL_MECHANISMS, SIGNED, UNSIGNED
from kafkalog.config.server import ServerConfig
from kafkalog.errors import InvalidSetting
from kafkalog.security.jaas import LoginModule, parse_jaas
from kafkalog.security.oauth import OAuthExchange, Rules, Token, checked_claims, unsigned_claims
from kafkalog.security.plain import PlainExchange, PlainUsers
from kafkalog.security.scram import Decoys, Mechanism, ServerExchange
from kafkalog.security.tokens import login_of_token

if TYPE_CHECKING:
    from kafkalog.metadata.image import MetadataImage
    from kafkalog.server.network.listeners import Listener

__all__ = ["Exchange", "mechanisms_of"]

_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
Image = Callable[[], "MetadataImage"]


class Exchange(Protocol):
    """The messages of one authentication, from the broker's side."""

    done: bool
    """True once the client is authenticated."""
    user: str
    """The client's name."""

    def step(self, message: bytes) -> bytes:
        """Take the client's next message; returns the answer.

        Raises: SaslAuthenticationFailed.
        """


def mechanisms_of(
    config: ServerConfig, planned: "Sequence[Listener]", image: Image, clock: Clock,
    secret: Callable[[], bytes],
) -> "dict[int, Mapping[str, Callable[[], Exchange]]]":  # fmt: skip
    """The SASL mechanisms of each listener that has some, by its number: for each, how an exchange
    begins.  `image`: the metadata as they are now, with SCRAM's credentials and delegation tokens;
    `clock`: says which tokens have expired; `secret`: that of the data directory.

    Raises: InvalidSetting: a mechanism is not supported, or its settings are wrong.
    """
    return {
        number: _mechanisms_of(config, one.name, image, clock, secret)
        for number, one in enumerate(planned) if one.protocol.authenticates
    }  # fmt: skip


def _mechanisms_of(
    config: ServerConfig, listener: str, image: Image, clock: Clock, secret: Callable[[], bytes]
) -> Mapping[str, Callable[[], Exchange]]:
    """For each mechanism of a listener, how an exchange begins.  `image`: the metadata as they are
    now, with SCRAM's credentials and delegation tokens; `clock`: says which tokens have expired;
    `secret`: that of the data directory.

    Raises: InvalidSetting: a mechanism is not supported, or its settings are wrong.
    """
    names = config.of_listener(listener).sasl_enabled_mechanisms
    setting = f"listener.name.{listener.lower()}.sasl.enabled.mechanisms"
    for name in names:
        if name not in SASL_MECHANISMS:
            raise InvalidSetting(
                f"{setting}, or sasl.enabled.mechanisms: found {name}, which is not supported; "
                f"wanted {', '.join(SASL_MECHANISMS)}"
            )
    if not names:
        raise InvalidSetting(
            f"{setting}, or sasl.enabled.mechanisms: found none, wanted some of "
            f"{', '.join(SASL_MECHANISMS)}"
        )
    return {name: _mechanism(config, listener, name, image, clock, secret) for name in names}


def _mechanism(
    config: ServerConfig, listener: str, name: str, image: Image, clock: Clock,
    secret: Callable[[], bytes],
) -> Callable[[], Exchange]:  # fmt: skip
    own = config.of_listener(listener, name)
    setting = f"listener.name.{listener.lower()}.{name.lower()}.sasl.jaas.config"
    text = own.sasl_jaas_config.value
    module = parse_jaas(text, setting) if text else None
    if module is not None and module.short_name != _MODULES[name]:
        raise InvalidSetting(
            f"{setting}: found another login module, wanted one named {_MODULES[name]}"
        )
    handler = setting.replace("jaas.config", "server.callback.handler.class")
    if name != "OAUTHBEARER" and own.sasl_server_callback_handler_class:
        raise InvalidSetting(f"{handler}: found a value, wanted none for {name}")
    if name == "PLAIN":
        return _plain(module, setting)
    if name == "OAUTHBEARER":
        return _oauth(own, handler, clock)
    return _scram(Mechanism.named(name), image, config.delegation_token_secret_key, clock, secret)


def _plain(module: LoginModule | None, setting: str) -> Callable[[], Exchange]:
    if module is None:
        raise InvalidSetting(
            f'{setting}: found none, wanted the users: PlainLoginModule required user_NAME="…" ;'
        )
    users = PlainUsers(module.options)
    return lambda: PlainExchange(users)


def _scram(
    mechanism: Mechanism, image: Image, of_tokens: Password, clock: Clock,
    secret: Callable[[], bytes],
) -> Callable[[], Exchange]:  # fmt: skip
    def begin() -> ServerExchange:
        known, tokens = image().scram, image().tokens
        return ServerExchange(
            mechanism,
            lambda user: known.get((user, int(mechanism))),
            lambda name: login_of_token(tokens, of_tokens, mechanism, name, clock.now_ms()),
            models=(one for (_, number), one in known.items() if number == mechanism),
            decoys=Decoys(secret()),
        )

    return begin


def _oauth(own: ServerConfig, handler: str, clock: Clock) -> Callable[[], Exchange]:
    rules = Rules(
        own.sasl_oauthbearer_sub_claim_name, own.sasl_oauthbearer_scope_claim_name,
        own.sasl_oauthbearer_expected_audience, own.sasl_oauthbearer_expected_issuer,
        own.sasl_oauthbearer_clock_skew_seconds * 1000,
    )  # fmt: skip
    if own.sasl_server_callback_handler_class == UNSIGNED:

        def unsigned(token: str) -> Token:
            return checked_claims(unsigned_claims(token), rules, clock.now_ms())

        return lambda: OAuthExchange(unsigned)
    if own.sasl_server_callback_handler_class != SIGNED:
        raise InvalidSetting(
            f"{handler}: found none, wanted {SIGNED}; or {UNSIGNED}, which accepts tokens that "
            "anybody can make"
        )
    url = "sasl.oauthbearer.jwks.endpoint.url"
    if not own[url]:
        raise InvalidSetting(f"{url}: found none, wanted the URL of the keys")
    for name, given, may_lack in (
        ("audience", rules.audiences, own.sasl_oauthbearer_allow_unverified_audience),
        ("issuer", rules.issuer, own.sasl_oauthbearer_allow_unverified_issuer),
    ):
        if not given and not may_lack:
            raise InvalidSetting(
                f"sasl.oauthbearer.expected.{name}: found none, wanted a value next to {url}; or "
                f"sasl.oauthbearer.allow.unverified.{name}=true"
            )
    from kafkalog.server.jwks import Jwks  # slow to import: HTTP

    keys = Jwks(own[url], own.sasl_oauthbearer_jwks_endpoint_refresh_ms, rules, clock)
    return lambda: OAuthExchange(keys.validate)
