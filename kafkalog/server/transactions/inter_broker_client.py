"""Requests to coordinators and leaders on other nodes of a cluster: whether a producer may write
here, to write a transaction's marker there, and about share partitions and their dead letters."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.client.link.connection import Connection
from kafkalog.coordinator.partitions import partition_for
from kafkalog.errors import KafkalogError, UnsupportedVersion
from kafkalog.logs.limit import limited
from kafkalog.replication.inter_broker import connect
from kafkalog.server.journal import TRANSACTIONS_TOPIC
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkalog.coordinator.step import Producer
    from kafkalog.coordinator.transactions.core import Results
    from kafkalog.coordinator.transactions.requests import ProducerClaim
    from kafkalog.replication.membership import Membership

__all__ = ["InterBrokerClient", "outcome_in", "peer_code", "question", "results_of"]

_logger = limited(__name__)

ANSWER_MS = 10_000
IN_FLIGHT_MAX = 100
"""Requests sent to one node before their answers arrive."""
WAITING_MAX = 10_000
WAITING_BYTES_MAX = 16 << 20
"""More requests that wait for one node, and the names in them; any beyond get an error immediately,
and the caller retries."""
BATCHED = 4
"""The first version of AddPartitionsToTxn that brokers send."""


Body = dict[str, Any] | Callable[[int], dict[str, Any]]
"""The fields of a request, or what makes them for a version."""


class _Peer:
    """Requests to one node, in its own thread: all that have accumulated are sent together, and the
    answers come in the same order."""

    def __init__(self, member: Membership, broker: int, name: str) -> None:
        """`name`: the thread's, which starts immediately."""
        self._member, self._broker = member, broker
        self._works: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards what follows
        self._bytes = 0
        self._connection: Connection | None = None  # the thread's own
        self._thread = threading.Thread(
            target=self._loop, name=f"{name} to broker {broker}", daemon=True
        )
        self._thread.start()

    @property
    def full(self) -> bool:
        """True if too many have not been sent."""
        return self._works.qsize() >= WAITING_MAX or self._bytes > WAITING_BYTES_MAX

    def ask(self, api: Api, body: Body, size: int, then: Callable[[Any], None]) -> None:
        """`then` is called in the thread with the response; None if there is none.  `size`: of its
        names, in bytes."""
        self._add(size)
        self._works.put(_Work(api, body, size, then))

    def _add(self, size: int) -> None:
        with self._lock:
            self._bytes += size

    def stop(self) -> None:
        """Stop once everything requested has been tried."""
        self._works.put(None)

    def join(self) -> None:
        """After `stop`."""
        self._thread.join()

    def _loop(self) -> None:
        ended = False
        while not ended:
            works, one = list[_Work](), self._works.get()
            while one is not None:
                works.append(one)
                if len(works) == IN_FLIGHT_MAX or self._works.empty():
                    break
                one = self._works.get()
            self._add(-sum(work.size for work in works))
            ended = one is None
            self._exchange(works)
        self._hang_up()

    def _exchange(self, works: list[_Work]) -> None:
        left = deque(works)
        try:
            if works and (connection := self._connected()) is not None:
                left = _offered(connection, works)
                for one in left:
                    version = connection.version_of(one.api)
                    body = one.body(version) if callable(one.body) else one.body
                    connection.send(one.api, body, version)
                while left:
                    answer = connection.receive(ANSWER_MS)
                    _tell(left.popleft(), answer)
        except KafkalogError as problem:
            _logger.info("broker %d: %s: %s", self._broker, left[0].api.name, problem)
            self._hang_up()
        for one in left:
            _tell(one, None)

    def _connected(self) -> Connection | None:
        if self._connection is None or self._connection.closed:
            place, how = self._member.place(self._broker), self._member.connecting()
            self._connection = None if place is None else connect(place, how)
        return self._connection

    def _hang_up(self) -> None:
        found, self._connection = self._connection, None
        if found is not None:
            found.close()


class _Work(NamedTuple):
    api: Api
    body: Body
    size: int
    then: Callable[[Any], None]


def _offered(connection: Connection, works: Sequence[_Work]) -> deque[_Work]:
    """The requests of APIs that the other node serves; the others have no answer."""
    left = deque[_Work]()
    for one in works:
        try:
            connection.version_of(one.api)
        except UnsupportedVersion as problem:
            _logger.info("%s", problem)
            _tell(one, None)
        else:
            left.append(one)
    return left


def _tell(work: _Work, answer: Any) -> None:
    try:
        work.then(answer)
    except Exception:
        _logger.exception("a failure of what was to go on")  # the next has its turn


