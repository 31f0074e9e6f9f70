"""The oracle of share partitions: one entry for each record, no ranges; and random histories.

It follows the rules of KIP-932 and of Apache Kafka 4.4 literally, offset by offset.
"""

import random
from itertools import pairwise

from kafkalog.coordinator.share_state.persister import StateBatch
from kafkalog.shares import acquiring
from kafkalog.shares.acquiring import Batch, Want
from kafkalog.shares.partition import (
    Acknowledgement,
    AckType,
    Limits,
    Refused,
    SharePartition,
    State,
)

AVAILABLE, ACQUIRED = State.AVAILABLE, State.ACQUIRED
DONE = (State.ACKNOWLEDGED, State.ARCHIVED)
MEMBERS = ("a", "b", "c")
TO = {AckType.ACCEPT: State.ACKNOWLEDGED, AckType.RELEASE: AVAILABLE,
      AckType.REJECT: State.ARCHIVED, AckType.GAP: State.ARCHIVED}  # fmt: skip


def given_up(limits):
    """The state of a record that was delivered too often."""
    return State.ARCHIVING if limits.letters else State.ARCHIVED


class Entry:
    """A record in flight."""

    def __init__(self, state, count, unit, member="", until=0):
        self.state, self.count, self.unit = state, count, unit
        self.member, self.until = member, until
        self.write, self.before = 0, None
        self.rejected = self.sent = False

    @property
    def free(self):
        return self.state is AVAILABLE and not self.write


