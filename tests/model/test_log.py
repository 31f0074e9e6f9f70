"""Any sequence of public calls leaves the log and its model in the same state."""

import shutil
import tempfile
import types
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import kafkalog
from kafkalog.clock import ManualClock
from kafkalog.log.compaction import Limits, look
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.model.model import Model
from tests.model.reader import Elsewhere, see
from tests.support import batches, trees
from tests.support.effort import examples

T0 = 1_700_000_000_000
RETENTION_MS = 40
TOMBSTONES_MS = 1000
KEYS = 7
"""In a compacted log."""

times = st.integers(T0, T0 + 100)
payloads = st.none() | st.binary(max_size=20) | st.binary(min_size=100, max_size=250)
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=9)), max_size=3)
rows = st.builds(batches.Row, value=payloads, key=payloads, timestamp_ms=times, headers=headers)
codecs = st.sampled_from([None, *(codec for codec in batches.CODECS if codec != "none")])
idempotent = st.integers(1, 3)
transactional = st.integers(11, 13)
shares = st.floats(0, 1)


@pytest.fixture(scope="module", autouse=True)
def elsewhere():
    """One process reads for all runs of this file."""
    LogMachine.elsewhere = Elsewhere()
    yield
    LogMachine.elsewhere.close()


class LogMachine(RuleBasedStateMachine):
    """Rules call the log and the model alike; `agrees` compares everything visible, also to a
    reader in this process and to one in another."""

    elsewhere: Elsewhere

    @initialize(
        segment_bytes=st.sampled_from([2500, 6000, 20_000]),
        interval=st.sampled_from([0, 200, 4096]),
        compacted=st.booleans(),
    )
    def begin(self, segment_bytes, interval, compacted):
        self.root = Path(tempfile.mkdtemp(prefix="kafkalog-model-"))
        self.copies = 0
        self.path = self.root / "log-0"
        self.config = {
            "segment.bytes": segment_bytes,
            "index.interval.bytes": interval,
            "file.delete.delay.ms": 0,
            "retention.ms": RETENTION_MS,
            "delete.retention.ms": TOMBSTONES_MS,
            "cleanup.policy": "compact" if compacted else "delete",
        }
        self.compacted = compacted
        self.clock = ManualClock(T0)
        self.model = Model()
        self._open()
        self._open_readers()

    def _open(self):
        self.log = kafkalog.Log(self.path, config=self.config, clock=self.clock)

    def _open_readers(self):
        self.reader = kafkalog.Log(self.path, mode="r")
        self.elsewhere.open(self.path)

    def teardown(self):
        self.log.close()
        self.reader.close()
        shutil.rmtree(self.root)

    # ---- appending -----------------------------------------------------------------------

    def _keyed(self, given):
        """A compacted log takes no record without a key; with few keys it has much to compact."""
        if not self.compacted:
            return given
        return [row._replace(key=b"%d" % (len(row.key or b"") % KEYS)) for row in given]

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
        (row,) = self._keyed([row])
        offset = self.log.append(
            row.value, key=row.key, headers=row.headers, timestamp_ms=row.timestamp_ms
        )
        self._added([row], kafkalog.AppendedOffsets(offset, offset, 1))

    @rule(given=st.lists(rows, min_size=1, max_size=12), codec=codecs, size=st.integers(800, 5000))
    def append_many(self, given, codec, size):
        given = self._keyed(given)
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
        """The next in sequence is appended, a repeat gets the same offsets, a gap is refused."""
        given = self._keyed(given)
        sequence = self.model.last_sequence(producer) + 1
        span = self._send(given, producer, sequence, codec or "none")
        self._added(given, span, producer=producer, sequence=sequence)
        assert self._send(given, producer, sequence, codec or "none") == span
        with pytest.raises(kafkalog.errors.OutOfOrderSequenceNumber):
            self._send(given, producer, sequence + len(given) + 1)

    @rule(given=st.lists(rows, min_size=1, max_size=4), producer=transactional, codec=codecs)
    def append_in_transaction(self, given, producer, codec):
        given = self._keyed(given)
        sequence = self.model.last_sequence(producer) + 1
        span = self._send(given, producer, sequence, codec or "none", in_transaction=True)
        self._added(given, span, producer=producer, sequence=sequence, transactional=True)

    @rule(producer=transactional, commit=st.booleans(), time=times)
    def end_transaction(self, producer, commit, time):
        if producer in self.model.outcomes()[0]:
            if self.compacted:
                time = 0  # lookups by time must not find a marker: it may be gone
            offset = self.log.append_marker(producer, 0, commit, timestamp_ms=time)
            assert offset == self.model.end
            self.model.add(
                timestamp_ms=time, key=None, value=None, headers=(), call=offset,
                producer=producer, commit=commit,
            )  # fmt: skip

    # ---- other changes ---------------------------------------------------------------------

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
        """Whole batches: the end is at most `offset`, and not below its call's first offset.

        Compacted batches stay: they are below the high watermark, where Kafka never truncates."""
        offset = max(self._offset(share, self.model.end), self.model.cleaned)
        calls = [entry.call for entry in self.model.entries if entry.offset == offset]
        self.log.truncate(offset)
        end = self.log.end_offset
        assert (calls or [offset])[0] <= end <= offset
        self.model.truncate(end)

    @rule(ahead=st.integers(0, 5))
    def truncate_fully(self, ahead):
        truncate_fully(handle_of(self.log), self.model.end + ahead)
        self.model.restart(self.model.end + ahead)

    @rule(share=shares)
    def delete_before(self, share):
        offset = self._offset(share, self.model.last_stable)
        self.log.delete_before(offset)
        self.model.start = offset

    @precondition(lambda self: not self.model.outcomes()[0])
    @rule(now=st.integers(T0, T0 + 200))
    def apply_retention(self, now):
        """The oldest segments are deleted while their newest record is older than the setting, and
        only if the log's cleanup policy says so."""
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
            if self.compacted or now - newest <= RETENTION_MS:
                break
            expected = max(expected, segment.next_offset)
        assert self.log.start_offset == expected
        self.model.start = expected

    def _compact(self, limits):
        return self.log.compact(limits).end_offset

    @precondition(lambda self: self.compacted)
    @rule(seal=st.booleans(), map_bytes=st.sampled_from([4 * 24, 1 << 20]))
    def compact(self, seal, map_bytes):
        """Every sealed segment below an open transaction; a map of few keys needs many rounds."""
        if seal:
            self.log.roll()
        stable = self.model.last_stable
        sealed = [s.next_offset for s in self.log.segments[:-1] if s.next_offset <= stable]
        end = self._compact(Limits(map_bytes=map_bytes))
        assert max(sealed, default=0) <= end <= min(stable, self.log.segments[-1].base_offset)
        self.model.compact(end, self.clock.now_ms(), TOMBSTONES_MS)
        self.agrees()

    @rule(ms=st.integers(1, 2 * TOMBSTONES_MS))
    def let_time_pass(self, ms):
        self.clock.advance(ms)

    @rule()
    def reopen(self):
        """After a clean close nothing is scanned, truncated or rebuilt."""
        self.log.close()
        self._open()
        recovery = self.log.recovery
        assert (recovery.truncated_bytes, recovery.segments_recovered) == (0, 0)
        self.agrees()

    @rule()
    def reopen_killed(self):
        """A copy of the folder in its present state is what kill -9 leaves."""
        self.copies += 1
        path = trees.copy_tree(self.path, self.root / f"copy{self.copies}-0")
        self.log.close()
        self.reader.close()
        self.path = path
        self._open()
        self._open_readers()
        assert self.log.recovery.truncated_bytes == 0
        self.agrees()

    # ---- reading ---------------------------------------------------------------------------

    @rule(time=st.integers(T0 - 1, T0 + 101))
    def find_time(self, time):
        assert self.log.offset_at(time) == self.model.first_at(time)
        self.reader.refresh()
        assert self.reader.offset_at(time) == self.model.first_at(time)
        assert self.elsewhere.offset_at(time) == self.model.first_at(time)

    @rule(first=shares, last=shares)
    def read_a_range(self, first, last):
        start, stop = sorted(self._offset(share, self.model.end) for share in (first, last))
        found = [record[:5] for record in self.log.read(start, stop)]
        assert found == [r for r in self.model.records() if start <= r[0] < stop]

    @rule()
    def agrees(self):
        """Records, committed records, columns and producers, of the writer and its readers."""
        model = self.model
        open_transactions, _ = model.outcomes()
        records = [model.records(committed) for committed in (False, True)]
        self.reader.refresh()
        for seen in (see(self.log), see(self.reader), self.elsewhere.see()):
            assert (seen.start, seen.end) == (model.start, model.end)
            assert seen.records == records
            assert seen.counts == [len(expected) for expected in records]
            assert seen.offsets == [[record[0] for record in expected] for expected in records]
            for producer in {e.producer for e in model.visible() if e.producer >= 0}:
                last, open_at = seen.producers[producer]
                assert last == model.last_sequence(producer)
                assert open_at == open_transactions.get(producer, -1)
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
TestLog.settings = settings(max_examples=examples(40), stateful_step_count=35)
TestLog.pytestmark = [pytest.mark.slow, pytest.mark.explore, pytest.mark.timeout(900)]


class CompactsNothing(LogMachine):
    """A canary: records that compaction should remove stay."""

    def _compact(self, limits):
        return look(handle_of(self.log)).end


class NeverRefreshes(LogMachine):
    """A canary: the other process forever shows the state that it saw first."""

    def _open_readers(self):
        self.elsewhere = LogMachine.elsewhere
        super()._open_readers()
        first = self.elsewhere.see()
        self.elsewhere = types.SimpleNamespace(see=lambda: first, offset_at=self.model.first_at)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("canary", [CompactsNothing, NeverRefreshes])
def test_a_planted_bug_is_found(canary):
    drawn = settings(
        max_examples=500, stateful_step_count=35, phases=[Phase.generate], database=None,
        report_multiple_bugs=False,
    )  # fmt: skip
    with pytest.raises(AssertionError):
        run_state_machine_as_test(canary, settings=drawn)
