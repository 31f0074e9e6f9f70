"""A small tree, a controller over it, and ZooKeeper's part in a decision, for these tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from kafkalog.controller.context import Claim, Context
from kafkalog.controller.isr import Wanted, alter_partition
from kafkalog.controller.partitions import Deciding
from kafkalog.controller.requests import RequestBatch, Send
from kafkalog.controller.topics import never_led
from kafkalog.metadata.image import Broker, Topic
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.internal import ALTER_PARTITION
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.events import Commit, ReadZnodes
from kafkalog.zookeeper.loading import Loaded, Znode, load
from kafkalog.zookeeper.session import (
    ANY_VERSION,
    Check,
    Committed,
    Create,
    Delete,
    Operation,
    Set,
)
from kafkalog.zookeeper.store import partition_state
from kafkalog.zookeeper.watches import ZooKeeperStore

EPOCH, EPOCH_VERSION = 4, 3
WRITTEN_AT = 150
"""After the earlier brokers registered, and before those that restarted did."""
WRITTEN_NOW = 1000
LISTENER = "PLAINTEXT"
T = TypeVar("T")


class Shown(NamedTuple):
    """A partition's state, in short form."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovering: bool = False


NOTHING = Shown(0, 0, (), 0)
"""The state in a partition's answer that has no state."""


