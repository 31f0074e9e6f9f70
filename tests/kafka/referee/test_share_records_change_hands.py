"""A directory changes hands in the life of share groups: each broker goes on where the other one
stopped, with each record in each state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import kafkalog
from kafkalog import Admin, Producer, TopicPartition
from kafkalog.server.broker import Broker
from kafkalog.server.dead_letters import DeadLetters
from kafkalog.wire import apis
from tests.support import apache
from tests.support.raw import Raw
from tests.support.share_member import acquired, codes
from tests.support.share_script import FIRST, ShareScript
from tests.support.waiting import LIMIT_S, wait_for

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(400)]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "group.share.assignment.interval.ms": "0",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
}
LINES = "".join(f"{name}={value}\n" for name, value in SETTINGS.items())
TP = TopicPartition("t", 0)
LIMIT = 5
COUNT = 8
"""Records that each turn adds."""
ACCEPT, RELEASE, REJECT, KEEP = 1, 2, 3, 0
WAYS = (
    (ACCEPT, KEEP), (RELEASE, RELEASE), (REJECT, KEEP), (KEEP, KEEP), (RELEASE, ACCEPT),
    (KEEP, REJECT), (ACCEPT, KEEP), (RELEASE, KEEP),
)  # fmt: skip
"""How records end, by their offset: at the first two deliveries, and later."""
OWN = {"share.auto.offset.reset": "earliest"}
LETTERS = "errors.deadletterqueue.topic.name"


@pytest.fixture(autouse=True)
def _jars(kafka_jars: Path) -> None:
    """Skips without Kafka."""


@contextmanager
def served(directory: Path, *, ours: bool) -> Iterator[str]:
    if ours:
        with Broker(directory, config=SETTINGS) as broker:
            yield broker.bootstrap_servers
    else:
        with apache.Broker(directory, LINES) as kafka:
            yield kafka.bootstrap_servers


def fill(bootstrap: str, count: int = COUNT) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many("t", [b"value"] * count).result(LIMIT_S)


class Worker:
    """A member of a group, by raw requests; a context manager that leaves the group."""

    def __init__(self, bootstrap: str, group: str = "g") -> None:
        self.raw, self.group = Raw(bootstrap), group
        script = ShareScript(self.raw, self.raw)
        (topic,) = self.raw.call(apis.METADATA, 12, topics=[{"name": "t"}]).topics
        script.topic = topic.topic_id
        self.where = topic.topic_id, 0
        self.member = script.member(FIRST, group)

    def taken(self, count: int) -> dict[int, int]:
        """The next records, of which there are so many: their deliveries by offset."""
        found: dict[int, int] = {}

        def all_there() -> bool:
            found.update(acquired(self.member.fetch(max_wait_ms=500)).get(0, {}))
            return len(found) >= count

        wait_for(all_there, f"{count} records")
        return found

    def say(self, said: dict[int, int]) -> None:
        """Acknowledge offsets."""
        rows = [(offset, offset, [kind]) for offset, kind in sorted(said.items())]
        found = self.member.acknowledge({self.where: rows})
        assert (found.error_code, codes(found)) == (0, {0: 0})

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert not self.member.acknowledge({}, share_session_epoch=-1).error_code
        self.raw.call(
            apis.SHARE_GROUP_HEARTBEAT, 1, group_id=self.group, member_id=FIRST, member_epoch=-1,
            rack_id=None, subscribed_topic_names=None,
        )  # fmt: skip
        self.raw.close()


class Life:
    """The records of group g: how often each was delivered, unless it is done."""

    def __init__(self) -> None:
        self.left: dict[int, int] = {}
        """By offset: its deliveries."""
        self.end = 0

    def turn(self, bootstrap: str) -> None:
        """New records come; a member gets all that are left, and ends them in each way."""
        fill(bootstrap)
        self.left.update(dict.fromkeys(range(self.end, self.end + COUNT), 0))
        self.end += COUNT
        with Worker(bootstrap) as one:
            found = one.taken(len(self.left))
            assert found.keys() == self.left.keys()
            for offset, count in found.items():
                assert count == self.left[offset] + 1, offset
            one.say({offset: kind for offset, count in found.items()
                     if (kind := self.kind(offset, count)) != KEEP})  # fmt: skip
            # The others are released by the end of the session.

    def kind(self, offset: int, count: int) -> int:
        """The acknowledgement of a record; some have several turns."""
        first, later = WAYS[offset % COUNT]
        kind = first if count < 3 else later
        if kind in (ACCEPT, REJECT) or count == LIMIT:
            del self.left[offset]
        else:
            self.left[offset] = count
        return kind


def test_records_in_each_state_change_hands(tmp_path: Path) -> None:
    """Accepted, released, rejected, given up at the limit, in gaps between others; the states are
    pruned after snapshots.  Four brokers in turn."""
    life = Life()
    for number in range(6):
        with served(tmp_path / "data", ours=bool(number % 2)) as bootstrap:
            if not number:
                with Admin(bootstrap) as admin:
                    admin.create_topic("t", 1)
                    admin.alter_configs({("group", "g"): OWN}).check()
            life.turn(bootstrap)
    assert {*life.left.values()} == {1, 2, 3, 4}


def test_records_that_are_held_at_the_end_change_hands(tmp_path: Path) -> None:
    """Those that a member holds when its broker stops are delivered by the next one; what it has
    acknowledged before is done."""
    with served(tmp_path / "data", ours=False) as bootstrap, Admin(bootstrap) as admin:
        admin.create_topic("t", 1)
        admin.alter_configs({("group", "g"): OWN}).check()
        fill(bootstrap)
    left = dict.fromkeys(range(COUNT), 0)
    for number in range(4):
        with served(tmp_path / "data", ours=not number % 2) as bootstrap:
            one = Worker(bootstrap)
            found = one.taken(len(left))
            assert found.keys() == left.keys()
            # The end of its connection may have been written, or not.
            assert all(count in (left[offset], left[offset] + 1) for offset, count in found.items())
            done = min(left) + number % 2  # from both ends of the gap
            one.say({done: ACCEPT})
            left = {offset: count for offset, count in found.items() if offset != done}
        one.raw.close()


def test_groups_in_each_state_change_hands(tmp_path: Path) -> None:
    """Empty ones: as its members left it, with altered offsets, and with deleted ones."""
    starts = {"empty": 0, "altered": 3, "deleted": 0}
    with served(tmp_path / "data", ours=False) as bootstrap, Admin(bootstrap) as admin:
        admin.create_topic("t", 1)
        fill(bootstrap)
        for group in starts:
            admin.alter_configs({("group", group): OWN}).check()
    for ours in (True, False):
        with served(tmp_path / "data", ours=ours) as bootstrap, Admin(bootstrap) as admin:
            for group in starts:
                with Worker(bootstrap, group) as one:
                    assert min(one.taken(COUNT)) == 0
            admin.alter_share_group_offsets("altered", {TP: 3}).check()
            admin.delete_share_group_offsets("deleted", ["t"]).check()
            before = described(admin)
            assert [state for state, _ in before.values()] == ["Empty"] * 3
        with served(tmp_path / "data", ours=not ours) as bootstrap, Admin(bootstrap) as admin:
            wait_for(partial(is_described, admin, before), "the same groups")
            for group, start in starts.items():
                with Worker(bootstrap, group) as one:
                    found = one.taken(COUNT - start)
                    assert min(found) == start
                    count = 1 if group != "empty" else 2 if ours else 4
                    assert {*found.values()} == {count}
            admin.alter_share_group_offsets("altered", {TP: 0}).check()


def is_described(admin: Admin, wanted: object) -> bool:
    return described(admin) == wanted


def described(admin: Admin) -> dict[str, tuple[str, dict[TopicPartition, int]]]:
    """Each group's state, and where it begins."""
    found = {}
    for group in admin.list_groups():
        rows = admin.list_share_group_offsets(group.group)
        found[group.group] = str(group.state), {tp: row.offset for tp, row in rows.items()}
    return found


