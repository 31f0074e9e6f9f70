"""Bounds of share partitions, and work that is done without the lock of all."""

from uuid import UUID

import pytest

from kafkalog.coordinator.share_state.persister import WriteState
from kafkalog.coordinator.share_state.requests import Given, decide
from kafkalog.coordinator.share_state.state import BATCHES_MAX, Snapshot, applied, initial
from kafkalog.errors import StorageOffline
from kafkalog.shares.acquiring import Batch, Want, acquire
from kafkalog.shares.entries import Entries, EntryKey
from kafkalog.shares.partition import RANGES_MAX, Acknowledgement, Limits, Refused, SharePartition
from kafkalog.shares.ranges import Ranges
from kafkalog.shares.requests import GroupShare, Led
from kafkalog.shares.sessions import Where
from kafkalog.wire.error_codes import ErrorCode
from tests.support.share_persister import MemoryPersister

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


class Owner:
    """Runs all in the thread of the test."""

    def __init__(self, error=None):
        self.effects, self.error, self.locked = [], error, False

    def run(self, work):
        self.locked = True
        work()
        self.locked = False
        while self.effects:
            self.effects.pop(0)()

    def changed(self, entry):
        pass

    def settings(self, group):
        return GroupShare()

    def first_offset(self, group, led):
        assert not self.locked, "the log is read under the lock"
        if self.error is not None:
            raise self.error
        return 7

    def now_ms(self):
        return 0


@pytest.mark.parametrize("error", [None, StorageOffline("no disk")])
def test_a_group_without_state_reads_the_log_without_the_lock(error):
    owner = Owner(error)
    entries, key, found = Entries(MemoryPersister(), owner), EntryKey("g", Where(TOPIC, 0)), []
    owner.run(lambda: found.append(entries.use(key, Led("t", 1, None))))
    (entry,) = found
    if error is None:
        assert entry.share.start == 7 and entries.get(key) is entry
    else:
        assert entry.refused.code is ErrorCode.UNKNOWN_SERVER_ERROR and entries.get(key) is None


def test_figures_do_not_walk_records_in_flight(monkeypatch):
    """All share fetches wait for them."""
    owner = Owner()
    entries, key, found = Entries(MemoryPersister(), owner), EntryKey("g", Where(TOPIC, 0)), []
    owner.run(lambda: found.append(entries.use(key, Led("t", 1, None))))
    share = found[0].share
    acquire(share, Want("m", 100, 100), 7, [Batch(7, 106)], 0, LIMITS)
    share.acknowledge("m", [Acknowledgement(9, 106, [1, 2] * 49)], 0, LIMITS)
    wanted = (sum(one.size for one in share.holds), len(share.holds), 0)
    with monkeypatch.context() as patched:
        patched.setattr(Ranges, "__iter__", lambda _ranges: pytest.fail("it walks"))
        (figures,) = entries.figures().values()
    assert figures == wanted and wanted[:2] == (100, 99)


def test_the_offsets_of_ranges_are_counted():
    ranges = Ranges()
    steps = [
        lambda: ranges.put(0, 99, "a"), lambda: ranges.put(200, 299, "a"),
        lambda: ranges.put(50, 249, "b"), lambda: ranges.put(260, 270, "c"),
        lambda: ranges.change(10, 265, str.upper), lambda: ranges.change(0, 400, str.lower),
        lambda: ranges.cut(55), lambda: ranges.put(400, 400, "d"), lambda: ranges.cut(350),
        lambda: ranges.put(300, 410, "e"), lambda: ranges.cut(500), lambda: ranges.put(1, 3, "a"),
        ranges.clear,
    ]  # fmt: skip
    counts = []
    for step in steps:
        step()
        assert ranges.offsets == sum(one.size for one in ranges)
        counts.append(ranges.offsets)
    assert counts == [100, 200, 300, 300, 300, 300, 245, 246, 1, 111, 0, 3, 0]
