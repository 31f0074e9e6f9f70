"""The state of a directory between two openings: offsets, and whether it was closed cleanly.

The files are Kafka's (docs/format.md, "Checkpoints"): text, one `topic partition offset` per
line.  A missing, empty or damaged one only costs a longer recovery, except that of log starts,
which nothing else records: the clean marker repeats it, with a checksum.
"""

import os
import re
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.disk.directory import Directory
from kafkalog.disk.layout import PARTITION_MAX, SEGMENT
from kafkalog.errors import CorruptLog, ForkedHandle, NoSpace, ReadOnly
from kafkalog.types import TopicPartition

__all__ = [
    "CLEANER",
    "CLEAN_MARKER",
    "FLUSHED",
    "HIGH_WATERMARK",
    "LOCK",
    "LOG_START",
    "RECOVERY_POINT",
    "DirectoryState",
    "parse_flushed",
    "parse_offsets",
    "readable_offsets",
    "render_offsets",
    "tell_unclean",
]

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
CLEAN_MARKER = ".kafka_cleanshutdown"
LOCK = ".lock"
FLUSHED = "flushed-offset"
"""How far a log that stands alone is on disk: written by the data plane while it grows."""

OFFSET_MAX = (1 << 63) - 1
# A hundred thousand partitions with the longest names; more is not a checkpoint file.
FILE_BYTES_MAX = 32 << 20
# Log starts and sums of as many, with commas and brackets.
MARKER_BYTES_MAX = 3 * FILE_BYTES_MAX

_ENTRY = re.compile(r"(\S{1,255}) ([0-9]{1,10}) ([0-9]{1,19})")


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The entries of a checkpoint file; none if it is empty, as a crash can leave it.

    Raises: CorruptLog, naming the line, what was found and what was wanted.
    """
    if not data:
        return {}
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptLog(f"byte {error.start}: not UTF-8") from None
    if lines.pop() != "":
        # Without its newline the last offset may lack digits.
        raise CorruptLog(f"line {len(lines) + 1}: found the end of the file, wanted a line's end")
    if lines[:1] != ["0"]:
        raise CorruptLog(f"line 1: found version {lines[0][:20]!r}, wanted '0'")
    count = lines[1] if len(lines) > 1 else ""
    if not re.fullmatch(r"[0-9]{1,10}", count) or int(count) != len(lines) - 2:
        raise CorruptLog(f"line 2: found count {count[:20]!r}, wanted '{len(lines) - 2}'")
    entries: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines[2:], 3):
        match = _ENTRY.fullmatch(line)
        if not match or int(match[2]) > PARTITION_MAX or int(match[3]) > OFFSET_MAX:
            raise CorruptLog(f"line {number}: found {line[:80]!r}, wanted topic partition offset")
        tp = TopicPartition(match[1], int(match[2]))
        if tp in entries:
            raise CorruptLog(f"line {number}: found {tp.topic} {tp.partition} a second time")
        entries[tp] = int(match[3])
    return entries


def readable_offsets(data: bytes) -> dict[TopicPartition, int]:
    """The entries of the intact lines of a damaged checkpoint file."""
    entries: dict[TopicPartition, int] = {}
    for line in data.decode("utf-8", "replace").split("\n")[:-1]:
        match = _ENTRY.fullmatch(line)
        if match and int(match[2]) <= PARTITION_MAX and int(match[3]) <= OFFSET_MAX:
            entries.setdefault(TopicPartition(match[1], int(match[2])), int(match[3]))
    return entries


def render_offsets(entries: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of a checkpoint file, ordered by topic and partition."""
    lines = [f"{tp.topic} {tp.partition} {offset}\n" for tp, offset in sorted(entries.items())]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def parse_flushed(data: bytes) -> int:
    """The offset in a FLUSHED file; -1: it is invalid, which costs a longer recovery."""
    if len(data) != 16 or data[:4] != b"KLF1":
        return -1
    right = int.from_bytes(data[12:], "big") == lib.kl_crc32c(data[:12], 12)
    return int.from_bytes(data[4:12], "big", signed=True) if right else -1


