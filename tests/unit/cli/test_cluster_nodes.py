"""`kafkalog cluster id`, `endpoints`, `log-dirs` and `unregister`, and other commands
of Kafka's tools: `topics delete-records`, settings of groups and of client metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import kafkalog as kl
from kafkalog.cli import COMMANDS, OF_KAFKA, parser_of
from kafkalog.cli.configs import TYPES
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support.scripted import Peer
from tests.unit.cli.conftest import Command


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as started, kl.Admin(started.bootstrap_servers) as admin:
        admin.create_topics([("orders", 3), "other"]).check()
        with kl.Producer(started.bootstrap_servers) as producer:
            for partition in range(3):
                for _ in range(5):
                    producer.send("orders", b"v", partition=partition)
        yield started


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as made:
        yield made


@pytest.fixture
def here(broker: Broker) -> tuple[str, str]:
    return "--bootstrap-server", broker.bootstrap_servers


def test_the_id_and_the_endpoints(kafkalog: Command, broker: Broker, here: tuple[str, str]) -> None:
    with kl.Admin(broker.bootstrap_servers) as admin:
        cluster = admin.describe_cluster()
    ran = kafkalog("cluster", "id", *here)
    assert (ran.status, ran.out) == (0, f"Cluster ID: {cluster.cluster_id}\n")
    host, _, port = broker.bootstrap_servers.rpartition(":")
    ran = kafkalog("cluster", "endpoints", *here, "--include-fenced-brokers")
    assert ran.out.split()[-4:] == [host, port, "-", "unfenced"]
    (row,) = kafkalog("cluster", "endpoints", "--json", *here).rows()
    assert (row["node"], row["host"], row["port"]) == (1, host, int(port))
    ran = kafkalog("cluster", "id", "1", *here)
    assert (ran.status, ran.err) == (2, "kafkalog: cluster id: found '1', wanted no name\n")


def test_the_log_directories(
    kafkalog: Command, here: tuple[str, str], tmp_path: Path
) -> None:  # fmt: skip
    (row,) = kafkalog("cluster", "log-dirs", "1", "--topic-list", "orders", "--json", *here).rows()
    assert (row["node"], row["log_dir"], row["error"]) == (1, str(tmp_path / "data"), None)
    assert row["replicas"] == 3 and row["usable_bytes"] > 0
    assert row["partitions"].keys() == {"orders-0", "orders-1", "orders-2"}
    assert all(one["size_bytes"] > 5 for one in row["partitions"].values())
    assert str(tmp_path / "data") in kafkalog("cluster", "log-dirs", *here).out
    ran = kafkalog("cluster", "log-dirs", "7", *here)
    assert ran.status == 1 and "node 7: the cluster has 1" in ran.err
    ran = kafkalog("cluster", "log-dirs", "one", *here)
    assert ran.status == 2 and "found 'one', wanted a node's number" in ran.err


def test_a_broker_is_unregistered(kafkalog: Command, here: tuple[str, str], peer: Peer) -> None:
    """A single node refuses to remove another; a real cluster gets the id that was given."""
    ran = kafkalog("cluster", "unregister", "7", *here)
    assert ran.status == 1
    assert "broker 7: BROKER_ID_NOT_REGISTERED: Broker ID 7 is not currently registered" in ran.err
    peer.on(apis.UNREGISTER_BROKER, {"error_code": 0, "error_message": None})
    ran = kafkalog("cluster", "unregister", "3", "--bootstrap-server", peer.servers)
    assert (ran.status, ran.out) == (0, "broker 3 is no longer registered\n")
    assert [one.broker_id for one in peer.sent(apis.UNREGISTER_BROKER)] == [3]
    assert kafkalog("cluster", "unregister", *here).status == 2


def test_records_are_deleted(kafkalog: Command, here: tuple[str, str], tmp_path: Path) -> None:
    ran = kafkalog("topics", "delete-records", "orders:0,2", "--before", "2", *here)
    assert (ran.status, ran.out.splitlines()) == (
        0, [f"partition: orders-{n}\tlow_watermark: 2" for n in (0, 2)]
    )  # fmt: skip
    rows = [{"topic": "orders", "partition": 0, "offset": -1},
            {"topic": "orders", "partition": 1, "offset": 99}]  # fmt: skip
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": rows, "version": 1}))
    ran = kafkalog("topics", "delete-records", "--offset-json-file", file, *here)
    assert (ran.status, ran.out) == (1, "partition: orders-0\tlow_watermark: 5\n")
    assert "orders-1: " in ran.err and "OFFSET_OUT_OF_RANGE" in ran.err


@pytest.mark.parametrize(
    "words",
    [["orders"], ["orders", "--before", "-7"], ["orders", "--before", "soon"], ["--before", "3"]],
)
def test_delete_records_needs_offsets(
    kafkalog: Command, here: tuple[str, str], words: list[str]
) -> None:
    assert kafkalog("topics", "delete-records", *words, *here).status == 2


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"partitions": [{"topic": "orders"}]}',
        '{"partitions": [{"topic": "t", "partition": 0, "offset": -2}]}',
    ],
)
def test_a_file_of_offsets_that_is_none(
    kafkalog: Command, here: tuple[str, str], tmp_path: Path, text: str
) -> None:  # fmt: skip
    file = tmp_path / "offsets.json"
    file.write_text(text)
    ran = kafkalog("topics", "delete-records", "--offset-json-file", file, *here)
    assert ran.status == 2 and str(file) in ran.err


@pytest.mark.parametrize(
    ("kind", "number", "source"), [("groups", 32, 8), ("client-metrics", 16, 7)]
)
def test_settings_of_groups_and_client_metrics(
    kafkalog: Command, peer: Peer, kind: str, number: int, source: int
) -> None:
    """Sent to a broker that has such settings: ours has none."""
    entity = {"resource_type": number, "resource_name": "g"}
    setting = {"name": "interval.ms", "value": "5000", "config_source": source}
    peer.on(apis.INCREMENTAL_ALTER_CONFIGS, {"responses": [{"error_code": 0,
            "error_message": None, **entity}]})  # fmt: skip
    peer.on(apis.DESCRIBE_CONFIGS, {"results": [{"error_code": 0, "error_message": None,
            "configs": [setting], **entity}]})  # fmt: skip
    named = ("--entity-type", kind, "--entity-name", "g", "--bootstrap-server", peer.servers)
    ran = kafkalog("configs", "alter", "--add-config", "interval.ms=5000", *named)
    assert ran.status == 0, ran.err
    (asked,) = peer.sent(apis.INCREMENTAL_ALTER_CONFIGS)[0].resources
    assert (asked.resource_type, asked.resource_name) == (number, "g")
    (row,) = kafkalog("configs", "describe", "--json", *named).rows()
    assert (row["name"], row["value"]) == ("interval.ms", "5000")


def test_replacements_of_kafkas_scripts_exist() -> None:
    for text in filter(None, OF_KAFKA.values()):
        for one in text.split(", "):
            command, _, rest = one.partition(" ")
            assert command in COMMANDS, one
            words = parser_of(command)._option_string_actions
            module = import_module(f"kafkalog.cli.{command.replace('-', '_')}")
            assert all(
                word in words if word.startswith("-") else word in [*module.ACTIONS, *TYPES]
                for word in rest.split()
            ), one
