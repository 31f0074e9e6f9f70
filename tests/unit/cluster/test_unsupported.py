"""A cluster gets something, while a node runs, that the node does not enforce or support."""

from __future__ import annotations

import logging

import pytest

from kafkalog.cluster.node.unsupported import News, unsupported
from kafkalog.metadata.image import Broker
from kafkalog.testing.standin import StandIn
from kafkalog.wire.values import ZERO_UUID
from kafkalog.zookeeper import entities, tree
from kafkalog.zookeeper.session import Create, Delete, Session, Set, open_session
from tests.support.waiting import wait_for
from tests.unit.cluster.test_member import registered

TIERED = {"remote.storage.enable": "true"}


def one(number: int, rack: str | None = None, listener: str = "IN", protocol: int = 0) -> Broker:
    places = ((listener, "h", 1, protocol),)
    return Broker(number, 1, ZERO_UUID, places, (), rack, False, False, ())


def those(*brokers: Broker) -> News:
    """Living brokers, as node 1 knows them, which reach each other by IN."""
    return News(brokers={each.id: each for each in brokers}, node=1, listeners={"IN": 0})


@pytest.mark.parametrize(
    ("news", "subjects"),
    [
        (News(), []),
        (News(tokens=["x"]), ["delegation tokens"]),
        (News(settings={("topics", "t"): {"retention.ms": "1"}}), []),
        (News(settings={("topics", "t"): TIERED}), ["topic t: remote.storage.enable"]),
        (News(settings={("topics", "t"): {"remote.storage.enable": "false"}}), []),
        *(
            (News(settings={("topics", "t"): {"message.format.version": version}}), found)
            for version, found in {
                "0.10.2": ["topic t: message.format.version"],
                "0.9.0.1": ["topic t: message.format.version"],
                "0.10.0-IV1": ["topic t: message.format.version"],
                "0.11.0": [], "2.8-IV0": [], "3.0": [], "": [], "nonsense": [], "0.x": [],
            }.items()
        ),
        (those(one(1), one(2), one(3)), []),
        (those(one(1, "a"), one(2, "b")), []),
        (those(one(1, "a"), one(2), one(3)), ["broker.rack"]),
        (those(one(1, listener="OUT"), one(2)), []),  # this node itself was checked when it joined
        (those(one(1), one(2, listener="OUT")), ["broker 2: listener IN"]),
        (those(one(1), one(2, protocol=1)), ["broker 2: listener IN"]),
        (those(one(1), one(2, protocol=3))._replace(listeners={"IN": 3}), []),
        (those(one(1), one(2))._replace(listeners={"IN": 3}), ["broker 2: listener IN"]),
    ],
)  # fmt: skip
def test_unsupported(news: News, subjects: list[str]) -> None:
    found = unsupported(news)
    assert [each.subject for each in found] == subjects
    for each in found:
        assert each.problem.endswith(".") and each.remedy.endswith(".")
        assert str(each) == f"{each.subject}: {each.problem} {each.remedy}"


def test_the_list_of_brokers_without_a_rack_is_short() -> None:
    (found,) = unsupported(those(one(1, "a"), *(one(number) for number in range(2, 200))))
    assert "brokers 2, 3, 4, 5, 6, ... have none" in found.problem


def test_changes_are_logged_once_while_a_node_runs(caplog: pytest.LogCaptureFixture) -> None:
    """None of them ends the thread that follows the session, nor is one logged again when it comes
    again."""
    caplog.set_level(logging.WARNING)

    def logged(subject: str) -> int:
        return sum(f"broker 1: {subject}: " in each.getMessage() for each in caplog.records)

    with StandIn() as inside, registered(inside), open_session(inside.hosts, _ignored) as other:
        steps = {
            "delegation tokens": lambda: create(other, "/delegation_token/tokens/x", b"{}"),
            "topic t: remote.storage.enable": lambda: put(other, ("topics", "t"), TIERED),
            "broker 7: listener PLAINTEXT": lambda: join(other, 7, "OUTSIDE"),
        }
        for subject, step in steps.items():
            assert logged(subject) == 0
            step()
            wait_for(lambda subject=subject: logged(subject), subject)  # type: ignore[misc]
        assert other.commit([Delete(tree.broker_path(7))]).done
        join(other, 7, "OUTSIDE")
        put(other, ("topics", "last"), TIERED)
        wait_for(lambda: logged("topic last: remote.storage.enable"), "it goes on")
    assert [logged(subject) for subject in steps] == [1] * len(steps)


def _ignored(_: object) -> None:
    """Another session's watches."""


def create(session: Session, path: str, data: bytes) -> None:
    """Create a znode and its parents."""
    session.ensure([path.rpartition("/")[0]])
    assert session.commit([Create(path, data)]).done


def put(session: Session, entity: entities.Entity, settings: dict[str, str]) -> None:
    """Write an entity's settings, and announce them."""
    path = entities.config_path(entity)
    session.ensure([path])
    told = Create(entities.CHANGE, entities.write_change(entity), sequence=True)
    assert session.commit([Set(path, entities.write_config(settings)), told]).done


def join(session: Session, number: int, listener: str) -> None:
    """Register a broker with one listener."""
    place = tree.Endpoint(listener, "h", 1, "PLAINTEXT")
    data = tree.write_broker(tree.BrokerNode((place,), None, 0, {}))
    assert session.commit([Create(tree.broker_path(number), data)]).done