def peer_code(number: int) -> ErrorCode:
    """An error code of another node, which may be newer than this one and know more of them."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# ---- what is sent, and what an answer means ----------------------------------------------------


def question(
    identity: ProducerClaim, partitions: Collection[TopicPartition], joins: bool
) -> dict[str, Any]:
    """The fields of AddPartitionsToTxn: whether a producer may write to these, which join its
    transaction if `joins`."""
    topics: dict[str, list[int]] = defaultdict(list)
    for where in partitions:
        topics[where.topic].append(where.partition)
    transaction = {
        "transactional_id": identity.transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "verify_only": not joins,
        "topics": [{"name": name, "partitions": found} for name, found in topics.items()],
    }
    return {"transactions": [transaction]}


def results_of(answer: Any, partitions: Collection[TopicPartition]) -> Results:
    """The result for each partition; `answer` None: there is none, or it came too late."""
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # also for what it does not mention
    if answer is not None and answer.error_code:
        error = peer_code(answer.error_code)
    found = {
        TopicPartition(topic.name, row.partition_index): peer_code(row.partition_error_code)
        for one in (() if answer is None else answer.results_by_transaction)
        for topic in one.topic_results
        for row in topic.results_by_partition
    }
    return {where: found.get(where, error) for where in partitions}


def outcome_in(answer: Any, where: TopicPartition) -> ErrorCode:
    """The outcome of a marker; without an answer, the next attempt asks the new leader."""
    found = {
        TopicPartition(topic.name, row.partition_index): peer_code(row.error_code)
        for one in (() if answer is None else answer.markers)
        for topic in one.topics
        for row in topic.partitions
    }
    return found.get(where, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class InterBrokerClient:
    """Asks each other node in its own thread: a silent node delays only the requests that need it.
    Safe from any thread; ended by `stop`."""

    def __init__(self, member: Membership, name: str) -> None:
        self._member = member
        self._name = name
        self._lock = threading.Lock()  # guards what follows
        self._peers: dict[int, _Peer] = {}
        self._stopped = False

    def apart(self, name: str) -> InterBrokerClient:
        """Another client, with threads and connections of its own, for requests whose answers may
        take long."""
        return InterBrokerClient(self._member, name)

    def stop(self) -> None:
        """Stop once everything requested has been tried."""
        with self._lock:
            self._stopped = True
            peers = list(self._peers.values())
        for one in peers:
            one.stop()
        for one in peers:
            one.join()

    # ---- which node ----------------------------------------------------------------------------

    def leader(self, where: TopicPartition) -> int | None:
        """The other node that leads a partition; None: this one, or nobody."""
        found = self._member.image.partition(*where)
        leader = -1 if found is None else found.leader
        return None if leader in (-1, self._member.node) else leader

    def coordinator(self, transactional_id: str | None) -> int | None:
        """The other node that coordinates a transactional id; None: this one, or nobody."""
        topic = self._member.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None or transactional_id is None:
            return None
        number = partition_for(transactional_id, len(topic.partitions))
        return self.leader(TopicPartition(TRANSACTIONS_TOPIC, number))

    # ---- requests ------------------------------------------------------------------------------

    def allow(
        self,
        broker: int,
        identity: ProducerClaim,
        partitions: Collection[TopicPartition],
        joins: bool,
        then: Callable[[Results], None],
    ) -> None:
        """Ask whether a producer may write to these, which join its transaction if `joins`."""
        self.ask(
            broker, apis.ADD_PARTITIONS_TO_TXN, question(identity, partitions, joins),
            len(identity.transactional_id) + sum(len(where.topic) + 50 for where in partitions),
            lambda answer: then(results_of(answer, partitions)),
        )  # fmt: skip

    def end(
        self, broker: int, where: TopicPartition, producer: Producer,
        done: Callable[[ErrorCode], None],
    ) -> None:  # fmt: skip
        """Ask a leader to write the marker that ends a transaction in its partition."""
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": bool(producer.commit),
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_version": producer.version,
            "topics": [{"name": where.topic, "partition_indexes": [where.partition]}],
        }
        self.ask(
            broker, apis.WRITE_TXN_MARKERS, {"markers": [marker]}, len(where.topic),
            lambda answer: done(outcome_in(answer, where)),
        )  # fmt: skip

    def ask(
        self, broker: int, api: Api, body: Body, size: int, then: Callable[[Any], None]
    ) -> None:
        """Send a request; `then` gets the response, or None if there is none.  `size`: of what
        grows with the request, in bytes."""
        with self._lock:
            peer = None if self._stopped else self._peer(broker)
            if peer is not None and not peer.full:
                peer.ask(api, body, size, then)
                return
        then(None)

    def _peer(self, broker: int) -> _Peer:
        if broker not in self._peers:
            self._peers[broker] = _Peer(self._member, broker, self._name)
        return self._peers[broker]
