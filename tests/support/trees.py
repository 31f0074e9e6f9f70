"""Copies of directories, and whether anything in one changed."""

import hashlib
import shutil
from pathlib import Path


def copy_tree(source: Path, target: Path) -> Path:
    """A copy that is writable, whatever the modes of the source.

    An open log replaces small files in a thread of its own.  A file that was renamed during the
    copy is there under its new name, so the copy is started again.
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
    """Remove from the log of a killed process the files that record how far it was on disk: the
    sync of a roll may have written them by then, or not."""
    (folder / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    (folder / "flushed-offset").unlink(missing_ok=True)
    return folder


def fingerprint(directory: Path, pattern: str = "*") -> dict[str, tuple[int, str]]:
    """Relative name to (size, SHA-256) of every file below."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in sorted(directory.rglob(pattern))
        if path.is_file()
    }
