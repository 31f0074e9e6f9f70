"""The suites of examples/testing run, each with its language's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.clients import programs
from tests.support import prepared

LIMIT_S = 280
QUICK = " ".join(prepared.QUICK)
"""Maven, the compiler and the tests run for a few seconds each."""
Suite = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def suite(root: Path, tmp_path: Path) -> Suite:
    """`suite(language, *command, **environment)`: a command in a copy of its folder."""

    def run(language: str, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        if shutil.which(command[0]) is None:
            pytest.skip(f"no {command[0]} on this machine")
        folder = tmp_path / language
        shutil.copytree(root / "examples" / "testing" / language, folder)
        kafkalog = {"KAFKALOG": f"{sys.executable} -m kafkalog", "PYTHONPATH": str(root)}
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
            env={**os.environ, **kafkalog, **environment},
        )  # fmt: skip

    return run


@pytest.mark.long
@pytest.mark.timeout(300)
def test_go(suite: Suite) -> None:
    done = suite("go", "go", "test", "-v", "./...")
    if "dial tcp" in done.stderr or "no such host" in done.stderr:
        pytest.skip(f"Go could not fetch the modules: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("--- PASS") == 2


@pytest.mark.long
@pytest.mark.timeout(300)
def test_node(suite: Suite) -> None:
    try:
        modules = Path(programs.command("kafkajs")[1]).parent / "node_modules"
    except programs.Unavailable as reason:
        pytest.skip(str(reason))
    done = suite("node", "node", "--test", NODE_PATH=str(modules))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 2" in done.stdout


@pytest.mark.long
@pytest.mark.java
@pytest.mark.timeout(300)
def test_java(suite: Suite) -> None:
    done = suite("java", "mvn", "-B", "test", JAVA_TOOL_OPTIONS=QUICK)
    if "Could not transfer artifact" in done.stdout:
        pytest.skip(f"Maven could not fetch its packages: {done.stdout[-300:]}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "Tests run: 2, Failures: 0, Errors: 0" in done.stdout
