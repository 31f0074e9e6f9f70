"""The coordinator behind a broker's port answers as it does at the desk.

The scripts that Apache Kafka is asked, too, over sockets, the data plane and real files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.server.broker import Broker
from tests.kafka.referee.test_groups import MORE
from tests.unit.coordinator import scripts
from tests.unit.coordinator.scripts import SCRIPTS, Script
from tests.unit.coordinator.sides import SETTINGS, KafkaSide, OurSide

QUICK = {
    scripts.two_members,
    scripts.leaving_joins,
    scripts.static_rebalances,
    scripts.offsets,
    scripts.offset_deletes,
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker of ours with the topics of the scripts."""
    settings: dict[str, object] = {**SETTINGS, **MORE, "listeners": "PLAINTEXT://127.0.0.1:0"}
    directory: Path = tmp_path_factory.mktemp("broker") / "data"
    with Broker(directory, config=settings) as broker:
        found = int(broker.bootstrap_servers.rpartition(":")[2])
        KafkaSide(found).prepare()
        yield found


def cases() -> Iterator[object]:
    for script in SCRIPTS:
        marks = [] if script in QUICK else [pytest.mark.slow]
        yield pytest.param(script, id=script.__name__, marks=marks)


@pytest.mark.parametrize("script", list(cases()))
def test_the_broker_answers_as_the_core(script: Script, port: int) -> None:
    served, ours = KafkaSide(port), OurSide()
    script(served)
    script(ours)
    pairs = zip(served.transcript, ours.transcript, strict=True)
    for number, (broker, core) in enumerate(pairs):
        assert broker == core, f"answer {number}"
