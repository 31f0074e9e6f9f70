"""Access control lists: one permission each, and the filters that select them.

Fields are Kafka's numbers, also those that we do not know: a directory may hold them, and they
permit nothing.  Source: Kafka's AclBinding, AclBindingFilter, AclControlManager.
"""

import re
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from kafkalog.errors import InvalidRequest, UnsupportedVersion
from kafkalog.security.permissions import CLUSTER_NAME, Kind, Operation
from kafkalog.security.principal import Principal

__all__ = [
    "ALL", "ANY", "NAME_MAX", "WILDCARD", "Acl", "AclFilter", "Pattern", "Permission",
    "check_acl", "check_filter", "host_matches", "parse_principal",
]  # fmt: skip

ANY = 1
"""In a filter, of each enumeration: not restricted."""
ALL = 2
"""The operation that stands for all."""
WILDCARD = "*"
"""As a literal resource: all resources; as a host: all hosts; `User:*`: all principals."""
NAME_MAX = 32_767
"""Longest name, principal or host in UTF-8 bytes: what every version of a request can hold."""


class Pattern(IntEnum):
    """How a resource's name is matched; Kafka's numbers."""

    MATCH = 2
    """In a filter: the ACLs that apply to the resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's numbers."""

    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One permission: who may, or may not, do what, from where, to which resources."""

    kind: int
    name: str
    pattern: int
    principal: str
    """Its type and name: `User:alice`."""
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """Selects ACLs; the enumerations may be ANY, and the texts None, which restrict nothing."""

    kind: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches(self, acl: Acl) -> bool:
        """True if it selects this one."""
        return (
            self.kind in (ANY, acl.kind)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != Pattern.MATCH:
            return False
        if acl.pattern == Pattern.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.pattern == Pattern.LITERAL and acl.name == WILDCARD


_KINDS, _OPERATIONS, _PATTERNS = frozenset(Kind), frozenset(Operation), frozenset(Pattern)
_PERMISSIONS = frozenset(Permission)


_MASKED = re.compile(r"[^/]+/[0-9]{1,3}")


def parse_principal(text: str) -> Principal:
    """A principal from its type and name with a colon between them.

    Raises: InvalidRequest.
    """
    kind, colon, name = text.partition(":")
    if not colon:
        raise InvalidRequest(
            f"Could not parse principal from `{text}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    return Principal(kind, name)


@lru_cache(maxsize=4096)
def _network(host: str) -> IPv4Network | IPv6Network | None:
    """The addresses of a host pattern with a mask; None: it is not one."""
    try:
        return ip_network(host, strict=False) if _MASKED.fullmatch(host) else None
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def host_matches(pattern: str, host: str) -> bool:
    """True if an ACL with this host applies to an address, which is written as Java writes it; to
    hosts without one (`unix`) only `*` applies."""
    if pattern in (WILDCARD, host):
        return True
    network = _network(pattern)
    if network is None:
        return False
    try:
        return ip_address(host.partition("%")[0]) in network
    except ValueError:
        return False


def check_acl(acl: Acl, masks: bool = True) -> None:
    """Refuse an ACL that cannot be added.

    `masks`: the metadata's level has hosts such as 10.0.0.0/8.

    Raises: InvalidRequest, UnsupportedVersion (a mask).
    """
    if acl.kind == Kind.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise InvalidRequest("Invalid empty resource name")
    if acl.kind not in _KINDS:
        raise InvalidRequest(f"Invalid resourceType {_shown(acl.kind)}")
    if acl.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise InvalidRequest(f"Invalid patternType {_shown(acl.pattern)}")
    if acl.operation not in _OPERATIONS and acl.operation != ALL:
        raise InvalidRequest(f"Invalid operation {_shown(acl.operation)}")
    if acl.permission not in _PERMISSIONS:
        raise InvalidRequest(f"Invalid permissionType {_shown(acl.permission)}")
    parse_principal(acl.principal)
    if not acl.host:
        raise InvalidRequest("Host pattern cannot be null or empty")
    if "/" in acl.host and not masks:
        raise UnsupportedVersion(
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        )
    if "/" in acl.host and _network(acl.host) is None:
        raise InvalidRequest(f"Invalid CIDR notation '{acl.host}'")
    for what, text in (("name", acl.name), ("principal", acl.principal), ("host", acl.host)):
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > NAME_MAX:
            raise InvalidRequest(f"{what} of {size} bytes: at most {NAME_MAX} are accepted")


def check_filter(one: AclFilter) -> None:
    """Refuse a filter with a number that is not known.

    Raises: InvalidRequest.
    """
    if one.kind != ANY and one.kind not in _KINDS:
        raise InvalidRequest("Unknown patternFilter.")
    if one.pattern != ANY and one.pattern not in _PATTERNS:
        raise InvalidRequest("Unknown patternFilter.")
    if one.operation not in (ANY, ALL) and one.operation not in _OPERATIONS:
        raise InvalidRequest("Unknown entryFilter.")
    if one.permission != ANY and one.permission not in _PERMISSIONS:
        raise InvalidRequest("Unknown entryFilter.")


def _shown(number: int) -> str:
    return {ANY: "ANY", Pattern.MATCH: "MATCH"}.get(number, "UNKNOWN")
