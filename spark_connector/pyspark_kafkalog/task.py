"""Objects sent from the driver to the executors, and their work: the tasks of both readers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from .columns import arrow_schema, chosen_columns
from .errors import ReadError
from .options import Key, ReadOptions
from .places import Piece, Place, open_place
from .plan import Marks, Range, tasks
from .worker import settle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """One task: pieces of topic-partitions, read one after another."""

    pieces: tuple[Piece, ...]
    planned_on: str
    planned_with: str


def partitions_of(
    ranges: Sequence[Range],
    marks: Mapping[Key, Marks],
    identities: Mapping[Key, str],
    place: Place,
    options: ReadOptions,
) -> list[LogPartition]:
    """The ranges as tasks.  Runs on the driver."""
    import kafkalog

    return [
        LogPartition(
            pieces=tuple(place.piece(one, identities[one.key]) for one in task),
            planned_on=socket.gethostname(),
            planned_with=kafkalog.__version__,
        )
        for task in tasks(ranges, marks, options)
    ]


def read_task(partition: InputPartition, schema: StructType, options: ReadOptions) -> Iterator[Any]:
    """The `pyarrow.RecordBatch`es of one task.  Runs on an executor.

    Raises: DataLoss, ReadError.
    """
    if not isinstance(partition, LogPartition):
        return  # Spark makes this of a plan without tasks
    import pyarrow as pa

    _check_version(partition)
    place, columns, arrow = _place(options), chosen_columns(schema), arrow_schema(schema)
    for piece in partition.pieces:
        for batch in place.read(piece, columns, options):
            settle()
            yield pa.RecordBatch.from_arrays(batch.columns, schema=arrow)


KEPT_MAX = 4
"""Reads whose tasks take turns on one worker: streams of a session, sources of a join."""
_kept: list[tuple[int, ReadOptions, Place]] = []
"""This worker's last reads, the latest one at the end: their next tasks find their logs open.
A forked worker leaves those it inherited alone."""


def _place(options: ReadOptions) -> Place:
    ours = [one for one in _kept if one[0] == os.getpid()]
    found = next((one for one in ours if one[1] == options), None)
    if found is not None:
        _kept.remove(found)
    elif len(ours) == KEPT_MAX:
        _kept.remove(ours[0])
        ours[0][2].close()
    _kept.append(found or (os.getpid(), options, open_place(options)))
    return _kept[-1][2]


def _check_version(partition: LogPartition) -> None:
    import kafkalog

    if kafkalog.__version__ != partition.planned_with:
        raise ReadError(
            f"kafkalog {kafkalog.__version__} on {socket.gethostname()}, but the driver "
            f"{partition.planned_on} planned with {partition.planned_with}: install one version"
        )
