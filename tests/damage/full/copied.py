"""The life of a replica, step by step: a follower of two leaders, one after the other."""

from __future__ import annotations

from pathlib import Path

from kafkalog.directory.manager import Manager
from kafkalog.inspect.verify.files import verify
from kafkalog.log.log import Log, handle_of
from kafkalog.replication.follower_log import FollowerLog, sync_before_leading
from kafkalog.replication.following import Append, Cut, EpochEnd, Restart
from tests.damage.full.lives import Step, value_of
from tests.support import batches
from tests.support.copies import batches_in

PARTED, LAST = 14, 40
"""Where the two leaders' logs diverge, and where the second one ends."""
OURS = 6
"""The epoch in which the replica itself leads."""


def history(epochs: dict[int, int]) -> list[bytes]:
    """One batch a record; `epochs`: the first offset of each, in order."""
    found, epoch = [], 0
    for offset in range(LAST):
        epoch = epochs.get(offset, epoch)
        row = batches.Row(value_of(offset + 100 * epoch), b"k%d" % (offset % 7), offset)
        found.append(batches.batch([row], base_offset=offset, leader_epoch=epoch))
    return found


class CopyLife:
    """`leader` holds the batches that it copied, from `start` up to `end`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "data"
        self.first = history({0: 1, 9: 2, PARTED: 3})
        self.second = history({0: 1, 9: 2, PARTED: 5, 35: 7})
        self.leader = self.first
        self.start, self.end, self.shown = 0, 0, 0
        self._manager: Manager | None = None
        self._log: Log | None = None
        self.steps: list[Step] = [
            self.open, self.take, self.sync, self.checkpoints, self.take, self.take, self.close,
            self.open, self.part, self.take, self.checkpoints, self.take, self.drop, self.crash,
            self.open, self.take, self.lead, self.append, self.checkpoints, self.follow,
            self.take, self.restart, self.take, self.sync, self.close, self.open, self.take,
            self.close,
        ]  # fmt: skip

    @property
    def copy(self) -> FollowerLog:
        assert self._log is not None
        return FollowerLog(self._log)

    def open(self) -> None:
        if self._manager is None:
            quiet = {"log.retention.check.interval.ms": 1 << 40, "log.cleaner.enable": False}
            small = {"segment.bytes": 1_500, "file.delete.delay.ms": 0}
            self._manager = Manager(self.path, quiet, small)
            self._manager.state.copied = True
        if not self._manager.partitions("log"):
            self._manager.create_topic("log")
        self._log = self._manager.get("log")

    def close(self) -> None:
        manager, self._log, self._manager = self._manager, None, None
        assert manager is not None
        manager.close()

    def crash(self) -> None:
        """End as a kill does: without a close."""
        assert self._manager is not None
        handle_of(self.copy.log).abandon()
        self._manager._scheduler.stop()
        self._manager.state.close()
        Manager._shared.forget(self._manager)
        self._log = self._manager = None

    # ---- orders of leaders -------------------------------------------------------------------

    def take(self) -> None:
        """Fetch five more batches, in two answers; all but the last two are committed."""
        target = min((self.end // 5 + 1) * 5, LAST)
        while (at := self.copy.now().log_end) < target:
            data = b"".join(self.leader[at : min(at + 3, target)])
            self.shown = max(self.shown, target - 2)
            self.copy.do(Append(data, target - 2, self.start), at)
        self.end = target

    def part(self) -> None:
        """Another leader takes over, which never had epoch 3."""
        self.leader = self.second
        while (last := self.copy.now().last_epoch) not in (2, -1):
            assert last == 3
            self.copy.do(EpochEnd(2, PARTED))
        self.end = self.copy.now().log_end
        assert self.end == PARTED

    def drop(self) -> None:
        """The leader deletes records."""
        self.start = max(self.start, 7)
        self.copy.do(Append(None, self.shown, self.start))

    def lead(self) -> None:
        """Lead for one record, which no other node copies."""
        handle = handle_of(self.copy.log)
        sync_before_leading(handle)
        handle.lead(OURS)

    def append(self) -> None:
        self.copy.log.append(b"nobody's")

    def follow(self) -> None:
        self.copy.do(Cut(self.end))

    def restart(self) -> None:
        """It was away until the leader deleted everything that it has."""
        self.copy.do(Restart(30))
        self.start = self.end = 30

    def sync(self) -> None:
        self.copy.sync_begin()
        self.copy.sync()

    def checkpoints(self) -> None:
        assert self._manager is not None
        points = self._manager.upkeep.checkpoints
        points.recovery_points(), points.log_starts(), points.high_watermarks()

    # ---- invariants -------------------------------------------------------------------------

    def _held(self, start: int) -> list[bytes]:
        return batches_in(self.path / "log-0", start)

    def check_refused(self) -> None:
        """After a refusal: it holds a leader's records, and no more are visible than exist."""
        if self._log is None:
            return
        now = self.copy.now()
        assert now.log_start <= now.high_watermark <= now.log_end
        held = self._held(now.log_start)
        sides = [
            side[now.log_start : now.log_start + len(held)] for side in (self.first, self.second)
        ]
        assert held in sides or self.copy.log.leader_epoch == OURS

    def check(self) -> None:
        """After a step: exactly what it should have."""
        if self._log is None or self.copy.now().last_epoch == OURS:
            return
        now = self.copy.now()
        assert now.log_end == self.end
        assert now.log_start <= self.start  # a leader's deletion takes effect with its next answer
        assert now.high_watermark <= min(self.shown, self.end) or now.high_watermark == self.start
        assert self._held(self.start) == self.leader[self.start : self.end]

    def end_well(self) -> None:
        """A last open finds everything, and verify no damage; it goes on to the leader's end."""
        self.open()
        self.check()
        while self.end < LAST:
            self.take()
        self.check()
        log, last = self.copy.log, self.copy.now().last_epoch
        assert (last, log.epoch_end(last), log.epoch_end(OURS)) == (7, (7, LAST), (5, 35))
        self.close()
        report = verify([str(self.path)])
        assert report.clean, report.findings
