"""The C base layer without the log above it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog._native import check, ffi, lib

ROOT = Path(__file__).resolve().parents[3]


class Directory:
    """A kl_dir whose failures raise exceptions."""

    def __init__(self, path: Path, create: bool = False) -> None:
        out = ffi.new("kl_dir **")
        check(lib.kl_dir_open(os.fsencode(path), create, out))
        self.handle = ffi.gc(out[0], lib.kl_dir_free)

    def replace(self, name: str, data: bytes) -> None:
        check(lib.kl_dir_replace(self.handle, os.fsencode(name), data, len(data)))

    def read(self, name: str, room: int = 1 << 16) -> bytes:
        buffer, used = bytearray(room), ffi.new("size_t *")
        status = lib.kl_dir_read(
            self.handle, os.fsencode(name), ffi.from_buffer(buffer), room, used
        )
        check(status)
        return bytes(buffer[: used[0]])

    def unlink(self, name: str) -> None:
        check(lib.kl_dir_unlink(self.handle, os.fsencode(name)))

    def rename(self, name: str, to: str) -> None:
        check(lib.kl_dir_rename(self.handle, os.fsencode(name), os.fsencode(to)))

    def make(self, name: str) -> None:
        check(lib.kl_dir_make(self.handle, os.fsencode(name)))

    def sync(self) -> None:
        check(lib.kl_dir_sync(self.handle))

    def lock(self) -> None:
        check(lib.kl_dir_lock(self.handle))

    def locked(self) -> int:
        return int(lib.kl_dir_locked(self.handle))

    def close(self) -> None:
        lib.kl_dir_close(self.handle)


class RawLog:
    """A kl_log with fixed settings."""

    def __init__(self, path: Path) -> None:
        config = ffi.new(
            "kl_log_config *",
            {
                "segment_bytes": 1 << 20,
                "segment_ms": 7 * 86_400_000,
                "timestamp_before_max_ms": 2**63 - 1,
                "timestamp_after_max_ms": 2**63 - 1,
                "flush_messages": 2**63 - 1,
                "segment_index_bytes": 1 << 20,
                "index_interval_bytes": 4096,
                "max_message_bytes": 1 << 20,
            },
        )
        how = ffi.new(
            "kl_open *",
            {
                "mode": 1,
                "recovery_point": -1,
                "log_start_offset": -1,
                "high_watermark": -1,
                "end_is_high_watermark": 1,
                "leader_epoch": -1,
            },
        )
        out, recovery = ffi.new("kl_log **"), ffi.new("kl_recovery *")
        check(lib.kl_log_open(os.fsencode(path), config, how, ffi.NULL, out, recovery))
        self.handle = ffi.gc(out[0], lib.kl_log_free)

    def append(self, value: bytes) -> int:
        due = ffi.new("int32_t *")
        offset = lib.kl_log_append(self.handle, ffi.NULL, -1, value, len(value), 1, due)
        check(-offset if offset < 0 else 0)
        return int(offset)

    def flush(self) -> None:
        check(lib.kl_log_flush(self.handle, ffi.new("int64_t *", -1), 10_000))

    def close(self) -> None:
        check(lib.kl_log_close(self.handle))

    def abandon(self) -> None:
        lib.kl_log_abandon(self.handle)


@pytest.fixture
def open_raw_log() -> type[RawLog]:
    return RawLog


@pytest.fixture
def raw_log(tmp_path: Path) -> Iterator[RawLog]:
    log = RawLog(tmp_path / "t-0")
    yield log
    log.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    opened = Directory(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def open_directory() -> type[Directory]:
    return Directory


@pytest.fixture
def hooks(native_test: tuple[Any, Any]) -> Iterator[Any]:
    """The test build's `lib`, with every hook off before and after."""
    test_lib = native_test[1]
    test_lib.kl_io_reset()
    test_lib.kl_failpoint_reset()
    yield test_lib
    test_lib.kl_io_record(-1)
    test_lib.kl_io_reset()
    test_lib.kl_failpoint_reset()


@pytest.fixture
def other_process() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start Python code in another process, and kill it at the end if it is still running."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
