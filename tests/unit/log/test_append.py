"""The guarantees of an append: all of a call's batches or none, and no crash."""

import errno
import random
import time
import tracemalloc

import pytest

import kafkalog
from kafkalog._native import ffi, lib
from kafkalog.clock import ManualClock
from tests.support import batches
from tests.support.batches import Row
from tests.support.effort import SEED

T = 1_700_000_000_000


def sent(value: bytes, producer_id: int, sequence: int, epoch: int = 0, **more) -> bytes:
    return batches.batch(
        [Row(value, timestamp_ms=T)], producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence, **more,
    )  # fmt: skip


def values(log: kafkalog.Log) -> list[bytes]:
    return [record.value for record in log.read()]


def test_a_refused_sequence_leaves_nothing_of_the_call(log_dir):
    """All sequences are checked before the first write; otherwise earlier batches would stay."""
    with kafkalog.Log(log_dir) as log:
        log.append_batches(sent(b"a", 7, 0))
        for wrong in (
            sent(b"b", 7, 1) + sent(b"c", 7, 3),
            sent(b"b", 7, 1) + sent(b"x", 8, 5) + sent(b"y", 8, 5, epoch=1),
            sent(b"b", 8, 0, epoch=1) + sent(b"c", 8, 0, epoch=0),
        ):
            with pytest.raises(
                (kafkalog.errors.OutOfOrderSequenceNumber, kafkalog.errors.InvalidProducerEpoch)
            ):
                log.append_batches(wrong)
            assert log.end_offset == 1
        assert {p.producer_id: p.last_sequence for p in log.producers} == {7: 0}
        span = log.append_batches(sent(b"b", 7, 1) + sent(b"c", 7, 2) + sent(b"d", 8, 9))
        assert (span.base_offset, span.last_offset) == (1, 3)
        assert values(log) == [b"a", b"b", b"c", b"d"]
        assert log.verify().clean


def test_batches_that_are_repeated_among_new_ones(log_dir):
    with kafkalog.Log(log_dir) as log:
        log.append_batches(sent(b"a", 7, 0) + sent(b"b", 7, 1))
        span = log.append_batches(sent(b"b", 7, 1) + sent(b"c", 7, 2) + sent(b"c", 7, 2))
        assert (span.base_offset, span.last_offset) == (1, 2)
        assert values(log) == [b"a", b"b", b"c"]
        span = log.append_batches(sent(b"a", 7, 0) + sent(b"b", 7, 1))
        assert (span.base_offset, span.last_offset) == (0, 1)
        assert log.end_offset == 3
        assert log.verify().clean


@pytest.mark.parametrize("call", [b"pwrite", b"fallocate"])
def test_a_failed_write_leaves_nothing_of_the_call(log_dir, native_test, call):
    """All batches are one write; otherwise the disk could fill up between them."""
    _, lib = native_test
    several = b"".join(batches.batch([Row(bytes(9000), timestamp_ms=T)]) for _ in range(20))
    with kafkalog.Log(log_dir) as log:
        log.append(b"first")
        failed = 0
        for nth in range(1, 6):
            end = log.end_offset
            try:
                assert lib.kl_io_fail(call, nth, errno.ENOSPC, 100, 0) == 0
                log.append_batches(several)
            except kafkalog.NoSpace:
                failed += 1
                assert log.end_offset == end
            finally:
                lib.kl_io_reset()
        assert failed
        assert log.verify().clean
        assert values(log)[0] == b"first"


def test_a_call_goes_into_one_segment(log_dir):
    """The log rolls before it, or refuses it if it is larger than a segment."""
    ten = b"".join(batches.batch([Row(bytes(500), timestamp_ms=T)]) for _ in range(10))
    with kafkalog.Log(log_dir, config={"segment.bytes": 10_000}) as log:
        for _ in range(3):
            log.append_batches(ten)
        assert [s.base_offset for s in log.segments] == [0, 10, 20]
        with pytest.raises(kafkalog.errors.RecordListTooLarge, match=r"segment\.bytes 10000"):
            log.append_batches(ten * 2)
        assert log.end_offset == 30
        assert log.verify().clean


