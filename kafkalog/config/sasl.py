"""The broker's settings of SASL: how clients of its listeners authenticate."""

from kafkalog.config.declare import Flag, Long, Secret, Settings, Whole, Word, Words

__all__ = ["LOGS_IN", "SASL_MECHANISMS", "SIGNED", "UNSIGNED", "SaslServerSettings"]

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""Those that a listener can have; Kafka has GSSAPI (Kerberos), too."""
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
SIGNED = _PACKAGE + "OAuthBearerValidatorCallbackHandler"
UNSIGNED = _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
LOGS_IN = _PACKAGE + "OAuthBearerLoginCallbackHandler"
_MECHANISM = {"pattern": r"[A-Z0-9_\-]{1,20}", "example": ", ".join(SASL_MECHANISMS)}


class SaslServerSettings(Settings):
    """SASL of a broker's listeners."""

    scope = "broker"

    sasl_enabled_mechanisms = Words(
        ("GSSAPI",),
        "How clients of a listener may authenticate: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. A SASL listener needs a value, as GSSAPI is not supported.",
        **_MECHANISM,
    )
    sasl_jaas_config = Secret(
        "The login module of a mechanism, and its options, such as the users of PLAIN: only as "
        "listener.name.LISTENER.MECHANISM.sasl.jaas.config."
    )
    sasl_server_max_receive_size = Whole(
        524_288,
        "Largest request of a client that has not authenticated; a larger one closes its "
        "connection.",
        unit="bytes",
        low=1,
    )
    connections_max_reauth_ms = Long(
        0,
        "Time after which a client must authenticate again on its connection, or lose it; 0: "
        "never. A token that expires earlier ends it earlier.",
        unit="ms",
        low=0,
    )
    connection_failed_authentication_delay_ms = Whole(
        100,
        "Time between a failed authentication and the answer that says so; then the connection is "
        "closed.",
        unit="ms",
        low=0,
    )
    sasl_server_callback_handler_class = Word(
        "",
        "How tokens of OAUTHBEARER are verified: a class of Kafka's, for signed ones "
        "OAuthBearerValidatorCallbackHandler. There is no default: Kafka's accepts tokens that "
        "anybody can make.",
        choices=("", SIGNED, UNSIGNED),
    )
    sasl_oauthbearer_jwks_endpoint_url = Word(
        "", "The keys of those who sign tokens: an https://, http:// or file:/// URL of a JWKS."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = Long(
        3_600_000, "Time after which the keys are read again.", unit="ms", low=1
    )
    sasl_oauthbearer_expected_audience = Words(
        (),
        "The audiences, one of which a token must have.",
        pattern=r"[^,]+",
        example="names",
    )
    sasl_oauthbearer_expected_issuer = Word("", "The issuer that a token must have.")
    sasl_oauthbearer_allow_unverified_audience = Flag(
        False, "Accept tokens for any audience, if none is expected."
    )
    sasl_oauthbearer_allow_unverified_issuer = Flag(
        False, "Accept tokens of any issuer, if none is expected."
    )
    sasl_oauthbearer_scope_claim_name = Word("scope", "The claim with a token's scopes.")
    sasl_oauthbearer_sub_claim_name = Word("sub", "The claim with a token's principal.")
    sasl_oauthbearer_clock_skew_seconds = Whole(
        30, "How far the clocks of the issuer and the broker may differ.", unit="s", low=0
    )
    sasl_mechanism_inter_broker_protocol = Word(
        "GSSAPI",
        "How the nodes of a cluster log in to each other, by the listener between them: PLAIN, "
        "SCRAM-SHA-256 or SCRAM-SHA-512, with the username and the password in the "
        "sasl.jaas.config of that mechanism; or OAUTHBEARER, with a token of the endpoint. A "
        "single node does not.",
    )
    sasl_mechanism_controller_protocol = Word(
        "GSSAPI",
        "How nodes of a KRaft cluster log in to its controllers, by the first of "
        "controller.listener.names: as for sasl.mechanism.inter.broker.protocol.",
    )
    sasl_login_callback_handler_class = Word(
        "",
        "How a node gets its token for OAUTHBEARER at other nodes: OAuthBearerLoginCallbackHandler "
        "of Kafka, which asks sasl.oauthbearer.token.endpoint.url. There is no default: Kafka's "
        "makes tokens that anybody can make.",
        choices=("", LOGS_IN),
    )
    kafkalog_authentication_max_ms = Long(
        30_000,
        "Time that a client may take to authenticate before its connection is closed.",
        unit="ms",
        low=1,
    )
    kafkalog_unauthenticated_connections_max = Whole(
        1000,
        "Connections at the same time whose clients have not authenticated; above it, the one that "
        "has waited longest is closed.",
        low=1,
    )
