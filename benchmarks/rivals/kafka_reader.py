"""kafka-python's reader of record batches: what its consumer does behind the network."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["available", "read"]


def available() -> bool:
    """True if kafka-python is installed."""
    return find_spec("kafka") is not None


def read(batches: bytes) -> int:
    """Every record of `batches`, as a kafka-python object; returns their number."""
    from kafka.record import MemoryRecords

    records, found = MemoryRecords(batches), 0
    while records.has_next():
        for _record in records.next_batch():
            found += 1
    return found
