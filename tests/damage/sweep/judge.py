"""Valid answers of a log whose bytes changed, and the reports that verify must make.

Covered, so that verify must report it and reads must not be wrong:

* a sealed `.log`: the batches' checksums, and the side-car for what they leave out;
* a sealed segment's indexes, and the side-car itself;
* a batch of the active `.log` after its first 17 bytes, and its length and magic;
* a missing `.log`, or the active one cut below what was on disk;
* producer snapshots, and the topic's id where side-cars name it.

Not covered, because nothing was sealed yet or Kafka's text has no checksum: base offset and
leader epoch in the active `.log`, the active indexes where entries stay possible, checkpoints,
the epoch list, meta.properties.  There only an accident counts: a crash, an endless loop, an
exception that is not kafkalog's.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

import kafkalog
from kafkalog.errors import KafkalogError
from kafkalog.inspect.verify.files import verify
from kafkalog.log.isolation import UNCOMMITTED
from tests.damage.sweep.reference import COLUMNS, SEGMENT_FILE, Partition, Reference, table_of
from tests.support import batches

Edits = dict[str, bytes | None]
INDEXES = (".index", ".timeindex", ".txnindex")
UNCHECKED_FIELDS = {*range(8), *range(12, 16)}
"""In a batch: its base offset and its leader epoch."""
MEMORY_ERRORS = (kafkalog.errors.NoMemory, MemoryError)


class Place(NamedTuple):
    """A file's role."""

    partition: str
    """Empty: a file of the directory."""
    base: int
    suffix: str
    """Or the name of a file that belongs to no segment."""
    sealed: bool


class Verdict(NamedTuple):
    """The consequences of a change."""

    told: bool
    """True if verify reports it as more than a note."""
    outcome: str
    """The result of reads: whole, error, short, wrong, refused."""
    problems: list[str]


def place_of(reference: Reference, name: str) -> Place:
    """The place of a file, by its path below the directory."""
    match = SEGMENT_FILE.fullmatch(name)
    if not match:
        folder, _, rest = name.rpartition("/")
        return Place(folder, -1, rest, False)
    base, bases = int(match[2]), reference.partitions[match[1]].bases
    return Place(match[1], base, match[3], base in bases[:-1])


@lru_cache(maxsize=64)
def _batch_positions(data: bytes) -> list[int]:
    return [header.pos for header in batches.headers(data)]


def is_covered(reference: Reference, name: str, position: int, sealed: bool) -> bool:
    """True if a change of the byte at `position` must be noticed."""
    place = place_of(reference, name)
    if place.suffix == ".log" and not sealed:
        data = reference.files[name]
        starts = _batch_positions(data)
        within = position - starts[bisect_right(starts, position) - 1]
        return within not in UNCHECKED_FIELDS
    if place.suffix == "partition.metadata":
        # The last character of an id has bits without meaning.
        data = reference.files[name]
        return data.index(b"topic_id: ") + 10 <= position < len(data) - 1
    return place.suffix == ".snapshot" or (sealed and place.suffix in (".log", ".chk", *INDEXES))


class Judge:
    """Reads a damaged directory, and says what is wrong with the answers."""

    def __init__(self, reference: Reference, rng: random.Random) -> None:
        self.reference = reference
        self.rng = rng
        self.count: Counter[str] = Counter()

    def judge(self, edits: Edits, covered: bool) -> Verdict:
        """Judge a change that is already on disk."""
        places = [place_of(self.reference, name) for name in edits]
        names = sorted({place.partition for place in places if place.partition})
        told = self._told(names)
        problems = []
        if covered and not told:
            problems.append("verify does not report it")
        outcomes = [self._partition(name, places, problems, covered) for name in names]
        order = ["wrong", "short", "refused", "error", "whole"]
        outcome = min(outcomes, key=order.index, default="whole")
        self.count[f"{'covered' if covered else 'not covered'}: {outcome}"] += 1
        return Verdict(told, outcome, problems)

    def _told(self, names: list[str]) -> bool:
        paths = [self.reference.path / name for name in names] or [self.reference.path]
        return any(f.severity != "note" for path in paths for f in verify(path).findings)

    def _partition(self, name: str, places: list[Place], problems: list[str], covered: bool) -> str:
        expected = self.reference.partitions[name]
        mine = [place for place in places if place.partition == name]
        # A segment with another partition's side-car is rightly refused.
        logs = any(place.suffix in (".log", ".chk", "partition.metadata") for place in mine)
        try:
            with kafkalog.Log(self.reference.path / name, mode="r") as log:
                outcome = self._read(log, expected, mine)
                if not logs and outcome != "whole":
                    problems.append(f"{outcome} without a change of a .log")
                if outcome == "whole" and all(place.sealed for place in mine):
                    problems += self._lookups(log, expected)
        except MEMORY_ERRORS as problem:
            problems.append(f"asks for much memory: {problem}")
            return "refused"
        except KafkalogError as problem:
            outcome = "refused"
            if not logs:
                problems.append(f"refused without a change of a .log: {problem}")
        lost = outcome == "short" and any(p.sealed and p.suffix == ".log" for p in mine)
        if covered and (outcome == "wrong" or lost):
            problems.append(f"{outcome} records are read")
        return outcome

    def _read(self, log: Any, expected: Partition, mine: list[Place]) -> str:
        """Read the changed segment and its neighbours' edges, or, one time in twelve, all."""
        wanted, start, stop = expected.table, None, None
        segments = {place.base for place in mine if place.base in expected.bases}
        if len(segments) == 1 and self.rng.randrange(12):
            at = expected.bases.index(segments.pop())
            ends = [*expected.bases[1:], expected.end]
            start = max(expected.bases[at] - 1, 0)
            stop = min(ends[at] + 1, expected.end)
            offsets = wanted["offset"].to_numpy()
            wanted = wanted.slice(
                int(offsets.searchsorted(start)),
                int(offsets.searchsorted(stop) - offsets.searchsorted(start)),
            )
        return self._compare(log, wanted, start, stop)

    def _compare(self, log: Any, wanted: pa.Table, start: int | None, stop: int | None) -> str:
        found, failed = [], False
        try:
            for batch in log.scan(start, stop, columns=COLUMNS, isolation=UNCOMMITTED):
                found.append(pa.record_batch(batch))
        except MEMORY_ERRORS:
            raise
        except KafkalogError:
            failed = True
        table = pa.Table.from_batches(found, schema=wanted.schema)
        if not table.equals(wanted.slice(0, table.num_rows)):
            return "wrong"
        if failed:
            return "error"
        return "whole" if table.num_rows == wanted.num_rows else "short"

    def _lookups(self, log: Any, expected: Partition) -> list[str]:
        """Try some of them, by offset and by time, and the aborted transactions."""
        problems = []
        offsets = expected.table["offset"].to_numpy()
        for row in self.rng.sample(range(len(offsets)), 2):
            record = next(log.read(int(offsets[row])), None)
            if record is None or record.offset != offsets[row]:
                problems.append(f"read({offsets[row]}) begins with {record}")
        for time in self.rng.sample(sorted(expected.times), 1):
            if (found := log.offset_at(time)) != expected.times[time]:
                problems.append(f"offset_at({time}) is {found}, wanted {expected.times[time]}")
        if not self.rng.randrange(4):
            committed = table_of(log, isolation="read_committed")
            if not committed.equals(expected.committed):
                problems.append("other records are committed")
        return problems
