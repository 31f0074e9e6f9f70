"""The rules of elections, one row each; tests/kafka/cluster checks them on Kafka's controller."""

from __future__ import annotations

import pytest

from kafkalog.controller import leader_election
from kafkalog.controller.leader_election import Leadership

NOW = Leadership(1, 5, (3, 1, 2))
REPLICAS = (1, 2, 3)


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({1, 2, 3}, Leadership(1, 0, (1, 2, 3))),
        ({3, 2}, Leadership(2, 0, (2, 3))),
        ({4}, None),
    ],
)
def test_a_new_partition(live: set[int], wanted: Leadership | None) -> None:
    """The first live replica of the assignment leads; all live ones are in sync."""
    assert leader_election.elect_first(REPLICAS, live) == wanted


@pytest.mark.parametrize(
    ("isr", "live", "unclean", "wanted"),
    [
        ((3, 1, 2), {2, 3}, False, Leadership(2, 6, (3, 2))),  # by the assignment, not the ISR
        ((3, 1), {2, 3}, False, Leadership(3, 6, (3,))),
        ((1,), {2, 3}, False, None),
        ((1,), {2, 3}, True, Leadership(2, 6, (2,), recovering=True)),
        ((3, 1), {2, 3}, True, Leadership(3, 6, (3,))),  # clean if possible
        ((1,), {4}, True, None),
    ],
)
def test_a_leader_that_died(
    isr: tuple[int, ...], live: set[int], unclean: bool, wanted: Leadership | None
) -> None:
    now = NOW._replace(leader=-1, isr=isr)
    assert leader_election.elect_for_offline(now, REPLICAS, live, unclean=unclean) == wanted


def test_a_partition_that_is_moved() -> None:
    """Only its leader changes; its ISR depends on the followers."""
    assert leader_election.elect_for_reassignment(NOW, (4, 2), {2, 4}) == Leadership(
        2, 6, (3, 1, 2)
    )
    assert leader_election.elect_for_reassignment(NOW, (4,), {4}) is None


def test_the_preferred_replica() -> None:
    assert leader_election.elect_preferred(NOW, REPLICAS, {1, 2}) == Leadership(1, 6, (3, 1, 2))
    assert leader_election.elect_preferred(NOW, REPLICAS, {2, 3}) is None
    assert leader_election.elect_preferred(NOW._replace(isr=(2,)), REPLICAS, {1, 2}) is None


def test_a_broker_that_is_about_to_end() -> None:
    everybody = {1, 2, 3}
    found = leader_election.elect_for_controlled_shutdown(NOW, REPLICAS, everybody, {1})
    assert found == Leadership(2, 6, (3, 2))
    assert (
        leader_election.elect_for_controlled_shutdown(NOW, REPLICAS, everybody, {1, 2, 3}) is None
    )


@pytest.mark.parametrize(
    ("now", "broker", "wanted"),
    [
        (NOW, 1, Leadership(-1, 6, (3, 2))),
        (NOW, 2, Leadership(1, 6, (3, 1))),
        (NOW, 9, None),
        (Leadership(1, 5, (1,)), 1, Leadership(-1, 6, (1,))),  # the last one stays in the ISR
    ],
)
def test_a_replica_that_left(now: Leadership, broker: int, wanted: Leadership | None) -> None:
    assert leader_election.without_replica(now, broker) == wanted


def test_a_recovering_partition_stays_recovering() -> None:
    now = NOW._replace(recovering=True)
    found = leader_election.elect_for_offline(now, REPLICAS, {2}, unclean=True)
    assert found == Leadership(2, 6, (2,), recovering=True)
