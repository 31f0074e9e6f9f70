"""Groups change hands: Apache Kafka loads what we write, and we load what it writes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.coordinator.journal import JournalBatch, journal_batches
from kafkalog.coordinator.step import JournalRecord
from kafkalog.wire import apis
from kafkalog.wire.records import CONSUMER_PROTOCOL
from tests.support import apache
from tests.unit.coordinator.both_sides import TOPICS, KafkaSide, plain
from tests.unit.coordinator.group_calls import Desk, config, subscription
from tests.unit.coordinator.virtual_core import MemoryJournal

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(300)]

PARTITIONS = 4
SETTINGS = f"offsets.topic.num.partitions={PARTITIONS}\nauto.create.topics.enable=false\n"
LONG_MS = 1_000_000


class LogJournal(MemoryJournal):
    """A journal in Kafka's own files."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.logs = [
            kafkalog.Log(directory / f"__consumer_offsets-{number}") for number in range(PARTITIONS)
        ]

    def put(self, partition: int, records: Iterable[JournalRecord], **_: Any) -> None:
        keys, values = zip(*records, strict=True)
        self.logs[partition].append_many(list(values), keys=list(keys))

    def read(self, partition: int, epoch: int = 0) -> Iterator[JournalBatch]:
        return journal_batches(self.logs[partition])

    def close(self) -> None:
        for log in self.logs:
            log.close()


def write(desk: Desk) -> dict[str, list[Any]]:
    """Write groups of several kinds; returns the members of the live ones."""
    consumers: dict[str, Any] = {
        "protocols": [("range", subscription("t"))], "session_ms": LONG_MS, "rebalance_ms": LONG_MS,
    }  # fmt: skip
    alive = {"alive": desk.stable(2, "alive", **consumers)}
    alive["static"] = [desk.join(group="static", instance=name, **consumers) for name in "ab"]
    desk.wait(9_000)
    desk.settle(alive["static"], "static")
    desk.commit({("t", 0): 7, ("t", 1): 8}, alive["alive"][0].member_id, 1, "alive",
                metadata="grüß dich", leader_epoch=3)  # fmt: skip
    desk.commit({("t", 0): 1}, group="with space & ünicode")
    desk.commit({("t", 0): 1}, group="expiring", version=4, retention_ms=LONG_MS)
    desk.commit({("t", 0): 1}, group="gone")
    desk.delete("gone")
    (left,) = desk.stable(1, "left", **consumers)
    desk.commit({("u", 0): 5}, left.member_id, 1, "left")
    desk.leave((left.member_id, None), group="left")
    return alive


NAMES = ["alive", "static", "with space & ünicode", "expiring", "gone", "left"]


def told_by_kafka(side: KafkaSide) -> dict[str, Any]:
    """States, members and offsets."""
    told = {}
    for name in NAMES:
        sent = [
            side.send(apis.DESCRIBE_GROUPS, 5, {"groups": [name]}),
            side.send(apis.OFFSET_FETCH, 7, {"group_id": name, "topics": None}),
        ]
        side.until(lambda sent=sent: all(map(side.answered, sent)), name)  # type: ignore[misc]
        told[name] = [plain(each.body, {}) for each in sent]
    return told


def told_by_us(desk: Desk) -> dict[str, Any]:
    told = {}
    for name in NAMES:
        replies = [
            desk.call(apis.DESCRIBE_GROUPS, 5, {"groups": [name]}),
            desk.call(apis.OFFSET_FETCH, 7, {"group_id": name, "topics": None}),
        ]
        told[name] = [plain(each.body, {}) for each in replies]
    return told


def test_groups_change_hands(tmp_path: Path) -> None:
    try:
        apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    directory = tmp_path / "data"
    with apache.Broker(directory, SETTINGS) as broker:
        KafkaSide(broker.port).prepare()

    journal = LogJournal(directory)
    desk = Desk(config(), journal, dict(TOPICS))
    alive = write(desk)
    ours = told_by_us(desk)
    journal.close()

    with apache.Broker(directory, SETTINGS) as broker:
        side = KafkaSide(broker.port)
        side.wait_for_groups()
        theirs = told_by_kafka(side)
        assert theirs == ours
        for group, members in alive.items():
            for number, member in enumerate(members):
                fields = {"group_id": group, "generation_id": 1, "member_id": member.member_id}
                if group == "static":
                    fields["group_instance_id"] = "ab"[number]
                assert side.ask(apis.HEARTBEAT, 4, **fields).error_code == 0
        where = {"partition_index": 0, "committed_offset": 99, "committed_metadata": "by Kafka"}
        topics = [{"name": "t", "partitions": [where]}]
        leader = alive["alive"][0].member_id
        side.ask(apis.OFFSET_COMMIT, 8, group_id="alive", generation_id_or_member_epoch=1,
                 member_id=leader, topics=topics)  # fmt: skip
        side.ask(apis.LEAVE_GROUP, 5, group_id="static", members=[
            {"member_id": member.member_id, "group_instance_id": name}
            for member, name in zip(alive["static"], "ab", strict=True)])  # fmt: skip
        theirs = told_by_kafka(side)
        assert theirs["alive"][1] != ours["alive"][1]

    journal = LogJournal(directory)
    desk = Desk(config(), journal, dict(TOPICS))
    assert told_by_us(desk) == theirs
    assert theirs["static"][0]["groups"][0]["group_state"] == "Empty"
    assert desk.heartbeat(leader, 1, "alive") == 0
    journal.close()


def test_assignments_are_passed_on_unchanged() -> None:
    """Assignments are passed on unchanged, whatever they contain."""
    desk = Desk()
    replies = [desk.join(desk.new_id()) for _ in range(2)]
    desk.wait(9_000)
    encoded = CONSUMER_PROTOCOL.encode_assignment(
        1, {"assigned_partitions": [{"topic": "t", "partitions": [0, 1]}], "user_data": b"\0x"}
    )
    parked = desk.sync(replies[1])
    desk.sync(replies[0], {replies[1].member_id: encoded})
    assert parked.assignment == encoded
