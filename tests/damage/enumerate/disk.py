"""A disk in memory: replays recorded system calls, and computes what a power cut may leave.

A change is pending until a sync makes it durable: an fdatasync or fsync those of its file, an
fsync of a directory those of its names, a syncfs all.  A power cut keeps any subset of the
pending changes, and any part of a write.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.damage.enumerate.trace import Step
from tests.support.effort import EXPLORING, LONG

SECTOR_BYTES = 512
SMALL_BYTES = 200  # a write below this is torn at every byte, or when not exploring at one in
EVERY = 1 if EXPLORING or LONG else 5
ALL = -1  # instead of an inode
KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE

Files = dict[str, bytes]
"""Path below the root to content; a directory's path ends with a slash."""


class Names(NamedTuple):
    """Entries of directories that change together."""

    step: int
    entries: tuple[tuple[int, str, int | None], ...]  # directory, name, inode or none


class Data(NamedTuple):
    """Bytes written into a file."""

    step: int
    inode: int
    offset: int
    data: bytes


class Size(NamedTuple):
    """A change of a file's size; `grow`: never smaller."""

    step: int
    inode: int
    bytes: int
    grow: bool = False


Change = Names | Data | Size


class Part(NamedTuple):
    """The part of a Data that is kept: its bytes [first, last); `whole`: with zeros elsewhere."""

    first: int
    last: int
    whole: bool


Form = bool | Part
"""The state of one pending change after a cut: all, nothing, or a part of its data."""


