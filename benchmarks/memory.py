"""Touches the memory that a round will write to, before the round.

A virtual machine gets its memory from the host page by page, and may have to give it back: the
first touch of a page costs the kernel up to 2 s a GB.  A bulk write into the page cache pays
that on each new page, which looks like a slow disk, on whichever side it hits.
"""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["made_ready"]

FACTOR = 2
"""A multiple of what is written: the page cache takes other pages than those just freed."""


def made_ready(writes: int) -> None:
    """Let what earlier rounds wrote go to disk, then touch memory for `writes` bytes.

    A separate process does that, so that its pages are free again when it ends.
    """
    if writes <= 0:
        return
    os.sync()
    size = min(FACTOR * writes, _free_bytes() // 2)
    subprocess.run([sys.executable, "-S", "-c", f"b'x' * {size}"], check=True)


def _free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
