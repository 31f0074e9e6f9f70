"""Removes records: at the end, at the start, and those that have expired."""

import os
from collections.abc import Sequence

from kafkalog._native import check, ffi, lib
from kafkalog.config.declare import FOREVER
from kafkalog.disk.holds import read_holds
from kafkalog.errors import NoSpace
from kafkalog.log.handle import Handle
from kafkalog.log.outgoing import read_batches
from kafkalog.log.retention import Expiry, SegmentFacts, ahead, expired, held_back
from kafkalog.log.segments import Segment, list_segments, over_segments

__all__ = ["apply_retention", "delete_before", "deletions", "purge", "truncate", "truncate_fully"]


def truncate(log: Handle, offset: int) -> None:
    """See Log.truncate."""
    state, floor = log.owner.state, _cut_floor(log, offset)
    lowered = log.start_offset > floor
    with state.truncating(log.tp, floor, floor if lowered else None):
        # In a gap the log will end below that, and after a crash that must not look like a loss.
        if floor < log.end_offset and state.recovery_point(log.tp) > (base := _base(log, floor)):
            state.save(recovery_points={log.tp: base})
        check(lib.kl_log_truncate(log.c, offset))
        if (end := log.end_offset) < floor:  # a compaction has since left a gap there
            lowered = lowered or log.start_offset != state.log_start(log.tp)
            state.lower(log.tp, end)
        if lowered:
            state.save(log_starts={log.tp: log.start_offset})


def truncate_fully(log: Handle, offset: int) -> None:
    """Remove everything; the empty log continues at `offset`."""
    with log.owner.state.truncating(log.tp, 0, max(offset, 0)):
        check(lib.kl_log_truncate_fully(log.c, offset))


def _cut_floor(log: Handle, offset: int) -> int:
    """Where a truncation to `offset` cuts: the base of the batch that holds it.

    Below the log's start, where no batch can be read, or in a gap, where the log then ends with
    the previous batch: the base of its segment.
    """
    if log.start_offset <= offset < log.end_offset:
        raw = read_batches(log, offset, 0, lib.KL_LOG_END, False)
        if (base := int.from_bytes(raw[:8], "big")) <= offset:
            return base
    elif offset >= log.end_offset:
        return offset
    return _base(log, offset)


def _base(log: Handle, offset: int) -> int:
    """The base of the segment that holds an offset; below all of them, the offset."""
    bases = [s.base_offset for s in list_segments(log) if s.base_offset <= offset]
    return bases[-1] if bases else offset


def delete_before(log: Handle, offset: int) -> None:
    """See Log.delete_before."""
    check(lib.kl_log_set_start(log.c, offset))
    _delete_segments(log, log.start_offset)


def apply_retention(log: Handle, now_ms: int | None = None) -> Expiry | None:
    """See Log.apply_retention."""
    now_ms = log.clock.now_ms() if now_ms is None else now_ms
    found = over_segments(log, lambda segments: _expired(log, segments, now_ms))
    if found is not None and found.time + found.size + found.start:
        _delete_segments(log, found.before_offset)
    purge(log, now_ms - log.config.file_delete_delay_ms)
    return found


def _expired(log: Handle, segments: Sequence[Segment], now_ms: int) -> Expiry | None:
    """The expired segments that no reader holds."""
    state = log.state()
    found = expired(segments, log.config, state.high_watermark, state.log_start_offset, now_ms)
    late = ahead(segments, log.config, found.before_offset if found else -1, now_ms)
    if late is not None and late.base_offset != log.told_ahead:
        log.told_ahead = late.base_offset
        _tell_ahead(log, late)
    if found is None:
        return None
    for hold in read_holds(os.path.dirname(os.path.abspath(log.path)), now_ms):
        offset = hold.offsets.get(log.tp)
        if offset is not None:
            held = found.held
            found = held_back(segments, found, max(offset, state.log_start_offset), hold.max_bytes)
            found = found._replace(held=held + found.held)
    return found


def _tell_ahead(log: Handle, late: SegmentFacts) -> None:
    from kafkalog.logs.limit import limited  # logging takes 10 ms to import

    limited(__name__).warning(
        "%s: segment %d has a record with the timestamp %d ms, which is in the future: "
        "retention.ms keeps this segment and all later ones until it has passed since then. To "
        "free the space earlier, delete the records below %d; message.timestamp.after.max.ms "
        "refuses such records",
        log.path, late.base_offset, late.largest_timestamp_ms, late.next_offset,
    )  # fmt: skip


def _delete_segments(log: Handle, before_offset: int) -> None:
    # First everything below is synced, so that its producers are not forgotten, then the new start,
    # so that the next open finishes the deletion and shows no hole.
    if before_offset > log.flushed_offset:
        log.flush()
    start, full = {log.tp: max(log.start_offset, before_offset)}, False
    try:
        log.owner.state.save(log_starts=start)
    except NoSpace:
        full = True  # the deletion frees some space: the start is written after it
    deleted, bases = ffi.new("size_t *"), ffi.new("int64_t[]", 1)
    check(lib.kl_log_delete_segments(log.c, before_offset, bases, 1, deleted))
    if full or log.config.file_delete_delay_ms == 0:
        purge(log, FOREVER)
    if full:
        log.owner.state.save(log_starts=start)


def purge(log: Handle, before_ms: int) -> int:
    """Remove .deleted files that are older; returns how many stay.

    Raises: IoFailed, Closed.
    """
    left = ffi.new("size_t *")
    check(lib.kl_log_purge(log.c, before_ms, ffi.new("size_t *"), left))
    return int(left[0])


def deletions() -> int:
    """Another number than before if any log of this process has renamed files since."""
    return int(lib.kl_deletions())
