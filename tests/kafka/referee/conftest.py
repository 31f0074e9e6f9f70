"""Skips with a reason where Apache Kafka cannot run, and what our side of a question needs."""

import pytest

from tests.support import apache
from tests.unit.metadata.conftest import empty

__all__ = ["empty"]


@pytest.fixture(scope="session")
def kafka_jars():
    """The folder of Apache Kafka's jars."""
    return jars(apache.VERSION)


@pytest.fixture(scope="session")
def newest_kafka_jars():
    """Those of the Kafka that directories change hands with."""
    return jars(apache.NEWEST)


def jars(version):
    try:
        return apache.jars(version)
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
