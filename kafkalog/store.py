"""Topics, producers, consumers and groups in this process, over one directory, without a port."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, overload

from kafkalog import arguments
from kafkalog.client.calls import topics
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Transport
from kafkalog.client.producer.producer import Producer
from kafkalog.clock import Clock
from kafkalog.disk import layout
from kafkalog.errors import (
    ArgumentError,
    Closed,
    ForkedHandle,
    NotFound,
    ReadOnly,
    UnknownTopicOrPartition,
)
from kafkalog.log.log import Log
from kafkalog.metadata.image import INTERNAL_TOPICS
from kafkalog.serializers import KeyT, ValueT
from kafkalog.server.broker import Broker

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.consumer.consumer import Consumer
    from kafkalog.log.scan.topic import TopicScan
    from kafkalog.telemetry.pushed import PushedMetrics

__all__ = ["Store", "Topic"]


HIDDEN = {layout.METADATA_TOPIC, *INTERNAL_TOPICS}
"""Topics of Kafka's own, which `topics` leaves out."""


class _NoPartition(UnknownTopicOrPartition, IndexError):
    """Also an IndexError, which ends a loop over a sequence."""


class Topic(Sequence[Log]):
    """A topic of a store: its partitions as open logs, by number.

    A node of a cluster may hold some of a topic's partitions only: a store that only reads its
    directory (mode "r") has those.
    """

    def __init__(self, store: Store, name: str, folders: Mapping[int, str]) -> None:
        """`folders`: of the partitions that are here now, by number, ascending."""
        self._store = store
        self.name = name
        self._folders = folders

    def __len__(self) -> int:
        """One more than the highest number of a partition that is here."""
        return max(self._folders) + 1

    @overload
    def __getitem__(self, partition: int) -> Log: ...

    @overload
    def __getitem__(self, partition: slice) -> NoReturn: ...

    def __getitem__(self, partition: int | slice) -> Log:
        """The log of a partition; the store closes it, at the latest when it is closed itself.

        Raises: UnknownTopicOrPartition (here an IndexError, too), ArgumentError, Closed.
        """
        number = arguments.whole_number("partition", partition)
        folder = self._folders.get(number)
        if folder is None:
            raise _NoPartition(
                f"topic {self.name!r} has no partition {number}: it has {len(self._folders)}"
            )
        return self._store._log(folder)

    def __iter__(self) -> Iterator[Log]:
        return (self[partition] for partition in self._folders)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {len(self._folders)} partitions)"


class _End:
    """The part of a store that the broker closes before itself."""

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)

    def close(self) -> None:
        """Close its logs."""
        store = self._store()
        if store is not None:
            store._end()


