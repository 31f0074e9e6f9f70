"""The state of a child after a fork: dead handles, no open files, and a working core."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kafkalog import errors
from kafkalog._native import check, ffi, lib


def in_child(work: Callable[[], object]) -> None:
    """Run `work` in a forked child; an exception there fails the test."""
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(begin, repr(error).encode())
            os._exit(1)
        os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as message:
        text = message.read().decode()
    status = os.waitpid(child, 0)[1]
    assert status == 0, text or f"wait status {status}"


def test_a_childs_handle_is_dead_and_the_parents_alive(raw_log):
    raw_log.append(b"before")

    def work() -> None:
        for call in (lambda: raw_log.append(b"child"), raw_log.flush):
            with pytest.raises(errors.ForkedHandle):
                call()

    in_child(work)
    assert raw_log.append(b"after") == 1
    raw_log.flush()


def test_a_child_may_free_inherited_handles(raw_log):
    raw_log.append(b"before")
    in_child(lambda: ffi.release(raw_log.handle))
    assert raw_log.append(b"after") == 1


def test_a_child_has_a_sync_thread_of_its_own(raw_log, open_raw_log, tmp_path):
    """The parent's thread does not exist in the child; a new one starts when it is needed."""
    raw_log.append(b"x")
    raw_log.flush()

    def work() -> None:
        mine = open_raw_log(tmp_path / "child-0")
        mine.append(b"x")
        mine.flush()
        mine.close()

    in_child(work)
    raw_log.append(b"y")
    raw_log.flush()


def test_a_grandchild_too(open_raw_log, tmp_path):
    def work(depth: int) -> None:
        log = open_raw_log(tmp_path / f"depth-{depth}")
        log.append(b"x")
        log.flush()
        if depth:
            in_child(lambda: work(depth - 1))
        log.append(b"y")
        log.flush()
        log.close()

    work(2)


def test_fork_while_a_sync_runs(raw_log, open_raw_log, tmp_path):
    """The sync queue's locks are usable in the child, whatever the parent's thread was doing."""
    for _ in range(8):
        raw_log.append(b"x")
        check(lib.kl_log_flush_start(raw_log.handle, ffi.new("int64_t *")))

        def work() -> None:
            mine = open_raw_log(tmp_path / f"{os.getpid()}-0")
            mine.append(b"x")
            mine.flush()
            mine.close()

        in_child(work)
    raw_log.flush()


def test_a_child_keeps_no_file_open(raw_log, tmp_path):
    """A deleted segment's space must be freed even while a child is running."""
    raw_log.append(b"x")

    def work() -> None:
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(256) if is_open(fd)]
        assert not [link for link in links if link.startswith(str(tmp_path))]

    in_child(work)
    assert raw_log.append(b"y") == 1


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_sync_threads_leave_signals_to_the_application(raw_log):
    raw_log.append(b"x")
    raw_log.flush()
    blocked = None
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        if fields["Name"].strip() == "kafkalog-sync":
            blocked = int(fields["SigBlk"], 16)
    assert blocked is not None, "there is a sync thread"
    for signal_number in (1, 2, 3, 10, 12, 14, 15, 17):
        assert blocked >> (signal_number - 1) & 1, signal_number


def test_a_child_cannot_change_the_parents_directory(directory, tmp_path):
    """The child's interpreter may exit normally and close every handle that it knows of."""
    directory.replace("a", b"parent")
    (tmp_path / ".clean").write_bytes(b"")
    out = ffi.new("kl_marker **")
    check(lib.kl_marker_open(os.fsencode(tmp_path), b".clean", out))

    def work() -> None:
        for call in (
            lambda: directory.replace("a", b"child"),
            directory.lock,
            lambda: check(lib.kl_marker_remove(out[0])),
            lambda: check(lib.kl_marker_write(out[0], b"", 0)),
        ):
            with pytest.raises(errors.ForkedHandle):
                call()
        directory.close()

    in_child(work)
    assert directory.read("a") == b"parent"
    assert (tmp_path / ".clean").exists()
    lib.kl_marker_free(out[0])
