"""The isolation levels: where a read ends."""

from typing import Final

from kafkalog._native import lib
from kafkalog.errors import ArgumentError

__all__ = ["COMMITTED", "UNCOMMITTED", "bound_of"]

UNCOMMITTED: Final = "read_uncommitted"
"""Includes records of aborted and open transactions; the default for reading records, as in Kafka.
"""
COMMITTED: Final = "read_committed"
"""The default for reading columns: a table has no rows of aborted transactions."""

BOUNDS: Final[dict[str, int]] = {
    "read_uncommitted": lib.KL_UNCOMMITTED,
    "read_committed": lib.KL_COMMITTED,
    "log_end": lib.KL_LOG_END,
}
"""Kafka's isolation levels; and for copying, everything in the log."""


def bound_of(isolation: object, *, log_end: bool = False) -> int:
    """The data plane's number for an isolation level; `log_end`: also accept "log_end".

    Raises: ArgumentError.
    """
    names = [name for name in BOUNDS if log_end or name != "log_end"]
    if not isinstance(isolation, str) or isolation not in names:
        raise ArgumentError(f"isolation: found {isolation!r}, wanted one of {', '.join(names)}")
    return BOUNDS[isolation]
