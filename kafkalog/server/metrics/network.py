"""Reads the metrics of listeners, requests and topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.log.figures import TIME_BOUNDS_MS
from kafkalog.metrics.metric import OTHERS, Histogram, Readings
from kafkalog.server.network.listeners import INSIDE
from kafkalog.server.request import KNOWN
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.server.authentication import Authentication
    from kafkalog.server.error_counts import ErrorCounts
    from kafkalog.server.metrics.labels import Labels
    from kafkalog.server.network.outcomes import Stats
    from kafkalog.server.network.reactor import Reactor

__all__ = ["Serving", "add_shares", "read_network", "read_topics"]

NS = 1e-9
UNKNOWN_API = "unknown"
_PHASES = ("requestqueuetimems", "localtimems", "remotetimems", "responsequeuetimems",
           "responsesendtimems", "totaltimems")  # fmt: skip
_TOPICS = ("bytesin", "messagesin", "bytesout", "replicationbytesout", "totalproducerequests",
           "failedproducerequests", "totalfetchrequests", "failedfetchrequests")  # fmt: skip
"""The metrics of counters.TRAFFIC."""
_BY_TOPIC = frozenset(_TOPICS) - {"replicationbytesout"}
REQUESTS = "kafka_network_requestmetrics_"
SOCKETS = "kafka_server_socket_server_metrics_"


class Serving(NamedTuple):
    """The parts behind some listeners."""

    reactor: Reactor
    errors: ErrorCounts
    authentication: Authentication
    listeners: Sequence[str]
    """Their names, by number."""


def read_network(readings: Readings, serving: Serving) -> None:
    """Read the connections and requests of some listeners.

    Raises: ForkedHandle.
    """
    stats = serving.reactor.stats()
    _requests(readings, serving, stats)
    _connections(readings, serving, stats)
    _threads(readings, stats)
    sessions = serving.reactor.sessions()
    name = "kafka_server_fetchsessioncache_"
    readings.add(f"{name}numincrementalfetchsessions", sessions.sessions)
    readings.add(f"{name}numincrementalfetchpartitionscached", sessions.session_partitions)
    readings.add(f"{name}incrementalfetchsessionevictions_total", sessions.sessions_evicted)


def _api_name(key: int) -> str:
    api = KNOWN.get(key)
    return UNKNOWN_API if api is None else api.name


def _error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)


def _requests(readings: Readings, serving: Serving, stats: Stats) -> None:
    counts: Counter[str] = Counter()
    for key, count in stats.requests.items():
        counts[_api_name(key)] += count
        for phase, times in zip(_PHASES, serving.reactor.times(key), strict=True):
            found = Histogram(TIME_BOUNDS_MS, times.buckets, times.sum_ms)
            if _api_name(key) != UNKNOWN_API:
                readings.add(REQUESTS + phase, found, request=_api_name(key))
    for name, count in counts.items():
        readings.add(f"{REQUESTS}requests_total", count, request=name)
    errors = serving.errors.counts()
    for api in (apis.PRODUCE, apis.FETCH):
        fast, other = serving.reactor.errors(api.key), errors.pop(api.name, {})
        errors[api.name] = {
            code: fast.get(code, 0) + other.get(code, 0) for code in fast.keys() | other
        }
    if stats.repeated:  # heartbeats without news, whose answers have no error
        codes = errors.setdefault(apis.CONSUMER_GROUP_HEARTBEAT.name, {})
        codes[0] = codes.get(0, 0) + stats.repeated
    for name, codes in errors.items():
        for code, count in sorted(codes.items()):
            error = _error_name(code)
            readings.add(f"{REQUESTS}errors_total", count, request=name, error=error)
    for api in (apis.PRODUCE, apis.FETCH):
        readings.add("kafka_server_delayedoperationpurgatory_purgatorysize",
                     stats.waiting.get(api.key, 0), delayedOperation=api.name)  # fmt: skip
    readings.add("kafka_network_requestchannel_requestqueuesize", stats.queued)
    readings.add("kafkalog_request_queue_full_total", stats.queue_full)
    readings.add("kafkalog_requests_fast_total", stats.fast)
    readings.add("kafkalog_throttled_answers_total", stats.throttled)
    readings.add("kafkalog_throttled_seconds_total", stats.throttled_ms / 1000)
    readings.add("kafkalog_cold_reads_total", stats.cold)


def _connections(readings: Readings, serving: Serving, stats: Stats) -> None:
    names = serving.listeners
    inside = stats.connections - sum(stats.listening.values())
    for number, name in enumerate(names):
        count = stats.listening.get(number, 0)
        readings.add(f"{SOCKETS}connection_count", count, listener=name)
    readings.add(f"{SOCKETS}connection_count", max(inside, 0), listener="INSIDE")
    outcomes = serving.authentication.outcomes()
    for number, name in enumerate(names):
        for word, well in (("successful", True), ("failed", False)):
            readings.add(f"{SOCKETS}{word}_authentication_total",
                         outcomes.get((number, well), 0), listener=name)  # fmt: skip
    assert (INSIDE, False) not in outcomes
    readings.add("kafkalog_connections_accepted_total", stats.accepted)
    readings.add("kafkalog_accept_pauses_total", stats.accept_pauses)
    for reason, count in (("count", stats.refused_per_ip), ("rate", stats.held_per_ip)):
        readings.add("kafkalog_connections_refused_total", count, reason=reason)
    closed = {"idle": stats.closed_idle, "half_frame": stats.closed_half_frame,
              "garbage": stats.closed_garbage,
              "unauthenticated": stats.closed_unidentified}  # fmt: skip
    for reason, count in closed.items():
        readings.add("kafkalog_connections_closed_total", count, reason=reason)
    for result, count in (("ok", stats.handshakes), ("failed", stats.handshakes_failed)):
        readings.add("kafkalog_tls_handshakes_total", count, result=result)
    for direction, count in (("in", stats.bytes_in), ("out", stats.bytes_out)):
        readings.add("kafkalog_network_bytes_total", count, direction=direction)
    readings.add("kafkalog_network_buffer_bytes", stats.buffer_bytes)


def _threads(readings: Readings, stats: Stats) -> None:
    readings.add("kafkalog_network_threads", stats.network_threads)
    times = {"network": (stats.network_idle_ns, stats.network_ran_ns),
             "io": (stats.taking_idle_ns, stats.taking_ran_ns)}  # fmt: skip
    for kind, (idle_ns, ran_ns) in times.items():
        readings.add("kafkalog_thread_idle_seconds_total", idle_ns * NS, threads=kind)
        readings.add("kafkalog_thread_seconds_total", ran_ns * NS, threads=kind)


def add_shares(readings: Readings) -> None:
    """Add the shares of idle time, once all threads' times are there."""
    values = readings.flat()
    for kind, name in (
        ("network", "kafka_network_socketserver_networkprocessoravgidlepercent"),
        ("io", "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
    ):
        idle_s = values[f'kafkalog_thread_idle_seconds_total{{threads="{kind}"}}']
        ran_s = values[f'kafkalog_thread_seconds_total{{threads="{kind}"}}']
        readings.add(name, min(idle_s / ran_s, 1.0) if ran_s else 1.0)


def read_topics(readings: Readings, reactor: Reactor, labels: Labels[str]) -> None:
    """Read what came and went by topic."""
    topics, total = reactor.traffic()
    shown = labels.shown(topics)
    others = [0] * len(_TOPICS)
    for name, counts in topics.items():
        if name not in shown:
            others = [a + b for a, b in zip(others, counts, strict=True)]
    rows = [(name, topics[name]) for name in sorted(shown)]
    if len(shown) < len(topics):
        rows.append((OTHERS, tuple(others)))
    for at, metric in enumerate(_TOPICS):
        name = f"kafka_server_brokertopicmetrics_{metric}_total"
        readings.add(name, total[at])
        for topic, counts in rows if metric in _BY_TOPIC else ():
            readings.add(name, counts[at], topic=topic)
