"""Topics, producers, consumers and groups in this process, over one directory, without a port."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkalog import arguments
from kafkalog.client.calls import topics
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Transport
from kafkalog.client.producer.producer import Producer
from kafkalog.clock import Clock
from kafkalog.errors import Closed, UnknownTopicOrPartition
from kafkalog.log.log import Log
from kafkalog.serializers import KeyT, ValueT
from kafkalog.server.broker import Broker

if TYPE_CHECKING:
    from kafkalog.client.admin import Admin
    from kafkalog.client.consumer.consumer import Consumer
    from kafkalog.log.scan.topic import TopicScan

__all__ = ["Store", "Topic"]


class _NoPartition(UnknownTopicOrPartition, IndexError):
    """Also an IndexError, which ends a loop over a sequence."""


class Topic(Sequence[Log]):
    """A topic of a store: its partitions as open logs, by number."""

    def __init__(self, store: Store, name: str, partitions: int) -> None:
        """`partitions`: how many it has now."""
        self._store = store
        self.name = name
        self._count = partitions

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, partition: Any) -> Any:
        """The log of a partition; the store closes it, at the latest when it is closed itself.

        Raises: UnknownTopicOrPartition (here an IndexError, too), ArgumentError, Closed.
        """
        number = arguments.whole_number("partition", partition)
        if not 0 <= number < self._count:
            raise _NoPartition(
                f"topic {self.name!r} has no partition {number}: it has {self._count}"
            )
        return self._store._log(self.name, number)

    def __iter__(self) -> Iterator[Log]:
        return (self[partition] for partition in range(self._count))

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {self._count} partitions)"


class _End:
    """What the broker closes of a store before itself."""

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
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: Mapping[str, object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the directory at `path`, created if missing; no other process can open it until
        `close`.

        `config`: a broker's settings, as for `kafkalog.Broker`.

        Raises: as kafkalog.Broker.
        """
        self._begin(Broker(path, listeners=(), config=config, clock=clock), owns=True)

    def _begin(self, broker: Broker, owns: bool) -> None:
        self._broker = broker
        self._owns = owns
        self._lock = threading.RLock()  # guards what follows
        self._closed = False
        self._logs: dict[tuple[str, int], Log] = {}
        self._admin: Admin | None = None
        self._cluster = Cluster(broker)
        self._last = _End(self)
        broker.transport.attach(self._last)

    # ---- clients -----------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The data directory, absolute."""
        return self._broker.path

    @property
    def transport(self) -> Transport:
        """How clients reach it.  Raises: Closed."""
        self._check()
        return self._broker.transport

    def producer(
        self,
        *,
        key_serializer: Callable[[KeyT], bytes | None] | None = None,
        value_serializer: Callable[[ValueT], bytes | None] | None = None,
        **options: Any,
    ) -> Producer[ValueT, KeyT]:
        """`kafkalog.Producer` of this store, which takes the same options."""
        self._check()
        return Producer(
            self, key_serializer=key_serializer, value_serializer=value_serializer, **options
        )

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """`kafkalog.Consumer` of this store."""
        from kafkalog.client.consumer.consumer import Consumer

        self._check()
        return Consumer(self, *topics, **options)

    @property
    def admin(self) -> Admin:
        """`kafkalog.Admin` of this store; always the same object."""
        from kafkalog.client.admin import Admin

        with self._lock:
            self._check()
            if self._admin is None:
                self._admin = Admin(self)
            return self._admin

    # ---- topics ------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> Topic:
        """Create a topic with settings by Kafka's names.

        `partitions` -1: as many as `num.partitions`.

        Raises: TopicExists, InvalidTopic, InvalidSetting, ArgumentError, Closed.
        """
        arguments.text("name", name)
        count = arguments.whole_number("partitions", partitions, -1, arguments.INT32_MAX)
        given = arguments.mapping("config", {} if config is None else config)
        settings = {arguments.text("config", key): _shown(value) for key, value in given.items()}
        with self._lock:
            self._check()
            made = topics.create_topic(self._cluster, name, count, config=settings)
        return Topic(self, name, made.partitions)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records.

        Raises: UnknownTopicOrPartition, ArgumentError, Closed.
        """
        arguments.text("name", name)
        with self._lock:
            self._check()
            for key in [key for key in self._logs if key[0] == name]:
                self._logs.pop(key).close()
            topics.delete_topic(self._cluster, name)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics except Kafka's internal ones, sorted.  Raises: Closed."""
        with self._lock:
            self._check()
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
        with self._lock:
            self._check()
            self._cluster.refresh([name])
            info = self._cluster.topics.get(name)
        if info is None:
            raise UnknownTopicOrPartition(f"{self.path}: no topic {name!r}")
        return Topic(self, name, len(info.partitions))

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
        wanted = range(len(found)) if partitions is None else partitions
        return TopicScan(
            [found[number] for number in arguments.things("partitions", wanted)], **options
        )

    def _log(self, topic: str, partition: int) -> Log:
        with self._lock:
            self._check()
            log = self._logs.get((topic, partition))
            if log is None or log.closed:
                folder = os.path.join(self.path, f"{topic}-{partition}")
                log = self._logs[topic, partition] = Log(folder)
            return log

    # ---- its end -----------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Close its logs.  If it owns the directory, close its clients first, the last one first,
        and then everything, with a clean marker.  Harmless when repeated.

        Raises: the first failure, after everything was closed.
        """
        if self._owns:
            self._broker.close()
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            logs, self._logs = list(self._logs.values()), {}
            self._cluster.close()
        for log in logs:
            log.close()

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"{self.path}: the store is closed")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self.path!r}{', closed' if self._closed else ''})"


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
