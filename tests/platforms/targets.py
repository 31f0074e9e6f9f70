"""The targets of `make platforms`, and the table of docs/platforms.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PORTABLE", "RESULTS", "TARGETS", "Target", "emulated", "render_markdown"]

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "platforms.json"
"""The last result of each target, by name: "date", and the texts "built" and "ran"."""


class Target(NamedTuple):
    """A system that wheels are built for with `zig cc`, or a form that is built with the system's
    own compiler."""

    name: str
    title: str
    triple: str = ""
    """The target of `zig cc`; empty: the portable form, here."""
    host: str = ""
    """The platform as sysconfig names it there."""
    tag: str = ""
    """The platform tag of the wheel."""
    tests: Sequence[str] = ()
    """Run with what was built, under tests/."""
    why_not: str = ""
    """Why no test runs."""


PORTABLE = Target(
    "portable",
    "the form for systems other than Linux, on Linux",
    tests=(
        *(f"unit/{name}" for name in ("base", "batch", "log", "disk", "directory", "net", "plane")),
        *(f"unit/{name}" for name in ("client", "server", "cluster")),
        "damage",
        "hostile",
    ),
)
NO_MAC = "nothing here runs macOS"
NO_MUSL = "Debian has no Python for musl"
TARGETS = (
    PORTABLE,
    Target(
        "macos-arm64",
        "macOS 11 and later, arm64",
        "aarch64-macos.11.0",
        "macosx-11.0-arm64",
        "macosx_11_0_arm64",
        why_not=NO_MAC,
    ),
    Target(
        "macos-x86-64",
        "macOS 11 and later, x86-64",
        "x86_64-macos.11.0",
        "macosx-11.0-x86_64",
        "macosx_11_0_x86_64",
        why_not=NO_MAC,
    ),
    Target(
        "manylinux-aarch64",
        "Linux with glibc 2.28 and later, aarch64, emulated by qemu",
        "aarch64-linux-gnu.2.28",
        "linux-aarch64",
        "manylinux_2_28_aarch64",
        # Sums, files, processes and threads that share a log, a broker, a client.  No state pages:
        # qemu shows a process another time of its own start than others see.
        tests=(
            "unit/base",
            "unit/batch/test_format.py",
            "unit/log/test_append.py",
            "unit/log/test_concurrent_searches.py",
            "unit/log/test_readers.py",
            "unit/log/test_recovery_point.py",
            "unit/plane/test_produce.py",
            "unit/plane/test_races.py",
            "unit/server/test_restart.py",
            "unit/client/consumer/test_consumer.py",
        ),
    ),
    Target(
        "musllinux-aarch64",
        "Linux with musl 1.2 and later, aarch64",
        "aarch64-linux-musl",
        "linux-aarch64",
        "musllinux_1_2_aarch64",
        why_not=NO_MUSL,
    ),
    Target(
        "musllinux-x86-64",
        "Linux with musl 1.2 and later, x86-64",
        "x86_64-linux-musl",
        "linux-x86_64",
        "musllinux_1_2_x86_64",
        why_not=NO_MUSL,
    ),
)


def emulated(target: Target) -> bool:
    """True if its tests run under qemu."""
    return bool(target.triple and target.tests)


def render_markdown(results: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The table of all targets with their last results."""
    if results is None:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = ["| Target | Built | Tests | Last tried |", "|---|---|---|---|"]
    for target in TARGETS:
        found = results.get(target.name, {})
        cells = (found.get("built", "not tried"), found.get("ran", target.why_not or "not run"))
        title = f"`{target.name}`: {target.title}"
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {found.get('date', '')} |")
    return "\n".join(lines) + "\n"
