"""Counters and reports of the network side."""

from typing import Any, NamedTuple

from kafkalog._native import ffi

__all__ = ["HandshakeFailure", "Stats"]


class Stats(NamedTuple):
    """The network side's counters; see kl_server_stats for each."""

    connections: int
    accepted: int
    refused_per_ip: int
    accept_pauses: int
    closed_idle: int
    closed_half_frame: int
    closed_garbage: int
    closed_unidentified: int
    bytes_in: int
    bytes_out: int
    requests: dict[int, int]
    """Requests by API key, without zeros; keys above 98 count as 99."""
    fast: int
    queued: int
    queue_full: int
    parked: int
    pinned: int
    cold: int
    allocations: int
    buffer_bytes: int
    handshakes: int
    """TLS, complete."""
    handshakes_failed: int
    network_threads: int


class HandshakeFailure(NamedTuple):
    """A TLS handshake that failed."""

    listener: int
    peer: str
    """As in RawRequest."""
    reason: str
    lost: int
    """Further failures before it that are not reported."""

    @classmethod
    def of(cls, found: Any) -> "HandshakeFailure":
        """From a kl_handshake_failure."""
        peer, reason = (ffi.string(text).decode(errors="replace")
                        for text in (found.peer, found.reason))  # fmt: skip
        return cls(found.listener, peer, reason, found.lost)
