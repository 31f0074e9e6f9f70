"""A refused start writes nothing: neither to the directory nor to ZooKeeper's tree."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog import errors
from kafkalog.cli.__main__ import main
from kafkalog.cluster.node.adoption import Adoption, carry_out, read_alone
from kafkalog.directory.manager import Manager
from kafkalog.disk import layout
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.server.broker import Broker, node_of
from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.loading import Znode
from kafkalog.zookeeper.session import Create, open_session
from tests.unit.server.test_protection import RECORDS

QUICK = {"zookeeper.session.timeout.ms": 1, "zookeeper.connection.timeout.ms": 1000,
         "controlled.shutdown.enable": False}  # fmt: skip
"""A number that lives is not waited for, nor another leader."""
NODE = 4


def contents(root: Path, lock: bool = True) -> dict[str, bytes | bool]:
    """Every name below `root`, with a file's bytes; `lock` False: except `.lock`, which has the
    pid of its last owner."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else path.is_dir()
        for path in sorted(root.rglob("*"))
        if lock or path.name != ".lock"
    }


class Place(NamedTuple):
    """A directory, and the model of ZooKeeper that it might join."""

    home: Path
    inside: StandIn

    @property
    def path(self) -> Path:
        return self.home / "data"

    def znodes(self) -> dict[str, Znode]:
        with open_session(self.inside.hosts, lambda _: None) as session:
            return session.tree("/")

    def put(self, path: str, data: bytes = b"") -> None:
        with open_session(self.inside.hosts, lambda _: None) as session:
            session.ensure([path.rpartition("/")[0]])
            assert session.commit([Create(path, data)]).done

    def joined(self, node: int | None, **more: Any) -> Broker:
        return Broker(self.path, config=self.config(node) | more)

    def config(self, node: int | None) -> dict[str, Any]:
        number = {} if node is None else {"node.id": node}
        return {"zookeeper.connect": self.inside.hosts, **QUICK, **number}

    def was_a_node(self, topics: bool = True) -> None:
        """The directory of node 4, which has a partition if there are `topics`."""
        self.joined(NODE).close()
        if topics:
            with Manager(self.path) as manager:
                manager.create_topic("t")

    def was_alone(self, **more: Any) -> None:
        """The directory of a single node, with a topic."""
        with Broker(self.path, (), config=more) as broker:
            broker.store.create_topic("t")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with StandIn() as inside:
        yield Place(tmp_path, inside)


@contextlib.contextmanager
def unchanged(place: Place, kind: type[Exception], words: str, lock: bool = True) -> Iterator[None]:
    """`lock` False: the directory may be locked, to read its metadata."""
    for path in place.home.rglob(".lock"):
        if path.parent == place.path:  # of nobody now
            path.write_bytes(b"of an earlier process\n")
    before = contents(place.home, lock), place.znodes()
    with pytest.raises(kind, match=words):
        yield
    assert (contents(place.home, lock), place.znodes()) == before


# ---- the number of a node ------------------------------------------------------------------------


def test_the_directory_knows_its_number(place: Place) -> None:
    """Without node.id it is the same node again, also for clients that ask for the settings."""
    place.was_a_node()
    meta = (place.path / "meta.properties").read_bytes()
    with place.joined(None) as broker:
        node = node_of(broker)
        assert (node.node_id, node.config.node_id, broker.config.node_id) == (NODE, NODE, NODE)
    assert (place.path / "meta.properties").read_bytes() == meta


def test_a_killed_first_start_keeps_its_number(place: Place) -> None:
    """The directory has no partition yet, and nothing but its identity."""
    place.was_a_node(topics=False)
    for path in place.path.iterdir():
        if path.name not in (".lock", "meta.properties"):
            path.unlink()
    with place.joined(None) as broker:
        assert node_of(broker).node_id == NODE


def test_a_single_node_knows_its_number_too(tmp_path: Path) -> None:
    Broker(tmp_path, (), config={"node.id": 7}).close()
    with Broker(tmp_path, ()) as broker:
        assert (node_of(broker).node_id, broker.config.node_id) == (7, 7)


def test_a_first_life_reaches_the_disk(place: Place) -> None:
    """A cluster's directory has no first metadata whose sync would wait for everything."""
    with place.joined(NODE) as broker:
        assert not node_of(broker).manager.state.directory.gathers


def test_a_taken_number_leaves_no_trace(place: Place) -> None:
    """Two nodes that start with the same number at the same time: one of them registers, and the
    other's directory may start with another number."""
    with place.joined(NODE):
        before = place.znodes()

        def register(*_: Any) -> Any:
            return None

        other = place.home / "other"
        with pytest.raises(errors.DuplicateBrokerRegistration), late(register):
            Broker(other, config=place.config(NODE))
        assert place.znodes() == before
        assert not (other / "meta.properties").exists()
        with Broker(other, config=place.config(5)) as fifth:
            assert node_of(fifth).node_id == 5


