"""Checks the offset and time index of one segment against its batches, block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog.batch.walk import BatchWalk
from kafkalog.inspect.rawfiles import SegmentFiles
from kafkalog.report import Report

if TYPE_CHECKING:
    import numpy as np

    Table = np.ndarray[Any, Any]

__all__ = ["OffsetIndexCheck", "TimeIndexCheck"]

EXAMPLES = 8


class _IndexCheck(ABC):
    """Shared by both indexes: load, zero tail, order."""

    suffix = ""
    fields: tuple[tuple[str, str], ...] = ()

    def __init__(self, files: SegmentFiles, report: Report, growing: bool = False) -> None:
        """`growing`: a writer may be in the middle of an entry, or have all of them in memory."""
        import numpy as np

        self.files = files
        self.report = report
        self.path: Path = files.path(self.suffix)
        self.usable = False
        """There are entries, in order: comparing them with the batches makes sense."""
        dtype = np.dtype(list(self.fields))
        self.entries: Table = np.zeros(0, dtype)
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            # kafkalog writes them when the segment is sealed, cut or closed.
            if not growing and files.path(".log").stat().st_size:
                report.add("index-missing", self.path, "no file", f"a {self.suffix} file")
            return
        except OSError as problem:
            report.add("unreadable", self.path, problem, "a file that can be read")
            return
        if len(data) % dtype.itemsize and not growing:
            report.add(
                "index-size",
                self.path,
                f"{len(data)} bytes",
                f"a multiple of {dtype.itemsize}",
                position=len(data) - len(data) % dtype.itemsize,
                length=len(data) % dtype.itemsize,
            )
        self._trim(np.frombuffer(data[: len(data) - len(data) % dtype.itemsize], dtype))

    def _trim(self, entries: Table) -> None:
        """Take the entries before a tail of zeros; a lone first entry may be all zero."""
        import numpy as np

        used = np.zeros(len(entries), bool)
        for name, _ in self.fields:
            used |= entries[name] != 0
        count = int(used.nonzero()[0][-1]) + 1 if used.any() else 0
        if count == 0 and len(entries) == 1:
            count = 1
        if count < len(entries):
            self.report.add(
                "index-zeros-sealed" if self.files.sealed else "index-zeros",
                self.path,
                f"{len(entries) - count} zero entries",
                "none",
                position=count * entries.dtype.itemsize,
                length=(len(entries) - count) * entries.dtype.itemsize,
            )
        self.entries = entries[:count]
        self.report.counters["index_entries"] += count

    def _check_order(self, *columns: Table) -> None:
        import numpy as np

        wrong = np.zeros(len(self.entries), bool)
        for column in columns:
            wrong[1:] |= column[1:] <= column[:-1]
        self._tell("index-order", wrong, lambda i: f"greater than {self._show(i - 1)}")
        self.usable = not wrong.any()

    @abstractmethod
    def _show(self, i: int) -> str:
        """An entry, in words."""

    def _tell(self, what: str, wrong: Table, wanted: Callable[[int], str]) -> None:
        for i in wrong.nonzero()[0][:EXAMPLES]:
            at = int(i)
            self.report.add(
                what,
                self.path,
                self._show(at),
                wanted(at),
                position=at * self.entries.dtype.itemsize,
                offset=self._offset(at),
                length=self.entries.dtype.itemsize,
            )

    def _offset(self, i: int) -> int:
        return int(self.entries["offset"][i]) + self.files.base_offset


def _window(entries: Table, block: Table) -> slice:
    """The slice of ascending entries between the first and the last value of a block."""
    import numpy as np

    start, end = np.searchsorted(entries, [block[0], block[-1] + 1])
    return slice(int(start), int(end))


class OffsetIndexCheck(_IndexCheck):
    """Each entry: the position of a batch, and the last offset of it or of a later one."""

    suffix = ".index"
    fields = (("offset", ">i4"), ("position", ">i4"))

    def __init__(self, files: SegmentFiles, report: Report, growing: bool = False) -> None:
        import numpy as np

        super().__init__(files, report, growing)
        self.offsets: Table = self.entries["offset"].astype("i8") + files.base_offset
        self.positions: Table = self.entries["position"].astype("i8")
        self._check_order(self.offsets, self.positions)
        self.lowest: Table = np.full(len(self.entries), -1, "i8")
        """Base offset of the batch at each entry's position; -1: no batch was seen there."""
        self.is_last: Table = np.zeros(len(self.entries), bool)

    def feed(self, table: Table, walk: BatchWalk) -> None:
        """Look for the entries in a block of batches."""
        import numpy as np

        del walk
        if not self.usable:
            return
        entries = _window(self.positions, table["pos"])
        at = np.searchsorted(table["pos"], self.positions[entries])
        hit = table["pos"][at] == self.positions[entries]
        self.lowest[entries][hit] = table["base_offset"][at[hit]]
        entries = _window(self.offsets, table["last_offset"])
        at = np.searchsorted(table["last_offset"], self.offsets[entries])
        # A damaged log's offsets may fall, and then the search may end after the block.
        at = np.minimum(at, len(table) - 1)
        self.is_last[entries] |= table["last_offset"][at] == self.offsets[entries]

    def finish(self, complete: bool) -> None:
        """Report the wrong entries.  `complete`: every batch was seen."""
        if not self.usable:
            return
        wrong = (self.lowest >= 0) & (self.lowest > self.offsets)
        if complete:
            wrong |= (self.lowest < 0) | ~self.is_last
        self._tell("index-entry", wrong, self._wanted)

    def _wanted(self, i: int) -> str:
        if self.lowest[i] < 0:
            return "the position of a batch"
        return f"the last offset of the batch with base {self.lowest[i]}, or of a later one"

    def _show(self, i: int) -> str:
        return f"offset {self._offset(i)} at position {self.entries['position'][i]}"


