"""The promises: the parent's account of a log that another process writes.

A worker reports each change before it begins and again after it returned.  After a kill the
log must hold every change reported as returned, and of a change in progress either nothing, all,
or the part that its promise allows.
"""

from collections import deque
from typing import Any

PATTERN = bytes(range(33, 127)) * 40


def value_of(number: int) -> bytes:
    """The value of record `number`: its number, then 0 to 400 bytes that follow from it."""
    return b"%d:%s" % (number, PATTERN[number % 97 : number % 97 + number * 31 % 400])


def key_of(number: int) -> bytes | None:
    return None if number % 5 == 0 else b"key-%d" % (number % 13)


def number_of(key: bytes | None, value: bytes | None) -> int:
    """The number of a record read back; every byte of it is checked."""
    assert value is not None
    number = int(value.partition(b":")[0])
    assert (key, value) == (key_of(number), value_of(number)), f"record {number} has wrong bytes"
    return number


class Ledger:
    """The offsets and record numbers that a log must hold."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        # (offset, number); deleted ones, too: a truncation into their batch first lowers the
        # start, and if it is interrupted then, they are visible once more.
        self.records: list[tuple[int, int]] = []
        self.pending: list[Any] | None = None
        self.changes = 0
        self.next_number = 0  # not used by any record
        self._history: deque[list[Any]] = deque(maxlen=16)  # for a failure's message

    def note(self, words: list[Any]) -> None:
        """Take one report: an intention (kept), its return (done), or the state found."""
        kind = words[0]
        self._history.append([word for word in words if not isinstance(word, list)])
        if kind == "found":
            self.check(*words[1:])
        elif kind == "returned":
            self._apply(*words[1:])
        elif kind != "done":
            self.pending = words
            if kind == "append":
                self.next_number = words[1] + words[2]

    def _apply(self, *result: Any) -> None:
        assert self.pending is not None
        kind, *what = self.pending
        self.pending = None
        self.changes += 1
        if kind == "append":
            number, count = what
            base, last = result
            assert base == self.end and last == base + count - 1, (self.end, what, result)
            self.records += [(base + i, number + i) for i in range(count)]
            self.end = last + 1
        elif kind == "marker":
            assert result == (self.end,)
            self.end += 1
        elif kind == "truncate":
            floor = what[1]
            assert result == (floor,), (what, result)
            self.records = [record for record in self.records if record[0] < floor]
            self.start, self.end = min(self.start, floor), floor
        elif kind == "restart":
            self.records, self.start, self.end = [], what[0], what[0]
        elif kind == "delete":
            self.start = what[0]

    def check(self, start: int, end: int, found: list[list[int]]) -> None:
        """Compare with the content of an opened log, and settle the pending change."""
        records = [(offset, number) for offset, number in found]
        state = f"found {start}..{end} of {self.start}..{self.end}, pending {self.pending}, "
        state += f"after {list(self._history)}"
        kind, *what = self.pending or ["nothing"]
        low, high = {self.start}, {self.end}
        expected = self.records
        if kind == "append":
            number, count = what
            expected = expected + [(self.end + i, number + i) for i in range(count)]
            high = set(range(self.end, self.end + count + 1))
        elif kind == "marker":
            high = {self.end, self.end + 1}
        elif kind == "truncate":
            high = set(range(what[1], self.end + 1))
            # Whole batches are removed, so the end may come before a start inside one.
            low |= {min(self.start, what[1])}
        elif kind == "restart":
            # First the new start is recorded, then segments are removed, newest first: a part of
            # the old records is left, without a hole, or the empty log that was requested.
            low |= {what[0]}
            high = {what[0], *range(self.start, self.end + 1)}
        elif kind == "delete":
            low = set(range(self.start, what[0] + 1))
        assert start in low, state
        assert end in high, state
        assert records == [r for r in expected if start <= r[0] < end], state
        self.start, self.end = start, end
        self.records = [record for record in expected if record[0] < end]
        self.pending = None