@contextlib.contextmanager
def late(nothing: Callable[..., Any]) -> Iterator[None]:
    """The other node registers between the check and the registration."""
    from kafkalog.cluster.node import joining

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "await_free", nothing)
        yield


# ---- a cluster's node ----------------------------------------------------------------------------


def other_number(place: Place) -> None:
    place.was_a_node()
    with unchanged(place, errors.InvalidSetting, "node.id: found 1, wanted 4, the owner of"):
        place.joined(1)


def no_number(place: Place) -> None:
    with unchanged(place, errors.InvalidSetting, "node.id: found none.*wanted a number that no"):
        place.joined(None)


def number_alive(place: Place) -> None:
    with place.joined(NODE):
        other = place.home / "other"
        with unchanged(place, errors.DuplicateBrokerRegistration, "broker 4 is registered at"):
            Broker(other, config=place.config(NODE))
        assert not other.exists()


def served_alone(place: Place) -> None:
    place.was_alone()
    with unchanged(place, errors.ArgumentError, "the metadata of a node that is alone"):
        place.joined(1)


def another_cluster(place: Place) -> None:
    place.was_a_node()
    meta = place.path / "meta.properties"
    meta.write_text(re.sub("cluster.id=.*", "cluster.id=elsewhere", meta.read_text()))
    with unchanged(place, errors.ArgumentError, "found cluster elsewhere, wanted"):
        place.joined(NODE)


def empty_tree(place: Place) -> None:
    """A mistyped chroot: the node would be the only one of an empty cluster."""
    place.was_a_node()
    with StandIn() as empty:
        there = Place(place.home, empty)
        with unchanged(there, errors.ArgumentError, "but no cluster in ZooKeeper at"):
            there.joined(NODE)


def protected(place: Place) -> None:
    place.put("/kafka-acl/Topic/secret", b"{}")
    with unchanged(place, errors.ArgumentError, "access rules .Topic/secret.*open to all"):
        place.joined(NODE)


def credentials(place: Place) -> None:
    key = b64encode(bytes(32)).decode()
    credential = f"salt=eA==,stored_key={key},server_key={key},iterations=4096"
    data = json.dumps({"version": 1, "config": {"SCRAM-SHA-256": credential}}).encode()
    place.put("/config/users/alice", data)
    with unchanged(place, errors.ArgumentError, "SCRAM credentials .alice.*open to all"):
        place.joined(NODE)


def nobodys(place: Place) -> None:
    """Folders without an owner."""
    place.was_a_node()
    (place.path / "meta.properties").unlink()
    with unchanged(place, errors.ArgumentError, "holds partition folders .* but no meta"):
        place.joined(NODE)


def damaged(place: Place) -> None:
    place.was_a_node()
    (place.path / "meta.properties").write_bytes(b"version=0\nbroker.id=four\n")
    with unchanged(place, errors.CorruptLog, "broker.id: found 'four', wanted a number"):
        place.joined(NODE)


def taken_address(place: Place) -> None:
    place.was_a_node()
    with socket.create_server(("127.0.0.1", 0)) as other:
        listeners = f"PLAINTEXT://127.0.0.1:{other.getsockname()[1]}"
        with unchanged(place, errors.IoFailed, "listener PLAINTEXT, port"):
            place.joined(NODE, listeners=listeners)


def wrong_setting(place: Place) -> None:
    place.was_a_node()
    with unchanged(place, errors.InvalidSetting, "cordoned.log.dirs"):
        place.joined(NODE, **{"cordoned.log.dirs": "/elsewhere"})


def in_use(place: Place) -> None:
    """Served twice: the owner is named, and nobody waits for the number that it has registered."""
    with place.joined(NODE), unchanged(place, errors.Locked, "owns this directory"):
        place.joined(NODE)


JOINING = [other_number, no_number, number_alive, in_use, served_alone, another_cluster, empty_tree,
           protected, credentials, nobodys, damaged, taken_address, wrong_setting]  # fmt: skip


@pytest.mark.parametrize("refused", JOINING, ids=lambda one: one.__name__)
def test_a_node_that_may_not_join(place: Place, refused: Callable[[Place], None]) -> None:
    refused(place)


# ---- a single node -------------------------------------------------------------------------------


def alone_other_number(place: Place) -> None:
    place.was_alone()
    with unchanged(place, errors.InvalidSetting, "node.id: found 4, wanted 1, the owner of"):
        Broker(place.path, (), config={"node.id": 4})


def alone_taken_address(place: Place) -> None:
    place.was_alone()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with unchanged(place, errors.IoFailed, "listener PLAINTEXT, port"):
            Broker(place.path, address)


def of_a_cluster(place: Place) -> None:
    place.was_a_node()
    with unchanged(place, errors.ArgumentError, "serve it in its cluster with --zookeeper", False):
        Broker(place.path, ())


