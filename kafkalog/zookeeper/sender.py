"""Sends a controller's requests to one broker: one after another, each until it is answered.

A part of a request that cannot be encoded is left out, so that it holds up nothing else.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from uuid import UUID

from kafkalog.client.link.connection import Connection
from kafkalog.client.link.transport import Address, Options
from kafkalog.controller.events import BrokerResponse, QueueOverflow
from kafkalog.controller.requests import (
    DURING_DELETE,
    Fields,
    Send,
    encodable,
    unencodable,
)
from kafkalog.errors import KafkalogError
from kafkalog.logs.limit import limited
from kafkalog.replication.inter_broker import connect
from kafkalog.wire.api import Api
from kafkalog.wire.tables.controller import STOP_REPLICA, UPDATE_METADATA

__all__ = ["Sender"]

_logger = limited(__name__)

WAITING_MAX = 500
"""Requests that may wait for one broker; if there are more, the controller sends the current state
again."""
SAID_MAX = 1_000
"""Different parts of requests that are logged as left out."""
RETRY_S = 0.1
AGAIN_S = 1.0
"""After an unexpected exception."""
ANSWER_MS = 30_000
"""Kafka's controller.socket.timeout.ms."""
JOIN_S = 5.0


class Sender:
    """A thread and a connection for one broker, in one of its lives.  Ended by `stop`."""

    def __init__(
        self, address: Address, broker: int, connecting: Options,
        received: Callable[[BrokerResponse | QueueOverflow], None],
    ) -> None:  # fmt: skip
        """`connecting`: the sender's name, and its login.  `received` is called in the thread."""
        self.address = address
        self._broker = broker
        self._connecting = connecting
        self._received = received
        self._lock = threading.Condition()  # guards what follows
        self._waiting: deque[Send] = deque()
        self._behind = False
        self._ended = False
        self._connection: Connection | None = None
        self._said: set[str] = set()  # the thread's own
        self._thread = threading.Thread(
            target=self._loop, name=f"controller to {broker}", daemon=True
        )
        self._thread.start()

    def send(self, request: Send) -> None:
        """Send it, after all earlier requests.

        A broker that is too far behind gets the live brokers, the deleted partitions and the
        partitions to stop, which the controller would not repeat; then, instead of everything
        else that waited, the state as it is by then.
        """
        with self._lock:
            self._waiting.append(request)
            if len(self._waiting) > WAITING_MAX:
                self._behind = self._behind or any(
                    one.api is not STOP_REPLICA for one in self._waiting
                )
                self._waiting = deque(_shortened(self._waiting))
            self._lock.notify()

    def stop(self) -> None:
        """Send it nothing more."""
        with self._lock:
            self._ended = True
            self._lock.notify()
            if self._connection is not None:
                self._connection.interrupt()

    def join(self) -> None:
        """After `stop`: wait for the thread to end, but not long for one that is connecting."""
        self._thread.join(JOIN_S)

    def _loop(self) -> None:
        while (what := self._next()) is not None:
            while not self._ended and what is not None:
                what = self._left(what)
        self._hang_up()

    def _left(self, what: Send | QueueOverflow) -> Send | QueueOverflow | None:
        """None: it was answered, which is reported; otherwise what is retried, after a pause."""
        pause_s = RETRY_S
        try:
            self._received(
                what if isinstance(what, QueueOverflow) else BrokerResponse(what, self._ask(what))
            )
            return None
        except Exception as problem:  # without this thread the broker would get no more requests
            if isinstance(what, Send) and unencodable(what) is not None:
                return self._encodable(what)
            if isinstance(problem, KafkalogError):
                _logger.info("broker %d: %s: %s", self._broker, _name(what), problem)
            else:
                _logger.exception("broker %d: %s", self._broker, _name(what))
                pause_s = AGAIN_S
        self._hang_up()
        with self._lock:
            self._lock.wait_for(lambda: self._ended, pause_s)
        return what

    def _encodable(self, request: Send) -> Send | None:
        """The request without the parts that cannot be encoded; each of them is logged once."""
        found, left_out = encodable(request)
        for name, why in left_out.items():
            said = f"{request.api.name} is sent without {name}: {why}"
            if said not in self._said and len(self._said) < SAID_MAX:
                self._said.add(said)
                _logger.error("broker %d: %s", self._broker, said)
        return found

    def _next(self) -> Send | QueueOverflow | None:
        with self._lock:
            while not (self._waiting or self._behind or self._ended):
                self._lock.wait()
            if self._ended:
                return None
            if self._waiting:
                return self._waiting.popleft()
            self._behind = False
        return QueueOverflow(self._broker)

    def _ask(self, request: Send) -> object:
        if self._connection is None:
            made = connect(self.address, self._connecting)
            with self._lock:
                self._connection = made
                if self._ended:
                    made.interrupt()
        connection = self._connection
        assert connection is not None
        # Brokers of this era do not announce what only their controller sends.
        connection.send(request.api, request.body, request.api.versions.stop - 1)
        return connection.receive(ANSWER_MS)

    def _hang_up(self) -> None:
        with self._lock:
            found, self._connection = self._connection, None
        if found is not None:
            with suppress(KafkalogError):
                found.close()


def _shortened(waiting: Iterable[Send]) -> Iterator[Send]:
    """The requests that remain.  First the latest live brokers, since Kafka's brokers follow only
    brokers that they know, and the next request may name one.  It includes the partitions being
    deleted: the controller forgets them with their topic.  Then all StopReplica, as one request."""
    by_api: dict[Api, list[Send]] = {}
    for one in waiting:
        by_api.setdefault(one.api, []).append(one)
    if known := by_api.get(UPDATE_METADATA):
        yield known[-1]._replace(body=known[-1].body | {"topic_states": _deleted(known)})
    if stops := by_api.get(STOP_REPLICA):
        yield stops[-1]._replace(body=stops[-1].body | {"topic_states": _merged(stops)})


def _deleted(known: Iterable[Send]) -> list[Fields]:
    """Each partition that is being deleted, once, under its topic's id: one of the same name that
    was created later has another."""
    topics: dict[tuple[str, UUID], dict[int, Fields]] = {}
    for one in known:
        for topic in one.body["topic_states"]:
            gone = {row["partition_index"]: row for row in topic["partition_states"]
                    if row["leader"] == DURING_DELETE}  # fmt: skip
            if gone:
                topics.setdefault((topic["topic_name"], topic["topic_id"]), {}).update(gone)
    return [{"topic_name": name, "topic_id": topic_id, "partition_states": [*rows.values()]}
            for (name, topic_id), rows in topics.items()]  # fmt: skip


def _merged(stops: Iterable[Send]) -> list[Fields]:
    """Each partition once, in the last epoch; to be deleted if any of them says so."""
    topics: dict[str, dict[int, Fields]] = {}
    for one in stops:
        for topic in one.body["topic_states"]:
            rows = topics.setdefault(topic["topic_name"], {})
            for row in topic["partition_states"]:
                before = rows.get(row["partition_index"], row)
                deletes = row["delete_partition"] or before["delete_partition"]
                rows[row["partition_index"]] = row | {"delete_partition": deletes}
    return [
        {"topic_name": name, "partition_states": [*rows.values()]} for name, rows in topics.items()
    ]


def _name(what: Send | QueueOverflow) -> str:
    return "the current state" if isinstance(what, QueueOverflow) else what.api.name