def test_offsets_and_sequences_as_one_by_one(tmp_path):
    """Any mixture of batches gives the same log, appended together or one by one."""
    draw = random.Random(SEED)
    sequences = dict.fromkeys(range(4), 0)
    with kafkalog.Log(tmp_path / "a-0") as one, kafkalog.Log(tmp_path / "b-0") as many:
        for _ in range(30):
            call = []
            for _ in range(draw.randrange(1, 6)):
                rows = [Row(draw.randbytes(5), timestamp_ms=T)] * draw.randrange(1, 4)
                producer = draw.randrange(-1, 4)
                if producer < 0:
                    call.append(batches.batch(rows))
                    continue
                call.append(batches.batch(rows, producer_id=producer, producer_epoch=0,
                                          base_sequence=sequences[producer]))  # fmt: skip
                sequences[producer] += len(rows)
            for data in call:
                one.append_batches(data)
            many.append_batches(b"".join(call))
        one.flush()
        many.flush()
        assert one.producers == many.producers
    names = ["00000000000000000000.log", "00000000000000000000.timeindex"]
    for name in names:
        assert (tmp_path / "a-0" / name).read_bytes() == (tmp_path / "b-0" / name).read_bytes()


@pytest.mark.long
@pytest.mark.slow
def test_a_value_of_a_gigabyte(log_dir, native_test):
    """With max.message.bytes 2^31 - 1 it must not end the process by an assertion."""
    _, lib = native_test
    most = {"max.message.bytes": 2**31 - 1, "segment.bytes": 2**31 - 1}
    with kafkalog.Log(log_dir, config=most) as log:
        try:  # it gets as far as the disk, which need not store it
            assert lib.kl_io_fail(b"fallocate", 1, errno.ENOSPC, 100, 0) == 0
            with pytest.raises(kafkalog.NoSpace):
                log.append(bytes(1_080_000_000))
        finally:
            lib.kl_io_reset()
        assert log.append(b"small") == 0


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes"),
    [(-1, 2**31), (-1, 2**31 - 1), (2**30, 2**30), (-1, 2**62), (2**63 - 1, 5), (-2, 5), (5, -2)],
)
def test_sizes_that_no_record_has(log_dir, key_bytes, value_bytes):
    """They are refused before a byte of them is read."""
    most = {"max.message.bytes": 2**31 - 1, "segment.bytes": 2**31 - 1}
    with kafkalog.Log(log_dir, config=most) as log:
        offset = lib.kl_log_append(
            log._c, b"", key_bytes, b"", value_bytes, 5, ffi.new("int32_t *")
        )
        assert offset == -lib.KL_E_MESSAGE_TOO_LARGE
        assert log.append(b"small") == 0


@pytest.mark.parametrize("timestamp_ms", [-2, -5, -(2**62), 1 - 2**63])
def test_a_timestamp_before_1970(log_dir, timestamp_ms):
    """Every kind of append refuses it, so that verify finds none stored."""
    with kafkalog.Log(log_dir) as log:
        for append in (
            lambda: log.append(b"x", timestamp_ms=timestamp_ms),
            lambda: log.append(b"x", timestamp_ms=timestamp_ms, headers=[("a", b"b")]),
            lambda: log.append_many([b"x"], timestamps_ms=[timestamp_ms]),
            lambda: log.append_many([b"x"], timestamps_ms=[timestamp_ms], compression="lz4"),
        ):
            with pytest.raises(kafkalog.errors.ArgumentError, match=str(timestamp_ms)):
                append()
        assert log.end_offset == 0


@pytest.mark.parametrize(
    ("config", "ahead_ms"),
    [
        ({"message.timestamp.after.max.ms": 1000}, 60_000),
        ({"message.timestamp.before.max.ms": 1000}, -60_000),
    ],
)
def test_a_timestamp_of_the_caller_is_held_to_the_limits(log_dir, config, ahead_ms):
    """A single record's timestamp is compared with the clock, not with itself."""
    timestamp_ms = time.time_ns() // 1_000_000 + ahead_ms
    with kafkalog.Log(log_dir, config=config) as log:
        for append in (
            lambda: log.append(b"a", timestamp_ms=timestamp_ms),
            lambda: log.append(b"a", timestamp_ms=timestamp_ms, headers=[("k", b"v")]),
            lambda: log.append_many([b"a"], timestamps_ms=[timestamp_ms]),
        ):
            with pytest.raises(kafkalog.errors.InvalidTimestamp, match=r"message\.timestamp\."):
                append()
        assert log.append(b"a", timestamp_ms=timestamp_ms - ahead_ms) == 0


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_times_are_those_of_the_log_s_clock(log_dir, kind):
    clock = ManualClock(T)
    config = {"message.timestamp.type": kind, "message.timestamp.after.max.ms": 1000}
    with kafkalog.Log(log_dir, config=config, clock=clock) as log:
        log.append(b"a")
        log.append(b"b", key=b"k")
        log.append_many([b"c"])
        log.append_many([b"d"], compression="zstd")
        log.append_batches(sent(b"e", 7, 0))
        assert [record.timestamp_ms for record in log.read()] == [T] * 5
        if kind == "CreateTime":
            with pytest.raises(kafkalog.errors.InvalidTimestamp):
                log.append(b"f", timestamp_ms=T + 1001)


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_no_timestamp(log_dir, compression):
    """-1 is Kafka's value for none: every kind of append stores it unchanged."""
    with kafkalog.Log(log_dir) as log:
        log.append(b"a", timestamp_ms=-1)
        log.append_many([b"b", b"c"], timestamps_ms=[-1, 5], compression=compression)
        assert [record.timestamp_ms for record in log.read()] == [-1, -1, 5]
        assert log.verify().clean


