"""The batches of one segment: found, counted, compared with each other.

Bytes that are not a batch become a finding with their place and length, and the walk continues at
the next good batch, so that the rest of the segment is still checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.batch.encode import HEADER_BYTES
from kafkalog.batch.walk import BatchWalk, Stop
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import KafkalogError
from kafkalog.inspect.rawfiles import SegmentFiles, find_batch, find_header_bit, is_zero
from kafkalog.inspect.sidecar import SIDECAR
from kafkalog.report import Report

if TYPE_CHECKING:
    import numpy as np

    Table = np.ndarray[Any, Any]

__all__ = ["BatchCheck", "Consumer"]

# Called with each block of batches, as a table of batch_dtype(), and the walk it is from.
Consumer = Callable[["Table", BatchWalk], None]

EXAMPLES = 8  # findings of one kind in one file that are reported singly
TAIL_RETRIES = 20  # a write in flight ends long before
KNOWN_ATTRIBUTES = 0x7F


class BatchCheck:
    """One pass over the segments of a partition, in order."""

    def __init__(self, report: Report, deep: bool, locked: bool) -> None:
        self.report = report
        self.deep = deep
        self.locked = locked
        """A writer has the log open: a batch at the very end may be half written."""
        self.last_offset = -1
        self.leader_epoch = -1
        self.gaps = 0
        """Inside of segments; only compaction leaves them."""
        self.gaps_between: list[tuple[SegmentFiles, int, int]] = []
        """(segment, its first offset, the last one before it)"""
        self.begins = False
        """The next batch is the first of its segment."""
        self.compacted = False
        self.thin = False
        """Offsets are missing inside this segment, as recovery sees it."""
        self.gap_told = False
        """The bytes before the next batch are damaged: a gap there is not reported again."""
        self.complete = True
        """Nothing has been damaged or unreadable so far."""
        self.last_batch: _Placed | None = None
        """The last batch of this segment before the block."""

    def segment(self, files: SegmentFiles, consumers: list[Consumer]) -> None:
        """Walk one segment and give each block of good batches to the consumers."""
        path = files.path(".log")
        self.begins, self.thin = True, False
        self.last_batch = None
        self.report.counters["segments"] += 1
        self.report.counters["bytes"] += path.stat().st_size
        position: int | None = 0
        retries = TAIL_RETRIES if self.locked and not files.sealed else 0
        while position is not None:
            try:
                walk = BatchWalk(path, position)
                for table in walk.tables():
                    self._block(files, table, walk)
                    for consumer in consumers:
                        consumer(table, walk)
            except FileNotFoundError:
                raise
            except KafkalogError as problem:
                self.complete = False
                self.report.add("unreadable", path, problem, "a file that can be read")
                return
            if walk.stop is None:
                return
            if retries and self._may_be_in_flight(walk, walk.stop):
                retries -= 1
                position = walk.stop.position
                continue
            position = self._bad(files, walk.stop)

    def _may_be_in_flight(self, walk: BatchWalk, stop: Stop) -> bool:
        """True if the file's last bytes look like an unfinished append."""
        return stop.status == lib.KL_E_BUFFER_TOO_SMALL or (
            stop.position + HEADER_BYTES >= walk.file_bytes
        )

    def _bad(self, files: SegmentFiles, stop: Stop) -> int | None:
        """Report the bytes at `stop`; returns where the next good batch is, None: nowhere."""
        path, report, at = files.path(".log"), self.report, stop.position
        size = path.stat().st_size
        if is_zero(path, at):
            what = "tail-zeros-sealed" if files.sealed else "tail-zeros"
            report.add(what, path, f"{size - at} zero bytes", "none", position=at, length=size - at)
            self.complete = self.complete and not files.sealed
            return None
        self.complete, self.gap_told = False, True
        if (bit := find_header_bit(path, at)) is not None:
            report.add(
                "header-bit", path, f"{bit.found:#04x}", f"{bit.wanted:#04x}",
                position=bit.position, length=1,
                offset=max(self.last_offset + 1, files.base_offset),
            )  # fmt: skip
            return bit.end if bit.end < size else None
        if stop.status == lib.KL_E_UNSUPPORTED_FOR_MESSAGE_FORMAT:
            report.add("old-format", path, stop.message, "magic 2", position=at, length=size - at)
            return None
        after = find_batch(path, at, self.last_offset + 1, files.limit)
        if after is None:
            # The batch before may be the wrong one, with an offset that is too high.
            after = find_batch(path, at, files.base_offset, files.limit)
        end = size if after is None else after
        with open(path, "rb") as file:
            file.seek(at)
            head = file.read(12)
        framed = len(head) == 12 and at + 12 + int.from_bytes(head[8:], "big", signed=True) == end
        what = "batch-checksum" if framed else "tail-bytes" if after is None else "batch-bytes"
        report.add(
            what,
            path,
            stop.message,
            "whole batches to the end" if after is None else f"a good batch: the next is at {end}",
            position=at,
            offset=max(self.last_offset + 1, files.base_offset),
            length=end - at,
        )
        return after

    def _block(self, files: SegmentFiles, table: Table, walk: BatchWalk) -> None:
        import numpy as np

        counters = self.report.counters
        control = (table["attributes"] & lib.KL_ATTR_CONTROL) != 0
        counters["batches"] += len(table)
        if self.report.watch is not None:
            self.report.watch(int(table["batch_bytes"].sum(dtype=np.int64)))
        counters["records"] += int(table["record_count"][~control].sum(dtype=np.int64))
        counters["control_records"] += int(table["record_count"][control].sum(dtype=np.int64))
        previous = np.concatenate(([self.last_offset], table["last_offset"][:-1]))
        first = self.last_offset < 0
        disordered = table["base_offset"] <= previous
        self._tell(files, table, "batch-order", disordered, previous)
        # A side-car shows the wrong bit itself.
        if disordered.any() and not (files.sealed and files.path(SIDECAR).exists()):
            self._offset_bits(files, table, disordered, previous)
        self.last_batch = _Placed(table[-1], int(previous[-1]))
        outside = (table["base_offset"] < files.base_offset) | (table["last_offset"] >= files.limit)
        self._tell(files, table, "batch-range", outside, None)
        self._headers(files, table, control)
        gap = table["base_offset"] > previous + 1
        gap[0] = gap[0] and not (first or self.gap_told)
        if gap[0] and self.begins:
            found = (files, int(table["base_offset"][0]), self.last_offset)
            self.gaps_between.append(found)
            gap[0] = False
        self.gap_told = self.begins = False
        thinned = table["record_count"] < table["last_offset_delta"].astype("i8") + 1
        late = int(table["base_offset"][0]) > max(self.last_offset + 1, files.base_offset)
        self.thin = self.thin or late or bool(gap[1:].any() or thinned.any())
        self.compacted = self.compacted or bool(gap.any() or thinned.any())
        if gap.any():
            self._gap(files, table, gap, previous)
        epochs = np.maximum.accumulate(np.concatenate(([self.leader_epoch], table["leader_epoch"])))
        older = (table["leader_epoch"] >= 0) & (table["leader_epoch"] < epochs[:-1])
        self._tell(files, table, "batch-epoch", older, epochs[:-1])
        self.leader_epoch = int(epochs[-1])
        self.last_offset = max(self.last_offset, int(table["last_offset"][-1]))
        looked = np.ones(len(table), bool) if self.deep else self._odd_times(table, control)
        for i in looked.nonzero()[0]:
            self._records(files, walk, table[i])

    def _offset_bits(
        self, files: SegmentFiles, table: Table, disordered: Table, previous: Table
    ) -> None:
        """One of two batches out of order may have a base offset with one wrong bit.

        If neither has, one of them does not belong there, and a log that ends so does not open.
        """
        size = files.path(".log").stat().st_size
        rows = [_Placed(row, int(last)) for row, last in zip(table, previous, strict=True)]
        for i in disordered.nonzero()[0][:EXAMPLES]:
            this, before = rows[i], rows[i - 1] if i else self.last_batch
            after = rows[i + 1].base if i + 1 < len(rows) else None
            fits = before.fits(files, this.base) if before else []
            if after is not None or this.end == size:
                fits += this.fits(files, after)
            exact = [fit for fit in fits if fit.exact]
            if len(exact) == 1 or (not exact and len(fits) == 1):
                fit = (exact or fits)[0]
                at, shift = fit.batch.pos + 7 - fit.bit // 8, fit.bit % 8
                found = fit.batch.base >> (fit.bit - shift) & 0xFF
                self.report.add(
                    "header-bit", files.path(".log"), f"{found:#04x}",
                    f"{found ^ 1 << shift:#04x}", position=at, length=1,
                    offset=fit.batch.base ^ 1 << fit.bit,
                )  # fmt: skip
            elif before is not None and not files.sealed:
                odd = before if before.previous < this.base else this
                self.report.add(
                    "batch-place", files.path(".log"), f"offsets from {odd.base}",
                    f"offset {odd.previous + 1}", position=odd.pos, length=odd.end - odd.pos,
                    offset=odd.base,
                )  # fmt: skip

    def _headers(self, files: SegmentFiles, table: Table, control: Table) -> None:
        codec = table["attributes"] & lib.KL_CODEC_MASK
        wrong = (codec > 4) | ((table["attributes"] & ~KNOWN_ATTRIBUTES & 0xFF) != 0)
        wrong |= control & (codec != 0)
        if not files.folder.name.startswith(f"{METADATA_TOPIC}-"):
            # A new leader of a quorum writes its election and the voters in one batch.
            wrong |= control & (table["record_count"] > 1)
        wrong |= table["record_count"] < 0
        wrong |= table["record_count"] > table["last_offset_delta"].astype("i8") + 1
        wrong |= table["last_offset"] < table["base_offset"]
        self._tell(files, table, "batch-header", wrong, None)

    def _odd_times(self, table: Table, control: Table) -> Table:
        """Batches whose largest timestamp is below the first: their records show whether it is.

        A client's base timestamp may be anything, and deltas may be negative.
        """
        given = lib.KL_ATTR_LOG_APPEND_TIME | lib.KL_ATTR_DELETE_HORIZON
        plain = ((table["attributes"] & given) == 0) & ~control & (table["record_count"] > 0)
        odd: Table = plain & (table["base_timestamp"] > table["max_timestamp"])
        return odd

    def _gap(self, files: SegmentFiles, table: Table, gap: Table, previous: Table) -> None:
        """Report only the first gap of a partition: a compacted log has thousands."""
        if not self.gaps:
            i = int(gap.argmax())
            self._tell_gap("offset-gap", files, int(table["base_offset"][i]), int(previous[i]))
        self.gaps += int(gap.sum())
        self.report.counters["offset_gaps"] += int(gap.sum())

    def _tell_gap(self, what: str, files: SegmentFiles, offset: int, last: int) -> None:
        self.report.add(
            what,
            files.path(".log"),
            f"offset {offset} after {last}",
            "the next offset, where nothing was compacted",
            offset=offset,
        )

    def finish(self) -> None:
        """Report gaps between segments: if nothing was compacted, something is missing."""
        if not self.compacted:
            for files, offset, last in self.gaps_between[:EXAMPLES]:
                self._tell_gap("segment-gap", files, offset, last)

    def _tell(
        self, files: SegmentFiles, table: Table, what: str, wrong: Table, limit: Table | None
    ) -> None:
        for i in wrong.nonzero()[0][:EXAMPLES]:
            row = table[i]
            self.complete = False
            self.report.add(
                what,
                files.path(".log"),
                _describe(what, row),
                _wanted(what, files, None if limit is None else int(limit[i])),
                position=int(row["pos"]),
                offset=int(row["base_offset"]),
                length=int(row["batch_bytes"]) if what in ("batch-order", "batch-range") else 0,
            )

    def _records(self, files: SegmentFiles, walk: BatchWalk, row: Any) -> None:
        """Decompress one batch and walk its records."""
        from kafkalog.batch.codecs import decompress

        batch = ffi.new("kl_batch *")
        ffi.memmove(batch, row.tobytes(), ffi.sizeof("kl_batch"))
        largest = ffi.new("int64_t *")
        try:
            body = walk.read(batch.pos, batch.batch_bytes)[HEADER_BYTES:]
            codec = batch.attributes & lib.KL_CODEC_MASK
            if codec:
                body = bytes(decompress(codec, body))
            strict = int(batch.record_count == batch.last_offset_delta + 1)
            check(
                lib.kl_records_check(
                    batch, ffi.from_buffer("uint8_t[]", body), len(body), strict, ffi.NULL, largest
                )
            )
            self.report.counters["records_walked"] += int(batch.record_count)
            found = self._late(batch, int(largest[0]))
        except KafkalogError as problem:
            found = str(problem)
        if found:
            self.complete = False
            self.report.add(
                "batch-records",
                files.path(".log"),
                found,
                f"{batch.record_count} records up to offset {batch.last_offset}",
                position=int(batch.pos),
                offset=int(batch.base_offset),
                length=int(batch.batch_bytes),
            )

    def _late(self, batch: Any, largest: int) -> str:
        """How the header's largest timestamp differs from the records'; empty: it does not."""
        given = batch.attributes & (lib.KL_ATTR_LOG_APPEND_TIME | lib.KL_ATTR_CONTROL)
        if given or not batch.record_count or largest == batch.max_timestamp:
            return ""
        return f"largest timestamp {largest}, the header says {batch.max_timestamp}"


