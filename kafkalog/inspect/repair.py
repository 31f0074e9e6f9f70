"""Repairs what verify found: first a plan, then, on request, its execution.

`plan` is pure: a report in, actions out.  Only bytes that verify called bad are ever cut, and
they are kept in a `.damaged` file next to the segment; good batches after them stay.  Derived
files (indexes, aborted transactions, epochs) are rebuilt from the batches.  A header bit that is
known to be wrong is corrected first, in place.  A finding that cannot be repaired becomes an
action of kind "leave", so that nothing is skipped silently.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkalog.batch.walk import BatchWalk
from kafkalog.disk.checkpoint import (
    CLEAN_MARKER,
    FLUSHED,
    LOG_START,
    RECOVERY_POINT,
    parse_offsets,
    readable_offsets,
    render_offsets,
)
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import segment_name
from kafkalog.errors import CorruptLog
from kafkalog.inspect.rawfiles import (
    ABORT_ENTRY,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortEntry,
    SegmentFiles,
    list_segments,
    owner_of,
    segment_offset,
)
from kafkalog.inspect.sidecar import SIDECAR, read_sidecar, remake, render_sidecar
from kafkalog.inspect.verify.checkpoints import name_in
from kafkalog.inspect.verify.files import find_partitions, partition_of
from kafkalog.inspect.verify.sidecar import topic_id_of
from kafkalog.inspect.verify.state import Replay, load_aborts
from kafkalog.report import DAMAGE, UNCHECKED, WARNING, Finding, Report

__all__ = ["Action", "apply", "plan", "set_aside"]

CUTS = {"batch-checksum", "batch-bytes", "batch-place", "tail-bytes", "tail-zeros-sealed"}
INDEXES = {
    "index-missing",
    "index-size",
    "index-order",
    "index-entry",
    "index-zeros-sealed",
    "time-promise",
    "time-entry",
    "time-short",
    "index-changed",
}
ABORTS = {"aborts-bytes", "aborts-missing", "aborts-extra", "aborts-entry", "aborts-changed"}
EPOCHS = {"epochs-bytes", "epochs-order", "epochs-batch", "epochs-ahead", "epochs-missing"}
ASIDE = {
    "snapshot-bytes",
    "snapshot-entry",
    "snapshot-ahead",
    "orphan",
    "segment-missing",
    "metadata-bytes",
}
SIDECARS = {"sidecar-bytes", "sidecar-stale"}
UNKNOWN = {"header-sum", "sidecar-identity"}
"""Something is wrong, and it is not known which bytes."""
COPY_BYTES = 1 << 22
KEPT_FILES_MAX = 1000
"""The most `.damaged` files in a folder; also KL_KEPT_FILES_MAX."""
INDEX_INTERVAL_BYTES = 4096
RELATIVE_MAX = 1 << 31


@dataclass(frozen=True)
class Action:
    """One thing to do, or (kind "leave") a finding that is left as it is."""

    kind: str
    """mend, cut, rebuild-indexes, rebuild-aborts, rebuild-epochs, keep-lines, go-on, lower,
    begin, set-aside, reseal, leave."""
    file: str
    why: str
    """The action, and the loss it causes."""
    ranges: tuple[tuple[int, int], ...] = ()
    """For a cut: [start, end) in bytes."""
    mends: tuple[tuple[int, int, int], ...] = ()
    """For a mend: position in bytes, the byte that is there, the one that should be."""


def plan(report: Report) -> list[Action]:
    """The repairs of a report's damage and warnings, in order."""
    by_file: dict[tuple[str, str], list[Finding]] = {}
    mended = {os.path.dirname(f.file) for f in report.findings if f.what == "header-bit"}
    # Batches that disagree about epochs cannot say what the list should be.
    unsure = {os.path.dirname(f.file) for f in report.findings if f.what == "batch-epoch"}
    # Nor can an index keep its promise about batches that are not its segment's.
    foreign = {f.file for f in report.findings if f.what == "batch-range"}
    # A log that continues at its former end knows its producers from the snapshot there.
    short = {f.file for f in report.findings if f.what == "log-short"}
    # A segment whose end is given up has the size that it needs.
    ended = {f.file for f in report.findings if f.what == "point-gap"}
    for finding in report.findings:
        # Other findings next to a wrong bit may follow from it: look again afterwards.
        folder = finding.file if finding.what == "log-short" else os.path.dirname(finding.file)
        later = folder in mended and finding.what != "header-bit"
        if finding.severity in (DAMAGE, WARNING, UNCHECKED) and not later:
            task = _task(finding)
            if finding.what == "epochs-batch" and os.path.dirname(finding.file) in unsure:
                task = ("leave", finding.file)
            if finding.what == "time-promise" and task[1] in foreign:
                task = ("leave", finding.file)
            if finding.what == "snapshot-ahead" and os.path.dirname(finding.file) in short:
                task = ("leave", finding.file)
            if finding.what == "log-size" and finding.file in ended:
                task = ("reseal", finding.file)
            by_file.setdefault(task, []).append(finding)
    actions = []
    for (kind, file), findings in by_file.items():
        actions.append(_action(kind, file, findings))
        if kind == "cut":
            actions += _after_cut(file, by_file)
    return sorted(actions, key=lambda action: ORDER.index(action.kind))


