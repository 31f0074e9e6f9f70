"""`kafkalog cluster check` on three nodes whose replicas were compacted at different times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.server.broker import node_of
from kafkalog.testing.cluster import TestCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    settings = {"log.cleaner.enable": False, "kafkalog.durability": "os"}
    with TestCluster(tmp_path_factory.mktemp("check"), config=settings) as made:
        yield made


def checked(cluster: TestCluster, topic: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The status of the command, and what it says of the only partition."""
    capsys.readouterr()
    words = ["cluster", "check", topic, "--bootstrap-server", cluster.bootstrap_servers, "--json"]
    status = main(words)
    return {**json.loads(capsys.readouterr().out.splitlines()[0]), "status": status}


def test_replicas_compacted_at_different_times(
    cluster: TestCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """One has removed superseded records and one more their tombstones and markers, too; the third
    was not compacted."""
    where = cluster.bootstrap_servers
    with kafkalog.Admin(where) as admin:
        policy = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
        admin.create_topics([("t", -1, -1, policy, [[1, 2, 3]])]).check()
    with kafkalog.Producer(where, transactional_id="x") as producer:
        for number in range(4):
            producer.begin_transaction()
            producer.send("t", b"%d" % number, b"k", partition=0)
            producer.send("t", b"%d" % number if number < 3 else None, b"gone", partition=0)
            producer.flush()
            (producer.abort_transaction if number == 1 else producer.commit_transaction)()
    with kafkalog.Producer(where) as producer:
        producer.send("t", b"last", b"other", partition=0).result()
    assert checked(cluster, "t", capsys)["compacted"] == 0
    for node, rounds in ((2, 1), (3, 2)):
        log = node_of(cluster.nodes[node].broker).partitions.existing_log("t", 0)
        assert log is not None
        cluster.wait_until(lambda log=log: log.high_watermark == log.end_offset, "all is committed")
        log.roll()
        for _ in range(rounds):
            log.compact()
    found = checked(cluster, "t", capsys)
    assert (found["status"], found["different"], found["unchecked"]) == (0, 0, 0)
    assert found["compacted"] > 4
    assert found["records"] == 9


def test_replicas_that_begin_at_different_offsets(
    cluster: TestCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what was not compared."""
    where = cluster.bootstrap_servers
    with kafkalog.Admin(where) as admin:
        admin.create_topics([("u", -1, -1, {}, [[1, 2, 3]])]).check()
    with kafkalog.Producer(where) as producer:
        for number in range(3):
            producer.send("u", b"%d" % number, partition=0).result()
    log = node_of(cluster.nodes[3].broker).partitions.existing_log("u", 0)
    assert log is not None
    cluster.wait_until(lambda: log.high_watermark == log.end_offset, "all is committed")
    log.delete_before(1)
    found = checked(cluster, "u", capsys)
    assert (found["status"], found["start"], found["records"]) == (0, 1, 2)
    assert found["earlier"] == {"1": 1, "2": 1}
    main(["cluster", "check", "u", "--bootstrap-server", where])
    assert "1 partition compared only from the last replica's start on" in capsys.readouterr().err
