"""The simulation finds no bug in the coordinator of groups with members of both protocols, and
finds the bugs planted in it.

A run that finds something reports its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafkalog.coordinator.consumer_groups import classic, convert, service
from kafkalog.coordinator.consumer_groups.changes import Changes
from kafkalog.coordinator.consumer_groups.member import Member
from kafkalog.coordinator.groups import rebalance
from tests.support.simulated import finds, runs
from tests.unit.coordinator.simulation_mixed import simulate

PARTS, RUNS = 2, 12


@pytest.mark.explore
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_mixed_groups_keep_their_promises_whatever_happens(part: int) -> None:
    """H1 to H7 hold under lost and slow messages, deaths, restarts and a failing journal."""
    changes = 0
    for world in runs(simulate, RUNS, part, PARTS):
        changes += world.upgrades + world.downgrades
    assert changes, "no group changed its protocol"


def upgrades_with_nothing(patch: pytest.MonkeyPatch) -> None:
    """The members of an upgraded group lose what they had, without being told."""
    upgraded = convert._upgraded

    def emptied(*args: Any) -> Member:
        return upgraded(*args)._replace(assigned={})

    patch.setattr(convert, "_upgraded", emptied)


def keeps_the_classic_record(patch: pytest.MonkeyPatch) -> None:
    """The journal still has the record of a classic group that was upgraded."""
    replace = Changes.replace_classic

    def replaced(self: Changes, key: bytes, value: bytes | None = None) -> None:
        if value is not None:
            replace(self, key, value)

    patch.setattr(Changes, "replace_classic", replaced)


def downgrades_to_nothing(patch: pytest.MonkeyPatch) -> None:
    """A downgraded group says that its members have nothing."""
    patch.setattr(convert, "_has", lambda _member: {})


def downgrades_without_rebalance(patch: pytest.MonkeyPatch) -> None:
    """The partitions of the last member that heartbeats are left to nobody."""
    patch.setattr(rebalance, "begin", lambda *_: None)


def never_downgrades(patch: pytest.MonkeyPatch) -> None:
    """Classic members only stay a consumer group."""
    patch.setattr(service, "leaves_classic", lambda *_: False)


def calls_nobody(patch: pytest.MonkeyPatch) -> None:
    """Classic members are not told to rejoin."""
    patch.setattr(classic, "must_rejoin", lambda *_: False)


def believes_classic_members(patch: pytest.MonkeyPatch) -> None:
    """A classic member gets all of its target when it asks for its part."""

    def synced(group: Any, member: Member, body: Any, topics: Any) -> Mapping[str, Any]:
        assert member.classic is not None
        target = group.target.get(member.member_id, {})
        data = classic.encoded(target, member.classic.protocols[0][1], topics)
        return {"protocol_type": "consumer", "protocol_name": "range", "assignment": data}

    patch.setattr(classic, "synced", synced)


def leaves_the_rest_alone(patch: pytest.MonkeyPatch) -> None:
    """Nobody assigns the partitions that became free in a group of classic members."""
    patch.setattr(classic, "keep_up", lambda *_: None)


CANARIES = [
    upgrades_with_nothing,
    pytest.param(keeps_the_classic_record, marks=pytest.mark.long),
    pytest.param(downgrades_to_nothing, marks=pytest.mark.long),
    pytest.param(downgrades_without_rebalance, marks=pytest.mark.long),
    never_downgrades,
    calls_nobody,
    believes_classic_members,
    leaves_the_rest_alone,
]


@pytest.mark.parametrize("plant", CANARIES, ids=lambda plant: plant.__name__)
def test_the_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these bugs breaks an invariant within a few runs."""
    finds(simulate, plant, monkeypatch, rule=r"H\d")
