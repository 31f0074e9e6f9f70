"""The batch reader: planning on the driver, reading on the executors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from . import plan
from .columns import check_columns
from .errors import DataLoss
from .options import Key, ReadOptions
from .places import Place, open_place
from .task import LogPartition, partitions_of, read_task
from .worker import settle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

T = TypeVar("T")
_log = logging.getLogger("pyspark_kafkalog")


class KafkalogReader(DataSourceReader):
    """A batch read.  Plain values only, since it travels to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Look at the partitions and cut the read into tasks.  Runs on the driver."""
        warn_ignored(self._options.ignored)
        with closing(open_place(self._options)) as place:
            found = plan_batch(self._options, place)
        settle()
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The `pyarrow.RecordBatch`es of one task.  Runs on an executor."""
        return read_task(partition, self._schema, self._options)


def warn_ignored(names: Sequence[str]) -> None:
    """Log which options have no effect."""
    for name in names:
        _log.warning("option %r has no meaning here and is ignored", name)


def plan_batch(options: ReadOptions, place: Place) -> list[LogPartition]:
    """The tasks of a batch read.

    Raises: BadOption, DataLoss.
    """
    keys = plan.choose(options.selection, place.present())
    if not keys:
        _log.warning("no topic of %s matches %r", place.name, options.selection.pattern)
    start_ms = plan.times_wanted(options.start, keys)
    stop_ms = plan.times_wanted(options.end, keys)
    known = still_there(keys, place.identities(keys), place, options)
    ends = still_there(known, place.ends(list(known)), place, options)
    found = [
        still_there(asked, place.at_times(asked), place, options)
        for asked in ({key: ms for key, ms in times.items() if key in ends}
                      for times in (start_ms, stop_ms))
    ]  # fmt: skip
    for times, offsets in zip((start_ms, stop_ms), found, strict=True):
        ends = {key: one for key, one in ends.items() if key not in times or key in offsets}
    wanted = plan.resolve(options, ends, *found)
    ranges, warnings = plan.check_loss(wanted, ends, options)
    for warning in warnings:
        _log.warning("%s", warning)
    keys = [one.key for one in ranges]
    marks = still_there(keys, place.marks(ranges, options), place, options)
    ranges = [one for one in ranges if one.key in marks]
    return partitions_of(ranges, marks, known, place, options)


def still_there(
    asked: Sequence[Key] | Mapping[Key, Any],
    found: Mapping[Key, T],
    place: Place,
    options: ReadOptions,
) -> Mapping[Key, T]:
    """The requested partitions that still exist; the others were deleted since.

    Raises: DataLoss for these, if failOnDataLoss is set.
    """
    for key in asked:
        if key not in found:
            if options.fail_on_data_loss:
                raise DataLoss(place.told_gone(key))
            _log.warning("%s", place.told_gone(key))
    return found