ORDER = [
    "mend",
    "cut",
    "rebuild-indexes",
    "rebuild-aborts",
    "rebuild-epochs",
    "keep-lines",
    "go-on",
    "lower",
    "begin",
    "set-aside",
    "reseal",
    "leave",
]


def _task(finding: Finding) -> tuple[str, str]:
    what, file = finding.what, finding.file
    if what == "header-bit":
        return "mend", file
    if what in SIDECARS:
        return "reseal", os.path.splitext(file)[0] + ".log"
    if what in CUTS and finding.length > 0:
        return "cut", file
    if what in INDEXES:
        return "rebuild-indexes", os.path.splitext(file)[0] + ".log"
    if what in ABORTS:
        return "rebuild-aborts", os.path.join(os.path.dirname(file), "*.txnindex")
    if what in EPOCHS:
        return "rebuild-epochs", file
    if what == "checkpoint-bytes" and os.path.basename(file) == LOG_START:
        return "keep-lines", file
    if what == "checkpoint-range" and os.path.basename(file) != LOG_START:
        return "lower", file
    if what == "log-short":
        return "go-on", os.path.join(file, segment_name(finding.offset))
    if what == "point-gap":
        name = segment_name(finding.offset)
        return "begin", os.path.join(os.path.dirname(file), name)
    if what in ASIDE:
        return "set-aside", file
    return "leave", file


def _after_cut(file: str, by_file: dict[tuple[str, str], list[Finding]]) -> list[Action]:
    """A cut moves positions, so both indexes and the side-car must follow."""
    actions = []
    if ("rebuild-indexes", file) not in by_file:
        actions.append(Action("rebuild-indexes", file, "rebuilt, since positions move"))
    sidecar = os.path.splitext(file)[0] + SIDECAR
    left = by_file.get(("leave", file), []) + by_file.get(("leave", sidecar), [])
    if any(finding.what in UNKNOWN for finding in left):
        # A new one would vouch for headers that are known to be wrong.
        why = "positions move; renamed to end in .damaged, since it describes other bytes"
        actions.append(Action("set-aside", sidecar, why))
    elif ("reseal", file) not in by_file:
        actions.append(Action("reseal", file, "the side-car is rebuilt, since positions move"))
    return actions


def _action(kind: str, file: str, findings: list[Finding]) -> Action:
    first = findings[0]
    if kind == "cut":
        ranges = tuple(sorted({(f.position, f.position + f.length) for f in findings}))
        size = sum(end - start for start, end in ranges)
        what = "not in order" if first.what == "batch-place" else "not a whole batch"
        why = (
            f"{size} bytes in {len(ranges)} place{'s' if len(ranges) > 1 else ''} are "
            f"{what}; they go to {os.path.basename(file)}.damaged, and the records from "
            f"offset {first.offset} that were in them are lost"
        )
        return Action(kind, file, why, ranges)
    whats = ", ".join(sorted({f.what for f in findings}))
    if kind == "mend":
        places = ", ".join(str(f.position) for f in findings)
        why = f"one bit is corrected in place, at {places}; nothing is lost"
        mends = tuple((f.position, int(f.found, 16), int(f.wanted, 16)) for f in findings)
        return Action(kind, file, why, mends=mends)
    if kind == "set-aside":
        why = f"{whats}: renamed to end in .damaged; {_without(first.what)}"
    elif kind == "keep-lines":
        why = (
            f"{whats}: {first.found}; the file goes to {os.path.basename(file)}.damaged, its "
            "intact lines stay, and a log without an intact line shows everything that it still "
            "holds, deleted records too"
        )
    elif kind == "go-on":
        why = (
            f"{whats}: found {first.found}, wanted {first.wanted}: the records between are lost; "
            f"the log continues at offset {first.offset}, with a new, empty segment, so that no "
            "offset is used twice"
        )
    elif kind == "begin":
        why = (
            f"{whats}: found {first.found}, wanted {first.wanted}: the records between are lost; "
            f"recovery begins after them, at offset {first.offset}, so that later records stay"
        )
    elif kind == "lower":
        lines = ", ".join(f.found for f in findings)
        why = (
            f"{whats}: {lines}: lowered to the ends of the logs, which use the offsets from there "
            "on again, or get their records from the leader"
        )
    elif kind == "leave":
        why = f"{whats}: found {first.found}, wanted {first.wanted}; {_left(first)}"
    else:
        why = f"{whats}: rebuilt from the batches"
    return Action(kind, file, why)