def test_a_producer_s_timestamp_before_1970(log_dir):
    """Kafka's broker stores it, and so do we; verify accepts it."""
    with kafkalog.Log(log_dir) as log:
        log.append_batches(batches.batch([Row(b"a", timestamp_ms=-5), Row(b"b", timestamp_ms=-9)]))
        log.append_batches(batches.batch([Row(b"a", timestamp_ms=-5)], codec="lz4"))
        assert [record.timestamp_ms for record in log.read()] == [-5, -9, -5]
        assert log.verify(deep=True).clean


def test_a_last_offset_delta_at_the_end_of_its_numbers(log_dir):
    """One more than it must not overflow 32 bits."""
    whole = bytearray(batches.batch([Row(b"a", timestamp_ms=T)]))
    whole[23:27] = (2**31 - 1).to_bytes(4, "big")
    data = batches.seal(bytes(whole[21:]))
    with kafkalog.Log(log_dir) as log:
        with pytest.raises(kafkalog.errors.InvalidRecord, match="do not agree"):
            log.append_batches(data)
        assert log.end_offset == 0


def test_more_offsets_than_a_segment_has(log_dir):
    """Batches that were not decoded may claim any number of records."""
    whole = bytearray(batches.batch([Row(b"a", timestamp_ms=T)], codec="lz4"))
    whole[23:27] = (2**31 - 2).to_bytes(4, "big")
    whole[57:61] = (2**31 - 1).to_bytes(4, "big")
    data = batches.seal(bytes(whole[21:]))
    done = ffi.new("kl_appended *")
    how = ffi.new("kl_append_options *", {"leader_epoch": -1, "now_ms": T})
    with kafkalog.Log(log_dir) as log:
        log.append(b"first", timestamp_ms=T)
        status = lib.kl_log_append_batches(log._c, data * 2, 2 * len(data), how, done)
        assert status == lib.KL_E_RECORD_LIST_TOO_LARGE
        assert (log.end_offset, done.base_offset) == (1, -1)
        for end in (2**31, 2**32 - 1):
            assert lib.kl_log_append_batches(log._c, data, len(data), how, done) == lib.KL_OK
            assert log.end_offset == end
        assert [one.base_offset for one in log.segments] == [0, 2**31]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_control_batch_comes_alone(log_dir, place):
    """The end of its transaction is noted with it; a coordinator never mixes it with others."""
    key, value = b"\0\0\0\1", b"\0\0\0\0\0\0"
    marker = bytearray(batches.batch([Row(value, key, T)], producer_id=7, producer_epoch=0)[21:])
    marker[0:2] = b"\0\x30"  # transactional, control
    call = [sent(b"a", 8, 0), sent(b"b", 8, 1)]
    call.insert(place, batches.seal(bytes(marker)))
    data = b"".join(call)
    options = {"origin": lib.KL_ORIGIN_COORDINATOR, "leader_epoch": -1, "now_ms": T}
    with kafkalog.Log(log_dir) as log:
        done, how = ffi.new("kl_appended *"), ffi.new("kl_append_options *", options)
        status = lib.kl_log_append_batches(log._c, data, len(data), how, done)
        assert status == lib.KL_E_INVALID_RECORD
        assert log.end_offset == 0


def test_a_batch_takes_the_room_of_its_rows(log_dir):
    """`batch_bytes` is a limit: that much must not be allocated and cleared for each batch."""
    with kafkalog.Log(log_dir, config={"max.message.bytes": 1 << 30}) as log:
        tracemalloc.start()
        try:
            log.append_many([b"x"] * 10, compression="lz4", batch_bytes=1 << 29)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 1 << 20
