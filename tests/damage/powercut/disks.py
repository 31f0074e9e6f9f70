"""Real file systems in image files, whose power can be cut."""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

FS_IOC_SHUTDOWN = 0x8004587D
# The file system's own log after the cut: its records so far, or only those that a sync wrote.
LOG_KEPT, LOG_LOST = 1, 2

MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
PACKAGE = {"ext4": "e2fsprogs", "xfs": "xfsprogs"}
IMAGE_BYTES = {"ext4": 64 << 20, "xfs": 320 << 20}  # sparse; xfs needs at least 300 MiB

THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device")


def why_not(kind: str) -> str | None:
    """Why this machine cannot have such a disk."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if shutil.which(MKFS[kind][0]) is None:
        return f"{MKFS[kind][0]} is not installed (package {PACKAGE[kind]})"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices"
    return None


def why_not_slow() -> str | None:
    """Why disks here cannot be slowed down."""
    return None if os.access(THROTTLE, os.W_OK) else f"there is no {THROTTLE} (cgroups of v1)"


class Disk:
    """A file system in a file, mounted."""

    def __init__(
        self, kind: str, place: Path, wait_until: Callable[..., None], size: int | None = None
    ) -> None:
        self.root = place / "mounted"
        self._image = place / "image"
        self._wait_until = wait_until
        self.is_mounted = False
        self.root.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(size or IMAGE_BYTES[kind])
        _run(*MKFS[kind], str(self._image))

    def mount(self) -> None:
        """Mount it; after a cut this reads its log back.

        Raises: RuntimeError, with the tool's output.
        """
        _run("mount", "-o", "loop", str(self._image), str(self.root))
        self.is_mounted = True

    def cut(self, flag: int) -> None:
        """Let nothing reach the disk from now on, and every call fail."""
        fd = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(fd)

    def slow(self, writes: int | None) -> None:
        """Limit the disk to this many writes a second, so that syncs wait; None lifts the limit.
        Raises: OSError, where the kernel cannot (`why_not_slow`)."""
        device = os.stat(self.root).st_dev
        THROTTLE.write_text(f"{os.major(device)}:{os.minor(device)} {writes or 0}")

    def unmount(self) -> None:
        """Unmount as soon as no process has a file open; harmless when repeated."""
        if self.is_mounted:
            self._wait_until(self._let_go, f"{self.root} is not in use")
            self.is_mounted = False

    def _let_go(self) -> bool:
        done = subprocess.run(["umount", self.root], capture_output=True, text=True)
        if done.returncode and "busy" not in done.stderr:
            raise OSError(errno.EIO, done.stderr)
        return done.returncode == 0


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
