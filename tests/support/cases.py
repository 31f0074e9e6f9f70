"""The data directories that Apache Kafka wrote, packed into the project: unpacked once, here.

`tests/kafka/golden/cases` holds one archive a case (its README lists their contents).  They are
unpacked under build/ on first use, into a folder named after their bytes: changed archives are
unpacked again, and a folder that exists is complete.  Nothing writes to it.

KAFKALOG_SHARED names a folder whose data/kafka is used instead: another set of the same kind, with
other seeds and names.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import zstandard

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "tests" / "kafka" / "golden" / "cases"
BUILD = ROOT / "build" / "golden"
PACKED_AT = 1_767_225_600
"""The modification time of every file in an archive: 2026-01-01, so that the archive's bytes depend
on the files only."""
LEVEL = 19


@lru_cache(maxsize=1)
def folder() -> Path:
    """The folder of cases."""
    if given := os.environ.get("KAFKALOG_SHARED"):
        found = Path(given) / "data" / "kafka"
        if not found.is_dir():
            raise FileNotFoundError(f"KAFKALOG_SHARED={given}: there is no {found}")
        return found
    archives = sorted(ARCHIVES.glob("*.tar.zst"))
    digest = hashlib.sha256()
    for archive in archives:
        digest.update(archive.name.encode() + archive.read_bytes())
    target = BUILD / digest.hexdigest()[:16]
    if not target.is_dir():
        BUILD.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=BUILD))
        for archive in archives:
            unpack(archive, fresh)
        try:
            fresh.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return target


def members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The members of an archive, with the bytes of files."""
    data = zstandard.ZstdDecompressor().stream_reader(archive.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        for member in packed:
            file = packed.extractfile(member)
            yield member, file.read() if file else b""


def unpack(archive: Path, target: Path) -> None:
    """Unpack read-only files; their owner may remove the folders."""
    for member, data in members(archive):
        path = target / member.name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o444)
            os.utime(path, (PACKED_AT, PACKED_AT))


def pack(case: Path, archive: Path) -> None:
    """Make a case's archive; the same files give the same bytes with the same zstandard."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as packed:
        for path in (case, *sorted(case.rglob("*"))):
            member = packed.gettarinfo(path, str(path.relative_to(case.parent)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.mode = PACKED_AT, 0o755 if path.is_dir() else 0o444
            with path.open("rb") if path.is_file() else io.BytesIO() as file:
                packed.addfile(member, file)
    archive.write_bytes(zstandard.ZstdCompressor(level=LEVEL).compress(plain.getvalue()))
