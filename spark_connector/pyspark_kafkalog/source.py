"""The data source that Spark sees: schema and planning on the driver, reading on the executors.

There is no filter pushdown on purpose: Spark 4.1 to 4.3 plans a load() once and reuses the
plan of one filter for another, which returns wrong rows.  Offsets, times and partitions are
chosen by options.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from . import logs, plan
from .columns import NAMES, arrow_schema, chosen_columns, default_columns, schema_of
from .options import BadOption, Key, ReadOptions, parse
from .sink import options as write_options
from .sink.writers import KafkalogStreamWriter, KafkalogWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("pyspark_kafkalog")


class NotSupported(RuntimeError):
    """Spark asked for something that this source does not do."""


class KafkalogSource(DataSource):
    """Topics of a kafkalog or Kafka data directory, with the schema of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "kafkalog"

    def schema(self) -> StructType:
        """The columns of the Kafka source; fewer by `columns`, `headers` by `includeHeaders`."""
        options = self._read_options()
        # Here, since this alone runs at load(): what is not there is said at once.
        plan.choose(options.selection, list(logs.partition_folders(options.path)))
        return schema_of(default_columns(options))

    def reader(self, schema: StructType) -> KafkalogReader:
        """A batch read of the columns of `schema`: a subset of ours, with our types."""
        return KafkalogReader(self._read_options(), schema)

    def streamReader(self, schema: StructType) -> NoReturn:
        """Refused."""
        _only_batch_reads("readStream")

    def simpleStreamReader(self, schema: StructType) -> NoReturn:
        """Refused."""
        _only_batch_reads("readStream")

    def writer(self, schema: StructType, overwrite: bool) -> KafkalogWriter:
        """A batch write, in one transaction."""
        return KafkalogWriter(write_options.parse(self.options, False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkalogStreamWriter:
        """A streaming write, exactly once."""
        return KafkalogStreamWriter(write_options.parse(self.options, True), schema, overwrite)

    def _read_options(self) -> ReadOptions:
        return parse(self.options, NAMES)


def _only_batch_reads(found: str) -> NoReturn:
    raise NotSupported(
        f"format('kafkalog') does not support {found} yet; what works is a batch read: "
        "spark.read.format('kafkalog').option('path', ...).option('subscribe', ...).load()"
    )


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """One task: ranges of offsets, each (folder, topic, partition, start, stop, identity)."""

    ranges: tuple[tuple[str, str, int, int, int, str], ...]
    planned_on: str
    planned_with: str


class KafkalogReader(DataSourceReader):
    """A batch read.  Plain values only, since it travels to the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._columns = chosen_columns(schema)
        if options.columns is not None and set(options.columns) != set(self._columns):
            raise BadOption(
                f"option 'columns' says {', '.join(options.columns)}, but the schema says "
                f"{', '.join(self._columns)}: give one of them"
            )

    def partitions(self) -> list[InputPartition]:
        """Look at the logs and cut the read into tasks.  Runs on the driver."""
        options = self._options
        for name in options.ignored:
            _log.warning("option %r has no meaning here and is ignored", name)
        folders = logs.partition_folders(options.path)
        keys = plan.choose(options.selection, list(folders))
        if not keys:
            _log.warning("no topic of %s matches %r", options.path, options.selection.pattern)
        start_ms = plan.times_wanted(options.start, keys)
        stop_ms = plan.times_wanted(options.end, keys)
        found = {}
        for key in keys:
            times = start_ms.get(key), stop_ms.get(key)
            try:
                found[key] = logs.survey(folders[key], key, options, *times)
            except plan.DataLoss as lost:
                if options.fail_on_data_loss:
                    raise
                _log.warning("%s", lost)
        ranges, warnings = plan.bound(
            options,
            {key: survey.ends for key, survey in found.items()},
            {key: survey.start_found for key, survey in found.items()},
            {key: survey.stop_found for key, survey in found.items()},
        )
        for warning in warnings:
            _log.warning("%s", warning)
        places = {key: survey.places for key, survey in found.items()}
        known = {key: survey.identity for key, survey in found.items()}
        return [_partition(task, folders, known) for task in plan.tasks(ranges, places, options)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The `pyarrow.RecordBatch`es of one task.  Runs on an executor."""
        if not isinstance(partition, LogPartition):
            return  # what Spark makes of a plan without tasks
        import pyarrow as pa

        _check_version(partition)
        schema = arrow_schema(self._schema)
        for folder, topic, number, start, stop, identity in partition.ranges:
            piece = logs.Piece(folder, plan.Range((topic, number), start, stop), identity)
            for batch in logs.read_range(piece, self._columns, self._options):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _partition(
    task: list[plan.Range], folders: dict[Key, str], known: dict[Key, str]
) -> LogPartition:
    import kafkalog

    return LogPartition(
        ranges=tuple(
            (folders[one.key], one.key[0], one.key[1], one.start, one.stop, known[one.key])
            for one in task
        ),
        planned_on=socket.gethostname(),
        planned_with=kafkalog.__version__,
    )


def _check_version(partition: LogPartition) -> None:
    import kafkalog

    if kafkalog.__version__ != partition.planned_with:
        raise logs.ReadError(
            f"kafkalog {kafkalog.__version__} on {socket.gethostname()}, but the driver "
            f"{partition.planned_on} planned with {partition.planned_with}: install one version"
        )
