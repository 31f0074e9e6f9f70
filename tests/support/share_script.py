"""Requests of share groups' members, the same for Apache Kafka's broker and ours, and a transcript
of the answers.

Acquired records are compared offset by offset: Apache Kafka lists single ones where ours has a
range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import kafkalog
from kafkalog.batch.walk import whole_batches
from kafkalog.wire import apis
from tests.support.raw import Raw
from tests.support.share_member import ShareMember, acquired, codes
from tests.support.waiting import wait_for

__all__ = ["SETTINGS", "ShareScript"]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "auto.create.topics.enable": "false",
}
GROUP_KIND = 32
FIRST, SECOND = "first-member-0000000000", "second-member-000000000"
NOWHERE = UUID(int=77)
SOON_MS, WAIT_MS = 100, 5_000
ALONE = {"is_renew_ack": True, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}


class ShareScript:
    """One broker, and its transcript."""

    def __init__(
        self, raw: Raw, other: Raw, initialize: Callable[[str, UUID], None] | None = None
    ) -> None:
        """`initialize`: begins to keep the state of a group in the topic, without members; None:
        members join their group first."""
        self.raw, self.other, self.initialize = raw, other, initialize
        self.transcript: list[tuple[str, Any]] = []
        self.topic = UUID(int=0)

    def note(self, label: str, found: Any) -> Any:
        """Add an answer to the transcript."""
        rows = {}
        for topic in found.responses:
            name = "t" if topic.topic_id == self.topic else "other"
            for row in topic.partitions:
                rows[name, row.partition_index] = (
                    row.error_code, getattr(row, "acknowledge_error_code", 0),
                    acquired(found).get(row.partition_index), _offsets(row),
                    row.current_leader.leader_id, row.current_leader.leader_epoch,
                )  # fmt: skip
        self.transcript.append((label, (found.error_code, rows)))
        return found

    # ---- beginning -----------------------------------------------------------------------------

    def member(self, name: str, group: str = "g") -> ShareMember:
        """A member, in its group if there are any."""
        raw = self.raw if name == FIRST else self.other
        if self.initialize is None:
            self._join(raw, name, group)
        elif name == FIRST:
            self.initialize(group, self.topic)
        return ShareMember(raw, group, {self.topic: [0]}, name)

    def _join(self, raw: Raw, name: str, group: str) -> None:
        raw.call(apis.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
        epoch = 0

        def assigned() -> bool:
            nonlocal epoch
            names = ["t"] if epoch == 0 else None
            found = raw.call(
                apis.SHARE_GROUP_HEARTBEAT, 1, group_id=group, member_id=name, member_epoch=epoch,
                rack_id=None, subscribed_topic_names=names,
            )  # fmt: skip
            epoch = 0 if found.error_code else found.member_epoch
            return found.assignment is not None and bool(found.assignment.topic_partitions)

        wait_for(assigned, "the assignment", 60)

    def prepare(self) -> None:
        """Create the topic."""
        self.raw.create("t", 1)

        def there() -> bool:
            (topic,) = self.raw.call(apis.METADATA, 12, topics=[{"name": "t"}]).topics
            self.topic = topic.topic_id
            return not topic.error_code

        wait_for(there, "the topic", 60)
        for group, level in (("g", "read_uncommitted"), ("c", "read_committed")):
            changed = self.raw.alter(
                GROUP_KIND, group, share_auto_offset_reset="earliest", share_isolation_level=level
            )
            assert not changed.error_code, changed

    def fill(self, *sizes: int) -> None:
        """Produce batches of these sizes."""
        for size in sizes:
            assert not self.raw.produce("t", *[b"value"] * size).error_code

    def some(self, member: ShareMember, label: str, **fields: Any) -> Any:
        """Fetch until records are acquired: a share partition may have to be loaded first."""
        found: list[Any] = []

        def got() -> bool:
            found.append(member.fetch(max_wait_ms=WAIT_MS, **fields))
            return bool(acquired(found[-1]))

        wait_for(got, label, 60)
        return self.note(label, found[-1])

    def all_there(self, member: ShareMember) -> dict[int, int]:
        """Fetch until there is nothing more."""
        seen: dict[int, int] = {}
        while found := acquired(member.fetch(max_wait_ms=SOON_MS * 10)).get(0):
            seen.update(found)
        return seen

    # ---- steps ---------------------------------------------------------------------------------

    def run(self) -> None:
        """All steps."""
        self.fill(3, 2, 4)
        first, second = self.member(FIRST), self.member(SECOND)
        self.some(first, "the first batches", max_records=4)
        self.some(second, "the rest")
        self.acknowledges(first)
        self.mistakes(first)
        self.limits(first, second)
        self.renewals(first)
        self.ends(first, second)
        self.repeats(first)
        self.locks(first)
        self.deletes(first)
        self.transactions()

    def acknowledges(self, one: ShareMember) -> None:
        """All kinds, by both requests."""
        where = (self.topic, 0)
        said = [(0, 1, [1]), (2, 2, [2]), (3, 4, [3, 0])]
        self.note("all kinds", one.acknowledge({where: said}))
        self.some(one, "the released one")
        self.note("with a fetch", one.fetch({where: [(2, 2, [1])]}, max_wait_ms=SOON_MS))
        self.note("again", one.acknowledge({where: [(0, 4, [1])]}, version=1))

    def mistakes(self, one: ShareMember) -> None:
        """They change nothing."""
        where = (self.topic, 0)
        for label, said in (
            ("of another member", [(5, 6, [1])]),
            ("beyond the end", [(5, 1000, [1])]),
            ("far beyond the end", [(1000, 1001, [1])]),
            ("backwards", [(6, 5, [1])]),
            ("overlapping", [(5, 7, [1]), (6, 8, [1])]),
            ("a wrong type", [(5, 5, [5])]),
            ("a negative type", [(5, 5, [-1])]),
            ("too few types", [(5, 7, [1, 1])]),
            ("no types", [(5, 7, [])]),
            ("no batches", []),
        ):
            self.note(label, one.acknowledge({where: said}))
            self.note(label, one.fetch({where: said}, max_wait_ms=0))
        self.note("other places", one.acknowledge({(self.topic, 9): [(0, 0, [1])],
                                                    (NOWHERE, 0): [(0, 0, [1])]}))  # fmt: skip
        for label, fields in (
            ("a wrong epoch", {"share_session_epoch": 77}),
            ("an unknown member", {"member_id": "nobody"}),
            ("no member", {"member_id": ""}),
            ("a long member", {"member_id": "x" * 37}),
            ("no group", {"group_id": None}),
            ("another group", {"group_id": "other"}),
            ("an unknown member's end", {"member_id": "nobody", "share_session_epoch": -1}),
        ):
            epoch = one.epoch
            self.note(label, one.acknowledge({where: [(5, 5, [1])]}, **fields))
            self.note(label, one.fetch(**fields))
            one.epoch = epoch
        self.note("an initial acknowledgement", one.acknowledge({}, share_session_epoch=0))

    def limits(self, one: ShareMember, two: ShareMember) -> None:
        """Record limits, exact or not; batches; nothing."""
        self.fill(6, 6)
        self.some(one, "an exact limit", max_records=2, share_acquire_mode=1)
        self.some(two, "the next", max_records=3, share_acquire_mode=1)
        self.some(one, "the rest of a batch", max_records=1)
        self.some(one, "a whole batch", max_records=1, version=1)
        self.note("no records", one.fetch(max_records=0))
        self.note("no bytes", one.fetch(max_bytes=0))
        self.fill(3, 3, 3)
        found = self.some(one, "batches", batch_size=4)
        (row,) = found.responses[0].partitions
        parts = [(part.first_offset, part.last_offset) for part in row.acquired_records]
        self.transcript.append(("their parts", parts))
        topics = [{"topic_id": NOWHERE, "partitions": [_asked(0)]},
                  {"topic_id": self.topic, "partitions": [_asked(0), _asked(9)]}]  # fmt: skip
        self.note("other places", one.fetch(topics=topics))
        forgotten = [{"topic_id": NOWHERE, "partitions": [0]},
                     {"topic_id": self.topic, "partitions": [9]}]  # fmt: skip
        self.note("forgotten", one.fetch(forgotten_topics_data=forgotten))

    def renewals(self, one: ShareMember) -> None:
        """Locks are renewed."""
        renew = {(self.topic, 0): [(21, 22, [4])]}
        self.note("not announced", one.acknowledge(renew))
        self.note("renewed", one.acknowledge(renew, is_renew_ack=True))
        self.note("renewed by a fetch", one.fetch(renew, **ALONE))
        self.note("with a fetch", one.fetch(renew, is_renew_ack=True))
        self.note("mixed", one.acknowledge({(self.topic, 0): [(21, 24, [4, 1, 2, 3])]},
                                           is_renew_ack=True))  # fmt: skip
        self.raw.alter(GROUP_KIND, "g", share_renew_acknowledge_enable="false")
        renew = {(self.topic, 0): [(21, 21, [4])]}

        def refused() -> bool:
            return bool(codes(one.acknowledge(renew, is_renew_ack=True))[0])

        wait_for(refused, "the setting")
        self.note("not allowed", one.acknowledge(renew, is_renew_ack=True))
        self.note("not allowed", one.fetch(renew, **ALONE))

    def ends(self, one: ShareMember, two: ShareMember) -> None:
        """A session ends: what its member holds is delivered again."""
        two.epoch = -1
        self.note("an end", two.acknowledge({(self.topic, 0): [(5, 5, [1])]}))
        self.transcript.append(("what it held", sorted(self.all_there(one).items())))
        one.epoch = -1
        self.note("another end", one.fetch({(self.topic, 0): [(6, 6, [1])]}))
        one.epoch = 0
        self.note("no acknowledgements", one.fetch({(self.topic, 0): [(7, 7, [1])]}))
        seen = self.all_there(one)
        self.transcript.append(("held by both", sorted(seen.items())))
        for first, last in _runs(sorted(seen)):
            self.note("accepted", one.acknowledge({(self.topic, 0): [(first, last, [1])]}))

    def repeats(self, one: ShareMember) -> None:
        """Records that nobody can process."""
        self.fill(8)
        while True:
            found = one.fetch(max_wait_ms=SOON_MS * 3)
            self.note("again and again", found)
            offsets = acquired(found).get(0)
            if not offsets:
                return
            for first, last in _runs(sorted(offsets)):
                self.note("released", one.acknowledge({(self.topic, 0): [(first, last, [2])]}))

    def locks(self, one: ShareMember) -> None:
        """They end."""
        self.raw.alter(GROUP_KIND, "g", share_record_lock_duration_ms="1000")
        wait_for(lambda: one.fetch().acquisition_lock_timeout_ms == 1_000, "the setting")
        self.fill(2)
        self.some(one, "locked")
        self.some(one, "locked again")
        self.note("accepted", one.acknowledge({(self.topic, 0): [(38, 39, [1])]}))
        self.raw.alter(GROUP_KIND, "g", share_record_lock_duration_ms=None)
        wait_for(lambda: one.fetch().acquisition_lock_timeout_ms == 30_000, "the setting")

    def deletes(self, one: ShareMember) -> None:
        """Records that are deleted before they are delivered, and while they are held."""
        self.fill(2, 2, 2)
        self.some(one, "held", max_records=1)
        entry = {"name": "t", "partitions": [{"partition_index": 0, "offset": 44}]}
        self.raw.call(apis.DELETE_RECORDS, topics=[entry], timeout_ms=10_000)
        self.some(one, "behind the deleted ones")
        said = {(self.topic, 0): [(40, 41, [1]), (44, 45, [1])]}
        self.note("accepted", one.acknowledge(said))

    def transactions(self) -> None:
        """A group that gets only committed records."""
        with kafkalog.Producer(self.raw.address, transactional_id="x") as producer:
            for number in range(3):
                producer.begin_transaction()
                for _ in range(2):
                    producer.send("t", b"value", partition=0)
                producer.flush()
                if number == 1:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        one = self.member(FIRST, "c")
        seen: dict[int, int] = {}

        def all_seen() -> bool:
            seen.update(acquired(one.fetch(max_wait_ms=SOON_MS)).get(0, {}))
            return max(seen, default=0) >= 53

        wait_for(all_seen, "the committed records", 60)
        self.transcript.append(("committed", sorted(seen.items())))


def _asked(partition: int) -> dict[str, Any]:
    return {"partition_index": partition, "acknowledgement_batches": []}


def _offsets(row: Any) -> list[tuple[int, int]]:
    """The batches of the answer."""
    data = bytes(getattr(row, "records", None) or b"")
    return [(one.base_offset, one.last_offset) for one, _ in whole_batches(data)]


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            yield first, last
            first = offset
        last = offset
    yield first, last
