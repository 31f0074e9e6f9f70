"""Other people's exporters of lag and metrics, which ask brokers through Kafka's protocol.

Each is started unmodified against a cluster with a topic, a group and its member; its answers over
HTTP must be the cluster's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from kafkalog import Admin, Consumer, Producer
from kafkalog.types import TopicPartition
from tests.kafka.suites.suite import Outcome, Place, Suite, call
from tests.support import apache
from tests.unit.net.network import wait_for

__all__ = ["BURROW", "KAFKA_EXPORTER", "KMINION"]

TOPIC, GROUP = "exported", "readers"
WRITTEN, READ = 7, 4
"""Records of partition 1, and how many of them the group has read."""
PLAINTEXT, SASL, SSL = "PLAINTEXT", "SASL_PLAINTEXT", "SSL"
USER, PASSWORD = "exporter", "exporter-secret"
Sample = tuple[str, Mapping[str, str]]


def _install(module: str) -> Callable[[Path], None]:
    """Build a program out of the module cache."""

    def prepare(folder: Path) -> None:
        os.environ["GOBIN"] = str(folder)
        call(["go", "install", module], folder)
        assert any(os.access(path, os.X_OK) for path in folder.iterdir() if path.is_file()), module

    return prepare


@contextlib.contextmanager
def _life(bootstrap: str) -> Iterator[None]:
    """A topic of two partitions, and a group with one member that has read a part of it."""
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topic(TOPIC, 2, 1)
        for _ in range(WRITTEN):
            producer.send(TOPIC, b"v", partition=1)
        producer.flush()
        with Consumer(bootstrap, group=GROUP, auto_commit=False) as consumer:
            consumer.subscribe([TOPIC])
            wait_for(lambda: consumer.poll(100) or consumer.assignment, "the member's partitions")
            consumer.commit({TopicPartition(TOPIC, 0): 0, TopicPartition(TOPIC, 1): READ})
            yield


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def _samples(url: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of a page in Prometheus's format."""
    with contextlib.suppress(OSError):
        families = text_string_to_metric_families(_page(url))
        return {
            (one.name, frozenset(one.labels.items())): one.value
            for family in families
            for one in family.samples
        }
    return {}


def _value(samples: Mapping[Any, float], name: str, **labels: str) -> float | None:
    """The only sample of this name with these labels; None: there is none, or several."""
    found = [
        value for (one, its), value in samples.items()
        if one == name and set(labels.items()) <= its
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


def _checked(
    command: list[str], folder: Path, env: Mapping[str, str], url: str,
    wanted: Mapping[str, tuple[str, dict[str, str], float]],
) -> dict[str, Outcome]:  # fmt: skip
    """Start an exporter, wait for the samples, and stop it; each wanted one is a test."""
    with (folder / "last.log").open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **env}, stdout=output, stderr=output
        )
        try:
            found: dict[Any, float] = {}

            def right(name: str) -> bool:
                sample, labels, value = wanted[name]
                return _value(found, sample, **labels) == value

            def all_right() -> bool:
                found.clear()
                found.update(_samples(url))
                return all(map(right, wanted)) or process.poll() is not None

            with contextlib.suppress(AssertionError):
                wait_for(all_right, "the samples")
            (folder / "last.txt").write_text("\n".join(map(str, sorted(found.items(), key=str))))
            return {name: "passed" if right(name) else "failed" for name in wanted}
        finally:
            process.terminate()
            process.wait(30)


def _each_way(
    place: Place, run: Callable[[str, str], dict[str, Outcome]], only: str | None
) -> dict[str, Outcome]:
    """The results without security, and by other names with a login by SCRAM-SHA-256 and by TLS."""
    with _life(place.bootstrap):
        found = run(place.bootstrap, PLAINTEXT)
        for protocol in (SASL, SSL):
            secured = run(place.at[protocol], protocol)
            found |= {f"{name}, {protocol}": outcome for name, outcome in secured.items()}
    return {name: outcome for name, outcome in found.items() if only in (None, name)}


# ---- kafka_exporter --------------------------------------------------------------------------


