"""`kafkalog quorum`, with the output of Kafka's tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog import Admin, errors
from kafkalog.disk.layout import parse_uuid
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support.scripted import CLOSE, Peer
from tests.unit.cli.conftest import Command

ONE, TWO = "7JnyYWk9Qfu8aTtqzOvIaw", "MvDxzVmcRsaTz33bUuRU6A"
DONE = {"error_code": 0, "error_message": None}
CONTROLLERS = 2
HOURS_AGO_MS = 1_600_000_000_000


def replica(node: int, directory_id: str, end: int, at_ms: int = HOURS_AGO_MS) -> dict[str, Any]:
    return {
        "replica_id": node, "replica_directory_id": parse_uuid(directory_id), "log_end_offset": end,
        "last_fetch_timestamp": at_ms, "last_caught_up_timestamp": at_ms,
    }  # fmt: skip


def described(leader: int = 2) -> dict[str, Any]:
    row = {
        "partition_index": 0, "error_code": 0, "leader_id": leader, "leader_epoch": 7,
        "high_watermark": 90, "current_voters": [
            replica(1, ONE, 80), replica(2, TWO, 100, HOURS_AGO_MS + 5),
        ], "observers": [replica(4, ONE, 95)],
    }  # fmt: skip
    ends = [{"name": "CONTROLLER", "host": "::1", "port": 9093}]
    return {
        **DONE, "topics": [{"topic_name": "__cluster_metadata", "partitions": [row]}],
        "nodes": [{"node_id": 1, "listeners": ends}],
    }  # fmt: skip


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A controller of a cluster of one, active."""
    with Peer() as made:
        here = {"broker_id": 1, "host": "127.0.0.1", "port": made.port}
        made.on(apis.DESCRIBE_CLUSTER, {
            "error_code": 0, "endpoint_type": CONTROLLERS, "cluster_id": "c", "controller_id": 1,
            "brokers": [here],
        })  # fmt: skip
        made.on(apis.DESCRIBE_QUORUM, described())
        yield made


@pytest.fixture
def there(peer: Peer) -> tuple[str, str]:
    return "--bootstrap-controller", peer.servers


def test_a_single_node(kafkalog: Command, tmp_path: Path) -> None:
    """It is its own quorum, and leads it."""
    with Broker(tmp_path / "data") as broker:
        here = ("--bootstrap-server", broker.bootstrap_servers)
        (row,) = kafkalog("quorum", "--json", *here).rows()
        assert (row["node"], row["status"], row["lag"]) == (1, "leader", 0)
        lines = kafkalog("quorum", "describe", "--replication", *here).out.splitlines()
        assert lines[0].split() == [
            "NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp",
            "LastCaughtUpTimestamp", "Status",
        ]  # fmt: skip
        assert (lines[1].split()[0], lines[1].split()[-1]) == ("1", "Leader")
        status = kafkalog("quorum", "describe", "--status", *here).out
        assert "LeaderId:               1\n" in status and "MaxFollowerLagTimeMs:   0\n" in status


def test_the_replicas(kafkalog: Command, there: tuple[str, str]) -> None:
    """The leader first, then voters, then observers, in columns of equal width."""
    lines = kafkalog("quorum", "describe", "--replication", *there).out.splitlines()
    assert [line.split("\t")[:4] for line in lines[1:]] == [
        ["2     ", TWO, "100         ", "0  "], ["1     ", ONE, "80          ", "20 "],
        ["4     ", ONE, "95          ", "5  "],
    ]  # fmt: skip
    assert [line.split()[-1] for line in lines[1:]] == ["Leader", "Follower", "Observer"]
    lines = kafkalog("quorum", "--human-readable", *there).out.splitlines()
    assert all(line.count(" ms ago") == 2 for line in lines[1:])


