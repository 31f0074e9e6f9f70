"""Three nodes for one test: real sockets and directories; tests can kill and disconnect them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from kafkalog.client.calls import topics
from kafkalog.client.link.cluster import Cluster
from kafkalog.client.link.transport import Options
from kafkalog.clock import SkippingClock
from kafkalog.errors import ArgumentError, Closed, ForkedHandle, KafkalogError
from kafkalog.metadata.image import NO_LEADER, Partition
from kafkalog.server.broker import node_of
from kafkalog.server.faults import HELPER
from kafkalog.testing import records
from kafkalog.testing.broker import LOOK_S, TestBroker
from kafkalog.testing.controllers import NODE, OwnController
from kafkalog.testing.standin import StandIn
from kafkalog.types import Record, TopicPartition

__all__ = ["NODES", "SETTINGS", "TestCluster"]

NODES = 3
WAIT_S = 60.0
"""How long the helpers wait, by the machine's clock, for something that takes milliseconds on an
idle machine."""
SETTINGS: Mapping[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "replica.fetch.wait.max.ms": 50,
    "replica.fetch.backoff.ms": 20,
    "replica.lag.time.max.ms": 1000,
    "controlled.shutdown.retry.backoff.ms": 20,
}
"""Differences from one node's settings; a test's own settings override them.  A node that is gone
leaves the ISR after a second."""


class TestCluster:
    """Nodes 1, 2 and 3 in this process, for any client in any language.

    By default a topic has three replicas, and acks=all waits for two of them.  A context manager;
    closed by `close`, which may be repeated.  A forked child reaches them as any client does.
    """

    __test__ = False  # not a class of tests, despite its name

    def __init__(
        self,
        path: str | os.PathLike[str],
        zookeeper: str | bool | None = None,
        *,
        config: Mapping[str, object] | None = None,
        clock: SkippingClock | None = None,
    ) -> None:
        """Serve the directories node1, node2 and node3 below `path`, created if missing; on return
        each node knows all others.

        `zookeeper`: None: the nodes are under a controller of their own (KRaft), which is in this
        process and outlives every node; True: on a model of ZooKeeper, in this process, too; or
        `host:port/chroot` of one that runs.  `config`: settings of all nodes by Kafka's names,
        which override SETTINGS.

        Raises: as TestBroker; AssertionError: not in time.
        """
        self.path = os.path.abspath(path)
        self.clock = clock or SkippingClock()
        """The clock of all nodes; `advance(ms)` lets time pass at once."""
        self.nodes: dict[int, TestBroker] = {}
        """Each like `kafkalog_broker`, with its own faults."""
        self._pid = os.getpid()
        self._parted: set[tuple[int, int]] = set()
        self._stand_in = StandIn() if zookeeper is True else None
        self._own: OwnController | None = None
        common = {**SETTINGS, **(config or {})}
        if zookeeper:
            common["zookeeper.connect"] = self._stand_in.hosts if self._stand_in else zookeeper
        try:
            if not zookeeper:
                self._own = OwnController(os.path.join(self.path, "controller"), common)
            for node in range(1, NODES + 1):
                folder = os.path.join(self.path, f"node{node}")
                settings = self._own.settings(node) if self._own else {"node.id": node}
                settings = {**common, **settings}
                self.nodes[node] = TestBroker(folder, config=settings, clock=self.clock)
            self._all_known()
        except BaseException:
            self.close()
            raise

    # ---- its life ----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for Kafka clients: all nodes, the same across restarts."""
        return ",".join(one.bootstrap_servers for one in self.nodes.values())

    @property
    def running(self) -> list[int]:
        """The running nodes."""
        return [node for node, one in self.nodes.items() if one.running]

    def kill(self, node: int) -> None:
        """End a node as in a power cut: everything not on its disk is lost.  The others notice at
        once; `start` starts it again.

        Raises: ArgumentError: no such node; Closed: it is down.
        """
        self._node(node).kill()
        if self._own is not None:
            self._own.forget(node)

    def stop(self, node: int) -> None:
        """Shut a node down in order: other nodes take over its leaderships first.

        Raises: ArgumentError.
        """
        self._node(node).stop()
        if self._own is not None:
            self._own.forget(node)

    def start(self, node: int) -> None:
        """Start a node again after `kill` or `stop`; does nothing if it runs.

        Raises: ArgumentError.
        """
        self._node(node).start()
        self._cut()

    def partition(self, one: int, other: int) -> None:
        """Cut two nodes off from each other until `heal`: neither answers the other, from the next
        request on.  Clients reach both (unless their client.id is a node's number, by which nodes
        know each other), and both reach ZooKeeper or its model.

        Raises: ArgumentError.
        """
        self._here()
        for node in (one, other):
            self._node(node)
        if one == other:
            raise ArgumentError(f"partition: found node {one} twice, wanted two nodes")
        self._parted.add((min(one, other), max(one, other)))
        self._cut()

    def _cut(self) -> None:
        """Cut off the running nodes that must be apart; faults that are set are not set again."""
        for one, other in self._parted:
            for node, lost in ((one, str(other)), (other, str(one))):
                if not self.nodes[node].running:
                    continue
                faults = self.nodes[node].broker.faults
                if not any(fault.api is None and fault.client_id == lost for fault in faults.all):
                    faults.cut_off(lost)

    def heal(self) -> None:
        """Reconnect nodes, start what is down, resume what is paused, remove every fault; on
        return each node knows all others.

        Raises: AssertionError: not in time.
        """
        self._here()
        self._parted.clear()
        for one in self.nodes.values():
            one.heal()
        self._all_known()

    def close(self) -> None:
        """End all nodes; in a forked child, none."""
        if self._pid != os.getpid():
            return
        for one in self.nodes.values():
            if one.running:  # a node that is paused or cut off would delay the end of the others
                with suppress(KafkalogError):
                    one.heal()
        for one in self.nodes.values():
            one.close()
        if self._stand_in is not None:
            self._stand_in.close()
        if self._own is not None:
            self._own.close()

    # ---- what is in it -----------------------------------------------------------------------

    @property
    def controller(self) -> int:
        """The controller's node, as all running nodes know it; -1: unknown, or none.  Without
        ZooKeeper it is none of the three."""
        if self._own is not None:
            self._here()
            return NODE
        controllers = {
            node_of(self.nodes[node].broker).metadata.controller for node in self.running
        }
        return controllers.pop() if len(controllers) == 1 else -1

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition, as the node with the latest state knows it; -1: none.

        Raises: Closed: no node runs.
        """
        state = self._newest(topic, partition)
        return NO_LEADER if state is None else state.leader

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The nodes in sync, sorted, as the node with the latest state knows them.

        Raises: Closed: no node runs.
        """
        state = self._newest(topic, partition)
        return [] if state is None else sorted(state.isr)

    def _newest(self, topic: str, partition: int) -> Partition | None:
        if not self.running:
            raise Closed(f"all nodes of {self.path} are down: start(n)")
        states = (self._told(node, topic, partition) for node in self.running)
        known = [state for state in states if state is not None]
        return max(known, key=lambda it: (it.leader_epoch, it.partition_epoch), default=None)

    def _told(self, node: int, topic: str, partition: int) -> Partition | None:
        return node_of(self.nodes[node].broker).image.partition(topic, partition)

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; `replication_factor` -1: the nodes' default.  On return each node knows
        its partitions' leaders, except nodes that are cut off from others.

        Raises: TopicExists, InvalidTopic, InvalidSetting, InvalidReplicationFactor; AssertionError:
        not in time.
        """
        self._here()  # it looks into the nodes
        with self._client() as client:
            topics.create_topic(client, topic, partitions, replication_factor, config)
        parted = {node for pair in self._parted for node in pair}
        nodes = [node for node in self.running if node not in parted]

        def led() -> bool:
            states = [self._told(node, topic, n) for node in nodes for n in range(partitions)]
            return all(state is not None and state.leader in self.nodes for state in states)

        self.wait_until(led, f"topic {topic}: its partitions are led")

    def fill(
        self,
        topic: str,
        what: Iterable[records.Row] | os.PathLike[str],
        *,
        partition: int | None = None,
    ) -> int:
        """Write records to a topic, with acks=all: see TestBroker.fill."""
        with self._client() as client:
            return records.send(client, topic, what, partition)

    def records(self, topic: str, *, committed: bool = True) -> list[Record]:
        """The records that a consumer would read from all partitions now, each from its leader;
        partitions without a leader are left out.

        Raises: Closed: no node runs.
        """
        found: list[Record] = []
        isolation = "read_committed" if committed else "read_uncommitted"
        number = 0
        while self._newest(topic, number) is not None:
            leader = self.leader(topic, number)
            if leader in self.running:
                log = node_of(self.nodes[leader].broker).partitions.existing_log(topic, number)
                found += [] if log is None else log.read(isolation=isolation)
            number += 1
        return found

    def wait_for_records(
        self, topic: str, count: int, timeout_s: float = WAIT_S, *, committed: bool = True
    ) -> list[Record]:
        """The records of a topic, once there are `count`; see `records`.

        Raises: AssertionError, if there are fewer in time, or more.
        """
        self._here()
        found: list[Record] = []

        def there() -> bool:
            with suppress(KafkalogError):  # another node has just led it
                found[:] = self.records(topic, committed=committed)
            return len(found) >= count

        self.wait_until(
            there, lambda: f"topic {topic}: {count} records, not {len(found)}", timeout_s
        )
        if len(found) != count:
            raise AssertionError(f"topic {topic}: found {len(found)} records, wanted {count}")
        return found

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed."""
        with self._client() as client:
            return records.committed(client, group)

    def wait_until(
        self, condition: Callable[[], object], what: str | Callable[[], str],
        timeout_s: float = WAIT_S,
    ) -> None:  # fmt: skip
        """Wait until the condition holds.  Raises: AssertionError, with `what`."""
        end_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end_s:
                message = what if isinstance(what, str) else what()
                raise AssertionError(f"not within {timeout_s:g} s: {message}")
            time.sleep(LOOK_S)

    # ---- inside --------------------------------------------------------------------------------

    def _node(self, node: int) -> TestBroker:
        if node not in self.nodes:
            known = ", ".join(map(str, self.nodes))
            raise ArgumentError(f"node: found {node!r}, wanted one of {known}")
        return self.nodes[node]

    def _here(self) -> None:
        if self._pid != os.getpid():
            raise ForkedHandle(f"the nodes of {self.path} run in the parent process")

    def _client(self) -> Cluster:
        options = Options(client_id=HELPER, request_timeout_ms=int(WAIT_S * 1000))
        return Cluster(self.bootstrap_servers, options, self.clock)

    def _all_known(self) -> None:
        """Wait until each node knows the others, and a controller."""

        def so() -> bool:
            images = [node_of(one.broker).image for one in self.nodes.values()]
            return self.controller > 0 and all(len(one.living) == NODES for one in images)

        self.wait_until(so, "each node knows all others")

    def __enter__(self) -> TestCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TestCluster({self.path!r}, running: {self.running})"
