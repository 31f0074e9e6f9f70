"""What one client's suite is, and what came of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["Found", "Outcome", "Suite", "call", "copied", "fetched", "judged"]

Outcome = Literal["passed", "failed", "skipped"]
BUILD_S, RUN_S = 1200, 2400


class Suite(NamedTuple):
    """A client's tests: how they come here, run, and what of them is known not to pass."""

    name: str
    version: str
    prepare: Callable[[Path], None]
    """Fetch and build into a folder, which is kept."""
    run: Callable[[Path, str], dict[str, Outcome]]
    """In that folder, against host:port: each test and how it ended."""
    excused: Mapping[str, str]
    """Tests that fail here, and why."""
    settings: Mapping[str, str] = {}
    """Of the broker."""
    port: int | None = None
    """Where the tests look for one, if they use a fixed port."""


class Found(NamedTuple):
    """A run compared with what was expected of it."""

    passed: int
    skipped: int
    failed: list[str]
    """As excused."""
    unexpected: list[str]
    """Failed, and nobody knew."""
    better: list[str]
    """Excused, and passed."""


def judged(suite: Suite, outcomes: Mapping[str, Outcome]) -> Found:
    failed = [name for name, outcome in outcomes.items() if outcome == "failed"]
    passed = [name for name, outcome in outcomes.items() if outcome == "passed"]
    return Found(
        len(passed),
        sum(outcome == "skipped" for outcome in outcomes.values()),
        [name for name in failed if name in suite.excused],
        [name for name in failed if name not in suite.excused],
        [name for name in passed if name in suite.excused],
    )


def call(
    command: list[str],
    folder: Path,
    seconds: float = BUILD_S,
    env: Mapping[str, str] | None = None,
    log: str = "last.log",
) -> str:
    """Run a step of a build or a test program; what it printed, which stays in a file `log`.

    Its status is not looked at: what it printed, and what it made, tell.
    """
    whole = {**os.environ, **(env or {})}
    with (folder / log).open("w+b") as output:
        subprocess.run(
            command, cwd=folder, env=whole, stdout=output, stderr=subprocess.STDOUT, timeout=seconds
        )
        output.seek(0)
        text = output.read().decode(errors="replace")
    return text


def fetched(command: list[str], folder: Path) -> Path:
    """The one archive that a registry's own tool brings, unpacked."""
    call(command, folder)
    [archive] = [*folder.glob("*.tgz"), *folder.glob("*.tar.gz")]
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    [top] = [path for path in folder.iterdir() if path.is_dir()]
    return top


def copied(source: Path, folder: Path) -> None:
    """A module's folder out of a cache that may not be written."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
