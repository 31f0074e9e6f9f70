"""The share coordinator: the same requests to Apache Kafka and to our broker, the same answers and
the same records; and a directory with states that changes hands."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kafkalog
from kafkalog.coordinator.journal import journal_batches
from kafkalog.coordinator.share_state.records import change_of, key_of
from kafkalog.coordinator.share_state.state import SharePartition, Snapshot
from kafkalog.server.broker import Broker
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import apache
from tests.support.raw import Raw

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

PARTITIONS, REQUESTS = 2, 150
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": PARTITIONS,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
}
LINES = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
GROUPS = ("g", "with:colon")
UNKNOWN = UUID(int=7)
WAIT_S = 60.0
LOADS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}  # fmt: skip
Wait = Callable[..., None]
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _jars() -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))


class Script:
    """One broker; topic "t" has three partitions."""

    def __init__(self, raw: Raw, wait_until: Wait) -> None:
        self.raw, self.wait_until = raw, wait_until
        (topic,) = raw.call(apis.METADATA, topics=[{"name": "t"}]).topics
        self.topic_id = topic.topic_id
        self.transcript: list[Any] = []

    def ready(self) -> None:
        """Wait until the coordinator has read all partitions."""
        for number in range(3):
            for group in GROUPS:
                where = SharePartition(group, self.topic_id, number)

                def found(where: SharePartition = where) -> bool:
                    (one,) = self.raw.call(apis.FIND_COORDINATOR, 6, key_type=2,
                                           coordinator_keys=[where.key]).coordinators  # fmt: skip
                    return one.error_code == ErrorCode.NONE

                self.wait_until(found, "a coordinator", WAIT_S)
                self.wait_until(lambda w=where: self.loaded(w), "its states", WAIT_S)

    def loaded(self, where: SharePartition) -> bool:
        row = {"partition": where.partition, "leader_epoch": -1}
        ((found,),) = (
            topic.partitions
            for topic in self.ask(apis.READ_SHARE_GROUP_STATE_SUMMARY, 1, where.group_id, [row])
        )
        return found.error_code not in LOADS

    def ask(
        self, api: Any, version: int, group: str, rows: Rows, topic_id: UUID | None = None
    ) -> Any:
        topics = [{"topic_id": topic_id or self.topic_id, "partitions": rows}]
        return self.raw.call(api, version, group_id=group, topics=topics).results

    def note(
        self, api: Any, version: int, group: str, rows: Rows, topic_id: UUID | None = None
    ) -> None:
        """Send a request and note the answer."""
        found = self.ask(api, version, group, rows, topic_id)
        answers = sorted(
            (str(row) for topic in found for row in topic.partitions), key=str
        )  # fmt: skip
        self.transcript.append((api.name, version, group, rows, answers))

    # ---- the same for each broker ----------------------------------------------------------

    def run(self) -> None:
        rng = random.Random(20_260)
        for api, version, fields in self._drawn(rng):
            group = rng.choice(GROUPS)
            number = rng.choices((0, 1, 2, 3, -1), (10, 10, 10, 1, 1))[0]
            topic_id = UNKNOWN if rng.random() < 0.03 else None
            self.note(api, version, group, [{"partition": number, **fields}], topic_id)
        self.several()
        self.keys()

    @staticmethod
    def _drawn(rng: random.Random) -> Iterator[tuple[Any, int, dict[str, Any]]]:
        for _ in range(REQUESTS):
            epoch = {"state_epoch": rng.choices((-1, 0, 1, 2), (1, 8, 8, 4))[0]}
            leader = {"leader_epoch": rng.choices((-1, 0, 1, 2, 3), (1, 1, 3, 6, 2))[0]}
            start = {"start_offset": rng.choice((-1, -1, rng.randrange(40)))}
            kind = rng.choices(("init", "read", "write", "delete", "summary"), (3, 3, 14, 1, 2))[0]
            if kind == "init":
                yield apis.INITIALIZE_SHARE_GROUP_STATE, 0, epoch | start
            elif kind == "read":
                yield apis.READ_SHARE_GROUP_STATE, 0, leader
            elif kind == "summary":
                yield apis.READ_SHARE_GROUP_STATE_SUMMARY, rng.randrange(2), leader
            elif kind == "delete":
                yield apis.DELETE_SHARE_GROUP_STATE, 0, {}
            else:
                version = rng.randrange(2)
                count = {"delivery_complete_count": rng.randrange(-1, 5)} if version else {}
                batches = {"state_batches": [_batch(rng) for _ in range(rng.randrange(5))]}
                yield (
                    apis.WRITE_SHARE_GROUP_STATE,
                    version,
                    epoch | leader | start | count | batches,
                )

    def several(self) -> None:
        """Several partitions in one message; messages that name nothing."""
        for group in (*GROUPS, "new"):
            rows = [{"partition": number, "state_epoch": 9, "start_offset": 3} for number in (0, 1)]
            self.note(apis.INITIALIZE_SHARE_GROUP_STATE, 0, group, rows)
            read = [{"partition": number, "leader_epoch": 4} for number in (0, 1)]
            self.note(apis.READ_SHARE_GROUP_STATE, 0, group, read)
        self.note(apis.INITIALIZE_SHARE_GROUP_STATE, 0, "", rows)
        self.note(apis.DELETE_SHARE_GROUP_STATE, 0, "g", [])

    def keys(self) -> None:
        """FindCoordinator's errors."""
        for version, key in (
            (6, "g"), (6, "g:x:1"), (6, ":x:1"), (6, f"g:{'A' * 22}:x"), (6, f" :{'A' * 22}:0"),
            (5, f"g:{'A' * 22}:0"),
        ):  # fmt: skip
            (one,) = self.raw.call(
                apis.FIND_COORDINATOR, version, key_type=2, coordinator_keys=[key]
            ).coordinators
            self.transcript.append((version, key, one.node_id, one.port, one.error_code))

    def states(self) -> dict[Any, Any]:
        """Each state, as the leader of epoch 9 reads it."""
        found = {}
        for group in GROUPS:
            rows = [{"partition": number, "leader_epoch": 9} for number in range(3)]
            for topic in self.ask(apis.READ_SHARE_GROUP_STATE, 0, group, rows):
                for row in topic.partitions:
                    found[group, row.partition] = str(row)
        return found


