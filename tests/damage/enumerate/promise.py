"""The promises of a log at each moment of a trace, and whether a log that was found keeps them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.damage.crash.ledger import key_of, value_of
from tests.damage.enumerate.trace import Step
from tests.model.model import Entry, Model
from tests.support import batches

ABORT, COMMIT = 0, 1


Rows = tuple[tuple[int, bytes | None, bytes | None], ...]
"""Offset, key and value of records."""


def _offset(row: tuple[int, bytes | None, bytes | None]) -> int:
    return row[0]


class Found(NamedTuple):
    """The content of an opened log, as it reports it."""

    start: int
    end: int
    records: Rows
    committed: Rows
    last_stable: int
    producers: dict[int, tuple[int, int]]
    """Producer id to its last sequence and the first offset of its open transaction."""
    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Promise:
    """All states in which a log may be after a crash at one moment.

    Its content is a prefix of `entries`: first the promised ones, then those not yet promised.
    Entries below the start stay listed, as their producers are remembered.
    """

    entries: tuple[Entry, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()  # epoch and first offset of each appended batch
    start: int = 0
    end: int = 0  # as the process sees it
    flushed: int = 0  # the lowest end after a power cut
    acknowledged: int = 0  # the lowest end after a kill
    starts: tuple[int, int] = (0, 0)  # the lowest and highest start allowed
    restart: int | None = None  # the new start of a log that is being emptied
    compacted: int = 0  # below it only the last record of each key must be there

    def check(self, found: Found, power: bool) -> str | None:
        """The fault of a log opened after a power cut, or a kill; None: none."""
        low = self.flushed if power else self.acknowledged
        where = f"found {found.start}..{found.end}"
        if self.restart is not None and found.start == found.end == self.restart:
            return None if not found.records else f"{where} with records"
        if not self.starts[0] <= found.start <= self.starts[1]:
            return f"{where}, the start is to be in {self.starts}"
        if not max(low, found.start) <= found.end <= max(self.end, found.start):
            return f"{where}, the end is to be in {low}..{self.end}"
        return self._content(found)

    def _content(self, found: Found) -> str | None:
        """Check that every answer of the log follows from its entries up to the end."""
        model = Model()
        model.entries = [entry for entry in self.entries if entry.offset < found.end]
        model.start, model.end = found.start, found.end
        for name, committed in (("records", False), ("committed", True)):
            wanted = tuple((r[0], r[2], r[3]) for r in model.records(committed))
            there = getattr(found, name)
            if there != wanted and not self._is_compacted(there, wanted):
                offsets = [r[0] for r in there], [r[0] for r in wanted]
                return f"{name} of {found.start}..{found.end}: found %s, wanted %s" % offsets
        if found.last_stable != model.last_stable:
            return f"last stable offset {found.last_stable}, wanted {model.last_stable}"
        unended = model.outcomes()[0]
        producers = {
            entry.producer: (model.last_sequence(entry.producer), unended.get(entry.producer, -1))
            for entry in model.entries
            if entry.producer >= 0
        }
        if found.producers != producers:
            return f"producers {found.producers}, wanted {producers}"
        epochs = self._epochs(found.start, found.end)
        if found.epochs != epochs and found.start < found.end:
            return f"epochs {found.epochs}, wanted {epochs}"
        return None

    def _is_compacted(self, there: Rows, wanted: Rows) -> bool:
        """True if it holds only appended records, and all that compaction keeps."""
        last = {key: offset for offset, key, _ in wanted if offset < self.compacted}
        sure = [r for r in wanted if r[0] >= self.compacted or last[r[1]] == r[0]]
        return set(sure) <= set(there) <= set(wanted) and list(there) == sorted(there, key=_offset)

    def _epochs(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """The start of each epoch, for the records [start, end)."""
        begins: dict[int, int] = {}
        for epoch, offset in self.epochs:
            if offset < end:
                begins.setdefault(epoch, offset)
        later = sorted(begins.items())
        return tuple(
            (epoch, max(offset, start))
            for i, (epoch, offset) in enumerate(later)
            if i + 1 == len(later) or later[i + 1][1] > start
        )


def promises(steps: Sequence[Step], log_folder: str) -> list[Promise]:
    """The promise after each step of the trace that created the log in that folder."""
    told: list[Promise] = []
    promise = Promise()
    pending: tuple[Any, ...] = ()
    for i, step in enumerate(steps):
        if step.mark:
            kind, *what = step.mark
            if kind == "found":
                promise = _settled(promise, *what[:2])
            elif kind == "returned":
                promise = _returned(promise, pending, what)
                pending = ()
            else:
                pending = step.mark
                promise = _begun(promise, pending, steps[i:], log_folder)
        told.append(promise)
    return told


def _begun(now: Promise, mark: tuple[Any, ...], steps: Sequence[Step], log_folder: str) -> Promise:
    kind, *what = mark
    if kind in ("append", "marker"):
        return _appended(now, steps, log_folder)
    if kind == "truncate":
        return replace(now, flushed=min(now.flushed, what[1]), acknowledged=what[1],
                       starts=(min(now.starts[0], what[1]), now.starts[1]))  # fmt: skip
    if kind == "restart":
        low = min(now.starts[0], what[0])
        return replace(now, restart=what[0], flushed=low, acknowledged=low,
                       starts=(low, max(now.starts[1], what[0])))  # fmt: skip
    if kind == "compact":
        return replace(now, compacted=what[0])
    if kind == "delete":
        return replace(now, starts=(now.starts[0], max(now.starts[1], what[0])))
    return now


def _returned(now: Promise, mark: tuple[Any, ...], result: list[Any]) -> Promise:
    kind, *what = mark
    if kind in ("append", "marker"):
        assert result[-1] == now.end - 1, (mark, result, now.end)
        return replace(now, acknowledged=now.end)
    if kind in ("flush", "close"):
        return replace(now, flushed=now.end)
    if kind == "truncate":
        cut = what[1]
        return replace(
            now,
            entries=tuple(e for e in now.entries if e.offset < cut),
            epochs=tuple(e for e in now.epochs if e[1] < cut),
            end=cut,
            flushed=min(now.flushed, cut),
            starts=(min(now.starts[0], cut), min(now.starts[1], cut)),
        )
    if kind == "restart":
        start = what[0]
        return Promise(start=start, end=start, flushed=start, acknowledged=start,
                       starts=(start, start))  # fmt: skip
    if kind == "delete":
        return replace(now, start=what[0], starts=(what[0], what[0]),
                       flushed=max(now.flushed, what[0]))  # fmt: skip
    return now


def _settled(now: Promise, start: int, end: int) -> Promise:
    """The log survived a crash within the trace: its promise continues from the state found."""
    return replace(
        now,
        entries=tuple(e for e in now.entries if e.offset < end),
        epochs=tuple(e for e in now.epochs if e[1] < end),
        start=start,
        end=end,
        flushed=min(now.flushed, end),
        acknowledged=end,
    )


def _appended(now: Promise, steps: Sequence[Step], log_folder: str) -> Promise:
    """With the batches that a call will append, as it will write them."""
    mark = steps[0].mark
    number = mark[1] if mark[0] == "append" else -1
    entries, epochs, end = list(now.entries), list(now.epochs), now.end
    for step in steps[1:]:
        if step.mark:
            break
        if step.op != "pwrite" or not _is_log(step.path, log_folder):
            continue
        for header in batches.headers(step.data):
            assert header.base_offset == end, (mark, header)
            epochs.append((header.leader_epoch, header.base_offset))
            for entry in _entries(header, step.data, number):
                entries.append(entry)
                number += 1
            end = header.last_offset + 1
    return replace(now, entries=tuple(entries), epochs=tuple(epochs), end=end)


def _is_log(path: str, log_folder: str) -> bool:
    return path.startswith(log_folder + "/") and path.endswith(".log")


def _entries(header: batches.Header, data: bytes, number: int) -> list[Entry]:
    """The entries of one batch, whose first record is `number`."""
    common = {"timestamp_ms": header.max_timestamp, "headers": (), "call": header.base_offset,
              "producer": header.producer_id}  # fmt: skip
    if header.attributes & batches.CONTROL:
        # The record: length, attributes, time and offset deltas of one byte each, then the
        # key's length and its version and type.
        (kind,) = struct.unpack_from(">h", data, header.pos + batches.HEADER_BYTES + 7)
        assert kind in (ABORT, COMMIT)
        return [Entry(offset=header.base_offset, key=None, value=None,
                      commit=kind == COMMIT, **common)]  # fmt: skip
    return [
        Entry(
            offset=header.base_offset + i,
            key=key_of(number + i),
            value=value_of(number + i),
            sequence=header.base_sequence + i if header.base_sequence >= 0 else -1,
            transactional=bool(header.attributes & batches.TRANSACTIONAL),
            **common,
        )
        for i in range(header.last_offset_delta + 1)
    ]
