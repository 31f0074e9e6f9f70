"""The lives of a log and of a broker, step by step, and what each must hold afterwards.

A step may be refused while the disk is full; repeated when there is space, it must succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from kafkalog import Broker, Log
from kafkalog._native import lib
from kafkalog.batch.decode import body_of, decoded_records
from kafkalog.batch.walk import whole_batches
from kafkalog.config.topic import TopicConfig
from kafkalog.directory.jobs.retention import retain
from kafkalog.directory.manager import Manager
from kafkalog.inspect.verify.files import verify
from kafkalog.wire import apis
from kafkalog.wire.error_codes import ErrorCode
from tests.support import batches
from tests.support.raw import Raw
from tests.support.waiting import wait_for
from tests.unit.server.transactions.test_transactions import Client

Step = Callable[[], None]
CONTROL = int(lib.KL_ATTR_CONTROL)


class Refused(Exception):
    """A retriable error of a broker."""


def value_of(number: int) -> bytes:
    return b"%d:" % number + bytes([65 + number % 26]) * (40 + number * 37 % 300)


class LogLife:
    """A log's life: opened, written, truncated, cleaned, closed and opened again.

    `model` is its content: by offset the key and the value.
    """

    config: ClassVar[dict[str, object]] = {
        "segment.bytes": 3000, "index.interval.bytes": 256, "file.delete.delay.ms": 0,
        "cleanup.policy": "compact,delete", "retention.ms": -1, "min.cleanable.dirty.ratio": 0,
    }  # fmt: skip

    def __init__(self, folder: Path, alone: bool) -> None:
        """`alone`: a lone folder; otherwise in a data directory."""
        self.alone = alone
        self.path = folder / "log-0" if alone else folder / "data"
        self.model: dict[int, tuple[bytes | None, bytes | None]] = {}
        self.end = 0
        self._log: Log | None = None
        self._manager: Manager | None = None
        self.steps: list[Step] = [
            self.open, self.append, self.many, self.append, self.flush, self.transaction,
            self.checkpoints, self.roll, self.many, self.append, self.delete, self.compact,
            self.many, self.truncate, self.retention, self.append, self.close,
            self.open, self.many, self.checkpoints, self.truncate_far, self.append,
            self.delete_all, self.append, self.crash, self.open, self.many, self.roll, self.close,
        ]  # fmt: skip

    @property
    def log(self) -> Log:
        assert self._log is not None
        return self._log

    def open(self) -> None:
        if self.alone:
            self._log = Log(self.path, config=self.config)
            return
        if self._manager is None:
            quiet = {"log.retention.check.interval.ms": 1 << 40, "log.cleaner.enable": False}
            self._manager = Manager(self.path, quiet, self.config)
        if not self._manager.partitions("log"):
            self._manager.create_topic("log")
        self._log = self._manager.get("log")

    def close(self) -> None:
        opened, self._log = (self._log, None) if self.alone else (self._manager, None)
        self._manager = None
        assert opened is not None
        opened.close()

    def crash(self) -> None:
        """End as a kill does: without a close."""
        self.log._handle.abandon()
        if self._manager is not None:
            self._manager._scheduler.stop()
            self._manager.state.close()
            Manager._shared.forget(self._manager)
        self._log = self._manager = None

    def append(self) -> None:
        for _ in range(3):
            number = self.end
            key, value = b"k%d" % (number % 7), value_of(number)
            assert self.log.append(value, key=key, timestamp_ms=number) == number
            self._took([(key, value)])

    def many(self) -> None:
        rows = [(b"k%d" % (n % 7), value_of(n)) for n in range(self.end, self.end + 12)]
        self.log.append_many(
            [value for _, value in rows], keys=[key for key, _ in rows],
            timestamps_ms=range(self.end, self.end + 12), compression="zstd",
            batch_bytes=1 << 20,
        )  # fmt: skip
        self._took(rows)

    def transaction(self) -> None:
        """One that is aborted: two rows and the marker, whose offset no row has."""
        if self.log.last_stable_offset == self.log.end_offset:
            rows = [(b"t%d" % i, b"aborted") for i in range(2)]
            self.log.append_batches(batches.batch(
                [batches.Row(value, key, 5) for key, value in rows], producer_id=7,
                producer_epoch=0, base_sequence=0, transactional=True,
            ))  # fmt: skip
            self._took(rows)
        self.log.append_marker(7, 0, commit=False)
        self.end += 1

    def _took(self, rows: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        for row in rows:
            self.model[self.end] = row
            self.end += 1

    def flush(self) -> None:
        self.log.flush()

    def roll(self) -> None:
        self.log.roll()

    def delete(self) -> None:
        self._delete(min(self.model) + 5)

    def delete_all(self) -> None:
        self._delete(self.end)

    def retention(self) -> None:
        """All sealed segments are too old; the broker's job deletes them, if there is a broker."""
        config = {**self.config, "retention.ms": 1}
        if self._manager is None:
            self.log._handle.configure(TopicConfig.of(config))
            self.log.apply_retention(now_ms=1 << 40)
            self.log._handle.configure(TopicConfig.of(self.config))
        else:
            self.log._handle.configure(TopicConfig.of(config))
            retain(self._manager)
            self.log._handle.configure(TopicConfig.of(self.config))
        start = self.log.start_offset
        self.model = {offset: row for offset, row in self.model.items() if offset >= start}

    def _delete(self, offset: int) -> None:
        self.log.delete_before(offset)
        self.model = {o: row for o, row in self.model.items() if o >= offset}

    def truncate(self) -> None:
        self._cut(self.end - 4)

    def truncate_far(self) -> None:
        self._cut((min(self.model) + self.end) // 2)

    def _cut(self, offset: int) -> None:
        self.log.truncate(offset)
        self.end = self.log.end_offset
        self.model = {o: row for o, row in self.model.items() if o < self.end}

    def compact(self) -> None:
        self.log.compact()
        held = self._held()
        assert self._lasts(held) == self._lasts(self.model), "compaction took the last of a key"
        self.model = held

    def checkpoints(self) -> None:
        if self._manager is not None:
            points = self._manager.upkeep.checkpoints
            points.recovery_points(), points.log_starts(), points.high_watermarks()

    # ---- invariants -------------------------------------------------------------------------

    def _held(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        return {record.offset: (record.key, record.value) for record in self.log.read()}

    @staticmethod
    def _lasts(rows: dict[int, tuple[bytes | None, bytes | None]]) -> dict[bytes | None, int]:
        """The last offset of each key; aborted records do not count."""
        found = {key: offset for offset, (key, _) in sorted(rows.items())}
        return {key: offset for key, offset in found.items() if not (key or b"").startswith(b"t")}

    def check_refused(self) -> None:
        """After a refusal: it can be read, and holds all but what the step was about to remove."""
        if self._log is None:
            return
        held = self._held()
        assert all(self.model.get(offset) == row for offset, row in held.items())

    def check(self) -> None:
        """After a step: exactly what it should hold."""
        if self._log is not None:
            assert self._held() == self.model
            assert self.log.end_offset == self.end

    def end_well(self) -> None:
        """A last open finds everything, and verify no damage."""
        self.open()
        self.check()
        self.close()
        report = verify([str(self.path)])
        assert report.clean, report.findings


SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1, "auto.create.topics.enable": False,
    "log.cleaner.enable": False, "log.retention.check.interval.ms": 1 << 40,
    "offsets.commit.timeout.ms": 500,
}  # fmt: skip
PRODUCE_MS = 1_000
"""A produce request's timeout: without descriptors nothing is synced, and it waits that long."""
PASSING = {
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR,
}  # fmt: skip


class BrokerLife:
    """A broker's life, as its clients see it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "data"
        self.values: list[bytes] = []  # of topic a, from its start on
        self.late: list[bytes] = []  # perhaps after them: never acknowledged
        self.start = 0
        self.deleted = 0  # records below may be gone: their deletion was requested
        self.committed = -1
        self._broker: Broker | None = None
        self._raw: Raw | None = None
        self._client: Client | None = None
        self.steps: list[Step] = [
            self.open, self.create, self.produce, self.commit, self.produce, self.transaction,
            self.delete_records, self.create_other, self.delete_other, self.setting, self.close,
            self.open, self.produce, self.commit, self.transaction, self.close,
        ]  # fmt: skip

    @property
    def raw(self) -> Raw:
        assert self._raw is not None
        return self._raw

    def open(self) -> None:
        if self._broker is None:
            self._broker = Broker(self.path, config=SETTINGS)
        if self._raw is None:
            self._raw = Raw(self._broker.bootstrap_servers)

    def close(self) -> None:
        raw, broker, self._raw, self._broker = self._raw, self._broker, None, None
        if raw is not None:
            raw.close()
        if broker is not None:
            broker.close()

    @staticmethod
    def _fine(code: int, *also: ErrorCode) -> None:
        if code in PASSING:
            raise Refused(ErrorCode(code).name)
        assert code in (ErrorCode.NONE, *also), ErrorCode(code).name

    def create(self) -> None:
        self._fine(self.raw.create("a").error_code, ErrorCode.TOPIC_ALREADY_EXISTS)

    def create_other(self) -> None:
        self._fine(self.raw.create("b", 2).error_code, ErrorCode.TOPIC_ALREADY_EXISTS)

    def delete_other(self) -> None:
        found = self.raw.call(apis.DELETE_TOPICS, topics=[{"name": "b"}], timeout_ms=10_000)
        self._fine(found.responses[0].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def produce(self) -> None:
        for _ in range(3):
            value = value_of(self.start + len(self.values))
            code = self.raw.produce("a", value, timeout_ms=PRODUCE_MS).error_code
            if code == ErrorCode.REQUEST_TIMED_OUT:
                self.late.append(value)
                raise Refused("REQUEST_TIMED_OUT")
            self._fine(code)
            self.values += [*self.late, value]
            self.late = []

    def setting(self) -> None:
        self._fine(self.raw.alter(2, "a", retention_ms="-1").error_code)

    def delete_records(self) -> None:
        offset = self.deleted = self.start + 2
        part = {"partition_index": 0, "offset": offset}
        topics = [{"name": "a", "partitions": [part]}]
        found = self.raw.call(apis.DELETE_RECORDS, topics=topics, timeout_ms=10_000)
        self._fine(found.topics[0].partitions[0].error_code)
        del self.values[: offset - self.start]
        self.start = offset

    def commit(self) -> None:
        found = self.raw.call(apis.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
        self._fine(found.coordinators[0].error_code)
        partition = {"partition_index": 0, "committed_offset": self.committed + 1,
                     "committed_metadata": ""}  # fmt: skip
        answer = self.raw.call(apis.OFFSET_COMMIT, 8, group_id="g",
                               topics=[{"name": "a", "partitions": [partition]}])  # fmt: skip
        self._fine(answer.topics[0].partitions[0].error_code)
        self.committed += 1

    def transaction(self) -> None:
        """An empty transaction: its beginning and end test only the journal."""
        found = self.raw.call(apis.FIND_COORDINATOR, key_type=1, coordinator_keys=["t"])
        self._fine(found.coordinators[0].error_code)
        given = self.raw.call(apis.INIT_PRODUCER_ID, 4, transactional_id="t",
                              transaction_timeout_ms=60_000)  # fmt: skip
        self._fine(given.error_code)
        who = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        added = self.raw.call(
            apis.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="t",
            v3_and_below_topics=[{"name": "a", "partitions": [0]}],
            **{f"v3_and_below_{name}": value for name, value in who.items()},
        )  # fmt: skip
        codes = added.results_by_topic_v3_and_below[0].results_by_partition
        self._fine(codes[0].partition_error_code)
        ended = self.raw.call(apis.END_TXN, 3, transactional_id="t", committed=False, **who)
        self._fine(ended.error_code)

    # ---- invariants -------------------------------------------------------------------------

    def check_refused(self) -> None:
        """It can still be read."""
        self.check()

    def check(self) -> None:
        if self._raw is None or not self.values:
            return
        began, ends = self.raw.offsets("a", -2), self.raw.offsets("a", -1)
        self._fine(began.error_code)
        self._fine(ends.error_code)
        first, end = began.offset, ends.offset
        assert first in (self.start, self.deleted), "more was deleted than requested"
        rows, offset = [], first
        while offset < end:
            found = self.raw.fetch("a", offset)
            self._fine(found.error_code)
            for one, raw in whole_batches(found.records or b""):
                offset = one.last_offset + 1
                if not one.attributes & CONTROL:
                    records = decoded_records(one, body_of(one, raw))
                    rows += [record.value for record in records if record.offset >= first]
        wanted = self.values[first - self.start :]
        assert rows[: len(wanted)] == wanted, "acknowledged records are gone"
        assert rows == wanted or rows == wanted + self.late, "a refused record is there"

    def _committed(self) -> int:
        topics = [{"name": "a", "partition_indexes": [0]}]
        found = self.raw.call(apis.OFFSET_FETCH, 5, group_id="g", topics=topics)
        return -2 if found.error_code else int(found.topics[0].partitions[0].committed_offset)

    def _knows_the_transaction(self) -> bool:
        """True if its journal has it; while the journal is read the answer is retriable."""
        found = self.raw.call(apis.DESCRIBE_TRANSACTIONS, transactional_ids=["t"])
        (code,) = [state.error_code for state in found.transaction_states]
        loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        assert code in (ErrorCode.NONE, *loading), ErrorCode(code).name
        return bool(code == ErrorCode.NONE)

    def end_well(self) -> None:
        self.open()
        self.check()
        wait_for(lambda: self._committed() == self.committed, "the commit is there")
        wait_for(self._knows_the_transaction, "the transaction is there")
        self.close()
        report = verify([str(self.path)])
        assert report.clean, report.findings
