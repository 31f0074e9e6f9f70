"""The coordinator behind a broker's port answers as it does at the desk.

The scripts that also run against Apache Kafka, over sockets, the data plane and real files.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from kafkalog.server.broker import Broker
from tests.kafka.referee.test_groups import MORE
from tests.unit.coordinator.both_sides import SETTINGS, KafkaSide, OurSide, Side
from tests.unit.coordinator.scripts import SCRIPTS, all_asked


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Side]]]:
    """Our broker with the topics of the scripts."""
    settings: dict[str, object] = {**SETTINGS, **MORE, "listeners": "PLAINTEXT://127.0.0.1:0"}
    directory: Path = tmp_path_factory.mktemp("broker") / "data"
    with Broker(directory, config=settings) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        KafkaSide(port).prepare()
        with all_asked(lambda: KafkaSide(port)) as sides:
            yield sides


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_broker_answers_as_the_core(name: str, asked: dict[str, Future[Side]]) -> None:
    ours = OurSide()
    SCRIPTS[name](ours)
    pairs = zip(asked[name].result().transcript, ours.transcript, strict=True)
    for number, (broker, core) in enumerate(pairs):
        assert broker == core, f"answer {number}"
