"""`kafkalog cluster try --zookeeper`, on a real ZooKeeper."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import kafkalog
from kafkalog.config.server_properties import read_properties
from tests.support import apache
from tests.support.waiting import LIMIT_S

pytest.importorskip("kazoo")
pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module")
def surroundings() -> dict[str, str]:
    """An environment with a ZooKeeper."""
    try:
        return {**os.environ, "ZOOKEEPER_HOME": str(apache.jars_with_zookeeper())}
    except apache.Unavailable as reason:
        pytest.skip(f"ZooKeeper cannot run here: {reason}")


def command(folder: Path, *words: str) -> list[str]:
    program = [sys.executable, "-m", "kafkalog", "cluster", "try"]
    return [*program, "--dir", str(folder), "--port", "0", *words, "--zookeeper"]


@pytest.mark.long
def test_a_leader_is_killed_under_load(surroundings: dict[str, str], tmp_path: Path) -> None:
    """The demonstration: nothing is lost or duplicated, and a picture is drawn."""
    picture = tmp_path / "failover.svg"
    words = command(tmp_path / "tried", "--demo", "--draw", str(picture))
    ran = subprocess.run(
        words, env=surroundings, capture_output=True, text=True, timeout=4 * LIMIT_S
    )
    assert ran.returncode == 0, ran
    assert "0 are lost, 0 are there twice, all are in order" in ran.stdout, ran
    assert "kill -9 of node" in ran.stdout and "all three are in sync" in ran.stdout
    drawn = " ".join(ElementTree.parse(picture).getroot().itertext())
    assert all(f"node {node}" in drawn for node in (1, 2, 3)) and "high watermark" in drawn


@pytest.mark.long
def test_ctrl_c_ends_the_demonstration(surroundings: dict[str, str], tmp_path: Path) -> None:
    """At once, and nothing keeps running."""
    begun = subprocess.Popen(
        command(tmp_path / "tried", "--demo"),
        env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert begun.stdout is not None
    assert "are in sync" in begun.stdout.readline()
    children = Path(f"/proc/{begun.pid}/task/{begun.pid}/children").read_text().split()
    assert len(children) == 4
    begun.send_signal(signal.SIGINT)
    errors = begun.communicate(timeout=2 * LIMIT_S)[1]
    assert begun.returncode == 130 and "Traceback" not in errors, errors
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


@pytest.mark.long
def test_printed_addresses_work_until_ctrl_c(surroundings: dict[str, str], tmp_path: Path) -> None:
    """Each address answers, the data stay for the next time, and nothing keeps running."""
    words = command(tmp_path / "tried")
    for run in range(2):
        begun = subprocess.Popen(words, env=surroundings, stdout=subprocess.PIPE, text=True)
        assert begun.stdout is not None
        lines = iter(begun.stdout.readline, "")
        said = ""
        for line in lines:
            said += line
            if "Ctrl-C" in line:
                break
        try:
            servers = re.findall(r"KAFKALOG_BOOTSTRAP_SERVERS=(\S+)", said)[0]
            with kafkalog.Admin(servers) as admin:
                assert [one.node for one in admin.describe_cluster().nodes] == [1, 2, 3]
                assert admin.list_topics() == (["orders"] if run else [])
                if not run:
                    admin.create_topic("orders", 3)
        finally:
            begun.send_signal(signal.SIGINT)
            rest = begun.communicate(timeout=2 * LIMIT_S)[0]
        assert (begun.returncode, "the data stay" in rest) == (0, True)
        for pid in re.findall(r"pid (\d+)", said):
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)


def test_missing_programs_are_named(tmp_path: Path) -> None:
    """Without Java or ZooKeeper it says what to install."""
    words = command(tmp_path / "tried")
    ran = subprocess.run(words, env={"PATH": ""}, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "apt-get install default-jre-headless" in ran.stderr
    assert not (tmp_path / "tried").exists()


@pytest.mark.long
def test_protected_nodes_and_clients(surroundings: dict[str, str], tmp_path: Path) -> None:
    """The commands that it prints work, and no other user reads the passwords."""
    folder = tmp_path / "tried"
    begun = subprocess.Popen(
        command(folder, "--security", "sasl_ssl"),
        env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert begun.stdout is not None
        lines = iter(begun.stdout.readline, "")
        said = "".join(itertools.takewhile(lambda line: "Ctrl-C" not in line, lines))
        servers = re.search(r"SERVERS=(\S+)", said)
        file = folder / "client.properties"
        assert servers is not None and f"kafkalog cluster status --command-config {file}" in said
        for path in (file, *folder.glob("node*.properties")):
            assert path.stat().st_mode & 0o77 == 0
        words = ["topics", "create", "orders", "--bootstrap-server", servers[1]]
        done = subprocess.run(
            [sys.executable, "-m", "kafkalog", *words, "--command-config", str(file)],
            capture_output=True, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, done
        with kafkalog.Admin(servers[1], config=read_properties(str(file))) as admin:
            (topic,) = admin.describe_topics(["orders"]).check().values()
            assert all(len(row.replicas) == 3 for row in topic.partitions.values())
    finally:
        begun.send_signal(signal.SIGINT)
        begun.communicate(timeout=LIMIT_S)
