"""Copies of Kafka's data directories that a test may write to, made once per case."""

from pathlib import Path

import pytest

from tests.support import kafka_data, trees


@pytest.fixture(scope="session")
def writable(tmp_path_factory):
    """From a data directory to a copy of it, the same one each time."""
    copies: dict[Path, Path] = {}

    def copy_of(directory: Path) -> Path:
        if directory not in copies:
            target = tmp_path_factory.mktemp("kafka", numbered=True) / directory.name
            copies[directory] = trees.copy_tree(directory, target)
        return copies[directory]

    return copy_of


def pytest_collection_modifyitems(items):
    """Without the data there is nothing to parametrise over: say so."""
    if kafka_data.data_root() is None:
        here = Path(__file__).parent
        reason = "no shared data: set KAFKALOG_SHARED to the folder that holds data/kafka"
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))
