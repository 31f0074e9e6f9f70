"""Skips with a reason where Apache Kafka cannot run."""

import pytest

from tests.support import apache


@pytest.fixture(scope="session")
def kafka_jars():
    """The folder of Apache Kafka's jars."""
    try:
        return apache.jars()
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
