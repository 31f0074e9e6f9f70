"""Groups that Apache Kafka wrote: they load, with their members and offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.coordinator.groups import loader
from kafkalog.coordinator.groups.records import FOREIGN
from kafkalog.coordinator.journal import journal_batches
from kafkalog.coordinator.partitions import partition_for
from kafkalog.wire.error_codes import ErrorCode
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.unit.coordinator.group_calls import Desk
from tests.unit.coordinator.share_group_calls import KeptStates
from tests.unit.coordinator.virtual_core import MemoryJournal, Reply

CASES = ["groups-3.9", "groups-4.1", "transactions", "node-4.4"]
STEADY = {"Stable", "Empty"}


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def journal_of(directory: Path, topic: str = "__consumer_offsets") -> MemoryJournal:
    """The content of a coordinator's topic, from its logs."""
    journal = MemoryJournal()
    for folder in sorted(directory.glob(f"{topic}-*")):
        with kafkalog.Log(folder, mode="r") as log:
            journal.batches[log.partition] = list(journal_batches(log))
            journal.ends[log.partition] = log.end_offset
    return journal


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, kafka_cases: Path) -> Path:
    return kafka_cases / str(request.param)


class KeepingDesk(Desk):
    """A coordinator with a share coordinator, which does at once what it is asked."""

    asked: list[Any] | None = None

    def effect(self, effect: Any) -> None:
        self.asked = [*(self.asked or ()), effect]

    def call(self, *given: Any, **more: Any) -> Reply:
        reply = super().call(*given, **more)
        while self.asked:
            self.step(KeptStates().carry_out(self.asked.pop(0), lambda _topic_id: None))
        return reply


def loaded(case: Path) -> Desk:
    journal = journal_of(case / "log")
    desk = KeepingDesk(partitions=len(list((case / "log").glob("__consumer_offsets-*"))))
    desk.journal = journal
    desk.restart()
    return desk


def test_offsets_are_those_that_kafka_answers(case: Path) -> None:
    """Every group's, with leader epochs and metadata; those of transactions, too."""
    desk = loaded(case)
    expected: dict[str, dict[tuple[str, int], tuple[int, int, str]]] = {}
    for line in lines(case / "expected" / "offsets.jsonl"):
        epoch = -1 if line["leader_epoch"] is None else line["leader_epoch"]
        where = line["topic"], line["partition"]
        expected.setdefault(line["group"], {})[where] = (line["offset"], epoch, line["metadata"])
    found = {
        group: {
            where: (o.committed_offset, o.committed_leader_epoch, o.metadata)
            for where, o in desk.committed(group).items()
        }
        for group in desk.listed()
    }
    assert {group: offsets for group, offsets in found.items() if offsets} == expected


@pytest.mark.parametrize("name", ["groups-3.9", "groups-4.1"])
def test_groups_are_those_that_kafka_describes(kafka_cases: Path, name: str) -> None:
    """States, members, instance ids and assignments; the generation still counts."""
    case = kafka_cases / name
    desk = loaded(case)
    groups = json.loads((case / "expected" / "groups.json").read_text(encoding="utf-8"))
    listed = json.loads((case / "expected" / "listed.json").read_text(encoding="utf-8"))
    assert sorted(desk.listed()) == sorted(listed)
    for group in groups:
        if group["state"] not in STEADY or group.get("type") == "Consumer":
            continue
        found = desk.describe(group["group"])
        assert found.group_state == group["state"], group
        assert found.protocol_data == group["assignor"]
        assert sorted(map(member, found.members)) == sorted(
            (m["member_id"], m["client_id"], m["host"], m["group_instance_id"] or "",
             m["assignment"]) for m in group["members"]
        )  # fmt: skip
        partition = partition_for(group["group"], 4)
        shard = desk.core.shards[partition]
        generation = shard.groups[group["group"]].generation
        for m in group["members"]:
            alive = desk.heartbeat(m["member_id"], generation, group["group"])
            assert alive is ErrorCode.NONE


def member(found: Any) -> tuple[str, str, str, str, list[str]]:
    _, assignment = CONSUMER_PROTOCOL.decode_assignment(found.member_assignment)
    owned = [f"{t.topic}-{p}" for t in assignment.assigned_partitions for p in t.partitions]
    instance = found.group_instance_id or ""
    return found.member_id, found.client_id, found.client_host, instance, sorted(owned)


def test_a_group_of_the_newer_protocol_is_kept(kafka_cases: Path) -> None:
    """Its offsets are served and it is listed; without members, it can be taken over."""
    desk = loaded(kafka_cases / "groups-4.1")
    partition = partition_for("new-protocol", 4)
    group = desk.core.shards[partition].groups["new-protocol"]
    assert set(group.foreign.values()) >= {3, 5, 6, 7, 8}
    assert desk.join(group="new-protocol").error is ErrorCode.MEMBER_ID_REQUIRED
    assert group.consumer is not None
    members = [(member_id, None) for member_id in group.consumer.members]
    assert all(one.error_code == 0 for one in desk.leave(*members, group="new-protocol").members)
    kinds, end = sorted(group.foreign.values()), desk.journal.ends[partition]
    assert set(kinds) >= {3, 6}
    assert desk.listed(types_filter=["Consumer"]).keys() == {"new-protocol"}
    assert "new-protocol" not in desk.listed(types_filter=["classic"])
    before = desk.offsets("new-protocol")
    assert before
    desk.stable(1, "new-protocol")
    ended = [
        int.from_bytes(record.key[:2], "big")
        for batch in desk.journal.batches[partition]
        for record in batch.records[: len(kinds)]
        if record.offset >= end and record.key and record.value is None
    ]
    assert sorted(ended) == kinds
    assert ended == sorted(kinds, key=FOREIGN["consumer"].index)
    desk.restart()
    assert desk.offsets("new-protocol") == before
    assert desk.listed(types_filter=["classic"])["new-protocol"].group_state == "Stable"
    assert not desk.core.shards[partition].groups["new-protocol"].foreign


def test_reading_writes_nothing(kafka_cases: Path) -> None:
    """Loading leaves all files unchanged."""
    directory = kafka_cases / "groups-4.1" / "log"
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    journal_of(directory)
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


def test_damaged_records_are_left_out(kafka_cases: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are named in the log, and the others load."""
    journal = MemoryJournal()
    journal.put(0, [(b"\0", b"x"), (b"\0\2\0\1g", b"\0\3\xff"), (b"\0\1\0\1g\0\1t\0\0\0\1", b"\0")])
    journal.put(0, [(b"\0\x63what", b"x"), (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\1" + bytes(26))])
    desk = Desk(journal=journal)
    shard = desk.core.new_shard(0, 0)
    loader.load(shard, journal.read(0), 0)
    assert list(shard.groups["g"].offsets) == ["t"]
    assert list(shard.groups["g"].offsets["t"]) == [0]
    assert len([r for r in caplog.records if "__consumer_offsets-0" in r.message]) >= 4
