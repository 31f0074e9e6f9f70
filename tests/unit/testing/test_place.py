"""Where the data of a test's broker is stored, and that nothing of it stays in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.testing import place
from kafkalog.testing.place import Place, in_memory

PROGRAM = """
import os, sys
from kafkalog.testing.place import Place
one = Place("data")
os.makedirs(one.path)
print(os.path.dirname(os.path.dirname(one.path)), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def memory_of_ones_own(memory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A separate folder instead of the one in memory."""
    own = Path(tempfile.mkdtemp(dir=memory))
    monkeypatch.setattr(place, "MEMORY", str(own))
    monkeypatch.setattr(place, "_folder", None)
    yield own


@pytest.mark.usefixtures("memory_of_ones_own")
def test_kept_files_move_to_their_final_place(tmp_path: Path) -> None:
    one = Place(tmp_path / "kept")
    assert one.path != one.final == str(tmp_path / "kept")
    os.makedirs(one.path)
    Path(one.path, "file").write_text("x")
    one.keep()
    assert (tmp_path / "kept" / "file").read_text() == "x"
    assert one.path == one.final


def test_removed_folders_leave_nothing(memory_of_ones_own: Path) -> None:
    with in_memory("kafkalog-") as path:
        os.makedirs(path)
        assert path.startswith(str(memory_of_ones_own))
    (own,) = memory_of_ones_own.iterdir()
    assert not list(own.iterdir())


def test_without_room_it_lies_on_disk(
    memory_of_ones_own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "ROOM_BYTES", 1 << 60)
    assert Place(tmp_path / "data").path == str(tmp_path / "data")
    with in_memory("kafkalog-") as path:
        assert os.path.isdir(path) and not path.startswith(str(memory_of_ones_own))
    assert not os.path.exists(path)
    assert Place(tmp_path / "data", on_disk=True).path == str(tmp_path / "data")


def test_folders_of_killed_processes_are_removed() -> None:
    def begin() -> tuple[subprocess.Popen[str], str]:
        made = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert made.stdout is not None
        return made, made.stdout.readline().strip()

    killed, left = begin()
    if not left.startswith(place.MEMORY):
        killed.communicate("")
        pytest.skip("no room in memory")
    assert os.path.isdir(left)
    killed.kill()
    killed.wait()
    killed.communicate()
    assert os.path.isdir(left)
    living, theirs = begin()
    assert not os.path.exists(left)
    other, _ = begin()
    assert os.path.isdir(theirs)
    for process in (other, living):
        process.communicate("")
    assert not os.path.exists(theirs)