class _Placed:
    """A batch between its neighbours."""

    def __init__(self, row: Any, previous: int) -> None:
        self.pos, self.end = int(row["pos"]), int(row["pos"]) + int(row["batch_bytes"])
        self.base, self.delta = int(row["base_offset"]), int(row["last_offset_delta"])
        self.previous = previous
        """The last offset before it."""

    def fits(self, files: SegmentFiles, after: int | None) -> list[_Fit]:
        """The bits of its base offset, each of which alone would put it between its neighbours."""
        low = max(self.previous + 1, files.base_offset)
        high = files.limit if after is None else after
        changed = [(bit, self.base ^ 1 << bit) for bit in range(63)]
        return [
            _Fit(self, bit, base == low)
            for bit, base in changed
            if low <= base and base + self.delta < high
        ]


class _Fit(NamedTuple):
    """A bit that may be wrong."""

    batch: _Placed
    bit: int
    exact: bool
    """With it flipped, no offset is missing before the batch."""


def _describe(what: str, row: Any) -> str:
    if what == "batch-epoch":
        return f"epoch {row['leader_epoch']}"
    if what == "batch-header":
        return (
            f"attributes {row['attributes']:#x}, {row['record_count']} records, "
            f"last offset delta {row['last_offset_delta']}, "
            f"times {row['base_timestamp']} to {row['max_timestamp']}"
        )
    return f"offsets {row['base_offset']} to {row['last_offset']}"


def _wanted(what: str, files: SegmentFiles, limit: int | None) -> str:
    if what == "batch-order":
        return f"a base offset above {limit}"
    if what == "batch-epoch":
        return f"epoch {limit} or later"
    if what == "batch-header":
        return "known attributes, and counts that agree"
    if files.sealed:
        return f"offsets from {files.base_offset} to below {files.limit}"
    return f"offsets from {files.base_offset} on"
