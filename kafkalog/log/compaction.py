"""Compaction keeps the last record of each key.  Pure decisions on which log, and how far.

The data plane does the rounds (kl_clean_*) and hands compressed batches to the codecs.  What
is kept and what is removed: docs/format.md, "Compaction".  Source: Kafka's LogCleaner and
LogCleanerManager.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kafkalog._native import check, ffi, lib
from kafkalog.batch import codecs
from kafkalog.batch.encode import codec_level
from kafkalog.clock import Clock
from kafkalog.config.declare import FOREVER
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import (
    ArgumentError,
    Closed,
    KafkalogError,
    StaleLog,
)
from kafkalog.log.handle import Handle
from kafkalog.log.removal import purge
from kafkalog.log.retention import SegmentFacts
from kafkalog.log.segments import over_segments
from kafkalog.types import TopicPartition

__all__ = [
    "Cleanable",
    "Compaction",
    "Limits",
    "Throttle",
    "cleanable",
    "compact",
    "due",
    "filthiest",
]

ATTEMPTS = 3
"""How often a round restarts because segments were removed during it."""
PAUSE_BYTES = 32 << 20
BODIES = 32
"""Compressed batches that are processed at the same time."""


# ---- decisions -------------------------------------------------------------------------------


class CleanFacts(SegmentFacts, Protocol):
    """The inputs of a decision; a log's own segments provide them."""

    @property
    def first_timestamp_ms(self) -> int:
        """Largest timestamp of the first batch; -1: none."""


