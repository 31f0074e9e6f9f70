"""A log's segments in Python: numbers, and NumPy views of their files."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kafkalog._native import check, ffi, lib
from kafkalog.errors import StaleLog
from kafkalog.log.handle import Handle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Segment", "list_segments", "over_segments"]

LOOKS = 20  # segments may be removed while a decision is made about them


class _Listed(NamedTuple):
    """A segment's facts that need no file to be read."""

    log: Handle
    base_offset: int
    next_offset: int
    """The next segment's base, or the log's end."""
    size_bytes: int
    """The size of the `.log` file."""
    created_ms: int
    """Or the file's modification time, if it existed before."""
    active: bool


class Segment(_Listed):
    """One segment at the time of the call; its index values are read when they are needed."""

    def __repr__(self) -> str:
        kind = "active" if self.active else "sealed"
        return f"Segment({self.base_offset} to {self.next_offset}, {self.size_bytes} bytes, {kind})"

    @property
    def first_timestamp_ms(self) -> int:
        """Largest timestamp of the first batch; -1: none.

        Raises: StaleLog if the segment is gone, as do the next three; CorruptMessage.
        """
        return int(self._whole.first_timestamp_ms)

    @property
    def largest_timestamp_ms(self) -> int:
        """-1: no record has one."""
        return int(self._whole.largest_timestamp_ms)

    @property
    def offset_index_entries(self) -> int:
        """Entries of the `.index`."""
        return int(self._whole.offset_index_entries)

    @property
    def time_index_entries(self) -> int:
        """Entries of the `.timeindex`."""
        return int(self._whole.time_index_entries)

    @property
    def _whole(self) -> Any:
        # Not a cached property: before Python 3.12 that holds a lock of the class, which a forked
        # child may find held.
        if "found" not in self.__dict__:
            self.__dict__["found"] = self._look()
        return self.__dict__["found"]

    def _look(self) -> Any:
        out, count = ffi.new("kl_segment_info *"), ffi.new("size_t *")
        check(lib.kl_log_segments(self.log.c, self.base_offset, 1, out, 1, count))
        if out.base_offset != self.base_offset:
            raise StaleLog(f"log {self.log.path} has no segment {self.base_offset} any more")
        return out

    @property
    def offset_index(self) -> "npt.NDArray[np.void]":
        """The `.index`: shape (entries,), big-endian fields relative_offset and position."""
        fields = ("relative_offset", ">i4"), ("position", ">i4")
        return self._index(lib.KL_FILE_OFFSET_INDEX, *fields)

    @property
    def time_index(self) -> "npt.NDArray[np.void]":
        """The `.timeindex`: shape (entries,), fields timestamp (ms) and relative_offset."""
        fields = ("timestamp", ">i8"), ("relative_offset", ">i4")
        return self._index(lib.KL_FILE_TIME_INDEX, *fields)

    @property
    def data(self) -> "npt.NDArray[np.uint8]":
        """The `.log` of a sealed segment, mapped, as bytes; the array keeps the mapping.

        Raises: ArgumentError for the active segment, whose file still grows.
        """
        data: npt.NDArray[np.uint8] = self._view(lib.KL_FILE_LOG, "u1")
        return data

    def _index(self, file: int, *fields: tuple[str, str]) -> "npt.NDArray[np.void]":
        entries: npt.NDArray[np.void] = self._view(file, list(fields))
        return entries

    def _view(self, file: int, dtype: Any) -> Any:
        import numpy as np

        out = ffi.new("kl_view **")
        check(lib.kl_log_view(self.log.c, self.base_offset, file, out))
        view = ffi.gc(out[0], lib.kl_view_free)
        size = lib.kl_view_bytes(view)
        if size == 0:
            return np.empty(0, dtype)
        # The buffer's pointer holds the view, and with it the mapping, as long as an array lives.
        data = ffi.gc(lib.kl_view_data(view), lambda _, view=view: None)
        array = np.frombuffer(ffi.buffer(data, size), dtype)
        array.flags.writeable = False
        return array


def list_segments(log: Handle) -> tuple[Segment, ...]:
    """All segments of `log`, in the order of offsets; the last one is active."""
    return tuple(
        Segment(
            log, info.base_offset, info.next_offset, info.size_bytes, info.created_ms,
            bool(info.active),
        )
        for info in log.many("kl_segment_info", lib.kl_log_segments, 0, 0)
    )  # fmt: skip


T = TypeVar("T")


def over_segments(log: Handle, decide: Callable[[tuple[Segment, ...]], T]) -> T:
    """The result of `decide` for the segments; called again if one was removed in between.

    Raises: StaleLog if that does not end.
    """
    for _ in range(LOOKS):
        with contextlib.suppress(StaleLog):
            return decide(list_segments(log))
    return decide(list_segments(log))
