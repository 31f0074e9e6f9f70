"""The clients of one login: everything that a session asks of brokers goes through them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kafkalog import errors
from kafkalog.client.admin import Admin
from kafkalog.client.consumer.consumer import Consumer
from kafkalog.client.link.metadata import TopicInfo
from kafkalog.client.producer.producer import Producer
from kafkalog.console.known import Known
from kafkalog.console.readers import Readers
from kafkalog.types import TopicPartition
from kafkalog.watch.history import History
from kafkalog.watch.sampler import Sampler
from kafkalog.watch.view import State, View, advance

__all__ = ["Person", "Place", "SegmentFacts", "checked"]

CLIENT_ID = "kafkalog-console"
API_MS, REQUEST_MS = 10_000, 8_000
"""A person at a browser waits no longer."""
TOPICS_S, TOPICS_S_MAX, TOPICS_SHARE = 2.0, 30.0, 10
"""How long the topics of one Metadata request are used: as many times longer than it took, as a
large cluster's takes a second."""
TOPIC_MS = 3_000
"""How long a topic is looked for."""
POINTS, SERIES_MAX = 360, 500
"""An hour is remembered, with a sample every 10 s: at most 3 MB."""
FETCH_BYTES, PARTITION_BYTES = 4 << 20, 1 << 20
UNUSED_S = 60.0
"""After this time an unused client is closed; longer than any call takes."""
_MODULES = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}


class SegmentFacts(NamedTuple):
    """A segment of a log."""

    base_offset: int
    next_offset: int
    size_bytes: int
    created_ms: int
    active: bool


class Place(NamedTuple):
    """A cluster, and how clients reach it."""

    brokers: Callable[[], str]
    """host:port, several with commas."""
    config: Mapping[str, object] = {}
    """A client's settings, without a user."""
    segments: Callable[[TopicPartition], list[SegmentFacts]] | None = None
    """The segments of a partition's replica in this process; None: none is here.  Only those who
    may describe log directories see them."""

    @property
    def logs_in(self) -> bool:
        """True if the cluster asks for a user and a password."""
        return str(self.config.get("security.protocol", "")).upper().startswith("SASL")

    def config_of(self, user: str, password: str) -> dict[str, object]:
        """A client's settings with these credentials."""
        if not self.logs_in:
            return dict(self.config)
        module = _MODULES[str(self.config["sasl.mechanism"]).upper()]
        login = (
            f"org.apache.kafka.common.security.{module}LoginModule required "
            f"username={_quoted(user)} password={_quoted(password)};"
        )
        return {**self.config, "sasl.jaas.config": login}


