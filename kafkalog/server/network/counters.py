"""The counters of a reactor."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.log.figures import Times
from kafkalog.server.network.outcomes import Finished, Stats

__all__ = ["PHASES", "TRAFFIC", "Counters", "Sessions"]

PHASES = ("queue", "local", "remote", "response", "send", "total")
"""The phases of a request, by KL_PHASE_*."""
TRAFFIC = ("bytes_in", "messages_in", "bytes_out", "replicated_out", "produced",
           "produce_failed", "fetched", "fetch_failed")  # fmt: skip
"""The counts of a topic, by KL_TRAFFIC_*."""
INT64_MAX = 2**63 - 1
TOPICS_ROOM = 64
"""Topics of the first look; there may be more."""


class Sessions(NamedTuple):
    """Incremental fetch sessions."""

    sessions: int
    session_partitions: int
    sessions_evicted: int
    session_looks: int
    """Partitions of sessions that were looked at, as they may have changed."""


class Counters:
    """A part of Reactor."""

    _c: Any

    def stats(self) -> Stats:
        """The counters, as they are now."""
        found = ffi.new("kl_server_stats *")
        lib.kl_server_get_stats(self._c, found)
        values = {name: getattr(found, name) for name in Stats._fields}
        for name in ("requests", "waiting", "listening"):
            values[name] = {key: n for key, n in enumerate(getattr(found, name)) if n}
        return Stats(**values)

    def times(self, api_key: int) -> tuple[Times, ...]:
        """The times of an API's answered requests, by PHASES; those of keys above 98 are 99's.

        Raises: ArgumentError, ForkedHandle.
        """
        out = ffi.new("kl_phase_times[]", lib.KL_PHASES)
        check(lib.kl_server_get_times(self._c, api_key, out))
        return tuple(Times(tuple(one.buckets), one.sum_ns / 1e6) for one in out)

    def report_finished(self, least_ns: int | None) -> None:
        """Report requests that took at least so long, from the next one on; None: none."""
        least = INT64_MAX if least_ns is None else least_ns
        lib.kl_server_report_finished(self._c, least)

    def finished(self, timeout_ms: int) -> Finished | None:
        """The next request that is reported; None if none came.

        Raises: Closed (the server was stopped).
        """
        out = ffi.new("kl_finished *")
        status = lib.kl_server_take_finished(self._c, timeout_ms, out)
        if status == lib.KL_E_TIMEOUT:
            return None
        check(status)
        client = None
        if out.client_id_bytes >= 0:
            client = ffi.buffer(out.client_id, out.client_id_bytes)[:].decode("utf-8", "replace")
        return Finished(
            out.api_key, out.api_version, out.correlation_id, client,
            ffi.string(out.peer).decode("utf-8", "replace"), out.listener, out.principal,
            out.tenure, tuple(out.spent_ns), out.own_ns, out.throttle_ms, out.lost,
        )  # fmt: skip

    def errors(self, api_key: int) -> dict[int, int]:
        """How many partitions, or whole requests, of Produce or Fetch C has answered with each
        error code; unknown codes count as -1.

        Raises: ArgumentError, ForkedHandle.
        """
        out = ffi.new("int64_t[]", lib.KL_ERROR_CODES)
        check(lib.kl_server_get_errors(self._c, api_key, out))
        found = {at - 1: n for at, n in enumerate(out[0 : lib.KL_ERROR_CODES]) if n}
        if others := found.pop(lib.KL_ERROR_CODES - 2, 0):
            found[-1] = found.get(-1, 0) + others
        return found

    def traffic(self) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
        """The counts of each topic's partitions here, by TRAFFIC; and those of all topics, also
        deleted ones."""
        count, room = ffi.new("size_t *", TOPICS_ROOM), 0
        total = ffi.new("int64_t[]", lib.KL_TRAFFIC)
        while room < count[0]:
            room = count[0]
            out = ffi.new("kl_topic_traffic[]", room)
            lib.kl_server_get_traffic(self._c, out, room, count, total)
        topics = {ffi.string(one.name).decode(): tuple(one.counts) for one in out[0 : count[0]]}
        return topics, tuple(total)

    def sessions(self) -> Sessions:
        """The fetch sessions, as they are now."""
        out = ffi.new("kl_session_stats *")
        lib.kl_server_get_sessions(self._c, out)
        return Sessions(*(getattr(out, name) for name in Sessions._fields))
