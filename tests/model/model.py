"""A log in a few lines: a list of entries, a start, and what follows from them."""

from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One offset of the log; a transaction's marker takes one, too."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    call: int  # the first offset of the call that appended it
    producer: int = -1
    sequence: int = -1
    transactional: bool = False
    commit: bool | None = None  # of a marker

    @property
    def record(self) -> tuple[Any, ...]:
        return self[:5]


class Model:
    """Entries below `start` and compacted ones are kept: transactions and producers' sequences
    that begin in them may continue above."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = self.end = 0
        self.cleaned = 0  # everything below was compacted
        self.gone: set[int] = set()  # offsets that compaction removed
        self._horizons: dict[int, int] = {}  # by a tombstone's offset: when it may be removed

    def add(self, **fields: Any) -> None:
        self.entries.append(Entry(offset=self.end, **fields))
        self.end += 1

    def truncate(self, end: int) -> None:
        self.entries = [entry for entry in self.entries if entry.offset < end]
        self.end, self.start = end, min(self.start, end)
        self.cleaned = min(self.cleaned, end)

    def restart(self, offset: int) -> None:
        self.entries, self.start, self.end = [], offset, offset
        self.cleaned = 0

    def compact(self, end: int, now_ms: int, retention_ms: int) -> None:
        """Keep the last record of each key below `end`, a tombstone only for a while."""
        aborted = self.outcomes()[1]
        left = [
            entry for entry in self.entries
            if entry.offset < end and entry.commit is None and entry.offset not in self.gone
        ]  # fmt: skip
        latest = {entry.key: entry.offset for entry in left if entry.offset not in aborted}
        for entry in left:
            last = latest.get(entry.key) == entry.offset
            if last and entry.value is None:
                last = now_ms < self._horizons.setdefault(entry.offset, now_ms + retention_ms)
            if not last:
                self.gone.add(entry.offset)
        self.cleaned = max(self.cleaned, end)

    def outcomes(self) -> tuple[dict[int, int], set[int]]:
        """(first offset of each producer's open transaction, offsets that were aborted)."""
        pending: dict[int, list[int]] = {}
        aborted: set[int] = set()
        for entry in self.entries:
            if entry.commit is not None:
                offsets = pending.pop(entry.producer, [])
                aborted.update(() if entry.commit else offsets)
            elif entry.transactional:
                pending.setdefault(entry.producer, []).append(entry.offset)
        return {producer: offsets[0] for producer, offsets in pending.items()}, aborted

    @property
    def last_stable(self) -> int:
        return max(self.start, min([*self.outcomes()[0].values(), self.end]))

    def visible(self) -> list[Entry]:
        """The entries that a reader sees, including markers."""
        return [e for e in self.entries if e.offset >= self.start and e.offset not in self.gone]

    def records(self, committed: bool = False) -> list[tuple[Any, ...]]:
        """The records that a consumer reads."""
        left_out = self.outcomes()[1] if committed else set()
        end = self.last_stable if committed else self.end
        return [
            entry.record
            for entry in self.visible()
            if entry.commit is None and entry.offset < end and entry.offset not in left_out
        ]

    def first_at(self, timestamp_ms: int) -> int | None:
        """Markers count in a lookup by time, as in Kafka."""
        late = (e.offset for e in self.visible() if e.timestamp_ms >= timestamp_ms)
        return next(late, None)

    def last_sequence(self, producer: int) -> int:
        """-1: none, or no record since a marker of a newer epoch."""
        mine = [e.sequence for e in self.entries if e.producer == producer and e.commit is None]
        return mine[-1] if mine else -1
