"""`kafkalog cluster try`, a newcomer's first command: three nodes that are their own controllers,
without Java."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.cli.cluster.tried import Tried
from kafkalog.config.server_properties import read_properties
from tests.support.secured import PLAIN, jaas
from tests.support.waiting import LIMIT_S
from tests.unit.cli.conftest import Command

NODES = [1, 2, 3]
BARE = {**os.environ, "PATH": ""}
"""An environment without Java, or any other program."""


def command(folder: Path, *words: str) -> list[str]:
    program = [sys.executable, "-m", "kafkalog", "cluster", "try"]
    return [*program, "--dir", str(folder), "--port", "0", *words]


@contextmanager
def tried(folder: Path, *words: str) -> Iterator[str]:
    """Runs it; what it has said once the cluster is ready."""
    begun = subprocess.Popen(
        command(folder, *words), env=BARE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert begun.stdout is not None
    said = ""
    for line in iter(begun.stdout.readline, ""):
        said += line
        if "Ctrl-C" in line:
            break
    try:
        yield said
    finally:
        begun.send_signal(signal.SIGINT)
        rest = begun.communicate(timeout=2 * LIMIT_S)[0]
    assert (begun.returncode, "the data stay" in rest) == (0, True)
    for pid in re.findall(r"pid (\d+)", said):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.slow
def test_a_leader_is_killed_under_load(tmp_path: Path) -> None:
    """The demonstration: nothing is lost or duplicated, and a picture is drawn."""
    picture = tmp_path / "failover.svg"
    words = command(tmp_path / "tried", "--demo", "--draw", str(picture))
    ran = subprocess.run(words, env=BARE, capture_output=True, text=True, timeout=4 * LIMIT_S)
    assert ran.returncode == 0, ran
    assert "0 are lost, 0 are there twice, all are in order" in ran.stdout, ran
    assert "kill -9 of node" in ran.stdout and "all three are in sync" in ran.stdout
    drawn = " ".join(ElementTree.parse(picture).getroot().itertext())
    assert all(f"node {node}" in drawn for node in NODES) and "high watermark" in drawn


@pytest.mark.long
def test_the_data_stay_for_the_next_time(tmp_path: Path) -> None:
    """Also on other ports; and the printed addresses and commands work."""
    for run in range(2):
        with tried(tmp_path / "tried") as said:
            assert "ZooKeeper" not in said and "kafkalog quorum\n" in said
            servers = re.findall(r"KAFKALOG_BOOTSTRAP_SERVERS=(\S+)", said)[0]
            with kafkalog.Admin(servers) as admin:
                assert [one.node for one in admin.describe_cluster().nodes] == NODES
                assert [one.node for one in admin.describe_quorum().voters] == NODES
                assert admin.list_topics() == (["orders"] if run else [])
                if not run:
                    admin.create_topic("orders", 3)


@pytest.mark.long
def test_protected_nodes_and_clients(tmp_path: Path) -> None:
    """Clients need the settings that it wrote, which no other user of the machine reads."""
    folder = tmp_path / "tried"
    with tried(folder, "--security", "sasl_ssl") as said:
        servers = re.findall(r"KAFKALOG_BOOTSTRAP_SERVERS=(\S+)", said)[0]
        file = folder / "client.properties"
        assert f"kafkalog cluster status --command-config {file}" in said
        for path in (file, *folder.glob("node*.properties")):
            assert path.stat().st_mode & 0o77 == 0
        with kafkalog.Admin(servers, config=read_properties(str(file))) as admin:
            admin.create_topic("orders")
            (topic,) = admin.describe_topics(["orders"]).check().values()
            assert all(len(row.replicas) == 3 for row in topic.partitions.values())
        _only_these_reach_controllers(folder)


def _only_these_reach_controllers(folder: Path) -> None:
    settings = read_properties(str(folder / "node1.properties"))
    servers = settings["controller.quorum.voters"].partition("@")[2].partition(",")[0]
    found = read_properties(str(folder / "client.properties"))
    with kafkalog.Admin(servers, config=found, controllers=True) as admin:
        assert [one.node for one in admin.describe_quorum().voters] == NODES
    stranger = {**found, "sasl.jaas.config": jaas(PLAIN, username="admin", password="guessed")}
    for config, wanted in ((stranger, errors.AuthenticationFailed), ({}, errors.KafkalogError)):
        config = {**config, "default.api.timeout.ms": "1000", "request.timeout.ms": "500"}
        with (
            pytest.raises(wanted),
            kafkalog.Admin(servers, config=config, controllers=True) as admin,
        ):
            admin.describe_quorum()


def test_a_folder_of_a_cluster_on_zookeeper_is_refused(kafkalog: Command, tmp_path: Path) -> None:
    (tmp_path / "node2").mkdir()
    (tmp_path / "node2" / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=c\n")
    ran = kafkalog("cluster", "try", "--dir", tmp_path, "--port", "0")
    assert (ran.status, "node2: is of a cluster on ZooKeeper: give --zookeeper" in ran.err) == (
        1, True
    )  # fmt: skip
    assert not (tmp_path / "node1").exists()


def test_a_taken_port_is_named(kafkalog: Command, tmp_path: Path) -> None:
    """Six follow one another: three of the nodes, three of their controllers."""
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        ran = kafkalog("cluster", "try", "--dir", tmp_path / "x", "--port", port - 5)
        named = re.search(r"port (\d+) is taken", ran.err)
        # Something else may have one of the five below it.
        assert ran.status == 1 and named and port - 5 <= int(named[1]) <= port
        assert "first one of 6" in ran.err
    ran = kafkalog("cluster", "try", "--dir", tmp_path / "x", "--port", "65531")
    assert (ran.status, "wanted at most 65530: 5 follow it" in ran.err) == (2, True)


def test_free_ports_are_not_those_of_connections(tmp_path: Path) -> None:
    """A connection of one node would take the port of another that does not listen yet."""
    made = Tried(str(tmp_path), 0, None)
    ports = {int(at.rpartition(":")[2]) for n in NODES for at in (made.address(n),
                                                                  made.controller(n))}  # fmt: skip
    assert len(ports) == 6
    assert max(ports) < 32_000