def test_the_state(kafkalog: Command, there: tuple[str, str]) -> None:
    ran = kafkalog("quorum", "describe", "--status", *there)
    assert ran.out.splitlines() == [
        "ClusterId:              c", "LeaderId:               2", "LeaderEpoch:            7",
        "HighWatermark:          90", "MaxFollowerLag:         20", "MaxFollowerLagTimeMs:   5",
        f'CurrentVoters:          [{{"id": 1, "directoryId": "{ONE}", "endpoints": '
        f'["CONTROLLER://[::1]:9093"]}}, {{"id": 2, "directoryId": "{TWO}"}}]',
        f'CurrentObservers:       [{{"id": 4, "directoryId": "{ONE}"}}]',
    ]  # fmt: skip


def test_a_leader_that_is_no_voter_any_longer(
    kafkalog: Command, peer: Peer, there: tuple[str, str]
) -> None:
    """Lags are those behind the voter that has most."""
    peer.on(apis.DESCRIBE_QUORUM, described(leader=3))
    lines = kafkalog("quorum", *there).out.splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["20", "0", "5"]
    assert "MaxFollowerLagTimeMs:   -1" in kafkalog("quorum", "--status", *there).out


def test_a_controller_becomes_a_voter(
    kafkalog: Command, peer: Peer, there: tuple[str, str], tmp_path: Path
) -> None:
    """Its file names its directory and its listeners; --dry-run sends nothing."""
    path = tmp_path / "server.properties"
    path.write_text(
        f"process.roles=controller\nnode.id=3\nlog.dirs={tmp_path / 'data'}\n"
        "listeners=CONTROLLER://:9093\nadvertised.listeners=CONTROLLER://host3:9095\n"
        "controller.listener.names=CONTROLLER\n"
    )
    peer.on(apis.ADD_RAFT_VOTER, DONE)
    ran = kafkalog("quorum", "add-controller", "--config", path, *there)
    assert (ran.status, "wanted a formatted directory" in ran.err) == (1, True)
    assert kafkalog("storage", "format", "-t", "c", "-c", path, "-N").status == 0
    meta = (tmp_path / "data" / "meta.properties").read_text()
    directory = next(line for line in meta.splitlines() if "directory" in line).partition("=")[2]
    told = (f" controller 3 with directory id {directory} and endpoints: "
            "CONTROLLER://host3:9095\n")  # fmt: skip
    ran = kafkalog("quorum", "add-controller", "--dry-run", "--config", path, *there)
    assert (ran.status, ran.out) == (0, f"DRY RUN of adding{told}"), ran.err
    assert peer.sent(apis.ADD_RAFT_VOTER) == []
    for option in ("--config", "--command-config"):
        ran = kafkalog("quorum", "add-controller", option, path, *there)
        assert (ran.status, ran.out) == (0, f"Added{told}"), ran.err
    (one, _) = peer.sent(apis.ADD_RAFT_VOTER)
    assert (one.voter_id, one.voter_directory_id) == (3, parse_uuid(directory))
    assert [(end.name, end.host, end.port) for end in one.listeners] == [
        ("CONTROLLER", "host3", 9095)
    ]  # fmt: skip
    refused = {"error_code": int(ErrorCode.DUPLICATE_VOTER), "error_message": "it is one"}
    peer.on(apis.ADD_RAFT_VOTER, refused)
    ran = kafkalog("quorum", "add-controller", "--config", path, *there)
    assert (ran.status, "controller 3: DUPLICATE_VOTER: it is one" in ran.err) == (1, True)
    path.write_text(path.read_text().replace("=controller\n", "=broker\n"))
    ran = kafkalog("quorum", "add-controller", "--config", path, *there)
    assert (ran.status, "found broker, wanted controller" in ran.err) == (2, True)


