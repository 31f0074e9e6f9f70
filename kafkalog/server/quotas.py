"""Quotas of clients: which buckets count what a client uses, and how long it must wait.

C counts the bytes and the time of Produce and Fetch (`_native/plane/buckets.h`), and asks here for
a client's buckets when it sees it first; all other requests are measured here.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.controller.client_quotas import (
    CONSUMER_RATE,
    IP,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
)
from kafkalog.metadata.configs import Refused
from kafkalog.security.quotas import Quotas, Shared, TokenBucket
from kafkalog.server.network.buckets import Buckets
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kafkalog.wire.tables.internal import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.clock import Clock
    from kafkalog.config.server import ServerConfig
    from kafkalog.metadata.image import Change, MetadataImage
    from kafkalog.metadata.source import Described
    from kafkalog.server.network.raw_request import RawRequest
    from kafkalog.server.request import Request

__all__ = ["ClientQuotas"]

KINDS = (PRODUCER_RATE, CONSUMER_RATE, REQUEST_PERCENTAGE)
"""Counted in C, by Buckets.PRODUCE, FETCH and REQUEST."""
NS_PER_PERCENT = 10_000_000
"""request_percentage is a share of a second of one thread."""
MUTATIONS_MAX = 16_384
"""Clients whose changes of topics are counted; the least recently used is forgotten."""
CHANCES = 8
"""Buckets in use that are passed over before the next one is taken from its client."""
EXEMPT = frozenset(
    api.key
    for api in (apis.WRITE_TXN_MARKERS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE,
                LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, ALTER_PARTITION,
                ALLOCATE_PRODUCER_IDS)
)  # fmt: skip
"""Requests between brokers, and before a client is known, have no quota."""
STRICT_SINCE: Mapping[int, int] = {
    apis.CREATE_TOPICS.key: 6, apis.CREATE_PARTITIONS.key: 3, apis.DELETE_TOPICS.key: 5,
}  # fmt: skip
"""KIP-599: from these versions on a change above controller_mutation_rate is refused; before, the
client only waits."""
THROTTLED = "The throttling quota has been exceeded."


class _Owned(NamedTuple):
    """A bucket in C that has an owner."""

    place: int
    bucket: int
    limit: float
    used_ms: int
    """When it was last charged, as it was last looked at."""


class ClientQuotas:
    """The quotas of a node's clients.  Safe to use from many threads."""

    def __init__(
        self, buckets: Buckets, clock: Clock, config: ServerConfig, user_of: Callable[[int], str]
    ) -> None:
        """`user_of`: the name of a connection's principal."""
        self._buckets = buckets
        self._clock = clock
        self._user_of = user_of
        self._window_s = float(
            config.controller_quota_window_num * config.controller_quota_window_size_seconds
        )
        self._request_ms_max = config.quota_window_size_seconds * 1000
        self.active = False
        """False: no client has a quota."""
        self._kinds = (Quotas({}), Quotas({}), Quotas({}))
        self._mutations = Quotas({})
        self._version = 0
        self._lock = threading.Lock()  # guards what follows
        self._owned: OrderedDict[tuple[int, Shared], _Owned] = OrderedDict()
        self._free: list[int] = []
        self._taken: OrderedDict[Shared, TokenBucket] = OrderedDict()

    # ---- changes -------------------------------------------------------------------------------

    def follow(self, metadata: Described) -> None:
        """Obey the quotas of the metadata, now and whenever they change."""

        def changed(change: Change) -> None:
            if change.new.quotas is not change.old.quotas:
                self._obey(change.new)

        metadata.listen(changed)
        self._obey(metadata.image)

    def _obey(self, image: MetadataImage) -> None:
        of_clients = {entity: values for entity, values in image.quotas.items()
                      if all(kind != IP for kind, _ in entity)}  # fmt: skip

        def quotas(key: str, factor: int = 1) -> Quotas:
            return Quotas({entity: values[key] * factor
                           for entity, values in of_clients.items() if key in values})  # fmt: skip

        with self._lock:
            self._kinds = (quotas(PRODUCER_RATE), quotas(CONSUMER_RATE),
                           quotas(REQUEST_PERCENTAGE, NS_PER_PERCENT))  # fmt: skip
            self._mutations = quotas(MUTATION_RATE)
            self.active = any(self._kinds) or bool(self._mutations)
            for (kind, shared), owned in list(self._owned.items()):
                limit = self._kinds[kind].limit(shared)
                if limit is None:
                    del self._owned[kind, shared]
                    self._free.append(owned.place)
                elif limit != owned.limit:
                    self._owned[kind, shared] = owned._replace(limit=limit)
                    self._buckets.set(owned.place, limit, False)
            for shared, tokens in list(self._taken.items()):
                if (rate := self._mutations.limit(shared)) is None:
                    del self._taken[shared]
                else:
                    tokens.rate = rate
            self._version = (self._version + 1) % (1 << 32) or 1
            self._buckets.set_version(self._version if any(self._kinds) else 0)

    # ---- buckets in C --------------------------------------------------------------------------

    def resolve(self, raw: RawRequest) -> None:
        """Tell C the buckets of a request's client.

        Raises: NotFound, when the request has ended.
        """
        user = self._user_of(raw.principal)
        with self._lock:
            found = [self._bucket(kind, user, raw.client_id or "") for kind in range(len(KINDS))]
            version = self._version
        self._buckets.resolve(raw.id, version, found)

    def bucket(self, kind: int, principal: int, client_id: str | None) -> int:
        """The bucket of a client; 0: it has no quota of this kind."""
        if not self._kinds[kind]:
            return 0
        with self._lock:
            return self._bucket(kind, self._user_of(principal), client_id or "")

    def _bucket(self, kind: int, user: str, client_id: str) -> int:
        """Locked."""
        shared = self._kinds[kind].shared(user, client_id)
        owned = self._owned.get((kind, shared))
        if owned is not None:
            self._owned.move_to_end((kind, shared))
            return owned.bucket
        limit = self._kinds[kind].limit(shared)
        if limit is None:
            return 0
        place = self._free.pop() if self._free else len(self._owned)
        bucket = self._buckets.set(place, limit, True)
        if bucket is None:
            place = self._evicted()
            bucket = self._buckets.set(place, limit, True)
        assert bucket is not None
        self._owned[kind, shared] = _Owned(place, bucket, limit, 0)
        return bucket

    def _evicted(self) -> int:
        """Locked.  Take a bucket from its owner: the least recently used one, nearly."""
        for _ in range(CHANCES):
            key, owned = self._owned.popitem(last=False)
            used_ms = self._buckets.used_ms(owned.bucket)
            if used_ms <= owned.used_ms:
                return owned.place
            self._owned[key] = owned._replace(used_ms=used_ms)
        return self._owned.popitem(last=False)[1].place

    def charge(self, bucket: int, amount: int) -> int:
        """Count an amount; how long the client must wait, in ms."""
        return self._buckets.charge(bucket, amount) if bucket else 0

    def charge_time(self, bucket: int, spent_ns: int) -> int:
        """As `charge`, of a request's time: at most one window."""
        return min(self.charge(bucket, spent_ns), self._request_ms_max)

    # ---- changes of topics ---------------------------------------------------------------------

    def mutate(self, principal: int, client_id: str | None, count: int, strict: bool) -> int:
        """Count created or deleted partitions; how long the client must wait, in ms.

        `strict`: nothing is counted if it must wait already; otherwise what is missing afterwards.
        """
        with self._lock:
            shared = self._mutations.shared(self._user_of(principal), client_id or "")
            rate = self._mutations.limit(shared)
            if rate is None:
                return 0
            now_s = self._clock.monotonic_s()
            tokens = self._taken.get(shared)
            if tokens is None:
                tokens = self._taken[shared] = TokenBucket(rate, self._window_s, now_s)
            self._taken.move_to_end(shared)
            if len(self._taken) > MUTATIONS_MAX:
                self._taken.popitem(last=False)
            wait_ms = tokens.wait_ms(now_s) if strict else 0
            if wait_ms:
                return wait_ms
            tokens.take(count, now_s)
            return 0 if strict else tokens.wait_ms(now_s)

    def has_mutation_rate(self, principal: int, client_id: str | None) -> bool:
        """True if a client has a quota of created and deleted partitions."""
        with self._lock:
            shared = self._mutations.shared(self._user_of(principal), client_id or "")
            return self._mutations.limit(shared) is not None

    def now_s(self) -> float:
        """The node's time, monotonic."""
        return self._clock.monotonic_s()

    # ---- requests ------------------------------------------------------------------------------

    def measure(self, request: Request) -> None:
        """Measure a request from now on, unless it has no quota."""
        if request.api.key not in EXEMPT and request.peer.principal >= 0:
            request.meter = _Meter(self, request)


