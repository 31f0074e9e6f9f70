"""The secret of a data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.disk.directory import Directory
from kafkalog.disk.secret import SECRET, SECRET_BYTES, secret_of


def test_it_stays_as_it_is_and_nobody_else_reads_it(tmp_path: Path) -> None:
    with Directory(tmp_path) as directory:
        first = secret_of(directory)
        assert len(first) == SECRET_BYTES and secret_of(directory) == first
    with Directory(tmp_path) as directory:
        assert secret_of(directory) == first
    assert (tmp_path / SECRET).stat().st_mode & 0o777 == 0o600
    with Directory(tmp_path / "other", create=True) as directory:
        assert secret_of(directory) != first


@pytest.mark.parametrize("data", [b"", b"short", bytes(33), bytes(10_000)])
def test_another_file_in_its_place_is_replaced(tmp_path: Path, data: bytes) -> None:
    (tmp_path / SECRET).write_bytes(data)
    with Directory(tmp_path) as directory:
        found = secret_of(directory)
        assert len(found) == SECRET_BYTES and found != data[:SECRET_BYTES]
        assert secret_of(directory) == found


def test_without_a_place_for_it_there_is_one_for_the_time(tmp_path: Path) -> None:
    """A folder of its name: nothing can be written there."""
    (tmp_path / SECRET).mkdir()
    with Directory(tmp_path) as directory:
        assert len(secret_of(directory)) == SECRET_BYTES
