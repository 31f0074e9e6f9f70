"""Every name in the tables of docs/client-options.md exists, in this package or in the others."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import kafkalog
from kafkalog.client.consumer import settings as consumers
from kafkalog.client.link.transport import Options
from kafkalog.client.producer import settings as producers
from kafkalog.config.admin import AdminConfig
from kafkalog.config.consumer import ConsumerConfig
from kafkalog.config.login import LoginSettings
from kafkalog.config.producer import ProducerConfig
from kafkalog.config.share_consumer import ShareConsumerConfig
from kafkalog.config.ssl import SslSettings

PAGE = Path(__file__).resolve().parents[3] / "docs" / "client-options.md"
KINDS = ("Producer", "Consumer", "Admin")
EVERY = (*KINDS, "ShareConsumer")
"""The others' packages have no share consumer."""
CONFIGS = {"Producer": ProducerConfig, "Consumer": ConsumerConfig, "Admin": AdminConfig,
           "ShareConsumer": ShareConsumerConfig}  # fmt: skip


def names(kind: str, column: int) -> list[str]:
    """The names in a column: ours, Kafka's, confluent-kafka's or kafka-python's."""
    text = PAGE.read_text(encoding="utf-8").partition(f"### {kind}\n")[2]
    table = re.split(r"\n#", text)[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    cells = [row[column].strip() for row in rows]
    assert cells
    assert all(cell == "-" or re.fullmatch(r"`[\w.]+`", cell) for cell in cells), cells
    return [cell.strip("`") for cell in cells if cell != "-"]


@pytest.mark.parametrize("kind", EVERY)
def test_our_names_are_arguments_and_all_that_have_a_word_there_are_told(kind: str) -> None:
    parameters = set(inspect.signature(getattr(kafkalog, kind)).parameters)
    ours = names(kind, 0)
    assert set(ours) <= parameters
    own = {"where", "topics", "pattern", "interceptors", "on_delivery", "config", "clock"}
    own |= {"controllers"}
    assert parameters - set(ours) <= own


@pytest.mark.parametrize("kind", EVERY)
def test_kafkas_names_are_settings(kind: str) -> None:
    assert set(names(kind, 1)) <= set(CONFIGS[kind].table)


@pytest.mark.parametrize("kind", KINDS)
def test_the_names_of_confluent_kafka(kind: str) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    for name in names(kind, 2):
        try:
            # Few settings accept this value: unknown names are reported before wrong values.
            confluent.Producer({name: "nonsense"}) if kind == "Producer" else confluent.Consumer(
                {"group.id": "g", name: "nonsense"}
            )
        except confluent.KafkaException as problem:
            assert "No such configuration property" not in str(problem), name
        except (TypeError, ValueError):
            continue
    with pytest.raises(confluent.KafkaException, match="No such configuration property"):
        confluent.Producer({"linger.mss": "1"})


@pytest.mark.parametrize("kind", KINDS)
def test_the_names_of_kafka_python(kind: str) -> None:
    kafka = pytest.importorskip("kafka")
    cls = {"Producer": "KafkaProducer", "Consumer": "KafkaConsumer", "Admin": "KafkaAdminClient"}
    assert set(names(kind, 3)) <= set(getattr(kafka, cls[kind]).DEFAULT_CONFIG)


PATIENCE = {
    "connections.max.idle.ms": 540_000, "metadata.recovery.rebootstrap.trigger.ms": 300_000,
    "metadata.recovery.strategy": "rebootstrap", "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000, "request.timeout.ms": 30_000, "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000, "socket.connection.setup.timeout.ms": 10_000,
}  # fmt: skip
JAVAS: dict[str, dict[str, object]] = {
    "Producer": {
        **PATIENCE, "acks": "all", "batch.size": 16_384, "buffer.memory": 33_554_432,
        "compression.gzip.level": -1, "compression.lz4.level": 9, "compression.zstd.level": 3,
        "compression.type": "none", "delivery.timeout.ms": 120_000, "enable.idempotence": True,
        "linger.ms": 5, "max.block.ms": 60_000, "max.in.flight.requests.per.connection": 5,
        "max.request.size": 1_048_576, "metadata.max.age.ms": 300_000,
        "metadata.max.idle.ms": 300_000, "partitioner.adaptive.partitioning.enable": True,
        "partitioner.availability.timeout.ms": 0, "retries": 2_147_483_647,
        "transaction.timeout.ms": 60_000,
    },
    "Consumer": {
        **PATIENCE, "allow.auto.create.topics": True, "auto.commit.interval.ms": 5_000,
        "auto.offset.reset": "latest", "check.crcs": True, "client.rack": "",
        "default.api.timeout.ms": 60_000, "enable.auto.commit": True,
        "exclude.internal.topics": True, "fetch.max.bytes": 52_428_800, "fetch.max.wait.ms": 500,
        "fetch.min.bytes": 1, "group.protocol": "classic", "heartbeat.interval.ms": 3_000,
        "isolation.level": "read_uncommitted", "max.partition.fetch.bytes": 1_048_576,
        "max.poll.interval.ms": 300_000, "max.poll.records": 500, "metadata.max.age.ms": 300_000,
        "partition.assignment.strategy": "range,cooperative-sticky", "session.timeout.ms": 45_000,
    },
    "ShareConsumer": {
        **PATIENCE, "check.crcs": True, "client.rack": "", "default.api.timeout.ms": 60_000,
        "fetch.max.bytes": 52_428_800, "fetch.max.wait.ms": 500, "fetch.min.bytes": 1,
        "max.poll.interval.ms": 300_000, "max.poll.records": 500, "metadata.max.age.ms": 300_000,
        "share.acknowledgement.mode": "implicit", "share.acquire.mode": "batch_optimized",
    },
    "Admin": {
        **PATIENCE, "connections.max.idle.ms": 300_000, "default.api.timeout.ms": 60_000,
    },
}  # fmt: skip
SECURITY: dict[str, object] = {
    "sasl.login.refresh.window.factor": 0.8, "sasl.login.retry.backoff.max.ms": 10_000,
    "sasl.login.retry.backoff.ms": 100, "sasl.mechanism": "GSSAPI",
    "sasl.oauthbearer.header.urlencode": False, "security.protocol": "PLAINTEXT",
    "enable.metrics.push": True, "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.3"),
    "ssl.endpoint.identification.algorithm": "https", "ssl.keystore.type": "JKS",
    "ssl.protocol": "TLSv1.3", "ssl.truststore.type": "JKS",
}  # fmt: skip
"""Defaults of every client; all others of TLS and logins are null in Java, and empty here."""
OWN = {
    "client.id", "enable.auto.offset.store", "group.id", "group.instance.id",
    "group.remote.assignor", "kafkalog.storage.timeout.ms", "partitioner", "transactional.id",
}  # fmt: skip
"""Settings that Java's clients lack, or for which they have no default."""


