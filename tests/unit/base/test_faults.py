"""The tools of other tests: failpoints, failing system calls, and the record of changes."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from pathlib import Path

import pytest

from kafkalog import errors
from kafkalog._native import ffi

NATIVE = Path(__file__).resolve().parents[3] / "kafkalog" / "_native"
KILL, ERROR = 1, 2


def names(hooks) -> list[str]:
    return [
        ffi.string(hooks.kl_failpoint_name(i)).decode() for i in range(hooks.kl_failpoint_count())
    ]


def test_the_list_equals_the_failpoints_of_the_sources(hooks):
    """Each failpoint is listed once, whether it has been hit or not."""
    in_sources = []
    for path in NATIVE.rglob("*.c"):
        in_sources += re.findall(r'KL_FP(?:_STATUS)?\("([^"]+)"\)', path.read_text())
    assert sorted(names(hooks)) == sorted(in_sources)
    assert len(set(in_sources)) == len(in_sources)


def test_an_unknown_name_is_refused(hooks):
    assert hooks.kl_failpoint_set(b"no.such.point", KILL, 0, 1) == -1
    assert hooks.kl_failpoint_hits(b"no.such.point") == -1
    assert hooks.kl_failpoint_name(-1) == ffi.NULL
    assert hooks.kl_failpoint_name(hooks.kl_failpoint_count()) == ffi.NULL
    assert hooks.kl_io_fail(b"nocall", 1, errno.EIO, 0, 0) == -1
    assert hooks.kl_io_fail(b"pwrite", 0, errno.EIO, 0, 0) == -1


def test_hits_are_counted(hooks, directory):
    for _ in range(3):
        directory.replace("a", b"1")
    assert hooks.kl_failpoint_hits(b"dir.replace.synced") == 3
    hooks.kl_failpoint_reset()
    assert hooks.kl_failpoint_hits(b"dir.replace.synced") == 0


def test_a_point_can_fail_once_and_only_when_it_is_due(hooks, open_raw_log, tmp_path):
    log = open_raw_log(tmp_path / "t-0")
    assert hooks.kl_failpoint_set(b"flush.before_sync", ERROR, errno.EROFS, 2) == 0
    log.append(b"x")
    log.flush()
    log.append(b"x")
    with pytest.raises(errors.StorageOffline):
        log.flush()
    assert hooks.kl_failpoint_hits(b"flush.before_sync") == 2
    log.abandon()


POINTS = ["created", "written", "synced", "renamed"]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_while_replacing_leaves_old_or_new(
    hooks, directory, open_directory, tmp_path, point
):
    directory.replace("a", b"old")
    child = os.fork()
    if child == 0:
        hooks.kl_failpoint_set(f"dir.replace.{point}".encode(), KILL, 0, 2)
        mine = open_directory(tmp_path)
        mine.replace("b", b"other")
        mine.replace("a", b"new")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert directory.read("b") == b"other", "it acts on its second hit"
    assert directory.read("a") == (b"new" if point == "renamed" else b"old")
    directory.replace("a", b"again")
    assert directory.read("a") == b"again"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"], "what the crash left is gone"


CALLS = ["openat", "pwrite", "fsync", "close", "renameat"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
@pytest.mark.parametrize("call", [*CALLS, None])
def test_replace_is_all_or_nothing_when_the_nth_call_fails(
    hooks, directory, tmp_path, call, number
):
    """Whichever call fails, the file is whole, old or new, and the next attempt succeeds."""
    failed = 0
    for nth in range(1, 30):
        directory.replace("a", b"old" * 100)
        hooks.kl_io_reset()
        hooks.kl_io_fail(call.encode() if call else ffi.NULL, nth, number, 0, 0)
        try:
            directory.replace("a", b"new" * 100)
        except errors.IoFailed as error:
            failed += 1
            assert error.errno == number
            assert isinstance(error, errors.NoSpace) == (number in (errno.ENOSPC, errno.EDQUOT))
            hooks.kl_io_reset()
            assert directory.read("a") in (b"old" * 100, b"new" * 100)
            assert os.listdir(tmp_path) == ["a"]
        else:
            hooks.kl_io_reset()
            assert directory.read("a") == b"new" * 100
            break
    expected = {"openat": 1, "pwrite": 1, "fsync": 2, "close": 1, "renameat": 1, None: 6}
    assert failed == expected[call]


def test_a_failure_that_stays_leaves_the_old_file(hooks, directory):
    directory.replace("a", b"old")
    hooks.kl_io_fail(ffi.NULL, 1, errno.EIO, 1, 0)
    for _ in range(3):
        with pytest.raises(errors.IoFailed):
            directory.replace("a", b"new")
    hooks.kl_io_reset()
    assert directory.read("a") == b"old"
    directory.replace("a", b"new")
    assert directory.read("a") == b"new"


def test_short_transfers_are_completed(hooks, directory):
    data = bytes(range(256)) * 4
    hooks.kl_io_fail(b"pwrite", 1, 0, 1, 100)
    hooks.kl_io_fail(b"pread", 1, 0, 1, 7)
    directory.replace("a", data)
    assert hooks.kl_io_calls(b"pwrite") == 11
    assert directory.read("a") == data
    assert hooks.kl_io_calls(b"pread") == 147


@pytest.mark.parametrize("call", ["pwrite", "fsync", "close", "pread"])
def test_an_interrupted_call_is_repeated(hooks, directory, call):
    hooks.kl_io_fail(call.encode(), 1, errno.EINTR, 0, 0)
    directory.replace("a", b"whole")
    assert directory.read("a") == b"whole"


def test_no_memory_is_an_error(hooks, open_directory, tmp_path):
    for nth in (1, 2):
        hooks.kl_io_fail(b"alloc", nth, errno.ENOMEM, 0, 0)
        with pytest.raises(MemoryError):
            open_directory(tmp_path)
    open_directory(tmp_path)


def test_the_record_tells_each_change_in_order(hooks, directory, tmp_path):
    record = tmp_path.parent / f"{tmp_path.name}.jsonl"
    with open(record, "wb") as file:
        hooks.kl_io_record(file.fileno())
        directory.replace('q"é', b"\x00\xffdata")
        directory.read('q"é')
        directory.make("sub")
        directory.unlink('q"é')
        with pytest.raises(errors.NotFound):
            directory.unlink("absent")
        hooks.kl_io_record(-1)
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    path = str(tmp_path)
    # Paths are bytes, written as the first 256 characters.
    name = f'{path}/q"é'.encode().decode("latin-1")
    assert [(line["op"], line["path"], line["result"] < 0) for line in lines] == [
        ("openat", f"{name}.tmp", False),
        ("pwrite", f"{name}.tmp", False),
        ("fsync", f"{name}.tmp", False),
        ("renameat", f"{name}.tmp", False),
        ("fsync", path, False),
        ("mkdirat", f"{path}/sub", False),
        ("unlinkat", name, False),
        ("unlinkat", f"{path}/absent", True),
    ]
    assert bytes.fromhex(lines[1]["data"]) == b"\x00\xffdata"
    assert (lines[1]["offset"], lines[1]["bytes"]) == (0, 6)
    assert lines[3]["to"] == name
    assert lines[-1]["errno"] == errno.ENOENT
