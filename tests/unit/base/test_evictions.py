"""A file that was written since its last sync stays open: once it were opened again, a failed
write-back would go unnoticed."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import cffi
import pytest

ROOT = Path(__file__).resolve().parents[3]
BASE = ROOT / "kafkalog/_native/base"
FIRST, SECOND = 1, 2

ffi = cffi.FFI()
ffi.cdef("""
int open_after_an_eviction(const char *, int);
int open_after_a_sync(const char *, int);
""")


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """base/ with a hook in its file.c."""
    out = tmp_path_factory.mktemp("base") / "evicting.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    sources = [one for one in sorted(BASE.glob("*.c")) if one.name != "file.c"]
    command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-shared", "-fPIC", "-g", "-pthread"]
    command += [
        f"-I{ROOT / 'kafkalog/_native'}",
        f"-I{BASE}",
        str(Path(__file__).parent / "evicting.c"),
    ]
    subprocess.run([*command, *map(str, sources), "-o", str(out)], check=True)
    return ffi.dlopen(str(out))


def test_a_file_that_is_written_as_it_is_evicted_stays_open(lib: Any, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    assert lib.open_after_an_eviction(folder, 0) == SECOND, "the first is closed first"
    assert lib.open_after_an_eviction(folder, 1) == FIRST


def test_a_synced_file_is_closed_and_one_written_since_is_not(lib: Any, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    assert lib.open_after_a_sync(folder, 0) == SECOND
    assert lib.open_after_a_sync(folder, 1) == FIRST
