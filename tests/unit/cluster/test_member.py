"""A broker's membership, over a stand-in for ZooKeeper; there is no controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.client.link.failures import is_retriable
from kafkalog.cluster.node.member import Member
from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.image import TOPIC, Change
from kafkalog.metadata.zookeeper import entities, tree
from kafkalog.metadata.zookeeper.entities import CHANGE, CHANGES
from kafkalog.metadata.zookeeper.session import (
    Create,
    Delete,
    Life,
    Set,
    Timeouts,
    Told,
    open_session,
)
from kafkalog.replication.roles import Effect
from kafkalog.testing.standin import StandIn
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import STOP_REPLICA
from tests.support.waiting import wait_for


def test_without_a_controller_who_wants_a_producer_id_comes_again() -> None:
    """As in Kafka's RPCProducerIdManager: clients treat no other error as retriable here."""
    with StandIn() as inside:
        member = Member(inside.hosts, 1, "PLAINTEXT", BrokerConfig())
        try:
            with pytest.raises(errors.KafkalogError, match="found no controller to ask") as caught:
                member.allocate_producer_ids()
        finally:
            member.close()
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert is_retriable(caught.value.code)


def test_a_config_that_cannot_be_read_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its last readable version stays in effect, other changes are applied, and events of the
    session after it are handled."""
    with StandIn() as inside, registered(inside) as (member, told):
        bad, good = ("topics", "bad"), ("topics", "good")
        put(member, bad, entities.write_config({"retention.ms": "5"}))
        wait_for(lambda: member.image.config(TOPIC, "bad"), "it is applied")
        put(member, bad, b"{", good)
        put(member, good, entities.write_config({"retention.ms": "7"}))
        wait_for(lambda: member.image.config(TOPIC, "good"), "the other one is applied")
        assert member.image.config(TOPIC, "bad") == {"retention.ms": "5"}
        assert caplog.text.count("/config/topics/bad: ") == 1, "reported once"
        before = member.epoch
        member.session.commit([Delete(tree.broker_path(1))])  # as when a session ends
        told(Life.EXPIRED)
        told(Life.CONNECTED)
        wait_for(lambda: member.epoch > before, "it is registered again")


def test_a_deposed_controller_deletes_nothing_of_a_broker_that_has_just_started() -> None:
    """The next controller has not sent it a request yet, but the tree has its epoch."""
    with StandIn() as inside:
        with open_session(inside.hosts, lambda _: None) as other:
            assert other.commit([Create(tree.CONTROLLER_EPOCH, tree.write_epoch(5))]).done
        with registered(inside) as (member, _):
            done: list[Effect] = []
            member.carry_out = lambda effects: done.extend(effects) or ()
            row = {"partition_index": 0, "leader_epoch": -2, "delete_partition": True}
            states = [{"topic_name": "t", "partition_states": [row]}]
            for epoch, code in ((4, ErrorCode.STALE_CONTROLLER_EPOCH), (5, ErrorCode.NONE)):
                answer = member.obey(STOP_REPLICA, asked(
                    STOP_REPLICA, controller_id=2, controller_epoch=epoch,
                    broker_epoch=member.epoch, topic_states=states,
                ))  # fmt: skip
                assert answer["error_code"] == code
                assert len(done) == (code == ErrorCode.NONE)


def asked(api: Api, **fields: Any) -> Any:
    """A request, decoded from the wire format."""
    version = api.max_version
    return api.decode_request(version, api.encode_request(version, fields))


def test_nobodys_failure_keeps_a_change_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a log that is just being closed, nor a listener that raises."""
    with StandIn() as inside, registered(inside) as (member, _):
        heard: list[Change] = []

        def fails(_: object) -> None:
            raise errors.Closed("it ends")

        member.reconfigure = fails
        member.listen(fails)
        member.listen(heard.append)
        put(member, ("topics", "t"), entities.write_config({"retention.ms": "5"}))
        wait_for(lambda: heard, "it is notified")
        put(member, ("topics", "u"), entities.write_config({"retention.ms": "5"}))
        wait_for(lambda: len(heard) == 2, "the next is notified")
        assert [change.resources for change in heard] == [((TOPIC, "t"),), ((TOPIC, "u"),)]
    assert caplog.text.count("it ends") >= 2


@contextmanager
def registered(inside: StandIn) -> Iterator[tuple[Member, Told]]:
    """A registered member, and a function that passes it events of its session."""
    member = Member(inside.hosts, 1, "PLAINTEXT", BrokerConfig())
    try:
        member.session.ensure([tree.BROKERS, CHANGES])
        member.register([("PLAINTEXT", "127.0.0.1", 9092, 0)])
        yield member, member._watching._told.put
    finally:
        member.close()


def put(member: Member, entity: tuple[str, str], data: bytes, *more: tuple[str, str]) -> None:
    """Write a config's znode, and notify of its change; also of `more` entities."""
    path = entities.config_path(entity)
    member.session.ensure([path.rpartition("/")[0]])
    there = member.session.read(path) is not None
    written = Set(path, data) if there else Create(path, data)
    told = [Create(CHANGE, entities.write_change(one), sequence=True)
            for one in (entity, *more)]  # fmt: skip
    assert member.session.commit([written, *told]).done


def test_a_stand_in_is_gone_with_its_test() -> None:
    with StandIn() as inside:
        pass
    with pytest.raises(errors.KafkalogError):
        Member(inside.hosts, 1, "PLAINTEXT", BrokerConfig(), timeouts=Timeouts(300, 300)).close()
