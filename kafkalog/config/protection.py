"""Kafka's settings that restrict access, and are not supported yet: a broker that is given one
refuses to start instead of serving everybody."""

import re
from collections.abc import Mapping

from kafkalog.config.authorizer import AuthorizerConfig
from kafkalog.config.listeners import own_setting
from kafkalog.config.login import BearerSettings
from kafkalog.config.sasl import SaslServerSettings
from kafkalog.config.ssl import ServerSslSettings
from kafkalog.config.tokens import TokenSettings
from kafkalog.errors import InvalidSetting

__all__ = ["bare_name", "is_clustered", "protects", "refuse_protection", "refuse_protections"]

_BEGINS = ("authorizer.", "delegation.token.", "password.encoder.", "sasl.", "ssl.")
_NAMES = frozenset({
    "alter.config.policy.class.name", "client.quota.callback.class",
    "connections.max.reauth.ms", "create.topic.policy.class.name", "principal.builder.class",
    "security.inter.broker.protocol", "security.providers", "super.users",
})  # fmt: skip
_TUNING = re.compile(
    r"sasl\.(kerberos\.(kinit\.cmd|min\.time\.before\.relogin|ticket\.renew\..+)"
    r"|login\.((refresh|retry)\..+|(connect|read)\.timeout\.ms)"
    r"|oauthbearer\.jwks\.endpoint\.(refresh|retry)\..+|server\.max\.receive\.size)"
)
"""When a login is renewed, and how long it may take: whatever the value, it restricts nothing
without other settings."""
_NOTHING = {
    "connections.max.reauth.ms": ("0",),
    "delegation.token.expiry.check.interval.ms": ("3600000",),
    "delegation.token.expiry.time.ms": ("86400000",),
    "delegation.token.max.lifetime.ms": ("604800000",),
    "principal.builder.class": (
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    "sasl.enabled.mechanisms": ("GSSAPI",),
    "sasl.kerberos.principal.to.local.rules": ("DEFAULT",),
    "sasl.mechanism.controller.protocol": ("GSSAPI",),
    "sasl.mechanism.inter.broker.protocol": ("GSSAPI",),
    "sasl.oauthbearer.allow.unverified.audience": ("false",),
    "sasl.oauthbearer.allow.unverified.issuer": ("false",),
    "sasl.oauthbearer.clock.skew.seconds": ("30",),
    "sasl.oauthbearer.header.urlencode": ("false",),
    "sasl.oauthbearer.scope.claim.name": ("scope",),
    "sasl.oauthbearer.sub.claim.name": ("sub",),
    "security.inter.broker.protocol": ("PLAINTEXT",),
    "ssl.allow.dn.changes": ("false",),
    "ssl.allow.san.changes": ("false",),
    "ssl.client.auth": ("none",),
    "ssl.enabled.protocols": ("TLSv1.2,TLSv1.3", "TLSv1.2"),
    "ssl.endpoint.identification.algorithm": ("https",),
    "ssl.keymanager.algorithm": ("SunX509",),
    "ssl.keystore.type": ("JKS",),
    "ssl.principal.mapping.rules": ("DEFAULT",),
    "ssl.protocol": ("TLSv1.3", "TLSv1.2"),
    "ssl.trustmanager.algorithm": ("PKIX",),
    "ssl.truststore.type": ("JKS",),
}
"""Kafka's defaults, besides the empty value."""


SERVED_AT_START = frozenset(
    {*ServerSslSettings.table, *SaslServerSettings.table, *BearerSettings.table,
     "security.inter.broker.protocol", *AuthorizerConfig.table, *TokenSettings.table}
)  # fmt: skip
"""Settings that a broker obeys, but no change of them at run time."""


def bare_name(name: str) -> str:
    """A setting's name without the listener and the SASL mechanism that it is for."""
    own = own_setting(name)
    return name if own is None else own.name


def protects(name: str, value: object, *, running: bool = False) -> bool:
    """True if a setting with this name and value is meant to restrict access, and would not.

    `running`: it is changed at run time, or in metadata.
    """
    bare = bare_name(name)
    if bare in SERVED_AT_START and not running:
        return False
    if not (bare in _NAMES or bare.startswith(_BEGINS)) or _TUNING.fullmatch(bare):
        return False
    text = "" if value is None else str(value).strip()
    return bool(text) and text not in _NOTHING.get(bare, ())


def refuse_protection(
    name: str,
    value: object,
    where: str = "",
    *,
    running: bool = False,
) -> None:
    """Refuse a setting that would restrict access and does not.  `where`: whose setting it is, for
    the message.

    Raises: InvalidSetting, without the value, which may be a secret.
    """
    if protects(name, value, running=running):
        raise InvalidSetting(
            f"{where}{name}: found a value, wanted none: kafkalog cannot protect in this way "
            f"{'here' if bare_name(name) in SERVED_AT_START else 'yet'}; "
            "without the setting, everyone who reaches a listener may do everything"
        )


def is_clustered(found: Mapping[str, object]) -> bool:
    """True if these are the settings of a cluster's node, on ZooKeeper or of KRaft."""
    return bool(found.get("zookeeper.connect") or found.get("process.roles"))


def refuse_protections(found: Mapping[str, object]) -> None:
    """Refuse all settings of a broker that would restrict access and do not.

    Raises: InvalidSetting.
    """
    for name, value in found.items():
        refuse_protection(name, value)
