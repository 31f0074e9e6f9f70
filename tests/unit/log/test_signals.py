"""Forks and Ctrl-C: a child's handles are dead, a wait ends immediately."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

import kafkalog
from kafkalog.log.handle import WAIT_SLICE_MS
from tests.support import batches, cases
from tests.support.waiting import LIMIT_S, wait_for

TRIES = 5


def in_child(work):
    """Fork and run `work` in the child; returns its result as text."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "?"
        try:
            said = str(work())
        except BaseException as failure:
            said = f"{type(failure).__name__}: {failure}"
        finally:
            os.write(write_fd, said.encode()[:4000])
            os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd) as said:
        answer = said.read()
    assert os.waitpid(pid, 0)[1] == 0
    return answer


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_handles_in_a_forked_child_are_dead(tmp_path):
    """Every call reports the fork; the parent continues, and still owns the directory."""
    path = tmp_path / "log-0"
    log = kafkalog.Log(path)
    log.append(b"before")
    log.flush()
    calls = {
        "append": lambda: log.append(b"child"),
        "append_many": lambda: log.append_many([b"child"]),
        "read": lambda: list(log.read()),
        "flush": log.flush,
        "roll": log.roll,
        "truncate": lambda: log.truncate(0),
        "delete_before": lambda: log.delete_before(1),
        "find_time": lambda: log.find_time(0),
    }

    def try_all():
        answers = {}
        for name, call in calls.items():
            try:
                answers[name] = repr(call())
            except kafkalog.ForkedHandle:
                continue
        with contextlib.suppress(kafkalog.ForkedHandle):
            log.close()
        return answers

    assert in_child(try_all) == "{}"
    assert in_child(lambda: kafkalog.Log(path).append(b"x")).startswith("Locked")
    assert log.append(b"after") == 1
    log.flush()
    assert [record.value for record in log.read()] == [b"before", b"after"]
    log.close()
    assert in_child(lambda: kafkalog.Log(path).append(b"own")) == "2"


def test_a_child_opens_logs_of_its_own(tmp_path):
    """Sync threads do not survive a fork; the child starts new ones."""
    with kafkalog.Log(tmp_path / "parent-0") as log:
        log.append(b"x")
        log.flush()

        def own():
            with kafkalog.Log(tmp_path / "child-0") as mine:
                mine.append(b"y")
                mine.flush()
                return mine.flushed_offset

        assert in_child(own) == "1"
        log.append(b"z")
        log.flush()
        assert log.flushed_offset == 2


SLOW_DISK = """
#include <unistd.h>
int fdatasync(int fd) { (void)fd; for (;;) pause(); }
"""
WAITS = {
    "follow": "for record in log.follow(log.end_offset): pass",
    "flush": "log.flush()",
}


@pytest.mark.slow
@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait(wait, tmp_path):
    """A real SIGINT to a process that waits forever; for flush, on a disk that never answers.  The
    wait is sliced, so that the signal is seen within a tenth of a second."""
    assert WAIT_SLICE_MS <= 100
    environment = dict(os.environ)
    if wait == "flush":
        source, library = tmp_path / "slow.c", tmp_path / "slow.so"
        source.write_text(SLOW_DISK)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        # A sanitizer's runtime, if there is one, must come first.
        before = environment.get("LD_PRELOAD")
        environment["LD_PRELOAD"] = f"{before}:{library}" if before else str(library)
    program = (
        "import kafkalog, os, sys\n"
        "log = kafkalog.Log(sys.argv[1])\n"
        "log.append(b'x')\n"
        f"try:\n    print('waiting', flush=True)\n    {WAITS[wait]}\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
        "os._exit(0)\n"
    )
    for i in range(TRIES):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / f"log{i}-0")],
            stdout=subprocess.PIPE, text=True, env=environment, cwd=cases.ROOT,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            assert child.stdout.readline() == "waiting\n"
            _until_asleep(child.pid)
            child.send_signal(signal.SIGINT)
            assert child.stdout.readline() == "interrupted\n"


def _until_asleep(pid):
    """Return once the process waits for something (state S in /proc)."""

    def asleep():
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "S"

    wait_for(asleep, f"process {pid} waits")


APPENDS = {
    "flush": lambda log: log.flush(),
    "append": lambda log: log.append(b"x"),
    "append with a header": lambda log: log.append(b"x", headers=[("a", b"b")]),
    "append_many": lambda log: log.append_many([b"x"] * 3),
    "append_many, compressed": lambda log: log.append_many([b"x"] * 3, compression="gzip"),
    "append_batches": lambda log: log.append_batches(batches.batch([batches.Row(b"x")])),
}


@pytest.mark.parametrize("call", APPENDS)
def test_ctrl_c_ends_the_wait_for_a_disk_that_was_quick_so_far(call, tmp_path, native_test):
    """The sync runs in another thread: a caller that ran it, or waited for it in C, would not see
    the signal."""
    _, lib = native_test
    lib.kl_io_reset()
    every = 10**9 if call == "flush" else 1
    with kafkalog.Log(tmp_path / "log-0", config={"flush.messages": every}) as log:
        for _ in range(3):  # so that it counts as quick
            log.append(b"before")
            log.flush()
        end = log.end_offset
        if call == "flush":
            log.append(b"x")
        left = threading.Event()

        def interrupt() -> None:
            wait_for(lambda: lib.kl_io_waiting(b"fdatasync") == 1, "the disk is asked")
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            if not left.wait(LIMIT_S):  # otherwise this test would never end
                lib.kl_io_reset()

        lib.kl_io_hold(b"fdatasync", lib.KL_HOLD_ALL)
        other = threading.Thread(target=interrupt)
        other.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                APPENDS[call](log)
            left.set()
            assert lib.kl_io_waiting(b"fdatasync") == 1
            assert log.end_offset > end >= log.flushed_offset
        finally:
            left.set()
            lib.kl_io_reset()
            other.join()
        log.flush()
        assert log.flushed_offset == log.end_offset