@pytest.mark.parametrize("kind", EVERY)
def test_defaults_are_javas(kind: str) -> None:
    """As in Apache Kafka 4, except batch.size; see docs/client-options.md."""
    found = {name: one.default for name, one in CONFIGS[kind].table.items()}
    javas = JAVAS[kind] | SECURITY
    secured = {*SslSettings.table, *LoginSettings.table}
    others = found.keys() - javas.keys()
    assert others - secured <= OWN
    assert [name for name in others & secured if found[name]] == ["sasl.login.read.timeout.ms"]
    differ = {name for name, value in javas.items() if found[name] != value}
    assert differ == ({"batch.size"} if kind == "Producer" else set())


def options(kind: str, **settings: int) -> Options:
    """The options a client of a kind derives from its settings, by names with underscores."""
    config = CONFIGS[kind].of({name.replace("_", "."): one for name, one in settings.items()})
    if isinstance(config, ProducerConfig):
        return producers.client_options(config)
    assert isinstance(config, (ConsumerConfig, AdminConfig))
    return consumers.client_options(config)


@pytest.mark.parametrize("kind", KINDS)
def test_to_connect_takes_no_longer_than_to_answer(kind: str) -> None:
    usual = options(kind)
    assert (usual.connect_timeout_ms, usual.request_timeout_ms) == (10_000, 30_000)
    hasty = options(kind, request_timeout_ms=700)
    assert (hasty.connect_timeout_ms, hasty.request_timeout_ms) == (700, 700)
    assert options(kind, socket_connection_setup_timeout_ms=900).connect_timeout_ms == 900


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_wait_bounds_the_first(kind: str) -> None:
    """As in Java, where the longest is then every wait's length."""
    found = options(kind, retry_backoff_ms=5_000)
    assert (found.retry_backoff_ms, found.retry_backoff_max_ms) == (1_000, 1_000)
