"""Bounds of share partitions, and work that is done without the lock of all."""

from uuid import UUID

import pytest

from kafkalog.coordinator.share_state.persister import WriteState
from kafkalog.coordinator.share_state.requests import Given, decide
from kafkalog.coordinator.share_state.state import BATCHES_MAX, Snapshot, applied, initial
from kafkalog.shares.acquiring import Batch, Want, acquire
from kafkalog.shares.partition import RANGES_MAX, Acknowledgement, Limits, Refused, SharePartition
from kafkalog.wire.error_codes import ErrorCode

TOPIC = UUID(int=1)
LIMITS = Limits()


def test_a_leader_refuses_more_pieces_than_its_coordinator_keeps():
    """A batch of the log may have more offsets than may be in flight."""
    size, part = 2 * BATCHES_MAX, BATCHES_MAX // 4
    share = SharePartition(0)
    acquire(share, Want("m", 500, 500), 0, [Batch(0, size - 1)], 0, LIMITS)
    kept = applied(None, Snapshot(initial(0, 1, 0, 0)), 500)
    given = Given(0, 500, lambda _topic, _partition: True)
    types = [2, 1] * (part // 2)
    for first in range(0, size, part):
        try:
            share.acknowledge("m", [Acknowledgement(first, first + part - 1, types)], 0, LIMITS)
        except Refused as refused:
            assert refused.code is ErrorCode.INVALID_REQUEST and str(RANGES_MAX) in refused.message
            assert len(share.holds) > BATCHES_MAX // 2
            return
        write = share.begin_write()
        asked = WriteState(TOPIC, 0, 1, 0, write.start_offset, write.complete, write.rows)
        decision = decide(asked, kept, given)
        assert decision.result.error is ErrorCode.NONE
        kept = applied(kept, decision.changes[0], 500)
        share.end_write(done=True, now_ms=0, limits=LIMITS)
    pytest.fail("the leader refuses nothing")
