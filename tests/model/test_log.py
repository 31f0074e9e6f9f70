"""Any sequence of public calls leaves the log and its model in the same state."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import kafkalog
from tests.model.model import Model
from tests.support import batches, trees

T0 = 1_700_000_000_000
RETENTION_MS = 40

times = st.integers(T0, T0 + 100)
payloads = st.none() | st.binary(max_size=20) | st.binary(min_size=100, max_size=250)
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=9)), max_size=3)
rows = st.builds(batches.Row, value=payloads, key=payloads, timestamp_ms=times, headers=headers)
codecs = st.sampled_from([None, *(codec for codec in batches.CODECS if codec != "none")])
idempotent = st.integers(1, 3)
transactional = st.integers(11, 13)
shares = st.floats(0, 1)


class LogMachine(RuleBasedStateMachine):
    """Rules call the log and the model alike; `agrees` compares all that can be seen."""

    @initialize(
        segment_bytes=st.sampled_from([2500, 6000, 20_000]),
        interval=st.sampled_from([0, 200, 4096]),
    )
    def begin(self, segment_bytes, interval):
        self.root = Path(tempfile.mkdtemp(prefix="kafkalog-model-"))
        self.copies = 0
        self.path = self.root / "log-0"
        self.config = {
            "segment.bytes": segment_bytes,
            "index.interval.bytes": interval,
            "file.delete.delay.ms": 0,
            "retention.ms": RETENTION_MS,
        }
        self.log = kafkalog.Log(self.path, config=self.config)
        self.reader = kafkalog.Log(self.path, mode="r")
        self.model = Model()

    def teardown(self):
        self.log.close()
        self.reader.close()
        shutil.rmtree(self.root)

    # ---- appending -----------------------------------------------------------------------

    def _added(self, given, span, **more):
        assert span == (self.model.end, self.model.end + len(given) - 1, len(given))
        for i, row in enumerate(given):
            sequence = more["sequence"] + i if "sequence" in more else -1
            self.model.add(
                timestamp_ms=row.timestamp_ms, key=row.key, value=row.value,
                headers=tuple(row.headers), call=span.base_offset, **{**more, "sequence": sequence},
            )  # fmt: skip

    @rule(row=rows)
    def append(self, row):
        offset = self.log.append(
            row.value, key=row.key, headers=row.headers, timestamp_ms=row.timestamp_ms
        )
        self._added([row], kafkalog.Span(offset, offset, 1))

    @rule(given=st.lists(rows, min_size=1, max_size=12), codec=codecs, size=st.integers(800, 5000))
    def append_many(self, given, codec, size):
        span = self.log.append_many(
            [row.value for row in given],
            keys=[row.key for row in given],
            timestamps_ms=[row.timestamp_ms for row in given],
            headers=[row.headers for row in given],
            compression=codec,
            batch_bytes=size,
        )
        self._added(given, span)

    def _send(self, given, producer, sequence, codec="none", in_transaction=False):
        return self.log.append_batches(
            batches.batch(
                given, codec=codec, producer_id=producer, producer_epoch=0,
                base_sequence=sequence, transactional=in_transaction,
            )
        )  # fmt: skip

    @rule(given=st.lists(rows, min_size=1, max_size=4), producer=idempotent, codec=codecs)
    def append_idempotent(self, given, producer, codec):
        """Next in sequence: appended.  The same again: the same offsets.  A gap: refused."""
        sequence = self.model.last_sequence(producer) + 1
        span = self._send(given, producer, sequence, codec or "none")
        self._added(given, span, producer=producer, sequence=sequence)
        assert self._send(given, producer, sequence, codec or "none") == span
        with pytest.raises(kafkalog.OutOfOrderSequenceNumber):
            self._send(given, producer, sequence + len(given) + 1)

    @rule(given=st.lists(rows, min_size=1, max_size=4), producer=transactional, codec=codecs)
    def append_in_transaction(self, given, producer, codec):
        sequence = self.model.last_sequence(producer) + 1
        span = self._send(given, producer, sequence, codec or "none", in_transaction=True)
        self._added(given, span, producer=producer, sequence=sequence, transactional=True)

    @rule(producer=transactional, commit=st.booleans(), time=times)
    def end_transaction(self, producer, commit, time):
        if producer in self.model.outcomes()[0]:
            offset = self.log.append_marker(producer, 0, commit, timestamp_ms=time)
            assert offset == self.model.end
            self.model.add(
                timestamp_ms=time, key=None, value=None, headers=(), call=offset,
                producer=producer, commit=commit,
            )  # fmt: skip

    # ---- the rest that changes something ---------------------------------------------------

    @rule()
    def flush(self):
        self.log.flush()
        assert self.log.flushed_offset == self.log.end_offset

    @rule()
    def roll(self):
        count = len(self.log.segments)
        empty = self.log.segments[-1].size_bytes == 0
        self.log.roll()
        assert len(self.log.segments) == count + (not empty)

    def _offset(self, share, end):
        return self.model.start + round(share * (end - self.model.start))

    @rule(share=shares)
    def truncate(self, share):
        """Whole batches: the end is at most `offset`, and not below its call's first one."""
        offset = self._offset(share, self.model.end)
        calls = [entry.call for entry in self.model.entries if entry.offset == offset]
        self.log.truncate(offset)
        end = self.log.end_offset
        assert (calls or [offset])[0] <= end <= offset
        self.model.truncate(end)

    @rule(ahead=st.integers(0, 5))
    def truncate_fully(self, ahead):
        self.log.truncate_fully(self.model.end + ahead)
        self.model.restart(self.model.end + ahead)

    @rule(share=shares)
    def delete_before(self, share):
        offset = self._offset(share, self.model.last_stable)
        self.log.delete_before(offset)
        self.model.start = offset

    @precondition(lambda self: not self.model.outcomes()[0])
    @rule(now=st.integers(T0, T0 + 200))
    def apply_retention(self, now):
        """The oldest segments go while their newest record is older than the setting."""
        segments = self.log.segments
        self.log.apply_retention(now_ms=now)
        expected = self.model.start
        for segment in segments:
            newest = max(
                (
                    entry.timestamp_ms
                    for entry in self.model.entries
                    if segment.base_offset <= entry.offset < segment.next_offset
                ),
                default=now,
            )
            if now - newest <= RETENTION_MS:
                break
            expected = max(expected, segment.next_offset)
        assert self.log.start_offset == expected
        self.model.start = expected

    @rule()
    def reopen(self):
        """After a clean close nothing is read, cut or rebuilt."""
        self.log.close()
        self.log = kafkalog.Log(self.path, config=self.config)
        recovery = self.log.recovery
        assert (recovery.truncated_bytes, recovery.segments_recovered) == (0, 0)
        self.agrees()

    @rule()
    def reopen_killed(self):
        """A copy of the folder as it is now is what kill -9 leaves."""
        self.copies += 1
        path = trees.copy_tree(self.path, self.root / f"copy{self.copies}-0")
        self.log.close()
        self.reader.close()
        self.path = path
        self.log = kafkalog.Log(path, config=self.config)
        self.reader = kafkalog.Log(path, mode="r")
        assert self.log.recovery.truncated_bytes == 0
        self.agrees()

    # ---- looking ---------------------------------------------------------------------------

    @rule(time=st.integers(T0 - 1, T0 + 101))
    def find_time(self, time):
        assert self.log.offset_at(time) == self.model.first_at(time)
        self.reader.refresh()
        assert self.reader.offset_at(time) == self.model.first_at(time)

    @rule(first=shares, last=shares)
    def read_a_range(self, first, last):
        start, stop = sorted(self._offset(share, self.model.end) for share in (first, last))
        found = [record[:5] for record in self.log.read(start, stop)]
        assert found == [r for r in self.model.records() if start <= r[0] < stop]

    @rule()
    def agrees(self):
        """Records, committed records, columns and producers, of the writer and a reader."""
        model = self.model
        open_transactions, _ = model.outcomes()
        self.reader.refresh()
        for log in (self.log, self.reader):
            for committed, isolation in ((False, "read_uncommitted"), (True, "read_committed")):
                expected = model.records(committed)
                assert [tuple(r[:5]) for r in log.read(isolation=isolation)] == expected
                scan = log.scan(isolation=isolation)
                assert scan.count() == len(expected)
                columns = log.scan(columns=["offset", "value"], isolation=isolation).to_numpy()
                assert columns["offset"].tolist() == [record[0] for record in expected]
            known = {p.producer_id: p for p in log.producers}
            for entry in model.visible():
                if entry.producer >= 0:
                    state = known[entry.producer]
                    assert state.last_sequence == model.last_sequence(entry.producer)
                    open_at = open_transactions.get(entry.producer, -1)
                    assert state.txn_start_offset == open_at
        verified = self.log.verify()
        assert verified.clean, verified

    @invariant()
    def ends_agree(self):
        """I1, and the same ends as the model, after every call."""
        log, model = self.log, self.model
        ends = (log.start_offset, log.last_stable_offset, log.high_watermark, log.end_offset)
        assert ends == (model.start, model.last_stable, model.end, model.end)
        assert log.flushed_offset <= log.end_offset
        assert sorted(ends) == list(ends)

    @invariant()
    def segments_cover_the_log(self):
        segments = self.log.segments
        bases = [segment.base_offset for segment in segments]
        assert bases == sorted(set(bases))
        assert [s.next_offset for s in segments] == [*bases[1:], self.model.end]
        assert bases[0] <= self.model.start
        assert sum(segment.size_bytes for segment in segments) == self.log.size_bytes


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=int(os.environ.get("KAFKALOG_MODEL_EXAMPLES", "40")), stateful_step_count=35
)
TestLog.pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
