"""Counts of the console about a cluster, made once for each answer."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafkalog.client.link.metadata import PartitionInfo, TopicInfo
from kafkalog.console import known as known_module
from kafkalog.console.asked import Asked
from kafkalog.console.known import Known
from kafkalog.console.overview import _counts, _unhealthy
from kafkalog.console.person import Person, Place
from kafkalog.console.topics import topics


def topic(name: str, *rows: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicInfo:
    """Its partitions: leader, replicas, those in sync."""
    partitions = {
        number: PartitionInfo(number, leader, 0, replicas, isr)
        for number, (leader, replicas, isr) in enumerate(rows)
    }
    return TopicInfo(name, UUID(int=1), False, partitions)


TOPICS = {
    one.name: one for one in (
        topic("well", (1, (1, 2), (1, 2)), (2, (2, 1), (2, 1)), (1, (1, 2), (1, 2))),
        topic("behind", (1, (1, 2), (1,)), (1, (1, 2), (2, 1))),
        topic("lost", (-1, (3, 2), (3,)), (-1, (3,), (3,))),
    )
}  # fmt: skip


def test_partitions_are_counted_by_node() -> None:
    leads, holds, behind = _counts(Known(TOPICS))
    assert leads == {1: 4, 2: 1, -1: 2}
    assert holds == {1: 5, 2: 6, 3: 2}
    assert behind == {2: 2}


def test_partitions_that_lack_something_are_listed() -> None:
    found = _unhealthy(Known(TOPICS))
    assert (found["topics"], found["partitions"]) == (3, 7)
    assert (found["unhealthy_count"], found["offline"]) == (3, 2)
    rows = [(one["topic"], one["partition"]) for one in found["unhealthy"]]
    assert rows == [("behind", 0), ("lost", 0), ("lost", 1)]


def test_a_letter_in_the_filter_looks_at_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of topics that are not on the page."""
    person = Person(Place(str), "", "")
    person._known = (float("inf"), Known(TOPICS))
    looked: list[str] = []
    count = known_module.under
    monkeypatch.setattr(
        "kafkalog.console.topics.under", lambda one: looked.append(one.name) or count(one)
    )
    found = topics(person, Asked({"sort": "health", "size": "1"}))
    assert [one["name"] for one in found["topics"]] == ["lost"] == looked
    assert (found["total"], found["partitions"]) == (3, 7)
    assert (found["under"], found["offline"]) == (2, 2)
