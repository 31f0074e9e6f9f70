"""A log whose files are removed while it is open: later records would be lost, so a flush fails and
names the file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import errors
from tests.unit.log.test_held_disk import CONFIG, fill


def remove_files(folder: Path) -> None:
    """Remove files as `rm folder/*` does: hidden files such as `.lock` stay."""
    for path in folder.glob("[!.]*"):
        path.unlink()


@pytest.mark.parametrize("remove", [shutil.rmtree, remove_files])
def test_a_flush_names_the_file_that_was_removed(tmp_path: Path, remove: Any) -> None:
    log = kafkalog.Log(tmp_path / "t-0", config=CONFIG)
    fill(log, 1)
    log.flush()
    remove(tmp_path / "t-0")
    fill(log, 1)
    for call in (log.flush, lambda: fill(log, 1), log.close):
        with pytest.raises(errors.StorageOffline, match=r"t-0/0{20}\.log: the file was removed"):
            call()


def test_a_file_that_was_moved_is_there(tmp_path: Path) -> None:
    """Nothing is lost: the file exists under its new name."""
    with kafkalog.Log(tmp_path / "t-0", config=CONFIG) as log:
        fill(log, 1)
        log.flush()
        path = next((tmp_path / "t-0").glob("*.log"))
        path.rename(tmp_path / path.name)
        fill(log, 1)
        log.flush()
        (tmp_path / path.name).rename(path)
    with kafkalog.Log(tmp_path / "t-0") as log:
        assert len(list(log)) == 2
