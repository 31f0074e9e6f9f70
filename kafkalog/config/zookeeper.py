"""The settings that protect a cluster node's connection to ZooKeeper, by Kafka's names."""

from kafkalog.config.declare import Flag, Secret, Settings, Word, Words

__all__ = ["ZooKeeperSettings"]

NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_STORES = ("", "JKS", "PEM", "PKCS12")
_VERSIONS = ("TLSv1.2", "TLSv1.3")


class ZooKeeperSettings(Settings):
    """TLS and a login at ZooKeeper; a broker takes them with its own."""

    scope = "broker"

    zookeeper_ssl_client_enable = Flag(False, "Connect to ZooKeeper by TLS.")
    zookeeper_clientCnxnSocket = Word(
        "",
        "A class of ZooKeeper's Java client, which kafkalog does not use. Kafka needs it for TLS.",
        choices=("", NETTY),
    )
    zookeeper_ssl_keystore_location = Word(
        "", "The file with the own key and its certificate chain, which ZooKeeper may ask for."
    )
    zookeeper_ssl_keystore_password = Secret(
        "The password of a PKCS12 file, or of an encrypted PEM key."
    )
    zookeeper_ssl_keystore_type = Word(
        "", "The format of that file: PEM or PKCS12; empty: by the end of its name.",
        choices=_STORES,
    )  # fmt: skip
    zookeeper_ssl_truststore_location = Word(
        "", "The file with the certificates that are trusted; empty: the system's."
    )
    zookeeper_ssl_truststore_password = Secret("The password of a PKCS12 file.")
    zookeeper_ssl_truststore_type = Word("", "As for the key.", choices=_STORES)
    zookeeper_ssl_protocol = Word(
        "TLSv1.2",
        "The version of TLS, if it is given and zookeeper.ssl.enabled.protocols is not.",
        choices=_VERSIONS,
    )
    zookeeper_ssl_enabled_protocols = Words(
        (), "The versions of TLS that may be used; empty: both.", choices=_VERSIONS
    )
    zookeeper_ssl_cipher_suites = Words(
        (),
        "The cipher suites that may be used, by their standard names; empty: OpenSSL's choice.",
        pattern=r"[A-Za-z0-9_\-]+",
        example="names such as TLS_AES_256_GCM_SHA384",
    )
    zookeeper_ssl_endpoint_identification_algorithm = Word(
        "https",
        "https: ZooKeeper's certificate must be for its host; empty: for any.",
        choices=("https", ""),
        fold=str.lower,
    )
    zookeeper_ssl_crl_enable = Flag(False, "Revocation lists are not supported.", only=False)
    zookeeper_ssl_ocsp_enable = Flag(False, "OCSP is not supported.", only=False)
    zookeeper_set_acl = Flag(
        False,
        "Let only brokers change the znodes that this node creates, and only brokers read secret "
        "ones. Needs a key for TLS, or a login.",
    )
    kafkalog_zookeeper_sasl_jaas_config = Secret(
        "The login at ZooKeeper, as the section Client of Java's JAAS file has it: "
        "org.apache.zookeeper.server.auth.DigestLoginModule with username and password."
    )
