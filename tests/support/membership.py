"""A node's membership of a cluster whose other nodes are scripted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from kafkalog.cluster.node.member import Member
from kafkalog.config.broker import BrokerConfig
from kafkalog.log.log import handle_of
from kafkalog.metadata.image import MetadataImage
from kafkalog.testing.cluster import TestCluster
from kafkalog.testing.standin import StandIn
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR, UPDATE_METADATA
from kafkalog.zookeeper import tree
from tests.support.scripted import Peer

Fields = Mapping[str, object]
Rows = Sequence[Fields]


@contextmanager
def joined(others: Mapping[int, Peer]) -> Iterator[Member]:
    """Node 1; the first of the others is the controller, of epoch 1."""
    with StandIn() as inside:
        member = Member(inside.hosts, 1, "PLAINTEXT", BrokerConfig())
        try:
            member.session.ensure([tree.BROKERS])
            member.register([("PLAINTEXT", "127.0.0.1", 9092, 0)])
            reigns(member, next(iter(others)), 1, others)
            yield member
        finally:
            member.close()


def reigns(member: Member, controller: int, epoch: int, others: Mapping[int, Peer]) -> None:
    """Node `controller` says that it is the controller, and that these nodes live."""
    _told(member, controller, epoch, _brokers(others), [])


def _brokers(others: Mapping[int, Peer]) -> Rows:
    return [
        {
            "id": number, "rack": None,
            "endpoints": [{"port": peer.port, "host": "127.0.0.1", "listener": "PLAINTEXT",
                           "security_protocol": 0}],
        }
        for number, peer in others.items()
    ]  # fmt: skip


def led_again(member: Member, topic: str, leader_epoch: int) -> None:
    """The controller says that partition 0 of a topic has the same leader, in this epoch."""
    made_leader(member, topic, leader_epoch)
    shown_leader(member, topic, leader_epoch)


def made_leader(member: Member, topic: str, leader_epoch: int, changes: int = 0) -> None:
    """Send only LeaderAndIsr, which orders the node to act.  `changes`: of the ISR since."""
    image = member.image
    named, both, partition_epoch = _again(image, topic, leader_epoch)
    leads = {**both, "partition_epoch": partition_epoch + changes, "adding_replicas": [],
             "removing_replicas": [], "is_new": False}  # fmt: skip
    body = {"controller_id": member.controller, "controller_epoch": image.epoch, "type": 0,
            "broker_epoch": member.epoch, "live_leaders": [],
            "topic_states": [{**named, "partition_states": [leads]}]}  # fmt: skip
    assert _obeyed(member, LEADER_AND_ISR, body)["error_code"] == ErrorCode.NONE


def shown_leader(member: Member, topic: str, leader_epoch: int) -> None:
    """Send only UpdateMetadata, which every broker gets."""
    image = member.image
    brokers = [
        {
            "id": one.id, "rack": one.rack,
            "endpoints": [{"port": port, "host": host, "listener": listener,
                           "security_protocol": protocol}
                          for listener, host, port, protocol in one.endpoints],
        }
        for one in image.brokers.values()
    ]  # fmt: skip
    named, both, partition_epoch = _again(image, topic, leader_epoch)
    row = {**both, "zk_version": partition_epoch, "offline_replicas": []}
    _told(member, member.controller, image.epoch, brokers, [{**named, "partition_states": [row]}])


def _again(image: MetadataImage, topic: str, leader_epoch: int) -> tuple[Fields, Fields, int]:
    """The topic, the fields of its partition 0 in both requests, and its partition epoch."""
    now = image.topics[topic].partitions[0]
    both = {
        "partition_index": 0, "controller_epoch": image.epoch, "leader": now.leader,
        "leader_epoch": leader_epoch, "isr": now.isr, "replicas": now.replicas,
    }  # fmt: skip
    named = {"topic_name": topic, "topic_id": image.topics[topic].id}
    return named, both, now.partition_epoch


def led_by(member: Member, others: Mapping[int, Peer], topic: str, leader: int) -> None:
    """The controller says that partition 0, the only one, has this leader."""
    row = {
        "partition_index": 0, "controller_epoch": 1, "leader": leader, "leader_epoch": 1,
        "isr": [leader], "replicas": [leader], "zk_version": 1, "offline_replicas": [],
    }  # fmt: skip
    states = [{"topic_name": topic, "topic_id": UUID(int=1), "partition_states": [row]}]
    _told(member, member.controller, 1, _brokers(others), states)


def _told(member: Member, controller: int, epoch: int, brokers: Rows, topics: Rows) -> None:
    body = {"controller_id": controller, "controller_epoch": epoch, "live_brokers": brokers,
            "broker_epoch": member.epoch, "topic_states": topics}  # fmt: skip
    assert _obeyed(member, UPDATE_METADATA, body) == {"error_code": ErrorCode.NONE}


def _obeyed(member: Member, api: Api, body: Mapping[str, object]) -> Mapping[str, object]:
    version = api.max_version
    return member.obey(api, api.decode_request(version, api.encode_request(version, dict(body))))


def led_elsewhere(cluster: TestCluster, topic: str) -> tuple[int, int]:
    """Move partition 0 to another leader, in the next epoch, and let only the two know: the
    metadata name the old leader, which refuses requests.  The old leader and the new one."""
    old = cluster.leader(topic)
    new = next(node for node in cluster.running if node != old)
    logs = {n: cluster.nodes[n].broker._node.partitions.log(topic, 0) for n in (new, old)}
    cluster.wait_until(lambda: logs[new].end_offset == logs[old].end_offset, "all is copied")
    for number, led_by in ((new, None), (old, new)):
        node = cluster.nodes[number].broker._node
        handle = handle_of(logs[number])
        epoch = node.image.topics[topic].partitions[0].leader_epoch
        node.reactor.put_partition(handle, leader_epoch=epoch + 1, durable=False, led_by=led_by)
    return old, new
