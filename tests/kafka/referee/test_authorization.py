"""Apache Kafka still answers principals with few permissions as it was recorded."""

import pytest

from tests.support import authorization

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.long]


def test_kafka_answers_as_recorded(kafka_jars, tmp_path):
    """The record that our broker is compared with is up to date: `python -m
    tests.support.authorization` makes it again."""
    with authorization.kafka(tmp_path / "data") as address:
        kafkas = authorization.answers(address)
    assert authorization.differences(kafkas, authorization.recorded()) == []
