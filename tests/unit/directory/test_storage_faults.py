"""A data directory whose disk fails: promises are kept, or the failure is reported."""

import errno
import os

import pytest

from kafkalog.directory.manager import Manager
from kafkalog.disk.checkpoint import (
    CLEAN_MARKER,
    RECOVERY_POINT,
    DirectoryState,
    parse_offsets,
)
from kafkalog.errors import IoFailed, NoSpace
from kafkalog.types import TopicPartition

A0 = TopicPartition("a", 0)


@pytest.fixture
def io(native_test):
    """`io(call, nth, error)`: that kind of call fails from the nth on; reset at the end."""
    ffi, lib = native_test
    lib.kl_io_reset()
    yield lambda call, nth, error, sticky=1: lib.kl_io_fail(call or ffi.NULL, nth, error, sticky, 0)
    lib.kl_io_reset()
    lib.kl_failpoint_reset()


@pytest.mark.parametrize("call", [b"openat", b"pwrite", b"fsync", b"renameat"])
def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path, io, native_test, call):
    """It stays in the file and in memory, and can be written once the disk works again."""
    state = DirectoryState(tmp_path)
    state.save({A0: 5})
    io(call, 1, errno.ENOSPC)
    with pytest.raises(NoSpace):
        state.save({A0: 9})
    native_test[1].kl_io_reset()
    assert state.recovery_point(A0) == 5
    assert parse_offsets((tmp_path / RECOVERY_POINT).read_bytes()) == {A0: 5}
    state.save({A0: 9})
    assert parse_offsets((tmp_path / RECOVERY_POINT).read_bytes()) == {A0: 9}
    state.close()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_every_failing_call_of_a_close_leaves_a_directory_that_opens(tmp_path, io, native_test):
    """Whichever call fails: the error is raised, the lock is free, nothing flushed is lost."""
    lib = native_test[1]
    nth = 1
    failed = True
    while failed:
        path = tmp_path / f"data-{nth}"
        manager = Manager(path)
        log = manager.create_partition("a")
        for number in range(10):
            log.append(b"%d" % number)
        log.flush()
        lib.kl_io_reset()
        io(None, nth, errno.EIO, 0)
        try:
            manager.close()
            failed = False
        except OSError:
            # Unless the very last step failed, the directory does not count as clean.
            pass
        lib.kl_io_reset()
        with Manager(path) as manager:
            assert [r.value for r in manager.get("a").read()] == [b"%d" % n for n in range(10)]
        nth += 1
    assert nth > 10  # more than ten calls could fail


def test_a_close_that_failed_vouches_for_nothing(tmp_path, io, native_test):
    """It leaves no marker, and the next open recovers the log."""
    lib = native_test[1]
    manager = Manager(tmp_path / "data")
    log = manager.create_partition("a")
    log.append(b"x")
    io(b"fdatasync", 1, errno.EIO)
    with pytest.raises(OSError, match="a-0"):
        manager.close()
    lib.kl_io_reset()
    assert not (tmp_path / "data" / CLEAN_MARKER).exists()
    with Manager(tmp_path / "data") as manager:
        assert not manager.state.clean
        assert manager.get("a").recovery.segments_recovered == 1


def test_a_truncation_does_not_begin_when_its_checkpoint_fails(tmp_path, io, native_test):
    """The log keeps its records, and can be truncated later."""
    with Manager(tmp_path / "data") as manager:
        log = manager.create_partition("a")
        for number in range(10):
            log.append(b"%d" % number)
        log.flush()
        manager.upkeep.checkpoints.recovery_points()
        io(b"renameat", 1, errno.EIO)
        with pytest.raises(IoFailed):
            log.truncate(5)
        native_test[1].kl_io_reset()
        assert log.end_offset == 10
        log.truncate(5)
        assert log.end_offset == 5


def test_a_partition_that_could_not_be_made_can_be_made_later(tmp_path, io, native_test):
    """A half-made folder does not block its name."""
    with Manager(tmp_path / "data") as manager:
        for call in (b"mkdirat", b"pwrite", b"fsync"):
            io(call, 1, errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                manager.create_topic("a")
            native_test[1].kl_io_reset()
            assert manager.topics() == ()
            assert not [name for name in os.listdir(tmp_path / "data") if name.startswith("a-")]
        manager.create_topic("a")
        assert manager.get("a").append(b"x") == 0


def test_a_topic_is_made_whole_or_not_at_all(tmp_path, io, native_test):
    """Partitions created before the failure are removed again."""
    with Manager(tmp_path / "data") as manager:
        io(b"mkdirat", 3, errno.ENOSPC)
        with pytest.raises(NoSpace):
            manager.create_topic("a", 5)
        native_test[1].kl_io_reset()
        assert manager.partitions() == ()
        manager.create_topic("a", 5)
        assert len(manager.partitions()) == 5
