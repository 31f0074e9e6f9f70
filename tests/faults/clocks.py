"""Wall clocks of programs, which a test sets forward and back."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


def why_not() -> str | None:
    """Why programs here can only have the machine's clock."""
    return None if shutil.which("cc") else "cc is not installed (package gcc)"


def library(folder: Path) -> Path:
    """The library to load before a program's C library, built once in this folder."""
    made = folder / "clock.so"
    if not made.exists():
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", made, SOURCE], check=True)
    return made


class Clock:
    """One program's clock: the machine's clock plus an offset."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._file = folder / "clock"
        self.set_ahead(0)
        before = os.environ.get("LD_PRELOAD")  # a sanitizer's run-time must come first
        preload = f"{before}:{library}" if before else str(library)
        self.within = ("env", f"LD_PRELOAD={preload}", f"WALL_CLOCK_AHEAD={self._file}")
        """The beginning of a command that gets this clock."""

    def set_ahead(self, seconds: float) -> None:
        """Let the clock jump; below 0 it is behind."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", round(seconds * 1000)))
