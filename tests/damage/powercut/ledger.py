"""Survivors of a power cut: everything that was flushed, and a prefix of the rest."""

import threading
from typing import Any

from tests.damage.crash.ledger import Ledger


class DurableLedger(Ledger):
    """As the ledger of kills, but only a flush, a truncation or a close is a promise.

    It counts only if it returned before the cut: after a real cut nobody sees a later return.  Here
    the writer runs on for a moment while the file system is being shut down.  An fdatasync in
    flight may then return 0 although its bytes never arrive: a bare loop of pwrite and
    fdatasync loses them, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flushed = 0
        self.promises = 0
        self.late = 0  # the end at a flush that returned after the cut
        self.late_lost = 0
        self.cut = threading.Event()  # set before the power goes, cleared after

    def _apply(self, *result: Any) -> None:
        assert self.pending is not None
        kind = self.pending[0]
        super()._apply(*result)
        if kind in ("flush", "close"):
            if self.cut.is_set():
                self.late = self.end
            else:
                self.flushed = self.end
                self.promises += 1
        elif kind == "restart":
            self.flushed = self.end
        self.flushed = min(self.flushed, self.end)

    def check(self, start: int, end: int, found: list[list[int]]) -> None:
        """Accept an end between the flushed and the appended one, then compare everything."""
        kind, *what = self.pending or ["nothing"]
        low = min(self.flushed, what[1]) if kind == "truncate" else self.flushed
        self.late_lost += end < min(self.late, self.end)
        self.late = 0
        if low <= end < self.end and kind != "restart":
            # Remove the lost part, and with it an append that came after it.
            self.records = [record for record in self.records if record[0] < end]
            self.end = end
            if kind == "truncate":  # whole batches, perhaps with the start inside of one
                self.start = min(self.start, end)
                self.pending = [kind, what[0], min(what[1], end)]
            if kind in ("append", "marker"):
                self.pending = None
        super().check(start, end, found)
        self.flushed = self.end  # it was read back from the disk