class TimeIndexCheck(_IndexCheck):
    """Each entry: no record up to its offset is later than its timestamp."""

    suffix = ".timeindex"
    fields = (("timestamp", ">i8"), ("offset", ">i4"))

    def __init__(self, files: SegmentFiles, report: Report, growing: bool = False) -> None:
        import numpy as np

        super().__init__(files, report, growing)
        self.times: Table = self.entries["timestamp"].astype("i8")
        self.offsets: Table = self.entries["offset"].astype("i8") + files.base_offset
        self._check_order(self.times)
        falling = np.zeros(len(self.entries), bool)
        falling[1:] = self.offsets[1:] < self.offsets[:-1]
        if self.usable:
            self._tell("index-order", falling, lambda i: f"at or after {self._show(i - 1)}")
            self.usable = not falling.any()
        self.latest: Table = np.full(len(self.entries), -1, "i8")
        """The largest timestamp of the batches up to each entry's offset."""
        self.decided = 0
        """Entries before this one are below the batches that were seen."""
        self.largest = -1
        self.last_offset = files.base_offset - 1

    def feed(self, table: Table, walk: BatchWalk) -> None:
        """Carry the largest timestamp through a block of batches."""
        import numpy as np

        del walk
        running = np.maximum.accumulate(
            np.concatenate(([self.largest], np.maximum(table["max_timestamp"], -1)))
        )
        if self.usable:
            # The entries that this block decides; offsets between two blocks count here.
            end = int(np.searchsorted(self.offsets, table["last_offset"][-1], "right"))
            entries = slice(self.decided, end)
            within = np.searchsorted(table["last_offset"], self.offsets[entries], "right")
            self.latest[entries] = running[within]
            self.decided = max(end, self.decided)
        self.largest = int(running[-1])
        self.last_offset = max(self.last_offset, int(table["last_offset"][-1]))

    def finish(self, complete: bool) -> None:
        """Report broken promises, and a sealed segment whose last entry is too early."""
        if not self.usable:
            return
        self.latest[self.decided :] = self.largest
        self._tell(
            "time-promise",
            self.latest > self.times,
            lambda i: f"at least {self.latest[i]}, the largest timestamp up to there",
        )
        if not complete:
            return
        limit = max(self.last_offset, self.files.base_offset)
        self._tell(
            "time-entry", self.offsets > limit, lambda i: f"an offset up to {self.last_offset}"
        )
        last = int(self.times[-1]) if len(self.times) else -1
        if self.files.sealed and self.path.exists() and last < self.largest:
            self.report.add(
                "time-short",
                self.path,
                f"last entry {last}" if len(self.times) else "no entry",
                f"{self.largest}, the largest timestamp of the segment",
                offset=self.last_offset,
            )

    def _show(self, i: int) -> str:
        return f"timestamp {self.entries['timestamp'][i]} offset {self._offset(i)}"
