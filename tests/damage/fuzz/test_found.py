"""Bugs that fuzzing and its harnesses found, each with a test that needs no fuzzer."""

import errno
import gzip
import struct
import zlib

import pytest

import kafkalog
from tests.support import batches
from tests.support.batches import Row

CONTROL_TRANSACTIONAL = 0x30


def sealed(records: bytes, attributes: int, count: int, producer_id: int = -1, **more) -> bytes:
    """A batch with any body; its checksum is right."""
    epoch = 0 if producer_id >= 0 else -1
    fields = struct.pack(">hiqqqhii", attributes, count - 1, 5, 5, producer_id, epoch, -1, count)
    return batches.seal(fields + records, **more)


@pytest.mark.parametrize("body", [b"", b"\0" * 3, b"\0" * 6])
def test_a_compressed_batch_with_less_than_one_record(log_dir, body):
    """The block had no space for a row, and the first bit of no row was set."""
    with kafkalog.Log(log_dir) as log:
        log.append_as_follower(sealed(gzip.compress(body), 1, 3))
        for columns in (["key"], ["value", "headers"]):
            with pytest.raises(kafkalog.errors.CorruptMessage):
                log.scan(columns=columns).to_numpy()
        log.append(b"more")
        assert [r.value for r in log.read(start=3)] == [b"more"]


@pytest.mark.parametrize("torn_at", range(12, 17))
def test_a_header_torn_before_its_magic(log_dir, torn_at):
    """Zeros where the magic was look like the oldest format; the log must open anyway."""
    with kafkalog.Log(log_dir) as log:
        log.append_many([b"a", b"b"], timestamps_ms=[1, 2])
    path = log_dir / "00000000000000000000.log"
    whole = path.read_bytes()
    later = batches.batch([Row(bytes(300))], base_offset=2, leader_epoch=0)
    path.write_bytes(whole + later[:torn_at] + bytes(len(later) - torn_at))
    with kafkalog.Log(log_dir, mode="r") as log:
        assert log.end_offset == 2
    with kafkalog.Log(log_dir) as log:
        assert log.end_offset == 2
        assert log.recovery.truncated_bytes == len(later)
        assert path.read_bytes() == whole


def old_message(offset: int, value: bytes) -> bytes:
    """A message of magic 0, as Kafka 0.9 wrote it."""
    body = struct.pack(">bbi", 0, 0, -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_a_message_of_an_old_format_is_not_cut_off(log_dir):
    """One with a valid checksum is not damage: the log reports its format."""
    with kafkalog.Log(log_dir) as log:
        log.append(b"new")
    path = log_dir / "00000000000000000000.log"
    (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    whole = path.read_bytes() + old_message(1, b"old")
    path.write_bytes(whole)
    with pytest.raises(kafkalog.errors.UnsupportedForMessageFormat, match="magic 0"):
        kafkalog.Log(log_dir)
    assert path.read_bytes() == whole


def test_a_marker_that_says_nothing_is_refused(log_dir):
    """It was refused only after it had been written, and the log went offline."""
    with kafkalog.Log(log_dir) as log:
        log.append(b"first")
        bad = sealed(b"\x0c" + bytes(6), CONTROL_TRANSACTIONAL, 1, producer_id=3, base_offset=1)
        with pytest.raises(kafkalog.errors.CorruptMessage):
            log.append_as_follower(bad)
        assert log.append(b"second") == 1
        assert log.verify().clean


def test_a_failed_append_behind_a_roll(log_dir, native_test):
    """A follower's gap rolls first; later records were put below the new segment's base."""
    _, lib = native_test
    far = batches.batch([Row(b"far", timestamp_ms=5)], base_offset=1 << 40, leader_epoch=0)
    with kafkalog.Log(log_dir) as log:
        log.append(b"first")
        try:
            assert lib.kl_io_fail(b"fallocate", 1, errno.ENOSPC, 1, 0) == 0
            with pytest.raises(kafkalog.NoSpace):
                log.append_as_follower(far)
        finally:
            lib.kl_io_reset()
        offset = log.append(b"next")
        assert offset == log.end_offset - 1
        assert [r.value for r in log.read()] == [b"first", b"next"]
        assert log.verify().clean
    with kafkalog.Log(log_dir) as log:
        assert [r.offset for r in log.read()] == [0, offset]


def test_a_snapshot_without_sequence_but_with_a_batch():
    """The computation of its first sequence overflowed 32 bits."""
    from kafkalog._native import ffi, lib

    entry = struct.pack(">qhiqiqiq", 7, 0, -1, 50, 2**31 - 1, 5, -1, -1)
    body = struct.pack(">i", 1) + entry
    data = struct.pack(">hI", 1, lib.kl_crc32c(body, len(body))) + body
    out, count = ffi.new("kl_producer[1]"), ffi.new("size_t *")
    assert lib.kl_snapshot_decode(data, len(data), out, 1, count) == lib.KL_OK
    assert (out[0].last_sequence, out[0].offset_delta) == (-1, 2**31 - 1)


def test_a_refused_roll_says_why(log_dir, native_test):
    """The clean-up after the failure replaced the reason with its own error."""
    _, lib = native_test
    with kafkalog.Log(log_dir) as log:
        log.append(b"first")
        for nth in range(1, 20):
            try:
                assert lib.kl_io_fail(b"openat", nth, errno.ENOSPC, 1, 0) == 0
                with pytest.raises((kafkalog.NoSpace, kafkalog.errors.IoFailed)) as refused:
                    log.roll()
            finally:
                lib.kl_io_reset()
            assert "No space left" in str(refused.value)
            if "00000000000000000001.log" in str(refused.value):
                break
        else:
            pytest.fail("no failure came from the new segment's file")
        assert log.append(b"second") == 1


def test_a_number_behind_an_odd_space():
    """Text has more white space than numbers have: 0x1c raised an unexpected ValueError."""
    from kafkalog.disk import layout

    data = layout.render_meta_properties(layout.new_meta_properties(3))
    odd = data.replace(b"node.id=3", b"node.id=\x1c3")
    assert odd != data
    assert layout.parse_meta_properties(odd) == layout.parse_meta_properties(data)


def test_a_view_of_a_file_that_was_cut_short(log_dir):
    """The map was longer than the file: the first access to its end was SIGBUS."""
    from kafkalog._native import check, ffi, lib

    with kafkalog.Log(log_dir, config={"segment.bytes": 20_000}) as log:
        for _ in range(40):
            log.append(bytes(1000))
        sealed_segment = log.segments[0]
        path = log_dir / f"{sealed_segment.base_offset:020}.log"
        data = path.read_bytes()
        path.write_bytes(data[:5000])
        out = ffi.new("kl_view **")
        with pytest.raises(kafkalog.KafkalogError, match="5000 bytes"):
            check(lib.kl_log_view(log._c, sealed_segment.base_offset, lib.KL_FILE_LOG, out))
        path.write_bytes(data)