def _batch(rng: random.Random) -> dict[str, int]:
    first = rng.randrange(40)
    return {"first_offset": first, "last_offset": first + rng.randrange(8),
            "delivery_state": rng.choice((0, 2, 4)),
            "delivery_count": rng.randrange(1, 4)}  # fmt: skip


def stored(directory: Path, topic_id: UUID) -> list[list[Any]]:
    """The records of a closed directory's states, by partition; times are left out."""
    found: list[list[Any]] = []
    for number in range(PARTITIONS):
        folder, rows = directory / f"__share_group_state-{number}", []
        with kafkalog.Log(folder, mode="r") as log:
            for one in (record for batch in journal_batches(log) for record in batch.records):
                assert one.key is not None
                about = key_of(one.key)
                assert about is not None and about[0].topic_id == topic_id
                change = change_of(about[1], one.value)
                if isinstance(change, Snapshot):
                    assert change.state.created_ms == change.state.written_ms > 0
                    change = Snapshot(change.state._replace(created_ms=0, written_ms=0))
                rows.append((about[0].group_id, about[0].partition, one.key[:2], change))
        found.append(rows)
    return found


def test_kafka_answers_and_writes_the_same(tmp_path: Path, wait_until: Wait) -> None:
    """Each answer, and each record in the order of the writes; the topic has the same settings."""
    scripts, settings = [], []

    def told(raw: Raw) -> None:
        raw.create("t", 3)
        script = Script(raw, wait_until)
        script.ready()
        script.run()
        scripts.append(script)
        asked = {"resource_type": 2, "resource_name": "__share_group_state",
                 "configuration_keys": None}  # fmt: skip
        (found,) = raw.call(apis.DESCRIBE_CONFIGS, 4, resources=[asked]).results
        settings.append({one.name: one.value for one in found.configs if one.config_source == 1})

    with Broker(tmp_path / "ours", config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
        told(raw)
    with apache.Broker(tmp_path / "kafkas", LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
        told(raw)
    ours, theirs = scripts
    mine = [str(one).replace(str(ours.topic_id), "T") for one in ours.transcript]
    kafkas = [str(one).replace(str(theirs.topic_id), "T") for one in theirs.transcript]
    for number, (one, other) in enumerate(zip(mine, kafkas, strict=True)):
        assert one == other, f"answer {number}"
    # Ids differ, and with them the partitions: all records of a share partition are in one.
    for script, directory in ((ours, "ours"), (theirs, "kafkas")):
        records = stored(tmp_path / directory, script.topic_id)
        script.transcript = [
            [one for rows in records for one in rows if one[:2] == (group, number)]
            for group in (*GROUPS, "new")
            for number in range(3)
        ]
        assert sum(map(len, script.transcript)) == sum(map(len, records))
    assert ours.transcript == theirs.transcript
    assert settings[0] == settings[1]


def test_states_change_hands(tmp_path: Path, wait_until: Wait) -> None:
    """From our broker to Kafka and back, twice: each reads what the other one wrote."""
    directory = tmp_path / "data"
    with Broker(directory, config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
        raw.create("t", 3)
        script = Script(raw, wait_until)
        script.ready()
        script.run()
        states = script.states()
    assert any("state_batches=[StateBatches" in one or "first_offset" in one
               for one in states.values())  # fmt: skip
    for turn in range(2):
        with apache.Broker(directory, LINES) as kafka, Raw(kafka.bootstrap_servers) as raw:
            states = hand_over(Script(raw, wait_until), states, 50 + turn)
        with Broker(directory, config=SETTINGS) as broker, Raw(broker.bootstrap_servers) as raw:
            states = hand_over(Script(raw, wait_until), states, 60 + turn)


def hand_over(script: Script, states: dict[Any, Any], offset: int) -> dict[Any, Any]:
    """The states are the same on another broker, which changes one of them."""
    script.ready()
    assert script.states() == states
    batch = {"first_offset": offset, "last_offset": offset, "delivery_state": 2,
             "delivery_count": 1}  # fmt: skip
    row = {"partition": 0, "state_epoch": 9, "leader_epoch": 9, "start_offset": -1,
           "delivery_complete_count": -1, "state_batches": [batch]}  # fmt: skip
    ((found,),) = (
        topic.partitions for topic in script.ask(apis.WRITE_SHARE_GROUP_STATE, 1, "g", [row])
    )
    assert found.error_code == ErrorCode.NONE
    changed = script.states()
    assert changed != states
    return changed
