"""server.properties: which settings take effect, and that all others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.config.quorum import QUORUM
from kafkalog.config.served import check_served
from kafkalog.config.server import ServerConfig
from kafkalog.config.server_properties import read_properties, sorted_out
from kafkalog.errors import InvalidSetting
from kafkalog.server.broker import Broker
from tests.support.raw import Raw

KRAFT = """\
# As Apache Kafka 4.1 delivers it.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.replication.factor=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_the_file_that_kafka_delivers_is_a_node_of_a_quorum(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(KRAFT)
    found = sorted_out(read_properties(str(path)))
    config = ServerConfig(found.config)
    assert found.directory == "/tmp/kraft-combined-logs"
    check_served(config)
    assert config.serves_clients and config.controls
    assert config.listeners == ("PLAINTEXT://:9092", "CONTROLLER://:9093")
    assert config.topic.retention_ms == 168 * 3_600_000
    named = {note.partition(":")[0] for note in found.notes}
    assert named == set()


def test_without_roles_it_is_a_single_node(tmp_path: Path) -> None:
    """The controllers' listener and settings are left out, and that is said."""
    path = tmp_path / "server.properties"
    path.write_text(KRAFT.replace("process.roles", "# process.roles"))
    found = sorted_out(read_properties(str(path)))
    config = ServerConfig(found.config)
    check_served(config)
    assert not config.joins_quorum
    assert config.listeners == ("PLAINTEXT://:9092",)
    assert config.advertised_listeners == ("PLAINTEXT://localhost:9092",)
    named = {note.partition(":")[0] for note in found.notes}
    assert {"controller.listener.names", "controller.quorum.bootstrap.servers"} <= named
    assert "listeners" in named and "log.retention.hours" not in named


def test_every_role_takes_the_settings_of_the_quorum() -> None:
    """A node without a role needs none of them."""
    quorum = {
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "broker.heartbeat.interval.ms": "5",
        "controller.listener.names": "CONTROLLER", "controller.quorum.fetch.timeout.ms": "7",
        "broker.session.timeout.ms": "9", "metadata.log.segment.ms": "3",
    }  # fmt: skip
    for roles in ("broker", "controller", "broker,controller"):
        found = sorted_out({**quorum, "process.roles": roles})
        assert found.config == {**quorum, "process.roles": roles}
        assert found.notes == ()
        assert ServerConfig(found.config).joins_quorum
    assert sorted_out(quorum).config == {}


def test_unknown_names_are_named_with_the_nearest_known_one() -> None:
    found = sorted_out({"num.partitons": "3", "no.such.thing": "x", "num.io.threads": "2"})
    assert found.config == {"num.io.threads": "2"}
    assert found.notes == (
        "num.partitons: ignored: no setting has this name; the nearest is num.partitions",
        "no.such.thing: ignored: no setting has this name",
    )


def test_unsupported_settings_are_reported() -> None:
    names = ["share.coordinator.threads", "transaction.two.phase.commit.enable"]
    for name, note in zip(names, sorted_out(dict.fromkeys(names, "x")).notes, strict=True):
        assert note == f"{name}: ignored: it is not supported yet"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("follower.fetch.last.tiered.offset.enable", "kafkalog has no tiered storage"),
        ("remote.log.index.file.cache.ttl.ms", "kafkalog has no tiered storage"),
        ("config.providers", "values are used as they are in the file"),
        (
            "controller.quorum.auto.join.enable",
            "without process.roles this is no node of a KRaft cluster",
        ),
    ],
)
def test_new_settings_of_kafka_4_4_have_a_reason(name: str, why: str) -> None:
    assert sorted_out({name: "x"}).notes == (f"{name}: ignored: {why}",)


def test_the_zookeeper_eras_broker_id_is_the_node_id() -> None:
    found = sorted_out({"broker.id": "7", "zookeeper.connect": "localhost:2181"})
    assert found.config == {"node.id": "7", "zookeeper.connect": "localhost:2181"}
    assert sorted_out({"broker.id": "7", "node.id": "8"}).config == {"node.id": "8"}


@pytest.mark.parametrize("roles", ["", "broker", "broker,controller"])
def test_several_directories_are_refused(roles: str) -> None:
    found = sorted_out({"log.dirs": " /a , /b", "process.roles": roles})
    assert found.directories == ("/a", "/b")
    with pytest.raises(InvalidSetting, match=r"^log.dirs: found 2 directories \(/a, /b\), wanted"):
        assert found.directory


def test_notes_on_settings_are_true(tmp_path: Path) -> None:
    """A setting is reported as ignored exactly if it has no effect."""
    names = [name for name in ServerConfig.names() if name not in QUORUM]
    with_effect = {**dict.fromkeys(names, "1"), "zookeeper.connect": ""}
    found = sorted_out(with_effect)
    assert found.config == with_effect
    assert found.notes == ()
    ignored = [
        "metadata.log.dir", "metadata.log.segment.bytes", "metadata.log.segment.ms",
        "metadata.max.retention.ms", "metadata.max.idle.interval.ms",
    ]  # fmt: skip
    for name, note in zip(ignored, sorted_out(dict.fromkeys(ignored, "1")).notes, strict=True):
        assert note == f"{name}: ignored: the metadata log has no such part"


def test_the_settings_of_the_metadata_log_are_in_effect(tmp_path: Path) -> None:
    """From the file to the broker: here each change of the metadata creates a snapshot."""
    path = tmp_path / "server.properties"
    path.write_text(
        "metadata.log.max.record.bytes.between.snapshots=1\n"
        "metadata.log.max.snapshot.interval.ms=0\n"
        "metadata.max.retention.bytes=0\n"
    )
    found = sorted_out(read_properties(str(path)))
    assert found.notes == ()
    with Broker(tmp_path / "data", config=found.config) as broker:
        folder = Path(broker.path) / "__cluster_metadata-0"
        with Raw(broker.bootstrap_servers) as raw:
            for name in ("a", "b", "c"):
                before = set(folder.glob("*.checkpoint"))
                assert raw.create(name).error_code == 0
                assert set(folder.glob("*.checkpoint")) - before
        assert not (folder / f"{0:020d}.log").exists()  # deleted after a snapshot
