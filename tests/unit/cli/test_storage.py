"""`kafkalog storage`: the directories of a node of a KRaft cluster, formatted as Kafka does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.kraft.batches import KRAFT_VERSION, SNAPSHOT_FOOTER, SNAPSHOT_HEADER, VOTERS, Raw
from kafkalog.kraft.records import describe
from kafkalog.kraft.snapshots import read_snapshot
from kafkalog.metadata.levels import FIRST_LEVELS, LEVEL, LEVEL_MIN, MAX_LEVELS, RELEASES
from kafkalog.raft.codec import control_of
from kafkalog.raft.replicas import Voter, Voters
from tests.unit.cli.conftest import Command

CLUSTER, OTHER = "7JnyYWk9Qfu8aTtqzOvIaw", "MvDxzVmcRsaTz33bUuRU6A"
FIRST = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
VOTERS_KEY = b"\0\0\0\6"
STATIC = "controller.quorum.voters=1@127.0.0.1:9093"
Node = Callable[..., Path]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Writes the server.properties of a controller, with these lines added; returns its path."""

    def write(*lines: str, roles: str = "controller") -> Path:
        path = tmp_path / "server.properties"
        path.write_text("\n".join((
            f"process.roles={roles}", "node.id=1", f"log.dirs={tmp_path / 'data'}",
            "listeners=CONTROLLER://:9093,PLAINTEXT://127.0.0.1:9092",
            "controller.listener.names=CONTROLLER", *lines, "",
        )))  # fmt: skip
        return path

    return write


def first(tmp_path: Path, name: str = "data") -> list[Raw]:
    return read_snapshot(str(tmp_path / name / FIRST))


def levels(raws: list[Raw]) -> list[str]:
    return [describe(one.value).replace("FeatureLevelRecord v0 name=", "")
            for one in raws if one.control is None]  # fmt: skip


def voters(raws: list[Raw]) -> Voters:
    (found,) = [one.value for one in raws if one.control == VOTERS]
    made = control_of(VOTERS_KEY, found)
    assert isinstance(made, tuple)
    assert all(isinstance(one, Voter) for one in made)
    return made


def properties(tmp_path: Path, name: str = "data") -> dict[str, str]:
    text = (tmp_path / name / "meta.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_controller_of_voters_that_cannot_change(
    kafkalog: Command, node: Node, tmp_path: Path
) -> None:
    """The newest levels are written, and no kraft.version."""
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", node(STATIC))
    told = f"Formatting metadata directory {tmp_path / 'data'} with metadata.version 4.4-IV2.\n"
    assert (ran.status, ran.out) == (0, told), ran.err
    raws = first(tmp_path)
    assert levels(raws) == [
        "metadata.version feature_level=33", "eligible.leader.replicas.version feature_level=1",
        "group.version feature_level=1", "share.version feature_level=2",
        "streams.version feature_level=1", "transaction.version feature_level=2",
    ]  # fmt: skip
    assert [raws[0].control, raws[1].control, raws[-1].control] == [
        SNAPSHOT_HEADER, None, SNAPSHOT_FOOTER
    ]  # fmt: skip
    found = properties(tmp_path)
    assert (found["cluster.id"], found["node.id"], found["version"]) == (CLUSTER, "1", "1")
    assert len(found["directory.id"]) == 22


