"""Wall clocks of programs, which a test sets forward and back."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


def why_not() -> str | None:
    """Why programs here have the machine's clock."""
    return None if shutil.which("cc") else "cc is not installed (package gcc)"


def library(folder: Path) -> Path:
    """What comes before a program's C library, made once in this folder."""
    made = folder / "clock.so"
    if not made.exists():
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", made, SOURCE], check=True)
    return made


class Clock:
    """Of one program: the machine's, and so much ahead of it."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._file = folder / "clock"
        self.set_ahead(0)
        before = os.environ.get("LD_PRELOAD")  # a sanitizer's run-time has to come first
        preload = f"{before}:{library}" if before else str(library)
        self.within = ("env", f"LD_PRELOAD={preload}", f"WALL_CLOCK_AHEAD={self._file}")
        """What a command begins with that has this clock."""

    def set_ahead(self, seconds: float) -> None:
        """It jumps; below 0 it is behind."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", round(seconds * 1000)))
