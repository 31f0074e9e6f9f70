"""The data source that Spark sees: options, schema, readers and writers.

There is no filter pushdown on purpose: Spark 4.1 to 4.3 plans a load() once and reuses the
plan of one filter for another, which returns wrong rows.  Offsets, times and partitions are
chosen by options.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from . import plan
from .batch import KafkalogReader
from .columns import NAMES, default_columns, schema_of
from .errors import BadOption, MissingTopic
from .options import ReadOptions, parse_batch, parse_stream, says_stream
from .places import open_place
from .sink import options as write_options
from .sink.writers import KafkalogStreamWriter, KafkalogWriter
from .stream.reader import KafkalogStreamReader
from .worker import settle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("pyspark_kafkalog")


class KafkalogSource(DataSource):
    """Topics of a kafkalog or Kafka data directory, with the schema of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "kafkalog"

    def schema(self) -> StructType:
        """The columns of the Kafka source; fewer by `columns`, `headers` by `includeHeaders`."""
        options = self._any_options()
        # Here, since only this runs at load(): missing topics are reported immediately.
        with closing(open_place(options)) as place:
            try:
                plan.choose(options.selection, place.present())
            except MissingTopic as error:
                if options.fail_on_data_loss:
                    raise
                # It may have been deleted since a query with a checkpoint read it.
                _log.warning("%s; only a stream with a checkpoint goes on without it", error)
        found = schema_of(default_columns(options))
        settle()
        return found

    def reader(self, schema: StructType) -> KafkalogReader:
        """A batch read of the columns of `schema`: a subset of ours, with our types."""
        return KafkalogReader(self._read_options(), schema)

    def streamReader(self, schema: StructType) -> KafkalogStreamReader:
        """A stream of the columns of `schema`."""
        return KafkalogStreamReader(parse_stream(self.options, NAMES), schema)

    def writer(self, schema: StructType, overwrite: bool) -> KafkalogWriter:
        """A batch write, in one transaction."""
        return KafkalogWriter(write_options.parse(self.options, False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkalogStreamWriter:
        """A streaming write, exactly once."""
        return KafkalogStreamWriter(write_options.parse(self.options, True), schema, overwrite)

    def _read_options(self) -> ReadOptions:
        return parse_batch(self.options, NAMES)

    def _any_options(self) -> ReadOptions:
        """Spark does not say whether a schema is for a batch or for a stream."""
        try:
            return self._read_options()
        except BadOption:
            if not says_stream(self.options):
                raise
            return parse_stream(self.options, NAMES)
