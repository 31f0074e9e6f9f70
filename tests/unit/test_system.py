"""Calls that differ between operating systems, in both forms."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog import system
from kafkalog.client.link.wake_event import Bell
from tests.support.forms import PORTABLE
from tests.support.waiting import LIMIT_S

FORMS = [pytest.param(True, marks=pytest.mark.skipif(PORTABLE, reason="the other form")), False]


@pytest.fixture(params=FORMS, ids=lambda linux: "linux" if linux else "posix")
def linux(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(system, "LINUX", request.param)
    return bool(request.param)


def is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def test_a_ring_ends_a_wait_until_it_is_cleared(linux: bool) -> None:
    wake = system.Wake()
    assert not is_readable(wake.read_fd)
    for _ in range(70_000):  # more than a pipe holds
        wake.ring()
    assert is_readable(wake.read_fd)
    wake.clear()
    assert not is_readable(wake.read_fd)
    wake.close()
    assert (wake.read_fd, wake.write_fd) == (-1, -1)
    wake.close()


def test_its_descriptors_are_not_inherited(linux: bool) -> None:
    wake = system.Wake()
    assert not os.get_inheritable(wake.read_fd) and not os.get_inheritable(wake.write_fd)
    wake.close()


def test_a_bell_rings(linux: bool) -> None:
    bell = Bell()
    assert not bell.sleep()
    bell.ring()
    assert is_readable(bell.fileno())
    bell.heard()
    bell.awake()
    assert not is_readable(bell.fileno())
    bell.close()
    bell.ring()


def test_a_private_file_is_read_by_its_path(linux: bool) -> None:
    with system.private_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        if not linux:
            assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert not Path(path).exists()


def test_a_private_file_is_gone_after_an_error(linux: bool) -> None:
    with pytest.raises(ValueError), system.private_file(b"secret") as path:
        raise ValueError
    assert not Path(path).exists()


def test_processors_are_counted(linux: bool) -> None:
    assert system.processors() in range(1, (os.cpu_count() or 1) + 1)


PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1]])
sys.stdin.read()
"""
CHILD = """
import select
from kafkalog import system
ended = system.parent_descriptor()
assert not select.select([ended], [], [], 0)[0]
print("waiting", flush=True)
select.select([ended], [], [])
print("ended", flush=True)
"""


@pytest.mark.skipif(PORTABLE, reason="the portable form: Linux has no kqueue")
def test_the_end_of_a_parent_is_seen() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"waiting\n"
        parent.kill()
        assert parent.stdout.readline() == b"ended\n"


def test_without_a_way_to_see_it_there_is_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "LINUX", False)
    assert system.parent_descriptor() is None


FORKING = """
import os, sys, kafkalog.cli.cluster.trying
from kafkalog.system import ends_with_parent
ends = ends_with_parent()
before = len(sys.modules)
child = os.fork()
if child == 0:
    ends()
    os._exit(len(sys.modules) - before)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""Exits with the number of modules that the child has imported."""


@pytest.mark.skipif(PORTABLE, reason="the other form")
def test_a_forked_child_imports_nothing() -> None:
    """Another thread may have had a lock of the import at the fork."""
    assert subprocess.run([sys.executable, "-c", FORKING], check=False).returncode == 0


@pytest.mark.skipif(PORTABLE, reason="the other form")
def test_a_child_ends_with_its_parent() -> None:
    code = """
import subprocess
from kafkalog.system import ends_with_parent
with subprocess.Popen(["cat"], stdin=subprocess.PIPE, preexec_fn=ends_with_parent()) as child:
    print(child.pid, flush=True)
    child.wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert select.select([child], [], [], LIMIT_S)[0]
        finally:
            os.close(child)


def test_elsewhere_a_child_does_not_end_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "LINUX", False)
    assert system.ends_with_parent() is None
