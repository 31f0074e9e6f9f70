"""The controller and the nodes use their own listener."""

from __future__ import annotations

from pathlib import Path

from kafkalog.testing.standin import StandIn
from tests.support.control import Place, begin, knows, serves
from tests.support.waiting import wait_for


def test_controller_requests_use_the_control_listener(tmp_path: Path) -> None:
    """Their requests use no other one, and clients are not given its address."""
    first, second = Place(), Place()
    with (
        StandIn() as zookeeper,
        begin(first, tmp_path / "1", zookeeper.hosts, 1) as one,
        begin(second, tmp_path / "2", zookeeper.hosts, 2),
    ):
        for place in (first, second):
            wait_for(lambda place=place: knows(place, 2, 1), "both know both")
        serves(second, "told", 2, asked=first)
        serves(first, "asked", 1, asked=second)
        assert str(first.control) not in one.bootstrap_servers
