"""Everything visible of a log, and a separate process that looks at it.

`python -m tests.model.reader` takes orders on its input, each a pickled tuple: ("open", path),
("see",), ("time", milliseconds).  Each gets one answer: (failure as text or None, result).
"""

import pickle
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import kafkalog
from tests.support.waiting import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
ISOLATIONS = ("read_uncommitted", "read_committed")


class Seen(NamedTuple):
    """The state that a handle shows; the lists have one item for each isolation level."""

    start: int
    end: int
    records: list[list[tuple[Any, ...]]]
    counts: list[int]
    offsets: list[list[int]]  # by columns
    producers: dict[int, tuple[int, int]]  # (last sequence, where its transaction began, or -1)


def see(log: kafkalog.Log) -> Seen:
    scans = [log.scan(columns=["offset", "value"], isolation=name) for name in ISOLATIONS]
    return Seen(
        start=log.start_offset,
        end=log.end_offset,
        records=[[tuple(r[:5]) for r in log.read(isolation=name)] for name in ISOLATIONS],
        counts=[log.scan(isolation=name).count() for name in ISOLATIONS],
        offsets=[scan.to_numpy()["offset"].tolist() for scan in scans],
        producers={p.producer_id: (p.last_sequence, p.txn_start_offset) for p in log.producers},
    )


class Elsewhere:
    """A reader in another process.  `see` and `offset_at` look at the newest state."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.model.reader"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip

    def _ask(self, *order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(order, self._process.stdin)
        self._process.stdin.flush()
        failure, result = pickle.load(self._process.stdout)
        assert failure is None, failure
        return result

    def open(self, path: Path) -> None:
        """Close the open log, and open this one."""
        self._ask("open", str(path))

    def see(self) -> Seen:
        return Seen(*self._ask("see"))

    def offset_at(self, timestamp_ms: int) -> int | None:
        found: int | None = self._ask("time", timestamp_ms)
        return found

    def close(self) -> None:
        """End the process; it must not have ended before."""
        self._process.communicate(timeout=LIMIT_S)
        assert self._process.returncode == 0


def main() -> None:
    log: Any = None
    while True:
        try:
            kind, *what = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        failure = result = None
        try:
            if kind == "open":
                if log is not None:
                    log.close()
                log = kafkalog.Log(what[0], mode="r")
            else:
                log.refresh()
                result = tuple(see(log)) if kind == "see" else log.offset_at(what[0])
        except Exception:
            failure = traceback.format_exc()
        pickle.dump((failure, result), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
