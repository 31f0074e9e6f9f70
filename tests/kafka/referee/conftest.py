"""Skips with a reason if Apache Kafka cannot run."""

import pytest

from tests.support import apache
from tests.unit.metadata.conftest import empty

__all__ = ["empty"]


@pytest.fixture(scope="session")
def kafka_jars():
    """The folder of Apache Kafka's jars."""
    try:
        return apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
