"""Where a log can be cut into parts, without reading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalog.log.log import Log

__all__ = ["batch_starts"]


def batch_starts(
    log: Log, step_bytes: int, start: int = 0, stop: int | None = None
) -> tuple[list[int], list[int]]:
    """Offsets where batches begin, about `step_bytes` apart, from the sparse offset indexes; and
    how many bytes of the log precede each.  The last offset is the log's end.

    Only segments that hold offsets from `start` up to `stop` (or the end) are read: a micro-batch
    reads only its own, and bytes are counted from the first of these.

    An entry (offset, position) says that a batch at `position` ends with `offset`, so the next
    one begins at offset + 1, at most an index interval and a batch later: about where the next
    entry points.
    """
    import numpy as np

    offsets: list[int] = []
    bytes_before: list[int] = []
    size, end = 0, log.start_offset
    for segment in log.segments:
        if segment.next_offset <= start or (stop is not None and segment.base_offset >= stop):
            continue
        index = segment.offset_index
        begins = index["relative_offset"].astype("i8") + segment.base_offset + 1
        positions = np.append(index["position"][1:], segment.size_bytes)[: len(begins)]
        # The indexes of a log that was not closed may end in meaningless entries.
        sound = _grows(np, segment.base_offset, begins) & _grows(np, 0, positions)
        sound &= begins < segment.next_offset
        begins, positions = begins[sound], positions[sound]
        keep = np.diff(positions // max(1, step_bytes), prepend=0) > 0
        offsets += [segment.base_offset, *begins[keep].tolist()]
        bytes_before += [size, *(positions[keep].astype("i8") + size).tolist()]
        size, end = size + segment.size_bytes, segment.next_offset
    if not offsets or end > offsets[-1]:
        offsets.append(end)
        bytes_before.append(size)
    return offsets, bytes_before


def _grows(np: Any, first: int, numbers: Any) -> Any:
    """For each number, whether it exceeds `first` and all numbers before it."""
    return numbers > np.maximum.accumulate(np.concatenate(([first], numbers[:-1])))
