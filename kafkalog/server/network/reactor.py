"""The network side of a broker: sockets, frames, Produce and Fetch, all in C, as one handle.

`Reactor.take` gives the requests that C does not answer itself, and `Reactor.answer` answers them,
each from any thread.  `put_topic` and `put_partition` add what is served.
"""

import socket
import uuid
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalog._native import check, ffi, lib
from kafkalog.config.server import ServerConfig
from kafkalog.errors import ArgumentError
from kafkalog.replication.followers import CaughtUp, Follower, FollowerState
from kafkalog.server.network.buckets import Buckets
from kafkalog.server.network.counters import Counters
from kafkalog.server.network.outcomes import Appended, HandshakeFailure, Stats
from kafkalog.server.network.raw_request import RawRequest
from kafkalog.server.network.rights import RIGHTS, Rights, Usage
from kafkalog.server.network.roles import RoleChange, role_of

if TYPE_CHECKING:
    from kafkalog.log.handle import Handle
    from kafkalog.server.network.tls import TlsContext

__all__ = [
    "ANONYMOUS", "NO_CONTROL", "REAUTHENTICATES", "RIGHTS", "TOKEN", "UNIDENTIFIED",
    "UNIDENTIFIED_RAW", "Appended", "HandshakeFailure", "Reactor", "RoleChange", "Stats", "Usage",
]  # fmt: skip

ANONYMOUS: int = lib.KL_ANONYMOUS
"""The principal of connections on a listener without authentication."""
UNIDENTIFIED: int = lib.KL_UNIDENTIFIED
"""The principal of a connection that must authenticate."""
UNIDENTIFIED_RAW: int = lib.KL_UNIDENTIFIED_RAW
"""The same, and its next frames are tokens without a header: SaslAuthenticate of version -1."""
REAUTHENTICATES: int = lib.KL_REAUTHENTICATES
"""The principal of a connection that must authenticate again: it had one before."""
TOKEN: int = lib.KL_HEADER_TOKEN
"""The header version of an answer that is such a token."""
NO_CONTROL = -1
"""The listener number that means "no listener is served first"."""
_NO_ID = bytes(16)
_COORDINATOR, _CLIENT = lib.KL_ORIGIN_COORDINATOR, lib.KL_ORIGIN_CLIENT
ENDPOINT_BYTES = 256
"""Room for a host or a rack, with its NUL."""


def _end(c: Any, logs: "dict[tuple[str, int], Handle]") -> None:
    lib.kl_server_stop(c, 0)
    logs.clear()


def _c_followers(followers: Sequence[Follower]) -> Any:
    return ffi.new("kl_follower[]", followers)  # its fields are in the same order


