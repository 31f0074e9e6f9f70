"""A broker's directory changes hands between Apache Kafka and us, under a controller whose voters
are in the metadata log (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.quorum.nodes import KAFKA, OURS, Quorum
from tests.support import apache

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
FIRST, SECOND = 2, 3


@pytest.fixture(scope="module")
def quorum(memory: Path) -> Iterator[Quorum]:
    try:
        with Quorum(memory / "hands", [FIRST, SECOND], dynamic=True) as running:
            running.nodes[FIRST].begin(OURS)
            running.nodes[SECOND].begin(OURS)
            running.all_known()
            yield running
    except apache.Unavailable as reason:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")


def test_a_directory_changes_hands(quorum: Quorum) -> None:
    """Ours, Kafka's, ours: with all records, in sync each time."""
    quorum.create("kept", [SECOND, FIRST], min_insync_replicas="1")
    count = 0
    for kind in (OURS, KAFKA, OURS):
        if kind != OURS or count:
            assert quorum.nodes[SECOND].stop() in (0, 143), "in order"
            quorum.led("kept", FIRST)
            quorum.produce("kept", range(count, count + 50))
            count += 50
            quorum.nodes[SECOND].begin(kind)
        quorum.in_sync("kept", FIRST, SECOND)
        quorum.produce("kept", range(count, count + 50))
        count += 50
        assert quorum.same("kept", FIRST, SECOND)
    assert quorum.consumed("kept", count) == [b"%d" % n for n in range(count)]


def test_the_metadata_log_is_the_controllers(quorum: Quorum) -> None:
    for number in (FIRST, SECOND):
        quorum.nodes[number].stop()
    quorum.controller.stop()
    assert quorum.same_metadata(FIRST, SECOND) > 5_000
