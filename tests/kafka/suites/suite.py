"""A client's suite, and the result of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["Found", "Outcome", "Place", "Suite", "call", "copied", "fetched", "judged"]

Outcome = Literal["passed", "failed", "skipped"]
BUILD_S, RUN_S = 1200, 2400


class Place(NamedTuple):
    """The broker that a suite is run against."""

    bootstrap: str
    """host:port of its listener without security."""
    at: Mapping[str, str]
    """host:port of each listener, by its security protocol."""
    authority: Path
    """The certificate of the authority that signed the broker's."""
    client: Path
    """Key and certificate of a client, signed by the same."""
    side: str
    """Its kind, see `SIDES` in tests/kafka/clients/servers.py."""


class Suite(NamedTuple):
    """A client's tests: how to fetch and run them, and which are known to fail."""

    name: str
    version: str
    prepare: Callable[[Path], None]
    """Fetch and build into a folder, which is kept."""
    run: Callable[[Path, Place, str | None], dict[str, Outcome]]
    """Run in that folder, against a broker, all tests or the one of that name: their results."""
    excused: Mapping[str, str]
    """Tests that fail here, and why."""
    settings: Mapping[str, str] = {}
    """Settings of the broker."""
    port: int | None = None
    """The broker's port, if the tests use a fixed one."""
    listeners: Mapping[str, int | None] = {}
    """More listeners, by security protocol; each with its port, if the tests use a fixed one."""
    plain: Mapping[str, str] = {}
    """The passwords of the users of SASL/PLAIN."""
    scram: Sequence[tuple[str, str, str]] = ()
    """User, mechanism and password of each SCRAM credential."""


class Found(NamedTuple):
    """A run compared with its expected results."""

    passed: int
    skipped: int
    failed: list[str]
    """Failed, as excused."""
    unexpected: list[str]
    """Failed unexpectedly."""
    better: list[str]
    """Excused, but passed."""


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
    """Run a step of a build or a test program; returns its output, which is kept in a file `log`.

    Its status is ignored: its output and its files show the result.
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
    """Fetch and unpack the only archive that a registry's own tool downloads."""
    call(command, folder)
    [archive] = [*folder.glob("*.tgz"), *folder.glob("*.tar.gz")]
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    [top] = [path for path in folder.iterdir() if path.is_dir()]
    return top


def copied(source: Path, folder: Path) -> None:
    """Copy a module's folder out of a read-only cache."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
