"""Spark's micro-batch engine without Spark: its calls in order, and the state that survives a kill.

Source: the order of calls that PySpark 4.2 and 4.3 make; offsets pass as JSON text, tasks and
readers as pickles.  `Checkpoint` holds what a real engine keeps in its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark_kafkalog.columns import NAMES, schema_of
from pyspark_kafkalog.options import parse_stream
from pyspark_kafkalog.stream.reader import KafkalogStreamReader

from kafkalog.clock import ManualClock

ReadAllAvailable = pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="streams with limits need PySpark 4.2"
).ReadAllAvailable

Row = tuple[str, int, int, bytes]


@dataclass
class Checkpoint:
    """On disk: offsets of batches that began, numbers of those that are done."""

    offsets: list[str] = field(default_factory=list)
    done: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict)
    """Rows by batch: a batch that is written again replaces its earlier rows."""

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.sink) for row in self.sink[number]]


class Killed(Exception):
    """The driver died."""


class Query:
    """One run of a query over a checkpoint.  `place`: a path, or options that name brokers;
    `worked_s`: as for Watch."""

    def __init__(
        self,
        place: Path | str | dict[str, str],
        checkpoint: Checkpoint,
        clock: ManualClock | None = None,
        available_now: bool = False,
        once: bool = False,
        worked_s: Callable[[], float] = lambda: 0.0,
        **options: str,
    ) -> None:
        given = {name.replace("__", ".").lower(): text for name, text in options.items()}
        where = place if isinstance(place, dict) else {"path": str(place)}
        parsed = parse_stream({**where, **given}, NAMES)
        schema = schema_of(NAMES)
        self.reader = KafkalogStreamReader(parsed, schema, clock or ManualClock(0), worked_s)
        self.checkpoint = checkpoint
        self.kill_at: str | None = None
        self._once = once
        self._end: str | None = None
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def _step(self, name: str) -> None:
        if self.kill_at == name:
            raise Killed(name)

    def trigger(self) -> bool:
        """Run one trigger; returns whether there was a batch."""
        kept = self.checkpoint
        if kept.done < len(kept.offsets):  # begun and not done: run it again
            start = kept.offsets[kept.done - 1] if kept.done else self._initial()
            self._run(kept.done, start, kept.offsets[kept.done])
            return True
        start = kept.offsets[-1] if kept.offsets else self._initial()
        if self._end is None and kept.offsets:
            self.reader.commit(json.loads(start))
        limit = ReadAllAvailable() if self._once else self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        self._step("latestOffset")
        if end == start and kept.offsets:
            return False
        kept.offsets.append(end)
        self._step("walCommit")
        if self._end is not None:
            self.reader.commit(json.loads(start))
        self._run(len(kept.offsets) - 1, start, end)
        return True

    def _initial(self) -> str:
        """Ask for it twice, as Spark does."""
        first, second = (json.dumps(self.reader.initialOffset()) for _ in range(2))
        assert first == second
        return first

    def _run(self, number: int, start: str, end: str) -> None:
        rows: list[Row] = []
        tasks = self.reader.partitions(json.loads(start), json.loads(end))
        for task in tasks:
            # Executors get the second instance of the reader, pickled.
            there = cloudpickle.loads(cloudpickle.dumps(self.reader))
            for batch in there.read(cloudpickle.loads(cloudpickle.dumps(task))):
                columns = ("topic", "partition", "offset", "value")
                rows += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
        self._step("read")
        self.checkpoint.sink[number] = rows
        self._step("sink")
        self.checkpoint.done = number + 1
        self._end = end

    def drain(self, most: int = 1000) -> int:
        """Trigger until there is nothing left; returns the number of batches."""
        for number in range(most):
            if not self.trigger():
                return number
        raise AssertionError("it does not end")
