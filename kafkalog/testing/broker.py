"""A broker for one test: real sockets, a real directory, and failures on command."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafkalog.client.calls import topics
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.clock import SkippingClock
from kafkalog.errors import Closed, ForkedHandle, OffsetOutOfRange, UnknownTopicOrPartition
from kafkalog.log.log import Log
from kafkalog.server.broker import Broker, node_of
from kafkalog.server.faults import HELPER, Fault
from kafkalog.testing import power, records
from kafkalog.testing.port import HOST, Port
from kafkalog.testing.security import Security
from kafkalog.types import Record, TopicPartition

__all__ = ["SETTINGS", "TestBroker"]

SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "num.network.threads": 1,
    "num.io.threads": 3,
    # A clock that jumps ahead by days must not make connections look idle.
    "connections.max.idle.ms": -1,
    "kafkalog.half.frame.max.ms": (1 << 63) - 1,
}
"""Differences from `kafkalog serve`; a test's own settings override them."""
WAIT_S = 10.0
"""How long the helpers wait, by the machine's clock."""
LOOK_S = 0.002
"""How often."""


class TestBroker:
    """A broker in this process, for any client in any language.

    Faults set with `fail` and similar methods affect every client, but not the helpers below.
    A context manager; closed by `close`, which may be repeated.  A forked child reaches it as any
    client does; only its parent can stop it, fail its requests or look into it.
    """

    __test__ = False  # not a class of tests, despite its name

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: Mapping[str, object] | None = None,
        clock: SkippingClock | None = None,
        port: int = 0,
        security: Security | None = None,
    ) -> None:
        """Serve the directory at `path`, created if missing.

        `config`: settings by Kafka's names, which override SETTINGS; `port` 0: a free one;
        `security`: how clients must connect; its files are at `path` + "-security".

        Raises: as Broker; OSError when the port is taken.
        """
        self.path = os.path.abspath(path)
        secured = security.settings(f"{self.path}-security") if security else {}
        self.config: dict[str, object] = {**SETTINGS, **secured, **(config or {})}
        self.security = security
        """None: clients connect in plain text and may do everything."""
        self.clock = clock or SkippingClock()
        """The broker's, in all its lives (`turn_back`); `advance(ms)` lets time pass at once."""
        self._pid = os.getpid()
        self.keep = False
        """Keep the directory at the end."""
        self._port = Port(port)
        self._broker: Broker | None = None
        try:
            self.start()
            if security:
                security.grant(self.broker.transport)
        except BaseException:
            self.close()
            raise

    # ---- its life ----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The address for Kafka clients: host:port, the same across restarts."""
        return f"{HOST}:{self._port.number}"

    def client_config(self, library: str = "kafkalog", user: str | None = None) -> dict[str, Any]:
        """The settings with which a client reaches it: the bootstrap servers under the name that
        `library` has for them, and its security's; see Security.client_config.

        Raises: ArgumentError.
        """
        self._here()
        security = self.security.client_config(library, user) if self.security else {}
        name = (
            "bootstrap_servers"
            if "python" in library or library == "aiokafka"
            else ("bootstrap.servers")
        )
        return {name: self.bootstrap_servers, **security}

    @property
    def broker(self) -> Broker:
        """The running broker.  Raises: Closed, when it is down; ForkedHandle."""
        self._here()
        return self._running()

    def _running(self) -> Broker:
        if self._broker is None:
            raise Closed(f"the broker of {self.path} is down: start() it")
        return self._broker

    def _here(self) -> None:
        if self._pid != os.getpid():
            raise ForkedHandle(f"the broker of {self.path} runs in the parent process")

    @property
    def running(self) -> bool:
        """True if it is up, paused or not."""
        return self._broker is not None

    def start(self) -> None:
        """Start again after `stop` or `kill`; does nothing if it runs."""
        self._here()
        if self._broker is None:
            protocol = self.security.protocol.upper() if self.security else "PLAINTEXT"
            listeners = f"{protocol}://{self.bootstrap_servers}"
            self._broker = Broker(self.path, listeners, self.config, self.clock)

    def stop(self) -> None:
        """Shut down in order: answer requests in flight, flush everything; clients are refused
        until `start`.  Faults are removed, as with `kill`.
        """
        self._here()
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    def restart(self) -> None:
        """Stop in order and start again, at the same address."""
        self.stop()
        self.start()

    def turn_back(self) -> None:
        """After `clock.advance`: restart with a clock that shows the machine's time again."""
        self._here()
        if self.clock.ahead_ms:
            self.stop()
            self.clock = SkippingClock()
            self.start()

    def kill(self) -> None:
        """End as in a power cut: everything not on disk is lost.  `start` starts it again.

        On disk is what acks=all promised (with `kafkalog.durability` of `fsync`, the default) and
        what was flushed otherwise: each log keeps its records up to there, and no more.

        Raises: Closed, when it is down.
        """
        self._here()
        broker, self._broker = self._running(), None
        power.cut(broker.abandon())

    def close(self) -> None:
        """Stop, and release the port; in a forked child, nothing."""
        if self._pid != os.getpid():
            return
        try:
            self.stop()
        finally:
            self._port.close()

    def pause(self) -> None:
        """Fall silent until `resume`: connections stay and are accepted, nothing is answered."""
        self.broker.pause()

    def resume(self) -> None:
        """Continue: pending requests are answered."""
        self.broker.resume()

    # ---- faults ------------------------------------------------------------------------------

    def fail(
        self, api: str | int, error: str | int, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Answer the next `times` requests of an API with an error, by Kafka's names (or numbers):
        `fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)`.  None: all, until `heal`.

        `client_id`: only clients with this id.  The fault's `hits` count the requests.

        Raises: ArgumentError.
        """
        return self.broker.faults.fail(api, error, times, client_id)

    def delay(
        self, api: str | int, ms: int, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Carry out the next `times` requests `ms` later, by `clock`."""
        return self.broker.faults.delay(api, ms, times, client_id)

    def disconnect(
        self, api: str | int, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Close the connections of the next `times` requests instead of carrying them out."""
        return self.broker.faults.disconnect(api, times, client_id)

    def drop_response(
        self, api: str | int, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Carry out the next `times` requests, and close their connections instead of answering:
        the request is done, and its client cannot know.
        """
        return self.broker.faults.drop_response(api, times, client_id)

    def heal(self) -> None:
        """Start what is down, resume what is paused, remove every fault."""
        self.start()
        self.broker.faults.clear()
        self.resume()

    # ---- what is in it -----------------------------------------------------------------------

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        """A client that no fault affects, with a timeout in case the broker is paused."""
        options = Options(client_id=HELPER, request_timeout_ms=int(WAIT_S * 1000))
        broker = self._running()
        where = broker.transport if self.security else self.bootstrap_servers
        with Cluster(where, options, self.clock) as cluster:
            yield cluster

    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic.

        Raises: TopicExists, InvalidTopic, InvalidSetting.
        """
        with self._cluster() as cluster:
            topics.create_topic(cluster, topic, partitions, config=config)

    def delete_topics(self, prefix: str) -> None:
        """Delete the topics whose names begin with `prefix`."""
        with self._cluster() as cluster:
            for name in topics.list_topics(cluster):
                if name.startswith(prefix):
                    topics.delete_topic(cluster, name)

    def fill(
        self,
        topic: str,
        what: Iterable[records.Row] | os.PathLike[str],
        *,
        partition: int | None = None,
    ) -> int:
        """Write records to a topic, which is created if missing; returns their number.

        `what`: values, or (key, value), as text or bytes; or a file's path, each line a value.
        Partitions are chosen as by Java's clients, unless `partition` is given.

        Raises: ArgumentError; a producer's errors.
        """
        with self._cluster() as cluster:
            return records.send(cluster, topic, what, partition)

    def records(self, topic: str, *, committed: bool = True) -> list[Record]:
        """The records that a consumer would read from all partitions, by partition and offset;
        [] if the topic does not exist.  `committed`: leave out open and aborted transactions.
        """
        isolation = "read_committed" if committed else "read_uncommitted"
        found: list[Record] = []
        partitions = node_of(self.broker).partitions
        for number in range(partitions.count(topic)):
            try:
                log = partitions.existing_log(topic, number)
            except UnknownTopicOrPartition:  # deleted since
                return []
            if log is not None:
                found += _read(log, isolation)
        return found

    def wait_for_records(
        self, topic: str, count: int, timeout_s: float = WAIT_S, *, committed: bool = True
    ) -> list[Record]:
        """The records of a topic, once there are `count`; see `records`.

        Raises: AssertionError, with what was found, if there are fewer in time, or more.
        """
        found: list[Record] = []

        def there() -> bool:
            found[:] = self.records(topic, committed=committed)
            return len(found) >= count

        _wait(there, timeout_s)
        if len(found) != count:
            raise AssertionError(
                f"topic {topic}: found {len(found)} records{_some(found)}, wanted {count} "
                f"within {timeout_s:g} s"
            )
        return found

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed."""
        with self._cluster() as cluster:
            return records.committed(cluster, group)

    def assert_committed(
        self, group: str, offsets: Mapping[tuple[str, int], int], timeout_s: float = WAIT_S
    ) -> None:
        """Wait until a group has committed these offsets, by (topic, partition).

        Raises: AssertionError, with what was found.
        """
        wanted = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        found: dict[TopicPartition, int] = {}

        def there() -> bool:
            every = self.committed(group)
            found.clear()
            found.update((tp, every[tp]) for tp in wanted if tp in every)
            return found == wanted

        _wait(there, timeout_s)
        if found != wanted:
            raise AssertionError(
                f"group {group}: found {_offsets(found)}, wanted {_offsets(wanted)} "
                f"within {timeout_s:g} s"
            )

    def __enter__(self) -> "TestBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self.bootstrap_servers if self.running else "down"
        return f"TestBroker({self.path!r}, {state})"


def _wait(condition: Callable[[], bool], timeout_s: float) -> None:
    """Wait until the condition holds or the time is over."""
    end_s = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end_s:
        time.sleep(LOOK_S)


def _read(log: Log, isolation: str) -> list[Record]:
    while True:
        try:
            return list(log.read(isolation=isolation))
        except OffsetOutOfRange:  # the starting offset has been deleted since
            continue


def _some(found: list[Record]) -> str:
    """The last values, as many as fit in a line."""
    values: list[Any] = [record.value for record in found[-3:]]
    return f" (the last: {', '.join(str(value)[:60] for value in values)})" if values else ""


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    texts = (f"{tp.topic}-{tp.partition}: {offset}" for tp, offset in sorted(offsets.items()))
    return "{" + ", ".join(texts) + "}"
