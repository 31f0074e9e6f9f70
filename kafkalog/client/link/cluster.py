"""A cluster as a client sees it: connections to its nodes, and retries.  metadata.py decides what
the client knows about nodes, leaders and coordinators.

Blocking, one thread at a time.  Connections are opened when they are needed and kept.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from kafkalog import errors
from kafkalog.client.link.chunks import portions
from kafkalog.client.link.connecting import Openings
from kafkalog.client.link.connection import Connection
from kafkalog.client.link.failures import (
    check_code,
    failure,
    failure_class,
    passing,
)
from kafkalog.client.link.metadata import (
    GROUP,
    NO_NODE,
    TRANSACTION,
    Known,
    MetadataAnswer,
    Recovery,
    TopicInfo,
    controllers_in,
    endpoint_type,
    metadata_of,
)
from kafkalog.client.link.patience import NotYet, Patience
from kafkalog.client.link.transport import Address, Options, Where, reach
from kafkalog.clock import Clock, SystemClock
from kafkalog.types import TopicPartition
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode

__all__ = ["GROUP", "TRANSACTION", "Backoff", "Cluster"]

T = TypeVar("T")
_COORDINATED = {GROUP: "group", TRANSACTION: "transactional id"}
UNKNOWN_TOPIC_MS = 1_500
"""How long a topic is looked for before it counts as missing: it may just have been created."""


class Backoff:
    """Longer and longer pauses, up to the time limit of a call."""

    def __init__(
        self, options: Options, clock: Clock, patience_ms: float, within: Patience | None = None
    ) -> None:
        """`within`: the call's patience, which may end earlier."""
        self.clock = clock
        self.pause_ms: float = options.retry_backoff_ms
        self.pause_max_ms = options.retry_backoff_max_ms
        self.begun_s = clock.monotonic_s()
        self.deadline_s = self.begun_s + patience_ms / 1000
        self._within = Patience() if within is None else within

    def at_most(self, patience_ms: int) -> None:
        """Shorten the time limit, counted from the beginning."""
        self.deadline_s = min(self.deadline_s, self.begun_s + patience_ms / 1000)

    @property
    def patience_ms(self) -> int:
        """The time limit in total."""
        return round((self.deadline_s - self.begun_s) * 1000)

    def over(self) -> bool:
        """True if the time limit has passed."""
        return self.clock.monotonic_s() >= self.deadline_s or not self._within.left_s()

    def left_ms(self) -> int:
        """Time left until the time limit, at least 1."""
        return max(1, int((self.deadline_s - self.clock.monotonic_s()) * 1000))

    def wait(self) -> None:
        """Pause, with a fifth of jitter (KIP-580); the next pause is twice as long."""
        pause_s = self.pause_ms * random.uniform(0.8, 1.2) / 1000
        self.pause_ms = min(self.pause_ms * 2, self.pause_max_ms)
        condition = threading.Condition()
        pause_s = min(pause_s, self._within.left_s())
        until_s = min(self.clock.monotonic_s() + pause_s, self.deadline_s)
        with condition:
            while self.clock.monotonic_s() < until_s:
                self.clock.wait_until(condition, until_s)


