"""The levels of metadata.version that can be lowered are the same as in Apache Kafka."""

from __future__ import annotations

import pytest

from kafkalog.kraft.features import RECORDS_CHANGED
from kafkalog.metadata.levels import LEVEL, LEVEL_MIN
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_kafka_lowers_the_same_levels() -> None:
    try:
        said = apache.ask("Levels")
    except apache.Unavailable as reason:
        pytest.skip(str(reason))
    pairs = [tuple(map(int, line.split())) for line in said.splitlines()]
    theirs = {(high, low) for high, low in pairs if high <= LEVEL}
    ours = {
        (high, low)
        for high in range(LEVEL_MIN, LEVEL + 1)
        for low in range(LEVEL_MIN, high)
        if not RECORDS_CHANGED & {*range(low + 1, high + 1)}
    }
    assert theirs == ours and (28, 27) in ours and (31, 30) in ours
