"""`kafkalog mirror` from ours to Apache Kafka, and from there back to ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.types import TopicPartition
from tests.support import brokers, mirrors
from tests.support.mirrors import PARTITIONS, TOPIC
from tests.support.stable import stable_ends


@pytest.mark.java
def test_there_and_back(
    apache_kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records, settings and groups, through a broker of Apache Kafka: they come back unchanged, and
    records added on the way follow."""
    kafka = apache_kafka
    with (
        brokers.running("kafkalog", tmp_path / "first") as first,
        brokers.running("kafkalog", tmp_path / "last") as last,
    ):
        with kafkalog.Admin(first) as admin:
            settings = {"retention.ms": "-1", "segment.ms": "700000"}
            admin.create_topic(TOPIC, PARTITIONS, config=settings)
        mirrors.fill(first, "there")
        places = mirrors.commit(first, "g", TOPIC, "there")

        def mirror(source: str, target: str) -> str:
            words = ["--from", source, "--to", target, "--topics", TOPIC, "--groups", "g"]
            assert main(["mirror", "--once", *words]) == 0
            stable_ends(target, TOPIC)
            return capsys.readouterr().out

        assert f"of 1 topic ({PARTITIONS} partitions)" in mirror(first, kafka)
        mirror(kafka, last)
        mirrors.fill(first, "again", 5)
        mirror(first, kafka)
        mirror(kafka, last)
        wanted = mirrors.rows(first, TOPIC)
        assert mirrors.rows(kafka, TOPIC) == wanted
        assert mirrors.rows(last, TOPIC) == wanted
        with kafkalog.Admin(last) as admin:
            found = admin.describe_configs([("topic", TOPIC)])["topic", TOPIC]
            assert {name: found[name].value for name in settings} == settings
            moved = admin.list_group_offsets("g")
        for tp, offset in places.items():
            here = mirrors.rest(first, tp, offset)
            there = mirrors.rest(last, tp, moved[TopicPartition(*tp)].offset)
            assert there[len(there) - len(here) :] == here