def _without(what: str) -> str:
    if what.startswith("snapshot"):
        return "producers come from an older snapshot and the batches"
    return "the next open creates it again" if what == "metadata-bytes" else "nothing uses it"


def _left(finding: Finding) -> str:
    if finding.severity == UNCHECKED:
        return "it could not be read"
    if finding.what in ("segment-gap", "log-size"):
        return "the missing part cannot be restored"
    if finding.what in UNKNOWN:
        return "it is not known which bytes are wrong"
    if finding.severity == WARNING:
        return "the next open for writing repairs it"
    return "its checksum is right, so no byte can be called wrong: left as it is"


# ---- execution -----------------------------------------------------------------------------


def apply(actions: Iterable[Action]) -> list[str]:
    """Carry out a plan; returns a sentence for each thing done.

    The directory's lock is taken, and the clean marker removed first, so that the next open
    recovers.  Each step replaces a file as a whole: a crash leaves the old or the new one.

    Raises: Locked if a process has the directory open for writing; KafkalogError, OSError.
    """
    done: list[str] = []
    by_owner: dict[Path, list[Action]] = {}
    for action in actions:
        if action.kind != "leave":
            by_owner.setdefault(owner_of(Path(action.file).parent), []).append(action)
    for owner, mine in by_owner.items():
        with _owned(owner):
            for action in mine:
                done.append(_do(action))
    return done


@contextmanager
def _owned(owner: Path) -> Iterator[None]:
    with Directory(owner) as directory:
        directory.lock()
        directory.unlink(CLEAN_MARKER)
        yield


def _do(action: Action) -> str:
    path = Path(action.file)
    if action.kind == "mend":
        return _mend(path, action.mends)
    if action.kind == "cut":
        return _cut(path, action.ranges)
    if action.kind == "reseal":
        return _reseal(_segment(path), whole=True)
    if action.kind == "rebuild-indexes":
        return _rebuild_indexes(_segment(path))
    if action.kind == "rebuild-aborts":
        return _rebuild_aborts(path.parent)
    if action.kind == "rebuild-epochs":
        return _rebuild_epochs(path)
    if action.kind == "keep-lines":
        return _keep_lines(path)
    if action.kind == "go-on":
        return _go_on(path)
    if action.kind == "lower":
        return _lower(path)
    if action.kind == "begin":
        return _begin(path)
    return set_aside(path)


def _go_on(path: Path) -> str:
    if path.exists():
        return f"{path}: already exists"
    with Directory(path.parent) as directory:
        directory.replace(path.name, b"")
    return f"{path}: created, empty: the log continues there"


def _lower(path: Path) -> str:
    """Lower the entries of a checkpoint that are above their logs' ends."""
    with Directory(path.parent) as directory:
        if path.name == FLUSHED:
            directory.unlink(path.name)
            return f"{path}: removed"
        entries = parse_offsets(path.read_bytes())
        ends = {
            name_in(entries, partition_of(folder), folder == path.parent): _end_of(folder)
            for folder in find_partitions(path.parent)
        }
        lowered = {tp: min(offset, ends.get(tp, offset)) for tp, offset in entries.items()}
        directory.replace(path.name, render_offsets(lowered))
    return f"{path}: {sum(entries[tp] != lowered[tp] for tp in entries)} entries lowered"