class Cleanable(NamedTuple):
    """How far a log may be compacted, and how urgent it is."""

    first_dirty: int
    """Below it every key occurs once."""
    end: int
    """The base of a segment: all segments below it may be compacted."""
    clean_bytes: int
    """Bytes of the segments that begin below `first_dirty`."""
    dirty_bytes: int
    """Bytes of the segments from there to `end`."""
    earliest_ms: int | None
    """The time of the oldest dirty segment; None if none has one."""

    @property
    def ratio(self) -> float:
        """The share of dirty bytes, 0 to 1."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


def cleanable(
    segments: Sequence[CleanFacts],
    config: TopicConfig,
    log_start: int,
    log_end: int,
    last_stable: int,
    checkpoint: int,
    now_ms: int,
) -> Cleanable:
    """How far a log may be compacted.

    `segments` are in the order of offsets, the active one last; `checkpoint` is where an
    earlier compaction ended, -1 if there was none.  One outside the log is ignored.
    """
    first_dirty = checkpoint if log_start <= checkpoint <= log_end else log_start
    sealed = segments[:-1]
    dirty = [s for s in sealed if s.next_offset > first_dirty]
    limit = min(last_stable, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        young_ms = now_ms - config.min_compaction_lag_ms
        young = (s.base_offset for s in dirty if s.largest_timestamp_ms > young_ms)
        limit = min(limit, next(young, limit))
    # Whole segments only.
    open_ones = (s.base_offset for s in segments if s.next_offset > limit)
    end = min(limit, next(open_ones, limit))
    times = [s.first_timestamp_ms for s in dirty if s.first_timestamp_ms > 0]
    return Cleanable(
        first_dirty,
        end,
        sum(s.size_bytes for s in sealed if s.base_offset < first_dirty),
        sum(s.size_bytes for s in dirty if s.base_offset < end),
        min(times, default=None),
    )


def due(found: Cleanable, config: TopicConfig, now_ms: int) -> bool:
    """True if the settings want a log compacted now."""
    waited_ms = now_ms - found.earliest_ms if found.earliest_ms is not None else 0
    late = waited_ms > config.max_compaction_lag_ms and found.dirty_bytes > 0
    return late or found.ratio > config.min_cleanable_dirty_ratio


def filthiest(candidates: Mapping[TopicPartition, Cleanable]) -> TopicPartition | None:
    """The log with the largest share of dirty bytes; None if there are none."""
    return max(sorted(candidates), key=lambda tp: candidates[tp].ratio, default=None)


# ---- limits ----------------------------------------------------------------------------------


class Throttle:
    """Limits bytes read and written to a rate, for all logs of a directory together."""

    def __init__(self, bytes_per_s: float, clock: Clock) -> None:
        """`bytes_per_s` may be infinite."""
        self._rate = bytes_per_s
        self._clock = clock
        self._free_s = clock.monotonic_s()  # when all work so far would be done at the limit
        self._wake = threading.Condition()  # guards what follows
        self._stopping = False

    @property
    def step_bytes(self) -> int:
        """How many bytes may be processed in one step: about a quarter of a second's."""
        return int(min(self._rate / 4, PAUSE_BYTES))

    def done(self, count: int) -> None:
        """Wait until `count` more bytes are due.

        Raises: Closed after `stop`.
        """
        with self._wake:
            # Unused time is not saved up.
            self._free_s = max(self._free_s, self._clock.monotonic_s()) + count / self._rate
            while not self._stopping and self._clock.monotonic_s() < self._free_s:
                self._clock.wait_until(self._wake, self._free_s)
            if self._stopping:
                raise Closed("compaction was stopped")

    def set_rate(self, bytes_per_s: float) -> None:
        """Change the rate from the next bytes on."""
        with self._wake:
            self._rate = bytes_per_s

    def stop(self) -> None:
        """Let the current wait, and every later one, raise."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()


class Limits(NamedTuple):
    """The resources of compaction."""

    map_bytes: int = 128 << 20
    """For keys and offsets, 24 bytes each (log.cleaner.dedupe.buffer.size)."""
    map_load: float = 0.9
    """How full that may be (log.cleaner.io.buffer.load.factor)."""
    throttle: Throttle | None = None


# ---- the act ---------------------------------------------------------------------------------


class Compaction(NamedTuple):
    """The result of a compaction."""

    start_offset: int
    """Where the part that had not been compacted began."""
    end_offset: int
    """Below it every key now occurs once."""
    rounds: int
    segments_before: int
    """Number of segments below `end_offset`; all that follows is about these."""
    segments_after: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


def compact(log: Handle, limits: Limits | None = None, rounds: int | None = None) -> Compaction:
    """Compact all of a log that may be: sealed segments whose transactions have ended and
    whose records are older than min.compaction.lag.ms.

    `rounds`: the most rounds, each of as many keys as the map holds; None: until all is done.
    Appends and reads continue during a round, also in other processes.

    Raises: ArgumentError if cleanup.policy does not include compact; Locked if it is already being
    compacted; CorruptMessage at a damaged batch, which stays; StaleLog if it was repeatedly
    truncated or deleted from; NoSpace, IoFailed, StorageOffline, Closed.
    """
    if "compact" not in log.config.cleanup_policy:
        policy = ",".join(log.config.cleanup_policy)
        raise ArgumentError(f"cleanup.policy: found {policy!r}, wanted one with compact")
    used = limits or Limits()
    done: list[Compaction] = []
    stale = 0
    end = look(log).end  # what is sealed during the round is left for the next one
    while rounds is None or len(done) < rounds:
        found = look(log)
        found = found._replace(end=min(found.end, end))
        if done and found.first_dirty >= found.end:
            break
        try:
            done.append(_round(log, found, used))
        except StaleLog:
            stale += 1
            if stale == ATTEMPTS:
                raise
    if log.config.file_delete_delay_ms == 0:
        purge(log, FOREVER)
    return _total(done)


def _total(rounds: Sequence[Compaction]) -> Compaction:
    """Combine consecutive rounds: a later one reads what an earlier one left."""
    last = rounds[-1]
    return last._replace(
        start_offset=rounds[0].start_offset,
        rounds=len(rounds),
        segments_before=last.segments_after
        + sum(one.segments_before - one.segments_after for one in rounds),
        bytes_before=last.bytes_after + sum(one.bytes_before - one.bytes_after for one in rounds),
        records_before=last.records_after
        + sum(one.records_before - one.records_after for one in rounds),
    )


def look(log: Handle) -> Cleanable:
    """How far an open log may be compacted now."""
    state = log.state()
    checkpoint, now_ms = log.owner.state.cleaner(log.tp), log.clock.now_ms()
    return over_segments(
        log,
        lambda segments: cleanable(
            segments, log.config, state.log_start_offset, state.log_end_offset,
            state.last_stable_offset, checkpoint, now_ms,
        ),
    )  # fmt: skip


def _round(log: Handle, found: Cleanable, limits: Limits) -> Compaction:
    """One round, and the checkpoint for how far it came."""
    if log.flushed_offset < found.end:
        # A newer record must be on disk before the record that it replaces is removed.
        log.flush()
    # Above the recovery point, a gap would be taken for records lost in a crash.
    state = log.owner.state
    with state.lock:
        if state.recovery_point(log.tp) < found.end <= log.flushed_offset:
            state.save(recovery_points={log.tp: found.end})
    first = min(found.first_dirty, found.end)
    options = ffi.new("kl_clean_options *", {
        "first_dirty_offset": first, "end_offset": found.end,
        "now_ms": log.clock.now_ms(),
        "delete_retention_ms": log.config.delete_retention_ms,
        "map_bytes": limits.map_bytes, "map_load": min(limits.map_load, 0.95),
        "pause_bytes": limits.throttle.step_bytes if limits.throttle else PAUSE_BYTES,
        "hash_key": list(os.urandom(16)),
    })  # fmt: skip
    out = ffi.new("kl_cleaner **")
    check(lib.kl_clean_open(log.c, options, out))
    with ffi.gc(out[0], lib.kl_clean_free) as cleaner:
        _run(cleaner, log, limits.throttle)
        done = ffi.new("kl_cleaned *")
        lib.kl_clean_get(cleaner, done)
    _remember(log, done, found)
    return Compaction(
        found.first_dirty, done.end_offset, 1, done.segments_before, done.segments_after,
        done.bytes_before, done.bytes_after, done.records_before, done.records_after,
    )  # fmt: skip


def _remember(log: Handle, done: Any, found: Cleanable) -> None:
    """Write the checkpoint, unless the log was truncated in between."""
    state = log.owner.state
    with state.lock:
        if log.state().generation != done.generation:
            raise StaleLog(f"log {log.path} was truncated or deleted from after it was compacted")
        state.save(cleaners={log.tp: max(done.end_offset, found.first_dirty)})


def _run(cleaner: Any, log: Handle, throttle: Throttle | None) -> None:
    """Steps until the end; bodies are compressed and decompressed here."""
    bodies = ffi.new("kl_compressed[]", BODIES)
    count, state = ffi.new("int32_t *"), ffi.new("int32_t *")
    done = ffi.new("kl_cleaned *")
    reported = 0
    work: dict[int, Callable[[list[tuple[int, Any]], Handle], list[Any]]] = {
        lib.KL_CLEAN_INFLATE: _inflated,
        lib.KL_CLEAN_DEFLATE: _deflated,
    }
    while True:
        check(lib.kl_clean_step(cleaner, bodies, BODIES, count, state))
        if state[0] in work:
            some = bodies[0 : count[0]]
            items = [(body.codec, ffi.buffer(body.data, body.bytes)) for body in some]
            for index, data in enumerate(work[state[0]](items, log)):
                given = ffi.from_buffer("uint8_t[]", data)
                check(lib.kl_clean_give(cleaner, index, given, len(data)))
            continue
        if throttle is not None:
            lib.kl_clean_get(cleaner, done)
            total = done.bytes_read + done.bytes_written
            throttle.done(total - reported)
            reported = total
        if state[0] == lib.KL_CLEAN_END:
            return


def _inflated(items: list[tuple[int, Any]], log: Handle) -> list[Any]:
    try:
        return codecs.decompress_many(items, log.max_decompressed_bytes)
    except KafkalogError as problem:
        raise type(problem)(f"log {log.path}, compaction: {problem}") from problem


def _deflated(items: list[tuple[int, Any]], log: Handle) -> list[Any]:
    """Each with its own codec."""
    packed: list[Any] = [None] * len(items)
    for codec in {codec for codec, _ in items}:
        places = [i for i, item in enumerate(items) if item[0] == codec]
        level = codec_level(log.config, codec)
        done = codecs.compress_many(codec, [items[i][1] for i in places], level)
        for place, data in zip(places, done, strict=True):
            packed[place] = data
    return packed
