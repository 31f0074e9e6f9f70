"""Topic settings that Apache Kafka 3.9 does not know are kept where Kafka does not look."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkalog.cluster.node.adoption import plan
from kafkalog.cluster.node.member import Member
from kafkalog.controller.events import ClientRequest
from kafkalog.errors import ZooKeeperAway
from kafkalog.metadata.image import TOPIC, Topic, empty_image
from kafkalog.metadata.requests import ResourceChange, SettingChange, SettingChanges
from kafkalog.testing.standin import StandIn
from kafkalog.wire import apis
from kafkalog.wire.tables.controller import STOP_REPLICA
from kafkalog.zookeeper import entities, own_settings, tree
from kafkalog.zookeeper.loading import load
from kafkalog.zookeeper.reading import read_tree
from kafkalog.zookeeper.session import Create, Delete, Life, Set, open_session
from tests.support.waiting import wait_for
from tests.unit.cluster.test_member import knows, make, registered
from tests.unit.controller.driven import Driven

THEIRS, OURS = own_settings.paths_of("t")
SYNC, OS = {"kafkalog.durability": "fsync"}, {"kafkalog.durability": "os"}
RETENTION = {"retention.ms": "5"}


@pytest.fixture
def of() -> Driven:
    """A controller of one broker."""
    found = Driven()
    found.register(1)
    found.elect()
    return found


def create(of: Driven, **settings: str) -> UUID:
    """Create the topic through the controller; returns its id."""
    configs = [{"name": name.replace("_", "."), "value": text} for name, text in settings.items()]
    row = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [],
           "configs": configs}  # fmt: skip
    said = of.ask(f"create{len(of.replies)}", apis.CREATE_TOPICS, 7, topics=[row], timeout_ms=1)
    assert said.topics[0].error_code == 0
    topic_id = said.topics[0].topic_id
    assert isinstance(topic_id, UUID)
    return topic_id


def alter(of: Driven, name: str, value: str | None) -> int:
    """Set one of the topic's settings, or remove it; returns the error."""
    token = f"alter{len(of.replies)}"
    change = SettingChange(name, value, operation=0 if value is not None else 1)
    asked = SettingChanges([ResourceChange(TOPIC, "t", [change])])
    of.events.append(ClientRequest(token, apis.INCREMENTAL_ALTER_CONFIGS, asked, 1))
    of.run()
    return int(of.replies[token]["responses"][0]["error_code"])


def kept(of: Driven) -> tuple[dict[str, str], dict[str, str] | None]:
    """The settings in Kafka's znode, and in our own; None: there is no such znode."""
    theirs = dict(entities.read_config(("topics", "t"), of.znodes[THEIRS].data))
    if OURS not in of.znodes:
        return theirs, None
    topic_id = of.controller.active.context.ids["t"] if of.controller.active else None
    return theirs, dict(own_settings.read("t", topic_id, of.znodes[OURS].data))


def loaded(of: Driven) -> dict[str, str]:
    """The topic's settings as a node that starts reads them."""
    return dict(load(of.znodes, 1).image.config(TOPIC, "t"))


def test_settings_that_kafka_does_not_know_are_not_in_its_znode(of: Driven) -> None:
    create(of, kafkalog_durability="os", retention_ms="5")
    assert kept(of) == (RETENTION, OS)
    assert alter(of, "kafkalog.durability", "fsync") == 0
    assert kept(of) == (RETENTION, SYNC)
    assert loaded(of) == RETENTION | SYNC
    assert alter(of, "retention.ms", "6") == 0
    assert kept(of) == ({"retention.ms": "6"}, SYNC)
    assert alter(of, "kafkalog.durability", None) == 0
    assert kept(of) == ({"retention.ms": "6"}, None)


def test_each_change_is_announced_once(of: Driven) -> None:
    create(of)
    assert alter(of, "kafkalog.durability", "os") == 0
    (news,) = [path for path in of.znodes if path.startswith(entities.CHANGE)]
    assert entities.read_change(news, of.znodes[news].data) == ("topics", "t")


def test_settings_of_both_kinds_in_kafkas_znode_are_moved_by_the_next_change(of: Driven) -> None:
    create(of)
    old = entities.write_config(RETENTION | OS)
    assert of.commit([Set(THEIRS, old)]).done
    assert loaded(of) == RETENTION | OS
    assert alter(of, "max.message.bytes", "9") == 0
    assert kept(of) == (RETENTION | {"max.message.bytes": "9"}, OS)


