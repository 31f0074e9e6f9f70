"""Changes of a group whose members heartbeat: each is applied at once, becomes a record, and can be
undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from kafkalog.coordinator.consumer_groups import records
from kafkalog.coordinator.consumer_groups.base import AnyMember, NewerGroup
from kafkalog.coordinator.consumer_groups.state import ConsumerGroup, Resolved
from kafkalog.coordinator.step import JournalRecord, Step
from kafkalog.wire.records import OFFSETS

__all__ = ["RESTATED_BYTES", "UNSURE_MAX", "Changes", "GroupChanges", "Layout"]

RESTATED_BYTES = 100_000
"""Records of failed writes that one write states again: the next ones state the others."""
UNSURE_MAX = 1_000
"""Records of failed writes: with more, no new member is taken until a write succeeds."""
Then = Callable[[Step], None]
Else = Callable[[Step, bool], None]
"""`certain`: the journal does not have it."""


class Layout(NamedTuple):
    """The kinds of records in which a type of groups is stored, and how each is made."""

    group: int
    subscription: int
    assignment: int
    target: int
    current: int
    key_of: Callable[[str, int, str], bytes]
    """The key, by the group's id, a kind, and the name of what it is about."""
    value_of: Callable[[Any, int, str], bytes | None]
    """The value, by the group as it is, a kind and a name; None: a tombstone."""


G = TypeVar("G", bound=NewerGroup[Any, Any])


class GroupChanges(Generic[G]):
    """Changes of a group of any type that are written together."""

    def __init__(self, group_id: str, group: G, keys: dict[bytes, int], layout: Layout) -> None:
        """`keys`: those of the group's live records, with their kinds."""
        self._layout = layout
        self.group_id = group_id
        self.group = group
        self.records: list[JournalRecord] = []
        self.size = 0
        """Approximate bytes of the records."""
        self.touched: dict[str, None] = {}
        """Members that were added, changed or removed."""
        self.last = False
        """True if the next work needs the outcome of these changes."""
        self._keys = keys
        self._undo: list[Callable[[], Any]] = []
        self._noted: list[tuple[bytes, tuple[int, str]]] = []
        self._then: list[tuple[Then, Else]] = []
        for key, (kind, name) in group.unsure.items():
            if self.size >= RESTATED_BYTES:
                break
            self._add(key, layout.value_of(group, kind, name) if key in keys else None)
            self._noted.append((key, (kind, name)))

    # ---- undoing ---------------------------------------------------------------------------

    def mark(self) -> tuple[int, int, int, int]:
        """A point to go back to."""
        return len(self._undo), len(self.records), len(self._noted), len(self._then)

    def back_to(self, mark: tuple[int, int, int, int]) -> None:
        """Undo what came after a point."""
        undo_count, records_count, noted_count, then_count = mark
        while len(self._undo) > undo_count:
            self._undo.pop()()
        del self.records[records_count:], self._noted[noted_count:], self._then[then_count:]

    def undo(self, call: Callable[[], Any]) -> None:
        """Something else was changed: `call` undoes it."""
        self._undo.append(call)

    def then(self, written: Then, failed: Else) -> None:
        """Call `written` once all of it is in the journal, or `failed` after it was undone."""
        self._then.append((written, failed))

    def failed(self, step: Step, certain: bool) -> None:
        """Undo everything.  `certain`: otherwise the journal may have it nevertheless, so the next
        writes restate it."""
        noted, then = dict(self._noted), self._then[:]
        self.back_to((0, 0, 0, 0))
        if not certain:
            self.group.unsure.update(noted)
        for _, failed in then:
            failed(step, certain)

    def written(self, step: Step) -> None:
        """All of it is in the journal."""
        for key, _ in self._noted:
            self.group.unsure.pop(key, None)
        for written, _ in self._then:
            written(step)

    def _note(self, kind: int, name: str = "") -> None:
        """A part of the group was changed: its record follows."""
        key = self._layout.key_of(self.group_id, kind, name)
        value = self._layout.value_of(self.group, kind, name)
        self._add(key, value)
        self._noted.append((key, (kind, name)))
        before = self._keys.get(key)
        if value is None:
            self._keys.pop(key, None)
        else:
            self._keys[key] = kind
        self._undo.append(partial(self._restore_key, key, before))

    def _add(self, key: bytes, value: bytes | None) -> None:
        self.records.append((key, value))
        self.size += len(key) + len(value or b"") + 20

    def _restore_key(self, key: bytes, before: int | None) -> None:
        if before is None:
            self._keys.pop(key, None)
        else:
            self._keys[key] = before

    # ---- members ---------------------------------------------------------------------------

    def _put(self, member: AnyMember) -> None:
        before = self.group.members.get(member.member_id)
        self.group.put_member(member)
        self.touched[member.member_id] = None
        put = self.group.put_member
        self._undo.append(
            partial(self.group.drop_member, member.member_id) if before is None
            else partial(put, before)
        )  # fmt: skip

    def subscription(self, member: AnyMember) -> None:
        """A member, and what it says."""
        self._put(member)
        self._note(self._layout.subscription, member.member_id)

    def current(self, member: AnyMember) -> None:
        """A member, and what it has."""
        self._put(member)
        self._note(self._layout.current, member.member_id)

    def remove(self, member_id: str) -> None:
        """A member, and all that it had."""
        before = self.group.members[member_id]
        target = self.group.target.get(member_id)
        self.group.drop_member(member_id)
        self.group.put_target(member_id, None)
        self.touched[member_id] = None
        self._undo.append(partial(self.group.put_target, member_id, target))
        self._undo.append(partial(self.group.put_member, before))
        layout = self._layout
        for kind in (layout.current, layout.target, layout.subscription):
            self._note(kind, member_id)

    def target(self, member_id: str, partitions: Mapping[Any, frozenset[int]]) -> None:
        """The target of a member."""
        before = self.group.target.get(member_id)
        self.group.put_target(member_id, partitions)
        self._undo.append(partial(self.group.put_target, member_id, before))
        self._note(self._layout.target, member_id)

    # ---- the group -------------------------------------------------------------------------

    def _set(self, **fields: Any) -> None:
        group = self.group
        before = {name: getattr(group, name) for name in fields}
        for name, value in fields.items():
            setattr(group, name, value)

        def restore() -> None:
            for name, value in before.items():
                setattr(group, name, value)

        self._undo.append(restore)

    def epoch(self, metadata_hash: int, epoch: int | None = None) -> None:
        """A group epoch, None: the next one, for these topics."""
        epoch = self.group.epoch + 1 if epoch is None else epoch
        self._set(epoch=epoch, metadata_hash=metadata_hash)
        self._note(self._layout.group)

    def assignment(self, epoch: int, at_ms: int, pace_ms: int = 0) -> None:
        """The epoch of the target assignment, when it was made, and how long the group waits
        for the next one, if it has no interval of its own."""
        self._set(assignment_epoch=epoch, assignment_ms=at_ms, pace_ms=pace_ms)
        self._note(self._layout.assignment)

    def replace_classic(self, key: bytes, value: bytes | None = None) -> None:
        """The record of the classic group, whether or not there is one; None: it is removed."""
        self._add(key, value)
        self._noted.append((key, (records.CLASSIC, "")))

    def tombstone(self, key: bytes) -> None:
        """Remove a record of another kind of group, whether or not there is one."""
        self._add(key, None)