def _begin(path: Path) -> str:
    """Let recovery begin where the segment at `path` begins, or above."""
    folder, base = path.parent, _segment(path).base_offset
    point = owner_of(folder) / RECOVERY_POINT
    entries = readable_offsets(point.read_bytes() if point.exists() else b"")
    tp = name_in(entries, partition_of(folder), folder == point.parent)
    entries[tp] = max(base, entries.get(tp, base))
    with Directory(point.parent) as directory:
        directory.replace(point.name, render_offsets(entries))
        if folder == point.parent:
            directory.unlink(FLUSHED)  # it is lower, and applies to a log of any name
    return f"{path}: recovery begins there"


def _end_of(folder: Path) -> int:
    """The offset after a log's last batch, as far as its last segment can be read."""
    segments = list_segments(folder)
    if not segments:
        return 0
    end = segments[-1].base_offset
    for table in BatchWalk(segments[-1].path(".log")).tables():
        end = max(end, int(table["last_offset"][-1]) + 1)
    return end


def _keep_lines(path: Path) -> str:
    entries = readable_offsets(path.read_bytes())
    done = set_aside(path)
    with Directory(path.parent) as directory:
        directory.replace(path.name, render_offsets(entries))
    return f"{done}; rewritten with its {len(entries)} intact lines"


def _segment(path: Path) -> SegmentFiles:
    base = segment_offset(path.name, ".log")
    return next(s for s in list_segments(path.parent) if s.base_offset == base)


def _free_name(folder: Path, name: str) -> str:
    """`name`.damaged, or .damaged.1, ...: no file of an earlier repair is replaced.

    Raises: CorruptLog if there are as many as a recovery leaves, too.
    """
    kept = sorted(path.name for path in folder.glob("*.damaged*"))
    if len(kept) >= KEPT_FILES_MAX:
        raise CorruptLog(
            f"{folder}: found {len(kept)} files kept by earlier repairs, from {kept[0]} to "
            f"{kept[-1]}, wanted fewer than {KEPT_FILES_MAX}: nothing was changed; move them "
            "elsewhere or delete them, then repair again"
        )
    taken, number = set(kept), 0
    candidate = f"{name}.damaged"
    while candidate in taken:
        number += 1
        candidate = f"{name}.damaged.{number}"
    return candidate


def set_aside(path: Path) -> str:
    """Give a file a name that nothing reads; returns what was done."""
    name = _free_name(path.parent, path.name)
    if not path.exists():
        return f"{path}: there was none"
    with Directory(path.parent) as directory:
        directory.rename(path.name, name)
    return f"{path}: renamed to {name}"


def _mend(path: Path, mends: tuple[tuple[int, int, int], ...]) -> str:
    """One byte at a time: after a crash in between, the next repair corrects the rest."""
    done = 0
    with open(path, "r+b") as file:
        for position, found, wanted in mends:
            if os.pread(file.fileno(), 1, position) == bytes([found]):
                done += os.pwrite(file.fileno(), bytes([wanted]), position)
        os.fsync(file.fileno())
    return f"{path}: {done} bits corrected"


def _reseal(files: SegmentFiles, whole: bool = False) -> str:
    """Rebuild the side-car for the current files; not `whole`: only its indexes' checksums."""
    path = files.path(SIDECAR)
    if not path.exists():
        return f"{path}: there was none"
    try:
        old = None if whole else read_sidecar(path.read_bytes())
        sidecar = remake(files, old, topic_id_of(files.folder), files.folder.absolute().name)
    except (ValueError, OSError) as problem:
        return f"{path}: not rebuilt: {problem}"
    with Directory(files.folder) as directory:
        if files.sealed:
            directory.replace(path.name, render_sidecar(sidecar))
        else:
            directory.unlink(path.name)
    return f"{path}: rebuilt"


def _copy(source: Any, target: Any, start: int, end: int) -> None:
    source.seek(start)
    left = end - start
    while left > 0 and (chunk := source.read(min(left, COPY_BYTES))):
        target.write(chunk)
        left -= len(chunk)


def _write_ranges(path: Path, name: str, ranges: Iterable[tuple[int, int]]) -> None:
    """Copy ranges of a file into a new one next to it, which is on disk on return."""
    with open(path, "rb") as source, open(path.parent / name, "xb") as target:
        os.fchmod(target.fileno(), 0o600)
        for start, end in ranges:
            _copy(source, target, start, end)
        target.flush()
        os.fsync(target.fileno())