def test_a_first_voter(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    """With --standalone the controller itself is the only voter, under its directory's id."""
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", node(), "--standalone")
    assert ran.out.startswith("Formatting dynamic metadata voter directory "), ran.err
    raws = first(tmp_path)
    assert [one.control for one in raws[:3]] == [SNAPSHOT_HEADER, KRAFT_VERSION, VOTERS]
    (one,) = voters(raws)
    assert (one.key.id, one.endpoints) == (1, (("CONTROLLER", "localhost", 9093),))
    from kafkalog.disk.layout import uuid_text

    assert uuid_text(one.key.directory_id) == properties(tmp_path)["directory.id"]


def test_three_first_voters(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    """They are the same in each of their directories; another node gets none of their ids."""
    named = f"1@host1:9093:{CLUSTER},3@[::1]:9095:{OTHER}"
    ran = kafkalog("storage", "format", "-t", "mine", "-c", node(), "-I", named)
    assert ran.out.startswith("Formatting dynamic metadata voter directory "), ran.err
    found = voters(first(tmp_path))
    assert [one.key.id for one in found] == [1, 3]
    assert found[1].endpoints == (("CONTROLLER", "0:0:0:0:0:0:0:1", 9095),)
    assert properties(tmp_path)["directory.id"] == CLUSTER
    path = node("node.id=4", f"log.dirs={tmp_path / 'fourth'}")
    ran = kafkalog("storage", "format", "-t", "mine", "-c", path, "-I", named)
    assert ran.out.startswith("Formatting dynamic metadata directory "), ran.err
    assert voters(first(tmp_path, "fourth")) == found
    assert properties(tmp_path, "fourth")["directory.id"] not in (CLUSTER, OTHER)


def test_a_controller_that_joins(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    """It has kraft.version 1 and no voters: it asks others for them."""
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", node(), "-N")
    assert ran.out.startswith("Formatting metadata directory "), ran.err
    assert [one.control for one in first(tmp_path)[:3]] == [SNAPSHOT_HEADER, KRAFT_VERSION, None]


def test_a_broker_alone_gets_no_records(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    """Only its identity: it fetches all records from the controllers."""
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", node(STATIC, roles="broker"))
    assert ran.status == 0, ran.err
    assert [one.name for one in (tmp_path / "data").iterdir()] == ["meta.properties"]


def test_several_directories(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    """Only the one of the metadata log gets records; formatted ones are left as they are if that is
    asked for."""
    path = node(STATIC, f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}",
                f"metadata.log.dir={tmp_path / 'm'}")  # fmt: skip
    assert kafkalog("storage", "format", "-t", CLUSTER, "-c", path).status == 0
    assert [one for one in "abm" if (tmp_path / one / FIRST).exists()] == ["m"]
    ids = {one: properties(tmp_path, one)["directory.id"] for one in "abm"}
    assert len(set(ids.values())) == 3
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", path)
    assert ran.status == 1
    assert f"Log directory {tmp_path / 'a'} is already formatted." in ran.err
    (tmp_path / "b" / "meta.properties").unlink()
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", path, "--ignore-formatted")
    assert ran.out.startswith(f"Formatting data directory {tmp_path / 'b'} with"), ran.err
    assert properties(tmp_path, "a")["directory.id"] == ids["a"]
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", path, "-g")
    assert (ran.status, ran.out) == (0, "All of the log directories are already formatted.\n")
    ran = kafkalog("storage", "format", "-t", OTHER, "-c", path, "-g")
    assert (ran.status, f"found {CLUSTER}, wanted {OTHER}" in ran.err) == (1, True)


def test_an_interrupted_format_is_done_again(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    """Without its identity a directory is not formatted, unless it holds records."""
    assert kafkalog("storage", "format", "-t", CLUSTER, "-c", node(STATIC)).status == 0
    (tmp_path / "data" / "meta.properties").unlink()
    assert kafkalog("storage", "format", "-t", CLUSTER, "-c", node(STATIC)).status == 0
    (tmp_path / "data" / "meta.properties").unlink()
    (tmp_path / "data" / "orders-0").mkdir()
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", node(STATIC))
    assert (ran.status, "holds partitions (orders-0, ...)" in ran.err) == (2, True)


def test_a_user_and_a_release(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    """A credential and the levels of a release are among the first records; its password is not."""
    words = ("-r", "4.0", "-f", "transaction.version=1", "-S",
             "SCRAM-SHA-256=[name=alice,password=s3cret]")  # fmt: skip
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", node(STATIC), *words)
    assert ran.status == 0, ran.err
    found = levels(first(tmp_path))
    assert found[:3] == ["metadata.version feature_level=25", "group.version feature_level=1",
                         "transaction.version feature_level=1"]  # fmt: skip
    assert found[3].startswith("UserScramCredentialRecord v0 name=alice mechanism=1 ")
    assert b"s3cret" not in (tmp_path / "data" / FIRST).read_bytes()


NAMED = "1@h:9093:7JnyYWk9Qfu8aTtqzOvIaw"
WRONG = [
    (("format", "-t", CLUSTER), (), "give --config FILE"),
    (("format",), (STATIC,), "give --cluster-id ID"),
    (("format", "-t", "a b"), (STATIC,), "cluster id: found 'a b'"),
    (("format", "-t", CLUSTER), (), "must specify one of the following: --standalone"),
    (("format", "-t", CLUSTER, "-s"), (STATIC,), "--standalone: found next to"),
    (("format", "-t", CLUSTER, "-I", NAMED), (STATIC,), "--initial-controllers: found next to"),
    (("format", "-t", CLUSTER, "-I", "1@h:9093"), (), "wanted id@host:port:directory-id"),
    (("format", "-t", CLUSTER, "-I", "1@h:9093:x"), (), "wanted 22 characters of base64url"),
    (("format", "-t", CLUSTER, "-I", "1@h:99093:x"), (), "wanted id@host:port:directory-id"),
    (("format", "-t", CLUSTER, "-I", f"{NAMED},{NAMED}"), (), "wanted each node once"),
    (("format", "-t", CLUSTER, "-s", "-N"), (), "not allowed with argument"),
    (("format", "-t", CLUSTER, "-r", "3.2"), (STATIC,), "found '3.2', wanted 3.3-IV3 to 4.4-IV2"),
    (("format", "-t", CLUSTER, "-f", "x=1"), (STATIC,), "feature x: wanted one of"),
    (("format", "-t", CLUSTER, "-f", "x"), (STATIC,), "wanted FEATURE=LEVEL"),
    (("format", "-t", CLUSTER, "-f", "group.version=2"), (STATIC,), "wanted 0 to 1"),
    (("format", "-t", CLUSTER, "-f", "kraft.version=1"), (STATIC,), "found 1, wanted 0"),
    (("format", "-t", CLUSTER, "-N", "-f", "kraft.version=0"), (), "found 0, wanted 1"),
    (("format", "-t", CLUSTER, "-f", "metadata.version=34"), (STATIC,), "wanted 7 to 33"),
    (("format", "-t", CLUSTER, "-r", "4.0", "-f", "metadata.version=25"), (STATIC,), "one of them"),
    (("format", "-t", CLUSTER, "-r", "3.9", "-f", "eligible.leader.replicas.version=1"), (STATIC,),
     "it needs 23 (4.0-IV1)"),
    (("format", "-t", CLUSTER, "-r", "3.4", "-S", "SCRAM-SHA-256=[name=a,password=b]"), (STATIC,),
     "does not support SCRAM"),
    (("format", "-t", CLUSTER), ("process.roles=",), "process.roles: found none"),
    (("format", "-t", CLUSTER), ("node.id=one", STATIC), "node.id: found 'one'"),
    (("format", "-t", CLUSTER), ("log.dirs=", STATIC), "log.dirs: found none"),
    (("format", "-t", CLUSTER, "-s"), ("controller.listener.names=",), "wanted a name"),
    (("format", "-t", CLUSTER, "-s"), ("controller.listener.names=X",), "found no X://host:port"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "lines", "told"), WRONG)
def test_wrong_options_and_files_are_refused(
    kafkalog: Command, node: Node, tmp_path: Path, words: tuple[str, ...], lines: tuple[str, ...],
    told: str,
) -> None:  # fmt: skip
    """One line says what is wrong, and nothing is written."""
    config = () if told.startswith("give --config") else ("-c", node(*lines))
    ran = kafkalog("storage", *words, *config)
    assert ran.status in (1, 2)
    assert told in ran.err
    assert not (tmp_path / "data").exists()


def test_a_broker_is_no_first_voter(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    ran = kafkalog("storage", "format", "-t", CLUSTER, "-c", node(roles="broker"), "-s")
    assert (ran.status, "is not of a controller" in ran.err) == (2, True)


def test_the_identity_and_problems_are_shown(kafkalog: Command, node: Node, tmp_path: Path) -> None:
    path = node(STATIC, f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}")
    ran = kafkalog("storage", "info", "-c", path)
    assert ran.out == (
        f"Found problems:\n  {tmp_path / 'a'} does not exist\n  {tmp_path / 'b'} does not exist\n\n"
    )
    assert ran.status == 1
    assert kafkalog("storage", "format", "-t", CLUSTER, "-c", path).status == 0
    ran = kafkalog("storage", "info", "-c", path)
    assert (ran.status, ran.out.splitlines()[0]) == (0, "Found log directories:")
    assert f"Found metadata: {{cluster.id={CLUSTER}, directory.id=" in ran.out
    (tmp_path / "b" / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={OTHER}\n")
    ran = kafkalog("storage", "info", "-c", path)
    assert (ran.status, "Mismatched cluster IDs" in ran.out) == (1, True)
    (tmp_path / "b" / "meta.properties").write_text("version=7\n")
    ran = kafkalog("storage", "info", "-c", path)
    assert (ran.status, "version: found 7" in ran.out) == (1, True)
    (tmp_path / "b" / "meta.properties").unlink()
    assert f"{tmp_path / 'b'} is not formatted." in kafkalog("storage", "info", "-c", path).out


def test_ids_and_levels_of_releases(kafkalog: Command) -> None:
    ids = {kafkalog("storage", "random-uuid").out.strip() for _ in range(2)}
    assert len(ids) == 2 and all(len(one) == 22 for one in ids)
    ran = kafkalog("storage", "version-mapping", "-r", "4.0")
    assert ran.out.splitlines() == [
        "metadata.version=25 (4.0)", "eligible.leader.replicas.version=0", "group.version=1",
        "kraft.version=1", "share.version=0", "streams.version=0", "transaction.version=2",
    ]  # fmt: skip


def test_levels_of_new_clusters_never_fall() -> None:
    """A later release has no lower level, and the newest has the highest of each."""
    for level in range(LEVEL_MIN, LEVEL):
        for name, one in FIRST_LEVELS[level].items():
            assert one <= FIRST_LEVELS[level + 1][name], name
    newest = {name: one for name, one in FIRST_LEVELS[LEVEL].items() if name != "metadata.version"}
    assert newest == {name: one for name, one in MAX_LEVELS.items() if name != "kraft.version"}
    assert len(RELEASES) == LEVEL
