"""Nodes reachable only on the controller's listener: they know only what the controller sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.wire import apis
from tests.support.apache import free_port
from tests.support.raw import Raw
from tests.support.waiting import wait_for

NAME = "CONTROL"


class Place:
    """A node's listeners and what it advertises: for the brokers' listener a port on which nothing
    listens."""

    def __init__(self) -> None:
        self.port, self.control, away = free_port(), free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        at = f"PLAINTEXT://127.0.0.1:{{}},{NAME}://127.0.0.1:{self.control}"
        self.settings = {
            "listeners": at.format(self.port),
            "advertised.listeners": at.format(away),
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{NAME}:PLAINTEXT",
            "control.plane.listener.name": NAME,
        }


def begin(place: Place, path: Path, zookeeper: str, node: int) -> kafkalog.Broker:
    """Start one of our nodes."""
    more = {"zookeeper.connect": zookeeper, "node.id": node}
    return kafkalog.Broker(path, config={**place.settings, **more})


def knows(place: Place, brokers: int, controller: int) -> bool:
    """True if a node knows this many brokers and this controller."""
    with Raw(place.address) as raw:
        found = raw.call(apis.METADATA, 9, topics=[])
    return (len(found.brokers), found.controller_id) == (brokers, controller)


def serves(place: Place, topic: str, leader: int, asked: Place) -> None:
    """The controller creates a topic when `asked` is asked; the node at `place`, which can give a
    producer an id, leads it."""
    row: dict[str, Any] = {
        "name": topic, "num_partitions": -1, "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [leader]}],
    }  # fmt: skip
    with Raw(asked.address) as raw:
        made = raw.call(apis.CREATE_TOPICS, 5, topics=[row], timeout_ms=30_000)
        assert not made.topics[0].error_code, made
    with Raw(place.address) as raw:
        wait_for(lambda: raw.produce(topic, b"x").error_code == 0, "it is led there")
        asked_for = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        wait_for(
            lambda: raw.call(apis.INIT_PRODUCER_ID, 4, **asked_for).error_code == 0,
            "the controller gave ids",
        )
