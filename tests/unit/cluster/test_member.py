"""A broker's membership, over a stand-in for ZooKeeper; there is no controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from kafkalog import errors
from kafkalog.client.link.failures import is_retriable
from kafkalog.cluster.node.member import Member
from kafkalog.config.broker import BrokerConfig
from kafkalog.metadata.image import TOPIC, Change
from kafkalog.replication.roles import Effect
from kafkalog.testing.standin import StandIn
from kafkalog.wire.api import Api
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.tables.controller import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kafkalog.zookeeper import entities, tree
from kafkalog.zookeeper.entities import CHANGE, CHANGES
from kafkalog.zookeeper.session import (
    Create,
    Delete,
    Life,
    Session,
    Set,
    Timeouts,
    Told,
    open_session,
)
from tests.support.waiting import wait_for


def test_producer_ids_are_retriable_without_a_controller() -> None:
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


def knows(
    member: Member, *topics: tuple[str, int], epoch: int = 1, leader: int = 1, leads: bool = False
) -> None:
    """A controller's UpdateMetadata; `topics`: names and ids; `leads`: LeaderAndIsr before it."""
    row = {"partition_index": 0, "controller_epoch": epoch, "leader": leader, "leader_epoch": 0,
           "isr": [1], "zk_version": 0, "partition_epoch": 0, "replicas": [1]}  # fmt: skip
    states = [
        {"topic_name": name, "topic_id": UUID(int=number), "partition_states": [row]}
        for name, number in topics
    ]
    brokers = [{"id": 1, "endpoints": [], "rack": None}]
    for api in (*[LEADER_AND_ISR] * leads, UPDATE_METADATA):
        fields = {"live_brokers": brokers} if api is UPDATE_METADATA else {"live_leaders": []}
        rows = [
            state | {"partition_states": [
                {key: value for key, value in row.items()
                 if key != ("zk_version" if api is LEADER_AND_ISR else "partition_epoch")}
            ]}
            for state in states
        ]  # fmt: skip
        answer = member.obey(api, asked(
            api, controller_id=2, controller_epoch=epoch, broker_epoch=member.epoch,
            topic_states=rows, **fields,
        ))  # fmt: skip
        assert answer["error_code"] == ErrorCode.NONE


def make(session: Session, *topics: tuple[str, int]) -> None:
    """Create topics in the tree."""
    session.ensure([tree.TOPICS])
    for name, number in topics:
        node = tree.TopicNode(UUID(int=number), {0: (1,)}, {}, {})
        assert session.commit([Create(tree.topic_path(name), tree.write_topic(node))]).done


def test_topics_deleted_while_no_controller_says_so() -> None:
    """Before the broker registered, while its session was lost, and by a controller that died
    before it told every broker; topics that are in the tree stay."""
    with StandIn() as inside, open_session(inside.hosts, lambda _: None) as other:
        make(other, ("kept", 1), ("first", 2), ("second", 3))
        with registered(inside) as (member, told):
            gone: list[str] = []
            member.listen(lambda change: gone.extend(one.name for one in change.gone))
            assert member.image.topics.keys() == {"kept", "first", "second"}
            put(member, ("topics", "first"), entities.write_config({"retention.ms": "5"}))
            wait_for(lambda: member.image.config(TOPIC, "first"), "it is applied")
            delete(other, "first")
            knows(member, ("kept", 1))
            wait_for(lambda: "first" not in member.image.topics, "the first is gone")
            assert member.image.config(TOPIC, "first") == {}
            before = member.epoch
            delete(other, "second")
            other.commit([Delete(tree.broker_path(1))])  # as when a session ends
            told(Life.EXPIRED)
            told(Life.CONNECTED)
            wait_for(lambda: member.epoch > before, "it is registered again")
            knows(member, ("kept", 1))
            wait_for(lambda: "second" not in member.image.topics, "the second is gone")
            make(other, ("third", 4))
            knows(member, ("third", 4))
            delete(other, "third")
            knows(member, epoch=2)
            wait_for(lambda: "third" not in member.image.topics, "the third is gone")
            assert gone == ["first", "second", "third"]
            assert member.image.topics.keys() == {"kept"} == {*member.image.names.values()}


def delete(session: Session, topic: str) -> None:
    """Delete a topic from the tree."""
    assert session.commit([Delete(tree.topic_path(topic))]).done


@pytest.mark.parametrize("heard", [True, False], ids=["deletion heard", "deletion missed"])
@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("said", [{}, {"retention.ms": "7"}], ids=["no settings", "settings"])
def test_a_recreated_topic_has_its_own_settings(
    heard: bool, leads: bool, said: dict[str, str]
) -> None:
    path = entities.config_path(("topics", "t"))
    with StandIn() as inside, registered(inside) as (member, _):
        make(member.session, ("t", 1))
        put(member, ("topics", "t"), entities.write_config({"retention.ms": "5"}))
        knows(member, ("t", 1), leads=leads)
        assert member.image.config(TOPIC, "t") == {"retention.ms": "5"}
        if heard:
            knows(member, ("t", 1), leader=-2)
            assert "t" not in member.image.topics and member.image.config(TOPIC, "t") == {}
        change = Set(path, entities.write_config(said)) if said else Delete(path)
        assert member.session.commit([change]).done
        member._standing = member._standing._replace(held={})
        knows(member, ("t", 2), leads=leads)
        assert member.image.topics["t"].id == UUID(int=2)
        assert member.image.config(TOPIC, "t") == said


def test_a_leader_is_reached_by_this_nodes_own_listener() -> None:
    """The controller names leaders by the listener that it uses itself, which is another one while
    a cluster changes it; a leader that has just moved is reached where the controller says."""
    with StandIn() as inside, registered(inside) as (member, _):
        places = [{"port": port, "host": "h", "listener": name, "security_protocol": number}
                  for name, port, number in (("PLAINTEXT", 1, 0), ("SECURE", 2, 3))]  # fmt: skip

        def told(api: Api, **fields: Any) -> None:
            request = asked(api, controller_id=2, controller_epoch=1, broker_epoch=member.epoch,
                            topic_states=[], **fields)  # fmt: skip
            assert member.obey(api, request)["error_code"] == ErrorCode.NONE

        told(UPDATE_METADATA, live_brokers=[{"id": 2, "rack": None, "endpoints": places}])
        assert member.place(2) == ("h", 1)
        for port, reached in ((2, 1), (1, 1), (7, 7)):
            told(LEADER_AND_ISR, live_leaders=[{"broker_id": 2, "host_name": "h", "port": port}])
            assert member.place(2) == ("h", reached)
        told(LEADER_AND_ISR, live_leaders=[{"broker_id": 3, "host_name": "new", "port": 9}])
        assert member.place(3) == ("new", 9) and member.place(4) is None
        told(UPDATE_METADATA, live_brokers=[{"id": 2, "rack": None, "endpoints": places[1:]}])
        told(LEADER_AND_ISR, live_leaders=[{"broker_id": 2, "host_name": "h", "port": 2}])
        assert member.place(2) is None, "by another protocol it is not asked"


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
