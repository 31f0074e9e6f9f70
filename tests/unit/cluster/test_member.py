"""A broker's membership, over what stands for ZooKeeper; nobody reigns."""

from __future__ import annotations

import pytest

from kafkalog import errors
from kafkalog.client.failures import is_retriable
from kafkalog.cluster.node.member import Member
from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.zookeeper.session import Timeouts
from kafkalog.testing.standin import StandIn
from kafkalog.wire.error_codes import ErrorCode


def test_without_a_controller_who_wants_a_producer_id_comes_again() -> None:
    """As Kafka's RPCProducerIdManager has it, for clients that take no other error as passing."""
    with StandIn() as inside:
        member = Member(inside.hosts, 1, "PLAINTEXT", BrokerConfig())
        try:
            with pytest.raises(errors.KafkalogError, match="found no controller to ask") as caught:
                member.allocate_producer_ids()
        finally:
            member.close()
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert is_retriable(caught.value.code)


def test_a_stand_in_is_gone_with_its_test() -> None:
    with StandIn() as inside:
        pass
    with pytest.raises(errors.KafkalogError):
        Member(inside.hosts, 1, "PLAINTEXT", BrokerConfig(), timeouts=Timeouts(300, 300)).close()
