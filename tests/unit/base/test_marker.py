"""The clean-shutdown marker: present, or durably removed."""

from __future__ import annotations

import errno
import os

import pytest

from kafkalog import errors
from kafkalog._native import check, ffi, lib


def open_marker(path):
    out = ffi.new("kl_marker **")
    check(lib.kl_marker_open(os.fsencode(path), b".clean", out))
    return ffi.gc(out[0], lib.kl_marker_free)


def test_written_seen_and_removed(tmp_path):
    marker = open_marker(tmp_path)
    assert lib.kl_marker_present(marker) == 0
    check(lib.kl_marker_write(marker, b"{}", 2))
    assert lib.kl_marker_present(marker) == 1
    again = open_marker(tmp_path)
    assert lib.kl_marker_present(again) == 1
    check(lib.kl_marker_remove(again))
    assert lib.kl_marker_present(again) == 0
    assert os.listdir(tmp_path) == []
    check(lib.kl_marker_remove(again))


def test_somebody_else_removed_it(tmp_path):
    (tmp_path / ".clean").write_bytes(b"")
    marker = open_marker(tmp_path)
    (tmp_path / ".clean").unlink()
    check(lib.kl_marker_remove(marker))
    assert lib.kl_marker_present(marker) == 0


def test_a_missing_directory(tmp_path):
    with pytest.raises(errors.NotFound):
        open_marker(tmp_path / "absent")


def test_a_removal_that_could_not_be_synced_is_never_believed(tmp_path, hooks):
    """The first failed fsync is final: a second one would prove nothing."""
    (tmp_path / ".clean").write_bytes(b"")
    marker = open_marker(tmp_path)
    assert hooks.kl_io_fail(b"fsync", 1, errno.EIO, 0, 0) == 0
    for _ in range(2):
        with pytest.raises(errors.StorageOffline):
            check(lib.kl_marker_remove(marker))
        assert lib.kl_marker_present(marker) == 1
    assert hooks.kl_io_calls(b"fsync") == 1


def test_it_is_removed_once(tmp_path, hooks):
    (tmp_path / ".clean").write_bytes(b"")
    marker = open_marker(tmp_path)
    for _ in range(5):
        check(lib.kl_marker_remove(marker))
    assert hooks.kl_io_calls(b"unlinkat") == 1
    assert hooks.kl_io_calls(b"fsync") == 1