def test_a_change_whose_answer_was_lost(peer: Peer) -> None:
    """The second attempt finds it done: the same voter is there, or none is."""
    again = {"error_code": int(ErrorCode.DUPLICATE_VOTER), "error_message": "it is one"}
    with Admin(peer.servers, controllers=True, config={"retry.backoff.ms": 1}) as admin:
        peer.on(apis.ADD_RAFT_VOTER, CLOSE, again)
        admin.add_raft_voter(2, parse_uuid(TWO), [("CONTROLLER", "h", 9093)])
        peer.on(apis.ADD_RAFT_VOTER, CLOSE, again)
        with pytest.raises(errors.KafkalogError, match="DUPLICATE_VOTER"):
            admin.add_raft_voter(2, parse_uuid(ONE), [("CONTROLLER", "h", 9093)])
        peer.on(apis.REMOVE_RAFT_VOTER, CLOSE, {"error_code": int(ErrorCode.VOTER_NOT_FOUND)})
        admin.remove_raft_voter(3, parse_uuid(ONE))


def test_a_controller_is_no_voter_any_longer(
    kafkalog: Command, peer: Peer, there: tuple[str, str]
) -> None:
    peer.on(apis.REMOVE_RAFT_VOTER, DONE)
    words = ("quorum", "remove-controller", "-i", "3", "-d", ONE, *there)
    told = f" KRaft controller 3 with directory id {ONE}\n"
    assert kafkalog(*words, "--dry-run").out == f"DRY RUN of removing {told}"
    assert peer.sent(apis.REMOVE_RAFT_VOTER) == []
    assert kafkalog(*words).out == f"Removed {told}"
    (one,) = peer.sent(apis.REMOVE_RAFT_VOTER)
    assert (one.voter_id, one.voter_directory_id) == (3, parse_uuid(ONE))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("describe", "--status", "--replication"), "wanted one of them"),
        (("describe", "--status", "--human-readable"), "--human-readable: found with --status"),
        (("describe", "orders"), "found 'orders', wanted only options"),
        (("add-controller",), "give its server.properties"),
        (("remove-controller", "-i", "3"), "give --controller-directory-id ID"),
        (("remove-controller", "-d", ONE), "give --controller-id N"),
        (("remove-controller", "-d", ONE, "-i", "-3"), "found -3"),
        (("remove-controller", "-d", "x", "-i", "3"), "wanted 22 characters"),
        (("describe", "-i", "3"), "is an option of remove-controller"),
    ],
)
def test_wrong_words_are_told(kafkalog: Command, words: tuple[str, ...], told: str) -> None:
    ran = kafkalog("quorum", *words, "--bootstrap-controller", "127.0.0.1:1")
    assert ran.status == 2
    assert told in ran.err


def test_a_place_is_needed(kafkalog: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKALOG_BOOTSTRAP_SERVERS", raising=False)
    ran = kafkalog("quorum")
    assert (ran.status, "or --bootstrap-controller" in ran.err) == (2, True)


def test_controllers_have_no_topics(peer: Peer) -> None:
    """An administrator of controllers gets an error for topics, at once; a broker is none."""
    with Admin(peer.servers, controllers=True) as admin:
        found = admin.describe_cluster()
        assert (found.cluster_id, [one.node for one in found.nodes]) == ("c", [1])
        assert {one.endpoint_type for one in peer.sent(apis.DESCRIBE_CLUSTER)} == {CONTROLLERS}
        with pytest.raises(errors.KafkalogError, match="UNSUPPORTED_ENDPOINT_TYPE"):
            admin.list_topics()
        with pytest.raises(errors.ArgumentError, match="endpoints: found"):
            admin.add_raft_voter(1, UUID(int=5), [("CONTROLLER", "h", 70_000)])


def test_a_broker_is_no_controller(tmp_path: Path) -> None:
    with (
        Broker(tmp_path / "data") as broker,
        Admin(broker.bootstrap_servers, controllers=True) as admin,
        pytest.raises(errors.KafkalogError, match="MISMATCHED_ENDPOINT_TYPE"),
    ):
        admin.describe_quorum()