def test_an_unreadable_znode_of_our_own_takes_no_setting_from_kafkas(of: Driven) -> None:
    create(of, retention_ms="5", kafkalog_durability="os")
    assert of.commit([Set(OURS, b"{")]).done
    assert loaded(of) == RETENTION
    assert alter(of, "kafkalog.durability", "fsync") == 0
    assert kept(of) == (RETENTION, SYNC)


def test_settings_go_with_their_topic(of: Driven) -> None:
    create(of, kafkalog_durability="os")
    of.ask("delete", apis.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1)
    of.answer(lambda send: send.api is STOP_REPLICA, partition_errors=[])
    assert not [path for path in of.znodes if path.endswith("/t")]


@pytest.mark.parametrize("settings", [{}, {"kafkalog_check_compressed": "true"}])
def test_a_topic_has_none_of_its_predecessors_settings(
    of: Driven, settings: dict[str, str]
) -> None:
    """Kafka's controller deletes a topic, and knows nothing of our znode."""
    create(of, kafkalog_durability="os")
    left = of.znodes[OURS]
    of.znodes = {path: one for path, one in of.znodes.items() if "/t/" not in f"{path}/"}
    of.znodes[OURS] = left
    of.elect()
    assert OURS not in of.znodes, "the next controller removes it"
    of.znodes[OURS] = left
    create(of, **settings)
    wanted = {name.replace("_", "."): value for name, value in settings.items()}
    assert kept(of) == ({}, wanted or None)
    of.znodes[OURS] = left
    assert loaded(of) == {}


def test_a_directory_that_is_adopted_keeps_its_settings() -> None:
    image = empty_image("alone", 1)
    topic = Topic("t", UUID(int=7), {})
    image = image._replace(topics={"t": topic}, configs={(TOPIC, "t"): RETENTION | OS})
    found = plan(image, load({}, 2), 2)
    with StandIn() as inside, open_session(inside.hosts, lambda _: None) as session:
        session.ensure(tree.PERSISTENT)
        assert all(session.commit(step).done for step in found.steps)
        assert read_tree(session, 2).image.config(TOPIC, "t") == RETENTION | OS
        znode = session.read(THEIRS)
        assert znode is not None
        assert entities.read_config(("topics", "t"), znode.data) == RETENTION


def test_a_node_follows_its_own_settings() -> None:
    with StandIn() as inside, registered(inside) as (member, _):
        make(member.session, ("t", 1))
        member.session.ensure(tree.PERSISTENT)
        write(member, 1, "os", Create)
        knows(member, ("t", 1))
        assert member.image.config(TOPIC, "t") == OS
        write(member, 1, "fsync", Set)
        wait_for(lambda: member.image.config(TOPIC, "t") == SYNC, "it is applied")
        knows(member, ("t", 2))
        assert member.image.config(TOPIC, "t") == {}, "of another topic of that name"
        write(member, 2, "os", Set)
        wait_for(lambda: member.image.config(TOPIC, "t") == OS, "it is applied")
        assert member.session.commit([Delete(OURS), *told()]).done
        wait_for(lambda: member.image.config(TOPIC, "t") == {}, "it is applied")


def write(member: Member, topic_id: int, value: str, how: type[Create] | type[Set]) -> None:
    """Write our own znode, and announce it."""
    data = own_settings.write(UUID(int=topic_id), {"kafkalog.durability": value})
    assert member.session.commit([how(OURS, data), *told()]).done


def told() -> list[Create]:
    """The notification of a change."""
    return [Create(entities.CHANGE, entities.write_change(("topics", "t")), sequence=True)]


def test_settings_are_read_once_zookeeper_is_back() -> None:
    """A node hears of a topic from its controller while it cannot reach ZooKeeper."""
    with StandIn() as inside, registered(inside) as (member, heard):
        make(member.session, ("t", 1))
        member.session.ensure(["/config/topics"])
        assert member.session.commit([Create(THEIRS, entities.write_config(RETENTION))]).done
        look = member.session.look

        def away(_: object) -> Any:
            raise ZooKeeperAway("it is away")

        member.session.look = away  # type: ignore[method-assign,assignment]
        knows(member, ("t", 1))
        assert member.image.config(TOPIC, "t") == {}
        member.session.look = look  # type: ignore[method-assign]
        heard(Life.CONNECTED)
        wait_for(lambda: member.image.config(TOPIC, "t") == RETENTION, "they are applied")
