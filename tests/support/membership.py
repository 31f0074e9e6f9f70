"""A node's membership of a cluster whose other nodes are scripted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kafkalog.cluster.node.member import Member
from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.zookeeper import tree
from kafkalog.testing.standin import StandIn
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import UPDATE_METADATA
from tests.support.scripted import Peer


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
    body = {"controller_id": controller, "controller_epoch": epoch, "live_brokers": brokers,
            "broker_epoch": member.epoch, "topic_states": []}  # fmt: skip
    version = UPDATE_METADATA.max_version
    data = UPDATE_METADATA.encode_request(version, body)
    said = member.obey(UPDATE_METADATA, UPDATE_METADATA.decode_request(version, data))
    assert said == {"error_code": ErrorCode.NONE}