def parts(change: Change, fine: bool = True) -> Iterator[Part]:
    """The ways in which a write may be torn: its head, its head or tail among zeros, zeros.

    It is torn at sectors, and a small one at each byte; without `fine` at its ends and its middle.
    """
    if not isinstance(change, Data):
        return
    size = len(change.data)
    if not fine:
        points: Iterable[int] = sorted({1, size // 2, size - 1} - {0, size})
    elif size < SMALL_BYTES:
        points = sorted({*range(1, size, EVERY), size - 1})
    else:
        points = range(SECTOR_BYTES - change.offset % SECTOR_BYTES, size, SECTOR_BYTES)
    yield Part(0, 0, True)
    for point in points:
        yield Part(0, point, False)
        yield Part(0, point, True)
        yield Part(point, size, True)


class Disk:
    """The state after some steps: the durable part, and the changes pending on top of it."""

    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root)
        self.live: dict[tuple[int, str], int] = {}  # as the processes see it
        self.names: dict[tuple[int, str], int] = {}  # as it is on disk
        self.files: dict[int, bytes] = {}  # as they are on disk
        self.directories = {0}
        self.pending: list[Change] = []
        self._inodes = 0

    def load(self, files: Files) -> None:
        """Start with an image, all of it durable."""
        for path in sorted(files):  # a folder before what is in it
            self._inodes += 1
            if path.endswith("/"):
                self.directories.add(self._inodes)
            else:
                self.files[self._inodes] = files[path]
            place = self._place(f"{self.root}/{path.rstrip('/')}")
            self.live[place] = self.names[place] = self._inodes

    # ---- replay ------------------------------------------------------------------------------

    def replay(self, step: Step) -> bool:
        """Apply one call; returns whether it changed anything here."""
        if step.mark or step.result < 0 or not self._mine(step.path):
            return False
        takes: Callable[[Step], bool] | None = getattr(self, f"_{step.op}", None)
        assert takes is not None, f"the disk cannot replay {step.op}"
        return takes(step)

    def _mine(self, path: str) -> bool:
        """True if it is on this disk; lock files do not matter after a crash."""
        inside = path == self.root or path.startswith(self.root + "/")
        return inside and not path.endswith("/.lock")

    def _place(self, path: str) -> tuple[int, str]:
        """Directory and name of a path."""
        directory = 0
        *above, name = path[len(self.root) + 1 :].split("/")
        for part in above:
            directory = self.live[directory, part]
        return directory, name

    def _find(self, path: str) -> int | None:
        if path == self.root:
            return 0
        found = self.live.get(self._place(path))
        assert found is not None or path.endswith(" (deleted)"), f"{path} is not on the disk"
        return found

    def _change(self, change: Change) -> bool:
        self.pending.append(change)
        return True

    def _name(self, step: int, *entries: tuple[tuple[int, str], int | None]) -> bool:
        for place, inode in entries:
            if inode is None:
                self.live.pop(place, None)
            else:
                self.live[place] = inode
        return self._change(Names(step, tuple((*place, inode) for place, inode in entries)))

    def _new(self, step: Step) -> bool:
        self._inodes += 1
        return self._name(step.number, (self._place(step.path), self._inodes))

    def _openat(self, step: Step) -> bool:
        inode = self.live.get(self._place(step.path))
        if inode is None:
            made = self._new(step)
            self.files[self._inodes] = b""
            return made
        return bool(step.flags & os.O_TRUNC) and self._change(Size(step.number, inode, 0))

    def _mkdirat(self, step: Step) -> bool:
        made = self._new(step)
        self.directories.add(self._inodes)
        return made

    def _pwrite(self, step: Step) -> bool:
        inode = self._find(step.path)
        return inode is not None and self._change(Data(step.number, inode, step.offset, step.data))

    _copy_file_range = _pwrite

    def _ftruncate(self, step: Step) -> bool:
        inode = self._find(step.path)
        return inode is not None and self._change(Size(step.number, inode, step.bytes))

    def _fallocate(self, step: Step) -> bool:
        inode = self._find(step.path)
        if inode is None or step.flags & KEEP_SIZE:
            return False
        return self._change(Size(step.number, inode, step.offset + step.bytes, grow=True))

    def _futimens(self, step: Step) -> bool:
        return False

    def _renameat(self, step: Step) -> bool:
        inode = self._find(step.path)
        return self._name(step.number, (self._place(step.path), None),
                          (self._place(step.to), inode))  # fmt: skip

    def _unlinkat(self, step: Step) -> bool:
        return self._name(step.number, (self._place(step.path), None))

    def _fsync(self, step: Step) -> bool:
        return self._sync(step, self._find(step.path))

    _fdatasync = _fsync

    def _syncfs(self, step: Step) -> bool:
        return self._sync(step, ALL)

    def _sync(self, step: Step, inode: int | None) -> bool:
        keep: list[Change] = []
        for change in self.pending:
            if inode == ALL:
                mine = True
            elif isinstance(change, Names):
                mine = any(directory == inode for directory, _, _ in change.entries)
            else:
                mine = change.inode == inode
            if mine and change.step < step.covers:
                self._settle(change, self.names, self.files)
            else:
                keep.append(change)
        changed = len(keep) < len(self.pending)
        self.pending = keep
        return changed

    # ---- what a cut leaves -------------------------------------------------------------------

    @staticmethod
    def _settle(
        change: Change,
        names: dict[tuple[int, str], int],
        files: dict[int, bytes],
        form: Form = True,
    ) -> None:
        if isinstance(change, Names):
            moved = change.entries[-1][2]
            for directory, name, inode in change.entries:
                if inode is not None:
                    names[directory, name] = inode
                # If another file has the old name by now, the rename does not remove it.
                elif moved is None or names.get((directory, name)) == moved:
                    names.pop((directory, name), None)
            return
        content = files[change.inode]
        if isinstance(change, Size):
            if not change.grow or len(content) < change.bytes:
                content = content[: change.bytes].ljust(change.bytes, b"\0")
        else:
            data, offset = change.data, change.offset
            if isinstance(form, Part):
                zeros = b"\0" * len(data)
                data = zeros[: form.first] + data[form.first : form.last]
                if form.whole:
                    data += zeros[form.last :]
            head = content[:offset].ljust(offset, b"\0")
            content = head + data + content[offset + len(data) :]
        files[change.inode] = content

    def image(self, forms: Sequence[Form]) -> Files:
        """The files after a cut that leaves of each pending change what `forms` says."""
        names, files = dict(self.names), dict(self.files)
        for change, form in zip(self.pending, forms, strict=True):
            if form is not False:
                self._settle(change, names, files, form)
        found: Files = {}
        self._list(0, "", names, files, found)
        return found

    def _list(
        self,
        directory: int,
        prefix: str,
        names: dict[tuple[int, str], int],
        files: dict[int, bytes],
        found: Files,
    ) -> None:
        for (parent, name), inode in names.items():
            if parent != directory:
                continue
            if inode in self.directories:
                found[f"{prefix}{name}/"] = b""
                self._list(inode, f"{prefix}{name}/", names, files, found)
            else:
                found[prefix + name] = files[inode]


def digest(files: Files) -> int:
    """A hash that tells images apart."""
    return hash(frozenset(files.items()))


class Folder:
    """A folder in memory that holds one image after another; only differences are written."""

    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root)
        self._known: dict[str, tuple[int, int, bytes]] = {}  # inode, size, content

    def _entries(self, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
        for entry in os.scandir(f"{self.root}/{below}"):
            if entry.is_dir():
                yield f"{below}{entry.name}/", entry
                yield from self._entries(f"{below}{entry.name}/")
            elif entry.name != ".lock":
                yield below + entry.name, entry

    def _same(self, path: str, entry: os.DirEntry[str]) -> bool:
        """True if a file is the one last written or read: recovery replaces a file or changes its
        size."""
        found = entry.stat()
        return self._known.get(path, (0, 0))[:2] == (found.st_ino, found.st_size)

    def put(self, files: Files) -> None:
        """Make it hold this image and nothing else."""
        there = set()
        for path, entry in list(self._entries()):
            if not os.path.exists(entry.path):
                continue  # gone with its folder
            if path.endswith("/"):
                if path not in files:
                    shutil.rmtree(entry.path)
            elif self._same(path, entry) and files.get(path) == self._known[path][2]:
                there.add(path)
            else:
                os.unlink(entry.path)
        for path in sorted(files):  # a folder before what is in it
            if path.endswith("/"):
                os.makedirs(f"{self.root}/{path}", 0o700, exist_ok=True)
            elif path not in there:
                fd = os.open(f"{self.root}/{path}", os.O_WRONLY | os.O_CREAT, 0o600)
                os.write(fd, files[path])
                self._known[path] = os.fstat(fd).st_ino, len(files[path]), files[path]
                os.close(fd)

    def read(self) -> Files:
        """Its present content."""
        found: Files = {}
        for path, entry in self._entries():
            if path.endswith("/"):
                found[path] = b""
                continue
            if not self._same(path, entry):
                content = Path(entry.path).read_bytes()
                self._known[path] = entry.inode(), len(content), content
            found[path] = self._known[path][2]
        return found