def test_dead_letters_change_hands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters that our broker has not written yet are written by Kafka."""
    with served(tmp_path / "data", ours=False) as bootstrap, Admin(bootstrap) as admin:
        admin.create_topic("t", 1)
        admin.alter_configs({("group", "g"): {**OWN, LETTERS: "dlq.t"}}).check()
        fill(bootstrap)
    monkeypatch.setattr(DeadLetters, "bury", lambda *_: None)
    with served(tmp_path / "data", ours=True) as bootstrap, Worker(bootstrap) as one:
        one.say({offset: REJECT if offset % 2 else RELEASE for offset in one.taken(COUNT)})
    with served(tmp_path / "data", ours=False) as bootstrap:
        with Worker(bootstrap) as one:
            assert one.taken(COUNT // 2) == dict.fromkeys(range(0, COUNT, 2), 2)
        with kafkalog.Consumer(bootstrap, auto_offset_reset="earliest") as reader:
            wait_for(lambda: "dlq.t" in reader.list_topics(), "the topic")
            reader.assign([("dlq.t", 0)])
            letters: list[kafkalog.Record] = []

            def all_there() -> bool:
                letters.extend(reader.poll(100))
                return len(letters) >= COUNT // 2

            wait_for(all_there, "the dead letters")
    assert sorted(dict(one.headers)["__dlq.errors.offset"] or b"" for one in letters) == [
        b"%d" % offset for offset in range(1, COUNT, 2)
    ]