class Reactor(Rights, Counters):
    """A kl_server.  Safe to use from many threads; a forked child gets ForkedHandle."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        node_id: int | None = None,
        manual_clock: bool = False,
        control_listener: int = NO_CONTROL,
    ) -> None:
        """Nothing listens yet.

        `manual_clock`: timers follow set_time; `control_listener`: the number of the listener
        whose requests are served first, by their own network thread.

        Raises: ArgumentError, NoMemory, IoFailed.
        """
        settings = {
            "network_threads": config.num_network_threads,
            "queued_requests_max": config.queued_max_requests,
            "request_bytes_max": config.socket_request_max_bytes,
            "queued_bytes_max": config.queued_max_request_bytes,
            "connections_max": config.max_connections,
            "connections_per_ip_max": config.max_connections_per_ip,
            "backlog": config.socket_listen_backlog_size,
            "send_buffer_bytes": config.socket_send_buffer_bytes,
            "receive_buffer_bytes": config.socket_receive_buffer_bytes,
            "idle_ms_max": config.connections_max_idle_ms,
            "half_frame_ms_max": config.kafkalog_half_frame_max_ms,
            "fetch_bytes_max": config.fetch_max_bytes,
            "fetch_sessions_max": config.max_incremental_fetch_session_cache_slots,
            "unidentified_bytes_max": config.sasl_server_max_receive_size,
            "unidentified_max": config.kafkalog_unauthenticated_connections_max,
            "unidentified_ms_max": config.kafkalog_authentication_max_ms,
            "produce_waiting_max": config.kafkalog_produce_waiting_max,
            "quota_windows": config.replication_quota_window_num,
            "quota_window_ms": config.replication_quota_window_size_seconds * 1000,
            "client_quota_windows": config.quota_window_num,
            "client_quota_window_ms": config.quota_window_size_seconds * 1000,
            "node_id": config.node_id if node_id is None else node_id,
            "control_listener": control_listener,
            "manual_clock": int(manual_clock),
        }
        out = ffi.new("kl_server **")
        check(lib.kl_server_new(ffi.new("kl_server_config *", settings), out))
        self._c = ffi.gc(out[0], lib.kl_server_free)
        for number in (ANONYMOUS, lib.KL_PROCESS):
            self.set_permit(number, RIGHTS)
        self.buckets = Buckets(self._c)
        """The use of clients' quotas."""
        self._stopped = False
        # The logs that C uses: they must not be garbage collected before it has stopped.
        self._logs: dict[tuple[str, int], Handle] = {}
        self._end = weakref.finalize(self, _end, self._c, self._logs)

    # ---- its life ------------------------------------------------------------------------------

    def listen(self, host: str, port: int, listener: int, tls: "TlsContext | None" = None) -> int:
        """Accept connections at an address, a host name (its first address, IPv4 before IPv6),
        "" (all addresses) or `unix:/path`; returns the bound port (port 0: any free one).

        Each request carries `listener`.  `tls`: None: connections are not encrypted.

        Raises: IoFailed, NotFound (no such host), ArgumentError, Closed.
        """
        bound = ffi.new("int32_t *")
        c_tls = ffi.NULL if tls is None else tls.c
        check(lib.kl_server_listen(self._c, host.encode(), port, listener, c_tls, bound))
        return int(bound[0])

    def set_tls(self, listener: int, tls: "TlsContext") -> None:
        """Use other keys for later connections of a listener that has TLS; open ones go on.

        Raises: NotFound (it has none).
        """
        check(lib.kl_server_set_tls(self._c, listener, tls.c))

    def handshake_failure(self, timeout_ms: int) -> HandshakeFailure | None:
        """The next failed TLS handshake; None if none came.

        Raises: Closed (the server was stopped).
        """
        out = ffi.new("kl_handshake_failure *")
        status = lib.kl_server_take_failure(self._c, timeout_ms, out)
        if status == lib.KL_E_TIMEOUT:
            return None
        check(status)
        peer, reason = (ffi.string(text).decode("utf-8", "replace")
                        for text in (out.peer, out.reason))  # fmt: skip
        return HandshakeFailure(out.listener, peer, reason, out.lost)

    def authenticate(self, listener: int) -> None:
        """From now on, connections of a listener must authenticate: each begins as UNIDENTIFIED,
        and all its requests are taken here, one at a time.

        Raises: ArgumentError.
        """
        check(lib.kl_server_authenticate(self._c, listener))

    def adopt(self, connection: socket.socket, listener: int) -> None:
        """Serve one end of a connected stream socket as if it had been accepted on `listener`.
        On success the reactor owns it; on failure the caller still does.

        Raises: Timeout (too many connections now), Closed, ArgumentError (not started), IoFailed.
        """
        check(lib.kl_server_adopt(self._c, connection.fileno(), listener))
        connection.detach()

    def start(self) -> None:
        """Accept and serve.

        Raises: NoMemory, Closed.
        """
        check(lib.kl_server_start(self._c))

    @property
    def stopped(self) -> bool:
        """True if stop was called and no more requests can be taken."""
        return self._stopped

    def stop(self, timeout_ms: int) -> None:
        """Accept no new connections and requests; answer requests in flight; close everything.

        Threads must keep taking and answering requests until it returns.  Idempotent.

        Raises: Timeout if some were not answered in time; everything is closed nevertheless.
        """
        try:
            check(lib.kl_server_stop(self._c, timeout_ms))
        finally:
            self.close()

    def close(self) -> None:
        """Stop immediately.  Memory is freed when nobody holds the reactor any more."""
        self._end()
        self._stopped = True

    def set_time(self, now_ms: int) -> None:
        """Set a manual clock, or how far another clock is ahead.  Timers that are due run."""
        lib.kl_server_set_time(self._c, now_ms)

    # ---- requests ------------------------------------------------------------------------------

    def take(self, timeout_ms: int) -> RawRequest | None:
        """The next request, those of the control listener first; None if none came in time,
        or none will come.
        """
        info = ffi.new("kl_request_info *")
        status = lib.kl_server_take(self._c, timeout_ms, info)
        if status in (lib.KL_E_TIMEOUT, lib.KL_E_CLOSED):
            self._stopped |= status == lib.KL_E_CLOSED
            return None
        check(status)
        return RawRequest(self, info)

    def answer(
        self, request_id: int, body: bytes | bytearray | memoryview, header_version: int
    ) -> None:
        """Send `body` behind a response header of version 0 or 1; -1: send nothing (acks=0).

        Nothing happens when the connection is gone.

        Raises: NotFound, when the request has ended.
        """
        data = body if isinstance(body, bytes) else ffi.from_buffer(body)
        check(lib.kl_server_answer(self._c, request_id, data, len(body), header_version))

    def answer_repeatedly(
        self, request_id: int, body: bytes, header_version: int, mark: int
    ) -> Any:  # fmt: skip
        """As `answer`; the same request, if its connection sends it next, is answered so without
        Python, until the kl_repeat that is returned is ended or the mark is another one.  None:
        it is not repeated.  See kafkalog.server.network.repeats.

        Raises: NotFound, when the request has ended.
        """
        answer = ffi.new("kl_refusal *", (ffi.from_buffer(body), len(body), header_version, 0))
        out = ffi.new("kl_repeat **")
        check(lib.kl_server_answer_repeatedly(self._c, request_id, answer, mark, out))
        return None if out[0] == ffi.NULL else out[0]

    def repeat_mark(self) -> int:
        """The mark of answers that are repeated."""
        return int(lib.kl_server_repeat_mark(self._c))

    def end_repeats(self) -> None:
        """End all answers that are repeated."""
        lib.kl_server_end_repeats(self._c)

    def again(self, request_id: int, *, heard: bool = True) -> None:
        """Hand a Produce or Fetch back to the fast path, which answers all of it now; without
        `heard` it closes the connection instead of sending the answer.

        Raises: NotFound, when the request has ended.
        """
        check(lib.kl_server_again(self._c, request_id, int(heard)))

    def set_principal(self, request_id: int, principal: int, expires_ms: int = -1) -> None:
        """Let a connection have a principal from the answer or return of this request on.

        After expires_ms, only SaslHandshake is accepted on it, and another request closes it; -1:
        never.  UNIDENTIFIED: it must authenticate (again).

        Raises: NotFound, when the request has ended; ArgumentError.
        """
        check(lib.kl_server_set_principal(self._c, request_id, principal, expires_ms))

    def refuse(self, request_id: int, body: bytes, header_version: int, delay_ms: int) -> None:
        """As `answer`, but after delay_ms; then close the connection.

        Raises: NotFound, when the request has ended.
        """
        data = ffi.from_buffer(body)
        refusal = ffi.new("kl_refusal *", (data, len(body), header_version, delay_ms))
        check(lib.kl_server_refuse(self._c, request_id, refusal))

    def read(self, request_id: int) -> None:
        """Free the memory of a request's body; the request continues without it.

        Raises: NotFound, when the request has ended.
        """
        check(lib.kl_server_read(self._c, request_id))

    def throttle(self, request_id: int, ms: int) -> None:
        """As Buckets.throttle."""
        self.buckets.throttle(request_id, ms)

    def drop(self, request_id: int) -> None:
        """Close the request's connection.

        Raises: NotFound, when the request has ended.
        """
        check(lib.kl_server_drop(self._c, request_id))

    def connected(self, connections: Sequence[int]) -> list[tuple[bool, bool]]:
        """For each of these connections, by their numbers: True if it is open; True if its peer may
        still send requests."""
        order = sorted(range(len(connections)), key=connections.__getitem__)
        numbers = ffi.new("uint64_t[]", [connections[at] for at in order])
        out = ffi.new("uint8_t[]", len(order))
        check(lib.kl_server_connected(self._c, numbers, len(order), out))
        found = [(False, False)] * len(order)
        for at, place in enumerate(order):
            found[place] = out[at] > 0, out[at] == 1
        return found

    def departures(self) -> int:
        """How many connections were closed, and peers stopped sending, since the start."""
        out = ffi.new("int64_t *")
        check(lib.kl_server_departures(self._c, out))
        return int(out[0])

    def intercept(self, api_key: int, on: bool) -> None:
        """Pass all requests of this API to Python, from the next one on, or stop doing so.

        Raises: ArgumentError, for a key that no API has.
        """
        check(lib.kl_server_intercept(self._c, api_key, int(on)))

    def pause(self, on: bool) -> None:
        """Stop the network threads, on return, or let them continue: connections stay open, but
        nothing is read from them or sent.

        Raises: Closed, ArgumentError (not started yet).
        """
        check(lib.kl_server_pause(self._c, int(on)))

    # ---- what is served ------------------------------------------------------------------------

    def put_topic(
        self,
        name: str,
        topic_id: uuid.UUID | None,
        *,
        look_inside: bool = False,
        internal: bool = False,
        zstd: bool = False,
        compress: bool = False,
        timed: bool = False,
    ) -> None:
        """Add a topic, or change a known one.

        `look_inside`: pass compressed batches to Python; `internal`: clients may not write to it;
        `zstd`: its codec, which Fetch before version 10 does not understand; `compress`: it has
        a codec, so pass uncompressed batches to Python; `timed`: pass on compressed batches whose
        header has a time more than KL_AHEAD_MS ahead.
        """
        flags = lib.KL_TOPIC_LOOK_INSIDE if look_inside else 0
        flags |= lib.KL_TOPIC_INTERNAL if internal else 0
        flags |= lib.KL_TOPIC_ZSTD if zstd else 0
        flags |= lib.KL_TOPIC_COMPRESS if compress else 0
        flags |= lib.KL_TOPIC_TIMED if timed else 0
        raw = topic_id.bytes if topic_id else _NO_ID
        check(lib.kl_server_put_topic(self._c, name.encode(), raw, flags))

    def put_partition(self, log: "Handle", **role: Any) -> None:
        """Serve a partition from its open log, or change how; `role` is what `role_of` takes.

        Raises: NotFound (no such topic), ArgumentError (it has another log).
        """
        topic, number = log.tp
        at = role_of(**role)
        check(lib.kl_server_put_partition(self._c, topic.encode(), number, log.c, at))
        self._logs[topic, number] = log

    def change_roles(self, changes: Sequence[RoleChange]) -> list[bool]:
        """Change many roles in one step, each as by Handle.lead and set_followers, if led here, and
        put_partition; returns those that changed.  To get the error of one that failed, change it
        alone."""
        names = {one.log.tp[0]: ffi.new("char[]", one.log.tp[0].encode()) for one in changes}
        those: list[Follower] = []
        rows = []
        for log, role, followers in changes:
            topic, number = log.tp
            at = role_of(**role)[0]
            rows.append((names[topic], log.c, number, len(followers), len(those), 0, at))
            those += followers
            self._logs[topic, number] = log
        outcomes = ffi.new("kl_role_change[]", rows)
        lib.kl_server_change_roles(self._c, outcomes, len(rows), _c_followers(those))
        return [one.status == lib.KL_OK for one in outcomes]

    def put_empty(self, topic: str, partition: int, **role: Any) -> None:
        """Serve reads of a partition that was never written: it begins and ends at 0.
        put_partition gives it its log; a partition that has a log keeps it.

        Raises: NotFound (no such topic).
        """
        at = role_of(**role)
        check(lib.kl_server_put_partition(self._c, topic.encode(), partition, ffi.NULL, at))

    def put_offline(self, topic: str, partition: int, offline: bool) -> None:
        """Answer for a partition without a log that its disk failed, or stop doing so.

        Raises: NotFound (no such topic).
        """
        check(lib.kl_server_put_offline(self._c, topic.encode(), partition, int(offline)))

    def set_limits(self, config: ServerConfig) -> None:
        """Apply max.connections and max.connections.per.ip as they are now."""
        per_ip = config.max_connections_per_ip
        check(lib.kl_server_set_limits(self._c, config.max_connections, per_ip))

    def set_threads(self, count: int) -> None:
        """Change the number of network threads.  Connections of a thread that stops move to the
        others, each when no request of it is being processed.

        Raises: ArgumentError, Closed; NoMemory, IoFailed: not all could begin.
        """
        check(lib.kl_server_set_threads(self._c, count))

    def remove_topic(self, name: str) -> None:
        """Stop serving it: on return no call uses its logs, and waiting requests are answered.

        Raises: NotFound.
        """
        check(lib.kl_server_remove_topic(self._c, name.encode()))
        for key in [key for key in self._logs if key[0] == name]:
            del self._logs[key]

    def remove_partition(self, topic: str, partition: int) -> None:
        """As remove_topic, of one partition.

        Raises: NotFound.
        """
        check(lib.kl_server_remove_partition(self._c, topic.encode(), partition))
        self._logs.pop((topic, partition), None)

    # ---- the copies of a partition that is led here --------------------------------------------

    def set_followers(self, topic: str, partition: int, followers: Sequence[Follower]) -> None:
        """Set the followers of a partition: consumers see the records that every member of the
        maximal ISR has; without followers, all.  In the same leader epoch, followers that stay keep
        their state.

        Raises: NotFound, ArgumentError.
        """
        those = _c_followers(followers)
        check(
            lib.kl_server_set_followers(self._c, topic.encode(), partition, those, len(followers))
        )

    def followers(self, topic: str, partition: int) -> list[FollowerState]:
        """How far each follower is.

        Raises: NotFound.
        """
        room, count = 16, ffi.new("int32_t *")
        while True:
            out = ffi.new("kl_follower_state[]", room)
            check(lib.kl_server_get_followers(self._c, topic.encode(), partition, out, room, count))
            if count[0] <= room:
                break
            room = count[0]
        return [
            FollowerState(
                Follower(f.who.id, bool(f.who.in_sync), bool(f.who.maximal), f.who.broker_epoch),
                f.log_end, f.log_start, f.behind_ms,
            )
            for f in out[0 : count[0]]
        ]  # fmt: skip

    def set_replication_rate(self, rate: int) -> None:
        """Limit the bytes per second of throttled partitions to replicas that are not in sync."""
        lib.kl_server_set_replication_rate(self._c, rate)

    def set_racks(self, racks: Mapping[int, str]) -> None:
        """Set the nodes' racks: consumers in a rack are sent to its replica; without racks,
        consumers stay with the leader.

        Raises: ArgumentError.
        """
        places = ffi.new("kl_rack[]", len(racks))
        for place, (node, rack) in zip(places, racks.items(), strict=True):
            named = rack.encode()
            if len(named) >= len(place.rack):
                raise ArgumentError(f"rack of node {node}: found {len(named)} bytes, wanted < 256")
            place.node, place.rack = node, named
        check(lib.kl_server_set_racks(self._c, places, len(racks)))

    def caught_up(self, timeout_ms: int) -> CaughtUp | None:
        """The next follower that may join the ISR, each reported once until set_followers; None if
        none came.

        Raises: Closed (the server was stopped).
        """
        out = ffi.new("kl_caught_up *")
        status = lib.kl_server_take_caught_up(self._c, timeout_ms, out)
        if status == lib.KL_E_TIMEOUT:
            return None
        check(status)
        return CaughtUp(out.tag, out.id, out.broker_epoch, out.leader_epoch)

    def set_endpoints(self, listener: int, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Set the node addresses for answers on a listener, each with `node_id`, `host`, `port` and
        `rack`; they replace the previous ones.  A node whose host has 256 bytes or more is left
        out; so is a rack of that size, but not its node.

        Raises: ArgumentError.
        """
        nodes = [node for node in nodes if len(node["host"].encode()) < ENDPOINT_BYTES]
        places = ffi.new("kl_endpoint[]", len(nodes))
        for place, node in zip(places, nodes, strict=True):
            place.node, place.port = node["node_id"], node["port"]
            place.host = node["host"].encode()
            rack = None if node["rack"] is None else node["rack"].encode()
            place.has_rack = rack is not None and len(rack) < ENDPOINT_BYTES
            if place.has_rack:
                place.rack = rack
        check(lib.kl_server_set_endpoints(self._c, listener, places, len(nodes)))

    def append(
        self,
        topic: str,
        partition: int,
        batches: bytes | bytearray | memoryview,
        *,
        acks: int = -1,
        now_ms: int = -1,
        leader_epoch: int = -1,
        coordinator: bool = False,
        one_batch: bool = False,
        continues: bool = False,
        joins: bool = False,
        raised: bool = False,
    ) -> Appended:
        """Append whole batches as the leader; waiting consumers are answered.

        `continues`: a transactional batch must find its transaction open in the partition;
        `joins`: or begin with sequence 0 if its producer is new there.  `raised`: markers have
        transaction version 2, in which each end raises the epoch.

        With acks -1 they are committed when `wait` for last_offset + 1 returns.

        Raises: NotFound, and what an append raises.
        """
        data = ffi.from_buffer(batches)
        what = ffi.new("kl_server_batches *")
        what.batches, what.bytes, what.acks = data, len(data), acks
        options = what.options
        options.origin = _COORDINATOR if coordinator else _CLIENT
        options.leader_epoch, options.now_ms = leader_epoch, now_ms
        options.one_batch, options.continues = one_batch, 2 if joins else continues
        options.raised = raised
        out = ffi.new("kl_appended *")
        check(lib.kl_server_append(self._c, topic.encode(), partition, what, out))
        return Appended(
            out.base_offset, out.last_offset, out.log_append_time_ms, out.log_start_offset,
            bool(out.duplicate), bool(out.sync_due), out.cuts,
        )  # fmt: skip

    def wait(
        self,
        topic: str,
        partition: int,
        offset: int,
        timeout_ms: int,
        on_disk: bool = False,
        cuts: int = -1,
    ) -> bool:
        """Wait until all records below `offset` are committed, and, with `on_disk`, on disk;
        False if they are not in that time.

        `cuts`: from the append; a later truncation ends the wait, even if the log has grown again.

        Raises: StaleLog (cut below it), StorageOffline (it never will), Closed (removed
        in the meantime), NotFound.
        """
        status = lib.kl_server_wait(
            self._c, topic.encode(), partition, offset, cuts, on_disk, timeout_ms
        )
        if status == lib.KL_E_TIMEOUT:
            return False
        check(status)
        return True
