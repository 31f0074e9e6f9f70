"""The check of files, with its progress on a terminal, for the commands that begin with one."""

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkalog.cli.common import UsageError
from kafkalog.cli.progress import BytesProgress, on_terminal

if TYPE_CHECKING:
    from kafkalog.report import Report

__all__ = ["bytes_of_logs", "checked"]


def checked(paths: Iterable[str], deep: bool) -> "Report":
    """The report on data directories, partitions' folders or files.

    Raises: UsageError: nothing there is Kafka's; FileNotFoundError.
    """
    from kafkalog.inspect.verify.files import verify

    paths = list(paths)
    progress = BytesProgress(bytes_of_logs(paths) if on_terminal() else 0)
    try:
        return verify(paths, deep=deep, watch=progress.done)
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    finally:
        progress.clear()


def bytes_of_logs(paths: Iterable[str]) -> int:
    """The size of all .log files in these folders, or of these files."""
    paths = list(paths)
    names = [path for path in paths if os.path.isfile(path)]
    for path in paths:
        names += [os.path.join(folder, one) for folder, _, files in os.walk(path) for one in files]
    total = 0
    for name in names:
        if name.endswith(".log"):
            with contextlib.suppress(OSError):  # it was deleted since
                total += os.path.getsize(name)
    return total
