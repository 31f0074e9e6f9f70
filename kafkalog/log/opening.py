"""How a log is opened: what its owner remembers of it, handed to the data plane."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.clock import Clock
from kafkalog.config.topic import TopicConfig
from kafkalog.errors import CorruptLog
from kafkalog.log.settings import log_config
from kafkalog.types import Recovery

if TYPE_CHECKING:
    from kafkalog.log.ownership import Owner

__all__ = ["LogOpen", "open_native"]


class LogOpen(NamedTuple):
    """How a log is to be opened."""

    mode: str
    clean: bool
    """The marker vouches for it: batches need not be read."""
    recovery_point: int
    """-1 for each of these three: unknown."""
    log_start_offset: int
    high_watermark: int
    marker: Any
    """A kl_marker, or None."""
    config: TopicConfig
    topic: str
    partition: int
    clock: Clock
    owner: "Owner"


def open_native(path: str, how: LogOpen) -> tuple[Any, Recovery]:
    """The kl_log of a folder, freed with its last reference, and what recovery did.

    Raises: UnsupportedForMessageFormat, NotFound, IoFailed; CorruptLog where a log that was
    closed cleanly, or flushed, is damaged.
    """
    try:
        return _open(path, how)
    except CorruptLog:
        # Its writer may have begun after the marker was looked at: then an append is under way.
        if how.mode == "w" or not how.clean or how.owner.state.is_marked():
            raise
        return _open(path, how._replace(clean=False))


def _open(path: str, how: LogOpen) -> tuple[Any, Recovery]:
    options = ffi.new("kl_open *", {
        "mode": lib.KL_WRITE if how.mode == "w" else lib.KL_READ,
        "clean": how.clean,
        "recovery_point": how.recovery_point,
        "log_start_offset": how.log_start_offset,
        "high_watermark": how.high_watermark,
        "end_is_high_watermark": how.high_watermark < 0,
        "leader_epoch": -1,
        "first_offset": 0,
    })  # fmt: skip
    out, found = ffi.new("kl_log **"), ffi.new("kl_recovery *")
    marker = how.marker if how.marker is not None else ffi.NULL
    config = log_config(how.config)
    check(lib.kl_log_open(os.fsencode(path), config, options, marker, out, found))
    handle = ffi.gc(out[0], lib.kl_log_free)
    recovery = Recovery(
        found.truncated_bytes, found.truncated_pos, found.truncated_segment,
        found.segments_recovered, found.segments_dropped, found.indexes_rebuilt,
        ffi.string(found.kept).decode(),
    )  # fmt: skip
    if recovery.kept:
        _tell(path, recovery)
    return handle, recovery


def _tell(path: str, recovery: Recovery) -> None:
    import logging  # 10 ms at import, for what hardly ever happens

    logging.getLogger(__name__).warning(
        "%s: was not closed cleanly; %d bytes that were not flushed and are no whole batches, or "
        "lie behind such, were cut from byte %d of segment %d on, and are kept in %s",
        path, recovery.truncated_bytes, recovery.truncated_pos, recovery.truncated_segment,
        recovery.kept,
    )  # fmt: skip