class Cluster:
    """Brokers with the epochs 101, 102, ..., and a tree with topics."""

    def __init__(self, brokers: Sequence[int] = (1, 2, 3), unclean: bool = False) -> None:
        self.tree = {tree.CONTROLLER_EPOCH: Znode(tree.write_epoch(EPOCH), EPOCH_VERSION)}
        self.refuse: Callable[[Operation], bool] = lambda _: False
        self.sent: list[Send] = []
        for one in brokers:
            self._register(one, 100 + one)
        self.unclean = unclean
        self.begin()

    def _register(self, broker: int, epoch: int) -> None:
        endpoint = tree.Endpoint(LISTENER, f"host{broker}", 9092, "PLAINTEXT")
        data = tree.write_broker(tree.BrokerNode((endpoint,), None, 0, {}))
        self.tree[tree.broker_path(broker)] = Znode(data, 0, epoch)

    def begin(self) -> None:
        """Start another controller, which knows what the tree says."""
        claim, loaded = Claim(9, EPOCH, EPOCH_VERSION, self.unclean), self.loaded()
        self.context, self.store = Context(claim, loaded), ZooKeeperStore(claim, loaded)
        self.batch = RequestBatch(self.context, LISTENER)

    def loaded(self) -> Loaded:
        """The metadata in the tree."""
        found = load(self.tree, 9)
        assert found.problems == ()
        return found

    def topic(self, name: str, replicas: dict[int, tuple[int, ...]]) -> list[Topic]:
        """Write the assignment of a topic into the tree; returns what the controller learns."""
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        node = tree.TopicNode(topic_id, replicas, {}, {})
        self.tree[tree.topic_path(name)] = Znode(tree.write_topic(node))
        partitions = {number: never_led(number, one) for number, one in replicas.items()}
        return [Topic(name, topic_id, partitions)]

    def led(self, key: tuple[str, int], replicas: tuple[int, ...], state: Shown) -> None:
        """Write a partition and its topic as an earlier controller left them."""
        self.topic(key[0], {key[1]: replicas})
        written = tree.PartitionState(*state[:3], EPOCH - 1, state.recovering)
        data = tree.write_partition(written)
        self.tree[tree.partition_path(*key)] = Znode(
            data, state.partition_epoch, changed=WRITTEN_AT
        )
        self.begin()

    def brokers(self, *living: int, **epochs: int) -> dict[int, Broker]:
        """Register exactly these brokers; `b1=200`: register broker 1 again, with that epoch."""
        for path in [path for path in self.tree if path.startswith(tree.BROKERS)]:
            if int(path.rpartition("/")[2]) not in living:
                del self.tree[path]
        for one in living:
            if tree.broker_path(one) not in self.tree:
                self._register(one, 100 + one)
        for name, epoch in epochs.items():
            self._register(int(name[1:]), epoch)
        return dict(self.loaded().image.brokers)

    def decide(self, deciding: Deciding[T]) -> T:
        """Carry out a decision and keep the requests to send. Then what the controller knows must
        be what the tree says."""
        try:
            wanted = next(deciding)
            while True:
                wanted = deciding.send(self._perform(wanted))
        except StopIteration as end:
            self.sent = self.batch.sends()
            self._agree()
            return end.value  # type: ignore[no-any-return]

    def _perform(self, wanted: object) -> Any:
        performing = self.store.perform(self.context, wanted)
        try:
            effect = next(performing)
            while True:
                if isinstance(effect, ReadZnodes):
                    assert not any(one.children or one.watch for one in effect.reads)
                    found: list[Any] = [self.tree.get(one.path) for one in effect.reads]
                else:
                    assert isinstance(effect, Commit)
                    found = [self._commit(one) for one in effect.multis]
                effect = performing.send(found)
        except StopIteration as end:
            return end.value

    def _agree(self) -> None:
        loaded = self.loaded()
        for topic, one in loaded.image.partitions():
            key = (topic.name, one.partition)
            if topic.name in self.context.deleted or key in self.context.stale:
                continue  # half of it may be gone; it must be read again
            if key in self.context.partitions:
                assert self.context.partitions[key] == one
                if one.leader_epoch >= 0:
                    assert self.context.written_by[key] == loaded.written_by[key]

    def _commit(self, operations: Sequence[Operation]) -> Committed:
        """Commit as ZooKeeper does: all or nothing."""
        assert operations[0] == Check(tree.CONTROLLER_EPOCH, EPOCH_VERSION)
        done = dict(self.tree)
        for at, each in enumerate(operations):
            found = done.get(each.path)
            if isinstance(each, Create):
                parent = each.path.rpartition("/")[0]
                if found is not None or parent not in done or self.refuse(each):
                    return Committed(False, at, "NodeExists" if found else "NoNode")
                done[each.path] = Znode(each.data)
            elif isinstance(each, Delete):
                if found is None or any(path.startswith(f"{each.path}/") for path in done):
                    return Committed(False, at, "NotEmpty" if found else "NoNode")
                if self.refuse(each):
                    return Committed(False, at, "BadVersion")
                del done[each.path]
            elif found is None or each.version not in (ANY_VERSION, found.version):
                return Committed(False, at, "BadVersion" if found else "NoNode")
            elif not isinstance(each, Check) and self.refuse(each):
                return Committed(False, at, "BadVersion")
            elif isinstance(each, Set):
                done[each.path] = Znode(each.data, found.version + 1, changed=WRITTEN_NOW)
        self.tree = done
        return Committed(True)

    def alter(
        self, sender: int, *asked: tuple[tuple[str, int], Wanted], epoch: int | None = None,
        version: int = 3,
    ) -> list[tuple[ErrorCode, Shown]]:  # fmt: skip
        """Send AlterPartition through the wire format; returns each partition's answer."""
        rows = [
            {
                "topic_id": self.context.ids.get(key[0], uuid.uuid5(uuid.NAMESPACE_DNS, key[0])),
                "partitions": [{
                    "partition_index": key[1], "leader_epoch": one.leader_epoch,
                    "new_isr": [broker for broker, _ in one.isr],
                    "new_isr_with_epochs": [
                        {"broker_id": broker, "broker_epoch": epoch} for broker, epoch in one.isr],
                    "leader_recovery_state": int(one.recovering),
                    "partition_epoch": one.partition_epoch,
                }],
            }
            for key, one in asked
        ]  # fmt: skip
        fields = {"broker_id": sender, "broker_epoch": epoch or 100 + sender, "topics": rows}
        data = ALTER_PARTITION.encode_request(version, fields)
        request = ALTER_PARTITION.decode_request(version, data)
        body = self.decide(alter_partition(self.context, self.batch, request, version))
        data = ALTER_PARTITION.encode_response(version, body)
        answer = ALTER_PARTITION.decode_response(version, data)
        if answer.error_code:
            assert answer.topics == []
            return [(ErrorCode(answer.error_code), NOTHING)]
        return [
            (ErrorCode(row.error_code),
             Shown(row.leader_id, row.leader_epoch, tuple(row.isr), row.partition_epoch,
                   bool(row.leader_recovery_state)))
            for topic in answer.topics for row in topic.partitions
        ]  # fmt: skip

    def read_again(self) -> None:
        """Read the states that a decision found changed by others."""
        for key in list(self.context.stale):
            znode = self.tree[tree.partition_path(*key)]
            state = tree.read_partition(*key, znode.data)
            self.context.read(key, partition_state(state, znode.version))

    def shown(self, key: tuple[str, int]) -> Shown:
        """A partition's state, in short form."""
        one = self.context.partitions[key]
        return Shown(one.leader, one.leader_epoch, one.isr, one.partition_epoch,
                     bool(one.leader_recovery_state))  # fmt: skip

    def requests(self) -> list[tuple[int, str, list[tuple[str, int]]]]:
        """Each request: broker, kind, partitions."""
        found = []
        for send in self.sent:
            for version in send.api.versions:
                send.api.encode_request(version, send.body)
            assert send.body["broker_epoch"] == self.context.brokers[send.broker].epoch
            keys = [
                (topic["topic_name"], row["partition_index"])
                for topic in send.body["topic_states"]
                for row in topic["partition_states"]
            ]
            found.append((send.broker, send.api.name, keys))
        return found
