"""One owner per directory, across handles, processes and forks."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from kafkalog import errors
from tests.support.forms import linux_form_only

HOLD = """
import sys
from tests.unit.base.conftest import Directory
held = Directory({path!r})
held.lock()
print("held", flush=True)
sys.stdin.read()
"""


def hold(other_process, path):
    process = other_process(HOLD.format(path=str(path)))
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_handle_of_this_process_is_refused(directory, open_directory, tmp_path):
    directory.lock()
    with pytest.raises(errors.Locked, match=f"{os.getpid()}.*this process"):
        open_directory(tmp_path).lock()
    with pytest.raises(errors.Locked):
        directory.lock()


def test_another_way_to_the_same_directory_is_refused(directory, open_directory, tmp_path):
    directory.lock()
    (tmp_path / "sub").mkdir()
    link = tmp_path / "sub" / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(errors.Locked):
        open_directory(link).lock()


def test_it_holds_after_somebody_deleted_the_file(directory, open_directory, tmp_path):
    directory.lock()
    (tmp_path / ".lock").unlink()
    with pytest.raises(errors.Locked):
        open_directory(tmp_path).lock()


def test_closing_another_handle_does_not_release_it(directory, open_directory, tmp_path):
    """POSIX locks would be lost here; ours belong to the open file."""
    directory.lock()
    (tmp_path / ".lock").read_bytes()
    with pytest.raises(errors.Locked):
        open_directory(tmp_path).lock()
    open_directory(tmp_path).close()
    assert open_directory(tmp_path).locked() == 1


def test_close_releases_it(directory, open_directory, tmp_path):
    other = open_directory(tmp_path)
    assert other.locked() == 0
    directory.lock()
    assert other.locked() == directory.locked() == 1
    directory.close()
    assert other.locked() == 0
    other.lock()
    other.close()


@linux_form_only("another process's command line is not known")
def test_another_process_is_named(directory, other_process, tmp_path):
    process = hold(other_process, tmp_path)
    assert directory.locked() == 1
    named = rf"process {process.pid} owns this directory \({sys.executable} -c +import sys from "
    with pytest.raises(errors.Locked, match=named):
        directory.lock()
    process.stdin.close()
    process.wait()
    directory.lock()
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_killed_owner_holds_nothing(directory, other_process, tmp_path, wait_until):
    process = hold(other_process, tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: directory.locked() == 0, "the lock of a killed process is free")
    directory.lock()


def test_a_posix_lock_as_javas_excludes_us(directory, other_process, tmp_path):
    code = (
        "import fcntl, sys; f = open(sys.argv[1] if sys.argv[1:] else {path!r}, 'w');"
        "fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    )
    process = other_process(code.format(path=str(tmp_path / ".lock")))
    assert process.stdout.readline() == "held\n"
    assert directory.locked() == 1
    with pytest.raises(errors.Locked, match=f"process {process.pid} owns"):
        directory.lock()


def test_a_forked_child_does_not_keep_the_lock(directory, open_directory, tmp_path):
    """Even while the child runs, the directory is free once its owner closes it or dies."""
    directory.lock()
    wake, waiting = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(waiting)
        os.read(wake, 1)
        os._exit(0)
    os.close(wake)
    try:
        assert open_directory(tmp_path).locked() == 1, "the child's copy went, ours stays"
        directory.close()
        other = open_directory(tmp_path)
        other.lock()
        other.close()
    finally:
        os.close(waiting)
        os.waitpid(child, 0)


ORPHAN = """
import os, sys
from tests.unit.base.conftest import Directory
held = Directory({path!r})
held.lock()
child = os.fork()
if child == 0:
    print("forked", flush=True)
    sys.stdin.read()
os._exit(0)
"""


def test_an_orphan_does_not_keep_a_dead_owners_lock(directory, other_process, tmp_path):
    """The child releases the lock when it first runs, perhaps only after its parent has ended:
    so the child itself reports that it is running."""
    process = other_process(ORPHAN.format(path=str(tmp_path)))
    assert process.stdout.readline() == "forked\n"
    process.wait()
    directory.lock()
    process.stdin.close()


def test_a_child_cannot_take_the_parents_directory(directory, open_directory, tmp_path):
    directory.lock()
    child = os.fork()
    if child == 0:
        try:
            open_directory(tmp_path).lock()
        except errors.Locked:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
