"""The settings of TLS, by Kafka's names: own key, trusted certificates, versions, suites."""

from kafkalog.config.declare import Flag, Secret, Settings, Word, Words

__all__ = ["KEY_SETTINGS", "SERVER_ONLY", "ServerSslSettings", "SslSettings"]

_STORES = ("JKS", "PEM", "PKCS12")
_SUITE = {"pattern": r"[A-Za-z0-9_\-]+", "example": "names such as TLS_AES_256_GCM_SHA384"}


class SslSettings(Settings):
    """TLS of a client or a broker.  `kafkalog.security.keystores` reads the stores."""

    scope = "TLS"

    ssl_keystore_type = Word(
        "JKS",
        "The format of the own key and certificates: PEM or PKCS12. JKS, Kafka's default, also "
        "takes a PKCS12 file, as Java does; a real JKS file must be converted.",
        choices=_STORES,
    )
    ssl_keystore_location = Word("", "The file with the own key and its certificate chain.")
    ssl_keystore_password = Secret("The password of a PKCS12 file.")
    ssl_keystore_key = Secret("The own key as PEM text, instead of a file.")
    ssl_keystore_certificate_chain = Secret("The certificate chain of that key as PEM text.")
    ssl_key_password = Secret("The password of an encrypted PEM key.")
    ssl_truststore_type = Word(
        "JKS",
        "The format of the trusted certificates: PEM or PKCS12; JKS as for the key.",
        choices=_STORES,
    )
    ssl_truststore_location = Word("", "The file with the trusted certificates.")
    ssl_truststore_password = Secret("The password of a PKCS12 file.")
    ssl_truststore_certificates = Secret("The trusted certificates as PEM text, not a file.")
    ssl_enabled_protocols = Words(
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that may be used; empty: both.",
        choices=("TLSv1.2", "TLSv1.3"),
    )
    ssl_protocol = Word(
        "TLSv1.3",
        "The newest version of TLS, if ssl.enabled.protocols is not given.",
        choices=("TLS", "TLSv1.2", "TLSv1.3"),
    )
    ssl_cipher_suites = Words(
        (), "The cipher suites that may be used, by their standard names; empty: OpenSSL's choice.",
        **_SUITE,
    )  # fmt: skip
    ssl_endpoint_identification_algorithm = Word(
        "https",
        "https: a client checks that the certificate is for the broker's host; empty: it does not.",
        choices=("https", ""),
        fold=str.lower,
    )

    @property
    def tls_versions(self) -> tuple[str, ...]:
        """The versions of TLS in use."""
        if self.explicit("ssl.enabled.protocols") and self.ssl_enabled_protocols:
            return self.ssl_enabled_protocols
        if self.ssl_protocol == "TLSv1.2" and not self.explicit("ssl.enabled.protocols"):
            return ("TLSv1.2",)
        return ("TLSv1.2", "TLSv1.3")


class ServerSslSettings(SslSettings):
    """TLS of a broker's listeners."""

    ssl_client_auth = Word(
        "none",
        "Whether clients show a certificate: none, requested (they may), required.",
        choices=("none", "requested", "required"),
    )
    ssl_principal_mapping_rules = Word(
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of a principal: "
        "RULE:pattern/replacement/, with L or U for lower or upper case, and DEFAULT, separated by "
        "commas; the first rule that matches applies.",
    )
    ssl_allow_dn_changes = Flag(
        False,
        "Whether a listener may be given a certificate with another subject at run time.",
    )
    ssl_allow_san_changes = Flag(
        False,
        "Whether such a certificate may lack names (subjectAltName) of the one before it.",
    )


KEY_SETTINGS = frozenset(
    name
    for name in SslSettings.table
    if name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
)
"""Settings that a listener may be given at run time."""
SERVER_ONLY = tuple(name for name in ServerSslSettings.table if name not in SslSettings.table)
"""Settings that clients do not have."""
