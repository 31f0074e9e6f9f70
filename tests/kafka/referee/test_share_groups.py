"""Share groups: the same requests to Apache Kafka and to our broker, the same answers and the same
records; and a directory that changes hands in a group's life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.coordinator.journal import journal_batches
from kafkalog.metadata.levels import SHARE_VERSION, SUPPORTED
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from tests.support import apache
from tests.support.consumer_group_script import told_records
from tests.support.raw import Raw
from tests.support.share_group_script import SETTINGS, SHARE_KINDS, ShareScript, sizes

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

LINES = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
STATES = "ShareGroupStatePartitionMetadata"


@pytest.fixture(autouse=True)
def _jars(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.setitem(SUPPORTED, SHARE_VERSION, (0, 2))  # type: ignore[arg-type]


def stored(directory: Path) -> list[tuple[bytes | None, bytes | None]]:
    """The records of a closed directory's groups."""
    with kafkalog.Log(directory / "__consumer_offsets-0", mode="r") as log:
        return [(one.key, one.value) for batch in journal_batches(log) for one in batch.records]


def turn_on(raw: Raw) -> None:
    """A new directory of ours has no share groups yet."""
    update = {"feature": SHARE_VERSION, "max_version_level": 1, "upgrade_type": 1}
    done = raw.call(apis.UPDATE_FEATURES, 2, timeout_ms=30_000, feature_updates=[update])
    assert not done.error_code, done


def compared(records: list[Any]) -> list[Any]:
    """Records of assignments by their sizes; those of states as they are.  Kafka also writes the
    states of a group where nothing is changed, and tombstones of records that never were."""
    last: dict[str, Any] = {}
    found = []
    for name, key, value in records:
        told = value if name == STATES else sizes(value)
        where = f"{name} {key}"
        before = last.get(where)
        if value != before or (value is not None and name != STATES):
            found.append((name, key, told))
        last[where] = value
    return found


def test_kafka_answers_and_writes_the_same(tmp_path: Path) -> None:
    """Each answer, and each record in the order of the writes."""
    found: list[Any] = []
    with Broker(tmp_path / "ours", config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
        turn_on(raw)
        ours = ShareScript(raw)
        ours.prepare()
        ours.run()
    with (
        apache.Broker(tmp_path / "kafkas", LINES) as kafka,
        Raw(kafka.bootstrap_servers) as raw,
    ):
        theirs = ShareScript(raw)
        theirs.prepare()
        theirs.run()
    for number, (mine, kafkas) in enumerate(zip(ours.transcript, theirs.transcript, strict=True)):
        assert mine == kafkas, f"answer {number}"
    for script, directory in ((ours, tmp_path / "ours"), (theirs, tmp_path / "kafkas")):
        found.append(
            compared(told_records(stored(directory), script.ids, SHARE_KINDS.__contains__))
        )
    for number, (mine, kafkas) in enumerate(zip(*found, strict=False)):
        assert mine == kafkas, f"record {number}"
    assert len(found[0]) == len(found[1])


def test_a_group_changes_hands(tmp_path: Path) -> None:
    """Its members go on with their epochs and partitions, from Kafka to us and back."""
    directory = tmp_path / "data"
    with apache.Broker(directory, LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
        script = ShareScript(raw)
        script.prepare()
        script.come("a", "t")
        script.rounds("a")
        script.come("b", "t", "u")
        before = script.plain(script.described())
    with Broker(directory, config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        assert script.plain(script.described()) == before
        script.rounds("a", "b")
        script.come("c", "u")
        script.rounds("a", "b", "c")
        assert not script.say("b", -1).error_code
        before = script.plain(script.described())
    with apache.Broker(directory, LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
        script.raw = raw
        script.find()
        assert script.plain(script.described()) == before
        script.rounds("a", "c")
        assert all(not answer.get("error_code") for _, answer in script.transcript
                   if isinstance(answer, dict))  # fmt: skip
        script.described()
        (spread,) = [some for label, some in script.transcript[-2:] if label == "readers"]
        assert spread == [(("t", 1), 5), (("u", 1), 2)]
