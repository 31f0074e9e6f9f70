"""The results of a reactor's calls."""

from typing import NamedTuple

__all__ = ["Appended", "Finished", "HandshakeFailure", "Stats"]


class Appended(NamedTuple):
    """The outcome of an append."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 under CreateTime."""
    log_start_offset: int
    duplicate: bool
    """The batch was a duplicate, and nothing was written."""
    sync_due: bool
    """flush.messages: no answer before it is on disk, whatever acks says."""
    cuts: int
    """How often the log had been truncated before: for `wait`."""


class Stats(NamedTuple):
    """The network side's counters; see kl_server_stats for each."""

    connections: int
    accepted: int
    refused_per_ip: int
    held_per_ip: int
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
    """Requests answered without Python; `repeated`: those of them that say what the ones before
    them said."""
    repeated: int
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
    waiting: dict[int, int]
    """Parked requests by API key, without zeros."""
    listening: dict[int, int]
    """Connections by listener, without zeros."""
    throttled: int
    throttled_ms: int
    network_idle_ns: int
    network_ran_ns: int
    taking_idle_ns: int
    taking_ran_ns: int


class HandshakeFailure(NamedTuple):
    """A TLS handshake that failed."""

    listener: int
    peer: str
    """As in RawRequest."""
    reason: str
    lost: int
    """Further failures before it that are not reported."""


class Finished(NamedTuple):
    """A request whose answer was sent, or that has none."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    """Its beginning."""
    peer: str
    """As in RawRequest."""
    listener: int
    principal: int
    tenure: int
    """The number's: 0 for the first client that it stands for, and so on."""
    spent_ns: tuple[int, ...]
    """By counters.PHASES."""
    own_ns: int
    """The last of them, without the time that the request asked to wait."""
    throttle_ms: int
    lost: int
    """Further requests before it that are not reported."""
