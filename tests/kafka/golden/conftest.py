"""Writable copies of Kafka's data directories, made once per case, in memory."""

from pathlib import Path

import pytest

from tests.support import trees


@pytest.fixture(scope="session")
def writable(memory):
    """From a data directory to a copy of it, the same one each time."""
    copies: dict[Path, Path] = {}

    def copy_of(directory: Path) -> Path:
        if directory not in copies:
            target = memory / f"golden{len(copies)}" / directory.name
            copies[directory] = trees.copy_tree(directory, target)
        return copies[directory]

    return copy_of
