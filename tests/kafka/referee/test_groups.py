"""Apache Kafka is the referee: the same requests, the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.support import apache
from tests.unit.coordinator.both_sides import SETTINGS, KafkaSide, OurSide, Side
from tests.unit.coordinator.scripts import SCRIPTS, all_asked

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

MORE = {"offsets.topic.num.partitions": 4, "auto.create.topics.enable": "false"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Side]]]:
    """An Apache Kafka with the topics of the scripts."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    settings = "".join(f"{name}={value}\n" for name, value in {**SETTINGS, **MORE}.items())
    directory = tmp_path_factory.mktemp("kafka") / "data"
    with apache.Broker(directory, settings) as broker:
        KafkaSide(broker.port).prepare()
        with all_asked(lambda: KafkaSide(broker.port)) as sides:
            yield sides


@pytest.mark.parametrize("name", SCRIPTS)
def test_kafka_answers_the_same(name: str, asked: dict[str, Future[Side]]) -> None:
    ours = OurSide()
    SCRIPTS[name](ours)
    pairs = zip(asked[name].result().transcript, ours.transcript, strict=True)
    for number, (kafka, kafkalog) in enumerate(pairs):
        assert kafkalog == kafka, f"answer {number}"
