"""XXH3, and the hashes of topics in the records of consumer groups."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkalog.coordinator.consumer_groups.topics import NO_TOPICS, group_hash, topic_hash
from kafkalog.coordinator.xxh3 import xxh3_64

DATA = bytes((i * 131 + 7) & 255 for i in range(3_000))


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (0, 0x2D06800538D394C2), (3, 0x6E3E2670E61106AC), (8, 0xF9FD4DD0B04D78F5),
        (16, 0x86ABF6BACCEA0858), (100, 0x5DA67EAC6D4093D5), (200, 0xC0FBC0F4E181C826),
        (240, 0xB6CFAF343FAB81E6), (241, 0x956CAE592C67279E), (1_024, 0x70BD377D9574F4BB),
        (3_000, 0x33A08283BBA03E0C),
    ],
)  # fmt: skip
def test_the_hash_is_that_of_xxhash(size: int, wanted: int) -> None:
    """Vectors of xxHash 0.8.1, one for each way of the algorithm."""
    assert xxh3_64(DATA[:size]) == wanted


def test_the_hash_of_a_topic_depends_on_its_racks() -> None:
    """But not on the order of a partition's racks."""
    topic_id = UUID(int=7)
    plain = topic_hash("t", topic_id, [["a", "b"], []])
    assert topic_hash("t", topic_id, [["b", "a"], []]) == plain
    assert topic_hash("t", topic_id, [["a"], ["b"]]) != plain


def test_a_group_without_topics_has_no_hash() -> None:
    assert group_hash(["missing"], NO_TOPICS) == 0