def _kafka_exporter(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    def run(bootstrap: str, protocol: str) -> dict[str, Outcome]:
        port = apache.free_port()
        command = [
            str(folder / "kafka_exporter"), f"--kafka.server={bootstrap}",
            f"--web.listen-address=127.0.0.1:{port}", "--refresh.metadata=1s",
        ]  # fmt: skip
        if protocol == SSL:
            command += ["--tls.enabled", f"--tls.ca-file={place.authority}"]
        if protocol == SASL:
            command += [
                "--sasl.enabled", "--sasl.mechanism=scram-sha256", f"--sasl.username={USER}",
                f"--sasl.password={PASSWORD}",
            ]  # fmt: skip
        one = {"topic": TOPIC, "partition": "1"}
        group = {"consumergroup": GROUP, "topic": TOPIC}
        wanted = {
            "brokers": ("kafka_brokers", {}, 1),
            "partitions": ("kafka_topic_partitions", {"topic": TOPIC}, 2),
            "end": ("kafka_topic_partition_current_offset", one, WRITTEN),
            "start": ("kafka_topic_partition_oldest_offset", one, 0),
            "leader": ("kafka_topic_partition_leader", one, 1),
            "replicas": ("kafka_topic_partition_replicas", one, 1),
            "in sync": ("kafka_topic_partition_in_sync_replica", one, 1),
            "under-replicated": ("kafka_topic_partition_under_replicated_partition", one, 0),
            "offset": ("kafka_consumergroup_current_offset", {**group, "partition": "1"}, READ),
            "lag": ("kafka_consumergroup_lag", {**group, "partition": "1"}, WRITTEN - READ),
            "lag of the topic": ("kafka_consumergroup_lag_sum", group, WRITTEN - READ),
            "members": ("kafka_consumergroup_members", {"consumergroup": GROUP}, 1),
        }
        return _checked(command, folder, {}, f"http://127.0.0.1:{port}/metrics", wanted)

    return _each_way(place, run, only)


# ---- kminion ---------------------------------------------------------------------------------


def _kminion(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    def asked(bootstrap: str, protocol: str, mode: str) -> dict[str, Outcome]:
        port = apache.free_port()
        env = {
            "KAFKA_BROKERS": bootstrap, "EXPORTER_HOST": "127.0.0.1", "EXPORTER_PORT": str(port),
            "MINION_CONSUMERGROUPS_SCRAPEMODE": mode, "MINION_ENDTOEND_ENABLED": "true",
        }  # fmt: skip
        if protocol == SSL:
            env |= {"KAFKA_TLS_ENABLED": "true", "KAFKA_TLS_CAFILEPATH": str(place.authority)}
        if protocol == SASL:
            env |= {
                "KAFKA_SASL_ENABLED": "true", "KAFKA_SASL_MECHANISM": "SCRAM-SHA-256",
                "KAFKA_SASL_USERNAME": USER, "KAFKA_SASL_PASSWORD": PASSWORD,
            }  # fmt: skip
        one = {"topic_name": TOPIC, "partition_id": "1"}
        group = {"group_id": GROUP, "topic_name": TOPIC}
        wanted = {
            "brokers": ("kminion_kafka_cluster_info", {"broker_count": "1"}, 1),
            "topic": ("kminion_kafka_topic_info", {"topic_name": TOPIC, "partition_count": "2"}, 1),
            "end": ("kminion_kafka_topic_partition_high_water_mark", one, WRITTEN),
            "start": ("kminion_kafka_topic_partition_low_water_mark", one, 0),
            "state": (
                "kminion_kafka_consumer_group_info", {"group_id": GROUP, "state": "Stable"}, 1
            ),
            "members": ("kminion_kafka_consumer_group_members", {"group_id": GROUP}, 1),
            "lag": (
                "kminion_kafka_consumer_group_topic_partition_lag",
                {**group, "partition_id": "1"}, WRITTEN - READ,
            ),
            "lag of the topic": (
                "kminion_kafka_consumer_group_topic_lag", group, WRITTEN - READ
            ),
        }  # fmt: skip
        url = f"http://127.0.0.1:{port}/metrics"
        found = _checked([str(folder / "kminion")], folder, env, url, wanted)
        return {f"{name}, by {mode}": outcome for name, outcome in found.items()}

    def run(bootstrap: str, protocol: str) -> dict[str, Outcome]:
        modes = ("adminApi", "offsetsTopic")
        return {n: o for mode in modes for n, o in asked(bootstrap, protocol, mode).items()}

    return _each_way(place, run, only)


# ---- Burrow ----------------------------------------------------------------------------------

_BURROW = """\
[client-profile.test]
client-id="burrow"
kafka-version="{version}"
{login}
[cluster.local]
class-name="kafka"
servers=["{bootstrap}"]
client-profile="test"
topic-refresh=1
offset-refresh=1
[consumer.local]
class-name="kafka"
cluster="local"
servers=["{bootstrap}"]
client-profile="test"
start-latest=false
[httpserver.default]
address="127.0.0.1:{port}"
"""
_LOGIN = f"""\
sasl="test"
[sasl.test]
mechanism="SCRAM-SHA-256"
handshake-first=true
username="{USER}"
password="{PASSWORD}"
"""
_TLS = """\
tls="test"
[tls.test]
cafile="{authority}"
"""


def _burrow(folder: Path, place: Place, only: str | None) -> dict[str, Outcome]:
    def run(bootstrap: str, protocol: str) -> dict[str, Outcome]:
        port = apache.free_port()
        text = _BURROW.format(
            version="3.6.0",
            bootstrap=bootstrap,
            port=port,
            login={SASL: _LOGIN, SSL: _TLS.format(authority=place.authority)}.get(protocol, ""),
        )
        (folder / "burrow.toml").write_text(text)
        group = {"cluster": "local", "consumer_group": GROUP}
        one = {"topic": TOPIC, "partition": "1"}
        wanted = {
            "end": ("burrow_kafka_topic_partition_offset", {"cluster": "local", **one}, WRITTEN),
            "lag": ("burrow_kafka_consumer_partition_lag", {**group, **one}, WRITTEN - READ),
            "lag of the group": ("burrow_kafka_consumer_lag_total", group, WRITTEN - READ),
        }
        command = [str(folder / "Burrow"), "--config-dir", str(folder)]
        return _checked(command, folder, {}, f"http://127.0.0.1:{port}/metrics", wanted)

    return _each_way(place, run, only)


_SECURED: Any = {
    "listeners": {SASL: None, SSL: None},
    "scram": [(USER, "SCRAM-SHA-256", PASSWORD)],
}
KAFKA_EXPORTER = Suite(
    "kafka_exporter", "1.9.0", _install("github.com/danielqsj/kafka_exporter@v1.9.0"),
    _kafka_exporter, {}, **_SECURED,
)  # fmt: skip
KMINION = Suite(
    "kminion", "2.3.5", _install("github.com/cloudhut/kminion/v2@v2.3.5"), _kminion, {}, **_SECURED
)
BURROW = Suite(
    "Burrow", "1.9.5", _install("github.com/linkedin/Burrow@v1.9.5"), _burrow, {}, **_SECURED
)
