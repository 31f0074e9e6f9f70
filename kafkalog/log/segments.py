"""A log's segments as Python sees them: numbers, and NumPy views of their files."""

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.log.handle import Handle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Segment", "list_segments"]


class Segment(NamedTuple):
    """One segment at the moment it was asked for."""

    log: Handle
    base_offset: int
    next_offset: int
    """The next segment's base, or the log's end."""
    size_bytes: int
    """Of the `.log` file."""
    first_timestamp_ms: int
    """Largest timestamp of the first batch; -1: none."""
    largest_timestamp_ms: int
    """-1: no record has one."""
    offset_index_entries: int
    time_index_entries: int
    created_ms: int
    """Or the file's modification time, where it was there before."""
    active: bool

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
        """The `.log` of a sealed segment, mapped, as bytes; the array keeps the map.

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
        # The buffer's pointer holds the view, and with it the map, as long as an array lives.
        data = ffi.gc(lib.kl_view_data(view), lambda _, view=view: None)
        array = np.frombuffer(ffi.buffer(data, size), dtype)
        array.flags.writeable = False
        return array


def list_segments(log: Handle) -> tuple[Segment, ...]:
    """All segments of `log`, in the order of offsets; the last one is active."""
    return tuple(
        Segment(
            log, info.base_offset, info.next_offset, info.size_bytes, info.first_timestamp_ms,
            info.largest_timestamp_ms, info.offset_index_entries, info.time_index_entries,
            info.created_ms, bool(info.active),
        )
        for info in log.many("kl_segment_info", lib.kl_log_segments)
    )  # fmt: skip
