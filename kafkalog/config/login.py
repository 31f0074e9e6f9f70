"""The settings by which a client proves who it is (SASL), by Kafka's names."""

from kafkalog.config.declare import Flag, Ratio, Secret, Settings, Whole, Word

__all__ = ["BearerSettings", "LoginSettings"]

_BEARER = "org.apache.kafka.common.security.oauthbearer."


class BearerSettings(Settings):
    """Where the tokens of OAUTHBEARER come from: a client's, and a node's for others."""

    scope = "login"

    sasl_login_callback_handler_class = Word(
        "",
        "Kafka's handler for OAUTHBEARER, which is used anyway.",
        choices=(
            "",
            _BEARER + "OAuthBearerLoginCallbackHandler",
            _BEARER + "secured.OAuthBearerLoginCallbackHandler",
        ),
    )
    sasl_login_read_timeout_ms = Whole(
        10_000, "How long the token endpoint may take to answer.", unit="ms", low=1
    )
    sasl_login_refresh_window_factor = Ratio(
        0.8, "The part of a token's lifetime after which new connections get another one."
    )
    sasl_login_retry_backoff_ms = Whole(
        100, "The first wait before the token endpoint is asked again.", unit="ms", low=0
    )
    sasl_login_retry_backoff_max_ms = Whole(
        10_000, "How long it is asked again, in all.", unit="ms", low=0
    )
    sasl_oauthbearer_token_endpoint_url = Word(
        "",
        "Where tokens come from: https:// or http:// with the client credentials or an assertion; "
        "file:// for a file with a token, which is read for each new one.",
    )
    sasl_oauthbearer_client_credentials_client_id = Word(
        "", "The client's id at the token endpoint; clientId in sasl.jaas.config is the same."
    )
    sasl_oauthbearer_client_credentials_client_secret = Secret(
        "Its secret; clientSecret in sasl.jaas.config is the same."
    )
    sasl_oauthbearer_assertion_file = Word(
        "", "A file with a signed assertion (JWT), instead of an id and a secret."
    )
    sasl_oauthbearer_scope = Word("", "The scope to ask for.")


class LoginSettings(BearerSettings):
    """SASL of a client."""

    scope = "login"

    sasl_mechanism = Word(
        "GSSAPI",
        "How the client logs in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. GSSAPI, "
        "Kafka's default, is not supported.",
    )
    sasl_jaas_config = Secret("The name and password, as Kafka's clients have them.")
    sasl_oauthbearer_header_urlencode = Flag(
        False,
        "Encode id and secret as RFC 6749 asks, which some token endpoints do not understand.",
    )