class Vouched(NamedTuple):
    """Content of kafkalog's clean marker, apart from the clean close."""

    last: list[Any] | None
    """Name and size of the last segment of a log that stands alone."""
    log_starts: dict[TopicPartition, int]
    derived: dict[TopicPartition, int]
    """kl_log_derived_sum of each log that was closed."""


def parse_marker(data: bytes) -> Vouched | None:
    """The guarantees of a marker; None: it is Kafka's, an older kafkalog's, or damaged."""
    import json  # also below: slow to import, and a log that is only read needs it seldom

    try:
        found = json.loads(data)["kafkalog"]
        body = [found[name] for name in ("last", "logStarts", "derived")]
        if found["crc"] != _marker_crc(body):
            return None
        starts, derived = (
            {TopicPartition(topic, partition): int(value) for topic, partition, value in entries}
            for entries in body[1:]
        )
    except (ValueError, KeyError, TypeError):
        return None
    return Vouched(body[0], starts, derived)


@lru_cache(maxsize=8)
def _parsed(data: bytes) -> dict[TopicPartition, int]:
    """The entries of a checkpoint, for readers: all partitions of a directory read the same one."""
    return parse_offsets(data)


@lru_cache(maxsize=2)
def _parsed_marker(data: bytes) -> Vouched | None:
    return parse_marker(data)


def marker_epoch(data: bytes) -> int:
    """The broker epoch in a marker, of Kafka or ours; -1: it has none."""
    import json

    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return -1


def render_marker(broker_epoch: int, vouched: Vouched) -> bytes:
    """The bytes of a clean marker; Kafka reads the first two fields."""
    import json

    starts, derived = (
        [[tp.topic, tp.partition, value] for tp, value in sorted(entries.items())]
        for entries in vouched[1:]
    )
    body = [vouched.last, starts, derived]
    ours = {"last": vouched.last, "logStarts": starts, "derived": derived}
    content = {
        "version": 0,
        "brokerEpoch": broker_epoch,
        "kafkalog": ours | {"crc": _marker_crc(body)},
    }
    return json.dumps(content, separators=(",", ":")).encode()


def _marker_crc(body: list[Any]) -> int:
    import json

    return zlib.crc32(json.dumps(body, separators=(",", ":")).encode())


Changes = Mapping[TopicPartition, int | None]


def _changed(entries: dict[TopicPartition, int], changes: Changes) -> dict[TopicPartition, int]:
    both = {**entries, **changes}
    return {tp: offset for tp, offset in both.items() if offset is not None}


