"""Requested elections, and the balancing of leaders."""

from __future__ import annotations

import pytest

from kafkalog.controller import brokers, topics
from kafkalog.controller.requested_elections import elect_leaders, unbalanced
from kafkalog.metadata.image import NO_LEADER
from kafkalog.wire.error_codes import ErrorCode
from tests.unit.controller.building import Cluster, Shown

KEY = ("t", 0)


@pytest.mark.parametrize(
    ("unclean", "state", "living", "error", "wanted"),
    [
        (False, Shown(2, 5, (2, 1), 7), (1, 2), ErrorCode.NONE, Shown(1, 6, (2, 1), 8)),
        (False, Shown(1, 5, (1, 2), 7), (1, 2), ErrorCode.ELECTION_NOT_NEEDED, None),
        (False, Shown(2, 5, (2,), 7), (1, 2), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
        (False, Shown(2, 5, (2, 1), 7), (2,), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
        (True, Shown(NO_LEADER, 5, (1,), 7), (2,), ErrorCode.NONE, Shown(2, 6, (2,), 8, True)),
        (True, Shown(NO_LEADER, 5, (2,), 7), (2,), ErrorCode.NONE, Shown(2, 6, (2,), 8)),
        (True, Shown(2, 5, (2,), 7), (1, 2), ErrorCode.ELECTION_NOT_NEEDED, None),
        (True, Shown(NO_LEADER, 5, (1,), 7), (3,), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None),
    ],
)
def test_an_election_is_asked_for(
    unclean: bool, state: Shown, living: tuple[int, ...], error: ErrorCode, wanted: Shown | None
) -> None:
    of = Cluster(living)
    of.led(KEY, (1, 2), state)
    answers = of.decide(elect_leaders(of.context, of.batch, [KEY, KEY], unclean=unclean))
    assert answers == {KEY: error}
    assert of.shown(KEY) == (wanted or state)
    assert {kind for _, kind, _ in of.requests()} == (
        {"LeaderAndIsr", "UpdateMetadata"} if wanted else set()
    )


def test_impossible_elections() -> None:
    of = Cluster((1, 2))
    of.led(KEY, (1, 2), Shown(2, 5, (2, 1), 7))
    unknown = of.decide(elect_leaders(of.context, of.batch, [("u", 0)], unclean=False))
    assert unknown == {("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    of.refuse = lambda _: True
    refused = of.decide(elect_leaders(of.context, of.batch, [KEY], unclean=False))
    assert refused == {KEY: ErrorCode.UNKNOWN_SERVER_ERROR}
    of.context.deleted.add("t")
    deleted = of.decide(elect_leaders(of.context, of.batch, [KEY], unclean=False))
    assert deleted == {KEY: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_partition_that_never_had_a_leader_is_not_led_uncleanly() -> None:
    of = Cluster((2,))
    of.decide(topics.topics_changed(of.context, of.batch, of.topic("t", {0: (1,)})))
    answers = of.decide(elect_leaders(of.context, of.batch, [KEY], unclean=True))
    assert answers == {KEY: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_leaders_are_balanced() -> None:
    """A broker that returns gets its share again once it is in sync and leads too few."""
    of = Cluster((1, 2))
    node = of.topic("t", {n: (1, 2) if n < 4 else (2, 1) for n in range(8)})
    of.decide(topics.topics_changed(of.context, of.batch, node))
    assert unbalanced(of.context, 10) == []
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(2)))
    assert unbalanced(of.context, 10) == []
    of.decide(brokers.brokers_changed(of.context, of.batch, of.brokers(1, 2)))
    assert unbalanced(of.context, 10) == []  # it is out of sync
    for n in range(4):
        one = of.context.partitions["t", n]
        of.context.partitions["t", n] = one._replace(isr=(2, 1))
    due = unbalanced(of.context, 10)
    assert due == [("t", n) for n in range(4)]
    assert unbalanced(of.context, 100) == []
    one = of.context.partitions["t", 7]
    of.context.partitions["t", 7] = one._replace(adding_replicas=(3,))
    assert unbalanced(of.context, 10) == []
    of.context.partitions["t", 7] = one
    of.context.deleted.add("t")
    assert unbalanced(of.context, 10) == []
    of.context.deleted.clear()
    assert {*of.decide(elect_leaders(of.context, of.batch, due, unclean=False)).values()} == {
        ErrorCode.NONE
    }
    assert unbalanced(of.context, 0) == []
