"""The identity of a partition's folder, which a later folder of that name does not have: its
topic's id, or, without one, the folder's inode and that of the log's `.lock`.

The first writer creates the lock, and it stays as long as the log: so a log whose files were
replaced in the same folder has another identity, too.
"""

from __future__ import annotations

import os
from contextlib import closing

Inode = tuple[int, int, int]
_FOLDER, _LOCK = "inode ", ", .lock inode "


def which(folder: str) -> tuple[Inode, Inode | None]:
    """The identity of the folder, and of the lock in it.

    Raises: FileNotFoundError.
    """
    from kafkalog.disk.directory import Directory

    with closing(Directory(folder)) as directory:
        return directory.identify()


def identity(folder: str) -> str:
    """The partition's identity: its topic's id, or the folder's.

    Raises: FileNotFoundError.
    """
    from kafkalog.disk import layout
    from kafkalog.errors import CorruptLog

    try:
        with open(os.path.join(folder, layout.PARTITION_METADATA), "rb") as file:
            return str(layout.parse_partition_metadata(file.read(1 << 12)))
    except (FileNotFoundError, CorruptLog):  # torn by a power cut: the next owner repairs it
        return of_folder(folder)


def of_folder(folder: str) -> str:
    """The same, whether it has a topic's id or not.

    Raises: FileNotFoundError.
    """
    own, lock = which(folder)
    return f"{_FOLDER}{_told(own)}" + (f"{_LOCK}{_told(lock)}" if lock else "")


def _told(inode: Inode) -> str:
    return "{} born {} version {}".format(*inode)


def is_of_folder(identity: str) -> bool:
    """True if it is the identity of a folder without a topic id."""
    return identity.startswith(_FOLDER)


def is_of_topic(identity: str) -> bool:
    """True if it is a topic's: not a folder's, and not from a broker without topic ids."""
    return not is_of_folder(identity) and identity.strip("0-") != ""


def same(one: str, other: str) -> bool:
    """True if both are of one log.  A folder without a writer so far gets a lock later."""
    (folder, *lock), (other_folder, *other_lock) = one.split(_LOCK), other.split(_LOCK)
    return folder == other_folder and (lock == other_lock or not lock or not other_lock)
