"""Batches as they are on disk, read with any limit."""

import tracemalloc

import pytest

import kafkalog


def test_a_read_allocates_only_existing_bytes(log_dir):
    """A limit of 3 GiB must not allocate that to read 69 bytes."""
    with kafkalog.Log(log_dir) as log:
        log.append(b"x")
        whole = log.read_batches(0)
        tracemalloc.start()
        try:
            assert log.read_batches(0, 3 << 30) == whole
            assert log.read_batches(1, 3 << 30) == b""
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1 << 20
        with pytest.raises(kafkalog.OffsetOutOfRange):
            log.read_batches(5, 3 << 30)


def test_more_than_the_room_that_is_taken_at_once(log_dir):
    """A whole segment is returned on request, and no more than that."""
    with kafkalog.Log(log_dir) as log:
        offset = log.append_many([bytes(1000)] * 6000, batch_bytes=100_000).base_offset
        data = (log_dir / f"{offset:020}.log").read_bytes()
        assert log.read_batches(0, 3 << 30) == data
        part = log.read_batches(0, 5 << 20)
        assert data.startswith(part)
        assert (5 << 20) - 200_000 < len(part) <= 5 << 20
        log.append(bytes(900_000))
        assert len(log.read_batches(6000, 4 << 30)) > 900_000
