"""lookups.c, compiled when a benchmark needs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import cffi

import kafkalog
from kafkalog._native import ffi, lib

__all__ = ["by_offset", "by_time", "compiler", "pread"]

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parent / "kafkalog" / "_native"
DECLARED = """
double lookups_by_time(void *, void *, const int64_t *, size_t);
double lookups_by_offset(void *, void *, void *, const int64_t *, size_t, size_t);
double lookups_pread(const int *, const int64_t *, size_t, size_t);
"""


def compiler() -> str | None:
    """The C compiler of this machine, if there is one."""
    return shutil.which(os.environ.get("CC", "cc"))


@lru_cache(maxsize=1)
def _loops() -> Any:
    """(ffi, library); the file is unlinked as soon as it is loaded."""
    own = cffi.FFI()
    own.cdef(DECLARED)
    with tempfile.TemporaryDirectory(prefix="kafkalog-bench-") as folder:
        made = Path(folder) / "lookups.so"
        command = [compiler() or "cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC"]
        subprocess.run(
            [*command, f"-I{NATIVE}", str(HERE / "lookups.c"), "-o", str(made)], check=True
        )
        return own, own.dlopen(str(made))


def _pointer(thing: Any) -> Any:
    own, _ = _loops()
    return own.cast("void *", int(ffi.cast("uintptr_t", thing)))


def by_time(log: kafkalog.Log, wanted: Any) -> float:
    """Seconds in C to find each of `wanted`, an int64 array of times that are also offsets."""
    own, loops = _loops()
    find = _pointer(ffi.addressof(lib, "kl_log_find_time"))
    numbers = own.from_buffer("int64_t[]", wanted)
    taken_s = float(loops.lookups_by_time(find, _pointer(log._c), numbers, len(wanted)))
    assert taken_s >= 0, "a lookup by time failed"
    return taken_s


def by_offset(log: kafkalog.Log, wanted: Any, batch_bytes: int) -> float:
    """Seconds in C to find the batch of each of `wanted`, an int64 array of offsets."""
    own, loops = _loops()
    find, drop = (_pointer(ffi.addressof(lib, name)) for name in ("kl_log_slice", "kl_slice_drop"))
    numbers = own.from_buffer("int64_t[]", wanted)
    log_pointer = _pointer(log._c)
    taken_s = float(
        loops.lookups_by_offset(find, drop, log_pointer, numbers, len(wanted), batch_bytes)
    )
    assert taken_s >= 0, "a lookup by offset failed"
    return taken_s


def pread(fds: Any, positions: Any, size: int) -> float:
    """Seconds in C for reads of `size` bytes: `fds` int32, `positions` int64, one each."""
    own, loops = _loops()
    files, places = own.from_buffer("int[]", fds), own.from_buffer("int64_t[]", positions)
    taken_s = float(loops.lookups_pread(files, places, len(positions), size))
    assert taken_s >= 0, "a pread failed"
    return taken_s
