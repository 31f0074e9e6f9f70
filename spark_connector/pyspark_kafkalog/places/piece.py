"""A range on its way to a task, and what both places do with one there."""

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
    """Of the partition: a task does not read another one of the same name."""
    folder: str = ""
    """Where it lies; brokers know by themselves."""


def columns_wanted(columns: Sequence[str], options: ReadOptions) -> list[str]:
    """What is decoded: with the offset, where a reader may have to go on behind a loss."""
    resumes = not options.fail_on_data_loss and "offset" not in columns
    return [*columns, "offset"] if resumes else list(columns)


def record_batches(
    blocks: Iterable[Any], at: int, columns: Sequence[str], options: ReadOptions
) -> Iterator[tuple[Any, int]]:
    """The batches of a scan of `columns_wanted` for Spark, each with the offset behind it as far
    as somebody may have to go on there; `at`: where they begin.
    """
    import pyarrow as pa

    for block in blocks:  # not as one stream: Arrow would make every failure an OSError
        batch = pa.record_batch(block)
        if not options.fail_on_data_loss and len(batch):
            at = batch.column("offset")[-1].as_py() + 1
        yield batch.select(list(columns)), at


def told_damage(error: Exception, verify: str) -> str:
    """An error of a read as a sentence; for damage with what to do: to `verify`, and read on."""
    from kafkalog.errors import CorruptMessage

    told = f"{type(error).__name__}: {error}"
    if isinstance(error, CorruptMessage):
        told += (
            f". {verify} tells all that is damaged; the rest can be read by startingOffsets and "
            "endingOffsets that leave these offsets out"
        )
    return told


def tell_lost(told: str, options: ReadOptions) -> None:
    """Raises: DataLoss, where that is wanted."""
    if options.fail_on_data_loss:
        raise DataLoss(told)
    _log.warning("%s", told)
