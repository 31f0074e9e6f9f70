"""Where a run took place: machine, system, file system, versions, command."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import kafkalog
from benchmarks.measure import SCALE
from kafkalog._native import ffi, lib

__all__ = ["describe", "file_system", "place"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("numpy", "pyarrow", "cffi", "zstandard", "lz4", "lmdb", "rocksdict", "kafka-python",
            "pyspark")  # fmt: skip


def place() -> str:
    """Where files are written: KAFKALOG_BENCH_DIR, or the system's temporary folder."""
    return os.environ.get("KAFKALOG_BENCH_DIR") or tempfile.gettempdir()


def describe(folder: Path) -> dict[str, str]:
    """Everything that a reader of the figures must know; `folder` was written to."""
    names = [f"{name} {found}" for name in PACKAGES if (found := _version(name))]
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {_memory_gb()} GB of memory",
        "system": f"Linux {platform.release()}, {platform.libc_ver()[1] or 'unknown'} libc",
        "file system": file_system(folder),
        "kafkalog": f"{kafkalog.__version__}, {_commit()}, {_build()}",
        "versions": ", ".join(
            [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}", *names]
        ),
        "Java": _java(),
        "command": f"python -m pytest {' '.join(map(_no_path, sys.argv[1:]))}",
        "scale": f"{SCALE:g}",
    }


def file_system(folder: Path) -> str:
    """Type and options of the file system that holds `folder`."""
    best = ("", "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _device, point, kind, options = line.split()[:4]
        inside = folder == Path(point) or Path(point) in folder.parents
        if inside and len(point) >= len(best[0]):
            best = (point, f"{kind} ({options})")
    return best[1]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _memory_gb() -> str:
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.0f}"


def _commit() -> str:
    if shutil.which("git") is None:
        return "commit unknown"
    asked = ["git", "-C", str(ROOT)]
    head = subprocess.run([*asked, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    if head.returncode:
        return "commit unknown"
    what = [*asked, "status", "--porcelain", "--", "kafkalog"]
    changed = subprocess.run(what, capture_output=True, text=True).stdout.strip()
    return f"commit {head.stdout.strip()}{' with changes' if changed else ''}"


def _build() -> str:
    kind = ffi.string(lib.kl_crc32c_kind()).decode()
    test = ", the test build" if hasattr(lib, "kl_failpoint_set") else ""
    return f"CRC-32C by {kind}{test}"


def _java() -> str:
    if shutil.which("java") is None:
        return "none: rows that need it are missing below"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    return said.splitlines()[0] if said else "unknown"


def _no_path(argument: str) -> str:
    """Without paths of this machine, which mean nothing to a reader."""
    return re.sub(r"/\S*/", "", argument)
