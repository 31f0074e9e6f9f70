"""Copies of directories, and whether anything in one changed."""

import hashlib
import shutil
from pathlib import Path


def copy_tree(source: Path, target: Path) -> Path:
    """A copy that may be written, whatever the modes of the source.

    A log that is open puts small files in the place of older ones, in a thread of its own: what
    was renamed while it was copied is there under its new name, so that it is begun again.
    """
    while True:
        try:
            shutil.copytree(source, target, copy_function=shutil.copyfile)
            break
        except shutil.Error as problem:
            if any("No such file" not in why for _, _, why in problem.args[0]):
                raise
            shutil.rmtree(target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return target


def nothing_was_flushed(folder: Path) -> Path:
    """Take from a killed log that stands alone what tells how far it was on disk: a roll's own sync
    may have written it by then, or not."""
    (folder / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    (folder / "flushed-offset").unlink(missing_ok=True)
    return folder


def fingerprint(directory: Path, pattern: str = "*") -> dict[str, tuple[int, str]]:
    """Name to (size, SHA-256) of every file below, by relative name."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(directory.rglob(pattern))
        if path.is_file()
    }
