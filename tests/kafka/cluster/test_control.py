"""A listener for the controller and its nodes, with Apache Kafka 3.9 and ours."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Session
from tests.support import apache
from tests.support.control import Place, begin, knows, serves
from tests.support.waiting import wait_for
from tests.support.zookeeper import Broker, ZooKeeper

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]

KAFKA, OURS = 1, 2
PATIENCE_S = 200.0


def test_each_is_the_others_controller(tmp_path: Path) -> None:
    """Ours first, since it started first; then Kafka's, when ours ends and comes back."""
    theirs, mine = Place(), Place()
    settings = "".join(f"{name}={value}\n" for name, value in theirs.settings.items())
    try:
        with ZooKeeper(tmp_path / "zookeeper") as zookeeper, contextlib.ExitStack() as undo:
            hosts = f"{zookeeper.hosts}/both"
            ours = undo.enter_context(begin(mine, tmp_path / "ours", hosts, OURS))
            kafka = tmp_path / "kafka"
            undo.enter_context(Broker(kafka, hosts, KAFKA, settings, known=0, port=theirs.port))
            both_know(theirs, mine, OURS)
            serves(theirs, "told", KAFKA, asked=mine)
            ours.close()
            session = undo.enter_context(Session(hosts, lambda _: None))
            wait_for(lambda: reigns(session) == KAFKA, "Kafka reigns", PATIENCE_S)
            undo.enter_context(begin(mine, tmp_path / "ours", hosts, OURS))
            both_know(theirs, mine, KAFKA)
            serves(mine, "asked", OURS, asked=mine)
    except apache.Unavailable as reason:
        pytest.skip(f"Kafka cannot run here: {reason}")


def reigns(session: Session) -> int:
    found = session.read(tree.CONTROLLER)
    return -1 if found is None else tree.read_controller(found.data).broker


def both_know(theirs: Place, mine: Place, controller: int) -> None:
    for place in (theirs, mine):
        wait_for(lambda place=place: knows(place, 2, controller), "both know both", PATIENCE_S)
