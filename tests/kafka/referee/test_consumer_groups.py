"""Consumer groups whose members heartbeat: the same requests to Apache Kafka and to our broker, the
same answers and the same records; and a directory that changes hands in a group's life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.coordinator.consumer_groups.topics import Topic, Topics, group_hash, topic_hash
from kafkalog.coordinator.journal import journal_batches
from kafkalog.server.broker import Broker
from kafkalog.wire.records import OFFSETS
from tests.support import apache
from tests.support.consumer_group_script import SETTINGS, TOPICS, Script, told_records
from tests.support.raw import Raw

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

LINES = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
CONSUMER_KINDS = {3, 4, 5, 6, 7, 8, 16}


def stored(directory: Path) -> list[tuple[bytes | None, bytes | None]]:
    """The records of a closed directory's groups."""
    with kafkalog.Log(directory / "__consumer_offsets-0", mode="r") as log:
        return [(one.key, one.value) for batch in journal_batches(log) for one in batch.records]


def jars() -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))


def test_kafka_answers_and_writes_the_same(tmp_path: Path) -> None:
    """Each answer, and each record in the order of the writes."""
    jars()
    found: list[Any] = []
    with Broker(tmp_path / "ours", config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
        ours = Script(raw)
        ours.prepare()
        ours.run()
    with (
        apache.Broker(tmp_path / "kafkas", LINES) as kafka,
        Raw(kafka.bootstrap_servers) as raw,
    ):
        theirs = Script(raw)
        theirs.prepare()
        theirs.run()
    for number, (mine, kafkas) in enumerate(zip(ours.transcript, theirs.transcript, strict=True)):
        assert mine == kafkas, f"answer {number}"
    for script, directory in ((ours, tmp_path / "ours"), (theirs, tmp_path / "kafkas")):
        records = stored(directory)
        found.append(told_records(records, script.ids, CONSUMER_KINDS.__contains__))
        assert _hashes(records) <= _possible(script), directory
    assert found[0] == found[1]


def _hashes(records: list[tuple[bytes | None, bytes | None]]) -> set[int]:
    """The hashes of topics in a group's records."""
    found = set()
    for key, value in records:
        if key is not None and value is not None and OFFSETS.decode_key(key)[1] == 3:
            found.add(OFFSETS.decode_value("ConsumerGroupMetadata", value)[1].metadata_hash)
    return found


def _possible(script: Script) -> set[int]:
    """The hashes of all sets of topics, signed."""
    known = {
        name: Topic(script.ids[name], count, topic_hash(name, script.ids[name], [[]] * count))
        for name, count in TOPICS.items()
    }
    topics = Topics(known.get, lambda _id: None, lambda: 0, lambda: 0)
    hashes = {group_hash(names, topics) for names in ([], ["t"], ["u"], ["t", "u"])}
    return {one - (one >> 63 << 64) for one in hashes}


def test_a_group_changes_hands(tmp_path: Path) -> None:
    """Its members go on with their epochs and partitions, from Kafka to us and back."""
    jars()
    directory = tmp_path / "data"
    with apache.Broker(directory, LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
        script = Script(raw)
        script.prepare()
        script.alone()
        script.enter("b", "t", "u")
        script.beat("a")  # it shall give partitions up, and has not yet
        before = script.plain(script.describe())
    with Broker(directory, config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        assert script.plain(script.describe()) == before
        assert not script.beat("a", owns=True).error_code
        assert not script.beat("b").error_code
        script.settle("a", "b")
        script.commit("a", script.epochs["a"], *script.owned["a"][script.ids["t"]])
        script.enter("c", "u", instance_id="one")
        script.beat("b")
        before = script.plain(script.describe())
    with apache.Broker(directory, LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        assert script.plain(script.describe()) == before
        script.settle("a", "b", "c", c={"instance_id": "one"})
        assert all(not answer.get("error_code") for _, answer in script.transcript)
        (group, _) = script.describe().groups
        assert group.group_state == "Stable"
        script.fetch("a", script.epochs["a"])
        (offsets,) = script.transcript[-1][1]["groups"]
        assert offsets["topics"], "the offsets that were committed here"
