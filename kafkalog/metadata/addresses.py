"""The IP address of a name, as settings and quotas have it."""

import socket

__all__ = ["ADDRESS_BYTES", "address_of"]

ADDRESS_BYTES = 16
_MAPPED = bytes(10) + b"\xff\xff"


def address_of(name: str) -> bytes | None:
    """The address of a host name, or of an address as text, IPv4 before IPv6: 16 bytes, with IPv4
    mapped to IPv6.  None: it has none."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    for family, _, _, _, place in sorted(found, key=lambda one: one[0] != socket.AF_INET):
        if family == socket.AF_INET:
            return _MAPPED + socket.inet_pton(family, str(place[0]))
        if family == socket.AF_INET6:
            return socket.inet_pton(family, str(place[0]).partition("%")[0])
    return None
