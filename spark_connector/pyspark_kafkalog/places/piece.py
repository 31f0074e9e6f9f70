"""A range for a task, and what both places do with it there."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DataLoss
from ..options import ReadOptions
from ..plan import Range

_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True)
class Piece:
    """A range as a task reads it.  Plain values only: it travels to the executors."""

    range: Range
    identity: str
    """The partition's identity: a task does not read another one with the same name."""
    folder: str = ""
    """Its folder; empty for brokers."""


def columns_wanted(columns: Sequence[str], options: ReadOptions) -> list[str]:
    """The columns to decode: with the offset if a reader may have to continue after a loss."""
    resumes = not options.fail_on_data_loss and "offset" not in columns
    return [*columns, "offset"] if resumes else list(columns)


def record_batches(
    blocks: Iterable[Any], at: int, columns: Sequence[str], options: ReadOptions
) -> Iterator[tuple[Any, int]]:
    """The batches of a scan of `columns_wanted` for Spark, each with the offset after it, as far as
    a reader may have to continue there; `at`: where they begin.
    """
    import pyarrow as pa

    for block in blocks:  # not as one stream: Arrow would make every failure an OSError
        batch = pa.record_batch(block)
        if not options.fail_on_data_loss and len(batch):
            at = batch.column("offset")[-1].as_py() + 1
        yield batch.select(list(columns)), at


def told_damage(error: Exception, verify: str) -> str:
    """A read's error as a sentence; for damage, it says how to verify it and read on."""
    from kafkalog.errors import CorruptMessage

    told = f"{type(error).__name__}: {error}"
    if isinstance(error, CorruptMessage):
        told += (
            f". {verify} lists all damage; to read the rest, set startingOffsets and "
            "endingOffsets to leave out these offsets"
        )
    return told


def tell_lost(told: str, options: ReadOptions) -> None:
    """Raises: DataLoss, if failOnDataLoss is set."""
    if options.fail_on_data_loss:
        raise DataLoss(told)
    _log.warning("%s", told)