class Cluster(Known):
    """Metadata of one cluster, and connections to it.  One thread at a time; a context
    manager."""

    def __init__(
        self,
        where: Where,
        options: Options = Options(),  # noqa: B008
        clock: Clock | None = None,
    ) -> None:
        """Nothing is sent yet.  `where`: another Cluster shares its backoffs, and its security,
        with this one.

        Raises: ArgumentError for servers that are not addresses; Closed (a store).
        """
        super().__init__()
        if isinstance(where, Cluster):
            options = options._replace(security=where.options.security)
        security = options.security
        self.transport = reach(where, "PLAINTEXT" if security is None else security.protocol)
        if getattr(self.transport, "inside", False):
            options = options._replace(security=None)
        self.servers = list(self.transport.servers)
        self.options: Options = options
        self.patience = Patience()
        """How long the current call may still wait."""
        rests = where.openings.rests if isinstance(where, Cluster) else None
        self.openings: Openings = Openings(options, self.transport, self.patience, rests)
        """How connections are opened."""
        self.clock: Clock = SystemClock() if clock is None else clock
        self._recovery = Recovery(options.rebootstraps, options.rebootstrap_ms / 1000)
        self._open: dict[int, Connection] = {}
        self._first: Connection | None = None
        self._failed: Address | None = None
        """The last broker that failed to give metadata: others are asked first."""
        self.reached = False
        """True if any broker has ever answered."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._hang_up()
        self.openings.close()

    def _hang_up(self) -> None:
        for connection in (*self._open.values(), self._first):
            if connection is not None:
                connection.close()
        self._open.clear()
        self._first = None

    def backoff(self, patience_ms: int | None = None) -> Backoff:
        """The pauses of one call; `patience_ms` None: as in `within`."""
        left_ms = self.patience.left_s() * 1000
        most_ms = min(self._most_ms(patience_ms), left_ms)
        return Backoff(self.options, self.clock, most_ms, self.patience)

    def within(self, timeout_ms: float | None = None) -> AbstractContextManager[None]:
        """The requests within are one call; None: the time limit of the call around it, else the
        API timeout."""
        return self.patience.within(self._most_ms(timeout_ms) / 1000)

    def _most_ms(self, timeout_ms: float | None) -> float:
        if timeout_ms is not None:
            return timeout_ms
        return self.options.api_timeout_ms if self.patience.until_s == math.inf else math.inf

    def patient_until_s(self) -> float:
        """When a call that begins now gives up, by the clock: with the call around it, or alone."""
        left_s, own_s = self.patience.left_s(), self.options.api_timeout_ms / 1000
        return self.clock.monotonic_s() + (own_s if left_s == math.inf else left_s)

    # ---- connections -------------------------------------------------------------------

    def connect(self, node: int) -> Connection:
        """The connection to a node; opened if there is none.

        Raises: PeerGone, Timeout, BadAnswer, UnsupportedVersion; as `refresh`.
        """
        found = self._open.get(node)
        if found is not None and self.moved(node, found):
            self._open.pop(node).close()
        elif found is not None and found.usable():
            return found
        self._open[node] = made = self.openings.connect(self.place(node))
        return made

    def moved(self, node: int, connection: Connection) -> bool:
        """True if a node is known to be elsewhere than its connection leads."""
        return self.nodes.get(node, connection.address) != connection.address

    def another(self, node: int) -> Connection:
        """A new connection to a node, for long waits that must not delay other requests.

        The caller closes it.  Raises: as `connect`.
        """
        return self.openings.connect(self.place(node))

    def place(self, node: int) -> Address:
        """The address of a node.  Raises: PeerGone; as `refresh`."""
        if node not in self.nodes:
            self.refresh([])
        if node not in self.nodes:
            raise errors.PeerGone(f"node {node} is not in the cluster now")
        return self.nodes[node]

    def any(self) -> Connection:
        """A connection to some broker, if possible an open one.

        Raises: PeerGone, Timeout, BadAnswer, UnsupportedVersion if none can be reached: the
        failure of the last one tried; AuthenticationFailed at once.
        """
        if (found := self.free()) is not None:
            return found
        brokers = self._recovery.brokers(self.servers, self.nodes)
        problem: errors.KafkalogError | None = None
        rests = self.openings.rests
        for address in sorted(brokers, key=lambda at: (rests.left_s(at) > 0, at == self._failed)):
            try:
                self._first = self.openings.connect(address)
            except (NotYet, errors.WakeUp, errors.AuthenticationFailed):
                raise  # a wrong password is wrong for every broker, and may lock its user out
            except errors.KafkalogError as failed:
                problem = failed
            else:
                self.reached = True
                return self._first
        assert problem is not None  # there is at least one server
        raise problem

    def free(self, api: Any = None) -> Connection | None:
        """An open connection to some broker (with `api`: one that serves it) on which no answer is
        waited for; None: there is none."""
        brokers = self._recovery.brokers(self.servers, self.nodes)
        for one in (self._first, *self._open.values()):
            if one is None or one.closed or one.waiting or one.address not in brokers:
                continue
            if (api is None or one.knows(api)) and one.usable():
                return one
        return None

    # ---- metadata ----------------------------------------------------------------------

    def refresh(self, topics: Iterable[str] | None, create: bool = False) -> None:
        """Fetch nodes and these topics (None: all); `create`: the broker may create them.

        Topics that do not exist are forgotten.  Raises: as `any`; why the broker refused one of
        these topics, once all others are known.
        """
        names = None if topics is None else sorted(set(topics))
        self.retrying(lambda: self.refresh_once(names, create))
        for name in names or ():
            if name in self.refused:
                raise self.refused[name]

    def refresh_once(self, names: list[str] | None, create: bool = False) -> None:
        """As `refresh`, without retries.  If the broker refuses a topic, the reason is left in
        `refused`, and the others are known."""
        self.refused.clear()
        for some in (None,) if names is None else portions(names):
            self._refresh_some(None if some is None else list(some), create)

    def _refresh_some(self, names: list[str] | None, create: bool) -> None:
        if self._recovery.asks(self.clock.monotonic_s()):
            self.rebootstrap()
        connection = self.any()
        try:
            if self.options.controllers:
                found = self._controllers(connection, names)
            else:
                found = self._metadata(connection, names, create)
        except (NotYet, errors.WakeUp):  # the call is over, not the request's time
            raise
        except errors.KafkalogError:
            self._failed = connection.address
            raise
        self._recovery.answered()
        self.answered(names, found)
        for node in [n for n, c in self._open.items() if self.nodes.get(n) != c.address]:
            self._open.pop(node).close()

    def _metadata(
        self, connection: Connection, names: list[str] | None, create: bool
    ) -> MetadataAnswer:
        """A broker's answer."""
        if apis.METADATA.key not in connection.ranges and apis.VOTE.key in connection.ranges:
            raise errors.UnsupportedVersion(
                f"{connection.address}: found a listener of controllers, wanted a broker's; to ask "
                "controllers: --bootstrap-controller, in Python Admin(servers, controllers=True)"
            )
        version = connection.version_of(apis.METADATA)
        if names is None:
            wanted: list[dict[str, str]] | None = None if version else []
        else:
            wanted = [{"name": name} for name in names]
        body = {"topics": wanted, "allow_auto_topic_creation": create}
        answer = connection.call(apis.METADATA, body, version)
        self._check(connection, answer.error_code if version >= 13 else 0, len(answer.brokers))
        return metadata_of(answer)

    def _controllers(self, connection: Connection, names: list[str] | None) -> MetadataAnswer:
        """A controller's answer (KIP-919): it knows controllers, and no topics.

        Raises: UnsupportedEndpointType for topics; UnsupportedVersion: it cannot be asked.
        """
        if names != []:
            raise failure(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "topics", "controllers have none")
        version = connection.version_of(apis.DESCRIBE_CLUSTER)
        if version < 1:
            raise errors.UnsupportedVersion(
                f"{connection.address}: DescribeCluster: version {version}, wanted 1 for the "
                "controllers of a cluster"
            )
        body = {"endpoint_type": endpoint_type(True)}
        answer = connection.call(apis.DESCRIBE_CLUSTER, body, version)
        check_code(answer.error_code, "controllers", answer.error_message)
        self._check(connection, 0, len(answer.brokers))
        return controllers_in(answer)

    def _check(self, connection: Connection, code: int, nodes: int) -> None:
        """Check that an answer to Metadata or DescribeCluster, with so many nodes, can be used."""
        if code == ErrorCode.REBOOTSTRAP_REQUIRED and self._recovery.rebootstraps:
            self.rebootstrap()
        if code or not nodes:
            connection.close()
        check_code(code, "metadata", api=apis.METADATA)
        if not nodes:
            raise errors.PeerGone(f"{connection.address}: Metadata: found no node, wanted one")

    def rebootstrap(self) -> None:
        """Begin again with the bootstrap servers, over new connections."""
        super().rebootstrap()
        self._hang_up()

    def topic(self, name: str, create: bool = False) -> TopicInfo:
        """A topic that exists; `create`: the broker may create it now.

        Raises: UnknownTopicOrPartition if it does not appear in a moment; as `refresh`.
        """
        if name in self.topics:  # the usual case: called for every partition of every fetch
            return self.topics[name]
        most_ms = self.options.api_timeout_ms if create else UNKNOWN_TOPIC_MS
        backoff = self.backoff(most_ms)
        since_s = self.sought_since_s(name, backoff.begun_s)
        try:
            while True:
                self.refresh([name], create)
                if name in self.topics:
                    break
                late = self.clock.monotonic_s() - since_s >= most_ms / 1000
                if late or backoff.over():  # an errand may have time for other topics
                    if self.patience.errand is not None and not late:
                        raise failure(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r}")
                    raise errors.UnknownTopicOrPartition(f"the cluster has no topic {name!r}")
                backoff.wait()
        except (NotYet, errors.WakeUp):
            raise  # a later call continues
        except errors.KafkalogError as problem:
            if problem.code != ErrorCode.LEADER_NOT_AVAILABLE:
                self.seek_no_more(name)
            raise
        self.seek_no_more(name)
        return self.topics[name]

    def leader(self, tp: TopicPartition) -> int:
        """The leader of a partition now.  For an unknown partition the brokers are asked once more:
        the topic may have grown.

        Raises: UnknownTopicOrPartition; LeaderNotAvailable, which is retriable once the topic is
        forgotten; as `refresh`.
        """
        info = self.topic(tp.topic).partitions.get(tp.partition)
        if info is None:
            self.refresh([tp.topic])
            info = self.topic(tp.topic).partitions.get(tp.partition)
        if info is None:
            raise errors.UnknownTopicOrPartition(
                f"topic {tp.topic!r} has no partition {tp.partition}"
            )
        if info.leader == NO_NODE:
            raise failure_class(ErrorCode.LEADER_NOT_AVAILABLE)(
                f"{tp.topic}-{tp.partition} has no leader now"
            )
        return info.leader

    def controller(self) -> Connection:
        """The node for changes of topics.  Raises: as `connect`."""
        node = self.controller_node()
        return self.any() if node == NO_NODE else self.connect(node)

    def controller_node(self) -> int:
        """The node for changes of topics; -1: any.  Raises: as `refresh`."""
        if self.controller_id not in self.nodes:
            self.refresh([])
        return self.controller_id if self.controller_id in self.nodes else NO_NODE

    # ---- coordinators ------------------------------------------------------------------

    def coordinator(self, name: str, kind: int = GROUP) -> int:
        """The node that coordinates a group, or (TRANSACTION) a transactional id.

        Raises: CoordinatorNotAvailable and others, which are retriable; as `any`.
        """
        if (found := self.coordinator_of(name, kind)) is None:
            found = self._find_coordinator(name, kind)
        return found

    def _find_coordinator(self, name: str, kind: int) -> int:
        if not self._recovery.rebootstraps and not self.nodes:
            self.refresh_once([])  # from now on the bootstrap servers are not asked
        connection = self.any()
        version = connection.version_of(apis.FIND_COORDINATOR)
        body = {"key": name, "key_type": kind, "coordinator_keys": [name]}
        answer = connection.call(apis.FIND_COORDINATOR, body, version)
        found = answer
        if version >= 4:
            if len(answer.coordinators) != 1:
                raise errors.BadAnswer(
                    f"{connection.address}: FindCoordinator: found "
                    f"{len(answer.coordinators)} coordinators, wanted 1"
                )
            found = answer.coordinators[0]
        what = f"{_COORDINATED[kind]} {name!r}"
        check_code(found.error_code, what, found.error_message, apis.FIND_COORDINATOR)
        node = int(found.node_id)
        self.learn_coordinator(name, kind, node, Address(found.host, found.port))
        return node

    # ---- retries -----------------------------------------------------------------------

    def retrying(self, step: Callable[[], T], patience_ms: int | None = None) -> T:
        """The result of `step`; transient failures are retried.

        Each attempt looks up its node again, with new metadata.  A cluster that was never reached
        is not waited for.

        Raises: the last failure; a permanent one at once.
        """
        with self.within(patience_ms):
            return self._retrying(step, self.backoff(patience_ms))

    def _retrying(self, step: Callable[[], T], backoff: Backoff) -> T:
        last: errors.KafkalogError | None = None
        while True:
            try:
                return step()
            except NotYet:
                raise
            except errors.KafkalogError as problem:
                if last is not None and isinstance(problem, errors.Timeout) and backoff.over():
                    raise last from None  # it says more than the timeout
                if not passing(problem) or backoff.over() or not self.reached or self.openings.over:
                    raise
                if problem.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    backoff.at_most(self.options.storage_timeout_ms)
                    if backoff.over():
                        raise
                last = problem
            self.forget()
            self.forget_coordinators()
            self.controller_id = NO_NODE
            backoff.wait()
            if backoff.over():  # nothing would read the answer of another attempt
                raise last