class _Meter:
    """As server.request.Meter."""

    def __init__(self, quotas: ClientQuotas, request: Request) -> None:
        """From now on, its time counts; `request` is not decoded yet."""
        peer = request.peer
        self._quotas = quotas
        self._who = peer.principal, peer.client_id
        self._time = quotas.bucket(Buckets.REQUEST, *self._who)
        self._bytes = self._size = self._fetched = self._fetched_size = 0
        if request.api is apis.PRODUCE:
            self._bytes = quotas.bucket(Buckets.PRODUCE, *self._who)
            self._size = request.size + _header_bytes(request)
        self._strict = request.version >= STRICT_SINCE.get(request.api.key, 0)
        self._wait_until_s = 0.0
        self._spent_ns = 0
        self._began_ns = time.monotonic_ns()

    def fetch(self, count: int) -> None:
        """As Meter.fetch."""
        self._fetched = self._quotas.bucket(Buckets.FETCH, *self._who)
        self._fetched_size = count

    def pause(self) -> None:
        """As Meter.pause."""
        began_ns, self._began_ns = self._began_ns, 0
        if began_ns:
            self._spent_ns += time.monotonic_ns() - began_ns

    def mutate(self, count: int) -> None:
        """As Meter.mutate; a version that does not know the error is not refused."""
        wait_ms = self._quotas.mutate(*self._who, count, self._strict)
        if wait_ms == 0:
            return
        self._wait_until_s = self._quotas.now_s() + wait_ms / 1000
        if self._strict:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED)

    @property
    def has_mutation_rate(self) -> bool:
        """As Meter.has_mutation_rate."""
        return self._quotas.has_mutation_rate(*self._who)

    def hand_back(self) -> None:
        """As Meter.hand_back."""
        self.pause()
        self._quotas.charge_time(self._time, self._spent_ns)

    def end(self, silent: bool = False) -> int:
        """As Meter.end; without an answer only bytes count, as in Kafka."""
        self.pause()
        of_time = 0 if silent else self._quotas.charge_time(self._time, self._spent_ns)
        of_bytes = self._quotas.charge(self._bytes, self._size)
        of_fetch = self._quotas.charge(self._fetched, self._fetched_size)
        left_s = self._wait_until_s - self._quotas.now_s() if self._wait_until_s else 0.0
        self._time = self._bytes = self._fetched = 0
        self._wait_until_s = 0.0
        return max(of_time, of_bytes, of_fetch, round(left_s * 1000))


def _header_bytes(request: Request) -> int:
    """Size of a request's header: key, version, correlation id, client id, tagged fields."""
    flexible = request.api.request_header_version(request.version) > 1
    return 8 + 2 + len((request.peer.client_id or "").encode()) + int(flexible)