class Records:
    """A share partition, record by record."""

    def __init__(self, start, rows):
        self.start = self.end = start
        self.entries = {}
        self.rows, self.number, self.writing = {}, 1, None
        for row in rows:
            first, last = unit = row[:2]
            for offset in range(self.end, first):
                self.entries[offset] = Entry(AVAILABLE, 0, (self.end, first - 1))
            for offset in range(first, last + 1):
                self.entries[offset] = Entry(State(row.delivery_state), row.delivery_count, unit)
            self.end = last + 1
        self.advance()

    def in_flight(self):
        return self.end - self.start if self.entries else 0

    def next_fetch_offset(self):
        return min((o for o, e in self.entries.items() if e.free), default=self.end)

    # ---- acquiring

    def acquire(self, want, fetch_offset, batches, now, limits):
        last = batches[-1].last
        most = min(want.records, limits.in_flight - self.in_flight())
        if most <= 0:
            if fetch_offset >= self.end:
                return {}
            most = min(want.records, self.end - fetch_offset)
            last = min(last, self.end - 1)
        first = batches[0].first
        for offset in range(fetch_offset, first):
            if offset in self.entries and self.entries[offset].state is AVAILABLE:
                self.entries[offset] = Entry(State.ARCHIVED, 0, None)
        self.advance()
        first = max(first, self.start)
        found, stop = {}, False
        units = {}
        for offset in sorted(self.entries):
            entry = self.entries[offset]
            if first <= offset <= last and entry.state not in DONE:
                units.setdefault(entry.unit, []).append((offset, entry))
        for unit, those in units.items():
            if len(found) >= most or stop:
                stop = True
                break
            free = [(o, e) for o, e in those if e.free]
            often = max(2, (limits.deliveries + 1) // 2)
            slow = max((e.count for _, e in free), default=0) >= often
            if slow and found:
                stop = True
                break
            taken, cap = 0, None
            for offset, entry in free:
                alone = limits.deliveries > 2 and entry.count == limits.deliveries - 1
                if alone and taken:
                    break
                if entry.count >= often and cap is None:
                    cap = max(1, (unit[1] - unit[0] + 1) >> (entry.count - often + 1))
                self.take(entry, want.member, now + limits.lock_ms)
                found[offset] = entry.count
                taken += 1
                if alone or (want.exact and len(found) == most) or taken == cap:
                    break
            stop = stop or (slow and taken > 0)
        if not stop and len(found) < most and last >= max(first, self.end):
            self.acquire_new(want, max(first, self.end), last, most - len(found), batches, now,
                             limits, found)  # fmt: skip
        return found

    def take(self, entry, member, until):
        entry.state, entry.member, entry.until = ACQUIRED, member, until
        entry.count += 1

    def acquire_new(self, want, first, last, most, batches, now, limits, found):
        if not self.entries:
            self.start = first
        if most < last - first + 1:
            last = first + most - 1
            for batch in batches:
                if batch.first <= last <= batch.last:
                    last = batch.last
                    break
        bounds = [first]
        if not want.exact and last - first + 1 > want.batch_size:
            for batch in batches:
                if first < batch.first <= last and batch.first - bounds[-1] >= want.batch_size:
                    bounds.append(batch.first)
        for begin, end in zip(bounds, [*(b - 1 for b in bounds[1:]), last], strict=True):
            for offset in range(begin, end + 1):
                entry = self.entries[offset] = Entry(AVAILABLE, 0, (begin, end))
                if not want.exact or most > 0:
                    self.take(entry, want.member, now + limits.lock_ms)
                    found[offset] = 1
                    most -= 1
        self.end = last + 1

    # ---- acknowledging

    def acknowledge(self, member, said, now, limits):
        plan, changed = [], set()
        for one in said:
            types = one.types if len(one.types) > 1 else one.types * (one.last - one.first + 1)
            plan += [(offset, kind) for offset, kind in enumerate(types, one.first)]
            if one.last >= self.start:
                low = [o for o in self.entries if o <= max(one.first, self.start)]
                if not low:
                    return "state"
                top = max(o for o in self.entries if o <= max(one.last, *low))
                if top < max(one.first, self.start) or one.last > top:
                    return "request"
        for offset, kind in plan:
            entry = self.entries.get(offset)
            if offset < self.start or entry is None:
                continue
            if entry.state is not ACQUIRED or entry.write or entry.member != member:
                return "state"
            if offset in changed:
                return "state"
            if kind != AckType.RENEW:
                changed.add(offset)
        for offset, kind in plan:
            entry = self.entries.get(offset)
            if offset < self.start or entry is None:
                continue
            if kind == AckType.RENEW:
                entry.until = now + limits.lock_ms
                continue
            to = TO[AckType(kind)]
            if to is AVAILABLE and entry.count >= limits.deliveries:
                to = given_up(limits)
            entry.rejected = kind == AckType.REJECT and limits.letters
            if entry.rejected:
                to = State.ARCHIVING
            self.begin(offset, entry, to, entry.count)
        return self.number if changed else 0

    def begin(self, offset, entry, to, count):
        entry.before = (entry.count, entry.member, entry.until)
        entry.state, entry.count, entry.member, entry.write = to, count, "", self.number
        self.rows[offset] = (to, count)

    def release(self, member, limits):
        found = False
        for offset, entry in self.entries.items():
            if entry.state is ACQUIRED and entry.member == member:
                found = True
                again = entry.count < limits.deliveries
                self.begin(offset, entry, AVAILABLE if again else given_up(limits), entry.count)
        return self.number if found else 0

    def expire(self, now, limits):
        found = False
        for offset, entry in self.entries.items():
            if entry.state is ACQUIRED and entry.until <= now:
                found = True
                entry.member = ""
                if entry.count >= limits.deliveries:
                    entry.state, entry.write = given_up(limits), self.number
                else:
                    entry.state = AVAILABLE
                self.rows[offset] = (entry.state, entry.count)
        return found

    # ---- the rest

    def moved(self, log_start):
        if log_start > self.start:
            self.start, self.end = log_start, max(self.end, log_start)
            self.drop()
            self.advance()

    def drop(self):
        for offset in [o for o in self.entries if o < self.start]:
            del self.entries[offset]

    def advance(self):
        open_ = [o for o, e in self.entries.items() if e.state not in DONE or e.write]
        if self.entries:
            first = min(open_, default=self.end)
            if first > self.start:
                self.start = first
        elif self.end > self.start:
            self.start = self.end
        self.drop()

    def begin_write(self):
        if self.writing or not self.rows:
            return None
        rows, self.rows = self.rows, {}
        complete = sum(e.state in DONE for e in self.entries.values())
        self.writing = self.number, self.start, complete, rows
        self.number += 1
        return self.writing

    def end_write(self, done, now, limits):
        number, self.writing = self.writing[0], None
        for entry in self.entries.values():
            if entry.write != number:
                continue
            entry.write = 0
            before, entry.before = entry.before, None
            if done or before is None:
                continue
            entry.count, entry.member, entry.until = before
            entry.state, entry.rejected = ACQUIRED, False
            if entry.until <= now:
                entry.member = ""
                again = entry.count < limits.deliveries
                entry.state = AVAILABLE if again else given_up(limits)
        self.advance()

    # ---- dead letters

    def letters(self, limits):
        found = {}
        for offset, entry in self.entries.items():
            if entry.state is State.ARCHIVING and not entry.write and not entry.sent:
                entry.sent = True
                found[offset] = entry.count, entry.rejected or entry.count < limits.deliveries
        return found

    def archived(self, first, last):
        for offset in range(first, last + 1):
            entry = self.entries.get(offset)
            if entry is not None and entry.sent:
                entry.state, entry.sent, entry.write = State.ARCHIVED, False, self.number
                self.rows[offset] = (entry.state, entry.count)


class History:
    """A share partition and its oracle, driven by the same random events."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        rng = self.rng
        self.limits = Limits(100, rng.choice([2, 3, 5, 6]), rng.choice([8, 30, 60]),
                             letters=rng.random() < 0.5)  # fmt: skip
        self.now = 1_000
        self.batches, end = [], 0
        for _ in range(60):
            end += rng.choice([0, 0, 0, 0, 2])
            size = rng.choice([1, 1, 2, 5, 9])
            self.batches.append(Batch(end, end + size - 1))
            end += size
        self.log_end, self.log_start = rng.randrange(end), 0
        self.kept = {}  # what the persister has, by offset
        self.kept_start = 0
        self.load()

    def load(self):
        rows = []
        for offset in sorted(o for o in self.kept if o >= self.kept_start):
            state, count = self.kept[offset]
            if rows and rows[-1].last_offset + 1 == offset and rows[-1][2:] == (state, count):
                rows[-1] = rows[-1]._replace(last_offset=offset)
            else:
                rows.append(StateBatch(offset, offset, state, count))
        self.open = []  # dead letters that are being written
        self.waits = set()  # the writes whose end members wait for
        self.share = SharePartition(self.kept_start, rows)
        self.records = Records(self.kept_start, rows)
        self.delivered = {}
        self.moved()

    def moved(self):
        self.share.moved(self.log_start)
        self.records.moved(self.log_start)

    def step(self):
        events = [self.fetch] * 6 + [self.say] * 7 + [self.write] * 4
        events += [self.wait, self.grow, self.leave, self.cut, self.compact, self.fail]
        self.rng.choice(events)()
        self.letters()
        self.check()

    def letters(self):
        """Dead letters are sent as soon as their state is written, and end in any order."""
        found = self.share.letters(self.limits)
        shown = {o: (one.deliveries, one.rejected) for one in found
                 for o in range(one.first, one.last + 1)}  # fmt: skip
        assert shown == self.records.letters(self.limits)
        self.open += found
        if self.open and self.rng.random() < 0.3:
            letter = self.open.pop(self.rng.randrange(len(self.open)))
            self.share.archived(letter)
            self.records.archived(letter.first, letter.last)

    def fetch(self):
        offset = self.records.next_fetch_offset()
        assert self.share.next_fetch_offset() == offset
        there = [b for b in self.batches if b.last >= offset and b.last < self.log_end]
        there = there[: self.rng.randrange(1, 8)]
        if not there:
            return
        want = Want(self.rng.choice(MEMBERS), self.rng.choice([1, 3, 10, 40]),
                    self.rng.choice([1, 4, 20]), self.rng.random() < 0.4)  # fmt: skip
        args = want, offset, there, self.now, self.limits
        found = acquiring.acquire(self.share, *args)
        wanted = self.records.acquire(*args)
        shown = {o: one.deliveries for one in found for o in range(one.first, one.last + 1)}
        assert shown == wanted, (args, found, wanted)
        assert sorted(shown) == [o for one in found for o in range(one.first, one.last + 1)]
        for offset, count in shown.items():
            assert count <= self.limits.deliveries, offset

    def say(self):
        member = self.rng.choice(MEMBERS)
        held = sorted(o for o, e in self.records.entries.items()
                      if e.member == member or self.rng.random() < 0.03)  # fmt: skip
        said, first = [], None
        for offset in held:
            if first is None and self.rng.random() < 0.6:
                first = offset
            if first is not None and (offset + 1 not in held or self.rng.random() < 0.2):
                kinds = [1, 1, 2, 2, 3, 4, 0]
                size = offset - first + 1 if self.rng.random() < 0.5 else 1
                said.append(Acknowledgement(first, offset, self.rng.choices(kinds, k=size)))
                first = None
        if not said:
            return
        if self.rng.random() < 0.1:  # a mistake of the member
            said.append(said[-1]._replace(first=said[-1].last, types=[self.rng.choice([1, 4])]))
        self.acknowledge(member, said)

    def acknowledge(self, member, said):
        args = member, said, self.now, self.limits
        wanted = self.records.acknowledge(*args)
        try:
            found = self.share.acknowledge(*args)
        except Refused as refused:
            found = "state" if refused.code.name == "INVALID_RECORD_STATE" else "request"
        assert found == wanted, (args, found, wanted)
        self.wait_for(found)

    def wait_for(self, number):
        """A write, 0: none, or the reason of a refusal."""
        if isinstance(number, int) and number:
            self.waits.add(number)

    def leave(self):
        member = self.rng.choice(MEMBERS)
        args = member, self.limits
        number = self.share.release(*args)
        assert number == self.records.release(*args)
        self.wait_for(number)

    def write(self, done=True):
        if self.share.writing is None:
            found, wanted = self.share.begin_write(), self.records.begin_write()
            if wanted is None:
                assert found is None
                return
            rows = {o: (row.delivery_state, row.delivery_count) for row in found.rows
                    for o in range(row.first_offset, row.last_offset + 1)}  # fmt: skip
            assert (found.number, found.start_offset, found.complete) == wanted[:3]
            assert {o: r for o, r in rows.items() if o >= found.start_offset} == {
                o: r for o, r in wanted[3].items() if o >= found.start_offset
            }
            self.sent = found.start_offset, rows
        elif self.rng.random() < 0.7:
            if done or self.rng.random() < 0.5:  # a failed write may have been carried out
                self.kept_start = max(self.kept_start, self.sent[0])
                self.kept.update(self.sent[1])
            self.waits.discard(self.share.writing.number)
            self.share.end_write(done=done, now_ms=self.now, limits=self.limits)
            self.records.end_write(done, self.now, self.limits)

    def fail(self):
        if self.share.writing is not None:
            self.write(done=False)
        elif self.rng.random() < 0.3:  # another leader
            self.load()

    def wait(self):
        self.now += self.rng.choice([10, 40, 120])
        due = min((e.until for e in self.records.entries.values() if e.state is ACQUIRED),
                  default=None)  # fmt: skip
        assert due is None or self.share.due_ms <= due
        found = self.share.expire(self.now, self.limits)
        assert found == self.records.expire(self.now, self.limits)

    def grow(self):
        self.log_end = min(self.log_end + self.rng.randrange(20), self.batches[-1].last + 1)

    def cut(self):
        if self.rng.random() < 0.2:
            self.log_start = min(self.log_start + self.rng.randrange(15), self.log_end)
        elif self.records.rows and self.rng.random() < 0.2:  # all in flight
            self.log_start = max(self.log_start, self.records.end)
        self.batches = [b for b in self.batches if b.last >= self.log_start]
        self.moved()

    def compact(self):
        if self.rng.random() < 0.1 and len(self.batches) > 3:
            self.batches.pop(self.rng.randrange(len(self.batches) - 1))

    def check(self):
        share, records = self.share, self.records
        assert (share.start, share.end) == (records.start, records.end)
        assert share.in_flight == records.in_flight()
        coming = {share.queued, share.writing.number if share.writing else 0}
        assert self.waits <= coming, "a write that members wait for does not come"
        found = {o: one.value for one in share.holds for o in range(one.first, one.last + 1)}
        assert found.keys() == records.entries.keys()
        for offset, entry in records.entries.items():
            hold = found[offset]
            assert (hold.state, hold.write) == (entry.state, entry.write), offset
            if entry.state not in DONE or entry.write:
                assert (hold.deliveries, hold.unit) == (entry.count, entry.unit), offset
            if entry.state is ACQUIRED:
                assert (hold.member, hold.until_ms) == (entry.member, entry.until), offset
            if entry.state is State.ARCHIVING:
                assert hold.sent == entry.sent, offset
        assert share.next_fetch_offset() == records.next_fetch_offset()
        ranges = list(share.holds)
        for one, other in pairwise(ranges):
            assert one.last < other.first
            assert one.last + 1 < other.first or one.value != other.value, "not joined"


def play(seed, steps=150):
    """A random history; raises AssertionError where the two differ."""
    history = History(seed)
    for _ in range(steps):
        history.step()
    return history