def _cut(path: Path, ranges: tuple[tuple[int, int], ...]) -> str:
    size = path.stat().st_size
    kept, at = [], 0
    for start, end in sorted(ranges):
        kept.append((at, start))
        at = end
    kept.append((at, size))
    aside = _free_name(path.parent, path.name)
    with Directory(path.parent) as directory:
        partial = f"{path.name}.partial"
        (path.parent / partial).unlink(missing_ok=True)
        _write_ranges(path, partial, sorted(ranges))
        directory.rename(partial, aside)
        # Readers may have the old file mapped: it is replaced, never shortened.  A crash
        # before the rename leaves a .cleaned file, which every open removes.
        unfinished = f"{path.name}.cleaned"
        (path.parent / unfinished).unlink(missing_ok=True)
        _write_ranges(path, unfinished, kept)
        directory.rename(unfinished, path.name)
    cut = sum(end - start for start, end in ranges)
    return f"{path}: {cut} of {size} bytes cut, kept in {aside}"


def _rebuild_indexes(files: SegmentFiles) -> str:
    """Rebuild both indexes by the rule of the append path: an entry after each 4096 bytes.

    A batch whose offset cannot be right, as with a wrong header, gets no entry.
    """
    offsets, times = bytearray(), bytearray()
    since, latest, latest_offset, last_time = 0, -1, files.base_offset, -1
    base, after = files.base_offset, files.base_offset
    limit = min(files.limit, base + RELATIVE_MAX)
    for batch in BatchWalk(files.path(".log")).batches():
        since += int(batch.batch_bytes)
        if not after <= batch.last_offset < limit:
            continue
        if batch.max_timestamp > latest:
            latest, latest_offset = int(batch.max_timestamp), int(batch.last_offset)
        if since - batch.batch_bytes > INDEX_INTERVAL_BYTES:
            after = int(batch.last_offset) + 1
            offsets += OFFSET_ENTRY.pack(batch.last_offset - base, batch.pos)
            if latest > last_time:
                times += TIME_ENTRY.pack(latest, latest_offset - base)
                last_time = latest
            since = int(batch.batch_bytes)
    if latest > last_time:
        times += TIME_ENTRY.pack(latest, latest_offset - base)
    with Directory(files.folder) as directory:
        directory.replace(files.path(".index").name, bytes(offsets))
        directory.replace(files.path(".timeindex").name, bytes(times))
    _reseal(files)
    return (
        f"{files.path('.log')}: {len(offsets) // OFFSET_ENTRY.size} offset and "
        f"{len(times) // TIME_ENTRY.size} time index entries written"
    )


def _rebuild_aborts(folder: Path) -> str:
    """Rebuild the lists of all segments: if one is wrong, the others were made the same way."""
    segments = list_segments(folder)
    replay = Replay(folder, segments[0].base_offset, Report())
    written = 0
    with Directory(folder) as directory:
        for files in segments:
            walk = BatchWalk(files.path(".log"))
            for table in walk.tables():
                replay.feed(table, walk)
            entries = {entry.last_offset: entry for entry in replay.aborted}
            # A transaction may have begun below the log's start: only its old entry knows.
            for old in load_aborts(files, Report()) or ():
                if replay.markers.get(old.last_offset) == old.producer_id:
                    entries.setdefault(old.last_offset, old)
            _write_aborts(directory, files, [entries[key] for key in sorted(entries)])
            _reseal(files)
            written += len(entries)
            replay.aborted, replay.markers = [], {}
    return f"{folder}: {written} aborted transactions listed"


def _write_aborts(directory: Directory, files: SegmentFiles, entries: list[AbortEntry]) -> None:
    name = files.path(".txnindex").name
    if entries:
        directory.replace(name, b"".join(ABORT_ENTRY.pack(0, *entry) for entry in entries))
    else:
        directory.unlink(name)


def _rebuild_epochs(path: Path) -> str:
    """Rebuild the list from the batches; an epoch in which nothing was written is not in it."""
    entries: list[tuple[int, int]] = []
    for files in list_segments(path.parent):
        for batch in BatchWalk(files.path(".log")).batches():
            epoch = int(batch.leader_epoch)
            if epoch >= 0 and (not entries or epoch > entries[-1][0]):
                entries.append((epoch, int(batch.base_offset)))
    lines = "".join(f"{epoch} {start}\n" for epoch, start in entries)
    with Directory(path.parent) as directory:
        directory.replace(path.name, f"0\n{len(entries)}\n{lines}".encode())
    return f"{path}: {len(entries)} leader epochs written"
