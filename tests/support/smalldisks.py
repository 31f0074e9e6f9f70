"""Small separate file systems, and a file that fills them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

MIB = 1 << 20


def _mount(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{' '.join(command[:4])}: {done.stderr.strip()[:100]}")


@contextlib.contextmanager
def mounted(kind: str, folder: Path, mib: int) -> Iterator[Path]:
    """A tmpfs, or an ext4 on a loop device, of `mib` MiB; skips where mounting is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = folder / "disk"
    disk.mkdir()
    if kind == "tmpfs":
        _mount("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(disk))
    else:
        image = folder / "image"
        image.touch()
        os.truncate(image, mib * MIB)
        with open(image, "r+b") as file:  # allocated, so that only the inner one fills
            os.posix_fallocate(file.fileno(), 0, mib * MIB)
        _mount("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        _mount("mount", "-o", "loop", str(image), str(disk))
    try:
        yield disk
    finally:
        # A child that another thread just forked has our files open until it runs its program.
        wait_for(lambda: not subprocess.run(["umount", str(disk)]).returncode, f"{disk} is let go")


class Ballast:
    """A file that takes all remaining space."""

    def __init__(self, disk: Path) -> None:
        self.path = disk / "ballast"

    def fill(self) -> None:
        """ext4 frees the blocks of deleted files when its journal commits, which the sync here
        causes: space that is free only then is filled, too."""
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            took = True
            while took:
                took = False
                for size in (1 << 16, 4096, 512, 1):
                    with contextlib.suppress(OSError):
                        while os.write(fd, bytes(size)) > 0:
                            took = True
                with contextlib.suppress(OSError):
                    os.fsync(fd)
        finally:
            os.close(fd)

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)


def free_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize
