"""What tests prepare once and keep: what is compiled, and classes as a JVM has them in memory."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from zipfile import ZipFile

__all__ = ["QUICK", "Archive", "Unavailable", "compiled", "kept", "made_of", "program"]

COMPILE_S = 300
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
"""Of a JVM that is started often and briefly: the simple compiler and collector start fastest."""


class Unavailable(Exception):
    """Why Java, or what is to run on it, cannot run here; a test skips with it."""


def program(name: str) -> str:
    """The path of a program of Java's.

    Raises: Unavailable.
    """
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name}: install a Java 17 JDK")
    return found


def kept() -> Path:
    """The folder of what is fetched and compiled for tests."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "kafkalog"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def made_of(
    name: str, sources: Sequence[Path], make: Callable[[Path], None], more: str = ""
) -> Path:
    """The folder with what `make` made of sources; once for as long as they do not change.

    `more`: what else it depends on.
    """
    digest = hashlib.sha256(more.encode())
    for path in sources:
        digest.update(path.read_bytes())
    made = kept() / f"{name}-{digest.hexdigest()[:16]}"
    if not made.is_dir():
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent) as fresh:
            target = Path(fresh) / "made"
            target.mkdir()
            make(target)
            if not made.is_dir():
                os.rename(target, made)
    return made


def compiled(name: str, sources: Sequence[Path], jars: Path) -> Path:
    """The jar with the classes of `.java` files, which use a folder's jars.

    A jar, as the archive of a JVM's classes takes no folder.  Raises: Unavailable.
    """

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as classes:
            command = [program("javac"), "-nowarn", "-d", classes, "-cp", f"{jars}/*"]
            done = subprocess.run(
                [*command, *map(str, sources)], capture_output=True, text=True, timeout=COMPILE_S
            )
            if done.returncode:
                raise Unavailable(f"javac cannot compile {name}: {done.stderr[-500:]}")
            with ZipFile(folder / "classes.jar", "w") as jar:
                for path in sorted(Path(classes).rglob("*.class")):
                    jar.write(path, str(path.relative_to(classes)))

    return made_of(name, sources, make, str(jars)) / "classes.jar"


@cache
def _version() -> str:
    """What the archives of a Java depend on."""
    found = Path(program("java")).resolve()
    return f"{zlib.crc32(f'{found} {found.stat().st_mtime_ns}'.encode()):08x}"


class Archive:
    """A program's classes as the JVM has them in memory: a start with them takes half of the
    processor time.  The first start that ends in order writes it."""

    def __init__(self, folder: Path, name: str) -> None:
        """`folder`: of the program's jars."""
        self._path = folder / f"{name}-{_version()}.jsa"
        self._fresh: Path | None = None  # what the end of the present start writes

    def within(self, command: Sequence[str]) -> list[str]:
        """What to start instead of a command of Java."""
        if self._path.exists():
            self._fresh = None
            how = f"-XX:SharedArchiveFile={self._path}"
        else:
            self._fresh = self._path.with_suffix(f".{secrets.token_hex(4)}")
            how = f"-XX:ArchiveClassesAtExit={self._fresh}"
        return [command[0], how, "-Xlog:disable", *command[1:]]

    @property
    def wanted(self) -> bool:
        """Whether the present start should end in order."""
        return self._fresh is not None

    def ended(self) -> None:
        """Keep what the end of the present start wrote."""
        if self._fresh is not None and self._fresh.exists():
            self._fresh.replace(self._path)
        self._fresh = None
