"""Compaction during appends, reads in other processes, truncations and a close."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.clock import ManualClock
from kafkalog.log import compaction
from kafkalog.log.compaction import Limits, Throttle
from kafkalog.log.log import handle_of
from kafkalog.log.removal import truncate_fully
from tests.support import batches
from tests.support.effort import EXPLORING, LONG
from tests.support.waiting import LIMIT_S
from tests.unit.clean.history import CONFIG, read

ROOT = Path(__file__).resolve().parents[3]
KEYS = 500
WIDE = {**CONFIG, "segment.bytes": 30_000}


def numbered(log, rng, count):
    """Records whose value is their offset, in small batches of several codecs."""
    for codec in ("none", "lz4", "zstd", "none"):
        first = log.end_offset
        numbers = range(first, first + count)
        keys = [b"%d" % rng.randrange(KEYS) for _ in numbers]
        log.append_many([b"%d" % n for n in numbers], keys=keys, compression=codec, batch_bytes=500)


@pytest.mark.slow
def test_a_reader_sees_the_old_or_the_new(rng, tmp_path):
    """Every key is there in each pass of two other processes, whichever segments are replaced."""
    path = tmp_path / "topic-0"
    config = {**CONFIG, "segment.bytes": 8_000}
    with kafkalog.Log(path, config=config) as log:
        log.append_many([b"%d" % i for i in range(KEYS)], keys=[b"%d" % i for i in range(KEYS)])
        readers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.unit.clean.reader", str(path), str(KEYS)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, cwd=ROOT,
            )
            for _ in range(2)
        ]  # fmt: skip
        for process in readers:
            assert process.stdout.readline() == "reading\n"
        exchanged = 0
        for _ in range(25 if EXPLORING or LONG else 10):
            numbered(log, rng, 400)
            log.roll()
            done = log.compact()
            exchanged += done.segments_before
        for process in readers:
            out, err = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, err[-2000:]
            passes, _ = map(int, out.split())
            assert passes > 10
    assert exchanged > 50


def test_appends_and_reads_go_on_in_this_process(rng, tmp_path):
    """A thread appends and another reads while this one compacts."""
    stop = threading.Event()
    failures = []
    with kafkalog.Log(tmp_path / "topic-0", config=WIDE) as log:
        log.append_many([b"%d" % i for i in range(KEYS)], keys=[b"%d" % i for i in range(KEYS)])

        def run(work):
            try:
                while not stop.wait(0.001):  # a log that grows faster is compacted for ever
                    work()
            except BaseException as failure:
                failures.append(failure)

        def look():
            found = {r.key: int(r.value) for r in log.read()}
            assert len(found) == KEYS

        threads = [
            threading.Thread(target=run, args=(work,))
            for work in (lambda: numbered(log, rng, 20), look)
        ]
        for thread in threads:
            thread.start()
        for _ in range(4):
            log.roll()
            log.compact()
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [r.offset for r in log.read()] == [int(r.value) for r in log.read()]
        assert log.verify(deep=True).clean


class Interrupted:
    """A throttle that calls a function between two steps of a round."""

    def __init__(self, act, after=2):
        self._act = act
        self._left = after

    step_bytes = 1 << 16

    def done(self, _):
        self._left -= 1
        if self._left == 0:
            self._act()


@pytest.fixture
def log(rng, tmp_path):
    """A log with segments to compact that need more than one step."""
    with kafkalog.Log(tmp_path / "topic-0", config=WIDE) as log:
        for _ in range(6):
            numbered(log, rng, 2_000)
        log.roll()
        yield log


def interrupted(log, act, after=2):
    return log.compact(Limits(throttle=Interrupted(act, after)))


def test_only_one_at_a_time(log):
    def again():
        with pytest.raises(kafkalog.Locked, match="compacted already"):
            log.compact()

    interrupted(log, again)
    log.compact()


@pytest.mark.parametrize("after", [1, 4])
def test_a_truncation_during_a_round(log, after):
    """The round stops; what it finished stays, and the next round starts with the rest."""
    before = {r.key: r.offset for r in log.read() if r.offset < 5_000}
    done = interrupted(log, lambda: log.truncate(5_000), after)
    assert done.end_offset <= log.segments[-1].base_offset <= 5_000
    left = {}
    for record in log.read():
        assert record.offset == int(record.value)
        left[record.key] = record.offset
    assert set(left) == set(before)
    assert log.verify(deep=True).clean


def test_a_deletion_during_a_round(log):
    base = log.segments[3].base_offset
    interrupted(log, lambda: log.delete_before(base))
    assert log.start_offset == base
    offsets = [r.offset for r in log.read()]
    assert min(offsets) >= base
    assert log.verify(deep=True).clean


def test_a_close_during_a_round(log):
    """Close waits for the current step, not for the whole round; no unfinished file remains."""
    before = read(log)
    with pytest.raises(kafkalog.Closed):
        interrupted(log, log.close, 1)
    path = Path(log.path)
    with kafkalog.Log(path, config=CONFIG) as again:
        assert read(again) == before
        assert not list(path.glob("*.cleaned"))


def test_a_failure_leaves_no_files(log):
    def fail():
        raise RuntimeError("the caller's own")

    before = read(log)
    for after in (1, 2, 3, 4, 5):
        with pytest.raises(RuntimeError):
            interrupted(log, fail, after)
        names = [p.name for p in Path(log.path).iterdir()]
        assert not [n for n in names if n.endswith((".cleaned", ".swap"))]
    assert {r[2]: r for r in read(log)} == {r[2]: r for r in before}
    log.compact()


def test_truncation_lowers_the_checkpoint(log):
    """Otherwise records appended after the truncation would count as compacted."""
    end = log.compact().end_offset
    state = handle_of(log).owner.state
    assert state.cleaner(handle_of(log).tp) == end
    log.truncate(end - 700)
    assert state.cleaner(handle_of(log).tp) == log.end_offset <= end - 700
    truncate_fully(handle_of(log), 3)
    assert state.cleaner(handle_of(log).tp) <= 3
    path = Path(log.path) / "cleaner-offset-checkpoint"
    assert path.read_text().startswith("0\n1\ntopic 0 ")


@pytest.mark.parametrize("place", [6, 30, 70])
def test_damage_stays_and_is_named(log, place):
    """A batch with a wrong checksum or with another place's offset is neither dropped nor given
    a new checksum."""
    segment = sorted(Path(log.path).glob("*.log"))[2]
    data = bytearray(segment.read_bytes())
    data[list(batches.headers(data))[5].pos + place] ^= 1
    segment.write_bytes(data)
    with pytest.raises(kafkalog.errors.CorruptMessage, match=segment.name):
        log.compact()
    assert segment.read_bytes() == data


def test_the_policy_must_say_so(tmp_path):
    refused = pytest.raises(kafkalog.errors.ArgumentError, match=r"cleanup\.policy: found 'delete'")
    with kafkalog.Log(tmp_path / "topic-0") as log, refused:
        log.compact()


def test_compact_and_delete_together(tmp_path):
    """Retention deletes old segments; compaction handles the rest."""
    clock = ManualClock()
    config = {
        **CONFIG, "cleanup.policy": "compact,delete", "retention.ms": 10_000,
        "segment.bytes": 100,  # no two fit into one
    }  # fmt: skip
    with kafkalog.Log(tmp_path / "topic-0", config=config, clock=clock) as log:
        for key in (b"a", b"b", b"a", b"b", b"c"):
            log.append(b"v", key=key, timestamp_ms=clock.now_ms())
            log.roll()
            clock.advance(3_000)
        log.compact()
        assert [r.offset for r in log.read()] == [2, 3, 4]
        clock.advance(2_000)
        log.apply_retention()
        assert [r.offset for r in log.read()] == [3, 4]
        assert log.compact().records_after == 2


def test_replacing_records_are_on_disk_first(log, monkeypatch):
    """A record is removed only once the later one of its key would survive a power failure."""
    flushed = []
    real = compaction._run

    def look(*args):
        flushed.append(log.flushed_offset)
        return real(*args)

    monkeypatch.setattr(compaction, "_run", look)
    done = log.compact()
    assert flushed and flushed[0] >= done.end_offset


def test_a_stopped_throttle_gives_up():
    throttle = Throttle(1.0, ManualClock())
    thread = threading.Timer(0.05, throttle.stop)
    thread.start()
    with pytest.raises(kafkalog.Closed):
        throttle.done(1_000)
    thread.join()
