"""The streaming reader as Spark calls it.

One instance lives on the driver as long as the query runs, and is asked for offsets; another one is
made for the executors, which only `read`.  So the driver's own parts are created when they are
first needed, and left out when the reader is pickled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .. import plan
from ..batch import still_there, warn_ignored
from ..columns import check_columns
from ..errors import BadOption, DataLoss
from ..options import LATEST, Key, StreamOptions
from ..places import open_place
from ..places.identity import is_of_folder, same
from ..task import partitions_of, read_task
from .admission import NO_LIMITS, Head, Limits, Waiting, admit, available, ranges_between
from .hold import Holder
from .offsets import Offsets, from_json, to_json
from .watch import Watch

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kafkalog.clock import Clock

try:
    from pyspark.sql.streaming import datasource as _admission
except ImportError:  # before Spark 4.2: no limits from Spark, and AvailableNow is one batch
    _admission = None  # type: ignore[assignment]

_AvailableNow: Any = object if _admission is None else _admission.SupportsTriggerAvailableNow
_log = logging.getLogger("pyspark_kafkalog")

ALL_ROWS = 2**63 - 1
TOLD_MAX = 1000
"""How many losses are remembered, so that each is warned about once."""


class KafkalogStreamReader(DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]
    """A stream of records: offsets on the driver, records on the executors."""

    def __init__(
        self,
        options: StreamOptions,
        schema: StructType,
        clock: Clock | None = None,
        worked_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`clock`: None for the machine's; `worked_s`: as for Watch."""
        check_columns(options, schema)
        self._options = options
        self._schema = schema
        self._driver = _Driver(options, clock, worked_s)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    def getDefaultReadLimit(self) -> Any:
        """Never `all`: Trigger.Once asks for everything, whatever the options say."""
        assert _admission is not None
        return _admission.ReadMaxRows(self._options.max_offsets or ALL_ROWS)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, then end."""
        self._driver.aim()

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins; the same however often it is called.

        Spark also asks for it before it repeats batch 0, whose end has the start.
        """
        return to_json(self._driver.begin())

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Where the next batch ends: `start` itself when there is none."""
        everything = _admission is not None and isinstance(limit, _admission.ReadAllAvailable)
        found = self._driver.next(None if start is None else from_json(start), everything)
        return dict(start) if found is None and start is not None else to_json(self._driver.at)

    def reportLatestOffset(self) -> dict[str, Any]:
        """The logs' ends at the last look: for progress, and `lag`."""
        return to_json(self._driver.head.offsets)

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        return self._driver.tasks(from_json(start), from_json(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The `pyarrow.RecordBatch`es of one task.  Runs on an executor."""
        return read_task(partition, self._schema, self._options)

    def commit(self, end: Any) -> None:
        """Everything below `end` is processed: the retention hold moves there."""
        self._driver.done(from_json(end))


class _Driver:
    """The state of the driver's reader."""

    def __init__(
        self, options: StreamOptions, clock: Clock | None, worked_s: Callable[[], float]
    ) -> None:
        from kafkalog.clock import SystemClock

        self._options = options
        self._clock = SystemClock() if clock is None else clock
        self._watch = Watch(open_place(options), options, self._clock, worked_s)
        self._holder: Holder | None = None
        if options.hold is not None and options.path is not None:
            self._holder = Holder(options.path, options.hold)
        self._held: Offsets | None = None
        self._waiting = Waiting()
        self._target: Offsets | None = None
        self._initial: Offsets | None = None
        self._no_start: BadOption | DataLoss | None = None
        self._first = self._pin = False
        self._known: dict[Key, str] = {}
        self._anew: set[Key] = set()
        self._told: dict[str, None] = {}
        self.head = Head()
        self.at = Offsets({})
        """The end of the last planned batch."""

    def aim(self) -> None:
        """Trigger.AvailableNow: read no further than what is there now."""
        self._target = self._look(fresh=True).offsets

    def begin(self) -> Offsets:
        """The start of a new query; without offsets if the options give none now.

        That is an error only if it is needed: the end of batch 0 has the start, and the topics may
        have changed since.
        """
        if self._initial is None:
            warn_ignored(self._options.ignored)
            self._warn_old_spark()
            try:
                self._watch.require()
                self._initial = self._resolve(self._look(fresh=True))
            except (BadOption, DataLoss) as error:
                self._initial, self._no_start = Offsets({}), error
            self._first, self.at = True, self._initial
            # Until batch 0 is stored, nobody knows where `latest` was: so it reads nothing.
            self._pin = self._target is None and _says_latest(self._options)
        return self._initial

    def _warn_old_spark(self) -> None:
        limits = self._limits()
        if _admission is None and (limits.max_offsets or limits.max_bytes or limits.min_offsets):
            _log.warning(
                "before Spark 4.2 Trigger.AvailableNow and Trigger.Once end after one batch, "
                "within the limits of maxOffsetsPerTrigger, maxBytesPerTrigger and "
                "minOffsetsPerTrigger: leave these out there, or start the query until nothing "
                "is left"
            )

    def _resolve(self, head: Head) -> Offsets:
        options, place = self._options, self._watch.place
        times = plan.times_wanted(options.start, list(head.ends))
        found = still_there(times, place.at_times(times), place, options)
        return Offsets(
            {
                key: _start(options, key, head, found.get(key))
                for key in head.ends
                if key not in times or key in found
            },
            head.ids,
        )

    def next(self, start: Offsets | None, everything: bool) -> Offsets | None:
        """Where the next batch ends; None: not yet.

        `start` None: an older Spark, which relies on `at`.
        """
        if self._no_start is not None:
            raise self._no_start
        start = self.at if start is None else start
        if self._holder is not None:
            self._holder.tell(self._held or start, self._clock.now_ms())
        first = self._first and not start.began
        self.at = start
        if self._pin and not everything:
            self._pin = False
            return self._begun(start, start) if first else None
        offer = available(self._without_anew(start), self._look(), self._target)
        self._lost(offer.lost)
        limits = NO_LIMITS if everything else self._limits()
        now_ms = round(self._clock.monotonic_s() * 1000)
        admitted, self._waiting = admit(
            offer, limits, self._waiting, now_ms, self._watch.fine_marks
        )
        if first:
            return self._begun(start if admitted is None else admitted, Offsets(offer.begins))
        if admitted is None or (admitted.at, admitted.ids) == (start.at, start.ids):
            return None
        self.at = admitted
        return admitted

    def _begun(self, end: Offsets, start: Offsets) -> Offsets:
        """The end of batch 0, with the offsets at which it starts."""
        self.at = replace(end, began=start.at)
        return self.at

    def _limits(self) -> Limits:
        options = self._options
        # Everything there now is everything that comes: there is nothing to wait for.
        least = options.min_offsets if self._target is None else None
        return Limits(options.max_offsets, least, options.max_delay_ms, options.max_trigger_bytes)

    def tasks(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The tasks of the batch between two offsets."""
        if end.began:  # it may be repeated, when the options may give another start, or none
            start = Offsets(end.began, end.ids)
        elif end.at and self._no_start is not None:
            raise self._no_start  # of a checkpoint of Spark's Kafka source
        self.at = end
        self._first, self._pin, self._no_start = False, False, None  # the batch was stored
        if start.at == end.at and start.ids == end.ids:
            return []
        if self._holder is not None and self._held is None:
            self._holder.tell(start, self._clock.now_ms())
        head = self._look(fresh=not self.head.ends)
        ranges, lost = ranges_between(self._without_anew(start), end, head)
        self._anew.clear()
        self._lost(lost)
        place, options = self._watch.place, self._options
        keys = [one.key for one in ranges]
        marks = still_there(keys, self._watch.marks(ranges), place, options)
        ranges = [one for one in ranges if one.key in marks]
        return partitions_of(ranges, marks, head.identities, place, options)

    def done(self, end: Offsets) -> None:
        """All below `end` was processed."""
        self._held = end
        if self._holder is not None:
            self._holder.tell(end, self._clock.now_ms())

    # ---- what it sees

    def _look(self, fresh: bool = False) -> Head:
        head = self._watch.head(fresh)
        # Logs without a topic id are identified by their folders, while this process lives.
        for key, now in head.identities.items():
            was = self._known.get(key, now)
            if is_of_folder(was) and is_of_folder(now) and not same(was, now):
                self._anew.add(key)
                self._lost([f"{key[0]}-{key[1]}: the folder was deleted and recreated"])
        self._known.update(head.identities)
        self.head = head
        return head

    def _without_anew(self, start: Offsets) -> Offsets:
        if not self._anew:
            return start
        left = {key: at for key, at in start.at.items() if key not in self._anew}
        return Offsets(left, start.ids)

    def _lost(self, told: Sequence[str]) -> None:
        """Raises: DataLoss, if failOnDataLoss is set."""
        for one in told:
            if self._options.fail_on_data_loss:
                raise DataLoss(
                    f"{one}. Records may have been lost; set failOnDataLoss to false to continue "
                    "with what is there"
                )
            if one not in self._told:
                _log.warning("%s", one)
                self._told[one] = None
                if len(self._told) > TOLD_MAX:
                    del self._told[next(iter(self._told))]


def _start(options: StreamOptions, key: Key, head: Head, found: int | None) -> int:
    """Within what the log has; an offset below or above it is checked when it is read."""
    limit = options.start
    if not limit.by_time and plan.value_of(limit, key) == LATEST:
        return head.stop(key)  # with onlyFlushed below the log's end
    return plan.resolve_start(options, key, head.ends[key], found)


def _says_latest(options: StreamOptions) -> bool:
    limit = options.start
    values = [limit.everywhere, *(limit.each or {}).values(), *limit.topics.values()]
    where_none_matches = limit.by_time and options.start_without_match == "latest"
    return where_none_matches or LATEST in values
