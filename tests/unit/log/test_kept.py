"""The bytes that a recovery cuts from a log are kept in files, whose number is bounded."""

import errno
from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors
from kafkalog.inspect.repair import set_aside
from tests.unit.log.test_held_disk import delete_segments

KEPT_MAX = 1000
"""KL_KEPT_FILES_MAX of kept.h."""


def torn(folder: Path, tail: bytes) -> Path:
    """The `.log` of a log whose writer died during an append."""
    with kafkalog.Log(folder) as log:
        log.append(b"whole")
    for marker in folder.glob(".kafka_cleanshutdown"):
        marker.unlink()
    (path,) = folder.glob("*.log")
    with path.open("ab") as file:
        file.write(tail)
    return path


def keep(folder: Path, count: int) -> None:
    for i in range(count):
        (folder / (f"{0:020}.log.damaged" + (f".{i}" if i else ""))).touch()


def test_with_too_many_of_them_nothing_is_cut(tmp_path):
    """The error names them and says what to do."""
    folder = tmp_path / "t-0"
    path = torn(folder, b"torn tail")
    keep(folder, KEPT_MAX)
    before = path.read_bytes()
    for _ in range(2):
        with pytest.raises(errors.CorruptLog, match=r"1000 files .* move them elsewhere or delete"):
            kafkalog.Log(folder)
        assert path.read_bytes() == before
    (folder / f"{0:020}.log.damaged.{KEPT_MAX - 1}").unlink()
    with kafkalog.Log(folder) as log:
        assert [r.value for r in log.read()] == [b"whole"]
    assert (folder / f"{0:020}.log.damaged.{KEPT_MAX - 1}").read_bytes() == b"torn tail"


def test_unwritten_bytes_need_no_space(tmp_path):
    """Zeros are not kept, so the log opens even with the last file used."""
    folder = tmp_path / "t-0"
    torn(folder, bytes(100))
    keep(folder, KEPT_MAX)
    with kafkalog.Log(folder) as log:
        assert [r.value for r in log.read()] == [b"whole"]


def test_a_retried_append_on_a_full_disk_copies_nothing(tmp_path, native_test):
    """An append that is retried on a full disk writes nothing."""
    _, hooks = native_test
    folder = tmp_path / "t-0"
    path = torn(folder, b"torn tail" * 1_000)
    before = path.read_bytes()
    hooks.kl_io_reset()
    try:
        hooks.kl_io_fail(b"fallocate", 1, errno.ENOSPC, 1_000, 0)
        with kafkalog.Log(folder) as log:
            for i in range(3):
                calls = hooks.kl_io_calls(b"pwrite")
                with pytest.raises(errors.NoSpace, match="tail"):
                    log.append(b"more")
                assert i == 0 or hooks.kl_io_calls(b"pwrite") == calls  # the leader epoch's note
            assert path.read_bytes() == before
            hooks.kl_io_reset()
            assert log.append(b"more") == 1
        assert (folder / f"{path.name}.damaged").read_bytes() == b"torn tail" * 1_000
    finally:
        hooks.kl_io_reset()


def test_a_tail_that_waits_for_room_goes_with_no_retention(tmp_path, native_test):
    """If all segments must go, the one with the tail stays until there is room to keep it."""
    _, hooks = native_test
    folder = tmp_path / "t-0"
    config = {"segment.bytes": 1_000, "file.delete.delay.ms": 60_000}
    with kafkalog.Log(folder, config=config) as log:
        for _ in range(10):
            log.append(bytes(300))
    (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
    [*_, path] = sorted(folder.glob("*.log"))
    with path.open("ab") as file:
        file.write(b"torn tail")
    hooks.kl_io_reset()
    try:
        hooks.kl_io_fail(b"fallocate", 1, errno.ENOSPC, 1_000, 0)
        with kafkalog.Log(folder, config=config) as log:
            end, base = log.end_offset, log.segments[-1].base_offset
            assert delete_segments(log, end) >= 2
            assert (log.start_offset, log.end_offset) == (base, end)
            with pytest.raises(errors.NoSpace, match="tail"):
                delete_segments(log, end)
            hooks.kl_io_reset()
            assert delete_segments(log, end) == 1
            assert (log.start_offset, log.end_offset) == (end, end)
        assert (folder / f"{path.name}.damaged").read_bytes() == b"torn tail"
    finally:
        hooks.kl_io_reset()


def test_repair_keeps_no_more_of_them_either(tmp_path):
    """It does not replace what an earlier repair kept, and has the same bound."""
    folder = tmp_path / "t-0"
    path = torn(folder, b"torn tail")
    keep(folder, KEPT_MAX)
    before = path.read_bytes()
    with pytest.raises(errors.CorruptLog, match=r"1000 .* move them elsewhere or delete"):
        set_aside(path)
    assert path.read_bytes() == before
    (folder / f"{0:020}.log.damaged.{KEPT_MAX - 1}").unlink()
    set_aside(path)
    assert (folder / f"{0:020}.log.damaged.{KEPT_MAX - 1}").read_bytes() == before
