"""The number of open files is bounded, and a handle never reads another file of the same name."""

from __future__ import annotations

import contextlib
import os
import resource
import threading

import pytest

from kafkalog import errors
from kafkalog._native import check, ffi, lib
from tests.support.forms import linux_form_only

# A commit marker at offset 103, as Kafka writes it.
BATCH = bytes.fromhex(
    "00000000000000670000004200000005029d6739a10030000000000000018bcfe5680a0000018bcfe5680a00"
    "00000000000fa00002ffffffff000000012000000008000000010c00000000000300"
)


class Walk:
    """A file of batches, held by a handle that need not be open."""

    def __init__(self, path) -> None:
        out = ffi.new("kl_walk **")
        check(lib.kl_walk_open(os.fsencode(path), 0, out))
        self.handle = ffi.gc(out[0], lib.kl_walk_free)

    def read(self) -> bytes:
        buffer, used = bytearray(4096), ffi.new("size_t *")
        check(lib.kl_walk_read(self.handle, 0, ffi.from_buffer(buffer), len(buffer), used))
        return bytes(buffer[: used[0]])

    def close(self) -> None:
        ffi.release(self.handle)


@pytest.fixture
def limit():
    """Set how many files may be open; the default again at the end."""
    yield lib.kl_set_max_open_files
    lib.kl_set_max_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


@pytest.fixture
def walks(tmp_path):
    paths = [tmp_path / f"{i}.log" for i in range(40)]
    for path in paths:
        path.write_bytes(BATCH)
    opened = [Walk(path) for path in paths]
    yield opened
    for walk in opened:
        walk.close()


def descriptors(tmp_path) -> int:
    """The number of descriptors of this process that point into the folder."""
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            count += os.readlink(f"/proc/self/fd/{fd}").startswith(str(tmp_path))
    return count


def test_files_stay_open_below_the_limit(walks, tmp_path):
    for walk in walks:
        assert walk.read() == BATCH
    assert descriptors(tmp_path) == 40


@pytest.mark.parametrize("most", [1, 2, 10])
def test_never_more_than_the_limit(walks, tmp_path, limit, most):
    limit(most)
    assert descriptors(tmp_path) <= most
    for _ in range(3):
        for walk in walks:
            assert walk.read() == BATCH
            assert descriptors(tmp_path) <= most
            assert lib.kl_open_files() <= most


def test_recently_used_files_stay_open(walks, tmp_path, limit, hooks):
    """The clock algorithm skips files that were used since its last round."""
    limit(10)
    for other in walks[1:]:
        other.read()
        walks[0].read()
    hooks.kl_io_reset()
    for _ in range(5):
        walks[0].read()
    assert hooks.kl_io_calls(b"openat") == 0


def test_a_freed_handle_closes_its_file(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(BATCH)
    walk = Walk(path)
    before = lib.kl_open_files()
    walk.read()
    walk.close()
    assert descriptors(tmp_path) == 0
    assert lib.kl_open_files() == before - 1


@linux_form_only("without a birth time, a file is known by its inode, which is reused")
def test_another_file_of_the_same_name_is_stale(walks, tmp_path, limit):
    """Even if the new file gets the same inode number, as often happens."""
    limit(1)
    walks[1].read()
    (tmp_path / "0.log").unlink()
    (tmp_path / "0.log").write_bytes(bytes(reversed(BATCH)))
    with pytest.raises(errors.StaleLog, match="another file"):
        walks[0].read()


def test_a_file_that_went_away_is_stale(walks, tmp_path, limit):
    walks[2].read()
    (tmp_path / "2.log").unlink()
    assert walks[2].read() == BATCH, "while it is open it is still there"
    limit(1)
    walks[3].read()
    with pytest.raises(errors.StaleLog, match="deleted"):
        walks[2].read()


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(errors.NotFound):
        Walk(tmp_path / "absent.log")


def test_links_and_pipes_are_refused(tmp_path):
    (tmp_path / "a.log").write_bytes(BATCH)
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")
    with pytest.raises(errors.IoFailed):
        Walk(tmp_path / "link.log")
    os.mkfifo(tmp_path / "pipe.log")
    with pytest.raises(errors.CorruptLog, match="regular file"):
        Walk(tmp_path / "pipe.log")


def test_many_threads_under_a_small_limit(walks, limit):
    """Files are evicted while others use them, and no thread reads another file's bytes."""
    limit(3)
    wrong: list[object] = []

    def work(first: int) -> None:
        try:
            for step in range(300):
                walk = walks[first + step * 4 % 40]
                if walk.read() != BATCH:
                    wrong.append(step)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert lib.kl_open_files() <= 3


def test_a_failed_open_leaves_the_count_right(walks, limit, hooks):
    limit(1)
    walks[0].read()
    for call in (b"openat", b"statx"):
        for _ in range(3):
            hooks.kl_io_fail(call, 1, 5, 0, 0)
            with pytest.raises(errors.IoFailed):
                walks[1].read()
    assert walks[1].read() == BATCH
    assert lib.kl_open_files() == 1