def checked(config: Mapping[str, object], name: str) -> dict[str, object]:
    """A client's settings for a console.  `name`: where they are from, for messages.

    Raises: InvalidSetting: they hold credentials for everyone, or a mechanism without a password.
    """
    if config.get("sasl.jaas.config"):
        raise errors.InvalidSetting(
            f"{name}: sasl.jaas.config: found a value, wanted none: everyone logs in at the console"
        )
    found = dict(config)
    key = next((one for one in found if one.startswith("ssl.keystore.") and found[one]), None)
    if key is not None and not Place(str, found).logs_in:
        raise errors.InvalidSetting(
            f"{name}: {key}: found a value, wanted none without SASL: everyone would have the "
            "rights of that certificate"
        )
    if Place(str, found).logs_in:
        mechanism = str(found.setdefault("sasl.mechanism", "SCRAM-SHA-512")).upper()
        if mechanism not in _MODULES:
            raise errors.InvalidSetting(
                f"{name}: sasl.mechanism: found {mechanism}, wanted one of {', '.join(_MODULES)}"
            )
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Person:
    """The clients of a user, or of everyone on an open cluster.  Safe to use from many threads."""

    def __init__(self, place: Place, user: str, password: str) -> None:
        """Nothing is sent yet."""
        self.place = place
        self.user = user
        self._config = place.config_of(user, password)
        self._lock = threading.Lock()  # guards the clients' beginning and end, and the topics
        self._writes = threading.Lock()
        self._admin: Admin | None = None
        self._readers = Readers(self._consumer)
        self._used_s = 0.0
        self._closed = False
        self._known: tuple[float, Known] = (0.0, Known({}))
        # Only the thread that samples uses these.
        self._watcher: Admin | None = None
        self._sampler: Sampler | None = None
        self._state = State()
        self._history = History(POINTS, SERIES_MAX)
        self._remembers = threading.Lock()  # held while the history changes, or is read
        self.view: View | None = None
        """The cluster at the last sample; None: there was none yet."""

    def log_in(self) -> None:
        """Ask a broker to let them in; if it does not, the clients are closed.

        Raises: AuthenticationFailed; Timeout, ...; Closed: `interrupt` came first.
        """
        try:
            self.admin.describe_cluster()
        except BaseException:
            self.close()
            raise

    @property
    def admin(self) -> Admin:
        """Its administrator.  Raises: Closed."""
        with self._lock:
            if self._closed:
                raise errors.Closed("this session has ended")
            self._used_s = time.monotonic()
            if self._admin is None:
                self._admin = self._administrator()
            return self._admin

    @property
    def ended(self) -> bool:
        """True once its clients are closed, or about to be."""
        return self._closed

    def _administrator(self) -> Admin:
        return Admin(
            self.place.brokers(), client_id=CLIENT_ID, request_timeout_ms=REQUEST_MS,
            api_timeout_ms=API_MS, config=self._config,
        )  # fmt: skip

    def reader(self, committed: bool) -> contextlib.AbstractContextManager[Consumer]:
        """A consumer without a group, for one request.  `committed`: of ended transactions only.

        Raises: Closed, Timeout.
        """
        return self._readers.lend(committed, API_MS / 1000)

    def _consumer(self, committed: bool) -> Consumer:
        config = {
            **self._config, "request.timeout.ms": REQUEST_MS, "default.api.timeout.ms": API_MS,
            "enable.auto.commit": False, "fetch.max.bytes": FETCH_BYTES,
            "max.partition.fetch.bytes": PARTITION_BYTES, "fetch.max.wait.ms": 100,
        }  # fmt: skip
        return Consumer(
            self.place.brokers(), client_id=CLIENT_ID, auto_offset_reset="earliest",
            isolation="read_committed" if committed else "read_uncommitted", config=config,
        )  # fmt: skip

    @contextlib.contextmanager
    def producer(self) -> Iterator[Producer]:
        """A producer, for one writer at a time.  Raises: Closed, Timeout."""
        if not self._writes.acquire(timeout=API_MS / 1000):
            raise errors.Timeout("other requests of this session still write")
        try:
            with Producer(
                self.place.brokers(), client_id=CLIENT_ID, max_block_ms=API_MS,
                request_timeout_ms=REQUEST_MS,
                config={**self._config, "delivery.timeout.ms": API_MS},
            ) as made:  # fmt: skip
                yield made
        finally:
            self._writes.release()

    def topics(self, fresh: bool = False) -> Mapping[str, TopicInfo]:
        """All topics that the user may describe, by name, a few seconds old; see TOPICS_S."""
        return self.known(fresh).topics

    def known(self, fresh: bool = False) -> Known:
        """As `topics`, with what is counted of them."""
        with self._lock:
            until_s, known = self._known
        begun_s = time.monotonic()
        if fresh or begun_s >= until_s:
            known = Known(self.admin.describe_topics(None).done)
            now_s = time.monotonic()
            keep_s = min(max(TOPICS_S, TOPICS_SHARE * (now_s - begun_s)), TOPICS_S_MAX)
            with self._lock:
                self._known = now_s + keep_s, known
        return known

    def topic(self, name: str) -> TopicInfo:
        """A topic as it is now; only this one is asked for, as there may be many others.

        Raises: UnknownTopicOrPartition: there is none, or the user may not describe it.
        """
        try:
            return self.admin.describe_topics([name], timeout_ms=TOPIC_MS)[name]
        except (errors.AuthorizationFailed, errors.InvalidTopic, errors.Timeout,
                errors.UnknownTopicOrPartition) as problem:  # fmt: skip
            if name not in self.topics(fresh=True):
                raise errors.UnknownTopicOrPartition(
                    f"topic {name!r}: there is none, or {self.user or 'everyone'} may not "
                    "describe it"
                ) from problem
            raise

    def remember(self) -> int:
        """Sample the cluster, with clients of its own, and keep rates and lag.  Returns how many
        partitions it has.  One thread, as are `forget` and `tidy`.

        Raises: as Sampler.sample.
        """
        with self._lock:
            if self._closed:
                return 0
            if self._sampler is None:
                self._watcher = self._administrator()
                self._sampler = Sampler(self._watcher)
        self._state, view = advance(self._state, self._sampler.sample())
        with self._remembers:
            self._history.add(view)
            self.view = view
        return view.totals.partitions

    def forget(self) -> None:
        """Keep no more than the history, as others use the console."""
        with self._lock:
            watcher, self._watcher, self._sampler = self._watcher, None, None
        self._state, self.view = State(), None
        if watcher is not None:
            watcher.close()

    def tidy(self, now_s: float) -> None:
        """Close clients that are not used: they know the whole cluster."""
        admin = None
        with self._lock:
            if now_s >= self._known[0]:
                self._known = (0.0, Known({}))
            if now_s - self._used_s >= UNUSED_S:
                admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
        self._readers.tidy(now_s - UNUSED_S)

    def points(self, kind: str, name: str, value: str) -> list[tuple[int, float]]:
        """The last hour of a series (see `History`): milliseconds since 1970, and a value."""
        with self._remembers:
            return [(one.at_ms, one.value) for one in self._history.points(kind, name, value)]

    def interrupt(self) -> None:
        """End its waits for brokers, now and later."""
        with self._lock:
            self._closed = True
            clients = [self._admin, self._watcher]
        for one in clients:
            if one is not None:
                one._cluster.openings.interrupt()
        self._readers.interrupt()

    def close(self) -> None:
        """Close its clients.  Idempotent."""
        self.interrupt()
        self._readers.close()
        for one in (self._admin, self._watcher):
            if one is not None:
                one.close()
