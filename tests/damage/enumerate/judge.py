"""Opens the image that a cut left, and queries everything."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import kafkalog
from kafkalog import _native
from kafkalog.log.log import handle_of
from tests.damage.enumerate.disk import Files, Folder, digest
from tests.damage.enumerate.promise import Found, Promise
from tests.damage.enumerate.trace import Step, recording
from tests.support.effort import EXPLORING

ALWAYS_USED = 100 if EXPLORING else 20


class Verdict(NamedTuple):
    """The result of opening an image: a log that was found, or why none could be."""

    found: Found | None
    problem: str | None


def die(log: kafkalog.Log) -> None:
    """End a handle as a killed process does: nothing more is written."""
    handle_of(log).abandon()


def look(log: kafkalog.Log) -> Found:
    """Everything that can be queried of an open log."""
    return Found(
        start=log.start_offset,
        end=log.end_offset,
        records=tuple((r.offset, r.key, r.value) for r in log.read()),
        committed=tuple((r.offset, r.key, r.value) for r in log.read(isolation="read_committed")),
        last_stable=log.last_stable_offset,
        producers={p.producer_id: (p.last_sequence, p.txn_start_offset) for p in log.producers},
        epochs=tuple((epoch.epoch, epoch.start_offset) for epoch in log.epochs),
    )


class Judge:
    """Opens images in one folder in memory; each distinct one once.

    Every image is opened and read.  Its log is also used (_use) if its outcome is new, up to
    ALWAYS_USED of them, and one in `share` of the later ones.
    """

    def __init__(
        self, root: Path, config: Mapping[str, object], log_folder: str, share: int = 1
    ) -> None:
        self.root = root
        self.config = config
        self.path = root / log_folder
        self.share = share
        self._folder = Folder(root)
        self._verdicts: dict[int, Verdict] = {}
        self._kept: dict[tuple[int, int, bool], str | None] = {}
        self._thorough: dict[tuple[int, str], str | None] = {}

    def verdict(self, files: Files) -> Verdict:
        """The result of opening this image."""
        key = digest(files)
        if key not in self._verdicts:
            self._verdicts[key] = self._open(files)
        return self._verdicts[key]

    def problem(self, files: Files, promise: Promise, power: bool) -> str | None:
        """The fault of this image after a power cut, or a kill; None: none."""
        key = digest(files), id(promise), power
        if key not in self._kept:
            found, problem = self.verdict(files)
            if found is not None and problem is None:
                problem = promise.check(found, power)
            self._kept[key] = problem
        return self._kept[key]

    @property
    def states(self) -> int:
        """The number of different images that were opened."""
        return len(self._verdicts)

    def _log(self) -> kafkalog.Log:
        return kafkalog.Log(self.path, config=self.config)

    def opening(self, files: Files) -> list[Step]:
        """The steps by which opening this image changes the disk."""
        self._folder.put(files)
        steps: list[Step] = []
        with recording(_native.lib, steps):
            die(self._log())
        return steps

    def _open(self, files: Files) -> Verdict:
        self._folder.put(files)
        try:
            log = self._log()
        except Exception as error:
            return Verdict(None, f"does not open: {error!r}")
        try:
            found = look(log)
            key = digest(self._folder.read()), repr(found)
            if key not in self._thorough:
                wanted = len(self._thorough) < ALWAYS_USED or key[0] % self.share == 0
                self._thorough[key] = self._use(log, found) if wanted else None
            return Verdict(found, self._thorough[key])
        except Exception as error:
            return Verdict(None, f"opens, then fails: {error!r}")
        finally:
            if not log.closed:
                die(log)

    def _use(self, log: kafkalog.Log, found: Found) -> str | None:
        """Look up every record, verify, append, close, open again: what is wrong, if anything.

        Recovery often leaves the same state, so this is done once for each outcome.
        """
        for offset, key, value in found.records:
            record = log[offset]
            if (record.offset, record.key, record.value) != (offset, key, value):
                return f"log[{offset}] gives {record}"
        report = log.verify()
        if not report.clean:
            return f"verify: {'; '.join(map(str, report.findings))}"
        if log.append(b"more", key=b"key") != found.end:
            return f"the next offset after {found.end} was {log.end_offset - 1}"
        log.close()
        with self._log() as again:
            later = look(again)
            if again.recovery.truncated_bytes:
                return f"after a clean close {again.recovery}"
            if later.records != (*found.records, (found.end, b"key", b"more")):
                return f"after one append and a close: {[r[0] for r in later.records]}"
            if (later.start, later.producers) != (found.start, found.producers):
                return f"after a clean close {later}, before {found}"
        return None
