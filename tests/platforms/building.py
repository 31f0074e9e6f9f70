"""Builds of a target, each in its own copy of the checkout under build/platforms."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.platforms.targets import Target

__all__ = ["PLACE", "ROOT", "Failed", "build", "call", "pip"]

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "platforms"
ZIG = "ziglang==0.17.1"
BUILD_S = 1200


class Failed(Exception):
    """A step did not succeed; the text says which and how its output ended."""


def call(
    log: Path, command: Sequence[str | Path], cwd: Path, more: Mapping[str, str], limit_s: int
) -> None:
    """Run a command with its output in `log`.

    Raises: Failed.
    """
    with log.open("w", encoding="utf-8") as out:
        try:
            subprocess.run(
                command,
                cwd=cwd,
                env={**os.environ, **more},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=True,
                timeout=limit_s,
            )
        except (OSError, subprocess.SubprocessError) as error:
            out.flush()
            end = log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
            raise Failed("\n".join([str(error), *end])) from None


def pip(folder: Path, *arguments: str) -> None:
    """Install into a folder, unless an earlier run did.

    Raises: Failed.
    """
    if (folder / "ready").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call(folder / "pip.log", [*command, "--target", str(folder), *arguments], ROOT, {}, BUILD_S)
    (folder / "ready").touch()


def _compiler() -> Path:
    """A script that is `zig cc` for ZIG_TARGET."""
    pip(PLACE / "zig", ZIG)
    script = PLACE / "zig-cc"
    zig = PLACE / "zig" / "ziglang" / "zig"
    script.write_text(f'#!/bin/sh\nexec "{zig}" cc -target "$ZIG_TARGET" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return script


def _copy(target: Target) -> Path:
    """The files that Git knows, as they are now."""
    tree = PLACE / target.name
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def _environment(target: Target) -> dict[str, str]:
    if not target.triple:
        return {"KAFKALOG_WERROR": "1", "KAFKALOG_PORTABLE": "1"}
    zig = str(_compiler())
    undefined = " -Wl,-undefined,dynamic_lookup" if "macos" in target.triple else ""
    return {
        "KAFKALOG_WERROR": "1",
        "ZIG_TARGET": target.triple,
        "ZIG_GLOBAL_CACHE_DIR": str(PLACE / "zig-cache"),
        "CC": zig,
        "LDSHARED": f"{zig} -shared{undefined}",
        "_PYTHON_HOST_PLATFORM": target.host,
    }


def build(target: Target) -> tuple[Path, str]:
    """Its wheel and both extensions, a warning being an error: the copy, and what was built.

    Raises: Failed.
    """
    tree = _copy(target)
    environment = _environment(target)
    setup = [sys.executable, "setup.py", "--quiet"]
    if target.triple:
        wheel = [*setup, "bdist_wheel", "--plat-name", target.tag, "--dist-dir", str(PLACE)]
        call(PLACE / f"{target.name}-wheel.log", wheel, tree, environment, BUILD_S)
    tested = {**environment, "KAFKALOG_TEST_EXTENSION": "1"}
    log = PLACE / f"{target.name}-inplace.log"
    call(log, [*setup, "build_ext", "--inplace"], tree, tested, BUILD_S)
    if not target.triple:
        return tree, "both extensions"
    if not list(PLACE.glob(f"kafkalog-*-{target.tag}.whl")):
        raise Failed(f"no wheel has the tag {target.tag}")
    return tree, f"a wheel `{target.tag}`, and the extension for tests"
