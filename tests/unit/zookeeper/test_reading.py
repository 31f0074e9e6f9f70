"""Reading a tree gives the same as loading all of it, with few requests."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.loading import Loaded, Znode, load
from kafkalog.zookeeper.reading import read_tree
from kafkalog.zookeeper.session import Create, open_session
from tests.unit.zookeeper.test_tree import ZNODES

NODE = 3
PARTITIONS = 200
NO_STATES = {path: znode for path, znode in ZNODES.items() if "/partitions" not in path}


def standing_in(znodes: dict[str, Znode]) -> StandIn:
    """A stand-in that answers as a ZooKeeper with these znodes."""
    made = StandIn()
    session = open_session(made.hosts, lambda _: None)
    for path in sorted({*znodes} - {"/"}):  # parents come first
        session.ensure([path.rpartition("/")[0]])
        session.commit([Create(path, znodes[path].data or b"")])
    return made


def plain(found: Loaded) -> tuple[Any, ...]:
    """The fields of `found`, with the problems as texts."""
    return (*found[:-1], [str(problem) for problem in found.problems])


@pytest.mark.parametrize(
    ("znodes", "expected"),
    [
        ({}, set()),
        (ZNODES, {"gone", "moved", "plain"}),
        ({**ZNODES, "/brokers/topics/plain": Znode(b"{")}, {"gone", "moved"}),
        (NO_STATES, {"gone", "moved", "plain"}),
    ],
    ids=["nothing", "as Kafka wrote it", "a bad znode", "states that are missing"],
)
def test_the_needed_znodes_give_the_same_as_the_whole_tree(
    znodes: dict[str, Znode], expected: set[str]
) -> None:
    with standing_in(znodes) as made:
        session = open_session(made.hosts, lambda _: None)
        found = read_tree(session, NODE)
        assert plain(found) == plain(load(session.tree("/"), NODE))
        assert found.image.topics.keys() == expected


def test_a_partition_is_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """An elected controller must read 10,000 of them within a second."""
    replicas = dict.fromkeys(range(PARTITIONS), (1, 2, 3))
    topic = tree.write_topic(tree.TopicNode(UUID(int=7), replicas, {}, {}))
    state = tree.write_partition(tree.PartitionState(1, 0, (1, 2, 3), 1))
    znodes = {tree.partition_path("many", number): Znode(state) for number in replicas}
    with standing_in({**znodes, tree.topic_path("many"): Znode(topic)}) as made:
        session = open_session(made.hosts, lambda _: None)
        asked: list[str] = []
        look, walk = session.look, session.tree

        def looked(reads: Any) -> Any:
            asked.extend(path for path, *_ in reads)
            return look(reads)

        def walked(*roots: str) -> Any:
            found = walk(*roots)
            asked.extend(found)
            return found

        monkeypatch.setattr(session, "look", looked)
        monkeypatch.setattr(session, "tree", walked)
        (found,) = read_tree(session, NODE).image.topics.values()
        assert {one.leader for one in found.partitions.values()} == {1}
        assert sorted(asked) == sorted([*znodes, tree.topic_path("many")])
