"""A short life of a group, with a restart."""

from __future__ import annotations

from kafkalog.wire.error_codes import ErrorCode
from tests.unit.coordinator.group_calls import Desk, subscription


def test_a_group_outlives_the_coordinator() -> None:
    """Members, assignments and offsets come back from the journal; heartbeats continue."""
    desk = Desk()
    first, second = desk.stable(2, protocols=(("range", subscription("t")),))
    desk.commit({("t", 0): 5}, first.member_id, 1, metadata="ü日", leader_epoch=3)
    before = desk.describe()
    desk.restart()
    assert desk.describe() == before
    assert desk.state() == "Stable"
    (found,) = desk.committed().values()
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (5, 3, "ü日")
    assert desk.heartbeat(second.member_id, 1) is ErrorCode.NONE
