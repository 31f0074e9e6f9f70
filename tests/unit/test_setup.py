"""setup.py builds where kafkalog runs, and elsewhere says what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# One process for all cases, as setuptools takes a while to load and changes the one it is in.
PROGRAM = """
import json, runpy, sys, sysconfig, types
import setuptools
setuptools.setup = lambda **keywords: None
before = sys.platform, sys.byteorder, sys.maxsize, sys.implementation
said = {}
for name, case in json.loads(sys.argv[1]).items():
    sys.platform, sys.byteorder, sys.maxsize, sys.implementation = before
    get_platform = sysconfig.get_platform
    for key, value in case.items():
        if key == "get_platform":
            sysconfig.get_platform = lambda: value
        elif key == "implementation":
            sys.implementation = types.SimpleNamespace(name=value)
        else:
            setattr(sys, key, value)
    try:
        runpy.run_path("setup.py", run_name="__main__")
        said[name] = ""
    except SystemExit as refusal:
        said[name] = str(refusal)
    sysconfig.get_platform = get_platform
print(json.dumps(said))
"""
CASES: dict[str, tuple[dict[str, object], str]] = {
    "here": ({}, ""),
    "macos": ({"platform": "darwin", "get_platform": "macosx-11.0-arm64"}, ""),
    "aarch64": ({"get_platform": "linux-aarch64"}, ""),
    "windows": ({"platform": "win32", "get_platform": "win-amd64"}, "does not run on Windows"),
    "cygwin": ({"platform": "cygwin", "get_platform": "cygwin-3"}, "does not run on Windows"),
    "freebsd": ({"get_platform": "freebsd-14.0"}, "Linux and macOS: this is freebsd-14.0"),
    "big-endian": ({"byteorder": "big"}, "little-endian machines only"),
    "32 bits": ({"maxsize": 2**31 - 1}, "64-bit machines only"),
    "pypy": ({"implementation": "pypy"}, "CPython only: this is pypy"),
}


@pytest.fixture(scope="module")
def said() -> Mapping[str, str]:
    """The message of each case; empty if setup.py went on."""
    cases = json.dumps({name: case for name, (case, _) in CASES.items()})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, cases], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: Mapping[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_system_is_built_for_or_refused_by_name(said: Mapping[str, str], name: str) -> None:
    wanted = CASES[name][1]
    assert (wanted in said[name]) if wanted else said[name] == ""