class Store:
    """A broker that only this process reaches, and its clients.

    It offers everything that a Kafka client can do, with the same classes:
    `kafkalog.Producer(store)` is `store.producer()`.  Safe to use from many threads.  Closed by
    `close`, or as a context manager.

    With mode "r" it reads topics, logs and columns while another process, or another store of
    this one, has the directory.  It takes no lock and changes nothing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        *,
        mode: str = "w",
    ) -> None:
        """Open the directory at `path`, created if missing; no other process can open it until
        `close`.

        `config`: a broker's settings, as for `kafkalog.Broker`.  `mode`: "w", or "r" to read only;
        then it has no broker: clients and changes of topics raise ReadOnly.

        Raises: as kafkalog.Broker; mode "r": NotFound, ArgumentError for settings.
        """
        if mode == "w":
            self._begin(Broker(path, listeners=(), config=config, clock=clock), owns=True)
        elif mode != "r":
            raise ArgumentError(f"mode: found {mode!r}, wanted 'r' or 'w'")
        elif config is not None or clock is not None:
            raise ArgumentError("mode 'r' has no broker: it takes neither config nor clock")
        else:
            self._begin_reading(os.path.abspath(os.path.expanduser(os.fspath(path))))

    def _begin(self, broker: Broker, owns: bool) -> None:
        self._start(broker.path, broker, owns)
        self._cluster = Cluster(broker)
        self._last = _End(self)
        broker.transport.attach(self._last)

    def _begin_reading(self, path: str) -> None:
        if not os.path.isdir(path):
            raise NotFound(f"{path}: no such directory")
        self._start(path, None, owns=False)

    def _start(self, path: str, broker: Broker | None, owns: bool) -> None:
        self._path = path
        self._broker = broker
        self._owns = owns
        self._pid = os.getpid()
        self._lock = threading.RLock()  # guards what follows
        self._closed = False
        self._logs: dict[str, Log] = {}
        """By folder."""
        self._readers: weakref.WeakSet[Log] = weakref.WeakSet()
        self._admin: Admin | None = None

    # ---- clients -----------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The data directory, absolute."""
        return self._path

    @property
    def transport(self) -> Transport:
        """How clients reach it.  Raises: Closed, ReadOnly."""
        return self._writable("a client").transport

    def producer(
        self,
        *,
        key_serializer: Callable[[KeyT], bytes | None] | None = None,
        value_serializer: Callable[[ValueT], bytes | None] | None = None,
        **options: Any,
    ) -> Producer[ValueT, KeyT]:
        """`kafkalog.Producer` of this store, which takes the same options."""
        self._writable("a producer")
        return Producer(
            self, key_serializer=key_serializer, value_serializer=value_serializer, **options
        )

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """`kafkalog.Consumer` of this store."""
        from kafkalog.client.consumer.consumer import Consumer

        self._writable("a consumer")
        return Consumer(self, *topics, **options)

    @property
    def admin(self) -> Admin:
        """`kafkalog.Admin` of this store; always the same object."""
        from kafkalog.client.admin import Admin

        with self._held():
            self._writable("an admin client")
            if self._admin is None:
                self._admin = Admin(self)
            return self._admin

    def metrics(self) -> dict[str, float]:
        """All metrics now, as `kafkalog.Broker.metrics`.  Raises: Closed, ReadOnly."""
        return self._writable("metrics").metrics()

    def client_metrics(self) -> list[PushedMetrics]:
        """As `kafkalog.Broker.client_metrics`.  Raises: Closed, ReadOnly."""
        return self._writable("clients' metrics").client_metrics()

    # ---- topics ------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Topic:
        """Create a topic with settings by Kafka's names.

        `partitions` -1: as many as `num.partitions`.

        Raises: TopicExists, InvalidTopic, InvalidSetting, ArgumentError, Closed, ReadOnly.
        """
        arguments.text("name", name)
        count = arguments.whole_number("partitions", partitions, -1, arguments.INT32_MAX)
        given = arguments.mapping("config", {} if config is None else config)
        settings = {arguments.text("config", key): _shown(value) for key, value in given.items()}
        with self._held():
            self._writable("a new topic")
            made = topics.create_topic(self._cluster, name, count, config=settings)
        return Topic(self, name, self._own_folders(name, made.partitions))

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records.

        Raises: UnknownTopicOrPartition, ArgumentError, Closed, ReadOnly.
        """
        arguments.text("name", name)
        with self._held():
            self._writable("a deletion")
            for folder in self._folders_of(name).values():
                if log := self._logs.pop(folder, None):
                    log.close()
            topics.delete_topic(self._cluster, name)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics except Kafka's internal ones, sorted.  Raises: Closed."""
        with self._held():
            self._check()
            if self._broker is None:
                listed = layout.list_directory(self.path).partitions
                return tuple(sorted({tp.topic for tp in listed} - HIDDEN))
            return tuple(topics.list_topics(self._cluster))

    def __iter__(self) -> Iterator[str]:
        return iter(self.topics)

    def __contains__(self, name: object) -> bool:
        return name in self.topics

    def __len__(self) -> int:
        return len(self.topics)

    def __getitem__(self, name: str) -> Topic:
        """A topic.  Raises: UnknownTopicOrPartition (a LookupError), ArgumentError, Closed."""
        arguments.text("name", name)
        with self._held():
            self._check()
            folders = self._folders_of(name)
        if not folders:
            raise UnknownTopicOrPartition(f"{self.path}: no topic {name!r}")
        return Topic(self, name, folders)

    def scan(
        self, topic: str, *, partitions: Sequence[int] | None = None, **options: Any
    ) -> TopicScan:
        """The records of a topic as columns, decoded by several threads.

        `partitions`: which ones, in this order; None: all.  `options`: `threads` (as many as there
        are processors, at most 8), and those of Log.scan except start and stop: columns,
        start_time_ms, stop_time_ms, key, key_prefix, isolation, batch_rows, batch_bytes,
        check_crcs.

        Raises: UnknownTopicOrPartition, ArgumentError, Closed.
        """
        from kafkalog.log.scan.topic import TopicScan

        found = self[topic]
        wanted = list(found._folders) if partitions is None else partitions
        logs = []
        for number in arguments.things("partitions", wanted):
            try:
                logs.append(found[number])
            except NotFound:  # nothing was ever written there, unless its disk is missing
                if layout.leads_nowhere(found._folders[number]):
                    raise
        return TopicScan(logs, **options)

    def _folders_of(self, topic: str) -> dict[int, str]:
        """By partition; empty: there is no such topic."""
        if self._broker is not None:
            self._cluster.refresh([topic])
            info = self._cluster.topics.get(topic)
            return self._own_folders(topic, 0 if info is None else len(info.partitions))
        listed = layout.list_directory(self.path).partitions.items()
        mine = {tp.partition: folder for tp, folder in listed if tp.topic == topic}
        return {number: os.path.join(self.path, mine[number]) for number in sorted(mine)}

    def _own_folders(self, topic: str, partitions: int) -> dict[int, str]:
        return {
            number: os.path.join(self.path, f"{topic}-{number}") for number in range(partitions)
        }

    def _log(self, folder: str) -> Log:
        with self._held():
            self._check()
            if self._broker is None:  # a new one each time: the topic may be another one by now
                reader = Log(folder, mode="r")
                self._readers.add(reader)
                return reader
            log = self._logs.get(folder)
            if log is None or log.closed:
                log = self._logs[folder] = Log(folder)
            return log

    # ---- its end -----------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True if it was closed."""
        return self._closed

    def close(self) -> None:
        """Close its logs.  If it owns the directory, close its clients first, the last one first,
        and then everything, with a clean marker.  Harmless when repeated.

        Raises: the first failure, after everything was closed.
        """
        if self._owns and self._broker is not None:
            self._broker.close()
        self._end()

    def _end(self) -> None:
        if self._pid != os.getpid():  # all else is the parent's
            self._closed = True
            return
        with self._lock:
            self._closed = True
            logs, self._logs = [*self._logs.values(), *self._readers], {}
            if self._broker is not None:
                self._cluster.close()
        for log in logs:
            log.close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """With the lock.  A child may read the directory: a store with mode "r" works there.

        Raises: ForkedHandle.
        """
        if self._pid != os.getpid():
            self._here()
            self._pid, self._lock = os.getpid(), threading.RLock()
            self._readers = weakref.WeakSet()
        with self._lock:
            yield

    def _here(self) -> None:
        if self._broker is not None and self._pid != os.getpid():
            raise ForkedHandle(f"{self.path}: the store belongs to the parent process")

    def _check(self) -> None:
        self._here()
        if self._closed:
            raise Closed(f"{self.path}: the store is closed")

    def _writable(self, what: str) -> Broker:
        """Its broker.  Raises: Closed; ReadOnly, as it has none for `what`."""
        self._check()
        if self._broker is None:
            raise ReadOnly(f"{self.path}: the store is open with mode 'r', {what} wants mode 'w'")
        return self._broker

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = "" if self._broker is not None else ", mode='r'"
        return f"Store({self.path!r}{mode}{', closed' if self._closed else ''})"


def broker_of(store: Store) -> Broker:
    """A store's broker, for use inside this project.  Raises: Closed, ReadOnly."""
    return store._writable("metrics")


def store_of(broker: Broker) -> Store:
    """A store over a running broker; closing it leaves the broker running."""
    made = Store.__new__(Store)
    made._begin(broker, owns=False)
    return made


def _shown(value: object) -> str:
    """A setting's value as Kafka writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
