"""The inputs that are kept: `corpus.zip` with `TARGET/NAME.bin` for each.

`python -m tests.damage.fuzz.corpus TARGET FILE ...` adds some.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARCHIVE = HERE / "corpus.zip"
STAMP = (2026, 1, 1, 0, 0, 0)
"""The time of every entry, so that the same inputs make the same archive."""


def inputs() -> dict[str, bytes]:
    """Every input, by its name in the archive."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def unpacked(below: Path) -> Path:
    """A folder with a subfolder for each target, created in `below` if it does not exist."""
    folder = below / f"seeds-{zlib.crc32(ARCHIVE.read_bytes()):08x}"
    if not folder.is_dir():
        below.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=below))
        for name, data in inputs().items():
            (fresh / name).parent.mkdir(exist_ok=True)
            (fresh / name).write_bytes(data)
        try:
            os.rename(fresh, folder)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return folder


def write(kept: dict[str, bytes]) -> None:
    """Write the archive of these inputs."""
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(kept):
            archive.writestr(zipfile.ZipInfo(name, STAMP), kept[name], zipfile.ZIP_DEFLATED, 9)


def main(target: str, *files: str) -> None:
    kept = inputs()
    for file in files:
        data = Path(file).read_bytes()
        kept[f"{target}/{hashlib.sha256(data).hexdigest()[:12]}.bin"] = data
    write(kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
