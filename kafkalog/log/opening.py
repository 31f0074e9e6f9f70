"""How a log is opened: what its owner remembers of it, handed to the data plane."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog._native import check, ffi, lib
from kafkalog.clock import Clock
from kafkalog.config.topic import TopicConfig
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

    Raises: UnsupportedForMessageFormat, NotFound, CorruptLog, IoFailed.
    """
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
    return handle, Recovery(
        found.truncated_bytes, found.truncated_pos, found.truncated_segment,
        found.segments_recovered, found.segments_dropped, found.indexes_rebuilt,
    )  # fmt: skip
