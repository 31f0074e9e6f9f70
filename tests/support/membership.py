"""A node's membership of a cluster whose other nodes are scripted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kafkalog.cluster.node.member import Member
from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.zookeeper import tree
from kafkalog.testing.standin import StandIn
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import UPDATE_METADATA
from tests.support.scripted import Peer

Rows = Sequence[Mapping[str, object]]


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
    """This one is the controller, as it says itself, and these live."""
    brokers = [
        {
            "id": number, "rack": None,
            "endpoints": [{"port": peer.port, "host": "127.0.0.1", "listener": "PLAINTEXT",
                           "security_protocol": 0}],
        }
        for number, peer in others.items()
    ]  # fmt: skip
    _told(member, controller, epoch, brokers, [])


def led_again(member: Member, topic: str, leader_epoch: int) -> None:
    """The controller says that partition 0 of a topic has the leader that it had, in this epoch."""
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
    now = image.topics[topic].partitions[0]
    state = {
        "partition_index": 0, "controller_epoch": image.epoch, "leader": now.leader,
        "leader_epoch": leader_epoch, "isr": now.isr, "zk_version": now.partition_epoch,
        "replicas": now.replicas, "offline_replicas": [],
    }  # fmt: skip
    said = {"topic_name": topic, "topic_id": image.topics[topic].id, "partition_states": [state]}
    _told(member, member.controller, image.epoch, brokers, [said])


def _told(member: Member, controller: int, epoch: int, brokers: Rows, topics: Rows) -> None:
    body = {"controller_id": controller, "controller_epoch": epoch, "live_brokers": brokers,
            "broker_epoch": member.epoch, "topic_states": topics}  # fmt: skip
    version = UPDATE_METADATA.max_version
    data = UPDATE_METADATA.encode_request(version, body)
    said = member.obey(UPDATE_METADATA, UPDATE_METADATA.decode_request(version, data))
    assert said == {"error_code": ErrorCode.NONE}