class DirectoryState:
    """The lock, clean marker and checkpoints of a data directory, or of one bare log's folder.

    In mode "w" it owns the directory until close; in mode "r" it only reads.  Safe to use from
    many threads.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str = "w",
        *,
        create: bool = False,
        own: bool = False,
        gather: bool = False,
    ) -> None:
        """Take the lock (mode "w") and read what the directory remembers.

        `own`: the directory is the folder of a log that stands alone, so that the marker can
        be checked against the log's last segment.  `gather`: see Directory.

        Raises: Locked with the owner's pid, NotFound, IoFailed.
        """
        self.path = os.fspath(path)
        self.mode = mode
        self.problems: list[str] = []
        """Sentences about files that were damaged and therefore not used."""
        self.marker: Any = ffi.NULL
        """The kl_marker * for kl_log_open; NULL in mode "r"."""
        self.broker_epoch = -1
        """The epoch of this broker's registration, if there is one: the clean marker has it."""
        self.closed_epoch = -1
        """The same of its last life, if that closed this directory in order."""
        self.own = own
        """The directory is the folder of a log that stands alone."""
        self.copied = False
        """Its logs are replicas of a cluster: their high watermarks are remembered."""
        self._shares = mode == "r" and not own
        """The parsed entries are shared with others, and not changed."""
        self._pid = os.getpid()
        self.lock = threading.RLock()
        """Guards the entries and their files; held from reading a log's offsets until they are
        written, so that no truncation happens in between.
        """
        self.directory = Directory(self.path, create and mode == "w", gather=gather)
        try:
            if mode == "w":
                self.directory.lock()
                self.marker = _open_marker(self.path)
            self._vouched: Vouched | None = None
            self.clean = self._was_clean()
            """True if the directory's last writer closed it cleanly."""
            names = (RECOVERY_POINT, LOG_START, HIGH_WATERMARK, CLEANER)
            self._entries = {name: self._load(name) for name in names}
            self._written = {  # on disk
                name: self._entries[name] if self._shares else dict(self._entries[name])
                for name in names
            }
            self._restore_log_starts()
            self._derived: dict[TopicPartition, int] = {}
            if self._vouched:
                self._derived = self._vouched.derived
        except BaseException:
            self.directory.close()
            raise

    def _load(self, name: str) -> dict[TopicPartition, int]:
        path = os.path.join(self.path, name)
        data = b"?"
        try:
            data = self.directory.read(name, FILE_BYTES_MAX) or b""
            return _parsed(data) if self._shares else parse_offsets(data)
        except CorruptLog as error:
            # A power cut can leave zeros in a file that was not synced, such as Kafka's.
            if name == LOG_START and not self._vouched and data.strip(b"\0"):
                raise CorruptLog(
                    f"{path}: {error}; without it deleted records would be visible again: "
                    "correct the line, or let kafkalog repair keep the lines that can be read"
                ) from None
            self._problem(f"{path}: {error}; not used")
            return {}

    def _restore_log_starts(self) -> None:
        """Use the log starts that the marker repeats if the file says something else."""
        if self._vouched is None or self._entries[LOG_START] == self._vouched.log_starts:
            return
        if self.mode == "r":
            data = self.directory.read(CLEAN_MARKER, MARKER_BYTES_MAX)
            if data is None or parse_marker(data) != self._vouched:
                # Its writer began after the marker was read, and deleted records.
                self._vouched, self.clean = None, False
                return
        path = os.path.join(self.path, LOG_START)
        self._problem(f"{path}: differs from its copy in the clean marker, which is used instead")
        self._entries[LOG_START] = dict(self._vouched.log_starts)
        self._written[LOG_START] = {}
        if self.mode == "w":
            try:
                self.directory.replace(LOG_START, render_offsets(self._entries[LOG_START]))
                self._written[LOG_START] = dict(self._entries[LOG_START])
            except NoSpace as error:
                self._problem(f"{path}: could not be rewritten: {error}")

    def _problem(self, sentence: str) -> None:
        self.problems.append(sentence)
        from kafkalog.logs.limit import limited  # logging takes 10 ms to import

        limited(__name__).warning("%s", sentence)

    def _was_clean(self) -> bool:
        path = os.path.join(self.path, CLEAN_MARKER)
        data = self.directory.read(CLEAN_MARKER, MARKER_BYTES_MAX)
        if data is None:
            return False
        self.closed_epoch = marker_epoch(data)
        self._vouched = _parsed_marker(data) if self._shares else parse_marker(data)
        if not self.own:
            return True
        # A folder is easily moved and written elsewhere, so its marker names what it vouches for.
        vouched, found = self._vouched and self._vouched.last, _last_segment(self.path)
        if vouched != found:
            self._problem(f"{path}: vouches for {vouched}, found {found}; not believed")
        if vouched is None or vouched != found:
            self._vouched = None
            return False
        return True

    def _get(self, name: str, tp: TopicPartition) -> int:
        with self.lock:
            known = self._entries[name]
            if self.own and tp not in known and len(known) == 1:
                known[tp] = known.popitem()[1]  # the folder was renamed since
            return known.get(tp, -1)

    def recovery_point(self, tp: TopicPartition) -> int:
        """The offset below which everything was on disk; -1: unknown."""
        return self._get(RECOVERY_POINT, tp)

    def reached(self, tp: TopicPartition) -> int:
        """The end that a log once had, all of it on disk: a shorter log has lost records; -1:
        unknown."""
        if self.own and self.clean:
            return -1  # its marker names the last segment and its size, and they are there
        point = self.recovery_point(tp)
        return self.high_watermark(tp) if point < 0 and self.clean else point

    def log_start(self, tp: TopicPartition) -> int:
        """The first visible offset; -1: the first segment's base."""
        return self._get(LOG_START, tp)

    def derived_sum(self, tp: TopicPartition) -> int:
        """The clean close's sum over what is derived from a log's batches; -1: unknown."""
        with self.lock:
            if self.own and tp not in self._derived and len(self._derived) == 1:
                self._derived[tp] = self._derived.popitem()[1]  # the folder was renamed since
            return self._derived.get(tp, -1)

    def note_derived(self, tp: TopicPartition, derived_sum: int) -> None:
        """Let the next clean marker vouch for a closed log."""
        with self.lock:
            if derived_sum >= 0:
                self._derived[tp] = derived_sum
            else:
                self._derived.pop(tp, None)

    def high_watermark(self, tp: TopicPartition) -> int:
        """The last saved high watermark; -1: unknown."""
        return self._get(HIGH_WATERMARK, tp)

    def cleaner(self, tp: TopicPartition) -> int:
        """The offset below which compaction left each key once; -1: it has not run."""
        return self._get(CLEANER, tp)

    def save(
        self,
        recovery_points: Changes | None = None,
        log_starts: Changes | None = None,
        high_watermarks: Changes | None = None,
        cleaners: Changes | None = None,
    ) -> None:
        """Change entries; on return the given files are on disk.

        An offset of None removes an entry: a log start at the first segment's base needs none.
        A file whose entries stay the same is not written.

        Raises: ReadOnly, IoFailed, NoSpace (nothing is changed then, in memory either).
        """
        given = {
            RECOVERY_POINT: recovery_points,
            LOG_START: log_starts,
            HIGH_WATERMARK: high_watermarks,
            CLEANER: cleaners,
        }
        self._write({name: changes for name, changes in given.items() if changes is not None})

    def note(
        self, tp: TopicPartition, recovery_point: int, log_start: int | None, high_watermark: int
    ) -> None:
        """Remember the offsets of a log that closes; the next save of each file writes them."""
        with self.lock:
            for name, offset in (
                (RECOVERY_POINT, recovery_point),
                (LOG_START, log_start),
                (HIGH_WATERMARK, high_watermark),
            ):
                # In place: a directory may close ten thousand logs one after another.
                if offset is None:
                    self._entries[name].pop(tp, None)
                else:
                    self._entries[name][tp] = offset

    def settle(self, tp: TopicPartition) -> None:
        """Save the recovery point that a new log was noted with, before the log is used.

        Without it a recovery takes batches that are missing in the middle for compacted ones.
        One write serves all logs that were created since the last one.

        Raises: IoFailed, NoSpace.
        """
        with self.lock:
            if tp in self._entries[RECOVERY_POINT] and tp not in self._written[RECOVERY_POINT]:
                self._write({RECOVERY_POINT: {}})

    @contextmanager
    def truncating(
        self, tp: TopicPartition, offset: int, new_start: int | None = None
    ) -> Iterator[None]:
        """Around a truncation of `tp` to `offset`: first no checkpoint is above it any more.

        Otherwise a crash afterwards would take bytes that were written again for bytes on disk,
        or a log that ends below its old start for an empty one.  `new_start`: the whole log is
        removed, and after a crash in between it continues there, not at 0.

        Raises: ReadOnly, IoFailed, NoSpace, ForkedHandle; the body did not run then.
        """
        self._check_process()
        with self.lock:
            self.lower(tp, offset, new_start)
            yield

    def lower(self, tp: TopicPartition, offset: int, new_start: int | None = None) -> None:
        """Lower every checkpoint of `tp` to `offset`, and its log start to `new_start`."""
        if self.recovery_point(tp) > offset:
            self.save(recovery_points={tp: offset})
        if new_start is not None or self.log_start(tp) > offset:
            self.save(log_starts={tp: new_start})
        if self.high_watermark(tp) > offset:
            self.save(high_watermarks={tp: offset})
        if self.cleaner(tp) > offset:
            self.save(cleaners={tp: offset})

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Drop the entries of partitions that are gone; the next save of each file does it."""
        with self.lock:
            for tp in tps:
                for entries in (*self._entries.values(), self._derived):
                    entries.pop(tp, None)

    def keep(self, tps: Iterable[TopicPartition]) -> None:
        """Like `forget`, for all partitions but these."""
        kept = {*tps}
        with self.lock:
            known = {tp for entries in self._entries.values() for tp in entries}
            self.forget(known - kept)

    def renew(self, tps: Iterable[TopicPartition]) -> None:
        """Drop, durably, everything known of earlier partitions with these names.

        Raises: ReadOnly, IoFailed, NoSpace.
        """
        gone = dict.fromkeys(tps)
        with self.lock:
            for tp in gone:
                self._derived.pop(tp, None)
            for name, entries in self._entries.items():
                if any(tp in entries or tp in self._written[name] for tp in gone):
                    self._write({name: gone})

    def _write(self, wanted: Mapping[str, Changes]) -> None:
        if self.mode != "w":
            raise ReadOnly(f"{self.path}: was opened for reading, cannot write {', '.join(wanted)}")
        self._check_process()
        with self.lock:
            new = {name: _changed(self._entries[name], wanted[name]) for name in wanted}
            changed = {name: e for name, e in new.items() if e != self._written[name]}
            if LOG_START in changed:  # the marker repeats them
                check(lib.kl_marker_remove(self.marker))
            self.directory.replace_all({name: render_offsets(e) for name, e in changed.items()})
            self._written.update((name, dict(entries)) for name, entries in changed.items())
            self._entries.update(new)

    def _check_process(self) -> None:
        if self._pid != os.getpid():  # a thread that the fork did not copy may hold the lock
            raise ForkedHandle(
                f"{self.path}: was opened by process {self._pid}; open it in this process"
            )

    def mark_clean(self) -> None:
        """Write the clean marker, durably: the last step of a close, when every log is whole.

        Raises: IoFailed, NoSpace.
        """
        with self.lock:
            vouched = Vouched(
                _last_segment(self.path) if self.own else None,
                self._written[LOG_START],
                self._derived,
            )
            data = render_marker(self.broker_epoch, vouched)
        check(lib.kl_marker_write(self.marker, data, len(data)))

    def close(self) -> None:
        """Release the lock and the directory; writes nothing; harmless when repeated."""
        self.directory.close()


def tell_unclean(path: str, error: NoSpace) -> None:
    """Warn that a close was not clean for lack of space: the next open only takes longer."""
    from kafkalog.logs.limit import limited

    limited(__name__).warning(
        "%s: closed without its clean marker, the next open recovers: %s", path, error
    )


def _open_marker(path: str) -> Any:
    out = ffi.new("kl_marker **")
    check(lib.kl_marker_open(os.fsencode(path), CLEAN_MARKER.encode(), out))
    return ffi.gc(out[0], lib.kl_marker_free)


def _last_segment(path: str) -> list[Any] | None:
    """Name and size of the last segment in a log's folder; None if there is none."""
    with os.scandir(path) as entries:
        last = max((e.name for e in entries if SEGMENT.fullmatch(e.name)), default=None)
    return None if last is None else [last, os.stat(os.path.join(path, last)).st_size]
