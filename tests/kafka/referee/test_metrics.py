"""The MBeans that our table names as those of the same meaning are Kafka's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkalog import Consumer, Producer
from kafkalog.metrics.table import METRICS
from tests.support import apache
from tests.support.waiting import LIMIT_S

pytestmark = [pytest.mark.java, pytest.mark.long]

ONLY_DOCUMENTED = {"kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs"}
"""Kafka's controllers on ZooKeeper had it; its document still names it."""


class _Shown(apache.Broker):
    """A broker of Kafka with a port for JMX."""

    jmx = 0

    def command(self, properties: Path, heap: str, folder: Path) -> list[str]:
        found = super().command(properties, heap, folder)
        jmx = "-Dcom.sun.management.jmxremote"
        found[1:1] = [
            f"{jmx}.port={self.jmx}", f"{jmx}.rmi.port={self.jmx}", f"{jmx}.authenticate=false",
            f"{jmx}.ssl=false", "-Djava.rmi.server.hostname=127.0.0.1",
        ]  # fmt: skip
        return found


def wanted(bean: str) -> tuple[str, str, str]:
    """Domain, type, and the name of the bean or of its attribute."""
    match = re.fullmatch(r"([a-z.]+):type=([\w-]+)(?:,name=| )([\w-]+)", bean)
    assert match, bean
    return match[1], match[2], match[3]


def test_kafka_has_the_beans_of_the_same_meaning(tmp_path: Path) -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    broker = _Shown(tmp_path / "data")
    broker.jmx = apache.free_port()
    with broker:
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("t", b"x").result(LIMIT_S)
        with Consumer(
            broker.bootstrap_servers, "t", group="g", auto_offset_reset="earliest"
        ) as consumer:
            next(iter(consumer))
            consumer.commit()
        said = apache.ask("Beans", str(broker.jmx))
    there = {tuple(line.split(" ", 2)) for line in said.splitlines()}
    assert len(there) > 100
    missing = {one.kafka for one in METRICS if one.kafka and wanted(one.kafka) not in there}
    assert missing == ONLY_DOCUMENTED