LAYOUT = Layout(
    records.GROUP, records.SUBSCRIPTION, records.ASSIGNMENT, records.TARGET, records.CURRENT,
    records.key_of, records.value_of,
)  # fmt: skip


class Changes(GroupChanges[ConsumerGroup]):
    """Changes of a consumer group that are written together."""

    def __init__(self, group_id: str, group: ConsumerGroup, keys: dict[bytes, int]) -> None:
        """`keys`: those of the group's live records, with their kinds."""
        super().__init__(group_id, group, keys, LAYOUT)

    def regex(self, regex: str, found: Resolved | None) -> None:
        """The topics of a pattern; None: nobody subscribes by it."""
        before = self.group.regexes.get(regex)
        self.group.put_regex(regex, found)
        self._undo.append(partial(self.group.put_regex, regex, before))
        self._note(records.REGEX, regex)

    def no_old_metadata(self) -> None:
        """The record of topics that older versions of Kafka wrote is removed."""
        self._set(old_metadata=False)
        self._note(records.OLD_METADATA)

    def end(self, tombstones: Iterable[JournalRecord]) -> None:
        """Remove all records of the group.  The group stays until they are in the journal."""
        for key, value in tombstones:
            self._add(key, value)
            _, kind, fields = OFFSETS.decode_key(key)
            self._noted.append((key, (kind, records.name_in(kind, fields))))
        for member_id in self.group.members:
            self.touched[member_id] = None
        self.last = True
