"""Apache Kafka is the referee: the same requests, the same answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import apache
from tests.unit.coordinator.scripts import SCRIPTS, Script
from tests.unit.coordinator.sides import SETTINGS, KafkaSide, OurSide

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

MORE = {"offsets.topic.num.partitions": 4, "auto.create.topics.enable": "false"}


@pytest.fixture(scope="module")
def kafka_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an Apache Kafka with the topics of the scripts."""
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    settings = "".join(f"{name}={value}\n" for name, value in {**SETTINGS, **MORE}.items())
    directory = tmp_path_factory.mktemp("kafka") / "data"
    with apache.Broker(directory, settings) as broker:
        KafkaSide(broker.port).prepare()
        yield broker.port


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_kafka_answers_the_same(script: Script, kafka_port: int) -> None:
    theirs, ours = KafkaSide(kafka_port), OurSide()
    script(theirs)
    script(ours)
    for number, (kafka, kafkalog) in enumerate(
        zip(theirs.transcript, ours.transcript, strict=True)
    ):
        assert kafkalog == kafka, f"answer {number}"
