"""What tells a partition's folder from the next one of its name: the id of its topic; where it has
none, which folder it is, and which `.lock` the log in it has.

The lock is made by the first writer and stays as long as the log: so a log whose files were
replaced in the same folder is another one, too.
"""

from __future__ import annotations

import os
from contextlib import closing

Inode = tuple[int, int, int]
_FOLDER, _LOCK = "inode ", ", .lock inode "


def which(folder: str) -> tuple[Inode, Inode | None]:
    """Which folder it is, and which lock is in it.

    Raises: FileNotFoundError.
    """
    from kafkalog.disk.directory import Directory

    with closing(Directory(folder)) as directory:
        return directory.identify()


def identity(folder: str) -> str:
    """What tells a partition from one that has its name later: the topic's id, or the folder's.

    Raises: FileNotFoundError.
    """
    from kafkalog.disk import layout
    from kafkalog.errors import CorruptLog

    try:
        with open(os.path.join(folder, layout.PARTITION_METADATA), "rb") as file:
            return str(layout.parse_partition_metadata(file.read(1 << 12)))
    except (FileNotFoundError, CorruptLog):  # torn by a power cut: the next owner mends it
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
    """Whether it is of a folder that has no id of a topic."""
    return identity.startswith(_FOLDER)


def is_of_topic(identity: str) -> bool:
    """Whether it is a topic's: not of a folder alone, nor what a broker says that knows none."""
    return not is_of_folder(identity) and identity.strip("0-") != ""


def same(one: str, other: str) -> bool:
    """Whether both are of one log.  A folder that no writer had before gets a lock."""
    (folder, *lock), (other_folder, *other_lock) = one.split(_LOCK), other.split(_LOCK)
    return folder == other_folder and (lock == other_lock or not lock or not other_lock)
