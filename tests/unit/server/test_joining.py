"""A node joins a cluster that has brokers: it is checked, and takes over their settings."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import errors
from kafkalog.cli import main
from kafkalog.client.admin import Admin
from kafkalog.server.broker import Broker
from kafkalog.testing.standin import StandIn
from kafkalog.zookeeper import tree
from kafkalog.zookeeper.session import Create, open_session
from tests.unit.server.test_refused_starts import contents

QUICK = {"controlled.shutdown.enable": False}
RETENTION = "log.retention.ms"


@pytest.fixture
def hosts() -> Iterator[str]:
    with StandIn() as inside:
        yield inside.hosts


def joined(path: Path, hosts: str, node: int, **given: Any) -> Broker:
    more = {name.replace("_", "."): value for name, value in given.items()}
    return Broker(path, config={**QUICK, "zookeeper.connect": hosts, "node.id": node, **more})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


def test_settings_of_the_others_are_taken_over(
    tmp_path: Path, hosts: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without what was set at run time, which every node reads in ZooKeeper; a third node hears the
    same from both."""
    first = {"log_retention_hours": 24, "default_replication_factor": 2}
    with joined(tmp_path / "1", hosts, 1, **first) as one, Admin(one.bootstrap_servers) as admin:
        change = {("broker", "1"): {"log.retention.bytes": ("set", "7")}}
        admin.alter_configs(change).check()
        with joined(tmp_path / "2", hosts, 2) as two, joined(tmp_path / "3", hosts, 3) as three:
            for other in (two, three):
                assert other.config.topic.retention_ms == 24 * 3_600_000
                assert other.config.default_replication_factor == 2
                assert other.config.topic.retention_bytes == -1
            row = admin.describe_configs([("broker", "2")]).check()["broker", "2"][RETENTION]
            assert (row.value, row.source) == ("86400000", "properties file")
    said = [one for one in warnings(caplog) if one.startswith(RETENTION)]
    assert "takes over 86400000 on broker 1; its default is -1" in said[0]
    assert "takes over 86400000 on brokers 1, 2; its default is -1" in said[1]


def test_a_setting_that_was_given_stays(
    tmp_path: Path, hosts: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        joined(tmp_path / "1", hosts, 1, log_retention_ms=1000),
        joined(tmp_path / "2", hosts, 2, log_retention_minutes=5) as two,
    ):
        assert two.config.topic.retention_ms == 300_000
    assert any("it is 300000 here, but 1000 on broker 1" in one for one in warnings(caplog))


def test_another_listener_is_refused_before_anything_is_written(tmp_path: Path, hosts: str) -> None:
    other = {"listeners": "INSIDE://127.0.0.1:0",
             "listener.security.protocol.map": "INSIDE:PLAINTEXT"}  # fmt: skip
    with (
        joined(tmp_path / "1", hosts, 1),
        open_session(hosts, lambda _: None) as session,
    ):
        before = session.tree("/"), contents(tmp_path)
        with pytest.raises(errors.ArgumentError, match="listener PLAINTEXT: broker 1 reaches"):
            joined(tmp_path / "2", hosts, 2, **other)
        assert (session.tree("/"), contents(tmp_path)) == before


def test_a_broker_that_does_not_answer_stops_nobody(
    tmp_path: Path, hosts: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_session(hosts, lambda _: None) as session:
        gone = tree.BrokerNode(
            (tree.Endpoint("PLAINTEXT", "127.0.0.1", 1, "PLAINTEXT"),), None, 0, {}
        )
        session.ensure([tree.BROKERS])
        assert session.commit([Create(tree.broker_path(7), tree.write_broker(gone), True)]).done
        joined(tmp_path / "1", hosts, 1).close()
    assert any("broker 7 did not tell theirs" in one for one in warnings(caplog))


# ---- the command ---------------------------------------------------------------------------------


def test_the_command_shows_the_findings_of_a_start(
    tmp_path: Path, hosts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the options of `serve`; a directory that does not exist is not created."""
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=2\nzookeeper.connect={hosts}\nlog.dirs={tmp_path / '2'}\n"
                    "listeners=INSIDE://10.0.0.4:9092\nbackground.threads=9\n"
                    "listener.security.protocol.map=INSIDE:PLAINTEXT\n")  # fmt: skip
    command = ["cluster", "precheck", "--zookeeper", hosts]
    with joined(tmp_path / "1", hosts, 1, num_partitions=3):
        before = contents(tmp_path)
        capsys.readouterr()
        assert main([*command, "--node-id", "2", "--listen", "10.0.0.4:9092"]) == 0
        out = capsys.readouterr().out
        assert "warn    num.partitions: it is not set here, so this node takes over 3" in out
        assert "the node may join; 1 warning" in out
        assert main(["cluster", "precheck", "--config", str(file), "--json"]) == 1
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(row["severity"], row["subject"]) for row in rows] == [
            ("refuse", "listener PLAINTEXT"),
            ("warn", "background.threads"),
            ("warn", "num.partitions"),
        ]  # fmt: skip
        assert main([*command, "--node-id", "1"]) == 0
        assert "node.id: broker 1 is alive." in capsys.readouterr().out
        assert contents(tmp_path) == before


def test_the_command_names_the_refusals_of_a_start(
    tmp_path: Path, hosts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Broker(tmp_path / "alone", ()).close()
    command = ["cluster", "precheck", "--zookeeper", hosts]
    for words, said in (
        ([], "node.id: found none"),
        (["--dir", str(tmp_path / "alone"), "--node-id", "1"], "a node that is alone"),
        (["--node-id", "1", "--set", "principal.builder.class=a.B"], "principal.builder.class"),
        (["--node-id", "1", "--set", "listeners=SSL://a:1"], "listener SSL: "),
    ):
        assert main([*command, *words]) == 1
        out = capsys.readouterr().out
        assert said in out and "the node would be refused: 1 reason, 0 warnings" in out
    assert main(["cluster", "precheck", "--node-id", "1"]) == 2
    assert "give --zookeeper" in capsys.readouterr().err