def with_rules(place: Place) -> None:
    place.was_alone()
    written(place, RECORDS["super.users"])
    with unchanged(place, errors.ArgumentError, "super.users", False):
        Broker(place.path, ())


def of_several_nodes(place: Place) -> None:
    """Kafka before 3.7 wrote no directory.id; nobody else's directory gets one."""
    place.was_alone()
    written(place, ("RegisterBrokerRecord", {
        "broker_id": 2, "incarnation_id": layout.random_topic_id(), "broker_epoch": 99,
        "end_points": [], "features": [], "rack": None, "fenced": True}))  # fmt: skip
    meta = place.path / "meta.properties"
    meta.write_text(re.sub("directory.id=.*\n", "", meta.read_text()))
    with unchanged(place, errors.ArgumentError, r"found brokers \[2\] besides 1", False):
        Broker(place.path, ())


def of_several_voters(place: Place) -> None:
    place.was_alone()
    quorum = place.path / "__cluster_metadata-0" / "quorum-state"
    known = json.loads(quorum.read_text())
    quorum.write_text(json.dumps(known | {"currentVoters": [{"voterId": 1}, {"voterId": 2}]}))
    with unchanged(place, errors.ArgumentError, r"found voters \(1, 2\), wanted only 1", False):
        Broker(place.path, ())


def written(place: Place, record: tuple[str, Mapping[str, Any]]) -> None:
    with Manager(place.path) as manager, MetadataLog.open(manager) as metadata:
        metadata.write([record])


ALONE = [alone_other_number, alone_taken_address, of_a_cluster, with_rules, of_several_nodes,
         of_several_voters]  # fmt: skip


@pytest.mark.parametrize("refused", ALONE, ids=lambda one: one.__name__)
def test_a_directory_that_is_not_served_alone(
    place: Place, refused: Callable[[Place], None]
) -> None:
    refused(place)


# ---- commands ------------------------------------------------------------------------------------


def test_commands_that_change_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """`cluster adopt` of a cluster where no broker of ours could start, and of a number that
    lives; `adopt` with another number, and of folders with different ids."""
    words = ["--zookeeper", place.inside.hosts, "--execute", "--node-id", str(NODE)]

    def refused(said: str, *command: str) -> None:
        before = contents(place.home, False), place.znodes()
        assert main([*command]) == 2
        assert said in capsys.readouterr().err
        assert (contents(place.home, False), place.znodes()) == before

    place.was_alone()
    adopt = ["cluster", "adopt", "--dir", str(place.path), *words]
    with Broker(place.home / "node", config=place.config(NODE)):
        refused("node 4: found it alive", *adopt)
    place.put("/kafka-acl/Topic/secret", b"{}")
    refused("a new node joins a cluster that is open to all", *adopt)
    refused("node.id: found 5, wanted 1", "adopt", "--dir", str(place.path), "--node-id", "5")
    for number in (0, 1):
        folder = place.path / f"strange-{number}"
        folder.mkdir()
        text = layout.render_partition_metadata(layout.random_topic_id())
        (folder / "partition.metadata").write_bytes(text)
    refused("folders of different topic ids", "adopt", "--dir", str(place.path))


def test_several_directories(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused, also if those are new; one of them may be named instead."""
    place.was_a_node()
    first = place.home / "first"
    file = place.home / "server.properties"
    file.write_text(f"log.dirs={first},{place.home / 'none'},{place.path}\nbroker.id=4\n")
    before = contents(place.home)
    assert main(["serve", "--config", str(file)]) == 2
    assert f"log.dirs: found 3 directories ({first}, " in capsys.readouterr().err
    assert contents(place.home) == before


def test_a_plan_that_the_tree_has_overtaken(place: Place) -> None:
    """The node's number came alive, or a topic was created, after the tree was read."""
    place.was_alone()
    step = (Create(tree.topic_path("a"), b""),), (Create(tree.topic_path("b"), b""),)
    plan = Adoption(NODE, "cluster", (), step, False)
    place.put(tree.CLUSTER_ID, tree.write_cluster_id("cluster"))
    for path in (tree.topic_path("b"), tree.broker_path(NODE)):
        place.put(path)
        with (
            open_session(place.inside.hosts, lambda _: None) as session,
            unchanged(place, errors.ArgumentError, f"{path}: found it in ZooKeeper", False),
        ):
            carry_out(str(place.path), plan, session)


def test_a_plan_that_the_directory_has_overtaken(place: Place) -> None:
    """A broker created a topic after the metadata was read, and has ended."""
    place.was_alone()
    plan = Adoption(NODE, "cluster", (), (), False, read_alone(str(place.path)).offset)
    with Broker(place.path, ()) as broker:
        broker.store.create_topic("u")
    with (
        open_session(place.inside.hosts, lambda _: None) as session,
        unchanged(place, errors.ArgumentError, "a broker has served it since", False),
    ):
        carry_out(str(place.path), plan, session)
