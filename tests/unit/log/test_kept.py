"""What a recovery takes out of a log is kept, and the files that keep it have a bound."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog import errors

KEPT_MAX = 1000
"""KL_KEPT_FILES_MAX of kept.h."""


def torn(folder: Path, tail: bytes) -> Path:
    """The `.log` of a log whose writer died in an append."""
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
    """The error tells which they are and what to do."""
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


def test_what_nobody_wrote_needs_no_room(tmp_path):
    """Zeros are not kept, so that a log with the last file opens."""
    folder = tmp_path / "t-0"
    torn(folder, bytes(100))
    keep(folder, KEPT_MAX)
    with kafkalog.Log(folder) as log:
        assert [r.value for r in log.read()] == [b"whole"]
