"""Streams groups: the same requests to Apache Kafka and to our broker, the same answers and the
same records; and a directory that changes hands in a group's life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.broker import Broker
from tests.kafka.referee.test_share_groups import stored
from tests.support import apache
from tests.support.consumer_group_script import told_records
from tests.support.raw import Raw
from tests.support.streams_group_script import SETTINGS, STREAMS_KINDS, StreamsScript, counted

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

LINES = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())


@pytest.fixture(autouse=True)
def _jars() -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))


def told(script: StreamsScript, directory: Path) -> list[Any]:
    """The records of a closed directory's streams groups."""
    records = told_records(stored(directory), script.ids, STREAMS_KINDS.__contains__)
    return [(name, key, counted(value)) for name, key, value in records]


def described(script: StreamsScript) -> dict[str, Any]:
    """The group, without its topology: Kafka shows the sizes of internal topics once it has written
    something."""
    found: dict[str, Any] = script.plain(script.described().groups[0])
    return {name: value for name, value in found.items() if name != "topology"}


def test_kafka_answers_and_writes_the_same(tmp_path: Path) -> None:
    """Each answer, and each record in the order of the writes."""
    with Broker(tmp_path / "ours", config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
        ours = StreamsScript(raw)
        ours.prepare()
        ours.run()
    with (
        apache.Broker(tmp_path / "kafkas", LINES) as kafka,
        Raw(kafka.bootstrap_servers) as raw,
    ):
        theirs = StreamsScript(raw)
        theirs.prepare()
        theirs.run()
    for number, (mine, kafkas) in enumerate(zip(ours.transcript, theirs.transcript, strict=True)):
        assert mine == kafkas, f"answer {number}"
    written = told(ours, tmp_path / "ours"), told(theirs, tmp_path / "kafkas")
    for number, (mine, kafkas) in enumerate(zip(*written, strict=False)):
        assert mine == kafkas, f"record {number}"
    assert len(written[0]) == len(written[1])


def test_a_group_changes_hands(tmp_path: Path) -> None:
    """Its members go on with their epochs and tasks, from Kafka to us and back."""
    directory = tmp_path / "data"
    with apache.Broker(directory, LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
        script = StreamsScript(raw)
        script.prepare()
        script.come("a")
        script.created("a")
        script.come("b", rack_id="r", client_tags=[{"key": "k", "value": "v"}])
        script.rounds("a", "b")
        before = described(script)
    with Broker(directory, config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        script.rounds("a", "b")
        assert described(script) == before
        script.come("c")
        script.come("d")
        script.rounds(*"abcd")
        assert not script.say("b", -1).error_code
        script.rounds(*"acd")
        before = described(script)
    with apache.Broker(directory, LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        script.rounds(*"acd")
        assert described(script) == before
        script.say("c", -1)
        script.rounds("a", "d")
        script.described()
    assert all(not answer.get("error_code") for _, answer in script.transcript
               if isinstance(answer, dict))  # fmt: skip
