"""Files that tests prepare once and keep: compiled programs, and archives of a JVM's classes."""

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
"""For a JVM that is started often and briefly: the simple compiler and collector start fastest."""


class Unavailable(Exception):
    """Why Java, or a program for it, cannot run here; a test skips with this reason."""


def program(name: str) -> str:
    """The path of one of Java's programs.

    Raises: Unavailable.
    """
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name}: install a Java 17 JDK")
    return found


def kept() -> Path:
    """The folder of files that are fetched and compiled for tests."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "kafkalog"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def made_of(
    name: str, sources: Sequence[Path], make: Callable[[Path], None], more: str = ""
) -> Path:
    """The folder with the output of `make` for these sources; it is reused until they change.

    `more`: other inputs that it depends on.
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

    It is a jar because the archive of a JVM's classes takes no folder.  Raises: Unavailable.
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
    """The version of Java, on which the archives depend."""
    found = Path(program("java")).resolve()
    return f"{zlib.crc32(f'{found} {found.stat().st_mtime_ns}'.encode()):08x}"


class Archive:
    """A program's classes as the JVM has them in memory: starting with them takes half the
    processor time.  The first start that ends in an orderly way writes it."""

    def __init__(self, folder: Path, name: str) -> None:
        """`folder`: of the program's jars."""
        self._path = folder / f"{name}-{_version()}.jsa"
        self._fresh: Path | None = None  # written when the present start ends

    def within(self, command: Sequence[str]) -> list[str]:
        """The command to start instead of a Java command."""
        if self._path.exists():
            self._fresh = None
            how = f"-XX:SharedArchiveFile={self._path}"
        else:
            self._fresh = self._path.with_suffix(f".{secrets.token_hex(4)}")
            how = f"-XX:ArchiveClassesAtExit={self._fresh}"
        return [command[0], how, "-Xlog:disable", *command[1:]]

    @property
    def wanted(self) -> bool:
        """True if the present start should end in an orderly way, to write the archive."""
        return self._fresh is not None

    def ended(self) -> None:
        """Keep the archive that the present start wrote at its end."""
        if self._fresh is not None and self._fresh.exists():
            self._fresh.replace(self._path)
        self._fresh = None
