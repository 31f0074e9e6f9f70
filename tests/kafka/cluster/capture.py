"""Recreate tests/unit/zookeeper/znodes.json: python -m tests.kafka.cluster.capture

Two brokers of Kafka 3.9; then one of them is killed, so that a topic cannot be deleted and a
partition cannot be moved.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from kafkalog.wire import apis
from kafkalog.zookeeper.session import Session
from tests.kafka.cluster import deeds
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.support.zookeeper import Broker, ZooKeeper

WHERE = Path(__file__).parents[2] / "unit" / "metadata" / "zookeeper" / "znodes.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with ZooKeeper(folder / "zookeeper") as zookeeper:
            hosts = f"{zookeeper.hosts}/kafka"
            with (
                Broker(folder / "one", hosts, 1, deeds.SETTINGS + "broker.rack=r1\n") as one,
                Broker(folder / "two", hosts, 2, deeds.SETTINGS) as two,
                Session(hosts, lambda _: None) as session,
            ):
                do(Raw(one.bootstrap_servers), two, session)
                WHERE.write_text(shown(session))


def do(raw: Raw, two: Broker, session: Session) -> None:
    """Run all steps."""
    wait_for(lambda: len(raw.call(apis.METADATA, 9, topics=[]).brokers) == 2, "both")
    deeds.create(raw, {"plain": [[1, 2], [2, 1]], "moved": [[1]], "gone": [[1, 2], [2, 1]]})
    deeds.settings(raw)
    deeds.producer_id(raw)
    two.kill()  # its session outlives it: a partition may still be moved to it
    moved = {"name": "moved", "partitions": [{"partition_index": 0, "replicas": [2]}]}
    done = raw.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=10_000, topics=[moved])
    assert not done.responses[0].partitions[0].error_code, done
    wait_for(lambda: session.read("/brokers/ids/2") is None, "its end")
    raw.call(apis.DELETE_TOPICS, 5, topic_names=["gone"], timeout_ms=1000)


def shown(session: Session) -> str:
    rows = {
        path: [None if znode.data is None else znode.data.decode(), znode.version, znode.created]
        for path, znode in sorted(session.tree("/").items())
    }
    lines = [f" {json.dumps(path)}: {json.dumps(row)}" for path, row in rows.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    main()
