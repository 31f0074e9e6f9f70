"""The first record to a topic that does not exist, which the broker creates for it.

A client that has just connected sends one record of 100 B with its default settings but linger 0,
and waits for its acknowledgement; each time to another topic, a quarter of a second after the
last, as clients pause between requests for metadata.  A figure is the median of twenty such
records by one client, in a process of its own.  Three nodes: three replicas,
min.insync.replicas=2.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker.brokers import OURS, brokers
from benchmarks.broker.clusters import OurCluster
from benchmarks.measure import Part, Want, scaled
from tests.support import apache
from tests.support.zookeeper import ZooKeeper

CLIENTS = ("kafkalog", "confluent-kafka", "kafka-python")
MODULES = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}
RECORDS = scaled(20, 3)
WANTED_S = 0.015
PAUSE_S = 0.25
CREATING = {"auto.create.topics.enable": "true"}
COPIES = {"default.replication.factor": "3", "min.insync.replicas": "2"}
SEND = """
import json, statistics, sys, time
client, bootstrap, pause_s, *topics = sys.argv[1:]
value = b"v" * 100
if client == "kafkalog":
    import kafkalog
    producer = kafkalog.Producer(bootstrap, linger_ms=0)
    send = lambda topic: producer.send(topic, value).result()
elif client == "kafka-python":
    from kafka import KafkaProducer
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","))
    send = lambda topic: producer.send(topic, value).get(60)
else:
    from confluent_kafka import Producer
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    def send(topic):
        producer.produce(topic, value)
        assert producer.flush(60) == 0
found = []
send(topics[0])  # connects
for topic in topics[1:]:
    time.sleep(float(pause_s))
    begun_s = time.perf_counter()
    send(topic)
    found.append(time.perf_counter() - begun_s)
print(json.dumps(statistics.median(found)))
"""
_numbers = count()


def first_s(client: str, bootstrap: str) -> float:
    """Seconds until the first record of a new topic is acknowledged: the median of RECORDS."""
    topics = [f"fresh-{next(_numbers)}" for _ in range(RECORDS + 1)]
    command = [sys.executable, "-W", "ignore", "-c", SEND, client, bootstrap, str(PAUSE_S)]
    done = subprocess.run([*command, *topics], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return float(json.loads(done.stdout))


@pytest.fixture(params=["one node", "three nodes"])
def place(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, str]]:
    """How many nodes, and their addresses."""
    if request.param == "one node":
        with brokers(folder, [OURS], settings=CREATING) as running:
            yield request.param, running[OURS].bootstrap
        return
    pytest.importorskip("kazoo")
    try:
        with (
            ZooKeeper(folder / "zookeeper") as zookeeper,
            OurCluster(folder, zookeeper, "os", {**CREATING, **COPIES}) as cluster,
        ):
            yield request.param, cluster.bootstrap
    except apache.Unavailable as reason:
        pytest.skip(str(reason))


def test_first_record(measure_together: Any, place: tuple[str, str]) -> None:
    nodes, bootstrap = place
    key = f"first-{nodes.partition(' ')[0]}"

    def side(client: str) -> Callable[[], dict[str, float]]:
        return lambda: {key: first_s(client, bootstrap)}

    for module in MODULES.values():
        pytest.importorskip(module)
    part = Part(
        key, f"The first record to a topic that does not exist, {nodes}", "s",
        [Want(client, figure=WANTED_S) for client in CLIENTS],
    )  # fmt: skip
    measure_together([part], {client: side(client) for client in CLIENTS}, rounds=3)
