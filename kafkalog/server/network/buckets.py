"""The buckets in C that count the use of clients' quotas, and the limits of connections there."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib

__all__ = ["Buckets", "IpLimit"]


class IpLimit(NamedTuple):
    """An address with limits of its own."""

    address: bytes
    """16 bytes, IPv4 mapped to IPv6."""
    connections_max: int
    """At the same time; -1: as other addresses."""
    rate: int
    """New ones a second; 0: as other addresses."""


class Buckets:
    """A server's buckets, by place.  Safe to use from many threads.

    A reference to a bucket is a number; 0 is no bucket, which has no limit.
    """

    PRODUCE: int = lib.KL_QUOTA_PRODUCE
    """Bytes of Produce requests."""
    FETCH: int = lib.KL_QUOTA_FETCH
    """Bytes of records of consumers."""
    REQUEST: int = lib.KL_QUOTA_REQUEST
    """Nanoseconds of threads."""

    def __init__(self, server: Any) -> None:
        """`server`: a kl_server, which outlives it."""
        self._c = server

    def set_version(self, version: int) -> None:
        """Make C ask for the buckets of every client again; 0: no client has a quota."""
        lib.kl_server_set_quota_version(self._c, version)

    def set(self, place: int, limit: float, renew: bool) -> int | None:
        """Set the limit per second of the bucket at `place`; `renew`: for a new owner.  Returns
        its reference; None if there are not so many places.

        Raises: NoMemory.
        """
        out = ffi.new("uint64_t *")
        status = lib.kl_server_set_bucket(self._c, place, limit, renew, out)
        if status == lib.KL_E_ARGUMENT:
            return None
        check(status)
        return int(out[0])

    def charge(self, bucket: int, amount: int) -> int:
        """Count an amount; how long the client must wait now, in ms."""
        return int(lib.kl_server_charge(self._c, bucket, amount))

    def used_ms(self, bucket: int) -> int:
        """When it was last charged, by the server's clock; -1: it has another owner now."""
        return int(lib.kl_server_bucket_used_ms(self._c, bucket))

    def resolve(self, request_id: int, version: int, buckets: Sequence[int]) -> None:
        """Hand back a request of a client whose buckets C did not know: by PRODUCE, FETCH, REQUEST.

        Raises: NotFound, when the request has ended.
        """
        found = ffi.new("kl_client_quotas *", (version, buckets))
        check(lib.kl_server_resolve(self._c, request_id, found))

    def throttle(self, request_id: int, ms: int) -> None:
        """Mute the request's connection from its answer on, for that time.

        Raises: NotFound, when the request has ended.
        """
        check(lib.kl_server_throttle(self._c, request_id, ms))

    def set_arrivals(self, rate: int, ip_rate: int, of_ips: Sequence[IpLimit]) -> None:
        """Limit new connections a second: in total, and of an address; `of_ips`: addresses with
        limits of their own.

        Raises: ArgumentError, NoMemory.
        """
        limits = ffi.new("kl_arrival_limits *", (rate, ip_rate))
        rows = ffi.new("kl_ip_limit[]", list(of_ips))
        check(lib.kl_server_set_arrivals(self._c, limits, rows, len(of_ips)))

    def set_listener_limits(self, listener: int, connections_max: int, rate: int) -> None:
        """Limit a listener's connections, at the same time and new ones a second.

        Raises: ArgumentError.
        """
        check(lib.kl_server_set_listener_limits(self._c, listener, connections_max, rate))
