"""An interpreter for aarch64 under qemu, made of Debian's packages; nothing of the system changes.

Debian 12's names.  Processes that tests start are emulated, too, as `sys.executable` is the script
that starts the emulator.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.platforms.building import BUILD_S, PLACE, Failed, call, pip

__all__ = ["interpreter"]

EMULATOR = "qemu-aarch64-static"
DEBS = [
    "python3.11",
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "zlib1g",
    "libexpat1",
    "libffi8",
    "libssl3",
    "libbz2-1.0",
    "liblzma5",
    "libsqlite3-0",
    "libreadline8",
    "libtinfo6",
    "libncursesw6",
    "libuuid1",
    "libcrypt1",
]
PACKAGES = [
    "cffi",
    "cramjam",
    "crc32c",
    "cryptography",
    "hypothesis",
    "lz4",
    "numpy",
    "prometheus-client",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "trustme",
    "zstandard",
]


def _missing() -> str:
    """The commands that are needed first; empty: none."""
    if shutil.which(EMULATOR) is None:
        return f"{EMULATOR} is missing: apt-get install qemu-user-static"
    if shutil.which("dpkg") is None:
        return "Debian's packages are needed, and this is no Debian system"
    foreign = subprocess.run(
        ["dpkg", "--print-foreign-architectures"], capture_output=True, text=True, check=True
    ).stdout.split()
    if "arm64" not in foreign:
        return "apt does not know arm64: dpkg --add-architecture arm64; apt-get update"
    return ""


def _root() -> Path:
    """The unpacked packages; kept."""
    root, debs = PLACE / "arm64", PLACE / "debs"
    if (root / "ready").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    debs.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}:arm64" for name in DEBS]
    call(PLACE / "debs.log", ["apt-get", "download", *wanted], debs, {}, BUILD_S)
    for deb in sorted(debs.glob("*.deb")):
        call(PLACE / "debs.log", ["dpkg", "-x", deb, root], debs, {}, BUILD_S)
    packages = root / "usr" / "lib" / "python3" / "dist-packages"
    only = ["--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"]
    places = [f"--platform={name}_aarch64" for name in ("manylinux2014", "manylinux_2_28")]
    pip(packages, *only, *places, *PACKAGES)
    (root / "ready").touch()
    return root


def interpreter() -> Path:
    """A script that starts the emulated Python.

    Raises: Failed, with the commands that are needed first.
    """
    if missing := _missing():
        raise Failed(missing)
    root = _root()
    script = PLACE / "python-arm64"
    script.write_text(
        "#!/bin/sh\n"
        f'export KAFKALOG_EMULATED="{script}"\n'
        f'exec {EMULATOR} -L "{root}" "{root}/usr/bin/python3.11" "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    # A line of a .pth file, as Debian has a sitecustomize of its own.
    hook = root / "usr" / "lib" / "python3" / "dist-packages" / "emulated.pth"
    hook.write_text(
        'import os, sys; sys.executable = os.environ.get("KAFKALOG_EMULATED", sys.executable)\n',
        encoding="utf-8",
    )
    version = subprocess.run([script, "-c", "import numpy"], capture_output=True, text=True)
    if version.returncode:
        raise Failed(f"the emulated Python does not start: {version.stderr}")
    return script


if __name__ == "__main__":
    print(interpreter(), file=sys.stdout)
